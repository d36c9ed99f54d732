package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewire/test/history"
)

const (
	crashTopic      = "crash"
	crashPartitions = 3
	// roundsVariable overrides how often the node is killed.
	roundsVariable = "TIDEWIRE_E2E_KILLS"
)

// crashRounds is 50, fewer with -short.
func crashRounds(t *testing.T) int {
	t.Helper()
	if s := os.Getenv(roundsVariable); s != "" {
		n, err := strconv.Atoi(s)
		require.NoError(t, err, roundsVariable)
		return n
	}
	if testing.Short() {
		return 5
	}
	return 50
}

// crash is a node under load that is killed again and again.
type crash struct {
	a    *api
	hist history.Recorder
	stop chan struct{}

	acked, failed, unknown atomic.Int64 // records

	mu    sync.Mutex
	wrong []string // guarded by mu: what broke the API's promises
}

func (c *crash) complain(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.wrong) < 20 {
		c.wrong = append(c.wrong, fmt.Sprintf(format, args...))
	}
}

func (c *crash) stopped() bool {
	select {
	case <-c.stop:
		return true
	default:
		return false
	}
}

// load is what one producer does: requests of so many records, one after the other.
type load struct {
	name    string
	acks    string
	records int
	to      int // partition of all its records, or -1: by its key
}

func loads() []load {
	return []load{
		{"batch-0", "all", 20, -1}, {"batch-1", "all", 20, 0}, {"batch-2", "all", 50, 1}, {"keyless", "all", 10, -2},
		{"single-0", "all", 1, -1}, {"single-1", "all", 1, 2},
		{"leader-batch", "leader", 20, 2}, {"leader-single", "leader", 1, -1},
	}
}

type sentRecord struct {
	Key       *string `json:"key,omitempty"`
	Value     string  `json:"value"`
	Partition *int    `json:"partition,omitempty"`
}

// produce sends until the end. Every value is new, so that nothing is sent twice.
func (c *crash) produce(l load) {
	for op := 0; !c.stopped(); op++ {
		id := fmt.Sprintf("%s/%d", l.name, op)
		body := make([]sentRecord, l.records)
		sent := make([]history.Record, l.records)
		for i := range body {
			body[i].Value = fmt.Sprintf("%s/%d", id, i)
			sent[i].Value = body[i].Value
			switch l.to {
			case -1:
				body[i].Key = &l.name
			case -2:
			default:
				body[i].Partition = &l.to
			}
		}
		c.hist.Add(history.Event{Type: history.Send, Client: l.name, Op: id, Acks: l.acks, Records: sent})
		status, answer, err := c.a.try("POST", "/v1/topics/"+crashTopic+"/records?acks="+l.acks, map[string]any{"records": body})
		if !c.judge(id, sent, status, answer, err) {
			time.Sleep(10 * time.Millisecond) // nobody listens
		}
	}
}

// result is a record's place in a produce answer.
type result struct {
	Partition int             `json:"partition"`
	Offset    int64           `json:"offset"`
	Problem   json.RawMessage `json:"problem"`
}

// judge notes how a write ended and reports whether the node answered.
func (c *crash) judge(id string, sent []history.Record, status int, answer []byte, err error) bool {
	n := int64(len(sent))
	var dial *net.OpError
	switch {
	case errors.As(err, &dial) && dial.Op == "dial":
		c.failed.Add(n)
		c.hist.Add(history.Event{Type: history.Fail, Op: id})
		return false
	case err != nil: // a broken connection
		c.unknown.Add(n)
		c.hist.Add(history.Event{Type: history.Unknown, Op: id})
		return false
	case status >= 400:
		c.end(id, nil, n, answer)
		return true
	}
	var body struct {
		Results []result `json:"results"`
	}
	if err := json.Unmarshal(answer, &body); err != nil || len(body.Results) != len(sent) {
		c.complain("%s: %d %s", id, status, answer)
		return true
	}
	var placed []history.Record
	for i, r := range body.Results {
		if r.Problem != nil {
			c.end(id, sent[i:i+1], 1, r.Problem)
			continue
		}
		placed = append(placed, history.Record{Partition: partitionName(r.Partition), Offset: r.Offset, Value: sent[i].Value})
	}
	c.acked.Add(int64(len(placed)))
	c.hist.Add(history.Event{Type: history.Ack, Op: id, Records: placed})
	return true
}

// end notes a refusal of a whole request, or of some records.
func (c *crash) end(id string, records []history.Record, n int64, answer []byte) {
	var p problem
	if err := json.Unmarshal(answer, &p); err != nil {
		c.complain("%s: not a problem: %s", id, answer)
	}
	switch p.Outcome {
	case "not-applied":
		c.failed.Add(n)
		c.hist.Add(history.Event{Type: history.Fail, Op: id, Records: records})
	case "unknown":
		c.unknown.Add(n)
		c.hist.Add(history.Event{Type: history.Unknown, Op: id, Records: records})
	default:
		c.complain("%s: no outcome: %s", id, answer)
	}
}

func partitionName(p int) string { return fmt.Sprintf("%s/%d", crashTopic, p) }

