package h1

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// scripted is a connection that gives net/http fixed bytes and keeps its answer.
type scripted struct {
	in  *bytes.Reader
	out bytes.Buffer
	got *http.Request // what the handler was given
	end chan struct{}
}

func (s *scripted) Read(p []byte) (int, error)       { return s.in.Read(p) }
func (s *scripted) Write(p []byte) (int, error)      { return s.out.Write(p) }
func (s *scripted) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (s *scripted) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (s *scripted) SetDeadline(time.Time) error      { return nil }
func (s *scripted) SetReadDeadline(time.Time) error  { return nil }
func (s *scripted) SetWriteDeadline(time.Time) error { return nil }
func (s *scripted) Close() error {
	select {
	case <-s.end:
	default:
		close(s.end)
	}
	return nil
}

type scriptedKey struct{}

// judge is net/http's server as the judge over heads.
type judge struct{ conns *passed }

func newJudge(t testing.TB) *judge {
	t.Helper()
	j := &judge{newPassed()}
	s := &http.Server{
		ErrorLog: log.New(io.Discard, "", 0),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.Context().Value(scriptedKey{}).(*scripted).got = r
			w.Header().Set("Connection", "close")
		}),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, scriptedKey{}, c.(*scripted))
		},
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(j.conns) }()
	t.Cleanup(func() {
		require.NoError(t, s.Close())
		require.ErrorIs(t, <-ended, http.ErrServerClosed)
	})
	return j
}

// read is what net/http's handlers get of these bytes; nil: it answered an error itself.
func (j *judge) read(raw []byte) (*http.Request, string) {
	s := &scripted{in: bytes.NewReader(raw), end: make(chan struct{})}
	j.conns.push(s)
	<-s.end
	return s.got, s.out.String()
}

// request is what this package's handlers get of a head.
func (h head) request() *http.Request {
	c := &conn{s: &Server{}}
	x := c.exchange(h)
	return &x.req
}

func requireSame(t require.TestingT, want, got *http.Request, raw []byte) {
	require.Equal(t, want.Method, got.Method, "%q", raw)
	require.Equal(t, want.URL, got.URL, "%q", raw)
	require.Equal(t, want.Host, got.Host, "%q", raw)
	require.Equal(t, want.RequestURI, got.RequestURI, "%q", raw)
	require.Equal(t, want.Header, got.Header, "%q", raw)
	require.Equal(t, want.ContentLength, got.ContentLength, "%q", raw)
	require.Equal(t, want.TransferEncoding, got.TransferEncoding, "%q", raw)
	require.Equal(t, want.Trailer, got.Trailer, "%q", raw)
	require.Equal(t, want.Close, got.Close, "%q", raw)
	require.Equal(t, []any{want.Proto, want.ProtoMajor, want.ProtoMinor}, []any{got.Proto, got.ProtoMajor, got.ProtoMinor})
	require.Equal(t, want.Body == http.NoBody, got.Body == http.NoBody, "%q", raw)
}

// oddHeads are heads at the edges of the grammar; most are not plain.
var oddHeads = []string{
	"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET / HTTP/1.1\r\nhost:a\r\nX:\r\nx: \t b \t\r\n\r\n",
	"POST /a%2Fb?q=%zz&x#f HTTP/1.1\r\nHost: [::1]:80\r\ncontent-length: 0005\r\n\r\nhello",
	"POST //x//y HTTP/1.1\r\nHost: a:b:c\r\nContent-Length: 5\r\nX-Content-Length: 5\r\n\r\nhello",
	"OPTIONS /a;b=c HTTP/1.1\r\nHost: a_b\r\nConnection: Keep-Alive\r\nCookie: a=b\r\nCookie: c=d\r\n\r\n",
	"GET /é HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET /%C3%A9 HTTP/1.1\r\nHost: a\r\nX: \xff\xfe\x80\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: a\r\nX: a\x00b\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: a\r\nX : b\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: a\r\nX: b\r\n c\r\n\r\n",
	"GET / HTTP/1.1\nHost: a\n\nGET /b HTTP/1.1\r\nHost: b\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: a\rX: b\r\n\r\n",
	"GET / HTTP/1.1\r\n Host: a\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: \r\nHost: a\r\n\r\n",
	"GET / HTTP/1.1\r\n\r\n",
	"GET / HTTP/1.0\r\nHost: a\r\n\r\n",
	"GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET / HTTP/1.1 \r\nHost: a\r\n\r\n",
	"GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n",
	"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
	"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n",
	"TRACE / HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET /a b HTTP/1.1\r\nHost: a\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\nhello",
	"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -5\r\n\r\nhello",
	"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5, 5\r\n\r\nhello",
	"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
	"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
	"POST / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 999999999999999999\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\tchunked\r\n\r\n0\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: a\r\nPragma: no-cache\r\nExpect: x\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, upgrade\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: a\r\n: b\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: a\r\nnocolon\r\n\r\n",
	"get / HTTP/1.1\r\nHost: a\r\n\r\n",
	"\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
	"\r\n\r\n", "\r\n\r\n\r\n", " \r\n\r\n",
	"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
}

