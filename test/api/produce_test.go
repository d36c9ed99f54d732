package api

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// fetched reads all records of a partition from its start.
func (a *api) fetched(path string, partition int) []object {
	a.t.Helper()
	got := decoded(a.t, a.get(fmt.Sprintf("%s/partitions/%d/records?offset=earliest&max_records=10000", path, partition)), 200)
	out := []object{}
	for _, r := range got["records"].([]any) {
		out = append(out, r.(object))
	}
	return out
}

func TestAcksDecideTheAnswer(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("acks.topic", 1, nil)
	body := object{"records": []object{{"value": "a"}, {"value": "b"}}}
	next := int64(0)
	for _, c := range []struct {
		query, level string
		status       int
	}{
		{"", "all", 200}, {"?acks=all", "all", 200}, {"?acks=-1", "all", 200}, {"?acks=leader", "leader", 200}, {"?acks=1", "leader", 200},
		{"?acks=none", "none", 202}, {"?acks=0", "none", 202}, {"?acks=all&timeout_ms=600000", "all", 200},
	} {
		x := wants(t, a.post(path+"/records"+c.query, body), c.status, "")
		require.Equal(t, c.level, x.Header.Get("Tidewire-Acks"))
		if c.status == 202 {
			require.JSONEq(t, `{"accepted":2}`, string(x.Body))
			next += 2
			continue
		}
		for _, r := range decoded(t, x, 200)["results"].([]any) {
			require.Equal(t, next, number(t, r.(object)["offset"]), "%s: in request order, without gaps", c.query)
			next++
		}
	}
	require.Len(t, a.fetched(path, 0), int(next))
}

// TestKeysChooseAsKafkasClientsDo takes hashes from Kafka's own tests of murmur2
// (UtilsTest.testMurmur2), so that the expectation is not our code's.
func TestKeysChooseAsKafkasClientsDo(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	const n = 10
	path := a.topic("murmur.topic", n, nil)
	for key, hash := range map[string]int32{
		"21": -973932308, "foobar": -790332482, "a-little-bit-long-string": -985981536,
		"a-little-bit-longer-string": -1486304829, "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
	} {
		want := int64(hash&0x7fffffff) % n
		for i, r := range a.records(path,
			object{"key": key},
			object{"partition_key": key},
			object{"key": "another", "partition_key": key},
			object{"key": base64.StdEncoding.EncodeToString([]byte(key)), "key_encoding": "base64"},
		) {
			require.Equal(t, want, number(t, r.(object)["partition"]), "%s, record %d", key, i)
		}
		given := (want + 1) % n
		for _, r := range a.records(path, object{"key": key, "partition": given}, object{"partition_key": key, "partition": given}) {
			require.Equal(t, given, number(t, r.(object)["partition"]), "a given partition wins")
		}
	}
}

func TestRecordsWithoutKeyReachEveryPartition(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("keyless.topic", 3, nil)
	seen := map[int64]bool{}
	for range 30 {
		first := int64(-1)
		for _, r := range a.records(path, object{"value": "x"}, object{"value": "y"}) {
			p := number(t, r.(object)["partition"])
			require.True(t, first < 0 || first == p, "the records of one request stay together")
			first = p
		}
		seen[first] = true
	}
	require.Len(t, seen, 3)
}

func TestRecordsOfOneRequestKeepTheirOrderInEachPartition(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("order.topic", 3, nil)
	records := []object{}
	for i := range 300 {
		records = append(records, object{"key": fmt.Sprint(i % 7), "value": fmt.Sprint(i)})
	}
	results := a.records(path, records...)
	require.Len(t, results, 300)
	for p := range 3 {
		for offset, got := range a.fetched(path, p) {
			found := false
			for i, r := range results {
				if number(t, r.(object)["partition"]) == int64(p) && number(t, r.(object)["offset"]) == int64(offset) {
					require.Equal(t, fmt.Sprint(i), got["value"])
					found = true
				}
			}
			require.True(t, found)
		}
	}
}

