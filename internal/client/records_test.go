package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"tidewire/internal/client"
	"tidewire/internal/client/clienttest"
	"tidewire/internal/model"
	"tidewire/storage/record"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func produce(t *testing.T, s *clienttest.Server, in string, o client.ProduceOptions) (client.ProduceSummary, error) {
	t.Helper()
	if o.Topic == "" {
		o.Topic = "t"
	}
	if o.Format == "" {
		o.Format = client.NDJSON
	}
	if o.Acks == "" {
		o.Acks = "all"
	}
	if o.Batch == 0 {
		o.Batch = 1000
	}
	return newClient(t, s).Produce(context.Background(), strings.NewReader(in), o)
}

func values(recs []record.Record) (out []string) {
	for _, r := range recs {
		out = append(out, string(r.Value))
	}
	return out
}

func bodies(s *clienttest.Server) (out []string) {
	for _, c := range s.Calls() {
		if c.Method == http.MethodPost {
			out = append(out, c.Body)
		}
	}
	return out
}

func TestLinesGoIntoRequestsAsTheyAre(t *testing.T) {
	t.Parallel()
	s := clienttest.New(t)
	s.AddTopic("t", 1)
	in := `{"value":1.00}` + "\n\n" + `  { "key" : "\u003c", "value":{"a":30000000000000000001,"a":1}}  ` + "\r\n" + `{"value":null}`
	sum, err := produce(t, s, in, client.ProduceOptions{Batch: 2})
	require.NoError(t, err)
	assert.Equal(t, []string{
		`{"records":[{"value":1.00},{ "key" : "\u003c", "value":{"a":30000000000000000001,"a":1}}]}`,
		`{"records":[{"value":null}]}`,
	}, bodies(s))
	assert.Equal(t, "acks=all", s.Calls()[0].Query)
	assert.Equal(t, client.ProduceSummary{Lines: 4, Stored: 3, Requests: 2, Partitions: map[model.PartitionID]client.OffsetRange{0: {First: 0, Last: 2, Records: 3}}}, sum)
}

func TestManyRecordsKeepTheirOrderPerKey(t *testing.T) {
	t.Parallel()
	s := clienttest.New(t)
	s.AddTopic("t", 6)
	var in strings.Builder
	for i := range 30_000 {
		fmt.Fprintf(&in, "{\"key\":\"k%d\",\"value\":\"%d\"}\n", i%59, i)
	}
	sum, err := produce(t, s, in.String(), client.ProduceOptions{Batch: 700})
	require.NoError(t, err)
	assert.Equal(t, int64(30_000), sum.Stored)
	n := 0
	last := map[string]int{}
	for p := range 6 {
		for _, r := range s.Records("t", p) {
			var v int
			_, err := fmt.Sscan(string(r.Value), &v)
			require.NoError(t, err)
			if before, seen := last[string(r.Key)]; seen && before >= v {
				t.Fatalf("key %s: %d came after %d", r.Key, v, before)
			}
			last[string(r.Key)] = v
			n++
		}
	}
	assert.Equal(t, 30_000, n)
}

func TestALineThatIsNoRecordStopsAndIsNamed(t *testing.T) {
	t.Parallel()
	for name, line := range map[string]string{"text": "hello", "array": "[1]", "unknown field": `{"valeu":1}`, "cut": `{"value":`, "two": `{}{}`, "not UTF-8": "{\"value\":\"\xff\"}"} {
		s := clienttest.New(t)
		s.AddTopic("t", 1)
		sum, err := produce(t, s, "{\"value\":\"1\"}\n\n{\"value\":\"2\"}\n"+line+"\n{\"value\":\"3\"}\n", client.ProduceOptions{})
		var le *client.LineError
		require.ErrorAs(t, err, &le, name)
		assert.Equal(t, int64(4), le.Line, name)
		assert.ErrorContains(t, err, "--format lines", name)
		assert.Equal(t, []string{"1", "2"}, values(s.Records("t", 0)), "the lines before it are sent: %s", name)
		assert.Equal(t, int64(2), sum.Stored)
	}
}

