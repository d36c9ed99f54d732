package e2e

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewire/storage/record"
)

// virtualBytes is how much content each form of answer gives in
// TestVirtualContentIsStreamedInFlatMemory: TEST_VIRTUAL_GIB GiB (20 for the whole), or a
// slice.
func virtualBytes(t *testing.T) int64 {
	t.Helper()
	text := os.Getenv("TEST_VIRTUAL_GIB")
	if text == "" {
		return 512 << 20
	}
	n, err := strconv.ParseInt(text, 10, 64)
	require.NoError(t, err)
	return n << 30
}

// What is virtual is not stored as it is read: a record of 64 KiB is a few bytes of zstd, and
// 16 of them make a batch. What is read as stored cannot be virtual; its segments are read
// again and again.
const (
	virtualValue   = 64 << 10
	virtualRecords = 16
	plainBytes     = 256 << 20
	// flatMemory is by how much the process may grow, however much it sends: the budget for
	// reads (--fetch-memory), and as much again for what Go's collector leaves.
	fetchMemory = 64 << 20
	flatMemory  = 2 * fetchMemory
)

// sendBatches sends ready-made record batches n times.
func (a *api) sendBatches(t *testing.T, topic string, body []byte, n int) {
	t.Helper()
	for range n {
		req, err := http.NewRequestWithContext(t.Context(), "POST", a.n.URL()+"/v1/topics/"+topic+"/partitions/0/records?acks=leader", bytes.NewReader(body))
		require.NoError(t, err)
		req.Header.Set("Authorization", "Bearer "+a.token)
		req.Header.Set("Content-Type", "application/vnd.kafka.record-batches")
		res, err := a.http.Do(req)
		require.NoError(t, err)
		answer, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		require.Equal(t, http.StatusOK, res.StatusCode, "%s", answer)
	}
}

// virtualTopic has as much content as is asked for, and returns how many bytes are stored.
func (a *api) virtualTopic(t *testing.T, content int64) (stored int64) {
	t.Helper()
	a.createTopic(t, "virtual", 1, map[string]any{"retention.ms": -1})
	var body []byte
	for range 8 {
		b := record.NewBuilder(virtualRecords * virtualValue)
		for range virtualRecords {
			b.Add(time.Now().UnixMilli(), nil, bytes.Repeat([]byte("v"), virtualValue), nil)
		}
		batch, err := b.Finish(record.Zstd)
		require.NoError(t, err)
		body = append(body, batch...)
	}
	a.sendBatches(t, "virtual", body, int(content/(8*virtualRecords*virtualValue)))
	var topic struct {
		Partitions []struct {
			SizeBytes int64 `json:"size_bytes"`
			LogEnd    int64 `json:"log_end_offset"`
		} `json:"partitions"`
	}
	a.must(t, "GET", "/v1/topics/virtual", nil, &topic)
	require.Equal(t, content/virtualValue, topic.Partitions[0].LogEnd)
	return topic.Partitions[0].SizeBytes
}

func (a *api) plainTopic(t *testing.T) {
	t.Helper()
	a.createTopic(t, "plain", 1, map[string]any{"retention.ms": -1})
	b := record.NewBuilder(1 << 20)
	for range 1000 {
		b.Add(time.Now().UnixMilli(), nil, bytes.Repeat([]byte("p"), 1000), nil)
	}
	batch, err := b.Finish(record.None)
	require.NoError(t, err)
	a.sendBatches(t, "plain", batch, plainBytes/len(batch))
}

// open asks for a stream or a page.
func (a *api) open(ctx context.Context, accept, path string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, "GET", a.n.URL()+path, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+a.token)
	req.Header.Set("Accept", accept)
	client := &http.Client{Transport: a.http.Transport} // without an end of all: it may take minutes
	res, err := client.Do(req)
	if err == nil && res.StatusCode != http.StatusOK {
		_ = res.Body.Close() // the status is told
		return nil, fmt.Errorf("%s: status %d", path, res.StatusCode)
	}
	return res, err
}

// pages reads a topic by fetches, from its beginning again where it has ended, until so much
// has come. Each page is as large as there can be.
func (a *api) pages(ctx context.Context, accept, topic string, want int64) (int64, error) {
	const page = "/v1/topics/%s/partitions/0/records?offset=%d&max_records=10000&max_bytes=67108864"
	var total, next int64
	for total < want {
		res, err := a.open(ctx, accept, fmt.Sprintf(page, topic, next))
		if err != nil {
			return total, err
		}
		tail := &lastBytes{}
		n, err := io.Copy(tail, res.Body)
		_ = res.Body.Close() // it was read to its end, or err says why not
		if err != nil {
			return total, err
		}
		total += n
		before := next
		if next, err = tail.next(res.Header); err != nil {
			return total, err
		}
		if next == before {
			next = 0 // read to the end: from the beginning again
		}
	}
	return total, nil
}

