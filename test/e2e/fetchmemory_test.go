package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// streamedBytes is how much TestReadingALotTakesNoMemory reads: TEST_TIDEWIRE_STREAM_BYTES,
// or a slice of what one would read on purpose (20 GiB is 21474836480).
func streamedBytes(t *testing.T) int64 {
	t.Helper()
	text := os.Getenv("TEST_TIDEWIRE_STREAM_BYTES")
	if text == "" {
		return 400 << 20
	}
	n, err := strconv.ParseInt(text, 10, 64)
	require.NoError(t, err)
	return n
}

var anonymous = regexp.MustCompile(`RssAnon:\s+(\d+) kB`)

// memory is what the node's process has of its own, in bytes.
func (n *node) memory(t testing.TB) int64 {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.proc.cmd.Process.Pid))
	require.NoError(t, err)
	m := anonymous.FindSubmatch(raw)
	require.NotNil(t, m, "%s", raw)
	kb, err := strconv.ParseInt(string(m[1]), 10, 64)
	require.NoError(t, err)
	return kb << 10
}

var fetchForms = []string{"application/json", "application/x-ndjson", "application/vnd.kafka.record-batches"}

// fetchAll reads a page as large as there can be, and drops it.
func (a *api) fetchAll(ctx context.Context, partition int, accept string) (int64, error) {
	req, err := http.NewRequestWithContext(ctx, "GET", a.n.URL()+fmt.Sprintf("/v1/topics/much/partitions/%d/records?offset=0&max_records=10000&max_bytes=67108864", partition), nil)
	if err != nil {
		return 0, err
	}
	req.Header.Set("Authorization", "Bearer "+a.token)
	req.Header.Set("Accept", accept)
	res, err := a.http.Do(req)
	if err != nil {
		return 0, err
	}
	n, err := io.Copy(io.Discard, res.Body)
	if err := errors.Join(err, res.Body.Close()); err != nil {
		return n, err
	}
	if res.StatusCode != http.StatusOK {
		return n, fmt.Errorf("status %d", res.StatusCode)
	}
	return n, nil
}

// stalled asks for a large page and reads nothing of it.
func (a *api) stalled(t *testing.T, partition int, accept string) {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(a.n.URL(), "http://"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() }) // the node may have cut it
	require.NoError(t, conn.(*net.TCPConn).SetReadBuffer(4096))
	_, err = fmt.Fprintf(conn, "GET /v1/topics/much/partitions/%d/records?offset=0&max_records=10000&max_bytes=67108864 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nAccept: %s\r\n\r\n",
		partition, a.token, accept)
	require.NoError(t, err)
}

// What is read over and over stands for much content: the node decodes or sends it each time.
// Beside those who read there are clients that take nothing of what they asked for.
func TestReadingALotTakesNoMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("it reads a lot")
	}
	n := startNode(t, "--fetch-memory", "64MiB")
	a := admin(t, n)
	const partitions = 4
	a.createTopic(t, "much", partitions, nil)
	batch := []byte(`{"records":[` + strings.Repeat(`{"value":"`+strings.Repeat("v", 1000)+`"},`, 999) + `{"value":"end"}]}`)
	for p := range partitions {
		for range 10 {
			a.must(t, "POST", fmt.Sprintf("/v1/topics/much/partitions/%d/records", p), batch, nil)
		}
	}
	for p := range partitions { // once, so that what is made on first use is there
		for _, form := range fetchForms {
			_, err := a.fetchAll(t.Context(), p, form)
			require.NoError(t, err)
		}
	}
	// More than one user's share of the memory: it is theirs to wait for, and nobody else's.
	a.must(t, "POST", "/v1/users", map[string]string{"username": "sleeper", "password": "sleeps all day"}, nil)
	a.must(t, "POST", "/v1/acls", map[string]string{
		"principal": "User:sleeper", "resource_type": "topic", "resource_name": "much", "operation": "read", "permission": "allow",
	}, nil)
	sleeper := login(t, n, "sleeper", "sleeps all day")
	for i := range 90 {
		sleeper.stalled(t, i%partitions, fetchForms[i%3])
	}
	before := n.memory(t)
	peak, total := before, atomic.Int64{}
	want := streamedBytes(t)
	failures := make(chan error, partitions)
	for p := range partitions {
		go func() {
			for i := 0; total.Load() < want; i++ {
				got, err := a.fetchAll(t.Context(), p, fetchForms[i%3])
				total.Add(got)
				if err != nil {
					failures <- err
					return
				}
			}
			failures <- nil
		}()
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for ended := 0; ended < partitions; {
		select {
		case err := <-failures:
			require.NoError(t, err)
			ended++
		case <-tick.C:
			peak = max(peak, n.memory(t))
		}
	}
	t.Logf("read %d MiB; the node had %d MiB before and %d MiB at most", total.Load()>>20, before>>20, peak>>20)
	// The budget for reads, and as much again for what Go's collector leaves.
	require.Less(t, peak-before, int64(2*64<<20))
	require.NotContains(t, n.proc.err.String(), "level=ERROR")
}
