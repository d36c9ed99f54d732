package h1

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tidewire/internal/testkit/racing"
)

// outcome is what a client sees of raw bytes: the answers and whether the connection
// takes another request then.
type outcome struct {
	replies []reply
	open    bool
}

const probe = "GET /probe HTTP/1.1\r\nHost: probe\r\n\r\n"

// withProbe answers the requests by which a test looks whether a connection is open.
func withProbe(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Host == "probe" {
			w.Header().Set("Probe", "1")
			return
		}
		h.ServeHTTP(w, r)
	})
}

// ask sends raw and then the probe, and reads all answers. methods are those of the
// requests in raw.
func ask(t *testing.T, addr, raw string, methods ...string) (o outcome) {
	t.Helper()
	c := dial(t, addr)
	_, _ = io.WriteString(c, raw) // fails where the server cuts the connection meanwhile
	probed := false
	for i := 0; ; i++ {
		method := "GET"
		if i < len(methods) {
			method = methods[i]
		} else if !probed {
			probed = true
			_, _ = io.WriteString(c, probe) // fails where the connection is closed
		}
		r, err := c.read(method)
		if err != nil {
			require.False(t, isTimeout(err), "nothing came for %q after %v", raw, o.replies)
			return o
		}
		if r.header.Get("Probe") != "" {
			o.open = true
			return o
		}
		if 100 <= r.status && r.status < 200 && r.status != http.StatusSwitchingProtocols {
			i--
		}
		o.replies = append(o.replies, r)
	}
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

// held are the sizes of bodies that this package gives a length and net/http sends in
// chunks.
func held(n int) bool { return n > 2048 && n <= bufferSize }

// For HEAD net/http knows the length of what its first buffer held, this package any.
func isHead(methods []string, i int) bool { return i < len(methods) && methods[i] == "HEAD" }

func requireSameOutcome(t *testing.T, want, got outcome, methods ...string) {
	t.Helper()
	assert.Equal(t, want.open, got.open, "whether the connection stays open")
	require.Len(t, got.replies, len(want.replies))
	for i, w := range want.replies {
		g := got.replies[i]
		if held(len(w.body)) || isHead(methods, i) && w.length < 0 {
			w.length, g.length = 0, 0
			w.header.Del("Content-Length")
			g.header.Del("Content-Length")
		}
		assert.Equal(t, w, g, "answer %d", i)
	}
}

// compare asks both servers the same.
func compare(t *testing.T, h http.Handler, raw string, methods ...string) outcome {
	t.Helper()
	h = withProbe(h)
	_, addr := start(t, h)
	want := ask(t, startPlain(t, h), raw, methods...)
	got := ask(t, addr, raw, methods...)
	requireSameOutcome(t, want, got, methods...)
	return got
}

func write(w http.ResponseWriter, s string) { _, _ = io.WriteString(w, s) }

var answers = map[string]http.HandlerFunc{
	"nothing":        func(http.ResponseWriter, *http.Request) {},
	"status only":    func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404) },
	"unknown status": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(799) },
	"small":          func(w http.ResponseWriter, _ *http.Request) { write(w, "<html>hello") },
	"2048 bytes":     func(w http.ResponseWriter, _ *http.Request) { write(w, repeat(2048)) },
	"buffer":         func(w http.ResponseWriter, _ *http.Request) { write(w, repeat(bufferSize)) },
	"buffer and one": func(w http.ResponseWriter, _ *http.Request) { write(w, repeat(bufferSize)); write(w, "x") },
	"one and much":   func(w http.ResponseWriter, _ *http.Request) { write(w, "<"); write(w, "html>"+repeat(100_000)) },
	"long":           func(w http.ResponseWriter, _ *http.Request) { write(w, repeat(300_000)) },
	"many small": func(w http.ResponseWriter, _ *http.Request) {
		for range 5000 {
			write(w, "0123456789")
		}
	},
	"long with length": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "300000")
		write(w, repeat(300_000))
	},
	"pieces with length": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "11")
		write(w, "<")
		write(w, "html>hello")
	},
	"flush in the middle": func(w http.ResponseWriter, _ *http.Request) {
		write(w, "one")
		w.(http.Flusher).Flush()
		write(w, "two")
	},
	"flush first": func(w http.ResponseWriter, _ *http.Request) { w.(http.Flusher).Flush(); write(w, "<html>") },
	"flush with length": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "6")
		w.(http.Flusher).Flush()
		write(w, "<html>")
	},
	"204":             func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) },
	"204 flushed":     func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204); w.(http.Flusher).Flush() },
	"204 with a body": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204); tell(w)(w.Write([]byte("x"))) },
	"204 with a length": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "5")
		w.WriteHeader(204)
	},
	"304": func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("ETag", "x"); w.WriteHeader(304) },
	"304 with fields": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "5")
		w.Header().Set("Content-Type", "a/b")
		w.WriteHeader(304)
	},
	"101": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(101) },
	"too long a length": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "10")
		write(w, "12345")
	},
	"too short a length": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "3")
		tell(w)(w.Write([]byte("12345")))
	},
	"a write after ErrContentLength": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "10")
		write(w, "1234")
		_, err := w.Write([]byte("123456789"))
		write(w, strconv.FormatBool(errors.Is(err, http.ErrContentLength)))
	},
	"a refused write fits exactly": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "10")
		write(w, "1234")
		write(w, "123456789")
		write(w, "123456")
	},
	"a length without a body": func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "10") },
	"length 0":                func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "0") },
	"close":                   func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Connection", "close"); write(w, "x") },
	"close, chunked": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close")
		write(w, repeat(50_000))
	},
	"keep-alive":        func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Connection", "keep-alive") },
	"splitting":         func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("A", "b\r\nSet-Cookie: evil\r\n\r\nbody") },
	"a value of blanks": func(w http.ResponseWriter, _ *http.Request) { w.Header()["A"] = []string{" \t x \r\n", "", " "} },
	"invalid names": func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["A b"] = []string{"c"}
		w.Header()["A:\r\nB"] = []string{"c"}
		w.Header()[""] = []string{"c"}
	},
	"many values": func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["A"] = []string{"1", "2", "3"}
		w.Header()["B"] = nil
	},
	"no type": func(w http.ResponseWriter, _ *http.Request) { w.Header()["Content-Type"] = nil; write(w, "<html>") },
	"own type": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "a/b")
		write(w, "<html>")
	},
	"encoded": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		write(w, "<html>")
	},
	"an empty encoding": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "")
		write(w, "<html>")
	},
	"a field set after status": func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(200)
		w.Header().Set("A", "b")
		write(w, "x")
	},
	"a second status": func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(201)
		w.WriteHeader(500)
		w.WriteHeader(0)
		write(w, "x")
	},
	"an invalid status": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(0) },
	"a long value":      func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("A", repeat(40_000)); write(w, "x") },
	"a long value, chunked": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("A", repeat(17_000))
		write(w, repeat(40_000))
	},
	"a long value, flushed": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("A", repeat(17_000))
		w.(http.Flusher).Flush()
		write(w, "x")
	},
	"a long interim value": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("A", repeat(17_000))
		w.WriteHeader(103)
		write(w, "x")
	},
	"interim": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "</a>")
		w.WriteHeader(103)
		w.Header().Set("Link", "</b>")
		w.WriteHeader(102)
		w.WriteHeader(201)
		w.WriteHeader(103)
		write(w, "<html>")
	},
	"interim with close taken back": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close")
		w.WriteHeader(103)
		w.Header().Del("Connection")
		write(w, "x")
	},
	"panic":               func(http.ResponseWriter, *http.Request) { panic("x") },
	"panic after a flush": func(w http.ResponseWriter, _ *http.Request) { write(w, "one"); w.(http.Flusher).Flush(); panic("x") },
	"panic after part": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "10")
		write(w, "one")
		w.(http.Flusher).Flush()
		panic("x")
	},
	"panic after a small write": func(w http.ResponseWriter, _ *http.Request) { write(w, "one"); panic("x") },
	"abort": func(w http.ResponseWriter, _ *http.Request) {
		write(w, "one")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	},
	"a deadline for reading that has passed": func(w http.ResponseWriter, r *http.Request) {
		tell(w)(0, http.NewResponseController(w).SetReadDeadline(time.Now().Add(-time.Second)))
		_, err := io.Copy(io.Discard, r.Body)
		write(w, strconv.FormatBool(r.ContentLength == 0 || err != nil))
	},
	"a deadline for writing that has passed": func(w http.ResponseWriter, _ *http.Request) {
		tell(w)(0, http.NewResponseController(w).SetWriteDeadline(time.Now().Add(-time.Second)))
		write(w, "one")
		tell(w)(0, http.NewResponseController(w).Flush())
	},
	"stream with deadlines": func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		tell(w)(0, errors.Join(rc.SetReadDeadline(time.Now().Add(patience)), rc.SetWriteDeadline(time.Now().Add(patience))))
		_, err := io.Copy(w, r.Body)
		tell(w)(0, err)
	},
	"echo": func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		tell(w)(w.Write(b))
		tell(w)(0, err)
	},
	"stream": func(w http.ResponseWriter, r *http.Request) { _, err := io.Copy(w, r.Body); tell(w)(0, err) },
	"duplex": func(w http.ResponseWriter, r *http.Request) {
		tell(w)(0, http.NewResponseController(w).EnableFullDuplex())
		_, err := io.Copy(w, r.Body)
		tell(w)(0, err)
	},
	"partial": func(w http.ResponseWriter, r *http.Request) {
		b := make([]byte, 10)
		n, _ := io.ReadFull(r.Body, b)
		tell(w)(w.Write(b[:n]))
	},
	"read after a flush": func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		b, _ := io.ReadAll(r.Body) // the body was drained: how reading ends differs
		write(w, strconv.Itoa(len(b)))
	},
	"closed body": func(w http.ResponseWriter, r *http.Request) {
		tell(w)(0, r.Body.Close())
		n, err := r.Body.Read(make([]byte, 1))
		write(w, fmt.Sprint(n, errors.Is(err, http.ErrBodyReadAfterClose), r.Body.Close()))
	},
	"status and close with the body left": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close")
		w.WriteHeader(413)
	},
	"request": func(w http.ResponseWriter, r *http.Request) {
		h := fmt.Sprint(r.Method, r.URL, r.URL.Path, r.URL.RawQuery, r.RequestURI, r.Host, r.Proto, r.ContentLength, r.TransferEncoding, r.Close, r.Header, r.Trailer, r.Form)
		write(w, h)
	},
}

