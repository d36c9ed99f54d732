package api

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// browsed is a page of a read over partitions.
type browsed struct {
	Records []struct {
		Partition     int
		Offset        int64
		Timestamp     int64
		Key, Value    any
		ValueEncoding string `json:"value_encoding"`
		Preview       *struct {
			KeyBytes    *int64 `json:"key_bytes"`
			ValueBytes  *int64 `json:"value_bytes"`
			HeaderBytes int64  `json:"header_bytes"`
			Truncated   bool
		}
	}
	Next *string `json:"next_cursor"`
	Prev *string `json:"prev_cursor"`
	End  struct {
		Reason string
		Cursor string
		Count  *int64
	}
	Count   *int64
	Scanned struct {
		Records, Bytes int64
		Partitions     []struct {
			Partition int
			From, To  int64
		}
	}
}

var cursorText = regexp.MustCompile(`^[A-Za-z0-9._~-]+$`)

// browse reads one page; the query begins with ? or is empty.
func (a *api) browse(path, query string) *browsed {
	a.t.Helper()
	x := wants(a.t, a.get(path+"/records"+query), 200, "")
	p := &browsed{}
	require.NoError(a.t, json.Unmarshal(x.Body, p))
	for _, c := range []*string{p.Next, p.Prev, &p.End.Cursor} {
		if c != nil {
			require.Regexp(a.t, cursorText, *c)
		}
	}
	return p
}

// values are the values of a page, joined.
func (p *browsed) values() string {
	var b strings.Builder
	for _, r := range p.Records {
		fmt.Fprint(&b, r.Value)
	}
	return b.String()
}

// spread has the letters a to h in three partitions; their times follow the alphabet.
func (a *api) spread(name string) string {
	a.t.Helper()
	path := a.topic(name, 3, object{"retention.ms": -1})
	for i, c := range "abcdefgh" {
		a.records(path, object{"value": string(c), "key": strings.ToUpper(string(c)), "partition": i * 5 % 3, "timestamp": 1000 + i*10})
	}
	return path
}

func TestAPageIsOneSequenceOfAllPartitions(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.spread("browse.order")
	for query, want := range map[string]string{
		"": "abcdefgh", "?from=earliest": "abcdefgh", "?direction=forward": "abcdefgh", "?from=latest": "",
		"?from=1030": "defgh", "?from=1031": "efgh", "?from=0": "abcdefgh", "?from=99999": "",
		"?direction=backward": "hgfedcba", "?direction=backward&from=latest": "hgfedcba", "?direction=backward&from=1030": "cba",
		"?direction=backward&from=earliest": "", "?direction=backward&max_records=2": "hg",
		"?to=1030": "abc", "?to=1031": "abcd", "?to=0": "", "?from=1010&to=1040": "bcd", "?direction=backward&to=1040": "dcba",
		"?partitions=0": "adg", "?partitions=2,1": "bcefh", "?partitions=0&direction=backward": "gda",
		"?max_records=3": "abc", "?max_bytes=1": "a", "?max_bytes=4": "ab", "?max_bytes=5": "ab", "?max_bytes=6": "abc",
		"?q=c": "c", "?q=C&q_in=key": "c", "?q=C&q_in=value": "", "?q=C&q_in=headers,value": "", "?key=D": "d", "?key=d": "", "?q=": "abcdefgh",
		"?isolation=read_uncommitted": "abcdefgh", "?follow=false&count=false": "abcdefgh",
	} {
		require.Equal(t, want, a.browse(path, query).values(), query)
	}
}

// Where times do not follow the offsets, the order of offsets comes first.
func TestTheNextRecordOfEachPartitionCompetes(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("browse.disorder", 2, object{"retention.ms": -1})
	for _, r := range []struct {
		value         string
		partition, ts int
	}{{"a", 0, 100}, {"b", 0, 10}, {"x", 1, 50}, {"y", 1, 100}, {"c", 0, 100}} {
		a.records(path, object{"value": r.value, "partition": r.partition, "timestamp": r.ts})
	}
	require.Equal(t, "xabcy", a.browse(path, "").values())
	require.Equal(t, "ycxba", a.browse(path, "?direction=backward").values(), "y and c have one time, and the greater partition is first")
}

