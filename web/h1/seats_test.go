package h1

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// notes are seats that note what their connections do.
type notes struct {
	mu   sync.Mutex
	full bool     // guarded by mu: nobody gets a seat
	said []string // guarded by mu
	cut  func()   // guarded by mu: of the newest
}

func (n *notes) say(what string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.said = append(n.said, what)
}

func (n *notes) Take(c net.Conn, vacate func()) Seat {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.full {
		_ = c.Close()
		return nil
	}
	n.said, n.cut = []string{"take"}, vacate
	return seat{n}
}

type seat struct{ n *notes }

func (s seat) Wait()  { s.n.say("wait") }
func (s seat) Work()  { s.n.say("work") }
func (s seat) Leave() { s.n.say("leave") }

// become requires that the connection has done this so far.
func (n *notes) become(t *testing.T, want ...string) {
	t.Helper()
	var said []string
	if !assert.Eventually(t, func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		said = append([]string{}, n.said...)
		return slices.Equal(want, said) // until a new connection is taken, the last one's are there
	}, patience, time.Millisecond) {
		require.Equal(t, want, said)
	}
}

func startSeated(t *testing.T, h http.HandlerFunc) (*notes, string) {
	n := &notes{}
	s := New(newHTTP(h), slog.New(slog.DiscardHandler))
	s.Limit(n)
	return n, run(t, listen(t), s)
}

func TestASeatKnowsWhenItsConnectionWaits(t *testing.T) {
	t.Parallel()
	n, addr := startSeated(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/take" {
			c, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				_, _ = io.WriteString(c, "mine\n")
				_ = c.Close()
			}
			return
		}
		_, _ = io.WriteString(w, "ok")
	})
	const whole = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
	ask := func(c *client, raw string) {
		c.send(raw)
		res, err := http.ReadResponse(c.in, nil)
		require.NoError(t, err)
		_, err = io.Copy(io.Discard, res.Body)
		require.NoError(t, err)
	}

	plain := dial(t, addr)
	n.become(t, "take")
	ask(plain, whole)
	ask(plain, whole)
	n.become(t, "take", "work", "wait", "work", "wait")
	require.NoError(t, plain.Close())
	n.become(t, "take", "work", "wait", "work", "wait", "leave")

	slow := dial(t, addr) // net/http has it after the first piece
	slow.send("GET / HTTP/1.1\r\nHost:")
	n.become(t, "take")
	ask(slow, " a\r\n\r\n")
	n.become(t, "take", "work", "wait")
	n.mu.Lock()
	cut := n.cut
	n.mu.Unlock()
	cut()
	_, err := slow.in.ReadByte()
	require.Error(t, err, "its place went to another")
	n.become(t, "take", "work", "wait", "leave")

	stream := dial(t, addr)
	stream.send("GET /take HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
	line, err := stream.in.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "mine\n", line)
	n.become(t, "take", "work", "work", "leave")

	n.mu.Lock()
	n.full = true
	n.mu.Unlock()
	_, err = dial(t, addr).in.ReadByte()
	require.Error(t, err)
}
