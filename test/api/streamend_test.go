package api

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewire/internal/testkit/nodekit"
)

// clocked starts a node whose wall clock a test puts forward.
func clocked(t testing.TB) (a *api, forward func(time.Duration)) {
	t.Helper()
	var ahead atomic.Int64
	n := nodekit.StartWith(t, nodekit.Options{Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }})
	return newAPI(t, n, ""), func(d time.Duration) { ahead.Add(int64(d)) }
}

func TestALongPollEndsWithItsTokenOrUser(t *testing.T) {
	t.Parallel()
	a, forward := clocked(t)
	a.topic("poll.token", 1, nil)
	const target = "/v1/topics/poll.token/partitions/0/records?offset=0&wait_ms=60000"
	user := a.user("poll.gone")
	a.rule("poll.gone", rule{"allow", "literal", "read", "topic", "poll.token"})
	waiting := a.poll(a.login("poll.gone"), target)
	wants(t, a.remove(user), 204, "")
	wants(t, <-waiting, 401, "unauthenticated")
	waiting = a.poll(a.admin, target)
	forward(16 * time.Minute)
	wants(t, <-waiting, 401, "token-expired")
}

// slowly begins to read a long page and stops.
func (a *api) slowly(token, accept, path string) *http.Response {
	a.t.Helper()
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err == nil {
			err = c.(*net.TCPConn).SetReadBuffer(16 << 10)
		}
		return c, err
	}
	req, err := http.NewRequestWithContext(a.t.Context(), "GET", a.URL+path, nil)
	require.NoError(a.t, err)
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Accept", accept)
	res, err := (&http.Transport{DisableKeepAlives: true, DialContext: dial}).RoundTrip(req)
	require.NoError(a.t, err)
	a.t.Cleanup(func() { _ = res.Body.Close() }) // the server may have cut it
	require.Equal(a.t, 200, res.StatusCode)
	return res
}

// long has a page that no socket's buffers hold.
func (a *api) long(name string) (page string) {
	a.t.Helper()
	path := a.topic(name, 1, nil)
	batch := make([]object, 1000)
	for i := range batch {
		batch[i] = object{"value": strings.Repeat("v", 3000)}
	}
	for range 10 {
		a.records(path, batch...)
	}
	return path + "/partitions/0/records?offset=0&max_records=10000&max_bytes=67108864"
}

func TestAnAnswerUnderWayEndsWhenItsReasonIsGone(t *testing.T) {
	t.Parallel()
	a, forward := clocked(t)
	page := a.long("slow.topic")
	a.user("slow.user")
	may := rule{"allow", "literal", "read", "topic", "slow.topic"}
	for name, accept := range map[string]string{"lines": lines, "JSON": "application/json", "batches": batches} {
		a.rule("slow.user", may)
		res := a.slowly(a.login("slow.user"), accept, page)
		wants(t, a.remove("/v1/acls?principal=User:slow.user"), 200, "")
		forward(time.Second) // then rights are looked at again
		if accept != lines {
			n, err := io.Copy(io.Discard, res.Body)
			require.ErrorIs(t, err, io.ErrUnexpectedEOF, "%s: %d bytes came, as if that were all", name, n)
			continue
		}
		last := ""
		sc := bufio.NewScanner(res.Body)
		sc.Buffer(nil, 1<<20)
		for sc.Scan() {
			last = sc.Text()
		}
		require.NoError(t, sc.Err())
		require.True(t, strings.HasPrefix(last, `{"problem":{`), "%.200s", last)
		require.Contains(t, last, `"code":"forbidden"`)
	}
}

func TestAnAnswerUnderWayIsClosedInOrderWhenTheNodeStops(t *testing.T) {
	t.Parallel()
	a := ownAPI(t)
	page := a.long("slow.stop")
	res := a.slowly(a.admin, lines, page)
	stopped := make(chan struct{})
	go func() { a.Stop(); close(stopped) }()
	require.Eventually(t, func() bool { // no new connection is taken: the node drains
		c, err := net.Dial("tcp", strings.TrimPrefix(a.URL, "http://"))
		if err == nil {
			_ = c.Close() // it was only to look
		}
		return err != nil
	}, 30*time.Second, time.Millisecond)
	last := ""
	sc := bufio.NewScanner(res.Body)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		last = sc.Text()
	}
	require.NoError(t, sc.Err())
	require.True(t, strings.HasPrefix(last, `{"end":{"reason":"node-stopping","next_offset":`), "%.200s", last)
	<-stopped
}
