package api

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewire/storage/record"
)

// once sends a request with an Idempotency-Key.
func (a *api) once(key, target, body string, more headers) *answer {
	a.t.Helper()
	h := headers{"Content-Type": "application/json", "Idempotency-Key": key}
	for k, v := range more {
		h[k] = v
	}
	return a.do("POST", target, []byte(body), h)
}

func replayed(x *answer) string { return x.Header.Get("Idempotency-Replayed") }

func TestARepeatAnswersTheFirstResult(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("once.repeat", 3, nil)
	body := `{"records":[{"key":"a","value":1},{"key":"b","value":2},{"value":"keyless"},{"value":"too"},{"key":"a","value":3,"timestamp":1700000000000}]}`
	first := a.once("order-1", path+"/records", body, nil)
	want := decoded(t, first, 200)
	require.Empty(t, replayed(first))
	ends := a.ends(path, 3)
	for _, more := range []headers{nil, {"Content-Type": "application/json; charset=utf-8"}} {
		again := a.once("order-1", path+"/records", body, more)
		require.Equal(t, want, decoded(t, again, 200), "offsets and timestamps are those of the first")
		require.Equal(t, "true", replayed(again))
	}
	spaced := a.once("order-1", path+"/records", " "+strings.ReplaceAll(body, "},{", "}, {"), nil)
	require.Equal(t, want, decoded(t, spaced, 200), "what counts is the records")
	for _, acks := range []string{"leader", "all"} {
		require.Equal(t, want, decoded(t, a.once("order-1", path+"/records?acks="+acks, body, nil), 200))
	}
	none := a.once("order-1", path+"/records?acks=none", body, nil)
	require.EqualValues(t, 5, number(t, decoded(t, none, 202)["accepted"]))
	require.Equal(t, "true", replayed(none))
	require.Equal(t, ends, a.ends(path, 3), "nothing was appended again")

	other := a.once("order-2", path+"/records", body, nil)
	require.Empty(t, replayed(other), "another key is another request")
	require.NotEqual(t, want, decoded(t, other, 200))
}

// ends are the log ends of a topic's partitions.
func (a *api) ends(path string, n int) (out []int64) {
	for p := range n {
		out = append(out, a.logEnd(path, p))
	}
	return out
}

func TestFiftyRetriesAtOnceAppendOnce(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	for _, acks := range []string{"all", "leader"} {
		path := a.topic("once.fifty."+acks, 4, nil)
		var records []string
		for i := range 20 {
			records = append(records, fmt.Sprintf(`{"key":"k%d","value":%d}`, i, i))
		}
		body := `{"records":[` + strings.Join(records, ",") + `]}`
		answers := make([]*answer, 50)
		var wg sync.WaitGroup
		for i := range answers {
			wg.Go(func() { answers[i] = a.once("k", path+"/records?acks="+acks, body, nil) })
		}
		wg.Wait()
		fresh := 0
		for _, x := range answers {
			require.Equal(t, decoded(t, answers[0], 200), decoded(t, x, 200))
			if replayed(x) == "" {
				fresh++
			} else {
				require.Equal(t, "true", replayed(x))
			}
		}
		require.Equal(t, 1, fresh)
		var total int64
		for _, n := range a.ends(path, 4) {
			total += n
		}
		require.EqualValues(t, 20, total)
	}
}

