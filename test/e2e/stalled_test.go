package e2e

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/assert"
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

// subscribed opens a socket that reads a topic; buffer is the size of its receive buffer, 0
// for the usual. It reads from the earliest record on, unless from says where.
func subscribed(t testing.TB, a *api, topic string, buffer int, from ...string) *websocket.Conn {
	t.Helper()
	d := websocket.Dialer{HandshakeTimeout: 30 * time.Second, NetDial: func(network, addr string) (net.Conn, error) {
		conn, err := net.Dial(network, addr)
		if err == nil && buffer > 0 {
			err = conn.(*net.TCPConn).SetReadBuffer(buffer)
		}
		return conn, err
	}}
	url := "ws" + strings.TrimPrefix(a.n.URL(), "http") + "/v1/ws/consume?from=" + append(from, "earliest")[0] + "&topics=" + topic
	conn, resp, err := d.Dial(url, http.Header{"Authorization": {"Bearer " + a.token}})
	for began := time.Now(); err != nil && resp != nil && resp.StatusCode == http.StatusTooManyRequests && time.Since(began) < 20*time.Second; {
		time.Sleep(50 * time.Millisecond) // a connection that was answered a moment ago does not wait for a request yet
		conn, resp, err = d.Dial(url, http.Header{"Authorization": {"Bearer " + a.token}})
	}
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

// beside is how many records a second were written and read in a window of some seconds.
type beside struct{ written, read float64 }

// measureBeside has a producer write as fast as it can and a client read, for a while.
func measureBeside(t *testing.T, a *api, produce func() int, d time.Duration) beside {
	t.Helper()
	reading := subscribed(t, a, "busy", 0, "latest")
	defer reading.Close()
	var read atomic.Int64
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			_, frame, err := reading.ReadMessage()
			if err != nil {
				return
			}
			read.Add(int64(bytes.Count(frame, []byte(`"offset":`))))
		}
	}()
	for began := time.Now(); time.Since(began) < time.Second; { // until both are at their pace
		produce()
	}
	written, before, began := 0, read.Load(), time.Now()
	for time.Since(began) < d {
		written += produce()
	}
	s := time.Since(began).Seconds()
	b := beside{float64(written) / s, float64(read.Load()-before) / s}
	require.NoError(t, reading.Close())
	<-ended
	return b
}

// The rates of a producer and of a reader beside readers that have stopped, and without them,
// in turns: the medians may differ by a tenth. It measures, and so runs only when it is asked
// for, with nothing else on the machine.
func TestReadersThatHaveStoppedDoNotSlowOthers(t *testing.T) {
	v := os.Getenv(stalledVariable)
	if v == "" {
		t.Skip("it measures: set " + stalledVariable + " to the number of readers")
	}
	readers, err := strconv.Atoi(v)
	require.NoError(t, err)
	const rounds, window = 6, 4 * time.Second
	n := startNode(t)
	a := admin(t, n)
	a.createTopic(t, "busy", 3, map[string]any{"segment.bytes": 64 << 20, "retention.bytes": 256 << 20})
	body := []byte(`{"records":[` + strings.TrimSuffix(strings.Repeat(`{"value":"`+strings.Repeat("x", 1000)+`"},`, 1000), ",") + `]}`)
	produce := func() int {
		a.must(t, "POST", "/v1/topics/busy/records?acks=leader", body, nil)
		return 1000
	}
	for range 50 {
		produce()
	}
	var alone, among []beside
	measureAmong := func() {
		stopped := make([]*websocket.Conn, readers)
		for i := range stopped {
			stopped[i] = subscribed(t, a, "busy", 4096, "earliest")
		}
		for began := time.Now(); time.Since(began) < 3*time.Second; { // until they stand still
			produce()
		}
		among = append(among, measureBeside(t, a, produce, window))
		for _, c := range stopped {
			require.NoError(t, c.Close())
		}
		time.Sleep(time.Second) // until the node has forgotten them
	}
	for i := range rounds { // in turns who is first: what was written before slows the disk
		if i%2 == 1 {
			measureAmong()
		}
		for began := time.Now(); time.Since(began) < 3*time.Second; { // as beside them
			produce()
		}
		alone = append(alone, measureBeside(t, a, produce, window))
		if i%2 == 0 {
			measureAmong()
		}
	}
	middle := func(all []beside, of func(beside) float64) float64 {
		rates := make([]float64, len(all))
		for i, b := range all {
			rates[i] = of(b)
		}
		slices.Sort(rates)
		return rates[len(rates)/2]
	}
	for what, of := range map[string]func(beside) float64{
		"written": func(b beside) float64 { return b.written }, "read": func(b beside) float64 { return b.read },
	} {
		without, with := middle(alone, of), middle(among, of)
		t.Logf("%s: %.0f records/s without, %.0f/s beside %d readers that have stopped (medians of %d)", what, without, with, readers, rounds)
		assert.Greater(t, with, 0.9*without, what)
	}
	t.Logf("alone %.0f, beside them %.0f", alone, among)
}