func TestPlainLinesBecomeValues(t *testing.T) {
	t.Parallel()
	s := clienttest.New(t)
	s.AddTopic("t", 1)
	in := "plain \"quoted\"\t\n\n{\"a\":1}\r\n\xff\xfe\nlast"
	sum, err := produce(t, s, in, client.ProduceOptions{Format: client.Lines})
	require.NoError(t, err)
	assert.Equal(t, []string{"plain \"quoted\"\t", "", "{\"a\":1}\r", "\xff\xfe", "last"}, values(s.Records("t", 0)))
	assert.Equal(t, int64(5), sum.Stored)
}

func TestTheKeyIsTakenFromAField(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		format client.Format
		in     string
		key    string
		err    string
	}{
		{client.NDJSON, `{"value":{"id":"a\u0062","n":1}}`, "ab", ""},
		{client.NDJSON, `{"value":{"id":1.50}}`, "1.50", ""},
		{client.Lines, `{"id":"x","n":[]}`, "x", ""},
		{client.Lines, `{"id":{"b":1}}`, `{"b":1}`, ""},
		{client.NDJSON, `{"value":{"n":1}}`, "", `no field "id"`},
		{client.NDJSON, `{"value":"text"}`, "", "JSON objects"},
		{client.NDJSON, `{"key":"k","value":{"id":"a"}}`, "", "has a key already"},
		{client.Lines, `plain`, "", "JSON objects"},
	} {
		s := clienttest.New(t)
		s.AddTopic("t", 1)
		_, err := produce(t, s, c.in, client.ProduceOptions{Format: c.format, KeyField: "id"})
		if c.err != "" {
			require.ErrorContains(t, err, c.err, c.in)
			require.ErrorContains(t, err, "line 1", c.in)
			continue
		}
		require.NoError(t, err, c.in)
		require.Len(t, s.Records("t", 0), 1)
		assert.Equal(t, c.key, string(s.Records("t", 0)[0].Key), c.in)
		assert.NotEmpty(t, s.Records("t", 0)[0].Value)
	}
}

func TestALongLineIsReadWhole(t *testing.T) {
	t.Parallel()
	s := clienttest.New(t)
	s.AddTopic("t", 1)
	long := strings.Repeat("x", 3<<20)
	_, err := produce(t, s, "{\"value\":\""+long+"\"}\n{\"value\":\"y\"}", client.ProduceOptions{})
	require.NoError(t, err)
	assert.Equal(t, []string{long, "y"}, values(s.Records("t", 0)))
}

func TestWhatCertainlyFailedIsTriedAgain(t *testing.T) {
	t.Parallel()
	s := clienttest.New(t)
	s.AddTopic("t", 1)
	s.SetFault(func(n int, w http.ResponseWriter) bool {
		if n <= 2 {
			clienttest.Fail(w, model.LeaderUnavailable, "moving")
		}
		return n <= 2
	})
	sum, err := produce(t, s, `{"value":"1"}`, client.ProduceOptions{})
	require.NoError(t, err)
	assert.Equal(t, int64(2), sum.Retries)
	assert.Equal(t, []string{"1"}, values(s.Records("t", 0)))
}

