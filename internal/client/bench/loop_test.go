package bench

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tidewire/internal/client"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// renewing gives a new token once the first is refused.
type renewing struct{ renewals atomic.Int64 }

func (*renewing) Token(context.Context) (string, error) { return "old", nil }

func (r *renewing) Renew(_ context.Context, refused string) (string, error) {
	r.renewals.Add(1)
	if refused != "old" {
		return "", nil
	}
	return "new", nil
}

// ways are the two forms of a produce measurement.
func ways(t *testing.T, base string, tokens client.TokenSource, j job) map[string]func(context.Context) *tally {
	t.Helper()
	u, err := client.ParseServer(base)
	require.NoError(t, err)
	c := client.New(u, tokens)
	t.Cleanup(c.Close)
	return map[string]func(context.Context) *tally{
		"loop": func(ctx context.Context) *tally {
			got, _, ok, err := produceLoop(ctx, &target{base: u, tokens: tokens}, j)
			if !ok {
				t.Skip("no event loop here")
			}
			require.NoError(t, err)
			return got
		},
		"goroutines": func(ctx context.Context) *tally {
			got, _, err := produceAlone(ctx, c, j)
			require.NoError(t, err)
			return got
		},
	}
}

// trickle sends an answer in small pieces.
func trickle(w http.ResponseWriter, text string) {
	rc := http.NewResponseController(w)
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	for _, b := range []byte(text) {
		_, _ = w.Write([]byte{b})
		_ = rc.Flush()
	}
}

func TestBothWaysOfSendingCountAlike(t *testing.T) {
	t.Parallel()
	const requests = 40
	good := `{"results":[` + strings.Repeat(`{"offset":1},`, 50) + `{}]}`
	cases := map[string]struct {
		answer  func(w http.ResponseWriter, r *http.Request, n int64)
		records int64
		errors  int64
		size    int
	}{
		"whole": {answer: func(w http.ResponseWriter, _ *http.Request, _ int64) { _, _ = io.WriteString(w, good) }, records: requests},
		"long": {answer: func(w http.ResponseWriter, _ *http.Request, n int64) {
			_, _ = io.WriteString(w, strings.Repeat(good, 10*(1+int(n%2)*20)))
		}, records: requests},
		"trickle": {answer: func(w http.ResponseWriter, _ *http.Request, _ int64) { trickle(w, good) }, records: requests},
		"chunked": {answer: func(w http.ResponseWriter, _ *http.Request, _ int64) {
			for range 3 {
				_, _ = io.WriteString(w, good)
				_ = http.NewResponseController(w).Flush()
			}
		}, records: requests},
		"no body": {answer: func(w http.ResponseWriter, _ *http.Request, _ int64) { w.WriteHeader(http.StatusNoContent) }, records: requests},
		"close": {answer: func(w http.ResponseWriter, _ *http.Request, _ int64) {
			w.Header().Set("Connection", "close")
			_, _ = io.WriteString(w, good)
		}, records: requests},
		"until the end": {answer: func(w http.ResponseWriter, _ *http.Request, _ int64) {
			nc, rw, err := http.NewResponseController(w).Hijack()
			if err == nil {
				_, _ = rw.WriteString("HTTP/1.1 200 OK\r\n\r\n" + good)
				_ = rw.Flush()
				_ = nc.Close()
			}
		}, records: requests},
		"long requests": {answer: func(w http.ResponseWriter, r *http.Request, _ int64) {
			n, _ := io.Copy(io.Discard, r.Body)
			if n < 3<<20 {
				w.WriteHeader(http.StatusBadRequest)
			}
		}, records: requests, size: 3 << 20},
		"refused before it was read": {answer: func(w http.ResponseWriter, _ *http.Request, _ int64) {
			w.Header().Set("Connection", "close")
			w.WriteHeader(http.StatusTeapot)
		}, errors: requests, size: 64 << 10},
		"some fail": {answer: func(w http.ResponseWriter, _ *http.Request, n int64) {
			switch n % 4 {
			case 1:
				w.WriteHeader(http.StatusMultiStatus)
			case 2:
				w.WriteHeader(http.StatusServiceUnavailable)
			case 3:
				panic(http.ErrAbortHandler)
			}
		}, records: requests / 4, errors: requests * 3 / 4},
		"no HTTP": {answer: func(w http.ResponseWriter, _ *http.Request, _ int64) {
			nc, rw, err := http.NewResponseController(w).Hijack()
			if err == nil {
				_, _ = rw.WriteString("220 smtp.example ready\r\n")
				_ = rw.Flush()
				_ = nc.Close()
			}
		}, errors: requests},
		"token runs out": {answer: func(w http.ResponseWriter, r *http.Request, _ int64) {
			if r.Header.Get("Authorization") != "Bearer new" {
				w.WriteHeader(http.StatusUnauthorized)
			}
		}, records: requests},
		"token is refused": {answer: func(w http.ResponseWriter, _ *http.Request, _ int64) {
			w.WriteHeader(http.StatusUnauthorized)
		}, errors: requests},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var n atomic.Int64
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				c.answer(w, r, n.Add(1)-1)
			}))
			defer srv.Close()
			o := Options{Topic: "t", Batch: 1, Size: max(1, c.size), Connections: 3, Acks: "all"}
			for way, send := range ways(t, srv.URL, &renewing{}, job{path: "/p", bodies: bodies(o), requests: requests, o: o}) {
				got := send(context.Background())
				assert.Equal(t, int64(requests), got.requests, way)
				assert.Equal(t, c.records, got.records, way)
				assert.Equal(t, c.errors, got.errors, way)
			}
		})
	}
}

