package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewire/internal/testkit/racing"
	"tidewire/storage/record"
)

const (
	lines   = "application/x-ndjson"
	batches = "application/vnd.kafka.record-batches"
	octets  = "application/octet-stream"
)

// getAs asks for a media type.
func (a *api) getAs(accept, path string) *answer {
	a.t.Helper()
	return a.Do(request{Method: "GET", Path: path, Token: a.admin, Header: map[string]string{"Accept": accept}})
}

// readLines splits an answer into its lines: the records and the last one.
func readLines(t testing.TB, x *answer) (records []object, last object) {
	t.Helper()
	require.Equal(t, lines, x.Header.Get("Content-Type"))
	require.Equal(t, "no-store", x.Header.Get("Cache-Control"))
	all := bytes.Split(bytes.TrimSuffix(x.Body, []byte("\n")), []byte("\n"))
	for i, line := range all {
		d := json.NewDecoder(bytes.NewReader(line))
		d.UseNumber()
		var v object
		require.NoError(t, d.Decode(&v), "%s", line)
		require.Len(t, v, 1)
		if i == len(all)-1 {
			return records, v
		}
		records = append(records, v["record"].(object))
	}
	return nil, nil
}

// decodeBatches reads stored batches.
func decodeBatches(t testing.TB, b []byte) (records []string, count int) {
	t.Helper()
	d := record.NewDecompressor(64 << 20)
	var it record.Iterator
	for len(b) > 0 {
		batch, rest, err := record.ParseBatch(b)
		require.NoError(t, err)
		require.NoError(t, batch.VerifyCRC())
		require.NoError(t, batch.Records(d, &it))
		for it.Next() {
			r := it.Record()
			records = append(records, fmt.Sprintf("%d=%s", r.Offset, r.Value))
		}
		require.NoError(t, it.Err())
		b = rest
		count++
	}
	return records, count
}

func tidewire(t testing.TB, x *answer, name string) string {
	t.Helper()
	v := x.Header.Get("Tidewire-" + name)
	require.NotEmpty(t, v, name)
	return v
}

func TestAFetchAsNDJSONIsARecordALineThenTheEnd(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.timed("lines.topic")
	one := path + "/partitions/0/records?"
	for query, want := range map[string]struct {
		from, to int
		reason   string
	}{
		"offset=0": {0, 6, "latest"}, "offset=4": {4, 6, "latest"}, "offset=latest": {6, 6, "latest"},
		"offset=0&max_records=2": {0, 2, "limit"}, "timestamp=3001": {3, 6, "latest"}, "offset=0&max_bytes=3": {0, 3, "limit"},
	} {
		page := decoded(t, a.get(one+query), 200)
		records, last := readLines(t, wants(t, a.getAs(lines, one+query), 200, ""))
		require.Len(t, records, want.to-want.from, query)
		for i, r := range records {
			require.Equal(t, page["records"].([]any)[i], any(r), "%s: the same records as in JSON", query)
		}
		end := last["end"].(object)
		require.Equal(t, want.reason, end["reason"], query)
		for _, member := range []string{"next_offset", "high_watermark", "last_stable_offset", "log_start_offset"} {
			require.Equal(t, page[member], end[member], "%s of %s", member, query)
		}
	}
	wants(t, a.getAs(lines, one+"offset=7"), 416, "offset-out-of-range")
}

func TestLongAnswersAreStreamedWhole(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("fetch.lines.long", 1, nil)
	value := strings.Repeat("é水", 100)
	for range 4 {
		batch := make([]object, 1000)
		for i := range batch {
			batch[i] = object{"value": value}
		}
		a.records(path, batch...)
	}
	one := path + "/partitions/0/records?offset=0&max_records=10000&max_bytes=67108864"
	page := decoded(t, a.get(one), 200)
	require.Len(t, page["records"], 4000)
	records, last := readLines(t, wants(t, a.getAs(lines, one), 200, ""))
	require.Len(t, records, 4000)
	for i, r := range records {
		require.Equal(t, json.Number(fmt.Sprint(i)), r["offset"])
		require.Equal(t, value, r["value"])
	}
	require.Equal(t, "latest", last["end"].(object)["reason"])
}