func TestPagesByCursor(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.spread("browse.pages")
	for _, dir := range []string{"forward", "backward"} {
		first := a.browse(path, "?max_records=3&direction="+dir)
		require.Nil(t, first.Prev, "this is the first page")
		require.Equal(t, "max-records", first.End.Reason)
		a.records(path, object{"value": "later", "timestamp": 1100}) // beyond the bound of the first page
		second := a.browse(path, "?max_records=3&cursor="+*first.Next)
		last := a.browse(path, "?max_records=3&cursor="+*second.Next+"&direction="+dir)
		all := first.values() + second.values() + last.values()
		if dir == "forward" {
			require.Equal(t, "abcdefgh", all)
			require.Equal(t, "latest", last.End.Reason)
		} else {
			require.Equal(t, "laterhgfedcba", all, "the later record was there when this read began")
		}
		require.Equal(t, last.End.Reason == "latest" || last.End.Reason == "earliest", last.Next == nil)
		again := a.browse(path, "?max_records=3&cursor="+*second.Prev)
		require.Equal(t, first.values(), again.values(), "the page before, in the same order")
		require.Nil(t, again.Prev)
		forth := a.browse(path, "?max_records=3&cursor="+*again.Next)
		require.Equal(t, second.values(), forth.values())
		other := map[string]string{"forward": "backward", "backward": "forward"}[dir]
		back := a.browse(path, "?max_records=3&cursor="+*second.Prev+"&direction="+other)
		require.Equal(t, first.values(), reversed(back), "the other direction from the same place")
	}
	end := a.browse(path, "?from=latest")
	require.Nil(t, end.Next)
	a.records(path, object{"value": "new", "timestamp": 2000})
	require.Equal(t, "new", a.browse(path, "?cursor="+end.End.Cursor).values(), "end.cursor goes on behind the end")
}

func reversed(p *browsed) string {
	out := ""
	for _, r := range p.Records {
		out = fmt.Sprint(r.Value) + out
	}
	return out
}

func TestACursorHasItsFilter(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("browse.filter", 2, nil)
	for i := range 20 {
		a.records(path, object{"value": fmt.Sprint(i%3, "-", i), "key": fmt.Sprint("k", i%2)})
	}
	got, query := "", "?q=1-&key=k1&max_records=1"
	for range 10 {
		p := a.browse(path, query)
		got += p.values() + " "
		if p.Next == nil {
			break
		}
		query = "?max_records=1&cursor=" + *p.Next
	}
	require.Equal(t, []string{"1-1", "1-7", "1-13", "1-19"}, strings.Fields(got))
	p := a.browse(path, "?q=1-&key=k1&max_records=1")
	require.Equal(t, "0-3", a.browse(path, "?q=0-&max_records=1&cursor="+*p.Next).values(), "what is given wins over the cursor's")
}

func TestFiltersLookAtBytes(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("browse.bytes", 1, nil)
	wants(t, a.post(path+"/records", `{"records":[
		{"key":"/w==","key_encoding":"base64","value":"binary key"},
		{"key":null,"value":"null key"},
		{"key":"","value":"empty key"},
		{"value":{"needle":1},"headers":[{"name":"n","value":"hay"},{"name":"h needle","value":null}]},
		{"value":"é","headers":[{"name":"n","value":"a needle"}]}]}`), 200, "")
	for query, want := range map[string][]int64{
		"key=%FF": {0}, "key=": {2}, "q=needle": {3, 4}, "q=needle&q_in=headers": {3, 4}, "q=needle&q_in=value": {3},
		"q=%C3%A9": {4}, "q=%A9": {4}, "q=key": {0, 1, 2}, "q=Needle": nil, "q=null+key": {1},
	} {
		var got []int64
		for _, r := range a.browse(path, "?"+query).Records {
			got = append(got, r.Offset)
		}
		require.Equal(t, want, got, query)
	}
}

func TestWhatWasScannedIsTold(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.spread("browse.scanned")
	p := a.browse(path, "?q=c")
	require.Equal(t, int64(8), p.Scanned.Records)
	require.Equal(t, int64(16), p.Scanned.Bytes)
	require.Nil(t, p.Count)
	require.Len(t, p.Scanned.Partitions, 3)
	for i, n := range []int64{3, 2, 3} {
		require.Equal(t, i, p.Scanned.Partitions[i].Partition)
		require.Zero(t, p.Scanned.Partitions[i].From)
		require.Equal(t, n, p.Scanned.Partitions[i].To)
	}
	p = a.browse(path, "?direction=backward&max_records=1")
	require.Equal(t, int64(1), p.Scanned.Records)
	require.Equal(t, int64(1), p.Scanned.Partitions[2].From+1-p.Scanned.Partitions[2].To+1, "one record of the partition that has the latest")
}

