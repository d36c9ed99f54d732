package auth

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"strings"
	"time"

	"tidewire/cluster/metadata"
	"tidewire/internal/model"
)

// Grant is what a login or a refresh gives.
type Grant struct {
	AccessToken  string
	ExpiresAt    time.Time     // of the access token
	ExpiresIn    time.Duration // from now; the full lifetime but for a key that ends sooner
	RefreshToken string
	Username     string
	Admin        bool
}

// A refresh token is "twr_" and base64url of two random parts of 32 bytes: the
// family's, which stays the same for a session and from which the session's id
// derives, and its own. The metadata holds the hash of the whole. Who presents a
// right family part with a wrong second one therefore holds a token that this
// cluster has issued and replaced, and not a guess; so knowing a session's id,
// which every access token carries, is not enough to revoke it.
const (
	refreshPrefix = secretPrefix("twr_")
	refreshHalf   = 32
)

type refreshToken [2 * refreshHalf]byte

func newRefreshToken() refreshToken { return refreshToken(randomBytes(2 * refreshHalf)) }

// rotated returns a new token of the same family.
func (r refreshToken) rotated() refreshToken {
	copy(r[refreshHalf:], randomBytes(refreshHalf))
	return r
}

func (r refreshToken) String() string { return r.text(refreshPrefix) }

// secretPrefix tells what a secret is, so that people and scanners know one when they see it.
type secretPrefix string

func (r refreshToken) text(p secretPrefix) string {
	return string(p) + base64.RawURLEncoding.EncodeToString(r[:])
}

func parseRefreshToken(s string) (refreshToken, bool) { return parseSecret(refreshPrefix, s) }

func parseSecret(p secretPrefix, s string) (refreshToken, bool) {
	var r refreshToken
	s, ok := strings.CutPrefix(s, string(p))
	if !ok || len(s) != base64.RawURLEncoding.EncodedLen(len(r)) {
		return r, false
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil {
		return r, false
	}
	return refreshToken(b), true
}

// sessionID is public and tells nothing of the family part.
func (r refreshToken) sessionID() string {
	h := sha256.Sum256(append([]byte("tidewire session id v1"), r[:refreshHalf]...))
	return base64.RawURLEncoding.EncodeToString(h[:16])
}

// hash needs no salt and no cost: the token is 512 random bits.
func (r refreshToken) hash() []byte {
	h := sha256.Sum256(append([]byte("tidewire refresh token v1"), r[:]...))
	return h[:]
}

// MaxSessions is how many sessions a user has at most: a login beyond ends the one that
// was unused for longest. It bounds what one who logs in over and over makes all nodes keep.
const MaxSessions = 1000

// LoginRequest is a try to log in. Host is the client's address without port; "" is nobody
// of the network, whose failures are not counted.
type LoginRequest struct {
	Username string
	Password string
	Host     string
}

// Login checks a password and starts a session. A wrong password, an unknown user
// and a disabled one are all bad-credentials, after the same work. Further errors:
// login-locked after too many failures (see limiter), rate-limited while too many
// passwords are being checked, and those of the quorum.
func (s *Service) Login(ctx context.Context, r LoginRequest) (*Grant, error) {
	user, err := s.Authenticate(ctx, r)
	if err != nil {
		return nil, err
	}
	token, now := newRefreshToken(), s.now()
	res, err := s.propose(ctx, metadata.CreateSession{
		ID: token.sessionID(), User: user.Name, IfEpoch: user.CredentialsEpoch, RefreshHash: token.hash(),
		ExpiresAt: metadata.MillisOf(now.Add(min(s.refreshTTL, s.sessionTTL))), Now: metadata.MillisOf(now),
		MaxSessions: MaxSessions,
	})
	if err != nil {
		return nil, err
	}
	return s.grant(ctx, res, token)
}

// Authenticate returns the user whose password this is. Errors as Login's.
func (s *Service) Authenticate(ctx context.Context, r LoginRequest) (*metadata.User, error) {
	// The barrier is for every name alike: it confirms that an unknown one is
	// unknown, and its time does not tell which are.
	if err := s.cluster.Barrier(ctx); err != nil {
		return nil, err
	}
	user := s.cluster.Image().User(r.Username)
	ok, err := s.verify(ctx, user, r)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, model.Errorf(model.BadCredentials, "the user name or the password is wrong")
	}
	return user, nil
}