func TestAFetchAsBatchesGivesTheStoredBytes(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("batches.topic", 1, object{"segment.bytes": 65536})
	want := []string{}
	for i := range 30 { // several segments
		batch := []object{}
		for j := range 3 {
			v := fmt.Sprintf("%02d%d%s", i, j, strings.Repeat("x", 2000))
			batch = append(batch, object{"value": v})
			want = append(want, fmt.Sprintf("%d=%s", len(want), v))
		}
		a.records(path, batch...)
	}
	one := path + "/partitions/0/records?max_records=10000&max_bytes=67108864&offset="
	x := wants(t, a.getAs(batches, one+"earliest"), 200, "")
	got, count := decodeBatches(t, x.Body)
	require.Equal(t, want, got)
	require.Equal(t, 30, count)
	require.Equal(t, batches, x.Header.Get("Content-Type"))
	require.Equal(t, "no-store", x.Header.Get("Cache-Control"))
	for name, v := range map[string]string{"Next-Offset": "90", "High-Watermark": "90", "Last-Stable-Offset": "90", "Log-Start-Offset": "0"} {
		require.Equal(t, v, tidewire(t, x, name), name)
	}
	got, _ = decodeBatches(t, a.getAs(batches, one+"4").Body)
	require.Equal(t, want[3:], got, "the batch that holds the offset comes whole")

	x = a.getAs(batches, path+"/partitions/0/records?offset=0&max_records=7")
	got, _ = decodeBatches(t, x.Body)
	require.Equal(t, want[:6], got, "whole batches within the limit")
	require.Equal(t, "6", tidewire(t, x, "Next-Offset"))
	x = a.getAs(batches, path+"/partitions/0/records?offset=0&max_bytes=1&max_records=1")
	got, _ = decodeBatches(t, x.Body)
	require.Equal(t, want[:3], got, "the first always comes")
	x = a.getAs(batches, one+"90")
	require.Empty(t, x.Body)
	require.Equal(t, "90", tidewire(t, x, "Next-Offset"))
	wants(t, a.getAs(batches, one+"91"), 416, "offset-out-of-range")

	all, at := []string{}, "0"
	for at != "90" {
		x := wants(t, a.getAs(batches, path+"/partitions/0/records?max_bytes=20000&offset="+at), 200, "")
		got, _ := decodeBatches(t, x.Body)
		all, at = append(all, got...), tidewire(t, x, "Next-Offset")
	}
	require.Equal(t, want, all, "page by page")

	h := a.Do(request{Method: "HEAD", Path: one + "0", Token: a.admin, Header: map[string]string{"Accept": batches}})
	wants(t, h, 200, "")
	require.Equal(t, "90", tidewire(t, h, "Next-Offset"))
	require.Equal(t, batches, h.Header.Get("Content-Type"))
	require.Empty(t, h.Body)
}

func TestCompressedBatchesComeAsTheyWereStored(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("batches.zstd", 1, object{"compression.type": "zstd"})
	value := strings.Repeat("squeeze", 1000)
	a.records(path, object{"value": value}, object{"value": value})
	x := wants(t, a.getAs(batches, path+"/partitions/0/records?offset=0"), 200, "")
	require.Less(t, len(x.Body), 1000)
	got, _ := decodeBatches(t, x.Body)
	require.Equal(t, []string{"0=" + value, "1=" + value}, got)
	values, _ := a.page(path, "offset=0")
	require.Equal(t, []string{value, value}, values)
}

// inProgress is how many requests the node has under way.
func inProgress(a *api) int {
	for line := range strings.Lines(string(wants(a.t, a.get("/metrics"), 200, "").Body)) {
		if v, ok := strings.CutPrefix(line, "tidewire_http_requests_in_progress "); ok {
			n, err := strconv.Atoi(strings.TrimSpace(v))
			require.NoError(a.t, err)
			return n
		}
	}
	a.t.Fatal("no such metric")
	return 0
}

