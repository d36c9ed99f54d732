package route

import (
	"context"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/gin-gonic/gin"

	"tidewire/api/coding"
	"tidewire/api/problem"
	"tidewire/api/strictjson"
	"tidewire/broker/quota"
	"tidewire/internal/model"
)

// Body says what a route takes as its body.
type Body uint8

// Kinds of bodies.
const (
	NoBody  Body = iota
	JSON         // application/json is required
	RawBody      // any type but those that the route's Content refuses
)

// Unbuilt lists what the contract documents for a route and this version does not have
// yet. Using any of it answers 501 instead of being ignored.
type Unbuilt struct {
	Query   []string
	Headers []string // an entry that ends in * is a prefix
	Accept  []string // media types
	Content []string // media types of the body
}

// Route is one row of the table.
type Route struct {
	Method string
	Path   string // with {name} for parameters
	ID     string // the operation's id in the OpenAPI document
	Public bool   // needs no authentication
	Needs  string // operation and resource, as docs/security.md lists them
	Handle Handler
	Query  []string // parameters that the route knows
	Body   Body
	// Content refuses a body by its Content-Type, in place of what Body says; nil: nothing
	// more does. It is called where the order of checks has 415, and not before the route is
	// built.
	Content func(c *Call) error
	MaxBody int64 // bytes; 0: 1 MiB
	// Quota tells which limit of the user's the call stands for besides that of requests; nil:
	// none, and so for calls that are slowed instead of refused.
	Quota   func(c *Call) quota.Kind
	Endless string   // media type whose bodies have no limit, since they are not held whole
	Accept  []string // media types of the answer; empty: application/json
	Unbuilt Unbuilt
	// Records says that the answers are about records, whose clients need speed more than
	// few bytes: they are not compressed.
	Records bool
	// Unaudited says why calls of a route that is not GET leave nothing in the audit log. All
	// others do.
	Unaudited string
	// AuditFailures has only calls that fail written there.
	AuditFailures bool
	// Stream marks a WebSocket: it has no HEAD, and its handler looks at the query.
	Stream bool

	unbuilt headerNames // of Unbuilt.Headers, made by Register
	last    atomic.Pointer[goodQuery]
	strange atomic.Uint32 // queries that were not the last one
}

// Built reports whether the route does something yet.
func (r *Route) Built() bool { return r.Handle != nil }

// Write reports whether the route may change something.
func (r *Route) Write() bool { return r.Method != http.MethodGet }

func (r *Route) maxBody() int64 {
	if r.MaxBody == 0 {
		return 1 << 20
	}
	return r.MaxBody
}

// types are the media types of the answer.
func (r *Route) types() []string {
	if len(r.Accept) == 0 {
		return JSONOnly
	}
	return r.Accept
}

// ginPath turns {name} into :name.
func (r *Route) ginPath() string {
	return strings.NewReplacer("{", ":", "}", "").Replace(r.Path)
}

// Register adds routes to a router; GET ones for HEAD too.
func (g *Gate) Register(router gin.IRoutes, routes ...*Route) {
	for _, r := range routes {
		r.unbuilt = newHeaderNames(r.Unbuilt.Headers)
		h := g.serve(r)
		router.Handle(r.Method, r.ginPath(), h)
		if r.Method == http.MethodGet && !r.Stream {
			router.Handle(http.MethodHead, r.ginPath(), h)
		}
	}
}

// serve wraps a route's handler with the checks that come before it.
func (g *Gate) serve(r *Route) gin.HandlerFunc {
	return func(x *gin.Context) {
		c := &Call{Context: x, Route: r, gate: g, hold: g.inflight.Hold()}
		if g.auditor == nil || !r.Audited() {
			_ = g.answer(c) // it has been answered
			return
		}
		g.audited(c, func() error { return g.answer(c) })
	}
}

// answer runs a call and answers what it failed with, which it returns.
func (g *Gate) answer(c *Call) error {
	err := g.run(c)
	c.hold.Release()
	if err != nil {
		g.fail(c, err)
	}
	return err
}

