//go:build linux

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewire/test/faults"
)

// startWorld starts nodes in namespaces and makes a topic with three replicas.
func startWorld(t *testing.T, s faults.Setup, topic string, partitions int) (*faults.World, *faults.Client) {
	t.Helper()
	needsNamespaces(t)
	s.Binary, s.Dir = binary, faultFolder(t)
	w, err := faults.NewWorld(s)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.Close()) })
	require.NoError(t, w.Start(t.Context()))
	c := w.Client()
	t.Cleanup(c.Close)
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	require.NoError(t, c.Await(ctx, http.MethodPost, "/v1/topics", map[string]any{
		"name": topic, "partitions": partitions, "replication_factor": 3, "config": map[string]any{"min.insync.replicas": "2"},
	}, nil))
	require.NoError(t, c.AwaitISR(ctx, topic, 3))
	return w, c
}

// patient is a client that does what it is told: it waits as Retry-After says, and goes to
// another node then, also where nobody listens. What else fails is a failed request.
type patient struct {
	w *faults.World
	c *faults.Client

	done, again atomic.Int64
	mu          sync.Mutex
	failed      []string // guarded by mu
}

func (p *patient) call(ctx context.Context, node int, method, path string, body any) faults.Answer {
	for try := 0; ; try++ {
		a := p.c.At(1+(node+try)%len(p.w.Nodes())).Call(ctx, method, path, body)
		switch {
		case a.OK():
			p.done.Add(1)
			return a
		case try < 100 && (a.Outcome() == "not-applied" && a.Err != nil || a.Status == http.StatusServiceUnavailable && a.RetryAfter > 0):
			p.again.Add(1)
			if a.Err == nil {
				time.Sleep(a.RetryAfter)
			}
			continue
		case ctx.Err() == nil:
			p.mu.Lock()
			p.failed = append(p.failed, fmt.Sprintf("%s %s %s at node %d: %s", time.Now().Format("15:04:05.000"), method, path, 1+(node+try)%len(p.w.Nodes()), &a))
			p.mu.Unlock()
		}
		return a
	}
}

// All nodes are restarted, one after the other, while clients write and read: none of their
// requests fails, for leaders are moved away before a node stops.
func TestARollingRestartFailsNoRequest(t *testing.T) {
	const partitions = 6
	w, c := startWorld(t, faults.Setup{Nodes: 3}, "rolled", partitions)
	p := &patient{w: w, c: c}
	ctx, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	defer func() { stop(); clients.Wait() }()
	halt := make(chan struct{})
	for i := range 12 {
		clients.Go(func() {
			tick := time.NewTicker(40 * time.Millisecond)
			defer tick.Stop()
			for k := 0; ; k++ {
				select {
				case <-tick.C:
				case <-halt:
					return
				}
				body := map[string]any{"records": []any{map[string]any{"partition": i % partitions, "value": fmt.Sprint(i, "-", k)}}}
				p.call(ctx, i+k, http.MethodPost, "/v1/topics/rolled/records", body)
			}
		})
	}
	for i := range 3 {
		clients.Go(func() {
			for next, k := int64(0), 0; ; k++ {
				select {
				case <-halt:
					return
				default:
				}
				var got page
				path := fmt.Sprintf("/v1/topics/rolled/partitions/%d/records?offset=%d&wait_ms=300", i, next)
				if a := p.call(ctx, i+k, http.MethodGet, path, nil); a.Into(&got) == nil {
					next = got.NextOffset
				}
			}
		})
	}
	for _, n := range w.Nodes() {
		before := p.done.Load()
		eventually(t, startLimit, "requests are answered", func() bool { return p.done.Load() > before+300 })
		require.NoError(t, n.Stop())
		require.NoError(t, n.Start(t.Context()))
		waiting, cancel := context.WithTimeout(t.Context(), startLimit)
		require.NoError(t, c.AwaitISR(waiting, "rolled", 3))
		cancel()
	}
	close(halt)
	clients.Wait()
	t.Logf("%d requests were answered, %d were sent again", p.done.Load(), p.again.Load())
	for _, f := range p.failed {
		t.Error(f)
	}
}
