package route

import (
	"crypto/subtle"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"

	"tidewire/api/coding"
	"tidewire/auth"
	"tidewire/internal/model"
)

// SessionCookie is the name of the cookie of a browser's session.
const SessionCookie = "tidewire_session"

// csrfHeader is the header that a request which may change something brings with a cookie,
// in canonical form.
const csrfHeader = "X-Csrf-Token"

// authenticate finds out who calls: by the Authorization header where there is one, else by
// a ticket in the query, else by a browser's cookie.
func (g *Gate) authenticate(c *Call) error {
	if c.Route.Public {
		return nil
	}
	h := c.Request.Header["Authorization"]
	switch {
	case len(h) > 0:
		return g.byBearer(c, h)
	case c.query.Has("ticket"):
		return g.byTicket(c)
	}
	return g.byCookie(c)
}

// byBearer takes the token from the Authorization header (RFC 6750 §2.1).
func (g *Gate) byBearer(c *Call, h []string) error {
	const scheme = "bearer "
	v := h[0]
	if len(h) > 1 || len(v) <= len(scheme) || !strings.EqualFold(v[:len(scheme)], scheme) {
		return model.Errorf(model.Unauthenticated, "the Authorization header must be: Bearer <token>")
	}
	token := strings.TrimSpace(v[len(scheme):])
	ctx := c.Request.Context()
	memory, _ := ctx.Value(MemoryKey).(*Memory)
	if memory == nil {
		memory = &Memory{} // a connection that remembers nothing
	}
	last := memory.token.Load()
	p, seen, err := g.tokens.VerifyAgain(ctx, token, last)
	if err != nil {
		return err
	}
	if seen != last {
		memory.token.Store(seen)
	}
	c.Principal, c.Credential = p, seen.Credential()
	return nil
}

// Memory is what the gate remembers of a client's connection from one request to the next.
type Memory struct {
	token atomic.Pointer[auth.Seen]
}

// MemoryKey is the key of a request's context for the *Memory of its connection, where that
// has one.
var MemoryKey any = memoryKey{}

type memoryKey struct{}

// takesTicket reports whether a ticket may open what is asked for: a WebSocket or a stream
// of events, for which browsers let a page set no header.
func (c *Call) takesTicket() bool {
	if c.Route.Stream {
		return true
	}
	const events = "text/event-stream"
	return slices.Contains(c.Route.Accept, events) && coding.Media(c.Request.Header["Accept"], c.Route.Accept) == events
}

func (g *Gate) byTicket(c *Call) error {
	if !c.takesTicket() {
		return model.Errorf(model.Unauthenticated, "a ticket opens a WebSocket or a stream of events, and nothing else")
	}
	given := c.query["ticket"]
	if len(given) != 1 {
		return model.Errorf(model.Unauthenticated, "the ticket is given more than once")
	}
	p, held, err := g.service.UseTicket(c.Request.Context(), given[0])
	if err != nil {
		return err
	}
	c.Principal, c.Credential = p, held
	return nil
}

func noCredentials() error {
	return model.Errorf(model.Unauthenticated, "the request has no Authorization header; POST /v1/auth/login gives a token for it")
}

// byCookie takes a browser's session. Browsers send cookies along whatever page makes them
// ask, so the page has to be one of ours, and what may change something has to bring what
// only such a page can know.
func (g *Gate) byCookie(c *Call) error {
	if len(c.Request.Header["Cookie"]) == 0 {
		return noCredentials()
	}
	given := c.Request.CookiesNamed(SessionCookie)
	if len(given) != 1 {
		return noCredentials()
	}
	session := g.service.Cookie(given[0].Value)
	if session == nil {
		return model.Errorf(model.Unauthenticated, "the session cookie is not one of this cluster; log in again")
	}
	p, err := session.Verify(c.Request.Context())
	if err != nil {
		return err
	}
	if err := c.CheckPage(); err != nil {
		return err
	}
	if m := c.Request.Method; m != http.MethodGet && m != http.MethodHead {
		token := c.Request.Header[csrfHeader]
		if len(token) != 1 || subtle.ConstantTimeCompare([]byte(token[0]), []byte(session.CSRFToken())) != 1 {
			return model.Errorf(model.CSRF, "a request that changes something needs, with a cookie, the header X-CSRF-Token; GET /v1/auth/me tells its value")
		}
	}
	c.Principal, c.Credential = p, session
	return nil
}

// CheckPage refuses requests that a page of another origin made a browser send: by
// Sec-Fetch-Site (W3C Fetch Metadata), and by Origin, which browsers send with every
// WebSocket handshake. --cors-origin changes nothing here: other origins use tokens.
func (c *Call) CheckPage() error {
	switch c.Request.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none":
	default:
		return foreignPage()
	}
	switch origins := c.Request.Header["Origin"]; {
	case len(origins) == 0 && !c.Route.Stream:
		return nil
	case len(origins) != 1 || !c.gate.ownOrigin(c.Request, origins[0]):
		return foreignPage()
	}
	return nil
}

func foreignPage() error {
	return model.Errorf(model.Forbidden, "a page of another origin may not use the session of this one")
}

// ownOrigin compares an origin with where the client believes to talk to.
func (g *Gate) ownOrigin(r *http.Request, origin string) bool {
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" || u.User != nil || u.Path != "" {
		return false
	}
	host := r.Host
	if f := r.Header["X-Forwarded-Host"]; len(f) == 1 && g.byProxy(r) {
		host = f[0]
	}
	return strings.EqualFold(u.Host, host)
}

// OwnOrigin reports whether a request comes from a page of this node's own, as the client
// or a trusted proxy names the node.
func (g *Gate) OwnOrigin(r *http.Request) bool {
	origins := r.Header["Origin"]
	return len(origins) == 1 && g.ownOrigin(r, origins[0])
}

// byProxy reports whether the request came through a proxy that is trusted to tell how it
// was asked.
func (g *Gate) byProxy(r *http.Request) bool {
	if len(g.proxies) == 0 {
		return false
	}
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return false
	}
	addr := at.Addr().Unmap()
	return slices.ContainsFunc(g.proxies, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// encrypted reports whether the client came by TLS, here or at the proxy.
func (g *Gate) encrypted(r *http.Request) bool {
	f := r.Header["X-Forwarded-Proto"]
	return r.TLS != nil || len(f) == 1 && strings.EqualFold(f[0], "https") && g.byProxy(r)
}

// SetSession gives the browser its session's cookie, or with an empty value takes it away.
func (c *Call) SetSession(value string) {
	k := http.Cookie{
		Name: SessionCookie, Value: value, Path: c.gate.prefix, HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: c.gate.encrypted(c.Request),
	}
	if k.Path == "" {
		k.Path = "/"
	}
	if value == "" {
		k.MaxAge = -1
	}
	http.SetCookie(c.Writer, &k)
}

// CSRFToken is the CSRF token of a call by cookie, nil of another.
func (c *Call) CSRFToken() *string {
	if session, ok := c.Credential.(auth.CookieCredential); ok {
		t := session.CSRFToken()
		return &t
	}
	return nil
}
