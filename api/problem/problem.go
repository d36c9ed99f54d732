// Package problem turns the project's errors into RFC 9457 problem details, the one
// form in which every HTTP path reports a failure: routes, unknown routes, WebSocket
// handshakes, frames and panics.
package problem

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"tidewire/internal/model"
)

// MediaType is the content type of a problem (RFC 9457).
const MediaType = "application/problem+json"

// typePrefix makes a problem's type from its code: a URN, since the document that
// explains it may be served by any node under any address.
const typePrefix = "urn:tidewire:problem:"

// Problem is what a client sees of an error. Members that do not apply are null, and
// errors is never null.
type Problem struct {
	Type      string             `json:"type" example:"urn:tidewire:problem:unknown-topic"`
	Title     string             `json:"title" example:"No such topic"`
	Status    int                `json:"status" example:"404"`
	Detail    string             `json:"detail"`
	Instance  string             `json:"instance" example:"/v1/topics/orders"`
	Code      model.Code         `json:"code" swaggertype:"string" example:"unknown-topic"`
	Retryable bool               `json:"retryable"`
	Outcome   *string            `json:"outcome" enums:"not-applied,unknown" extensions:"x-nullable"`
	Errors    []model.FieldError `json:"errors"`
	RequestID string             `json:"request_id"`
	extra     map[string]any
}

// Occurrence says where an error happened.
type Occurrence struct {
	Path      string // of the request
	RequestID string
	Write     bool // the request may change something, so the outcome matters
}

// PathOf is a request's path as the client sent it, with the path prefix that a node
// serves below.
func PathOf(r *http.Request) string {
	path, _, _ := strings.Cut(r.RequestURI, "?")
	if !strings.HasPrefix(path, "/") { // absolute form (RFC 9112 §3.2.2)
		return r.URL.EscapedPath()
	}
	return path
}

// Of makes the problem for err. An error that is not the project's own becomes
// internal, without its text.
func Of(err error, at Occurrence) Problem {
	e := model.AsError(err)
	row := model.Row(e.Code)
	p := Problem{
		Type: typePrefix + string(e.Code), Title: row.Title, Status: row.Status, Detail: e.Detail,
		Instance: at.Path, Code: e.Code, Retryable: row.Retryable, Errors: e.Fields,
		RequestID: at.RequestID, extra: e.Extra,
	}
	if p.Detail == "" {
		p.Detail = row.Title
	}
	if p.Errors == nil {
		p.Errors = []model.FieldError{}
	}
	if o := string(e.EffectiveOutcome()); at.Write && o != "" {
		p.Outcome = &o
	}
	return p
}

// MarshalJSON writes the members and, behind them, the error's own extension members.
func (p Problem) MarshalJSON() ([]byte, error) {
	type plain Problem
	b, err := json.Marshal(plain(p))
	if err != nil || len(p.extra) == 0 {
		return b, err
	}
	x, err := json.Marshal(p.extra)
	if err != nil {
		return nil, err
	}
	return append(append(b[:len(b)-1], ','), x[1:]...), nil
}

// Write answers a request with err as problem+json, with WWW-Authenticate on 401 and
// Retry-After on 429 and 503.
func Write(w http.ResponseWriter, err error, at Occurrence) {
	e := model.AsError(err)
	p := Of(e, at)
	h := w.Header()
	h.Set("Content-Type", MediaType)
	h.Set("Cache-Control", "no-store")
	h.Del("Content-Length")
	switch p.Status {
	case http.StatusUnauthorized:
		h.Set("WWW-Authenticate", challenge(e.Code))
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		h.Set("Retry-After", strconv.Itoa(retrySeconds(e.RetryAfter)))
		if e.Limit != nil {
			setRateLimit(h, e.Limit)
		}
	}
	b, err := json.Marshal(p)
	if err != nil { // an extension member that JSON cannot carry: say the rest
		p.extra = nil
		b, _ = json.Marshal(p)
	}
	b = append(b, '\n')
	h.Set("Content-Length", strconv.Itoa(len(b)))
	w.WriteHeader(p.Status)
	_, _ = w.Write(b) // the client may be gone
}

// challenge is the value of WWW-Authenticate (RFC 6750 §3).
func challenge(c model.Code) string {
	if c == model.TokenExpired {
		return `Bearer realm="tidewire", error="invalid_token", error_description="The token has expired"`
	}
	return `Bearer realm="tidewire"`
}

// setRateLimit tells the limit as lists of structured fields (RFC 9651, and the draft that
// model.RateLimit names). Names of policies are the project's own and need no escapes.
func setRateLimit(h http.Header, l *model.RateLimit) {
	h.Set("RateLimit-Policy", fmt.Sprintf("%q;q=%d;w=%d;qu=%q", l.Policy, l.Quota, l.WindowS, l.Unit))
	h.Set("RateLimit", fmt.Sprintf("%q;r=%d;t=%d", l.Policy, l.Remaining, l.ResetS))
}

func retrySeconds(d time.Duration) int {
	if d <= 0 {
		return 1
	}
	return int((d + time.Second - 1) / time.Second)
}