// tell has an error among what is compared.
func tell(w http.ResponseWriter) func(int, error) {
	return func(_ int, err error) {
		if err != nil {
			w.Header().Add("Failed", kind(err))
		}
	}
}

// kind keeps addresses and ports out of a comparison.
func kind(err error) string {
	switch {
	case isTimeout(err):
		return "timeout"
	case errors.Is(err, http.ErrBodyNotAllowed), errors.Is(err, http.ErrContentLength), errors.Is(err, io.ErrUnexpectedEOF):
		return err.Error()
	}
	return "error"
}

// asked are requests that every handler is asked; {M} is the method.
var asked = []struct{ name, raw, method string }{
	{"GET", "GET /x?y=z HTTP/1.1\r\nHost: a\r\n\r\n", "GET"},
	{"HEAD", "HEAD /x HTTP/1.1\r\nHost: a\r\n\r\n", "HEAD"},
	{"POST", "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 26\r\n\r\nabcdefghijklmnopqrstuvwxyz", "POST"},
	{"POST of 100 KB", "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n" + repeat(100_000), "POST"},
	{"PUT of 600 KB", "PUT /x HTTP/1.1\r\nHost: a\r\nContent-Length: 600000\r\n\r\n" + repeat(600_000), "PUT"},
	{"chunked", "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", "POST"},
}

