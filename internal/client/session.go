package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// tokens is the answer of login and refresh.
type tokens struct {
	AccessToken  string `json:"access_token"`
	RefreshToken string `json:"refresh_token"`
	ExpiresIn    int64  `json:"expires_in"` // seconds
}

func (t *tokens) login(server, username string, now time.Time) Login {
	return Login{
		Server: server, Username: username, AccessToken: t.AccessToken, RefreshToken: t.RefreshToken,
		IssuedAt: now.UTC(), ExpiresAt: now.Add(time.Duration(t.ExpiresIn) * time.Second).UTC(),
	}
}

// LogIn trades name and password for tokens; now is when they were asked for.
func LogIn(ctx context.Context, base *url.URL, username, password string, now time.Time) (Login, error) {
	c := New(base, StaticToken(""))
	defer c.Close()
	var t tokens
	in := map[string]string{"username": username, "password": password}
	if err := c.Call(ctx, Request{Method: http.MethodPost, Path: "/v1/auth/login", Body: in}, &t); err != nil {
		return Login{}, err
	}
	return t.login(base.String(), username, now), nil
}

// Session is the token source of a stored login. It renews the access token before
// it ends. A refresh token can be used once, and a second use ends the login, so a
// refresh is made under the store's lock, by the token then stored, and its answer is
// stored before the lock is given back: of several processes one refreshes and the
// others take over its tokens.
type Session struct {
	store *Store
	name  string // of the context
	base  *url.URL
	now   func() time.Time

	mu    sync.Mutex
	login Login // guarded by mu
}

// NewSession returns the source of a context's tokens.
func NewSession(store *Store, x Context, now func() time.Time) (*Session, error) {
	base, err := ParseServer(x.Server)
	if err != nil {
		return nil, err
	}
	return &Session{store: store, name: x.Name, base: base, now: now, login: x.Login}, nil
}

// Token returns the access token, renewed when it is about to end.
func (s *Session) Token(ctx context.Context) (string, error) {
	s.mu.Lock()
	l := s.login
	s.mu.Unlock()
	if l.fresh(s.now()) {
		return l.AccessToken, nil
	}
	return s.Renew(ctx, l.AccessToken)
}

// Renew returns a token newer than the refused one.
func (s *Session) Renew(ctx context.Context, refused string) (string, error) {
	// Not under mu, which would then be held over a call; the store's lock keeps
	// goroutines apart as it does processes.
	var got Login
	err := s.store.update(ctx, func(c *contents) error {
		x := c.named(s.name)
		if x == nil || x.Server != s.base.String() || x.RefreshToken == "" { // it was changed meanwhile
			return s.expired(errLoggedOut)
		}
		if x.AccessToken == refused || !x.fresh(s.now()) {
			if err := s.refresh(ctx, &x.Login); err != nil {
				return err
			}
		}
		got = x.Login
		return nil
	})
	if err != nil {
		return "", err
	}
	s.mu.Lock()
	s.login = got
	s.mu.Unlock()
	return got.AccessToken, nil
}

var errLoggedOut = errors.New("its context was logged out, changed or deleted")

// LogOut ends a login at the server, so that its tokens are dead there, and then forgets
// it. A login that has ended there already is forgotten too; after another error it stays.
func (s *Session) LogOut(ctx context.Context) error {
	c := New(s.base, s)
	defer c.Close()
	err := c.Call(ctx, Request{Method: http.MethodPost, Path: "/v1/auth/logout"}, nil)
	var p *Problem
	if err != nil && !(errors.As(err, &p) && p.Status == http.StatusUnauthorized) {
		return err
	}
	return s.store.Forget(ctx, s.name)
}

// refreshTimeout ends a refresh that no interrupt ends.
const refreshTimeout = 15 * time.Second

func (s *Session) refresh(ctx context.Context, l *Login) error {
	c := New(s.base, StaticToken(""))
	defer c.Close()
	// Once sent, the old refresh token is spent: an interrupt must not lose the answer.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), refreshTimeout)
	defer cancel()
	var t tokens
	asked := s.now()
	err := c.Call(ctx, Request{Method: http.MethodPost, Path: "/v1/auth/refresh", Body: map[string]string{"refresh_token": l.RefreshToken}}, &t)
	var p *Problem
	if errors.As(err, &p) && p.Status == http.StatusUnauthorized {
		return s.expired(err)
	}
	if err != nil {
		return err
	}
	*l = t.login(l.Server, l.Username, asked)
	return nil
}

func (s *Session) expired(cause error) error {
	return fmt.Errorf("the login to %s has ended; log in again with: tidewire login %s (%w)", s.base, s.base, cause)
}