// grant signs an access token for the session that a command returned.
func (s *Service) grant(ctx context.Context, res metadata.Result, token refreshToken) (*Grant, error) {
	session, ok := res.Value.(*metadata.Session)
	if !ok {
		return nil, &model.Error{Code: model.Internal, Detail: "the change of a session gave no session"}
	}
	user := s.cluster.Image().User(session.User)
	if user == nil || user.Disabled {
		return nil, model.Errorf(model.Unauthenticated, "the user is gone")
	}
	access, exp, err := s.issue(ctx, user, session.ID)
	if err != nil {
		return nil, err
	}
	return &Grant{
		AccessToken: access, ExpiresAt: exp, ExpiresIn: min(s.accessTTL, exp.Sub(s.now())), RefreshToken: token.String(),
		Username: user.Name, Admin: user.Admin,
	}, nil
}

// Refresh exchanges a refresh token for a new access token and a new refresh token,
// and ends the old one at once. A token that was exchanged before revokes its whole
// session, with every access token of it, for whoever holds the newest (RFC 9700
// §4.14.2); there is no grace, so a client must not use one twice, also not after a
// lost answer. Errors: unauthenticated, token-expired.
func (s *Service) Refresh(ctx context.Context, refresh string) (*Grant, error) {
	token, ok := parseRefreshToken(refresh)
	if !ok {
		return nil, badRefresh()
	}
	session, err := s.session(ctx, token.sessionID())
	if err != nil {
		return nil, err
	}
	next, now := token.rotated(), s.now()
	expires := now.Add(s.refreshTTL)
	if last := session.CreatedAt.Time().Add(s.sessionTTL); expires.After(last) {
		expires = last
	}
	res, err := s.propose(ctx, metadata.RotateSession{
		ID: session.ID, CurrentHash: token.hash(), NextHash: next.hash(),
		ExpiresAt: metadata.MillisOf(expires), Now: metadata.MillisOf(now),
	})
	if model.HasCode(err, model.BadCredentials) {
		return nil, badRefresh().WithCause(err)
	}
	if err != nil {
		return nil, err
	}
	return s.grant(ctx, res, next)
}

func badRefresh() *model.Error {
	return model.Errorf(model.Unauthenticated, "the refresh token is not valid, or was used before; log in again")
}

// session returns a session, or unauthenticated once a read barrier has confirmed
// that there is none.
func (s *Service) session(ctx context.Context, id string) (*metadata.Session, error) {
	if x := s.cluster.Image().Session(id); x != nil {
		return x, nil
	}
	if err := s.cluster.Barrier(ctx); err != nil {
		return nil, err
	}
	if x := s.cluster.Image().Session(id); x != nil {
		return x, nil
	}
	return nil, badRefresh()
}

// SessionOf tells which session a refresh token is of, and whose; "" for none. It tells
// nothing of whether the token is good.
func (s *Service) SessionOf(refresh string) (username, session string) {
	token, ok := parseRefreshToken(refresh)
	if !ok {
		return "", ""
	}
	x := s.cluster.Image().Session(token.sessionID())
	if x == nil {
		return "", ""
	}
	return x.User, x.ID
}

// Logout ends the session of the principal's token: its refresh token and every
// access token of it are dead. A principal without a session has none to end.
func (s *Service) Logout(ctx context.Context, p *Principal) error {
	if p.SessionID == "" {
		return nil
	}
	_, err := s.propose(ctx, metadata.RevokeSessions{ID: p.SessionID, User: p.Name})
	return err
}