func TestAKeyWithAnotherPayloadIs422(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("once.reused", 4, nil)
	one := `{"records":[{"key":"a","value":"x","headers":[{"name":"h","value":"v"}]}]}`
	decoded(t, a.once("k", path+"/records", one, nil), 200)
	ends := a.ends(path, 4)
	for name, body := range map[string]string{
		"another value":     `{"records":[{"key":"a","value":"y","headers":[{"name":"h","value":"v"}]}]}`,
		"null":              `{"records":[{"key":"a","headers":[{"name":"h","value":"v"}]}]}`,
		"another key":       `{"records":[{"key":"b","value":"x","headers":[{"name":"h","value":"v"}]}]}`,
		"another header":    `{"records":[{"key":"a","value":"x","headers":[{"name":"h","value":"w"}]}]}`,
		"moved bytes":       `{"records":[{"key":"a","value":"xh","headers":[{"name":"","value":"v"}]}]}`,
		"a timestamp":       `{"records":[{"key":"a","value":"x","headers":[{"name":"h","value":"v"}],"timestamp":1}]}`,
		"one record more":   `{"records":[{"key":"a","value":"x","headers":[{"name":"h","value":"v"}]},{"value":"x"}]}`,
		"another partition": `{"records":[{"key":"a","value":"x","headers":[{"name":"h","value":"v"}],"partition":3}]}`,
		"a partition key":   `{"records":[{"key":"a","value":"x","headers":[{"name":"h","value":"v"}],"partition_key":"a"}]}`,
	} {
		x := wants(t, a.once("k", path+"/records", body, nil), 422, "idempotency-key-reused")
		require.Contains(t, string(x.Body), `"outcome":"not-applied"`, name)
	}
	wants(t, a.once("k", path+"/records", "raw", headers{"Content-Type": "text/plain"}), 422, "idempotency-key-reused")
	require.Equal(t, ends, a.ends(path, 4))
}

func TestKeysAreOfOneUserAndOneTopic(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path, second := a.topic("once.mine", 1, nil), a.topic("once.yours", 1, nil)
	writer := a.login2("once.writer")
	a.rule("once.writer", rule{"allow", "literal", "write", "topic", "once.mine"})
	body := `{"records":[{"value":"x"}]}`
	decoded(t, a.once("k", path+"/records", body, nil), 200)
	require.Empty(t, replayed(a.once("k", second+"/records", body, nil)))
	x := a.once("k", path+"/records", body, headers{"Authorization": "Bearer " + writer})
	require.Equal(t, []int64{1}, offsets(t, x), "another user's key is another key")
	wants(t, a.once("k", second+"/records", body, headers{"Authorization": "Bearer " + writer}), 403, "forbidden")
}

func TestWhatAnIdempotencyKeyMayBe(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("once.keys", 1, nil)
	body := `{"records":[{"value":"x"}]}`
	for i, key := range []string{"x", strings.Repeat("k", 255), `"quoted-uuid"`, "with space ~!@#$%^&*()"} {
		require.Equal(t, []int64{int64(i)}, offsets(t, a.once(key, path+"/records", body, nil)))
		require.Equal(t, "true", replayed(a.once(key, path+"/records", body, nil)))
	}
	end := a.logEnd(path, 0)
	for name, h := range map[string]headers{
		"empty":           {"Idempotency-Key": " "},
		"too long":        {"Idempotency-Key": strings.Repeat("k", 256)},
		"not ASCII":       {"Idempotency-Key": "clé"},
		"with lines":      {"Content-Type": "application/x-ndjson"},
		"with a producer": {"Tidewire-Producer-Id": "0", "Tidewire-Producer-Epoch": "0", "Tidewire-Sequence": "0"},
	} {
		x := wants(t, a.once("k", path+"/records", body, h), 422, "invalid-argument")
		require.Equal(t, []string{"header:Idempotency-Key"}, pointers(t, x), name)
	}
	require.Equal(t, end, a.logEnd(path, 0))
	off := a.topic("once.off", 1, object{"dedupe.window.ms": 0})
	x := wants(t, a.once("k", off+"/records", body, nil), 422, "invalid-argument")
	require.Equal(t, []string{"header:Idempotency-Key"}, pointers(t, x))
}

func TestASliceWithAKeyIsOneBatch(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("once.large", 2, object{"max.message.bytes": 1000})
	part := path + "/partitions/0/records"
	fits := fmt.Sprintf(`{"records":[{"value":%q}]}`, strings.Repeat("x", 1000-61-10))
	decoded(t, a.do("POST", part, []byte(fits), headers{"Content-Type": "application/json"}), 200)
	decoded(t, a.once("fits", part, fits, nil), 200) // what the node adds does not count
	large := fmt.Sprintf(`{"records":[{"value":%q,"partition":0},{"value":%q,"partition":0},{"value":"y","partition":1}]}`, strings.Repeat("x", 600), strings.Repeat("x", 600))
	decoded(t, a.do("POST", path+"/records", []byte(large), headers{"Content-Type": "application/json"}), 200)
	ends := a.ends(path, 2)
	wants(t, a.once("large", path+"/records", large, nil), 413, "record-too-large")
	require.Equal(t, ends, a.ends(path, 2), "nothing of the other partition either")
}