func TestCounting(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("browse.count", 3, nil)
	records := []object{}
	for i := range 500 {
		records = append(records, object{"value": fmt.Sprint("v", i%10)})
	}
	a.records(path, records...)
	p := a.browse(path, "?count=true&q=v3")
	require.Equal(t, int64(50), *p.Count)
	require.Equal(t, int64(50), *p.End.Count)
	require.Empty(t, p.Records)
	require.Equal(t, "latest", p.End.Reason)
	require.Equal(t, int64(500), *a.browse(path, "?count=true").Count, "the page's usual bound is none for a count")
	p = a.browse(path, "?count=true&max_records=7")
	require.Equal(t, int64(7), *p.Count)
	require.Equal(t, "max-records", p.End.Reason)
	require.Equal(t, int64(493), *a.browse(path, "?count=true&cursor="+*p.Next).Count)
}

func TestPreviews(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("browse.preview", 1, nil)
	a.records(path,
		object{"key": "a key", "value": object{"long": strings.Repeat("x", 100)}, "headers": []object{{"name": "name", "value": "value"}}},
		object{"key": nil, "value": "éé"}, object{"value": "abc"}, object{"value": nil})
	p := a.browse(path, "?preview_bytes=3")
	require.Equal(t, "{\"l", p.Records[0].Value)
	require.Equal(t, "text", p.Records[0].ValueEncoding)
	require.Equal(t, "a k", p.Records[0].Key)
	require.Equal(t, []any{int64(5), int64(111), int64(9), true},
		[]any{*p.Records[0].Preview.KeyBytes, *p.Records[0].Preview.ValueBytes, p.Records[0].Preview.HeaderBytes, p.Records[0].Preview.Truncated})
	require.Equal(t, "é", p.Records[1].Value, "characters stay whole")
	require.Nil(t, p.Records[1].Preview.KeyBytes)
	require.Equal(t, "abc", p.Records[2].Value)
	require.False(t, p.Records[2].Preview.Truncated)
	require.Nil(t, p.Records[3].Value)
	require.Len(t, a.browse(path, "?preview_bytes=0&max_bytes=5").Records, 4, "what is given counts")
	require.Equal(t, "a key", a.browse(path, "").Records[0].Key)
	require.Nil(t, a.browse(path, "").Records[0].Preview)
	cut := decoded(t, a.get(path+"/records?preview_bytes=3"), 200)["records"].([]any)[0]
	wants(t, a.post(path+"/records", object{"records": []any{cut}}), 422, "invalid-argument")

	one := path + "/partitions/0/records"
	require.Equal(t, cut, decoded(t, a.get(one+"?offset=0&preview_bytes=3"), 200)["records"].([]any)[0], "a fetch gives the same")
	for _, wait := range []string{"", "&wait_ms=60000&min_bytes=100"} { // what is there ends the wait, not what is given
		few := decoded(t, a.get(one+"?offset=0&preview_bytes=0&max_bytes=5"+wait), 200)["records"]
		require.Len(t, few, 4, "what is given counts")
	}
	require.Equal(t, cut, decoded(t, a.get(one+"/0?preview_bytes=3"), 200))
	line, _, _ := strings.Cut(string(wants(t, a.getAs("application/x-ndjson", one+"?offset=0&preview_bytes=3"), 200, "").Body), "\n")
	require.Contains(t, line, `"truncated":true`)
	require.Len(t, wants(t, a.getAs("application/octet-stream", one+"/0?preview_bytes=3"), 200, "").Body, 111, "bytes come whole")
	for _, bad := range []string{"-1", "1048577", "x", ""} {
		wants(t, a.get(one+"?offset=0&preview_bytes="+bad), 422, "invalid-argument")
		wants(t, a.get(one+"/0?preview_bytes="+bad), 422, "invalid-argument")
	}
}

