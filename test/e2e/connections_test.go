//go:build linux

package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// flood is what somebody opens who wants a node to have no room for others.
type flood struct {
	node  string
	mu    sync.Mutex
	conns []net.Conn // guarded by mu
}

// open opens a connection from one of many loopback addresses, and leaves it as one of:
// silent, in the middle of a head, and half closed with a head that does not end.
func (f *flood) open(i int) error {
	d := net.Dialer{Timeout: 20 * time.Second, LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(1+i%16))}}
	c, err := d.Dial("tcp", f.node)
	if err != nil {
		return err
	}
	f.mu.Lock()
	f.conns = append(f.conns, c)
	f.mu.Unlock()
	// Writing fails where the connection has been ended for another already.
	if i%2 == 1 {
		_, _ = io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: node\r\nX-Slow: ")
	}
	if i%10 == 9 {
		_ = c.(*net.TCPConn).CloseWrite()
	}
	return nil
}

// drip sends a byte more on every connection.
func (f *flood) drip() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.conns {
		_, _ = c.Write([]byte("x"))
	}
}

func (f *flood) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.conns {
		_ = c.Close()
	}
	f.conns = nil
}

// floodSize is how many connections this process may open, at most 15,000.
func floodSize(t *testing.T) int {
	t.Helper()
	var r unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &r))
	require.Greater(t, r.Cur, uint64(3000), "descriptors of this process (ulimit -n)")
	return int(min(15_000, r.Cur-1000))
}

// other is a client that goes on with its work, on connections that stay and on new ones.
func other(t *testing.T, a *api, until <-chan struct{}) (requests int, slowest time.Duration) {
	fresh := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 20 * time.Second}
	for {
		select {
		case <-until:
			return requests, slowest
		default:
		}
		began := time.Now()
		status, body, err := a.try("POST", "/v1/topics/busy/records", []byte(`{"records":[{"value":"x"}]}`))
		if !assert.NoError(t, err) || !assert.Equal(t, 200, status, "%s", body) {
			return requests, slowest
		}
		resp, err := fresh.Get(a.n.URL() + "/healthz")
		if !assert.NoError(t, err) || !assert.NoError(t, resp.Body.Close()) || !assert.Equal(t, 200, resp.StatusCode) {
			return requests, slowest
		}
		requests += 2
		slowest = max(slowest, time.Since(began))
	}
}

// A client with 15,000 connections that say nothing, send their head in drops or are half
// closed takes the places of its own connections when there is no more room: another client's
// requests all succeed, also on new connections, memory is bounded, and all is as before when
// the flood has gone. See docs/performance.md for the figure.
func TestAFloodOfConnectionsTakesNothingFromOthers(t *testing.T) {
	many := floodSize(t)
	most := many * 2 / 3
	n := startNode(t, "--http-max-connections", strconv.Itoa(most))
	a := admin(t, n)
	a.createTopic(t, "busy", 1, nil)
	a.works(t, "busy")
	before := n.rss(t)
	stop := make(chan struct{})
	var clients sync.WaitGroup
	clients.Go(func() {
		requests, slowest := other(t, a, stop)
		assert.Greater(t, requests, 10)
		t.Logf("the other client: %d requests, the slowest pair took %s", requests, slowest)
	})
	f := &flood{node: strings.TrimPrefix(n.URL(), "http://")}
	defer f.end()
	began := time.Now()
	atOnce(32, func(part int) {
		for i := part; i < many; i += 32 {
			if !assert.NoError(t, f.open(i), "connection %d", i) {
				return
			}
		}
	})
	took := time.Since(began)
	f.drip()
	b := login(t, n, "admin", "tidewire") // others can still come
	open, displaced := n.metric(t, b, "tidewire_http_connections"), n.metric(t, b, "tidewire_http_connections_displaced_total")
	grown := n.rss(t) - before
	t.Logf("%d connections in %s: %.0f open, %.0f displaced, %d MiB more resident", many, took, open, displaced, grown>>20)
	require.LessOrEqual(t, open, float64(most))
	require.Positive(t, displaced)
	require.Less(t, grown, int64(many)*(24<<10)+(64<<20))
	f.drip()
	close(stop)
	clients.Wait()
	f.end()
	require.Eventually(t, func() bool { return n.metric(t, b, "tidewire_http_connections") < 100 }, 20*time.Second, 100*time.Millisecond)
	a.works(t, "busy")
}

// One address never has more than three quarters of the connections: beyond them it is told
// so, with 429 rate-limited, where none of its own waits; another address finds room.
func TestAnAddressBeyondItsShareOfConnectionsIsAnswered429(t *testing.T) {
	n := startNode(t, "--http-max-connections", "8")
	a := admin(t, n)
	a.createTopic(t, "quiet", 1, nil)
	for range 6 { // WebSockets do not wait for a request; they displace a's own connection
		subscribed(t, a, "quiet", 0)
	}
	host := strings.TrimPrefix(n.URL(), "http://")
	c, err := net.Dial("tcp", host)
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.SetDeadline(time.Now().Add(20*time.Second)))
	_, err = fmt.Fprintf(c, "GET /healthz HTTP/1.1\r\nHost: %s\r\n\r\n", host)
	require.NoError(t, err)
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(t, err)
	defer resp.Body.Close()
	var p problem
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&p))
	require.Equal(t, 429, resp.StatusCode)
	require.Equal(t, "rate-limited", p.Code)
	require.Equal(t, "not-applied", p.Outcome)
	require.Equal(t, "application/problem+json", resp.Header.Get("Content-Type"))
	require.NotEmpty(t, resp.Header.Get("Retry-After"))

	d := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, 9)}}
	elsewhere := &http.Client{Transport: &http.Transport{DialContext: d.DialContext, DisableKeepAlives: true}, Timeout: 20 * time.Second}
	got, err := elsewhere.Get(n.URL() + "/healthz")
	require.NoError(t, err)
	require.NoError(t, got.Body.Close())
	require.Equal(t, 200, got.StatusCode)
}
