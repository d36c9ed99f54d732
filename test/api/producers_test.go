package api

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// producer is an idempotent producer.
type producer struct {
	a         *api
	id, epoch string
}

func (a *api) producer() *producer {
	a.t.Helper()
	x := decoded(a.t, a.post("/v1/producers", nil), 200)
	return &producer{a, fmt.Sprint(x["producer_id"]), fmt.Sprint(x["producer_epoch"])}
}

// send stores values under a sequence; more are further headers.
func (p *producer) send(target string, sequence int, more headers, values ...string) *answer {
	p.a.t.Helper()
	h := headers{"Content-Type": "application/json", "Tidewire-Producer-Id": p.id, "Tidewire-Producer-Epoch": p.epoch, "Tidewire-Sequence": fmt.Sprint(sequence)}
	for k, v := range more {
		h[k] = v
	}
	return p.a.do("POST", target, []byte(`{"records":[{"value":"`+strings.Join(values, `"},{"value":"`)+`"}]}`), h)
}

func offsets(t testing.TB, x *answer) (out []int64) {
	t.Helper()
	for _, r := range decoded(t, x, 200)["results"].([]any) {
		out = append(out, number(t, r.(object)["offset"]))
	}
	return out
}

func TestProducerIDsAreUniqueAlsoAcrossARestart(t *testing.T) {
	t.Parallel()
	a := ownAPI(t)
	seen := map[string]bool{}
	var mu sync.Mutex
	take := func() {
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range 20 {
					p := a.producer()
					mu.Lock()
					if seen[p.id] {
						t.Errorf("id %s was given twice", p.id)
					}
					seen[p.id] = true
					mu.Unlock()
				}
			})
		}
		wg.Wait()
	}
	take()
	a.Restart()
	a.admin = a.Admin()
	take()
	require.Len(t, seen, 160)
}

func TestWhoMayWriteMayHaveAProducerID(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	a.topic("producers.rights", 1, nil)
	writer, cluster, nobody := a.login2("producers.writer"), a.login2("producers.cluster"), a.login2("producers.nobody")
	a.rule("producers.writer", rule{"allow", "literal", "write", "topic", "producers.rights"})
	a.rule("producers.cluster", rule{"allow", "literal", "idempotent-write", "cluster", "kafka-cluster"})
	wants(t, a.as("", "POST", "/v1/producers", nil), 401, "unauthenticated")
	wants(t, a.as(nobody, "POST", "/v1/producers", nil), 403, "forbidden")
	wants(t, a.as(writer, "POST", "/v1/producers", nil), 200, "")
	wants(t, a.as(cluster, "POST", "/v1/producers", nil), 200, "")
	wants(t, a.as(a.admin, "POST", "/v1/producers?x=1", nil), 422, "invalid-argument")
}

func TestARepeatOfAProducerIsStoredOnce(t *testing.T) {
	t.Parallel()
	for _, config := range []object{nil, {"message.timestamp.type": "LogAppendTime"}} {
		a := ownAPI(t)
		path := a.topic("t", 2, config)
		p, other := a.producer(), a.producer()
		target := path + "/partitions/1/records"
		first := p.send(target, 0, nil, "a", "b")
		require.Equal(t, []int64{0, 1}, offsets(t, first))
		require.Equal(t, []int64{2}, offsets(t, other.send(target, 0, nil, "x")))
		require.Equal(t, []int64{3}, offsets(t, p.send(target, 2, nil, "c")))
		for _, acks := range []string{"all", "leader"} {
			again := p.send(target+"?acks="+acks, 0, nil, "a", "b")
			require.Equal(t, string(first.Body), string(again.Body), "where and when they were stored")
		}
		wants(t, p.send(target, 4, nil, "gap"), 409, "out-of-order-sequence")
		wants(t, p.send(target, 1, nil, "b"), 409, "out-of-order-sequence")
		require.Equal(t, []int64{0}, offsets(t, p.send(path+"/partitions/0/records", 0, nil, "elsewhere")), "each partition has its own sequence")
		require.EqualValues(t, 4, a.logEnd(path, 1))
		a.Restart()
		a.admin = a.Admin()
		require.Equal(t, []int64{3}, offsets(t, p.send(target, 2, nil, "c")), "also after a restart")
		require.Equal(t, []int64{4}, offsets(t, p.send(target, 3, nil, "d")))
		p.epoch = "1"
		require.Equal(t, []int64{5}, offsets(t, p.send(target, 0, nil, "a new epoch begins anew")))
		p.epoch = "0"
		wants(t, p.send(target, 4, nil, "late"), 409, "fenced")
		require.EqualValues(t, 6, a.logEnd(path, 1))
	}
}