// A search that finds little ends after its time with what it has and a cursor.
func TestASparseSearchComesInPages(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("browse.sparse", 4, nil)
	batch := make([]object, 2000)
	for i := range batch {
		batch[i] = object{"value": strings.Repeat("hay ", 50)}
	}
	for i := range 12 {
		batch[1234]["value"] = fmt.Sprint("needle ", i)
		a.records(path, batch...)
	}
	found, query, pages := 0, "?q=needle&max_time_ms=1", 0
	var scanned int64
	for ; pages < 10_000; pages++ {
		p := a.browse(path, query)
		found += len(p.Records)
		scanned += p.Scanned.Records
		if p.Next == nil {
			break
		}
		require.Positive(t, p.Scanned.Records, "each page goes on")
		require.Equal(t, "max-time", p.End.Reason)
		query = "?max_time_ms=1&cursor=" + *p.Next
	}
	require.Equal(t, 12, found)
	require.Equal(t, int64(24_000), scanned, "nothing was looked at twice")
}

func TestDeletedRecordsAreSkippedBetweenPages(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("browse.deleted", 1, nil)
	for i := range 10 {
		a.records(path, object{"value": fmt.Sprint(i)})
	}
	first := a.browse(path, "?max_records=2")
	back := a.browse(path, "?max_records=2&direction=backward")
	deletion := object{"partitions": []object{{"partition": 0, "before_offset": 7}}}
	wants(t, a.post(path+"/delete-records", deletion), 200, "")
	p := a.browse(path, "?cursor="+*first.Next)
	require.Equal(t, "789", p.values())
	require.Equal(t, int64(7), p.Scanned.Partitions[0].From, "the gap shows in what was scanned")
	p = a.browse(path, "?cursor="+*back.Next)
	require.Equal(t, "7", p.values())
	require.Equal(t, "earliest", p.End.Reason)
	require.Nil(t, p.Next)
}

func TestBadReadsOverPartitionsAreRefused(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.spread("browse.bad")
	good := a.browse(path, "?max_records=1")
	other := a.browse(a.spread("browse.bad2"), "?max_records=1&partitions=0,1")
	records := path + "/records"
	rows := map[string]refused{
		"partition 3":         {"GET", records + "?partitions=3", nil, 404, "unknown-partition", ""},
		"a cut cursor":        {"GET", records + "?cursor=" + (*good.Next)[:20], nil, 422, "invalid-argument", "query:cursor"},
		"a changed cursor":    {"GET", records + "?cursor=" + changed(*good.Next), nil, 422, "invalid-argument", "query:cursor"},
		"another topic's":     {"GET", records + "?cursor=" + *other.Next, nil, 422, "invalid-argument", "query:cursor"},
		"other partitions'":   {"GET", "/v1/topics/browse.bad2/records?partitions=0&cursor=" + *other.Next, nil, 422, "invalid-argument", "query:partitions"},
		"from and cursor":     {"GET", records + "?from=latest&cursor=" + *good.Next, nil, 422, "invalid-argument", "query:cursor"},
		"an over-long cursor": {"GET", records + "?cursor=" + strings.Repeat("A", 61_000), nil, 422, "invalid-argument", "query:cursor"},
	}
	for query, pointer := range map[string]string{
		"from=-1": "from", "from=first": "from", "from=": "from", "from=1.5": "from", "from=9223372036854775808": "from",
		"to=-1": "to", "to=latest": "to", "to=": "to", "direction=up": "direction", "direction=": "direction",
		"max_records=0": "max_records", "max_records=10001": "max_records", "max_bytes=0": "max_bytes", "max_bytes=67108865": "max_bytes",
		"max_time_ms=0": "max_time_ms", "max_time_ms=60001": "max_time_ms",
		"partitions=": "partitions", "partitions=-1": "partitions", "partitions=0,": "partitions", "partitions=0,0": "partitions", "partitions=x": "partitions", "partitions=2147483648": "partitions",
		"q_in=key": "q_in", "q=x&q_in=": "q_in", "q=x&q_in=keys": "q_in", "q=x&q_in=key,key": "q_in",
		"preview_bytes=-1": "preview_bytes", "preview_bytes=1048577": "preview_bytes", "count=1": "count", "follow=yes": "follow",
		"follow=true": "follow", "isolation=dirty": "isolation", "encoding=hex": "encoding", "key_encoding=hex": "key_encoding", "header_encoding=hex": "header_encoding",
		"cursor=": "cursor", "cursor=%00": "cursor", "offset=0": "offset", "wait_ms=1": "wait_ms", "ticket=x": "ticket",
		"q=" + strings.Repeat("x", 4097): "q", "key=" + strings.Repeat("x", 4097): "key",
	} {
		rows[query[:min(len(query), 60)]] = refused{"GET", records + "?" + query, nil, 422, "invalid-argument", "query:" + pointer}
	}
	check(t, a, rows)
	for name, c := range map[string]struct{ accept, query, pointer string }{
		"follow of CSV":            {"text/csv", "follow=true", "query:follow"},
		"follow backward":          {"application/x-ndjson", "follow=true&direction=backward", "query:follow"},
		"a count as CSV":           {"text/csv", "count=true", "query:count"},
		"a time for a stream":      {"text/event-stream", "max_time_ms=5", "query:max_time_ms"},
		"a page before, in NDJSON": {"application/x-ndjson", "cursor=" + *a.browse(path, "?max_records=1&cursor="+*good.Next).Prev, "query:cursor"},
	} {
		x := a.Do(request{Method: "GET", Path: records + "?" + c.query, Token: a.admin, Header: map[string]string{"Accept": c.accept}})
		wants(t, x, 422, "invalid-argument")
		require.Equal(t, []string{c.pointer}, pointers(t, x), name)
	}
	x := a.Do(request{Method: "GET", Path: records, Token: a.admin, Header: map[string]string{"Accept": "text/event-stream", "Last-Event-ID": "x"}})
	require.Equal(t, []string{"header:Last-Event-ID"}, pointers(t, wants(t, x, 422, "invalid-argument")))
}