func TestAnswersAreNetHTTPs(t *testing.T) {
	t.Parallel()
	for name, h := range answers {
		for _, q := range asked {
			t.Run(name+"/"+q.name, func(t *testing.T) {
				t.Parallel()
				if strings.HasPrefix(name, "stream") && len(q.raw) > bufferSize {
					t.Skip("what may be read after the first write depends on when it is sent")
				}
				compare(t, h, q.raw, q.method)
			})
		}
	}
}

// net/http reads what is left of the body behind such an answer, too, but cuts the
// connection at the next request then.
func TestABodyLeftUnderFullDuplexIsReadBehindTheAnswer(t *testing.T) {
	t.Parallel()
	_, addr := start(t, withProbe(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		tell(w)(0, http.NewResponseController(w).EnableFullDuplex())
		write(w, repeat(20_000))
	})))
	for _, q := range asked[:5] {
		o := ask(t, addr, q.raw, q.method)
		require.Len(t, o.replies, 1, q.name)
		require.Equal(t, len(q.raw) < maxDrain, o.open, q.name)
	}
}

// net/http sends such a length as it is, so that no client can read the answer.
func TestAnInvalidLengthIsNotSent(t *testing.T) {
	t.Parallel()
	for _, length := range []string{"ten", "-1", " 1", "1 ", "0x1", "99999999999999999999", "1\r\nA: b"} {
		_, addr := start(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", length)
			write(w, "x")
		}))
		c := dial(t, addr)
		for range 2 {
			c.send(get)
			r := c.answer("GET")
			require.Equal(t, "x", r.body)
			require.Equal(t, []string{"1"}, r.header["Content-Length"])
			require.Empty(t, r.header.Get("A"))
		}
	}
}