// run makes the checks in the order of precedence that the contract fixes.
func (g *Gate) run(c *Call) error {
	if then, ok := c.resumed(); ok {
		return then(c)
	}
	known, queryErr := c.parseQuery()
	if err := g.authenticate(c); err != nil {
		return err
	}
	for _, check := range checks {
		if err := check(c); err != nil {
			return err
		}
	}
	if queryErr != nil {
		return model.Invalid("query:", "the query is not validly encoded")
	}
	if !c.Route.Stream && !known {
		if err := checkQuery(c); err != nil {
			return err
		}
		c.rememberQuery()
	}
	if err := c.decodePath(); err != nil {
		return err
	}
	if c.coding != "" && c.Request.Body != nil && c.Request.Body != http.NoBody {
		b := coding.NewBody(c.Request.Body, c.coding, c.hold.Grow)
		defer b.Release()
		c.Request.Body, c.Request.ContentLength = b, -1
	}
	if c.Route.Body == NoBody && c.Request.Method == http.MethodPost {
		if err := refuseBody(c); err != nil {
			return err
		}
	}
	return c.Route.Handle(c)
}

// refuseBody reads the body of a POST that takes none: members of an object would be passed
// over, and the client would think that they did something. An empty object says nothing. What
// comes with GET or DELETE has no meaning (RFC 9110 §9.3) and is not looked at.
func refuseBody(c *Call) error {
	if c.Request.Body == nil || c.Request.Body == http.NoBody {
		return nil
	}
	return c.ReadBody(func(b []byte) error {
		if len(b) == 0 {
			return nil
		}
		if err := RequireJSON(c.Request.Header); err != nil {
			return err
		}
		return strictjson.Decode(b, new(struct{}))
	})
}

var noQuery = url.Values{}

// goodQuery is a query that a route has accepted: most clients send the same one again and
// again. It does not change.
type goodQuery struct {
	raw    string
	values url.Values
}

// maxGoodQuery bounds the queries that are remembered, in bytes.
const maxGoodQuery = 64

// parseQuery reads the query. known says that checkQuery has accepted it before.
func (c *Call) parseQuery() (known bool, err error) {
	raw := c.Request.URL.RawQuery
	if c.query = noQuery; raw == "" {
		return true, nil
	}
	if last := c.Route.last.Load(); last != nil && last.raw == raw {
		c.query = last.values
		return true, nil
	}
	c.query, err = parseQuery(raw)
	return false, err
}

// rememberEvery is how many other queries come before one is remembered, so that clients whose
// queries all differ pay little for it.
const rememberEvery = 8

// rememberQuery keeps a query that was accepted, but for one with a ticket, which is a secret.
func (c *Call) rememberQuery() {
	raw := c.Request.URL.RawQuery
	if len(raw) > maxGoodQuery || c.query.Has("ticket") || c.Route.strange.Add(1)%rememberEvery != 1 {
		return
	}
	raw = strings.Clone(raw) // it lies in the memory of a whole head, in which there is a token
	if values, err := parseQuery(raw); err == nil {
		c.Route.last.Store(&goodQuery{raw, values})
	}
}

// checks come after authentication, in this order.
var checks = []func(*Call) error{checkLength, checkContentType, checkAccept, checkQuota, checkBuilt}

// parseQuery is url.ParseQuery, with less work where nothing is escaped.
func parseQuery(raw string) (url.Values, error) {
	if strings.ContainsAny(raw, "%+;") {
		return url.ParseQuery(raw)
	}
	n := strings.Count(raw, "&") + 1
	query, values := make(url.Values, n), make([]string, 0, n)
	for raw != "" {
		var pair string
		pair, raw, _ = strings.Cut(raw, "&")
		if pair == "" {
			continue
		}
		name, value, _ := strings.Cut(pair, "=")
		if old, twice := query[name]; twice {
			query[name] = append(old, value)
			continue
		}
		values = append(values, value)
		query[name] = values[len(values)-1 : len(values) : len(values)]
	}
	return query, nil
}

