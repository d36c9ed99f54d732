package web

import (
	"crypto/rand"
	"encoding/hex"
	"net/http"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
)

// requestIDs gives ids to requests that bring none: random for the process, then counted.
type requestIDs struct {
	process string
	n       atomic.Uint64
}

func newRequestIDs() *requestIDs {
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return &requestIDs{process: hex.EncodeToString(b[:]) + "-"}
}

const maxRequestID = 128

// of returns the request's own id where it is a plain word, else a new one, as the one value
// of a header.
func (ids *requestIDs) of(r *http.Request) []string {
	if h := r.Header["X-Request-Id"]; len(h) == 1 && plainWord(h[0]) {
		return []string{h[0]}
	}
	var b [32]byte
	return []string{string(strconv.AppendUint(append(b[:0], ids.process...), ids.n.Add(1), 16))}
}

// plainWord says that a text may stand in logs and headers as it is.
func plainWord(s string) bool {
	if s == "" || len(s) > maxRequestID {
		return false
	}
	for i := 0; i < len(s); i++ {
		if s[i] <= ' ' || s[i] >= 0x7f || s[i] == '"' || s[i] == '\\' {
			return false
		}
	}
	return true
}

// validTraceparent checks the form of W3C Trace Context, version 00.
func validTraceparent(s string) bool {
	if len(s) != 55 || s[:3] != "00-" || s[35] != '-' || s[52] != '-' {
		return false
	}
	for _, part := range []string{s[3:35], s[36:52], s[53:55]} {
		for i := 0; i < len(part); i++ {
			if c := part[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
				return false
			}
		}
	}
	return true
}

func stack() string { return string(debug.Stack()) }

// cors answers browsers of other origins (Fetch standard, CORS protocol). Without
// allowed origins it does nothing, so that browsers refuse.
type cors struct {
	origins []string
	any     bool
}

func newCORS(origins []string) *cors {
	return &cors{origins: origins, any: slices.Contains(origins, "*")}
}

const (
	corsMethods = "GET, HEAD, POST, PUT, PATCH, DELETE"
	corsHeaders = "Authorization, Content-Type, Content-Encoding, Accept, If-Match, X-Request-Id, Traceparent, Idempotency-Key, Last-Event-ID"
	corsExpose  = "ETag, Location, Retry-After, RateLimit, RateLimit-Policy, WWW-Authenticate, X-Request-Id, Traceparent, Idempotency-Replayed, " +
		"Tidewire-Acks, Tidewire-Warning, Tidewire-Next-Offset, Tidewire-High-Watermark, Tidewire-Last-Stable-Offset, Tidewire-Log-Start-Offset"
	// ownHeaders begins the headers of our own, which clients name as they like
	// (Tidewire-Header-<name>).
	ownHeaders = "tidewire-"
)

// allowedHeaders are the headers that a page may send: those that are known, and of those
// that a preflight asks for the ones of our own.
func allowedHeaders(asked []string) string {
	var b strings.Builder
	b.WriteString(corsHeaders)
	for _, list := range asked {
		for name := range strings.SplitSeq(list, ",") {
			name = strings.TrimSpace(name)
			if len(name) > len(ownHeaders) && strings.EqualFold(name[:len(ownHeaders)], ownHeaders) && isToken(name) {
				b.WriteString(", " + name)
			}
		}
	}
	return b.String()
}

// isToken reports whether a text can be the name of a header (RFC 9110 §5.6.2).
func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return s != ""
}

// allows reports whether pages of that origin may use the API.
func (c *cors) allows(origin string) bool { return c.any || slices.Contains(c.origins, origin) }

// AllowedOrigins tells of a handshake whether its page may open a socket: browsers do not
// apply CORS to WebSockets, so the server asks the same list.
func AllowedOrigins(origins []string) func(r *http.Request) bool {
	c := newCORS(origins)
	return func(r *http.Request) bool { return c.allows(r.Header.Get("Origin")) }
}

// handle sets the headers and answers preflights; it reports whether it answered.
func (c *cors) handle(w http.ResponseWriter, r *http.Request) bool {
	if len(c.origins) == 0 {
		return false
	}
	h := w.Header()
	h.Add("Vary", "Origin")
	origin := r.Header.Get("Origin")
	if origin == "" || !c.allows(origin) {
		return false
	}
	h.Set("Access-Control-Allow-Origin", origin)
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		h.Set("Access-Control-Expose-Headers", corsExpose)
		return false
	}
	h.Set("Access-Control-Allow-Methods", corsMethods)
	h.Set("Access-Control-Allow-Headers", allowedHeaders(r.Header["Access-Control-Request-Headers"]))
	h.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
	return true
}
