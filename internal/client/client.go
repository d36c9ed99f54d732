package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// DefaultServer is used when no server was named and nobody logged in.
const DefaultServer = "http://127.0.0.1:8080"

// callTimeout ends an administration call that does not come back; writes of the
// server end on their own after 30 s.
const callTimeout = 60 * time.Second

// TokenSource gives the access token of each request.
type TokenSource interface {
	// Token returns a token that is valid as far as the client can tell, or "" to
	// send none.
	Token(ctx context.Context) (string, error)
	// Renew is asked after the server refused a token. It returns a newer one, or
	// "" when there is none.
	Renew(ctx context.Context, refused string) (string, error)
}

// StaticToken is a token that cannot be renewed, such as an API token.
type StaticToken string

// Token returns the token.
func (t StaticToken) Token(context.Context) (string, error) { return string(t), nil }

// Renew returns "".
func (t StaticToken) Renew(context.Context, string) (string, error) { return "", nil }

// Client calls one server.
type Client struct {
	base   *url.URL
	http   *http.Client
	tokens TokenSource
}

// ParseServer reads a server's address. A missing scheme is http; a path is the
// server's path prefix; a trailing slash does not matter.
func ParseServer(s string) (*url.URL, error) {
	if !strings.Contains(s, "://") {
		s = "http://" + s
	}
	u, err := url.Parse(strings.TrimRight(s, "/"))
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" || u.User != nil {
		return nil, fmt.Errorf("not a server's address: %q (an example is %s)", s, DefaultServer)
	}
	return u, nil
}

// New returns a client of the server at base.
func New(base *url.URL, tokens TokenSource) *Client {
	t := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		MaxIdleConnsPerHost: 256,
		IdleConnTimeout:     30 * time.Second,
		DisableCompression:  true,
	}
	return &Client{base: base, http: &http.Client{Transport: t}, tokens: tokens}
}

// Close drops idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Base is the server's address.
func (c *Client) Base() *url.URL { return c.base }

// Tokens is where the client's tokens come from.
func (c *Client) Tokens() TokenSource { return c.tokens }

// Path joins segments of a path, each percent-encoded.
func Path(segments ...string) string {
	var b strings.Builder
	for _, s := range segments {
		b.WriteByte('/')
		b.WriteString(url.PathEscape(s))
	}
	return b.String()
}

// Request is a call of an endpoint.
type Request struct {
	Method string
	Path   string // begins with a slash; segments are percent-encoded, see Path
	Query  url.Values
	Body   any // sent as JSON; nil sends no body
}

// Call makes a request and reads the answer into out, unless it is nil. An error
// answer is a *Problem.
func (c *Client) Call(ctx context.Context, r Request, out any) error {
	m := message{method: r.Method, path: r.Path, query: r.Query}
	if r.Body != nil {
		var err error
		if m.body, err = json.Marshal(r.Body); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	answer, err := c.send(ctx, m)
	if err != nil {
		return err
	}
	if out == nil || len(answer) == 0 {
		return nil
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return fmt.Errorf("%s %s: the answer cannot be read: %w", r.Method, r.Path, err)
	}
	return nil
}

// Text gets a resource that is plain text.
func (c *Client) Text(ctx context.Context, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return c.send(ctx, message{method: http.MethodGet, path: path, accept: "text/plain"})
}

// message is a request whose body is JSON already.
type message struct {
	method, path string
	query        url.Values
	body         []byte // nil sends none
	accept       string // media type of the answer; "": JSON
	key          string // Idempotency-Key; "": none
}

const idempotencyKey = "Idempotency-Key"

// send makes one request and reads the whole answer.
func (c *Client) send(ctx context.Context, m message) ([]byte, error) {
	resp, err := c.open(ctx, m)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer, err := readAnswer(resp)
	if err != nil {
		return nil, c.transportError(ctx, err)
	}
	return answer, nil
}

// open makes one request; the answer's body is the caller's to read and close. A refused
// token is renewed and the request sent again once: a 401 means that nothing was done.
func (c *Client) open(ctx context.Context, m message) (*http.Response, error) {
	token, err := c.tokens.Token(ctx)
	if err != nil {
		return nil, err
	}
	resp, err := c.once(ctx, m, token)
	var p *Problem
	if token == "" || !errors.As(err, &p) || p.Status != http.StatusUnauthorized {
		return resp, err
	}
	newer, rerr := c.tokens.Renew(ctx, token)
	switch {
	case rerr != nil:
		return nil, rerr
	case newer == "":
		return nil, err
	}
	return c.once(ctx, m, newer)
}

func (c *Client) once(ctx context.Context, m message, token string) (*http.Response, error) {
	req, err := c.request(ctx, m)
	if err != nil {
		return nil, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.transportError(ctx, err)
	}
	if resp.StatusCode >= 300 {
		defer resp.Body.Close()
		return nil, problemOf(resp)
	}
	return resp, nil
}

func (c *Client) request(ctx context.Context, m message) (*http.Request, error) {
	target := c.base.String() + m.path
	if len(m.query) > 0 {
		target += "?" + m.query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, m.method, target, bytes.NewReader(m.body))
	if err != nil {
		return nil, err
	}
	if m.body == nil {
		req.Body, req.ContentLength = http.NoBody, 0
	} else {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("Accept", cmp.Or(m.accept, "application/json"))
	req.Header.Set("User-Agent", "tidewire")
	if m.key != "" {
		req.Header.Set(idempotencyKey, m.key)
	}
	return req, nil
}

func readAnswer(resp *http.Response) ([]byte, error) {
	var b bytes.Buffer
	if n := resp.ContentLength; n > 0 && n < 1<<30 {
		b.Grow(int(n) + bytes.MinRead)
	}
	_, err := b.ReadFrom(resp.Body)
	return b.Bytes(), err
}

// TransportError is a request that got no answer. NotSent means that no connection
// was made, so the server cannot have done anything.
type TransportError struct {
	Server  string
	NotSent bool
	Err     error
}

// Error names the server and the cause.
func (e *TransportError) Error() string {
	if e.NotSent {
		return fmt.Sprintf("cannot reach %s: %v", e.Server, e.Err)
	}
	return fmt.Sprintf("no answer from %s: %v", e.Server, e.Err)
}

// Unwrap returns the cause.
func (e *TransportError) Unwrap() error { return e.Err }

func (c *Client) transportError(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); errors.Is(cause, context.Canceled) {
		return cause
	}
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	var op *net.OpError
	return &TransportError{Server: c.base.String(), NotSent: errors.As(err, &op) && op.Op == "dial", Err: err}
}

// maxPage is the longest page of a list.
const maxPage = "1000"

// List is all pages of a list.
type List struct {
	Items []json.RawMessage `json:"items"`
	Total int64             `json:"total"`
}

// List reads all pages of a list.
func (c *Client) List(ctx context.Context, path string, query url.Values) (*List, error) {
	q := url.Values{}
	for k, v := range query {
		q[k] = v
	}
	q.Set("limit", maxPage)
	all := &List{Items: []json.RawMessage{}}
	for {
		var page struct {
			List
			Next *string `json:"next_page_token"`
		}
		if err := c.Call(ctx, Request{Method: http.MethodGet, Path: path, Query: q}, &page); err != nil {
			return nil, err
		}
		all.Items = append(all.Items, page.Items...)
		if page.Next == nil || *page.Next == "" {
			all.Total = max(page.Total, int64(len(all.Items)))
			return all, nil
		}
		q.Set("page_token", *page.Next)
	}
}
