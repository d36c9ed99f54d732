package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// lineBytes is the length of a line with its end; it has an index of 8 digits in front.
const lineBytes = 400

// manyLines is how many lines the tests of bodies of lines send: 80 MB by default.
func manyLines(t *testing.T) int {
	t.Helper()
	n := 200_000
	if text := os.Getenv("TEST_TIDEWIRE_LINES"); text != "" {
		var err error
		n, err = strconv.Atoi(text)
		require.NoError(t, err)
	}
	return n
}

// lineSource is a body of lines, made as it is read.
type lineSource struct {
	next, n int
	rest    []byte
}

func (s *lineSource) Read(p []byte) (int, error) {
	for len(s.rest) < len(p) && s.next < s.n {
		s.rest = append(s.rest, line(s.next)...)
		s.next++
	}
	if len(s.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, s.rest)
	s.rest = append(s.rest[:0], s.rest[n:]...)
	return n, nil
}

var padding = strings.Repeat("p", lineBytes)

func line(i int) string {
	l := fmt.Sprintf(`{"key":"%d","value":"%08d `, i%1000, i)
	return l + padding[:lineBytes-len(l)-3] + "\"}\n"
}

type lineSummary struct {
	Records int64   `json:"records"`
	Failed  int64   `json:"failed"`
	Stopped *string `json:"stopped"`
	Offsets []struct {
		Partition   int   `json:"partition"`
		FirstOffset int64 `json:"first_offset"`
		LastOffset  int64 `json:"last_offset"`
	} `json:"offsets"`
}

// answerLine is a line of an answer to lines.
type answerLine struct {
	Index     *int64       `json:"index"`
	Partition int          `json:"partition"`
	Offset    int64        `json:"offset"`
	Problem   *problem     `json:"problem"`
	Summary   *lineSummary `json:"summary"`
}

// memory watches the resident memory of a node's process.
type memory struct {
	pid  int
	most atomic.Int64 // bytes
	done chan struct{}
	end  chan struct{}
}