func TestTimestamps(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("time.create", 1, object{"retention.ms": -1})
	before := time.Now().UnixMilli()
	results := a.records(path, object{"value": 1, "timestamp": 0}, object{"value": 1, "timestamp": 1234567890123}, object{"value": 1}, object{"value": 1, "timestamp": nil})
	after := time.Now().UnixMilli()
	records := a.fetched(path, 0)
	for i, r := range results {
		require.Equal(t, r.(object)["timestamp"], records[i]["timestamp"])
		require.Equal(t, "CreateTime", records[i]["timestamp_type"])
	}
	require.Equal(t, int64(0), number(t, records[0]["timestamp"]))
	require.Equal(t, int64(1234567890123), number(t, records[1]["timestamp"]))
	for _, r := range records[2:] {
		require.GreaterOrEqual(t, number(t, r["timestamp"]), before)
		require.LessOrEqual(t, number(t, r["timestamp"]), after)
	}

	path = a.topic("time.append", 1, object{"message.timestamp.type": "LogAppendTime"})
	results = a.records(path, object{"value": 1, "timestamp": 5}, object{"value": 1, "timestamp": 99999999999999})
	for i, r := range a.fetched(path, 0) {
		require.Equal(t, "LogAppendTime", r["timestamp_type"])
		require.GreaterOrEqual(t, number(t, r["timestamp"]), before)
		require.Equal(t, results[i].(object)["timestamp"], r["timestamp"])
	}

	path = a.topic("time.bounds", 1, object{"message.timestamp.before.max.ms": 60_000, "message.timestamp.after.max.ms": 60_000})
	for _, off := range []int64{-61_000, 120_000} {
		x := a.post(path+"/records", object{"records": []object{{"value": 1, "timestamp": time.Now().UnixMilli() + off}}})
		wants(t, x, 422, "invalid-timestamp")
	}
	for _, off := range []int64{-30_000, 30_000} {
		a.records(path, object{"value": 1, "timestamp": time.Now().UnixMilli() + off})
	}
	path = a.topic("time.old", 1, nil)
	x := wants(t, a.post(path+"/records", `{"records":[{"value":1,"timestamp":5},{"value":1}]}`), 200, "")
	require.Contains(t, x.Header.Get("Tidewire-Warning"), "1 records")
}

func TestALargeRequestBecomesSeveralBatches(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("split.topic", 1, object{"max.message.bytes": 1000})
	records := []object{}
	for i := range 100 {
		records = append(records, object{"value": fmt.Sprintf("%03d", i) + strings.Repeat("x", 97)})
	}
	for i, r := range a.records(path, records...) {
		require.Equal(t, int64(i), number(t, r.(object)["offset"]))
	}
	for i, r := range a.fetched(path, 0) {
		require.Equal(t, records[i]["value"], r["value"])
	}
}

func TestRawBodiesAreOneRecord(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("raw.topic", 4, object{"retention.ms": -1})
	for name, c := range map[string]struct {
		query string
		body  []byte
		h     headers
		want  object
	}{
		"text":          {"", []byte("hi"), headers{"Content-Type": "text/plain"}, object{"value": "hi", "value_encoding": "text", "key": nil, "key_encoding": nil}},
		"bytes":         {"", []byte{0xff, 0}, headers{"Content-Type": "application/octet-stream"}, object{"value": "/wA=", "value_encoding": "base64"}},
		"empty":         {"", []byte{}, headers{"Content-Type": "application/octet-stream"}, object{"value": "", "value_encoding": "text"}},
		"JSON suffix":   {"", []byte(`{"a": 1.00}`), headers{"Content-Type": "application/cloudevents+json"}, object{"value": object{"a": json.Number("1.00")}, "value_encoding": "json"}},
		"any type":      {"", []byte("x"), headers{"Content-Type": "image/png; a=b"}, object{"value": "x"}},
		"tombstone":     {"?null=value&key=k", nil, headers{"Content-Type": "text/plain"}, object{"value": nil, "value_encoding": nil, "key": "k"}},
		"key":           {"?key=a%20b%2Bc", []byte("x"), headers{"Content-Type": "text/plain"}, object{"key": "a b+c", "key_encoding": "text"}},
		"empty key":     {"?key=", []byte("x"), headers{"Content-Type": "text/plain"}, object{"key": "", "key_encoding": "text"}},
		"base64 key":    {"?key=/w%3D%3D&key_encoding=base64", []byte("x"), headers{"Content-Type": "text/plain"}, object{"key": "/w==", "key_encoding": "base64"}},
		"key header":    {"", []byte("x"), headers{"Content-Type": "text/plain", "Tidewire-Key": "from header"}, object{"key": "from header"}},
		"base64 header": {"?key_encoding=base64", []byte("x"), headers{"Content-Type": "text/plain", "Tidewire-Key": "aGk="}, object{"key": "hi"}},
		"partition":     {"?partition=3&timestamp=77", []byte("x"), headers{"Content-Type": "text/plain"}, object{"partition": json.Number("3"), "timestamp": json.Number("77")}},
		"headers": {"", []byte("x"), headers{"Content-Type": "text/plain", "Tidewire-Header-Zeta": "1", "tidewire-header-ALPHA": "ü"}, object{"headers": []any{
			object{"name": "alpha", "value": "ü", "encoding": "text"}, object{"name": "zeta", "value": "1", "encoding": "text"},
		}}},
	} {
		x := decoded(t, a.do("POST", path+"/records"+c.query, c.body, c.h), 200)["results"].([]any)[0].(object)
		got := decoded(t, a.get(fmt.Sprintf("%s/partitions/%s/records?offset=%s&max_records=1", path, x["partition"], x["offset"])), 200)
		record := got["records"].([]any)[0].(object)
		for member, want := range c.want {
			require.Equal(t, want, record[member], "%s: %s", name, member)
		}
	}
}