// consume reads all partitions by long polls, round after round, until the end, and
// notes all it sees.
func (c *crash) consume(name string) {
	var group sync.WaitGroup
	for p := range crashPartitions {
		group.Go(func() { c.follow(name, p) })
	}
	group.Wait()
}

func (c *crash) follow(name string, partition int) {
	for next := int64(0); !c.stopped(); {
		status, answer, err := c.a.try("GET", fmt.Sprintf("/v1/topics/%s/partitions/%d/records?offset=%d&max_records=2000&wait_ms=500", crashTopic, partition, next), nil)
		if err != nil {
			time.Sleep(2 * time.Millisecond)
			continue
		}
		if status != http.StatusOK {
			var p problem
			if json.Unmarshal(answer, &p) != nil || !p.Retryable {
				c.complain("%s: fetch at %d: %d %s", name, next, status, answer)
				return
			}
			continue
		}
		got, err := historyPage(answer)
		if err != nil {
			c.complain("%s: %v: %s", name, err, answer)
			return
		}
		if len(got.records) > 0 {
			c.hist.Add(history.Event{Type: history.Read, Client: name, Records: got.records})
		}
		if got.next < next {
			c.complain("%s: next_offset %d after %d", name, got.next, next)
		}
		next = got.next
	}
}

type crashPage struct {
	records            []history.Record
	start, next, above int64
}

func historyPage(answer []byte) (crashPage, error) {
	var p struct {
		Records []struct {
			Partition int    `json:"partition"`
			Offset    int64  `json:"offset"`
			Value     string `json:"value"`
		} `json:"records"`
		Next  int64 `json:"next_offset"`
		Above int64 `json:"high_watermark"`
		Start int64 `json:"log_start_offset"`
	}
	if err := json.Unmarshal(answer, &p); err != nil {
		return crashPage{}, err
	}
	out := crashPage{start: p.Start, next: p.Next, above: p.Above}
	for _, r := range p.Records {
		out.records = append(out.records, history.Record{Partition: partitionName(r.Partition), Offset: r.Offset, Value: r.Value})
	}
	return out, nil
}

// final reads everything that is there.
func (c *crash) final(t *testing.T) {
	t.Helper()
	for p := range crashPartitions {
		for next, above := int64(0), int64(1); next < above; {
			status, answer, err := c.a.try("GET", fmt.Sprintf("/v1/topics/%s/partitions/%d/records?offset=%d&max_records=10000&max_bytes=16777216", crashTopic, p, next), nil)
			require.NoError(t, err)
			require.Equal(t, http.StatusOK, status, "%s", answer)
			got, err := historyPage(answer)
			require.NoError(t, err)
			require.Zero(t, got.start)
			c.hist.Add(history.Event{Type: history.Final, Partition: partitionName(p), From: got.start, To: got.above, Records: got.records})
			require.True(t, got.next > next || got.next >= got.above, "no progress at %d", next)
			next, above = got.next, got.above
		}
	}
}

// The node is killed under load. What it acknowledged with acks=all is there, at the
// offset it told; what a consumer saw stays; clients always knew where they stood.
func TestNothingAcknowledgedIsLostByKills(t *testing.T) {
	t.Parallel()
	rounds := crashRounds(t)
	n := startNode(t)
	c := &crash{a: admin(t, n), stop: make(chan struct{})}
	c.a.createTopic(t, crashTopic, crashPartitions, map[string]any{"segment.bytes": 1 << 20})
	var clients sync.WaitGroup
	for _, l := range loads() {
		clients.Go(func() { c.produce(l) })
	}
	for _, name := range []string{"reader-0", "reader-1"} {
		clients.Go(func() { c.consume(name) })
	}
	ended := sync.OnceFunc(func() { close(c.stop); clients.Wait() })
	defer ended()

	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d, %d rounds", seed, rounds)
	random := rand.New(rand.NewPCG(seed, 0))
	for round := range rounds {
		time.Sleep(time.Duration(200+random.IntN(400)) * time.Millisecond)
		n.kill()
		if round%8 == 7 { // and once more, while it recovers
			n.spawn(t)
			time.Sleep(time.Duration(random.IntN(250)) * time.Millisecond)
			n.kill()
		}
		n.start(t)
	}
	time.Sleep(300 * time.Millisecond)
	ended()
	c.final(t)
	t.Logf("%d records acknowledged, %d not applied, %d unknown", c.acked.Load(), c.failed.Load(), c.unknown.Load())
	require.Empty(t, c.wrong)
	require.Greater(t, c.acked.Load(), int64(rounds*100))
	require.Positive(t, c.unknown.Load(), "no request was under way at any kill")
	events := c.hist.Events()
	if found := history.Check(events); len(found) > 0 {
		t.Errorf("%d violations; the first: %v", len(found), found[:min(len(found), 20)])
		c.keep(t, events)
	}
}

// keep writes the history of a failed run where it outlives the test.
func (c *crash) keep(t *testing.T, events []history.Event) {
	t.Helper()
	f, err := os.CreateTemp("", "tidewire-history-*.ndjson")
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, history.Write(f, events))
	t.Logf("the history is in %s", f.Name())
}