func TestTheSummaryTellsFailedFromUnknown(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name            string
		fault           func(w http.ResponseWriter)
		failed, unknown int64
	}{
		{"refused", func(w http.ResponseWriter) { clienttest.Fail(w, model.Forbidden, "write on topic t") }, 2, 0},
		{"timeout", func(w http.ResponseWriter) { clienttest.Fail(w, model.Timeout, "not in time") }, 0, 2},
		{"500", func(w http.ResponseWriter) { clienttest.Fail(w, model.StorageError, "bad disk") }, 0, 2},
		{"proxy", func(w http.ResponseWriter) { w.WriteHeader(http.StatusBadGateway) }, 0, 2},
		{"cut", func(http.ResponseWriter) { panic(http.ErrAbortHandler) }, 0, 2},
		{"no JSON", func(w http.ResponseWriter) { _, _ = io.WriteString(w, "{") }, 0, 2},
		{"too few results", func(w http.ResponseWriter) { _, _ = io.WriteString(w, `{"results":[]}`) }, 0, 2},
		{"207", func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusMultiStatus)
			_, _ = io.WriteString(w, `{"results":[{"problem":{"code":"not-enough-replicas","status":503,"outcome":"not-applied"}},`+
				`{"problem":{"code":"timeout","status":504,"outcome":"unknown"}}]}`)
		}, 1, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := clienttest.New(t)
			s.AddTopic("t", 1)
			s.SetFault(func(n int, w http.ResponseWriter) bool {
				if n == 2 {
					c.fault(w)
				}
				return n == 2
			})
			in := strings.Repeat("{\"value\":\"x\"}\n", 6)
			sum, err := produce(t, s, in, client.ProduceOptions{Batch: 2})
			require.Error(t, err)
			assert.ErrorContains(t, err, "line")
			assert.Equal(t, int64(2), sum.Stored)
			assert.Equal(t, c.failed, sum.Failed)
			assert.Equal(t, c.unknown, sum.Unknown)
			assert.Equal(t, int64(2), sum.Requests, "it stops there")
		})
	}
}

// With a key for each request, what got no answer, or one that may become better, is sent
// again, and stored once.
func TestARequestWithAKeyIsSentAgainWhateverBecameOfIt(t *testing.T) {
	t.Parallel()
	const partly = `{"results":[{"partition":0,"offset":9},{"problem":{"code":"timeout","status":504,"retryable":true,"outcome":"unknown"}}]}`
	for name, fault := range map[string]func(w http.ResponseWriter){
		"timeout": func(w http.ResponseWriter) { clienttest.Fail(w, model.Timeout, "not in time") },
		"leader":  func(w http.ResponseWriter) { clienttest.Fail(w, model.LeaderUnavailable, "moving") },
		"proxy":   func(w http.ResponseWriter) { w.WriteHeader(http.StatusBadGateway) },
		"cut":     func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
		"207": func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusMultiStatus)
			_, _ = io.WriteString(w, partly)
		},
		"lost": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := clienttest.New(t)
			s.AddTopic("t", 1)
			at := func(n int) bool { return n >= 2 && n <= 4 } // what has a key is repeated by net/http, too
			if fault == nil {
				s.SetLost(at)
			} else {
				s.SetFault(func(n int, w http.ResponseWriter) bool {
					if at(n) {
						fault(w)
					}
					return at(n)
				})
			}
			var waits []string
			sum, err := produce(t, s, "{\"value\":\"a\"}\n{\"value\":\"b\"}\n{\"value\":\"c\"}\n{\"value\":\"d\"}\n", client.ProduceOptions{
				Batch: 2, Once: true, Waiting: func(lines string, why error) { waits = append(waits, lines) },
			})
			require.NoError(t, err)
			assert.Equal(t, []string{"a", "b", "c", "d"}, values(s.Records("t", 0)))
			assert.Equal(t, []string{"lines 3 to 4"}, waits, "told once")
			assert.Equal(t, int64(4), sum.Stored)
			assert.Zero(t, sum.Unknown+sum.Failed)
		})
	}
}

