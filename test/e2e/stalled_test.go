package e2e

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"
)

// The size of the test: a slice of it runs always, and TEST_STALLED_READERS says how many
// clients stop reading; see docs/performance.md for the figure with 1,000.
const (
	stalledReaders  = 60
	stalledVariable = "TEST_STALLED_READERS"
	// stalledBytes is what a socket may cost whose client has stopped reading: one frame of
	// records as it is built and as it is written, its goroutines and buffers.
	stalledBytes = 700 << 10
	// stalledSlack is for the heap of a node that serves a producer at full speed.
	stalledSlack = 192 << 20
)

// A client that subscribes and stops reading costs one frame of memory and nothing else:
// what is produced meanwhile is not queued for it, and who reads gets all of it.
func TestWebSocketReadersThatStopReadingCostOneFrameEach(t *testing.T) {
	readers := stalledReaders
	if v := os.Getenv(stalledVariable); v != "" {
		var err error
		readers, err = strconv.Atoi(v)
		require.NoError(t, err)
	}
	n := startNode(t)
	a := admin(t, n)
	a.createTopic(t, "busy", 3, nil)
	body := []byte(`{"records":[` + strings.TrimSuffix(strings.Repeat(`{"value":"`+strings.Repeat("x", 1000)+`"},`, 1000), ",") + `]}`)
	produce := func() int {
		a.must(t, "POST", "/v1/topics/busy/records?acks=leader", body, nil)
		return 1000
	}
	for range 20 { // so that the heap is that of a node at work
		produce()
	}
	before := n.rss(t)
	for range readers {
		stalled(t, a, "busy")
	}
	began := time.Now()
	const rounds = 150 // of 1 MB: many times over what a socket's buffers take
	reading := subscribed(t, a, "busy", 0)
	type outcome struct {
		records int
		err     error
	}
	read := make(chan outcome, 1)
	go func() {
		var o outcome
		for o.err = reading.SetReadDeadline(time.Now().Add(3 * time.Minute)); o.err == nil && o.records < (rounds+20)*1000; {
			var frame []byte
			_, frame, o.err = reading.ReadMessage()
			o.records += bytes.Count(frame, []byte(`"offset":`))
		}
		read <- o
	}()
	records := 0
	for range rounds {
		records += produce()
	}
	o := <-read
	require.NoError(t, o.err, "after %d records", o.records)
	require.Equal(t, records+20_000, o.records, "from the earliest, each once")
	grown := n.rss(t) - before
	require.Less(t, grown, int64(readers)*stalledBytes+stalledSlack, "resident bytes beside %d readers that have stopped", readers)
	t.Logf("%d readers that have stopped: %d MiB more resident, %d records written and read in %s", readers, grown>>20, records, time.Since(began))
}

// subscribed opens a socket that reads a topic from the earliest record on; buffer is the
// size of its receive buffer, 0 for the usual.
func subscribed(t testing.TB, a *api, topic string, buffer int) *websocket.Conn {
	t.Helper()
	d := websocket.Dialer{HandshakeTimeout: 30 * time.Second, NetDial: func(network, addr string) (net.Conn, error) {
		conn, err := net.Dial(network, addr)
		if err == nil && buffer > 0 {
			err = conn.(*net.TCPConn).SetReadBuffer(buffer)
		}
		return conn, err
	}}
	conn, resp, err := d.Dial("ws"+strings.TrimPrefix(a.n.URL(), "http")+"/v1/ws/consume?from=earliest&topics="+topic, http.Header{"Authorization": {"Bearer " + a.token}})
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// stalled opens a socket and reads nothing of it.
func stalled(t testing.TB, a *api, topic string) { subscribed(t, a, topic, 4096) }

// rss is the node's resident memory.
func (n *node) rss(t testing.TB) int64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.proc.cmd.Process.Pid))
	require.NoError(t, err)
	for line := range strings.Lines(string(status)) {
		if kib, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			v, err := strconv.ParseInt(strings.Fields(kib)[0], 10, 64)
			require.NoError(t, err)
			return v << 10
		}
	}
	t.Fatal("no VmRSS in /proc")
	return 0
}