func TestEveryConnectionSendsItsShareInOrder(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	seen := map[string][]string{}
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		seen[r.RemoteAddr] = append(seen[r.RemoteAddr], string(b))
	}))
	defer srv.Close()
	var sends [][]byte
	for i := range 10 {
		sends = append(sends, fmt.Appendf(nil, "body %d", i))
	}
	for way, send := range ways(t, srv.URL, client.StaticToken("t"), job{path: "/", bodies: sends, requests: 17, o: Options{Batch: 1, Connections: 5}}) {
		require.Equal(t, int64(17), send(context.Background()).records)
		mu.Lock()
		all := seen
		seen = map[string][]string{}
		mu.Unlock()
		require.Len(t, all, 5, way)
		firsts := map[string]bool{}
		for _, got := range all {
			firsts[got[0]] = true
			require.GreaterOrEqual(t, len(got), 3, way)
			var first int
			_, err := fmt.Sscanf(got[0], "body %d", &first)
			require.NoError(t, err)
			for i, b := range got {
				require.Equal(t, fmt.Sprintf("body %d", (first+i)%10), b, way)
			}
		}
		require.Len(t, firsts, 5, way)
	}
}

func TestAnUnreachableServerFailsEveryRequestOnce(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.NotFoundHandler())
	srv.Close()
	for way, send := range ways(t, srv.URL, client.StaticToken("t"), job{path: "/", bodies: [][]byte{nil}, requests: 500, o: Options{Batch: 1, Connections: 2}}) {
		got := send(context.Background())
		assert.Equal(t, int64(2*maxErrors), got.errors, way)
		assert.Zero(t, got.records, way)
	}
}

func TestARequestThatNobodyAnswersFailsInTime(t *testing.T) {
	t.Parallel()
	block := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-block }))
	defer srv.Close()
	defer close(block)
	u, err := client.ParseServer(srv.URL)
	require.NoError(t, err)
	got, _, ok, err := produceLoop(context.Background(), &target{base: u, tokens: client.StaticToken("t"), timeout: 30 * time.Millisecond},
		job{path: "/", bodies: [][]byte{nil}, requests: 2, o: Options{Batch: 1, Connections: 2}})
	if !ok {
		t.Skip("no event loop here")
	}
	require.NoError(t, err)
	assert.Equal(t, int64(2), got.errors)
	assert.Contains(t, got.problems, errTimeout.Error())
}
