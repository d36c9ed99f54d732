package h1

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// echo answers with the body, in ways that differ by request.
func echo(w http.ResponseWriter, r *http.Request) {
	b, err := io.ReadAll(r.Body)
	if err != nil {
		panic(err)
	}
	w.Header().Set("Sum", r.Header.Get("Sum"))
	switch r.URL.Query().Get("how") {
	case "length":
		w.Header().Set("Content-Length", fmt.Sprint(len(b)))
	case "flush":
		_, _ = w.Write(b[:len(b)/2])
		w.(http.Flusher).Flush()
		b = b[len(b)/2:]
	case "wait":
		ctx := r.Context()
		select {
		case <-ctx.Done():
			return
		case <-time.After(watchAfter):
		}
	}
	_, _ = w.Write(b)
}

// Buffers are shared by way of a pool: bytes of another request would be seen.
func TestManyClientsGetTheirOwnBytesBack(t *testing.T) {
	t.Parallel()
	_, addr := start(t, http.HandlerFunc(echo))
	ways := []string{"", "", "", "length", "flush", "wait"}
	var clients sync.WaitGroup
	for i := range 64 {
		clients.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(i), 1))
			tr := &http.Transport{}
			defer tr.CloseIdleConnections()
			for j := range 200 {
				how := ways[rnd.IntN(len(ways))]
				if how == "wait" && j%20 != 0 {
					how = ""
				}
				body := bytes.Repeat([]byte{byte(rnd.Uint32()), byte(i), byte(j)}, 1+rnd.IntN([]int{10, 1000, 30_000}[rnd.IntN(3)]))
				var in io.Reader = bytes.NewReader(body)
				if rnd.IntN(50) == 0 {
					in = io.NopCloser(in) // sent in chunks, which hands the connection over
				}
				if err := ask1(t, tr, addr, how, in, body); err != nil {
					t.Errorf("client %d, request %d: %v", i, j, err)
					return
				}
			}
		})
	}
	clients.Wait()
}

func ask1(t *testing.T, tr *http.Transport, addr, how string, in io.Reader, body []byte) error {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+addr+"/?how="+how, in)
	if err != nil {
		return err
	}
	sum := fmt.Sprint(len(body), body[0])
	req.Header.Set("Sum", sum)
	resp, err := tr.RoundTrip(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // read to its end
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if !bytes.Equal(body, got) || resp.Header.Get("Sum") != sum {
		return fmt.Errorf("%d bytes came back of %d, sum %q of %q", len(got), len(body), resp.Header.Get("Sum"), sum)
	}
	return nil
}

// A buffer must not be given back twice: two connections would write into it. This watches
// what the pool gives out while all ways of leaving an exchange are taken.
func TestNoBufferIsGivenBackTwice(t *testing.T) {
	for range 3 {
		s, addr := start(t, withProbe(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			answers[r.Header.Get("Do")](w, r)
		})))
		for name := range answers {
			c := dial(t, addr)
			c.send("POST / HTTP/1.1\r\nHost: a\r\nDo: " + name + "\r\nContent-Length: 30000\r\n\r\n" + repeat(30_000))
			_, _ = c.read("POST") // some are cut
			require.NoError(t, c.Close())
		}
		eventually(t, "their end", func() bool { return s.tracked() == 0 })
	}
	seen := map[*buffer]bool{}
	for range 2000 {
		b := buffers.Get().(*buffer)
		require.False(t, seen[b])
		seen[b] = true
	}
	runtime.KeepAlive(seen)
}

// An idle connection holds no buffer.
func TestIdleConnectionsHoldNoBuffer(t *testing.T) {
	t.Parallel()
	s, addr := start(t, answers["echo"])
	c := dial(t, addr)
	c.send("POST / HTTP/1.1\r\nHost: a\r\nX: " + repeat(8000) + "\r\nContent-Length: 3\r\n\r\nabc")
	c.answer("POST")
	var served *conn
	s.each(func(c *conn) { served = c })
	eventually(t, "idle", func() bool { return served.state.Load() == idle })
	shutdown(t, s) // what served holds is settled then
	require.Nil(t, served.buf)
	require.Empty(t, served.last.before)
	require.Empty(t, served.last.head.fields)
}