func TestProducersOfThisClusterAloneAreTaken(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("producers.unknown", 1, nil)
	p := a.producer()
	p.id = "123456789012"
	wants(t, p.send(path+"/records", 0, nil, "x"), 409, "unknown-producer")
	q := a.producer()
	wants(t, q.send(path+"/records", 5, nil, "x"), 409, "unknown-producer")
	require.Zero(t, a.logEnd(path, 0))
}

func TestTheHeadersOfAProducerAreChecked(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("producers.headers", 2, object{"max.message.bytes": 2000})
	one := path + "/partitions/0/records"
	p := a.producer()
	long := strings.Repeat("x", 900)
	for name, c := range map[string]struct {
		target  string
		more    headers
		values  []string
		status  int
		pointer string
	}{
		"no id":             {one, headers{"Tidewire-Producer-Id": ""}, nil, 422, "header:Tidewire-Producer-Id"},
		"no epoch":          {one, headers{"Tidewire-Producer-Epoch": ""}, nil, 422, "header:Tidewire-Producer-Epoch"},
		"no sequence":       {one, headers{"Tidewire-Sequence": ""}, nil, 422, "header:Tidewire-Sequence"},
		"id -1":             {one, headers{"Tidewire-Producer-Id": "-1"}, nil, 422, "header:Tidewire-Producer-Id"},
		"a large epoch":     {one, headers{"Tidewire-Producer-Epoch": "32768"}, nil, 422, "header:Tidewire-Producer-Epoch"},
		"a large sequence":  {one, headers{"Tidewire-Sequence": "2147483648"}, nil, 422, "header:Tidewire-Sequence"},
		"a word":            {one, headers{"Tidewire-Sequence": "first"}, nil, 422, "header:Tidewire-Sequence"},
		"two sequences":     {one, headers{"Tidewire-Producer-Sequence": "1"}, nil, 422, "header:Tidewire-Producer-Sequence"},
		"any partition":     {path + "/records", nil, nil, 422, ""},
		"more than a batch": {one, nil, []string{long, long, long}, 413, ""},
		"lines":             {one, headers{"Content-Type": ndjson}, nil, 422, "header:Tidewire-Producer-Id"},
	} {
		if c.values == nil {
			c.values = []string{"x"}
		}
		x := p.send(c.target, 0, c.more, c.values...)
		require.Equal(t, c.status, x.Status, "%s: %s", name, x.Body)
		require.Equal(t, c.pointer, strings.Join(pointers(t, x), " "), name)
	}
	body := []byte(`{"records":[{"value":"a","partition":0},{"value":"b","partition":1}]}`)
	h := headers{"Content-Type": "application/json", "Tidewire-Producer-Id": p.id, "Tidewire-Producer-Epoch": "0", "Tidewire-Sequence": "0"}
	wants(t, a.do("POST", path+"/records", body, h), 422, "invalid-argument")
	require.Zero(t, a.logEnd(path, 0)+a.logEnd(path, 1))
	wants(t, p.send(one, 0, headers{"Tidewire-Sequence": "", "Tidewire-Producer-Sequence": "0"}, "the other name"), 200, "")
	body = []byte(`{"records":[{"value":"a","key":"k"},{"value":"b","key":"k"}]}`)
	h["Tidewire-Producer-Id"] = a.producer().id
	wants(t, a.do("POST", path+"/records", body, h), 200, "")
}