// fail writes the problem, unless the answer has begun.
func (g *Gate) fail(c *Call, err error) {
	e := model.AsError(err)
	if row := model.Row(e.Code); row.Status >= 500 && e.Code != model.NotImplemented {
		g.logger.Log(context.Background(), FailureLevel(c.Request.Context(), row.Status), "a request failed",
			"method", c.Request.Method, "path", c.Route.Path,
			"request_id", c.Writer.Header().Get("X-Request-Id"), "code", e.Code, "error", err)
	}
	if c.Writer.Written() {
		return
	}
	if c.Request.Context().Err() != nil { // nobody reads it: metrics must not count a fault of the node
		c.Writer.WriteHeader(clientGone)
		return
	}
	problem.Write(c.Writer, e, c.Occurrence())
}

// clientGone is the status that metrics show for a request whose client went away before
// the answer; it is never sent. The number is nginx's.
const clientGone = 499

// FailureLevel is how loud a failed request is logged. A client that went away fails its
// own request, and a busy node must not write a line for each one that it refuses: what is
// the matter is logged where it happens.
func FailureLevel(request context.Context, status int) slog.Level {
	switch {
	case request.Err() != nil || status == http.StatusServiceUnavailable:
		return slog.LevelDebug
	case status == http.StatusGatewayTimeout:
		return slog.LevelWarn
	}
	return slog.LevelError
}

func checkLength(c *Call) error {
	n := c.Request.ContentLength
	if n <= c.Route.maxBody() || c.Route.Endless != "" && mediaType(c.Request.Header.Get("Content-Type")) == c.Route.Endless {
		return nil
	}
	return tooLarge(c.Route.maxBody())
}

func checkContentType(c *Call) error {
	var err error
	if c.coding, err = coding.Of(c.Request.Header); err != nil {
		return err
	}
	switch {
	case c.Route.Content != nil && c.Route.Built():
		return c.Route.Content(c)
	case c.Request.Body == nil || c.Request.Body == http.NoBody:
		return nil // without a body there is nothing to have a type: decode asks for one
	case c.Route.Body == NoBody && c.Request.Method == http.MethodPost && c.Request.ContentLength > 0:
		return RequireJSON(c.Request.Header)
	case c.Route.Body != JSON:
		return nil
	}
	return RequireJSON(c.Request.Header)
}

// RequireJSON refuses a body that does not say it is JSON: 415.
func RequireJSON(h http.Header) error {
	ct := h.Get("Content-Type")
	if ct == "application/json" { // what nearly everybody sends
		return nil
	}
	mt, params, err := mime.ParseMediaType(ct)
	if err != nil || mt != "application/json" {
		return model.Errorf(model.UnsupportedMediaType, "the body must be application/json, not %q", ct)
	}
	return RequireUTF8(params)
}

// RequireUTF8 refuses another charset among the parameters of a media type: 415.
func RequireUTF8(params map[string]string) error {
	if cs, ok := params["charset"]; ok && !strings.EqualFold(cs, "utf-8") {
		return model.Errorf(model.UnsupportedMediaType, "JSON is UTF-8 (RFC 8259); charset %q is not supported", cs)
	}
	return nil
}

// checkAccept answers 406 where no media type of the route is acceptable.
func checkAccept(c *Call) error {
	h := c.Request.Header["Accept"]
	if len(h) == 0 || c.Route.Stream {
		return nil
	}
	types := c.Route.types()
	if coding.Media(h, types) != "" || coding.Media(h, c.Route.Unbuilt.Accept) != "" {
		return nil
	}
	return model.Errorf(model.NotAcceptable, "this resource can be given as %s", strings.Join(types, ", "))
}

// checkQuota counts the request against the user's quota. What is not below /v1 is for
// monitoring and not counted.
func checkQuota(c *Call) error {
	limits := c.gate.limits
	if limits == nil || c.Principal == nil || !limits.Limited() || !strings.HasPrefix(c.Route.Path, "/v1/") {
		return nil
	}
	kind := quota.Requests
	if c.Route.Quota != nil {
		kind = c.Route.Quota(c)
	}
	return limits.Admit(c.Principal.Name, kind)
}