func TestALongPollForBatchesWaitsAndEnds(t *testing.T) {
	t.Parallel()
	a := ownAPI(t)
	path := a.topic("batches.poll", 1, nil)
	target := path + "/partitions/0/records?wait_ms=60000&offset="
	poll := func(accept, target string) <-chan *answer {
		out := make(chan *answer, 1)
		before := inProgress(a)
		go func() {
			defer close(out) // as in api.poll
			out <- a.getAs(accept, target)
		}()
		require.Eventually(a.t, func() bool { return inProgress(a) > before }, 10*time.Second, time.Millisecond)
		return out
	}
	first, line := poll(batches, target+"0"), poll(lines, target+"0")
	a.records(path, object{"value": "x"})
	got, _ := decodeBatches(t, wants(t, <-first, 200, "").Body)
	require.Equal(t, []string{"0=x"}, got)
	records, _ := readLines(t, <-line)
	require.Len(t, records, 1)
	gone, goneLines := poll(batches, target+"1"), poll(lines, target+"1")
	wants(t, a.remove(path), 204, "")
	wants(t, <-gone, 404, "unknown-topic")
	wants(t, <-goneLines, 404, "unknown-topic")
	path = a.topic("batches.stop", 1, nil)
	target = path + "/partitions/0/records?wait_ms=60000&offset=0"
	stopped, stoppedLines := poll(batches, target), poll(lines, target)
	a.Stop()
	x := wants(t, <-stopped, 200, "")
	require.Empty(t, x.Body)
	require.Equal(t, "0", tidewire(t, x, "Next-Offset"))
	_, last := readLines(t, wants(t, <-stoppedLines, 200, ""))
	require.Equal(t, "node-stopping", last["end"].(object)["reason"])
}

func TestTheMediaTypeOfAFetchIsTheOneLikedBest(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("media.topic", 1, nil)
	a.records(path, object{"value": "x"})
	one := path + "/partitions/0/records?offset=0"
	for accept, want := range map[string]string{
		"": "application/json", "*/*": "application/json", "application/*": "application/json", lines: lines, batches: batches,
		"application/json;q=0.5, " + lines:         lines,
		lines + ";q=0.5, " + batches + ";q=0.6":    batches,
		"*/*;q=0.1, " + batches + ";q=0.2":         batches,
		"application/json;q=0, */*":                lines,
		"text/html, application/json;q=0.1":        "application/json",
		"APPLICATION/X-NDJSON":                     lines,
		"application/x-ndjson; charset=utf-8":      lines,
		"image/png, " + lines + ";q=0.001":         lines,
		"text/event-stream;q=0.9, */*;q=0.1":       "application/json",
		lines + ", application/json":               "application/json", // equals: the first that is offered
		"application/*;q=0.5, " + batches + ";q=1": batches,
	} {
		x := wants(t, a.getAs(accept, one), 200, "")
		require.Equal(t, want, x.Header.Get("Content-Type"), accept)
	}
	for _, accept := range []string{"text/csv", "text/event-stream", octets, "application/json;q=0", "*/*;q=0", "image/*"} {
		wants(t, a.getAs(accept, one), 406, "not-acceptable")
	}
}

func TestOneRecord(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("one.topic", 1, object{"retention.ms": -1})
	wants(t, a.post(path+"/records", `{"records":[
		{"key":"k","value":{"a":1},"headers":{"h":"1"},"timestamp":1700000000000},
		{"key":"k","value":null},{"value":""},{"value":"/wA=","value_encoding":"base64"}]}`), 200, "")
	one := path + "/partitions/0/records/"
	page := decoded(t, a.get(path+"/partitions/0/records?offset=0"), 200)["records"].([]any)
	for i, want := range page {
		x := wants(t, a.get(one+fmt.Sprint(i)), 200, "")
		var got object
		x.JSON(t, &got)
		require.Equal(t, want, any(got))
		require.Equal(t, "no-store", x.Header.Get("Cache-Control"))
	}
	got := decoded(t, a.get(one+"0?encoding=base64&key_encoding=base64"), 200)
	require.Equal(t, "base64", got["value_encoding"])
	require.Equal(t, "base64", got["key_encoding"])
	for i, want := range []string{`{"a":1}`, "", "", "\xff\x00"} {
		x := a.getAs(octets, one+fmt.Sprint(i))
		if i == 1 {
			wants(t, x, 204, "")
			require.Empty(t, x.Header.Get("Content-Type"))
			continue
		}
		wants(t, x, 200, "")
		require.Equal(t, octets, x.Header.Get("Content-Type"))
		require.Equal(t, fmt.Sprint(len(want)), x.Header.Get("Content-Length"))
		require.Equal(t, want, string(x.Body))
		h := a.Do(request{Method: "HEAD", Path: one + fmt.Sprint(i), Token: a.admin, Header: map[string]string{"Accept": octets}})
		wants(t, h, 200, "")
		require.Equal(t, octets, h.Header.Get("Content-Type"))
	}
	wants(t, a.getAs("text/html", one+"0"), 406, "not-acceptable")
	wants(t, a.get(one+"4"), 404, "not-found")
	wants(t, a.get(one+"5"), 416, "offset-out-of-range")
	wants(t, a.post(path+"/delete-records", object{"partitions": []object{{"partition": 0, "before_offset": 2}}}), 200, "")
	x := wants(t, a.get(one+"1"), 416, "offset-out-of-range")
	var p object
	x.JSON(t, &p)
	require.Equal(t, json.Number("2"), p["earliest"])
	require.Equal(t, json.Number("4"), p["latest"])
}