func TestDedupeComesBeforeAnExpectedOffset(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("once.expected", 1, nil)
	body := `{"records":[{"value":"x"}]}`
	at := func(key string, off int) *answer {
		return a.once(key, path+"/partitions/0/records", body, headers{"Tidewire-Expected-Offset": fmt.Sprint(off)})
	}
	require.Equal(t, []int64{0}, offsets(t, at("a", 0)))
	require.Equal(t, []int64{0}, offsets(t, at("a", 0)), "the first time has moved the log end")
	require.Equal(t, []int64{0}, offsets(t, at("a", 7)))
	wants(t, at("b", 0), 412, "offset-mismatch")
	require.Equal(t, []int64{1}, offsets(t, at("b", 1)), "a refused request has used no key")
}

func TestARepeatIsFoundThoughTheTopicHasGrown(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("once.grown", 2, nil)
	var records []string
	for i := range 12 {
		records = append(records, fmt.Sprintf(`{"key":"k%d","value":%d}`, i, i))
	}
	body := `{"records":[` + strings.Join(records, ",") + `,{"value":"keyless"}]}`
	want := decoded(t, a.once("k", path+"/records", body, nil), 200)
	decoded(t, a.do("PATCH", path, []byte(`{"partitions":7}`), headers{"Content-Type": "application/json"}), 200)
	again := a.once("k", path+"/records", body, nil)
	require.Equal(t, want, decoded(t, again, 200))
	require.Equal(t, "true", replayed(again))
	require.Equal(t, []int64{0, 0, 0, 0, 0}, a.ends(path, 7)[2:])
}

func TestADeletedTopicForgetsItsKeys(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("once.again", 1, nil)
	body := `{"records":[{"value":"x"}]}`
	decoded(t, a.once("k", path+"/records", body, nil), 200)
	require.Equal(t, 204, a.do("DELETE", path, nil, nil).Status)
	a.topic("once.again", 1, nil)
	x := a.once("k", path+"/records", body, nil)
	decoded(t, x, 200)
	require.Empty(t, replayed(x))
}

func TestRepeatsAreFoundAfterARestartAndWithoutTheRecords(t *testing.T) {
	t.Parallel()
	a := ownAPI(t)
	path := a.topic("once.restart", 2, object{"compression.type": "zstd", "segment.bytes": 65536})
	body := `{"records":[{"key":"a","value":"x"},{"key":"b","value":"y"},{"key":"c","value":"z"}]}`
	want := decoded(t, a.once("k", path+"/records", body, nil), 200)
	for range 2 {
		a.Restart()
		a.admin = a.Admin()
		x := a.once("k", path+"/records", body, nil)
		require.Equal(t, want, decoded(t, x, 200))
		require.Equal(t, "true", replayed(x))
	}
	decoded(t, a.post(path+"/delete-records", object{"partitions": []object{{"partition": 0, "before_offset": "high_watermark"}, {"partition": 1, "before_offset": "high_watermark"}}}), 200)
	a.Restart()
	a.admin = a.Admin()
	x := a.once("k", path+"/records", body, nil)
	require.Equal(t, want, decoded(t, x, 200), "also of records that are deleted")
}