// changed is a cursor with another character in the middle.
func changed(cursor string) string {
	b := []byte(cursor)
	at := len(b) / 2
	b[at] = "AB"[b2i(b[at] == 'A')]
	return string(b)
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

func TestACursorOfADeletedTopicIsNotOneOfItsSuccessor(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.spread("browse.again")
	p := a.browse(path, "?max_records=1")
	wants(t, a.remove(path), 204, "")
	wants(t, a.get(path+"/records?cursor="+*p.Next), 404, "unknown-topic")
	a.spread("browse.again")
	wants(t, a.get(path+"/records?cursor="+*p.Next), 422, "invalid-argument")
}

// accept reads a whole stream.
func (a *api) accept(mediaType, target string, more ...string) *answer {
	a.t.Helper()
	h := map[string]string{"Accept": mediaType}
	for i := 0; i+1 < len(more); i += 2 {
		h[more[i]] = more[i+1]
	}
	return wants(a.t, a.Do(request{Method: "GET", Path: target, Token: a.admin, Header: h}), 200, "")
}

func TestAStreamOfLines(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.spread("browse.lines")
	x := a.accept("application/x-ndjson", path+"/records")
	require.Equal(t, "application/x-ndjson", x.Header.Get("Content-Type"))
	require.Equal(t, "no-store", x.Header.Get("Cache-Control"))
	lines := strings.Split(strings.TrimSuffix(string(x.Body), "\n"), "\n")
	require.Len(t, lines, 9)
	for i, line := range lines[:8] {
		var v struct{ Record struct{ Value string } }
		require.NoError(t, json.Unmarshal([]byte(line), &v))
		require.Equal(t, string("abcdefgh"[i]), v.Record.Value)
	}
	var last struct {
		End struct{ Reason, Cursor string }
	}
	require.NoError(t, json.Unmarshal([]byte(lines[8]), &last))
	require.Equal(t, "latest", last.End.Reason)
	a.records(path, object{"value": "i", "timestamp": 5000})
	require.Equal(t, "i", a.browse(path, "?cursor="+last.End.Cursor).values())

	x = a.accept("application/x-ndjson", path+"/records?direction=backward&max_records=2")
	require.Equal(t, 2, strings.Count(string(x.Body), `{"record":`))
	require.Contains(t, string(x.Body), `{"end":{"reason":"max-records"`)
	x = a.accept("application/x-ndjson", path+"/records?count=true&to=1020")
	require.Regexp(t, `^\{"end":\{"reason":"latest","cursor":"[^"]+","count":2\}\}\n$`, string(x.Body))
	many := make([]object, 3000)
	for i := range many {
		many[i] = object{"value": strings.Repeat("x", 100)}
	}
	a.records(path, many...)
	x = a.accept("application/x-ndjson", path+"/records")
	require.Equal(t, 3009, strings.Count(string(x.Body), `{"record":`), "max_records bounds a page, and a stream only when given")
}

// event is a server-sent event.
type event struct{ name, id, data string }

// events parses a stream of events as the HTML standard says; id must come before data.
func events(t testing.TB, body string) []event {
	t.Helper()
	var out []event
	for block := range strings.SplitSeq(body, "\n\n") {
		var e event
		for line := range strings.SplitSeq(block, "\n") {
			name, value, _ := strings.Cut(line, ": ")
			switch name {
			case "event":
				e.name = value
			case "id":
				require.Empty(t, e.data, "id comes before data")
				e.id = value
			case "data":
				e.data = value
			}
		}
		if e.data != "" {
			out = append(out, e)
		}
	}
	return out
}

func TestAStreamOfEvents(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.spread("browse.events")
	x := a.accept("text/event-stream", path+"/records")
	require.Equal(t, "text/event-stream", x.Header.Get("Content-Type"))
	all := events(t, string(x.Body))
	require.Len(t, all, 9)
	require.Equal(t, "end", all[8].name)
	for i, e := range all[:8] {
		require.Equal(t, "record", e.name)
		require.Regexp(t, cursorText, e.id)
		rest := events(t, string(a.accept("text/event-stream", path+"/records?from=latest", "Last-Event-ID", e.id).Body))
		require.Len(t, rest, 8-i, "it resumes behind the event, whatever from says")
		for j, r := range rest[:len(rest)-1] {
			require.Equal(t, all[i+1+j].data, r.data)
		}
		page := a.browse(path, "?cursor="+e.id)
		require.Equal(t, "abcdefgh"[i+1:], page.values(), "an id is a cursor like others")
	}
	first := all[0].id
	rest := events(t, string(a.accept("text/event-stream", path+"/records?cursor="+all[5].id, "Last-Event-ID", first).Body))
	require.Len(t, rest, 8, "Last-Event-ID wins over cursor")
}

func TestCSV(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("browse.csv", 1, object{"retention.ms": -1})
	wants(t, a.post(path+"/records", `{"records":[
		{"key":"=1+1","value":"a \"quoted\", value\r\nof two lines","timestamp":1000},
		{"key":null,"value":{"n":[1]},"headers":[{"name":"h","value":"v"}],"timestamp":1001},
		{"key":"","value":"/w==","value_encoding":"base64","timestamp":1002},
		{"key":"'quote","value":"@cmd","timestamp":1003},
		{"key":"-5","value":null,"timestamp":1004}]}`), 200, "")
	x := a.accept("text/csv", path+"/records")
	require.Equal(t, "text/csv; charset=utf-8; header=present", x.Header.Get("Content-Type"))
	require.Equal(t, strings.Count(string(x.Body), "\n"), strings.Count(string(x.Body), "\r\n"), "lines end with CR LF")
	rows, err := csv.NewReader(strings.NewReader(string(x.Body))).ReadAll()
	require.NoError(t, err)
	one := "browse.csv"
	require.Equal(t, [][]string{
		{"topic", "partition", "offset", "timestamp", "timestamp_type", "key", "key_encoding", "value", "value_encoding", "headers"},
		{one, "0", "0", "1000", "CreateTime", "'=1+1", "text", "a \"quoted\", value\nof two lines", "text", "[]"},
		{one, "0", "1", "1001", "CreateTime", "", "null", `{"n":[1]}`, "json", `[{"name":"h","value":"v","encoding":"text"}]`},
		{one, "0", "2", "1002", "CreateTime", "", "text", "/w==", "base64", "[]"},
		{one, "0", "3", "1003", "CreateTime", "''quote", "text", "'@cmd", "text", "[]"},
		{one, "0", "4", "1004", "CreateTime", "'-5", "text", "", "null", "[]"},
	}, rows)
	x = a.accept("text/csv", path+"/records?from="+url.QueryEscape("latest"))
	require.Equal(t, 1, strings.Count(string(x.Body), "\n"), "the header row alone")
}