// What will not become better is not sent again, key or not.
func TestARequestWithAKeyThatIsRefusedIsNotSentAgain(t *testing.T) {
	t.Parallel()
	for _, code := range []model.Code{model.Forbidden, model.StorageError, model.InvalidRecord} {
		s := clienttest.New(t)
		s.AddTopic("t", 1)
		s.SetFault(func(_ int, w http.ResponseWriter) bool { clienttest.Fail(w, code, "no"); return true })
		sum, err := produce(t, s, "{}", client.ProduceOptions{Once: true})
		require.Error(t, err, code)
		assert.Equal(t, int64(1), sum.Requests, code)
	}
	s := clienttest.New(t)
	s.Close()
	sum, err := produce(t, s, "{}", client.ProduceOptions{Once: true})
	require.ErrorContains(t, err, "cannot reach")
	assert.Equal(t, int64(1), sum.Requests, "the address may be wrong")
}

// Where a topic remembers no keys, and for a batch that is too large to be one, requests go
// without.
func TestARequestGoesWithoutAKeyWhereItCannotHaveOne(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fields []model.FieldError
		code   model.Code
		keyed  int // requests that are refused for their key
	}{
		"none remembered": {[]model.FieldError{{Pointer: "header:Idempotency-Key", Detail: "dedupe.window.ms=0"}}, model.InvalidArgument, 1},
		"too large":       {nil, model.RecordTooLarge, 2},
	} {
		s := clienttest.New(t)
		s.AddTopic("t", 1)
		keys, keyed := map[bool]int{}, false
		s.OnCall(func(c clienttest.Call) { // before the fault; one request at a time
			keyed = c.Key != ""
			keys[keyed]++
		})
		s.SetFault(func(_ int, w http.ResponseWriter) bool {
			if keyed {
				clienttest.Fail(w, c.code, "no", c.fields...)
			}
			return keyed
		})
		sum, err := produce(t, s, strings.Repeat("{}\n", 4), client.ProduceOptions{Once: true, Batch: 2})
		require.NoError(t, err, name)
		assert.Equal(t, int64(4), sum.Stored, name)
		assert.Equal(t, map[bool]int{true: c.keyed, false: 2}, keys, name)
	}
}

func TestUnconfirmedRecordsAreCountedApart(t *testing.T) {
	t.Parallel()
	s := clienttest.New(t)
	s.AddTopic("t", 1)
	sum, err := produce(t, s, "{}\n{}", client.ProduceOptions{Acks: "none"})
	require.NoError(t, err)
	assert.Equal(t, int64(2), sum.Accepted)
	assert.Zero(t, sum.Stored)
}

func TestABatchThatDoesNotFillUpIsSentAfterItsLinger(t *testing.T) {
	t.Parallel()
	s := clienttest.New(t)
	s.AddTopic("t", 1)
	c := newClient(t, s)
	r, w := io.Pipe()
	sent := make(chan int64, 10)
	done := make(chan error, 1)
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := c.Produce(context.Background(), r, client.ProduceOptions{Topic: "t", Format: client.NDJSON, Acks: "all", Batch: 1000, Linger: 10 * time.Millisecond,
			Progress: func(s client.ProduceSummary) { sent <- s.Stored }})
		done <- err
	})
	for i := range int64(3) {
		_, _ = io.WriteString(w, "{}\n")
		assert.Equal(t, i+1, <-sent, "the input is still open")
	}
	_ = w.Close()
	require.NoError(t, <-done)
	wg.Wait()
}

func TestAnInterruptEndsProduceThatWaitsForInput(t *testing.T) {
	t.Parallel()
	s := clienttest.New(t)
	s.AddTopic("t", 1)
	c := newClient(t, s)
	r, w := io.Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	var wg sync.WaitGroup
	sent := make(chan struct{}, 1)
	wg.Go(func() {
		_, err := c.Produce(ctx, r, client.ProduceOptions{Topic: "t", Format: client.NDJSON, Acks: "all", Batch: 1,
			Progress: func(client.ProduceSummary) { sent <- struct{}{} }})
		done <- err
	})
	_, _ = io.WriteString(w, "{}\n")
	<-sent
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	_ = w.Close()
	wg.Wait()
}