// JSONOnly is the Content-Type of most answers, as a value of http.Header that all share:
// it must not be changed.
var JSONOnly = []string{"application/json"}

// NotBuilt is the 501 for a part of a request that is documented and not built. The
// pointer is as in model.FieldError.
func NotBuilt(pointer, what string) error {
	e := model.Errorf(model.NotImplemented, "%s is not built yet", what)
	e.Fields = []model.FieldError{{Pointer: pointer, Detail: e.Detail}}
	return e
}

// checkBuilt answers 501 for what is documented and not built.
func checkBuilt(c *Call) error {
	r := c.Route
	if !r.Built() {
		return model.Errorf(model.NotImplemented, "%s %s is not built yet", r.Method, r.Path)
	}
	for _, q := range r.Unbuilt.Query {
		if c.query.Has(q) {
			return NotBuilt("query:"+q, "the query parameter "+q)
		}
	}
	if name := r.unbuilt.in(c.Request.Header); name != "" {
		return NotBuilt("header:"+name, "the header "+name)
	}
	if len(r.Unbuilt.Content) > 0 {
		if mt := mediaType(c.Request.Header.Get("Content-Type")); slices.Contains(r.Unbuilt.Content, mt) {
			return NotBuilt("header:Content-Type", "a body of type "+mt)
		}
	}
	if h := c.Request.Header["Accept"]; len(h) > 0 && len(r.Unbuilt.Accept) > 0 {
		if mt := coding.Media(h, append(slices.Clone(r.types()), r.Unbuilt.Accept...)); slices.Contains(r.Unbuilt.Accept, mt) {
			return NotBuilt("header:Accept", "an answer of type "+mt)
		}
	}
	return nil
}

func mediaType(ct string) string {
	if ct == JSONOnly[0] { // what nearly everybody sends
		return ct
	}
	if mt, _, err := mime.ParseMediaType(ct); err == nil {
		return mt
	}
	return ""
}

// headerNames are names and starts of names, as Unbuilt.Headers has them.
type headerNames struct {
	exact    map[string]string // canonical form → as the contract writes it
	prefixes []string          // canonical
	firsts   [256]bool         // first letters of all, to pass others by quickly
}

func newHeaderNames(names []string) headerNames {
	h := headerNames{exact: map[string]string{}}
	for _, n := range names {
		h.firsts[http.CanonicalHeaderKey(n)[0]] = true
		if prefix, isPrefix := strings.CutSuffix(n, "*"); isPrefix {
			h.prefixes = append(h.prefixes, http.CanonicalHeaderKey(prefix))
			continue
		}
		h.exact[http.CanonicalHeaderKey(n)] = n
	}
	return h
}

// in returns the first of the names, by the alphabet, that a header has; "" for none.
func (h *headerNames) in(header http.Header) string {
	first := ""
	if len(h.exact) == 0 && len(h.prefixes) == 0 {
		return first
	}
	for name := range header {
		if name == "" || !h.firsts[name[0]] {
			continue
		}
		found := h.exact[name]
		for _, p := range h.prefixes {
			if found == "" && strings.HasPrefix(name, p) {
				found = name
			}
		}
		if found != "" && (first == "" || found < first) {
			first = found
		}
	}
	return first
}

// checkQuery refuses parameters that the route does not know, and repeated ones.
func checkQuery(c *Call) error {
	var bad []model.FieldError
	for name, values := range c.query {
		switch {
		case name == "ticket" && c.takesTicket():
		case !slices.Contains(c.Route.Query, name):
			bad = append(bad, model.FieldError{Pointer: "query:" + name, Detail: "unknown query parameter"})
		case len(values) > 1:
			bad = append(bad, model.FieldError{Pointer: "query:" + name, Detail: "given more than once"})
		}
	}
	if len(bad) == 0 {
		return nil
	}
	slices.SortFunc(bad, func(a, b model.FieldError) int { return strings.Compare(a.Pointer, b.Pointer) })
	return &model.Error{Code: model.InvalidArgument, Detail: strings.TrimPrefix(bad[0].Pointer, "query:") + ": " + bad[0].Detail, Fields: bad}
}