// Two of everything in one packet: an answer that ends elsewhere than it says would be
// seen in the second one.
func TestPipelinedAnswersAreNetHTTPs(t *testing.T) {
	t.Parallel()
	for name, h := range answers {
		for _, q := range asked[:3] {
			t.Run(name+"/"+q.name, func(t *testing.T) {
				t.Parallel()
				if strings.Contains(name, "panic") || name == "abort" || name == "an invalid status" {
					t.Skip("the connection is cut with a request unread: how much arrives is the kernel's choice")
				}
				compare(t, h, strings.Repeat(q.raw, 2), q.method, q.method)
			})
		}
	}
}

func TestOddHeadsAreAnsweredAsByNetHTTP(t *testing.T) {
	t.Parallel()
	for _, raw := range oddHeads {
		t.Run(fmt.Sprintf("%.40q", raw), func(t *testing.T) {
			t.Parallel()
			if strings.Contains(raw, "9999999") {
				t.Skip("no client sends such a body")
			}
			o := compare(t, answers["request"], raw, strings.SplitN(raw, " ", 2)[0])
			require.NotEmpty(t, o.replies)
		})
	}
}

func TestManyPipelinedRequestsAreAnsweredInOrder(t *testing.T) {
	t.Parallel()
	var raw strings.Builder
	methods := make([]string, 500)
	for i := range methods {
		methods[i] = "POST"
		body := repeat(i)
		fmt.Fprintf(&raw, "POST /%d HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s", i, len(body), body)
	}
	o := compare(t, answers["stream"], raw.String(), methods...)
	for i, r := range o.replies {
		require.Equal(t, repeat(i), r.body)
	}
	require.True(t, o.open)
}

// Some clients send a line end behind the body of a POST.
func TestBlankLinesAfterAPost(t *testing.T) {
	t.Parallel()
	post := "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab"
	for _, blank := range []string{"\r\n", "\n", "\r\n\r\n", "\r\n\r\n\r\n", "\r", "\r\n\r\n\n"} {
		t.Run(fmt.Sprintf("%q", blank), func(t *testing.T) {
			t.Parallel()
			compare(t, answers["stream"], post+blank+get, "POST", "GET")
			compare(t, answers["stream"], post+blank+post, "POST", "POST")
		})
	}
	compare(t, answers["stream"], get+"\r\n"+get, "GET", "GET")
}

