package bench_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"tidewire/internal/client"
	"tidewire/internal/client/bench"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// hub is a server with one topic, which gives what is produced to every socket.
type hub struct {
	t *testing.T

	mu         sync.Mutex
	sockets    []*websocket.Conn // guarded by mu
	subscribed []string          // guarded by mu
	produced   int               // guarded by mu: records
	cutAfter   int               // guarded by mu: the first socket is closed after so many records; 0: it is not
	refuse     bool              // guarded by mu: produce requests
	pongs      int               // guarded by mu
}

func newHub(t *testing.T) (*hub, *client.Client) {
	h := &hub{t: t}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/ws/consume", h.socket)
	mux.HandleFunc("POST /v1/topics/t/records", h.produce)
	mux.HandleFunc("GET /metrics", h.metrics)
	s := httptest.NewServer(mux)
	t.Cleanup(func() {
		h.mu.Lock()
		for _, c := range h.sockets {
			_ = c.Close()
		}
		h.mu.Unlock()
		s.Close()
	})
	base, err := client.ParseServer(s.URL)
	require.NoError(t, err)
	c := client.New(base, client.StaticToken("token"))
	t.Cleanup(c.Close)
	return h, c
}

func (h *hub) socket(w http.ResponseWriter, r *http.Request) {
	u := websocket.Upgrader{Subprotocols: []string{client.Subprotocol}}
	c, err := u.Upgrade(w, r, nil)
	if err != nil {
		return
	}
	defer c.Close()
	c.SetPongHandler(func(string) error {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.pongs++
		return nil
	})
	_, frame, err := c.ReadMessage()
	if err != nil {
		return
	}
	h.mu.Lock()
	h.subscribed = append(h.subscribed, string(frame))
	h.sockets = append(h.sockets, c)
	for _, text := range []string{`{"op":"subscribed","topics":["t"]}`, `{"op":"assigned","partitions":[{"topic":"t","partition":0,"next_offset":0}]}`} {
		_ = c.WriteMessage(websocket.TextMessage, []byte(text))
	}
	_ = c.WriteMessage(websocket.PingMessage, []byte("p"))
	h.mu.Unlock()
	for err == nil {
		_, _, err = c.ReadMessage()
	}
}

func (h *hub) produce(w http.ResponseWriter, r *http.Request) {
	var in struct{ Records []struct{ Value string } }
	_ = json.NewDecoder(r.Body).Decode(&in)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.refuse {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	records := make([]string, len(in.Records))
	for i, rec := range in.Records {
		records[i] = fmt.Sprintf(`{"topic":"t","partition":0,"offset":%d,"timestamp":1700000000000,"value":%q}`, h.produced+i, rec.Value)
	}
	h.produced += len(records)
	frame := []byte(`{"op":"records","records":[` + strings.Join(records, ",") + `]}`)
	for i, c := range h.sockets {
		if h.cutAfter > 0 && i == 0 && h.produced > h.cutAfter {
			_ = c.WriteMessage(websocket.CloseMessage, websocket.FormatCloseMessage(4408, "slow"))
			continue
		}
		_ = c.WriteMessage(websocket.TextMessage, frame)
	}
	_, _ = w.Write([]byte(`{"results":[]}`))
}

func (h *hub) metrics(w http.ResponseWriter, _ *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := len(h.sockets)
	_, _ = fmt.Fprintf(w, "# HELP x y\nprocess_resident_memory_bytes %d\ngo_memstats_heap_inuse_bytes %g\ngo_memstats_stack_inuse_bytes %d\n",
		1_000_000+n*9000, 1e6+float64(n)*5000, n*2000)
}

func fanoutOptions() bench.Options {
	return bench.Options{Topic: "t", Records: 950, Size: 20, Batch: 100, Connections: 7, Acks: "leader", Window: 300, MaxRecords: 50}
}

func TestFanoutCountsWhatEveryReaderGot(t *testing.T) {
	t.Parallel()
	h, c := newHub(t)
	r, err := bench.Fanout(context.Background(), c, fanoutOptions())
	require.NoError(t, err)
	assert.EqualValues(t, 7*1000, r.Records, "whole requests are sent")
	assert.EqualValues(t, 10, r.Requests)
	assert.Zero(t, r.Errors)
	assert.EqualValues(t, 7*10, r.Spread.Frames)
	assert.Equal(t, 7, r.Spread.Readers)
	assert.Positive(t, r.Spread.Slowest)
	assert.LessOrEqual(t, r.Spread.Slowest, r.Spread.Fastest)
	assert.Positive(t, r.EndToEnd.Max)
	assert.Eventually(t, func() bool { h.mu.Lock(); defer h.mu.Unlock(); return h.pongs == 7 }, 10*time.Second, time.Millisecond)
	h.mu.Lock()
	defer h.mu.Unlock()
	assert.Equal(t, `{"op":"subscribe","topics":["t"],"from":"latest","max_records":50}`, h.subscribed[0])
}

func TestAReaderThatEndsIsAnErrorAndTheOthersGoOn(t *testing.T) {
	t.Parallel()
	h, c := newHub(t)
	h.cutAfter = 500
	r, err := bench.Fanout(context.Background(), c, fanoutOptions())
	require.NoError(t, err)
	assert.EqualValues(t, 1, r.Errors)
	assert.EqualValues(t, 1, r.Problems["the server closed the socket: 4408 slow"])
	assert.EqualValues(t, 6*1000, r.Records)
}

func TestAProducerThatFailsEndsTheFanout(t *testing.T) {
	t.Parallel()
	h, c := newHub(t)
	h.refuse = true
	_, err := bench.Fanout(context.Background(), c, fanoutOptions())
	require.ErrorContains(t, err, "HTTP 503")
}

func TestAnInterruptEndsAFanout(t *testing.T) {
	t.Parallel()
	_, c := newHub(t)
	ctx, cancel := context.WithCancel(context.Background())
	o := fanoutOptions()
	o.Rate = 0.001 // the second request would come in a day
	done := make(chan error, 1)
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := bench.Fanout(ctx, c, o)
		done <- err
	})
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	wg.Wait()
}

func TestIdleTellsWhatTheServerHasMorePerSocket(t *testing.T) {
	t.Parallel()
	_, c := newHub(t)
	r, err := bench.Idle(context.Background(), c, bench.Options{Topic: "t", Batch: 1, Connections: 50})
	require.NoError(t, err)
	assert.EqualValues(t, 50, r.Requests)
	assert.EqualValues(t, 9000, r.Memory.PerConnection)
	assert.EqualValues(t, 5000, *r.Memory.HeapPerConnection)
	assert.EqualValues(t, 2000, *r.Memory.StackPerConnection)
	if runtime.GOOS != "linux" {
		return // there is no /proc
	}
	r, err = bench.Idle(context.Background(), c, bench.Options{Topic: "t", Batch: 1, Connections: 5, PID: os.Getpid()})
	require.NoError(t, err)
	assert.Contains(t, r.Memory.Source, "/proc/")
	assert.Positive(t, r.Memory.Before)
	assert.Nil(t, r.Memory.HeapPerConnection)
}
