package auth

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"sync"
	"time"

	"tidewire/cluster/metadata"
	"tidewire/internal/model"
)

// A browser's session is known by a cookie of 512 random bits in the form of a refresh
// token. Nothing of it changes while it lives: tabs of one browser send requests side by
// side, and a value that were replaced by one of them would end the others.
//
// What an access token's 15 minutes are to other callers, RotatedAt is here: a node takes a
// cookie by its own image only until 15 minutes after the session was last renewed. Then it
// renews the session through the quorum, once for all requests that wait, and the browser
// notices nothing. So a node that is cut off takes a cookie that was revoked elsewhere no
// longer than an access token, and a session in use costs one command in 15 minutes.
const cookiePrefix = secretPrefix("twc_")

// CookieGrant is what a login of a browser gives.
type CookieGrant struct {
	Cookie    string // the value of the cookie
	CSRFToken string
	ExpiresIn time.Duration // until the session ends when it is not used
	Username  string
}

// CookieLogin checks a password and starts a browser's session. Errors as Login's.
func (s *Service) CookieLogin(ctx context.Context, r LoginRequest) (*CookieGrant, error) {
	user, err := s.Authenticate(ctx, r)
	if err != nil {
		return nil, err
	}
	token, now := newRefreshToken(), s.now()
	ttl := min(s.cookieTTL, s.cookieMax)
	_, err = s.propose(ctx, metadata.CreateSession{
		ID: token.sessionID(), User: user.Name, IfEpoch: user.CredentialsEpoch, RefreshHash: token.cookieHash(),
		ExpiresAt: metadata.MillisOf(now.Add(ttl)), Now: metadata.MillisOf(now), MaxSessions: MaxSessions,
	})
	if err != nil {
		return nil, err
	}
	c := cookie{s: s, token: token}
	return &CookieGrant{Cookie: token.text(cookiePrefix), CSRFToken: c.CSRFToken(), ExpiresIn: ttl, Username: user.Name}, nil
}

// cookieHash is what is stored of a cookie. It differs from that of a refresh token, so
// that neither passes for the other.
func (r refreshToken) cookieHash() []byte {
	h := sha256.Sum256(append([]byte("tidewire session cookie v1"), r[:]...))
	return h[:]
}

// CookieCredential is a browser's session as a credential.
type CookieCredential interface {
	Credential
	// CSRFToken is what a request that may change something must bring in a header: a page
	// of another site can send the cookie along, but cannot know this.
	CSRFToken() string
}

// Cookie returns the credential of a cookie's value, which is not verified yet; nil for
// what no cookie can be.
func (s *Service) Cookie(value string) CookieCredential {
	token, ok := parseSecret(cookiePrefix, value)
	if !ok {
		return nil
	}
	return &cookie{s: s, token: token}
}

type cookie struct {
	s     *Service
	token refreshToken
}

func (c *cookie) CSRFToken() string {
	h := sha256.Sum256(append([]byte("tidewire csrf token v1"), c.token[:]...))
	return base64.RawURLEncoding.EncodeToString(h[:])
}

func (c *cookie) Verify(ctx context.Context) (*Principal, error) {
	held := heldSession{s: c.s, id: c.token.sessionID(), hash: c.token.cookieHash(), renews: true}
	return held.Verify(ctx)
}

// heldSession is a session as a credential, for who has shown to hold it.
type heldSession struct {
	s      *Service
	id     string
	hash   []byte // what the session must be known by; nil: anything
	epoch  uint64 // the user's credentials epoch; 0: any, since what changes it ends the session
	renews bool   // the session is renewed with use, else it holds until end
	end    time.Time
}

func (h *heldSession) Verify(ctx context.Context) (*Principal, error) {
	now := h.s.now()
	if !h.renews && !now.Before(h.end) {
		return nil, expired()
	}
	x, u := h.find()
	if x == nil { // maybe this node is behind
		if err := h.s.cluster.Barrier(ctx); err != nil {
			return nil, err
		}
		if x, u = h.find(); x == nil {
			return nil, model.Errorf(model.Unauthenticated, "the session is no longer valid; log in again")
		}
	}
	if !now.Before(x.ExpiresAt.Time()) {
		return nil, model.Errorf(model.TokenExpired, "the session has ended; log in again")
	}
	p := &Principal{Name: u.Name, Admin: u.Admin, SessionID: x.ID, IssuedAt: x.CreatedAt.Time(), epoch: u.CredentialsEpoch}
	if !h.renews {
		p.ExpiresAt, p.VerifyBy = h.end, h.end
		return p, nil
	}
	if due := x.RotatedAt.Time().Add(h.s.accessTTL); !now.Before(due) {
		var err error
		if x, err = h.s.renew(ctx, x); err != nil {
			return nil, err
		}
	}
	p.Kind, p.ExpiresAt = Cookie, x.ExpiresAt.Time()
	p.VerifyBy = x.RotatedAt.Time().Add(h.s.accessTTL)
	if p.ExpiresAt.Before(p.VerifyBy) {
		p.VerifyBy = p.ExpiresAt
	}
	return p, nil
}

// find returns the session and its user where this node's image lets both pass.
func (h *heldSession) find() (*metadata.Session, *metadata.User) {
	img := h.s.cluster.Image()
	x := img.Session(h.id)
	if x == nil || x.Revoked || h.hash != nil && subtle.ConstantTimeCompare(x.CurrentHash, h.hash) != 1 {
		return nil, nil
	}
	u := img.User(x.User)
	if u == nil || u.Disabled || h.epoch != 0 && u.CredentialsEpoch != h.epoch {
		return nil, nil
	}
	return x, u
}

// renewals are sessions that are being renewed.
type renewals struct {
	mu      sync.Mutex
	flights map[string]*flight // guarded by mu: by the session's id
}

// flight is one renewal, which all that need it wait for.
type flight struct {
	done    chan struct{}
	session *metadata.Session // with err, written before done is closed
	err     error
}

// renewTimeout ends a renewal that no single request may end, since others wait for it.
const renewTimeout = 10 * time.Second

// renew puts a session's end off.
func (s *Service) renew(ctx context.Context, x *metadata.Session) (*metadata.Session, error) {
	r := &s.renewals
	r.mu.Lock()
	f, waits := r.flights[x.ID]
	if !waits {
		f = &flight{done: make(chan struct{})}
		r.flights[x.ID] = f
	}
	r.mu.Unlock()
	if !waits {
		f.session, f.err = s.proposeRenewal(ctx, x)
		r.mu.Lock()
		delete(r.flights, x.ID)
		r.mu.Unlock()
		close(f.done)
	}
	select {
	case <-f.done:
		return f.session, f.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *Service) proposeRenewal(ctx context.Context, x *metadata.Session) (*metadata.Session, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), renewTimeout)
	defer cancel()
	now := s.now()
	expires := now.Add(s.cookieTTL)
	if last := x.CreatedAt.Time().Add(s.cookieMax); expires.After(last) {
		expires = last
	}
	res, err := s.propose(ctx, metadata.RenewSession{
		ID: x.ID, Hash: x.CurrentHash, ExpiresAt: metadata.MillisOf(expires), Now: metadata.MillisOf(now),
	})
	if model.HasCode(err, model.BadCredentials) {
		return nil, model.Errorf(model.Unauthenticated, "the session is no longer valid; log in again").WithCause(err)
	}
	if err != nil {
		return nil, err
	}
	renewed, ok := res.Value.(*metadata.Session)
	if !ok {
		return nil, &model.Error{Code: model.Internal, Detail: "the renewal of a session gave no session"}
	}
	return renewed, nil
}