func TestALargeRecordComesWholeInEveryForm(t *testing.T) {
	t.Parallel()
	racing.SkipSequential(t)
	a := sharedAPI(t)
	path := a.topic("one.large", 1, object{"max.message.bytes": 20 << 20})
	large := strings.Repeat("\x01x", 5<<20) // JSON escapes half of it
	x := a.Do(request{Method: "POST", Path: path + "/partitions/0/records", Token: a.admin, Body: large,
		Header: map[string]string{"Content-Type": octets}})
	wants(t, x, 200, "")
	require.Equal(t, large, string(wants(t, a.getAs(octets, path+"/partitions/0/records/0"), 200, "").Body))
	require.Equal(t, large, decoded(t, a.get(path+"/partitions/0/records/0"), 200)["value"])
	values, _ := a.page(path, "offset=0")
	require.Equal(t, []string{large}, values)
	got, _ := decodeBatches(t, wants(t, a.getAs(batches, path+"/partitions/0/records?offset=0"), 200, "").Body)
	require.Equal(t, []string{"0=" + large}, got)
}

// The least memory that a node takes for reads is less than what this record needs.
func TestAReadThatNeedsMoreMemoryThanThereIsRunsAlone(t *testing.T) {
	t.Parallel()
	racing.SkipSequential(t)
	a := ownAPI(t, "--fetch-memory", "16MiB")
	path := a.topic("one.larger", 1, object{"max.message.bytes": 20 << 20, "compression.type": "gzip"})
	large := strings.Repeat("x", 15<<20)
	x := a.Do(request{Method: "POST", Path: path + "/partitions/0/records", Token: a.admin, Body: large,
		Header: map[string]string{"Content-Type": octets}})
	wants(t, x, 200, "")
	answers := make(chan *answer, 8)
	for range cap(answers) {
		go func() { answers <- a.getAs(octets, path+"/partitions/0/records/0") }()
	}
	for range cap(answers) {
		x := <-answers
		if x.Status == http.StatusTooManyRequests { // the others took longer than it waits
			require.Equal(t, "rate-limited", x.Code())
			continue
		}
		require.Equal(t, large, string(wants(t, x, 200, "").Body))
	}
	require.Equal(t, large, string(wants(t, a.getAs(octets, path+"/partitions/0/records/0"), 200, "").Body))
}

func TestFieldsOfListsAreThoseAskedFor(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	a.topic("fields.topic", 1, nil)
	for _, path := range []string{
		"/v1/topics?limit=1&fields=name", "/v1/topics?limit=1&fields=etag,actions,retention_ms,error", "/v1/users?fields=username",
		"/v1/brokers?fields=id,host",
	} {
		_, fields, _ := strings.Cut(path, "fields=")
		for _, it := range decoded(t, a.get(path), 200)["items"].([]any) { // the observer looks at their types
			require.Len(t, it, len(strings.Split(fields, ",")), path)
		}
	}
	for _, path := range []string{"/v1/topics?fields=", "/v1/topics?fields=name,", "/v1/users?fields=password"} {
		x := wants(t, a.get(path), 422, "invalid-argument")
		require.Equal(t, []string{"query:fields"}, pointers(t, x))
	}
}