func TestAFaultOfTheInputIsTold(t *testing.T) {
	t.Parallel()
	s := clienttest.New(t)
	s.AddTopic("t", 1)
	bad := errors.New("bad disk")
	in := io.MultiReader(strings.NewReader("{}\n"), iotestErr{bad})
	sum, err := newClient(t, s).Produce(context.Background(), in, client.ProduceOptions{Topic: "t", Format: client.NDJSON, Acks: "all", Batch: 10})
	require.ErrorIs(t, err, bad)
	assert.Equal(t, int64(1), sum.Stored)
}

type iotestErr struct{ err error }

func (r iotestErr) Read([]byte) (int, error) { return 0, r.err }

func fill(s *clienttest.Server, topic string, partitions, each int) {
	s.AddTopic(topic, partitions)
	for p := range partitions {
		for i := range each {
			s.Append(topic, p, record.Record{Timestamp: int64(100 * i), Key: fmt.Appendf(nil, "k%d", p), Value: fmt.Appendf(nil, `{"p":%d,"i":%d.00}`, p, i)})
		}
	}
}

func consume(t *testing.T, s *clienttest.Server, o client.ConsumeOptions) ([]string, error) {
	t.Helper()
	if o.From == "" {
		o.From = "earliest"
	}
	if o.Topics == nil {
		o.Topics = []string{"t"}
	}
	var out []string
	n, err := newClient(t, s).Consume(context.Background(), o, func(raw []byte) error { out = append(out, string(raw)); return nil })
	assert.Equal(t, int64(len(out)), n)
	return out, err
}

func TestConsumeEndsAtTheLatestOfItsStart(t *testing.T) {
	t.Parallel()
	s := clienttest.New(t)
	fill(s, "t", 3, 25)
	fill(s, "empty", 2, 0)
	s.SetPage(10)
	got, err := consume(t, s, client.ConsumeOptions{Topics: []string{"t", "empty"}})
	require.NoError(t, err)
	require.Len(t, got, 75)
	assert.Equal(t, `{"topic":"t","partition":0,"offset":0,"timestamp":0,"timestamp_type":"CreateTime","key":"k0","key_encoding":"text","value":{"p":0,"i":0.00},"value_encoding":"json","headers":[]}`, got[0])
	assert.Contains(t, got[74], `"partition":2,"offset":24`)
	// Records that come while it reads are left out.
	n := 0
	_, err = newClient(t, s).Consume(context.Background(), client.ConsumeOptions{Topics: []string{"t"}, From: "earliest"}, func([]byte) error {
		if n++; n == 1 {
			fill2 := record.Record{Value: []byte("late")}
			s.Append("t", 0, fill2, fill2)
			s.SetPage(1000)
		}
		return nil
	})
	require.NoError(t, err)
	assert.Equal(t, 75, n)
}

func TestConsumeStartsWhereItIsTold(t *testing.T) {
	t.Parallel()
	s := clienttest.New(t)
	fill(s, "t", 2, 10)
	three := model.Offset(3)
	for name, c := range map[string]struct {
		o client.ConsumeOptions
		n int
	}{
		"latest":       {client.ConsumeOptions{From: "latest"}, 0},
		"time":         {client.ConsumeOptions{From: "550"}, 8},
		"time beyond":  {client.ConsumeOptions{From: "99999"}, 0},
		"partition":    {client.ConsumeOptions{Partitions: []model.PartitionID{1}}, 10},
		"offset":       {client.ConsumeOptions{Partitions: []model.PartitionID{0}, Offset: &three}, 7},
		"max":          {client.ConsumeOptions{Max: 13}, 13},
		"max and time": {client.ConsumeOptions{Max: 3, From: "850"}, 2},
	} {
		got, err := consume(t, s, c.o)
		require.NoError(t, err, name)
		assert.Len(t, got, c.n, name)
	}
	_, err := consume(t, s, client.ConsumeOptions{Partitions: []model.PartitionID{2}})
	require.ErrorContains(t, err, "no partition 2")
	_, err = consume(t, s, client.ConsumeOptions{Topics: []string{"none"}})
	var p *client.Problem
	require.ErrorAs(t, err, &p)
	assert.Equal(t, model.UnknownTopic, p.Code)
}