func TestAnExpectedOffsetIsTheLogEndOrNothingIsStored(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("producers.expected", 1, object{"max.message.bytes": 2000})
	send := func(at, body string) *answer {
		return a.do("POST", path+"/records", []byte(body), headers{"Content-Type": "application/json", "Tidewire-Expected-Offset": at})
	}
	two := `{"records":[{"value":"a"},{"value":"b"}]}`
	x := wants(t, send("1", two), 412, "offset-mismatch")
	require.Equal(t, num(0), decoded(t, x, 412)["log_end_offset"])
	require.Equal(t, "not-applied", decoded(t, x, 412)["outcome"])
	require.Equal(t, []int64{0, 1}, offsets(t, send("0", two)))
	wants(t, send("0", two), 412, "offset-mismatch")
	wants(t, send("1", two), 412, "offset-mismatch")
	require.Equal(t, []int64{2, 3}, offsets(t, send("2", two)))
	x = wants(t, a.do("POST", path+"/records", []byte("raw"), headers{"Content-Type": "text/plain", "Tidewire-Expected-Offset": "3"}), 412, "offset-mismatch")
	require.Equal(t, num(4), decoded(t, x, 412)["log_end_offset"])
	require.Equal(t, []int64{4}, offsets(t, a.do("POST", path+"/records", []byte("raw"), headers{"Content-Type": "text/plain", "Tidewire-Expected-Offset": "4"})))
	for _, bad := range []string{"-1", "x", "1.0", "9223372036854775808"} {
		x = wants(t, send(bad, two), 422, "invalid-argument")
		require.Equal(t, []string{"header:Tidewire-Expected-Offset"}, pointers(t, x))
	}
	long := strings.Repeat("x", 900)
	wants(t, send("5", `{"records":[{"value":"`+long+`"},{"value":"`+long+`"},{"value":"`+long+`"}]}`), 413, "record-too-large")
	x = wants(t, a.do("POST", path+"/records", []byte("{}\n"), headers{"Content-Type": ndjson, "Tidewire-Expected-Offset": "5"}), 422, "invalid-argument")
	require.Equal(t, []string{"header:Tidewire-Expected-Offset"}, pointers(t, x))
	require.EqualValues(t, 5, a.logEnd(path, 0))

	p := a.producer()
	require.Equal(t, []int64{5}, offsets(t, p.send(path+"/records", 0, headers{"Tidewire-Expected-Offset": "5"}, "once")))
	require.Equal(t, []int64{5}, offsets(t, p.send(path+"/records", 0, headers{"Tidewire-Expected-Offset": "5"}, "once")), "a repeat is found first")
	wants(t, p.send(path+"/records", 1, headers{"Tidewire-Expected-Offset": "5"}, "next"), 412, "offset-mismatch")
	wants(t, p.send(path+"/records", 7, headers{"Tidewire-Expected-Offset": "5"}, "gap"), 409, "out-of-order-sequence")
	require.Equal(t, []int64{6}, offsets(t, p.send(path+"/records", 1, headers{"Tidewire-Expected-Offset": "6"}, "next")))

	wide := a.topic("producers.expected.wide", 3, nil)
	wants(t, a.do("POST", wide+"/records", []byte(`{"records":[{"value":1,"partition":0},{"value":2,"partition":1}]}`),
		headers{"Content-Type": "application/json", "Tidewire-Expected-Offset": "0"}), 422, "invalid-argument")
}

// TestOneOfManyGetsTheExpectedOffset lets writers race for each offset of a log: one wins.
func TestOneOfManyGetsTheExpectedOffset(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("producers.race", 1, nil)
	for offset := range 20 {
		var wg sync.WaitGroup
		var mu sync.Mutex
		codes := map[int]int{}
		for range 5 {
			wg.Go(func() {
				x := a.do("POST", path+"/records", []byte("v"), headers{"Content-Type": "text/plain", "Tidewire-Expected-Offset": fmt.Sprint(offset)})
				mu.Lock()
				codes[x.Status]++
				mu.Unlock()
			})
		}
		wg.Wait()
		require.Equal(t, map[int]int{200: 1, 412: 4}, codes)
	}
}