func TestReadersDoNotSeeWhatAKeyAddsAndNobodySendsIt(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("once.hidden", 1, nil)
	body := `{"records":[{"key":"a","value":"x","headers":[{"name":"mine","value":"1"}]},{"value":"y"}]}`
	decoded(t, a.once("k", path+"/records", body, nil), 200)
	for _, target := range []string{"/partitions/0/records?offset=0", "/records?from=earliest", "/records?direction=backward", "/records?q=tidewire-idem"} {
		x := a.do("GET", path+target, nil, nil)
		require.Equal(t, 200, x.Status)
		require.NotContains(t, string(x.Body), "tidewire-idem", target)
	}
	got := decoded(t, a.do("GET", path+"/partitions/0/records?offset=0&max_bytes=7", nil, nil), 200)["records"].([]any)
	require.Len(t, got, 1, "it does not count for their limits")
	end := a.logEnd(path, 0)
	reserved := `{"records":[{"value":"x","headers":[{"name":"tidewire-idem","value":"1"}]}]}`
	wants(t, a.do("POST", path+"/records", []byte(reserved), headers{"Content-Type": "application/json"}), 422, "invalid-argument")
	wants(t, a.do("POST", path+"/records", []byte("x"), headers{"Content-Type": "text/plain", "Tidewire-Header-Tidewire-Idem": "1"}), 422, "invalid-argument")
	stored := a.do("GET", path+"/partitions/0/records?offset=0", nil, headers{"Accept": "application/vnd.kafka.record-batches"})
	require.Equal(t, 200, stored.Status)
	batches := headers{"Content-Type": "application/vnd.kafka.record-batches"}
	wants(t, a.do("POST", path+"/partitions/0/records", stored.Body, batches), 422, "invalid-record")
	b := record.NewBuilder(100)
	b.Add(1_700_000_000_000, nil, []byte("x"), []record.Header{{Name: []byte("tidewire-idem"), Value: []byte("1")}})
	forged, err := b.Finish(record.Zstd)
	require.NoError(t, err)
	wants(t, a.do("POST", path+"/partitions/0/records", forged, batches), 422, "invalid-record")
	require.Equal(t, end, a.logEnd(path, 0))
}

func TestRawBodiesAndBatchesMayHaveAKey(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("once.forms", 3, object{"retention.ms": -1}) // the batches are old
	raw := headers{"Content-Type": "application/octet-stream", "Tidewire-Header-Trace": "7"}
	want := decoded(t, a.once("raw", path+"/records?key=q", "\x00\xff", raw), 200)
	again := a.once("raw", path+"/records?key=q", "\x00\xff", raw)
	require.Equal(t, want, decoded(t, again, 200))
	require.Equal(t, "true", replayed(again))
	wants(t, a.once("raw", path+"/records?key=r", "\x00\xff", raw), 422, "idempotency-key-reused")

	for _, codec := range []record.Codec{record.None, record.Gzip, record.Snappy, record.LZ4, record.Zstd} {
		b := record.NewBuilder(100)
		b.Add(1_700_000_000_000, []byte("k"), []byte(strings.Repeat("v", 300)), []record.Header{{Name: []byte("h")}})
		b.Add(1_700_000_000_007, nil, nil, nil)
		batch, err := b.Finish(codec)
		require.NoError(t, err)
		key, target := "batch-"+fmt.Sprint(codec), path+"/partitions/1/records"
		h := headers{"Content-Type": "application/vnd.kafka.record-batches"}
		want := decoded(t, a.once(key, target, string(batch), h), 200)
		x := a.once(key, target, string(batch), h)
		require.Equal(t, want, decoded(t, x, 200))
		require.Equal(t, "true", replayed(x))
		wants(t, a.once(key, path+"/partitions/2/records", string(batch), h), 422, "idempotency-key-reused")
		wants(t, a.once(key+"-2", target, string(batch)+string(batch), h), 422, "invalid-argument")
		off := number(t, want["results"].([]any)[0].(object)["offset"])
		got := decoded(t, a.do("GET", fmt.Sprintf("%s?offset=%d&max_records=2", target, off), nil, nil), 200)["records"].([]any)
		require.Equal(t, strings.Repeat("v", 300), got[0].(object)["value"])
		require.Equal(t, []any{object{"name": "h", "value": nil, "encoding": nil}}, got[0].(object)["headers"])
		require.Nil(t, got[1].(object)["value"])
	}
}