func TestFollowGoesOnUntilItHasEnough(t *testing.T) {
	t.Parallel()
	s := clienttest.New(t)
	fill(s, "t", 2, 2)
	var out []string
	n, err := newClient(t, s).Consume(context.Background(), client.ConsumeOptions{Topics: []string{"t"}, From: "earliest", Follow: true, Max: 8}, func(raw []byte) error {
		if out = append(out, string(raw)); len(out) <= 4 {
			s.Append("t", len(out)%2, record.Record{Value: []byte("more")})
		}
		return nil
	})
	require.NoError(t, err)
	assert.Equal(t, int64(8), n)
}

// A stream that breaks goes on behind what it gave, without loss and without repeats; what
// will not pass ends it.
func TestFollowGoesOnAfterItsStreamBroke(t *testing.T) {
	t.Parallel()
	s := clienttest.New(t)
	fill(s, "t", 2, 10)
	s.BreakStreams(
		clienttest.Break{Records: 3},
		clienttest.Break{Records: 13}, // the three come again, and are passed over
		clienttest.Break{Records: 1, Line: `{"end":{"reason":"node-stopping","cursor":"CURSOR","count":null}}`},
		clienttest.Break{Records: 2, Line: `{"problem":{"status":401,"code":"token-expired","detail":"over"}}`},
		clienttest.Break{Records: 3, Line: `{"problem":{"status":503,"code":"leader-unavailable","retryable":true}}`},
	)
	var got, warned []string
	n, err := newClient(t, s).Consume(context.Background(), client.ConsumeOptions{
		Topics: []string{"t"}, From: "earliest", Follow: true, Max: 20, Warn: func(w string) { warned = append(warned, w) },
	}, func(raw []byte) error { got = append(got, string(raw)); return nil })
	require.NoError(t, err)
	require.Equal(t, int64(20), n)
	for i, raw := range got {
		require.Contains(t, raw, fmt.Sprintf(`"partition":%d,"offset":%d,`, i/10, i%10))
	}
	require.Len(t, warned, 5)

	s.BreakStreams(clienttest.Break{Records: 1, Line: `{"problem":{"status":403,"code":"forbidden","detail":"not any more"}}`})
	_, err = consume(t, s, client.ConsumeOptions{From: "earliest", Follow: true})
	var p *client.Problem
	require.ErrorAs(t, err, &p)
	assert.Equal(t, model.Forbidden, p.Code)
	_, err = consume(t, s, client.ConsumeOptions{Topics: []string{"none"}, Follow: true})
	require.ErrorAs(t, err, &p)
	assert.Equal(t, model.UnknownTopic, p.Code)
}

func TestFollowReadsThePartitionsThatItIsTold(t *testing.T) {
	t.Parallel()
	s := clienttest.New(t)
	fill(s, "t", 3, 4)
	got, err := consume(t, s, client.ConsumeOptions{From: "earliest", Follow: true, Max: 8, Partitions: []model.PartitionID{0, 2}})
	require.NoError(t, err)
	for _, raw := range got {
		assert.NotContains(t, raw, `"partition":1`)
	}
	two := model.Offset(2)
	got, err = consume(t, s, client.ConsumeOptions{Offset: &two, Follow: true, Max: 2, Partitions: []model.PartitionID{1}})
	require.NoError(t, err)
	assert.Contains(t, got[0], `"partition":1,"offset":2`)
}

func TestFollowEndsWithItsContext(t *testing.T) {
	t.Parallel()
	s := clienttest.New(t)
	fill(s, "t", 2, 1)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	seen := 0
	_, err := newClient(t, s).Consume(ctx, client.ConsumeOptions{Topics: []string{"t"}, From: "earliest", Follow: true}, func([]byte) error {
		if seen++; seen == 2 {
			cancel()
		}
		return nil
	})
	require.ErrorIs(t, err, context.Canceled)
}

