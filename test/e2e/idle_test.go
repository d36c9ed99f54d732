//go:build linux

package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Many WebSockets that have nothing to do cost little memory each, also after pings; see
// docs/performance.md for the figure with 5,000 of them.
func TestAnIdleWebSocketTakesLessThan16KiB(t *testing.T) {
	const sockets, most = 4000, 16 << 10
	n := startNode(t)
	a := admin(t, n)
	a.createTopic(t, "quiet", 6, nil)
	time.Sleep(5 * time.Second) // until the node has given back what starting has left
	before := n.rss(t)
	for range sockets {
		subscribed(t, a, "quiet", 0)
	}
	opened := n.rss(t)
	require.Eventually(t, func() bool { return n.rss(t)-before < sockets*most }, 20*time.Second, 500*time.Millisecond,
		"%d bytes each right after opening", (opened-before)/sockets)
	t.Logf("%d bytes each", (n.rss(t)-before)/sockets)
}