// A request in two packets, cut at each byte.
func TestARequestMayComeInPieces(t *testing.T) {
	t.Parallel()
	racing.SkipSequential(t)
	const raw = "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"
	bodyAt := strings.Index(raw, "\r\n\r\n") + 4
	started := make(chan struct{}, 1)
	s, addr := start(t, withProbe(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		started <- struct{}{}
		answers["echo"](w, r)
	})))
	for i := 1; i < len(raw); i++ {
		c := dial(t, addr)
		c.send(raw[:i])
		if i < bodyAt {
			c.send(raw[i:])
			<-started
		} else {
			<-started
			c.send(raw[i:])
		}
		r := c.answer("POST")
		require.Equal(t, 200, r.status)
		require.Equal(t, "hello", r.body)
		c.send(get)
		<-started
		c.answer("GET")
		require.NoError(t, c.Close())
	}
	for i := 1; i < bodyAt; i++ {
		eventually(t, "the others ended", func() bool { return s.tracked() == 0 })
		c := dial(t, addr)
		eventually(t, "accepted", func() bool { return s.tracked() == 1 })
		c.send(raw[:i])
		eventually(t, "handed over", func() bool { return s.tracked() == 0 })
		c.send(raw[i:])
		<-started
		require.Equal(t, "hello", c.answer("POST").body)
	}
}

func TestHeadsBeyondTheLimitAreRefusedAsByNetHTTP(t *testing.T) {
	t.Parallel()
	for _, n := range []int{100, 900, 1100, 4000, 6000, 20_000, 100_000} {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			t.Parallel()
			limit := func(s *http.Server) { s.MaxHeaderBytes = 1000 }
			h := withProbe(answers["small"])
			raw := "GET / HTTP/1.1\r\nHost: a\r\nA: " + repeat(n) + "\r\n\r\n"
			want := ask(t, startPlain(t, h, limit), raw, "GET")
			_, addr := start(t, h, limit)
			got := ask(t, addr, raw, "GET")
			if n > 10_000 {
				return // both cut the connection with bytes unread: the answer may be lost
			}
			requireSameOutcome(t, want, got)
		})
	}
}

func TestExpectationsAndUpgradesAreServedByNetHTTP(t *testing.T) {
	t.Parallel()
	_, addr := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !websocket.IsWebSocketUpgrade(r) {
			answers["echo"](w, r)
			return
		}
		c, err := (&websocket.Upgrader{}).Upgrade(w, r, nil)
		if err != nil {
			return // the client sees that
		}
		defer func() { _ = c.Close() }() // the client has closed it already
		for {
			kind, p, err := c.ReadMessage()
			if err != nil || c.WriteMessage(kind, p) != nil {
				return
			}
		}
	}))
	c := dial(t, addr)
	c.send(get) // the upgrade may come as a second request
	c.answer("GET")
	c.send("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n")
	require.Equal(t, 100, c.answer("POST").status)
	c.send("hello")
	require.Equal(t, "hello", c.answer("POST").body)

	ws, resp, err := websocket.DefaultDialer.Dial("ws://"+addr+"/", nil)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	for _, n := range []int{0, 5, 100_000} {
		require.NoError(t, ws.WriteMessage(websocket.TextMessage, []byte(repeat(n))))
		_, p, err := ws.ReadMessage()
		require.NoError(t, err)
		require.Equal(t, repeat(n), string(p))
	}
	require.NoError(t, ws.Close())
}

func TestSettingsThatOnlyNetHTTPObeysSendAllThere(t *testing.T) {
	t.Parallel()
	s, addr := start(t, answers["small"], func(s *http.Server) { s.WriteTimeout = patience })
	c := dial(t, addr)
	c.send(get)
	require.Equal(t, "<html>hello", c.answer("GET").body)
	require.Zero(t, s.tracked())
}