func TestWhatConsumePrintsProduceTakes(t *testing.T) {
	t.Parallel()
	s := clienttest.New(t)
	s.AddTopic("a", 2)
	s.AddTopic("b", 2)
	recs := []record.Record{
		{Timestamp: 1, Key: nil, Value: nil},
		{Timestamp: 2, Key: []byte{}, Value: []byte{}},
		{Timestamp: 3, Key: []byte("null"), Value: []byte("null")},
		{Timestamp: 4, Key: []byte(`{}`), Value: []byte(`{"a":1.00,"a":9223372036854775807,"\u003c":"\u003c"}`)},
		{Timestamp: 5, Key: []byte{0xff}, Value: []byte("a\nb\r\x00\u2028"), Headers: []record.Header{
			{Name: []byte("h"), Value: nil}, {Name: []byte("h"), Value: []byte{0xfe}}, {Name: []byte("h"), Value: []byte{}}, {Name: []byte("\xff"), Value: []byte("x")}}},
		{Timestamp: 6, Value: []byte("[1,\n2]")},
		{Timestamp: 7, Value: []byte(`"\ud800"`)},
	}
	s.Append("a", 0, recs...)
	s.Append("a", 1, recs[3])
	var out bytes.Buffer
	_, err := newClient(t, s).Consume(context.Background(), client.ConsumeOptions{Topics: []string{"a"}, From: "earliest"}, client.Printer(&out, "json"))
	require.NoError(t, err)
	sum, err := produce(t, s, out.String(), client.ProduceOptions{Topic: "b", Batch: 3})
	require.NoError(t, err)
	assert.Equal(t, int64(8), sum.Stored)
	assert.Equal(t, s.Records("a", 0), s.Records("b", 0))
	assert.Equal(t, s.Records("a", 1), s.Records("b", 1))

	for output, want := range map[string]string{"value": "\n\nnull\n", "raw": "null"} {
		out.Reset()
		_, err = newClient(t, s).Consume(context.Background(), client.ConsumeOptions{Topics: []string{"a"}, From: "earliest", Max: 3}, client.Printer(&out, output))
		require.NoError(t, err)
		assert.Equal(t, want, out.String())
	}
}

func TestAnErrorOfTheOutputEndsConsume(t *testing.T) {
	t.Parallel()
	s := clienttest.New(t)
	fill(s, "t", 2, 5)
	broken := errors.New("pipe")
	for _, follow := range []bool{false, true} {
		_, err := newClient(t, s).Consume(context.Background(), client.ConsumeOptions{Topics: []string{"t"}, From: "earliest", Follow: follow}, func([]byte) error { return broken })
		require.ErrorIs(t, err, broken)
	}
}

func TestConsumeGoesOnBehindRecordsThatWereDeleted(t *testing.T) {
	t.Parallel()
	s := clienttest.New(t)
	fill(s, "t", 1, 30)
	s.SetPage(10)
	var warned []string
	n := 0
	_, err := newClient(t, s).Consume(context.Background(), client.ConsumeOptions{Topics: []string{"t"}, From: "earliest", Warn: func(w string) { warned = append(warned, w) }},
		func([]byte) error {
			if n++; n == 1 {
				s.Truncate("t", 0, 15)
			}
			return nil
		})
	require.NoError(t, err)
	assert.Equal(t, 25, n)
	require.Len(t, warned, 1)
	assert.Contains(t, warned[0], "offsets 10 to 14 were deleted")
	five := model.Offset(5)
	_, err = consume(t, s, client.ConsumeOptions{Partitions: []model.PartitionID{0}, Offset: &five})
	var p *client.Problem
	require.ErrorAs(t, err, &p, "an offset asked for by number is not moved")
	assert.Equal(t, model.OffsetOutOfRange, p.Code)
}
