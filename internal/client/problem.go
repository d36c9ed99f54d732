package client

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"tidewire/internal/model"
)

// Problem is an error answer of the server, problem+json (RFC 9457).
type Problem struct {
	Title     string             `json:"title"`
	Status    int                `json:"status"`
	Detail    string             `json:"detail"`
	Code      model.Code         `json:"code"`
	Retryable bool               `json:"retryable"`
	Outcome   model.Outcome      `json:"outcome"` // of a write; empty on reads
	Fields    []model.FieldError `json:"errors"`
	RequestID string             `json:"request_id"`

	RetryAfter time.Duration   `json:"-"` // 0 when the answer did not say
	Raw        json.RawMessage `json:"-"` // the whole problem
}

// Error gives code, status and detail, each wrong field, the outcome and the id
// under which the server's log knows the request.
func (p *Problem) Error() string {
	var b strings.Builder
	switch {
	case p.Code == "":
		fmt.Fprintf(&b, "HTTP %d", p.Status)
	default:
		fmt.Fprintf(&b, "%s (%d)", p.Code, p.Status)
	}
	switch {
	case p.Detail != "":
		b.WriteString(": " + p.Detail)
	case p.Title != "":
		b.WriteString(": " + p.Title)
	}
	for _, f := range p.Fields {
		fmt.Fprintf(&b, "\n  %s: %s", f.Pointer, f.Detail)
	}
	if p.Outcome != "" {
		fmt.Fprintf(&b, "\n  outcome: %s", p.Outcome)
	}
	if p.RequestID != "" {
		fmt.Fprintf(&b, "\n  request: %s", p.RequestID)
	}
	return b.String()
}

// maxProblem bounds how much of an error answer is read.
const maxProblem = 1 << 20

// problemOf reads an error answer. An answer that is no problem+json, such as a
// proxy's page, becomes one without a code; of a write it leaves the outcome open
// unless its status says that nothing was done.
func problemOf(resp *http.Response) *Problem {
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxProblem))
	p := &Problem{}
	if err := json.Unmarshal(body, p); err != nil || p.Code == "" {
		p = &Problem{Status: resp.StatusCode, Title: http.StatusText(resp.StatusCode)}
		p.Detail = "the answer is not from a Tidewire server"
		if resp.StatusCode >= 500 && resp.Request != nil && resp.Request.Method != http.MethodGet {
			p.Outcome = model.Unknown
		}
	} else {
		p.Raw = body
	}
	if p.Status == 0 {
		p.Status = resp.StatusCode
	}
	if s, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && s > 0 {
		p.RetryAfter = time.Duration(s) * time.Second
	}
	return p
}