func TestBadRawBodiesAreRefused(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("raw.bad", 2, nil)
	type rawRow struct {
		query   string
		h       headers
		status  int
		pointer string
	}
	text := headers{"Content-Type": "text/plain"}
	for name, c := range map[string]rawRow{
		"no type":                {"", headers{"Content-Type": ""}, 415, ""},
		"no slash":               {"", headers{"Content-Type": "text"}, 415, ""},
		"a form":                 {"", headers{"Content-Type": "application/x-www-form-urlencoded"}, 415, ""},
		"multipart":              {"", headers{"Content-Type": "multipart/form-data; boundary=x"}, 415, ""},
		"JSON in another coding": {"", headers{"Content-Type": "application/json; charset=utf-16"}, 415, ""},
		"null with a body":       {"?null=value", text, 422, "query:null"},
		"another null":           {"?null=key", text, 422, "query:null"},
		"timestamp -1":           {"?timestamp=-1", text, 422, "query:timestamp"},
		"a word for a timestamp": {"?timestamp=now", text, 422, "query:timestamp"},
		"partition -1":           {"?partition=-1", text, 422, "query:partition"},
		"partition n":            {"?partition=2", text, 404, ""},
		"key twice":              {"?key=a", headers{"Content-Type": "text/plain", "Tidewire-Key": "b"}, 422, "query:key"},
		"an encoding alone":      {"?key_encoding=text", text, 422, "query:key_encoding"},
		"key_encoding=json":      {"?key=1&key_encoding=json", text, 422, "query:key_encoding"},
		"bad base64":             {"?key=x&key_encoding=base64", text, 422, "query:key"},
		"a key that is no text":  {"?key=%ff", text, 422, "query:key"},
		"a value that is none":   {"", headers{"Content-Type": "text/plain", "Tidewire-Header-A": "\xff"}, 422, "header:Tidewire-Header-A"},
	} {
		x := a.do("POST", path+"/records"+c.query, []byte("x"), c.h)
		require.Equal(t, c.status, x.Status, "%s: %s", name, x.Body)
		require.Equal(t, c.pointer, strings.Join(pointers(t, x), " "), name)
	}
	x := a.do("POST", path+"/partitions/0/records?partition=1", []byte("x"), text)
	wants(t, x, 422, "invalid-argument")
	require.Zero(t, a.logEnd(path, 0)+a.logEnd(path, 1))
	compact := a.topic("raw.compact", 1, object{"cleanup.policy": "compact"})
	wants(t, a.do("POST", compact+"/records", []byte("x"), text), 422, "invalid-argument")
}

// TestPartitionsMayEndDifferently damages one partition of two, so that it cannot be
// opened, and finds every answer's part about it.
func TestPartitionsMayEndDifferently(t *testing.T) {
	t.Parallel()
	a := ownAPI(t)
	path := a.topic("mixed", 2, nil)
	a.Stop()
	folder := filepath.Join(a.Dir, "topics", "mixed-1")
	require.NoError(t, os.RemoveAll(folder))
	require.NoError(t, os.WriteFile(folder, nil, 0o600))
	a.Resume()
	a.admin = a.Admin()
	both := object{"records": []object{{"value": "a", "partition": 0}, {"value": "b", "partition": 1}, {"value": "c", "partition": 0}}}
	results := decoded(t, a.post(path+"/records", both), 207)["results"].([]any)
	require.Len(t, results, 3)
	require.Equal(t, int64(0), number(t, results[0].(object)["offset"]))
	require.Equal(t, int64(1), number(t, results[2].(object)["offset"]))
	problem := results[1].(object)["problem"].(object)
	require.Equal(t, "not-applied", problem["outcome"])
	require.Len(t, results[1], 1)
	x := a.post(path+"/records", object{"records": []object{{"value": "b", "partition": 1}}})
	require.GreaterOrEqual(t, x.Status, 500, "all failed with one code: that problem")
	require.Equal(t, problem["code"], x.Code())
	require.Equal(t, "not-applied", decoded(t, x, x.Status)["outcome"])
	require.Equal(t, 202, a.post(path+"/records?acks=none", both).Status)

	view := decoded(t, a.get(path), 200)
	require.Equal(t, "offline", view["health"])
	parts := view["partitions"].([]any)
	require.Nil(t, parts[0].(object)["error"])
	require.Nil(t, parts[1].(object)["high_watermark"])
	require.Equal(t, problem["code"], parts[1].(object)["error"].(object)["code"])
	item := decoded(t, a.get("/v1/topics"), 200)["items"].([]any)[0].(object)
	require.Equal(t, problem["code"], item["error"].(object)["code"])
	require.Equal(t, int64(1), number(t, decoded(t, a.get("/v1/cluster"), 200)["offline_partitions"]))
	damaged := decoded(t, a.get("/v1/partitions?health=offline"), 200)["items"].([]any)
	require.Len(t, damaged, 1)
	require.Equal(t, "mixed", damaged[0].(object)["topic"])
	require.Equal(t, int64(1), number(t, damaged[0].(object)["partition"]))
	require.Equal(t, problem["code"], damaged[0].(object)["error"].(object)["code"])
	wants(t, a.get(path+"/partitions/0/records?offset=0"), 200, "")
	require.GreaterOrEqual(t, a.get(path+"/partitions/1/records?offset=0").Status, 500)
	wants(t, a.get("/readyz"), 200, "") // a damaged partition does not unready the node
}