func watchMemory(t *testing.T, n *node) *memory {
	t.Helper()
	m := &memory{pid: n.proc.cmd.Process.Pid, done: make(chan struct{}), end: make(chan struct{})}
	require.Positive(t, m.resident())
	go func() {
		defer close(m.end)
		for {
			m.most.Store(max(m.most.Load(), m.resident()))
			select {
			case <-m.done:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	return m
}

func (m *memory) resident() int64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", m.pid))
	if err != nil {
		return -1
	}
	_, rest, _ := strings.Cut(string(b), "VmRSS:")
	kb, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	if err != nil {
		return -1
	}
	return kb << 10
}

// maxResident is what a node may take while it takes lines: less than a client sends.
const maxResident = 192 << 20

func (m *memory) check(t *testing.T) {
	t.Helper()
	close(m.done)
	<-m.end
	t.Logf("at most %d MiB were resident", m.most.Load()>>20)
	require.Positive(t, m.most.Load())
	require.Less(t, m.most.Load(), int64(maxResident))
}

// dialLines sends the head of a request of n lines.
func dialLines(t *testing.T, a *api, target string, n int) *net.TCPConn {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(a.n.URL(), "http://"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/x-ndjson\r\nContent-Length: %d\r\n\r\n",
		target, a.token, n*lineBytes)
	require.NoError(t, err)
	return conn.(*net.TCPConn)
}

func checkSummary(t *testing.T, a *api, topic string, n int, s *lineSummary) {
	t.Helper()
	require.NotNil(t, s)
	require.EqualValues(t, n, s.Records)
	require.Zero(t, s.Failed)
	require.Nil(t, s.Stopped)
	stored := int64(0)
	for _, o := range s.Offsets {
		require.Zero(t, o.FirstOffset)
		stored += o.LastOffset + 1
	}
	require.EqualValues(t, n, stored)
	checkStored(t, a, topic, n, len(s.Offsets))
}

// checkStored finds each line once, those of a partition in the order in which they were
// sent.
func checkStored(t *testing.T, a *api, topic string, n, partitions int) {
	t.Helper()
	seen := make([]bool, n)
	for p := range partitions {
		before := -1
		for next := int64(0); ; {
			var page struct {
				Records []struct {
					Value string `json:"value"`
				} `json:"records"`
				NextOffset int64 `json:"next_offset"`
			}
			a.must(t, "GET", fmt.Sprintf("/v1/topics/%s/partitions/%d/records?offset=%d&max_records=10000&max_bytes=16777216", topic, p, next), nil, &page)
			if len(page.Records) == 0 {
				break
			}
			for _, r := range page.Records {
				i, err := strconv.Atoi(r.Value[:8])
				require.NoError(t, err)
				require.Greater(t, i, before, "partition %d", p)
				require.False(t, seen[i])
				seen[i], before = true, i
			}
			next = page.NextOffset
		}
	}
	for i, s := range seen {
		require.True(t, s, "line %d is missing", i)
	}
}

func TestLinesOfAClientThatWritesAllBeforeItReads(t *testing.T) {
	n := startNode(t)
	a := admin(t, n)
	a.createTopic(t, "t", 6, nil)
	lines := manyLines(t)
	m := watchMemory(t, n)
	began := time.Now()
	conn := dialLines(t, a, "/v1/topics/t/records", lines)
	_, err := io.Copy(conn, &lineSource{n: lines})
	require.NoError(t, err)
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	t.Logf("%d lines took %s", lines, time.Since(began))
	m.check(t)
	var last answerLine
	require.NoError(t, json.Unmarshal(body, &last), "%s", body)
	checkSummary(t, a, "t", lines, last.Summary)
}

func TestLinesOfAClientThatReadsWhileItWrites(t *testing.T) {
	n := startNode(t)
	a := admin(t, n)
	a.createTopic(t, "t", 6, nil)
	lines := manyLines(t)
	m := watchMemory(t, n)
	req, err := http.NewRequestWithContext(t.Context(), "POST", a.n.URL()+"/v1/topics/t/records?results=all", io.NopCloser(&lineSource{n: lines}))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/x-ndjson")
	req.Header.Set("Authorization", "Bearer "+a.token)
	transport := &http.Transport{DisableKeepAlives: true}
	began := time.Now()
	res, err := transport.RoundTrip(req)
	require.NoError(t, err)
	defer res.Body.Close()
	require.Equal(t, 200, res.StatusCode)
	in := bufio.NewScanner(res.Body)
	ends := make([]int64, 6)
	var last answerLine
	for i := int64(0); in.Scan(); i++ {
		last = answerLine{}
		require.NoError(t, json.Unmarshal(in.Bytes(), &last))
		if last.Summary != nil {
			continue
		}
		require.EqualValues(t, i, *last.Index)
		require.Nil(t, last.Problem)
		require.Equal(t, ends[last.Partition], last.Offset, "in the order in which they came")
		ends[last.Partition]++
	}
	require.NoError(t, in.Err())
	t.Logf("%d lines took %s", lines, time.Since(began))
	m.check(t)
	checkSummary(t, a, "t", lines, last.Summary)
}

// TestLinesOfAClientThatBreaksOff cuts the connection while lines are on their way, and
// kills the node some time later: what was answered is there, and everything that is there
// is a beginning of what was sent, line by line.
func TestLinesOfAClientThatBreaksOff(t *testing.T) {
	n := startNode(t)
	a := admin(t, n)
	a.createTopic(t, "t", 1, nil)
	lines := manyLines(t)
	m := watchMemory(t, n)
	conn := dialLines(t, a, "/v1/topics/t/records?results=all", lines)
	sent := make(chan error, 1)
	go func() {
		_, err := io.Copy(conn, &lineSource{n: lines})
		sent <- err
	}()
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	in := bufio.NewScanner(res.Body)
	answered := int64(0)
	for answered < int64(lines)/3 && in.Scan() {
		var l answerLine
		require.NoError(t, json.Unmarshal(in.Bytes(), &l))
		require.Nil(t, l.Problem)
		require.Equal(t, answered, l.Offset)
		answered++
	}
	require.NoError(t, conn.SetLinger(0)) // a reset, in the middle of a line
	require.NoError(t, conn.Close())
	require.Error(t, <-sent)
	m.check(t)
	n.restart(t, false)
	a = admin(t, n)
	var topic struct {
		Partitions []struct {
			HighWatermark int64 `json:"high_watermark"`
		} `json:"partitions"`
	}
	a.must(t, "GET", "/v1/topics/t", nil, &topic)
	stored := topic.Partitions[0].HighWatermark
	require.GreaterOrEqual(t, stored, answered)
	require.Less(t, stored, int64(lines))
	checkStored(t, a, "t", int(stored), 1)
}