// lastBytes keeps the end of what is written.
type lastBytes struct{ b []byte }

func (l *lastBytes) Write(p []byte) (int, error) {
	const most = 1 << 10
	l.b = append(l.b, p[max(0, len(p)-most):]...)
	l.b = append(l.b[:0], l.b[max(0, len(l.b)-most):]...)
	return len(p), nil
}

var nextOffset = regexp.MustCompile(`"next_offset":(\d+)`)

func (l *lastBytes) next(h http.Header) (int64, error) {
	if text := h.Get("Tidewire-Next-Offset"); text != "" {
		return strconv.ParseInt(text, 10, 64)
	}
	m := nextOffset.FindSubmatch(l.b)
	if m == nil {
		return 0, fmt.Errorf("no next_offset in …%s", l.b)
	}
	return strconv.ParseInt(string(m[1]), 10, 64)
}

// followed reads one stream that follows, from the earliest record on, up to so many.
func (a *api) followed(ctx context.Context, accept string, records int64) (int64, error) {
	res, err := a.open(ctx, accept, "/v1/topics/virtual/records?follow=true&from=earliest")
	if err != nil {
		return 0, err
	}
	defer res.Body.Close() // that ends the stream, which goes on else
	in, marker := bufio.NewReaderSize(res.Body, 1<<20), []byte(`{"topic":"virtual"`)
	var total, seen int64
	for seen < records {
		line, err := in.ReadSlice('\n')
		total += int64(len(line))
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return total, fmt.Errorf("after %d records: %w", seen, err)
		}
		seen += int64(bytes.Count(line[:min(len(line), 200)], marker))
	}
	return total, nil
}

// TestVirtualContentIsStreamedInFlatMemory reads content that is compact on disk in every form
// that there is, by pages and by streams that follow, and watches the memory of the process.
func TestVirtualContentIsStreamedInFlatMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("it reads a lot")
	}
	n := startNode(t, "--fetch-memory", "64MiB")
	a := admin(t, n)
	content := virtualBytes(t)
	stored := a.virtualTopic(t, content)
	require.Less(t, stored, content/50, "the content is virtual")
	a.plainTopic(t)
	const lines, events, batches = "application/x-ndjson", "text/event-stream", "application/vnd.kafka.record-batches"
	page := func(accept, topic string) func(context.Context, int64) (int64, error) {
		return func(ctx context.Context, want int64) (int64, error) { return a.pages(ctx, accept, topic, want) }
	}
	follow := func(accept string) func(context.Context, int64) (int64, error) {
		return func(ctx context.Context, want int64) (int64, error) {
			return a.followed(ctx, accept, want/virtualValue)
		}
	}
	_, err := a.pages(t.Context(), "application/json", "virtual", 128<<20) // so that what is made on first use is there
	require.NoError(t, err)
	before := n.resident(t)
	for _, form := range []struct {
		name string
		read func(context.Context, int64) (int64, error)
	}{
		{"fetch as JSON", page("application/json", "virtual")}, {"fetch as NDJSON", page(lines, "virtual")}, {"fetch as batches", page(batches, "plain")},
		{"follow as NDJSON", follow(lines)}, {"follow as SSE", follow(events)},
	} {
		t.Run(form.name, func(t *testing.T) {
			a.token = login(t, n, "admin", "tidewire").token // one lasts a quarter of an hour
			began := time.Now()
			got, peak, err := n.watched(t, func() (int64, error) { return form.read(t.Context(), content) })
			require.NoError(t, err)
			require.GreaterOrEqual(t, got, content)
			t.Logf("%d MiB in %.1f s: resident %d MiB before, %d MiB at most", got>>20, time.Since(began).Seconds(), before>>20, peak>>20)
			require.Less(t, peak-before, int64(flatMemory))
		})
	}
	require.NotContains(t, n.proc.err.String(), "level=ERROR")
	var ready struct{ Ready bool }
	a.must(t, "GET", "/readyz", nil, &ready)
	require.True(t, ready.Ready)
}

// watched runs something and gives the most that the process had in memory meanwhile.
func (n *node) watched(t *testing.T, do func() (int64, error)) (got, peak int64, err error) {
	t.Helper()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		got, err = do()
	}()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		peak = max(peak, n.resident(t))
		select {
		case <-ended:
			return got, peak, err
		case <-tick.C:
		}
	}
}