func FuzzPlainHeadsAreWhatNetHTTPReads(f *testing.F) {
	for _, h := range oddHeads {
		f.Add([]byte(h))
	}
	j := newJudge(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		i := bytes.Index(data, headEnd)
		if i < 0 {
			return
		}
		raw := data[:i+len(headEnd)]
		h, ok := parseHead(raw)
		if !ok {
			return
		}
		want, answered := j.read(data)
		require.NotNil(t, want, "net/http answered %q to %q", answered, raw)
		requireSame(t, want, h.request(), raw)
	})
}

// The rows' tally keeps the fuzz target from comparing nothing.
func TestWhichHeadsArePlain(t *testing.T) {
	t.Parallel()
	plain := 0
	for _, raw := range oddHeads {
		if i := strings.Index(raw, "\r\n\r\n"); i >= 0 {
			if _, ok := parseHead([]byte(raw[:i+4])); ok {
				plain++
			}
		}
	}
	require.Equal(t, 7, plain)
}

func TestRememberedHeadsAreReadAsFreshOnes(t *testing.T) {
	t.Parallel()
	lengths := []string{"", "0", "1", "5", "05", "10", "15", "51", "007", "7", "123456789012345678", "12345678901234567", "1234567890123456789", "5 ", "\t5", "5x", "+5"}
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 8).Draw(t, "heads")
		var last lastHead
		target, name, others, at := "/", "Content-Length: ", []string{}, 0
		for i := range n {
			if i == 0 || rapid.IntRange(0, 3).Draw(t, "change") == 0 {
				target = rapid.SampledFrom([]string{"/", "/5", "/x?content-length:5", "/Content-Length:%205"}).Draw(t, "target")
				name = rapid.SampledFrom([]string{"Content-Length: ", "content-length:", "CONTENT-LENGTH: \t", "cOntent-length:  ", "none"}).Draw(t, "name")
				others = rapid.SliceOfN(rapid.SampledFrom([]string{
					"X-Content-Length: 5", "A: Content-Length: 5", "A: 5", "Content-Lengths: 5", "Z: " + strings.Repeat("5", 2100), "Content-Length: 5",
				}), 0, 3).Draw(t, "others")
				at = rapid.IntRange(0, len(others)).Draw(t, "at")
			}
			lines := append([]string{}, others[:at]...)
			if name != "none" {
				lines = append(lines, name+rapid.SampledFrom(lengths).Draw(t, "length"))
			}
			lines = append(append(lines, "Host: a"), others[at:]...)
			raw := []byte(fmt.Sprintf("POST %s HTTP/1.1\r\n%s\r\n\r\n", target, strings.Join(lines, "\r\n")))
			want, ok := parseHead(raw)
			got, gotOK := last.parse(raw)
			require.Equal(t, ok, gotOK, "%q", raw)
			if ok {
				require.Equal(t, want, got, "%q", raw)
				requireSame(t, want.request(), got.request(), raw)
			}
			require.LessOrEqual(t, len(last.before)+len(last.after), maxNoted, "what an idle connection keeps")
		}
	})
}

func TestRememberedHeadsShareNothingWithHandlers(t *testing.T) {
	t.Parallel()
	raw := []byte("GET /a?b HTTP/1.1\r\nHost: a\r\nA: 1\r\nA: 2\r\nContent-Length: 5\r\n\r\n")
	want, ok := parseHead(raw)
	require.True(t, ok)
	var last lastHead
	for range 3 {
		h, ok := last.parse(raw)
		require.True(t, ok)
		r := h.request()
		requireSame(t, want.request(), r, raw)
		r.Header["A"][0], r.URL.Path = "changed", "/changed"
		r.Header["A"] = append(r.Header["A"], "more")
		r.Header["Content-Length"][0] = "6"
		r.Header.Set("B", "new")
	}
}
