package route

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/gin-gonic/gin"

	"tidewire/api/coding"
	"tidewire/api/problem"
	"tidewire/auth"
	"tidewire/broker"
	"tidewire/cluster/metadata"
	"tidewire/internal/inflight"
	"tidewire/internal/model"
)

// Call is one request on its way through a handler.
type Call struct {
	*gin.Context
	Route      *Route
	Principal  *auth.Principal // nil on public routes
	Credential auth.Credential // what the principal was authenticated by; nil on public routes
	query      url.Values
	gate       *Gate
	coding     string // of the body: gzip, zstd or "" for none
	audit      *auditing
	decoded    bool          // the path parameters are
	hold       inflight.Hold // what the call counts for in the node's budget of bytes
}

// Handler answers a call, or returns the error that becomes its problem.
type Handler func(c *Call) error

// Caller is on whose behalf the call is made. It stays good after the request.
func (c *Call) Caller() broker.Caller {
	return broker.Caller{Principal: c.Principal, Host: c.Host(), Credential: c.Credential}
}

// Host is the client's address. gin's way to it is longer, and of use only where proxies
// are trusted to tell it.
func (c *Call) Host() string {
	addr := c.Request.RemoteAddr
	if i := strings.LastIndexByte(addr, ':'); len(c.gate.proxies) == 0 && i > 0 && addr[0] != '[' {
		return addr[:i]
	}
	return c.ClientIP()
}

// PathValue returns a decoded path parameter. The router matched the escaped path, so
// that %2F and + in names keep their meaning; see decodePath.
func (c *Call) PathValue(name string) string { return c.Param(name) }

// decodePath unescapes all path parameters once. An escape that is not valid is a 422,
// and so is a name that no topic or user can have.
func (c *Call) decodePath() error {
	c.decoded = true
	for i := range c.Params {
		p := &c.Params[i]
		v, err := url.PathUnescape(p.Value)
		if err != nil {
			return model.Invalid("path:"+p.Key, "%q is not a valid percent-encoding", p.Value)
		}
		p.Value = v
		if why := checkPathName(p.Key, v); why != "" {
			return model.Invalid("path:"+p.Key, "%s", why)
		}
	}
	return nil
}

func checkPathName(parameter, name string) (why string) {
	switch parameter {
	case "topic":
		return model.CheckTopicName(name)
	case "username":
		if why = model.CheckName(name); why != "" {
			return "a user name " + why
		}
	}
	return ""
}

// PathPartition reads the partition of the path; a number below 0 or none is a 422.
func (c *Call) PathPartition() (model.PartitionID, error) {
	s := c.PathValue("partition")
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil || n < 0 {
		return 0, model.Invalid("path:partition", "a partition is a whole number from 0, not %q", s)
	}
	return model.PartitionID(n), nil
}

// Query returns the parsed query, once.
func (c *Call) Query() url.Values { return c.query }

// Only returns a query parameter that may be given once, and whether it was given.
func (c *Call) Only(name string) (string, bool) {
	v, ok := c.query[name]
	if !ok {
		return "", false
	}
	return v[0], true
}

// QueryBool reads a true/false parameter.
func (c *Call) QueryBool(name string) (bool, error) {
	switch v, ok := c.Only(name); {
	case !ok || v == "false":
		return false, nil
	case v == "true":
		return true, nil
	default:
		return false, model.Invalid("query:"+name, "%s must be true or false, not %q", name, v)
	}
}

// IntRange is what a whole number in the query may be.
type IntRange struct{ Def, Min, Max int64 }

