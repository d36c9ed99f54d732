package auth

import (
	"context"
	"log/slog"
	"time"

	"tidewire/cluster/metadata"
	"tidewire/internal/model"
)

// Config is what New needs. Zero durations take the defaults below.
type Config struct {
	Cluster Cluster
	Sealer  *Sealer
	Hasher  *Hasher // nil: NewHasher(DefaultArgon2())
	Logger  *slog.Logger
	Now     func() time.Time // wall clock; nil: time.Now

	AccessTTL   time.Duration // of an access token; DefaultAccessTTL
	RefreshTTL  time.Duration // of a refresh token that is not used; DefaultRefreshTTL
	SessionTTL  time.Duration // from login to a new login at the latest; DefaultSessionTTL
	RotateEvery time.Duration // age at which the signing key is replaced; DefaultRotateEvery
	CookieTTL   time.Duration // of a browser's session that is not used; DefaultCookieTTL
	CookieMax   time.Duration // of a browser's session at the latest; DefaultCookieMax
}

// Defaults of Config.
const (
	DefaultAccessTTL   = 15 * time.Minute
	DefaultRefreshTTL  = 30 * 24 * time.Hour
	DefaultSessionTTL  = 180 * 24 * time.Hour
	DefaultRotateEvery = 30 * 24 * time.Hour
	DefaultCookieTTL   = 24 * time.Hour
	DefaultCookieMax   = 30 * 24 * time.Hour
)

// Auth is the parts that a node uses together.
type Auth struct {
	Service    *Service
	Tokens     *Tokens
	Authorizer *Authorizer
}

// New builds the parts. It starts nothing and reads no image.
func New(c Config) *Auth {
	c.setDefaults()
	s := &Service{
		cluster: c.Cluster, sealer: c.Sealer, hasher: c.Hasher, log: c.Logger, now: c.Now,
		signer:    signerCache{making: make(chan struct{}, 1)},
		accessTTL: c.AccessTTL, refreshTTL: c.RefreshTTL, sessionTTL: c.SessionTTL, rotateEvery: c.RotateEvery,
		cookieTTL: c.CookieTTL, cookieMax: c.CookieMax,
	}
	s.tokens = NewTokens(c.Cluster, c.Now)
	s.limiter = newLimiter(c.Now, c.Logger)
	s.renewals.flights = map[string]*flight{}
	return &Auth{Service: s, Tokens: s.tokens, Authorizer: NewAuthorizer(c.Cluster)}
}

func (c *Config) setDefaults() {
	if c.Hasher == nil {
		c.Hasher = NewHasher(DefaultArgon2())
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	for d, v := range map[*time.Duration]time.Duration{
		&c.AccessTTL: DefaultAccessTTL, &c.RefreshTTL: DefaultRefreshTTL,
		&c.SessionTTL: DefaultSessionTTL, &c.RotateEvery: DefaultRotateEvery,
		&c.CookieTTL: DefaultCookieTTL, &c.CookieMax: DefaultCookieMax,
	} {
		if *d <= 0 {
			*d = v
		}
	}
}

// Service changes users, sessions, the setup and the signing keys through the
// quorum. It is safe for concurrent use. Whether the caller may do so is decided
// before, by Authorizer; only what depends on the caller's own account is decided
// here.
type Service struct {
	cluster Cluster
	sealer  *Sealer
	hasher  *Hasher
	log     *slog.Logger
	now     func() time.Time

	accessTTL, refreshTTL, sessionTTL, rotateEvery, cookieTTL, cookieMax time.Duration

	tokens   *Tokens
	limiter  *limiter
	signer   signerCache
	renewals renewals
}

// propose commits a command; a refusal is the error, in either form it comes in.
func (s *Service) propose(ctx context.Context, cmd metadata.Command) (metadata.Result, error) {
	res, err := s.cluster.Propose(ctx, cmd)
	if err == nil && res.Refusal != nil {
		err = res.Refusal
	}
	return res, err
}

// credentials makes everything a password leaves behind, at the same moment: the
// verifiers cannot be derived from the hash later.
func (s *Service) credentials(ctx context.Context, user, password string) (metadata.Credentials, error) {
	var c metadata.Credentials
	hash, err := s.hasher.Hash(ctx, password)
	if err != nil {
		return c, busy(err)
	}
	c.PasswordHash = hash
	for _, m := range []struct {
		mechanism ScramMechanism
		into      *[]byte
	}{{ScramSHA256, &c.SCRAMSHA256}, {ScramSHA512, &c.SCRAMSHA512}} {
		v, err := s.hasher.Scram(ctx, m.mechanism, password)
		if err != nil {
			return metadata.Credentials{}, busy(err)
		}
		*m.into = s.sealer.SealScram(m.mechanism, user, v)
	}
	return c, nil
}

// checkLogin finds what is wrong with a new user's name and password.
func checkLogin(username, password string) error {
	if d := CheckUsername(username); d != "" {
		return model.Invalid("/username", "%s", d)
	}
	if d := CheckPassword(password); d != "" {
		return model.Invalid("/password", "%s", d)
	}
	return nil
}

// CheckUsername returns what is wrong with a user's name, or "". It adds to the rules of
// names that a user cannot be called "*": its rules would be those of everyone.
func CheckUsername(name string) string {
	if d := model.CheckName(name); d != "" {
		return d
	}
	if name == anyName {
		return `must not be "*", which means everyone in ACL rules`
	}
	return ""
}