// QueryInt reads a whole number; out of range is a 422, never clamped.
func (c *Call) QueryInt(name string, r IntRange) (int64, error) {
	s, ok := c.Only(name)
	if !ok {
		return r.Def, nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < r.Min || n > r.Max {
		return 0, model.Invalid("query:"+name, "%s must be a whole number from %d to %d, not %q", name, r.Min, r.Max, s)
	}
	return n, nil
}

// HeaderInt reads a whole number from 0 to most; nil where the header is not there.
func (c *Call) HeaderInt(name string, most int64) (*int64, error) {
	given := c.Request.Header[name]
	switch len(given) {
	case 0:
		return nil, nil
	case 1:
		if n, err := strconv.ParseInt(given[0], 10, 64); err == nil && n >= 0 && n <= most {
			return &n, nil
		}
	default:
		return nil, model.Invalid("header:"+name, "%s is given more than once", name)
	}
	return nil, model.Invalid("header:"+name, "%s must be a whole number from 0 to %d, not %q", name, most, given[0])
}

// IfMatch reads the If-Match header (RFC 9110 §13.1.1): "" for none or *, else the one
// entity tag. Of what is not a strong tag it makes one that matches no state: that is told
// only once the caller's rights and the thing are known.
func (c *Call) IfMatch() (metadata.ETag, error) {
	h := c.GetHeader("If-Match")
	switch {
	case h == "" || h == "*":
		return "", nil
	case strings.Contains(h, ","):
		return "", model.Invalid("header:If-Match", "If-Match takes one entity tag here")
	case len(h) > 2 && h[0] == '"' && h[len(h)-1] == '"':
		return metadata.ETag(h[1 : len(h)-1]), nil
	}
	return metadata.ETag("not strong: " + h), nil
}

// Matches checks an If-Match where no command carries it: in a dry run, and for a
// password, whose command checks the credentials instead.
func Matches(want, have metadata.ETag) error {
	if want == "" || want == have {
		return nil
	}
	return model.Errorf(model.ETagMismatch, "the resource has changed: its entity tag is %s", quoted(have))
}

// JSON answers with a JSON document.
func (c *Call) JSON(status int, v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	c.Bytes(status, "application/json", b.Bytes())
	return nil
}

// Resource answers with a JSON document that has an etag.
func (c *Call) Resource(status int, etag metadata.ETag, v any) error {
	c.Header("ETag", quoted(etag))
	return c.JSON(status, v)
}

func quoted(e metadata.ETag) string { return `"` + string(e) + `"` }

// Bytes answers with a document of any type, compressed where the client and the route
// allow it.
func (c *Call) Bytes(status int, mediaType string, b []byte) {
	h := c.Writer.Header()
	if mediaType == JSONOnly[0] {
		h["Content-Type"] = JSONOnly
	} else {
		h["Content-Type"] = []string{mediaType}
	}
	if !c.Route.Records {
		b = coding.Answer(h, c.Request.Header["Accept-Encoding"], b)
	}
	h["Content-Length"] = lengthOf(b)
	h["Cache-Control"] = NoStore
	c.Writer.WriteHeader(status)
	_, _ = c.Writer.Write(b) // the client may be gone
}

// smallLengths are the values of Content-Length up to some size, which all answers share: they
// must not be changed.
var smallLengths = func() (all [512][]string) {
	for n := range all {
		all[n] = []string{strconv.Itoa(n)}
	}
	return all
}()

func lengthOf(b []byte) []string {
	if len(b) < len(smallLengths) {
		return smallLengths[len(b)]
	}
	return []string{strconv.Itoa(len(b))}
}

// NoStore is the Cache-Control of every answer, as a value of http.Header that all share:
// it must not be changed.
var NoStore = []string{"no-store"}

// NoContent answers 204.
func (c *Call) NoContent() error {
	c.Writer.WriteHeader(http.StatusNoContent)
	return nil
}

// Prefix is the path prefix of all addresses, "" or "/x/y".
func (c *Call) Prefix() string { return c.gate.prefix }

// Grow counts a call that holds so many bytes in all in the node's budget of them.
func (c *Call) Grow(n int64) error { return c.hold.Grow(n) }

// Created sets the Location of a new resource, below the path prefix.
func (c *Call) Created(path ...string) {
	var b strings.Builder
	b.WriteString(c.gate.prefix)
	for _, p := range path {
		b.WriteByte('/')
		b.WriteString(url.PathEscape(p))
	}
	c.Header("Location", b.String())
}

// Occurrence is what a problem tells of the request that met it.
func (c *Call) Occurrence() problem.Occurrence {
	m := c.Request.Method
	return problem.Occurrence{
		Path: problem.PathOf(c.Request), RequestID: c.Writer.Header().Get("X-Request-Id"),
		Write: m != http.MethodGet && m != http.MethodHead,
	}
}

// bodies are reused between requests.
var bodies = sync.Pool{New: func() any { b := make([]byte, 0, 4<<10); return &b }}

// maxPooledBody bounds what the pool keeps.
const maxPooledBody = 4 << 20

// ReadBody reads the body up to the route's limit and hands it to use, which must not
// keep it. A body that is longer is request-too-large, one that breaks off is
// malformed.
func (c *Call) ReadBody(use func([]byte) error) error {
	buf := bodies.Get().(*[]byte)
	defer func() {
		if cap(*buf) <= maxPooledBody {
			bodies.Put(buf)
		}
	}()
	b, err := c.readAll((*buf)[:0])
	*buf = b
	if err != nil {
		return err
	}
	return use(b)
}

// readAll appends the body to b. What it holds is counted as it comes, so that a length
// which is only claimed costs nothing.
func (c *Call) readAll(b []byte) ([]byte, error) {
	r, length, limit := c.Request.Body, c.Request.ContentLength, c.Route.maxBody()
	if length >= 0 {
		for int64(len(b)) < length {
			step := min(length-int64(len(b)), max(64<<10, int64(len(b))))
			if err := c.hold.Grow(int64(len(b)) + step); err != nil {
				return b, err
			}
			b = slices.Grow(b, int(step))
			n, err := io.ReadFull(r, b[len(b):min(int64(cap(b)), length)])
			b = b[:len(b)+n]
			if err != nil {
				return b, brokeOff(len(b), err)
			}
		}
		return b, nil
	}
	for {
		b = slices.Grow(b, 4<<10)
		if err := c.hold.Grow(int64(cap(b))); err != nil {
			return b, err
		}
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		switch {
		case int64(len(b)) > limit:
			return b, tooLarge(limit)
		case errors.Is(err, io.EOF):
			return b, nil
		case err != nil:
			return b, brokeOff(len(b), err)
		}
	}
}

func brokeOff(n int, err error) error {
	var told *model.Error
	if errors.As(err, &told) {
		return told
	}
	return model.Errorf(model.MalformedBody, "the body broke off after %d bytes", n).WithCause(err)
}

func tooLarge(limit int64) error {
	return model.Errorf(model.RequestTooLarge, "the body has more than the %d bytes allowed here", limit)
}
