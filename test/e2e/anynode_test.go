package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// spread makes a topic with partitions on every node, and tells who leads each.
func spread(t *testing.T, a *api, name string, partitions int) (leaders []int) {
	t.Helper()
	a.createTopic(t, name, partitions, nil)
	var v struct {
		Health     string `json:"health"`
		Partitions []struct {
			Leader *int   `json:"leader"`
			End    *int64 `json:"log_end_offset"`
		} `json:"partitions"`
	}
	a.must(t, "GET", "/v1/topics/"+name, nil, &v)
	require.Equal(t, "healthy", v.Health, "at the node that was asked")
	led := map[int]int{}
	for _, p := range v.Partitions {
		require.NotNil(t, p.Leader)
		require.NotNil(t, p.End, "of every partition, whoever leads it")
		led[*p.Leader]++
		leaders = append(leaders, *p.Leader)
	}
	require.Len(t, led, 3, "every node leads some")
	return leaders
}

// values are the texts of records.
func values(t testing.TB, list []rec) map[string]int {
	t.Helper()
	out := map[string]int{}
	for _, r := range list {
		out[string(r.Value)]++
	}
	return out
}

func TestEveryNodeTakesAndGivesRecords(t *testing.T) {
	t.Parallel()
	nodes := threeNodes(t)
	var at []*api
	for _, n := range nodes {
		at = append(at, admin(t, n))
	}
	leaders := spread(t, at[0], "wide", 6)

	want := map[string]int{}
	for i, a := range at {
		// A request over all partitions, by keys; one for each partition; one for record batches.
		var records []any
		for k := range 60 {
			value := fmt.Sprint("keyed-", i, "-", k)
			records = append(records, map[string]any{"key": fmt.Sprint("k", k), "value": value})
			want[value]++
		}
		var got struct {
			Results []struct {
				Partition int   `json:"partition"`
				Offset    int64 `json:"offset"`
				Problem   any   `json:"problem"`
			} `json:"results"`
		}
		a.must(t, "POST", "/v1/topics/wide/records", map[string]any{"records": records}, &got)
		require.Len(t, got.Results, 60)
		hit := map[int]bool{}
		for _, r := range got.Results {
			require.Nil(t, r.Problem, "at node %d, partition %d of node %d", i+1, r.Partition, leaders[r.Partition])
			hit[r.Partition] = true
		}
		require.Len(t, hit, 6, "keys go everywhere")
		for p := range 6 {
			for _, acks := range []string{"all", "leader", "none"} {
				value := fmt.Sprint("placed-", i, "-", p, "-", acks)
				a.must(t, "POST", fmt.Sprintf("/v1/topics/wide/partitions/%d/records?acks=%s", p, acks),
					map[string]any{"records": []any{map[string]any{"value": value}}}, nil)
				want[value]++
			}
		}
	}
	var lines strings.Builder
	for k := range 3000 {
		fmt.Fprintf(&lines, "{\"key\":\"l%d\",\"value\":\"line-%d\"}\n", k%7, k)
		want[fmt.Sprint("line-", k)]++
	}
	nodes[1].must(t, at[1].token, lines.String(), "produce", "wide")

	for i, a := range at {
		eventually(t, startLimit, "records of acks=none are there", func() bool { return len(a.readTopic(t, "wide", 6)) >= len(want) })
		require.Equal(t, want, values(t, a.readTopic(t, "wide", 6)), "each partition read at node %d", i+1)
		require.Equal(t, want, values(t, a.readWebSocket(t, "wide", len(want))), "over a WebSocket at node %d", i+1)
		require.Equal(t, want, values(t, a.readCLI(t, "wide")), "over all partitions at node %d", i+1)
	}
	inOrder(t, at[2].readTopic(t, "wide", 6))
	for p := range 6 {
		sameBatches(t, at, p)
	}
	sizesAgree(t, at)
	deletedAnywhere(t, at)
}

// inOrder looks that the lines of one key, which came in one stream, lie in their order.
func inOrder(t *testing.T, list []rec) {
	t.Helper()
	last := map[string]int{}
	for _, r := range list {
		var k int
		if n, _ := fmt.Sscanf(string(r.Value), "line-%d", &k); n != 1 {
			continue
		}
		before, some := last[string(r.Key)]
		require.True(t, !some || before < k, "line %d lies behind line %d of its key", k, before)
		last[string(r.Key)] = k
	}
	require.Len(t, last, 7)
}

// sameBatches looks that stored batches are the same bytes at every node.
func sameBatches(t *testing.T, at []*api, partition int) {
	t.Helper()
	var first []byte
	for i, a := range at {
		req, err := http.NewRequest("GET", fmt.Sprintf("%s/v1/topics/wide/partitions/%d/records?offset=earliest&max_records=10000&max_bytes=1000000", a.n.URL(), partition), nil)
		require.NoError(t, err)
		req.Header.Set("Authorization", "Bearer "+a.token)
		req.Header.Set("Accept", "application/vnd.kafka.record-batches")
		resp, err := a.http.Do(req)
		require.NoError(t, err)
		b, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, 200, resp.StatusCode, "%s", b)
		require.NotEmpty(t, b)
		if i == 0 {
			first = b
		}
		require.Equal(t, first, b, "node %d", i+1)
	}
}

// sizesAgree looks that every node tells the same of a topic, and of all disks.
func sizesAgree(t *testing.T, at []*api) {
	t.Helper()
	type listed struct {
		Items []struct {
			Name    string `json:"name"`
			Health  string `json:"health"`
			Size    int64  `json:"size_bytes"`
			Records int64  `json:"records"`
			Error   any    `json:"error"`
		} `json:"items"`
	}
	var first listed
	for i, a := range at {
		var l listed
		a.must(t, "GET", "/v1/topics?sort=-size_bytes", nil, &l)
		require.Len(t, l.Items, 1)
		require.Equal(t, "healthy", l.Items[0].Health)
		require.Nil(t, l.Items[0].Error)
		require.Positive(t, l.Items[0].Size)
		if i == 0 {
			first = l
		}
		require.Equal(t, first, l, "node %d", i+1)
		var brokers struct {
			Items []struct {
				Free *int64 `json:"disk_free_bytes"`
			} `json:"items"`
		}
		a.must(t, "GET", "/v1/brokers", nil, &brokers)
		require.Len(t, brokers.Items, 3)
		for _, b := range brokers.Items {
			require.NotNil(t, b.Free, "every node tells of its disk")
		}
	}
}

// deletedAnywhere deletes records of all partitions through one node.
func deletedAnywhere(t *testing.T, at []*api) {
	t.Helper()
	var what []any
	for p := range 6 {
		what = append(what, map[string]any{"partition": p, "before_offset": 3})
	}
	at[0].must(t, "POST", "/v1/topics/wide/delete-records", map[string]any{"partitions": what}, nil)
	var o struct {
		Offsets []struct {
			Offset int64 `json:"offset"`
		} `json:"offsets"`
	}
	at[1].must(t, "GET", "/v1/topics/wide/offsets?timestamp=earliest", nil, &o)
	require.Len(t, o.Offsets, 6)
	for _, x := range o.Offsets {
		require.EqualValues(t, 3, x.Offset)
	}
	p := at[2].refused(t, "GET", "/v1/topics/wide/partitions/0/records?offset=1", nil)
	require.Equal(t, "offset-out-of-range", p.Code)
}

func TestAFollowerAtAnyNodeGetsWhatAnyNodeTook(t *testing.T) {
	t.Parallel()
	nodes := threeNodes(t)
	var at []*api
	for _, n := range nodes {
		at = append(at, admin(t, n))
	}
	spread(t, at[0], "followed", 3)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	got := make([]map[string]int, 3)
	var done, ready sync.WaitGroup
	for i, a := range at {
		ready.Add(1)
		done.Go(func() { got[i] = follow(ctx, a, "followed", 90, ready.Done) })
	}
	ready.Wait()
	want := map[string]int{}
	for k := range 90 {
		value := fmt.Sprint("v", k)
		want[value]++
		at[k%3].must(t, "POST", fmt.Sprintf("/v1/topics/followed/partitions/%d/records", (k/3)%3), map[string]any{"records": []any{map[string]any{"value": value}}}, nil)
	}
	done.Wait()
	for i := range got {
		require.Equal(t, want, got[i], "at node %d", i+1)
	}
	var p page
	began := make(chan struct{})
	go func() {
		<-began
		_, _, _ = at[1].try("POST", "/v1/topics/followed/partitions/0/records", map[string]any{"records": []any{map[string]any{"value": "late"}}})
	}()
	for i, a := range at {
		if i == 0 {
			close(began)
		}
		a.must(t, "GET", "/v1/topics/followed/partitions/0/records?offset=30&wait_ms=30000", nil, &p)
		require.Len(t, p.Records, 1, "a long poll at node %d", i+1)
	}
}

// follow reads so many records as events, from now on.
func follow(ctx context.Context, a *api, topic string, n int, ready func()) map[string]int {
	out := map[string]int{}
	req, err := http.NewRequestWithContext(ctx, "GET", a.n.URL()+"/v1/topics/"+topic+"/records?from=latest&follow=true", nil)
	if err != nil {
		return nil
	}
	req.Header.Set("Authorization", "Bearer "+a.token)
	req.Header.Set("Accept", "application/x-ndjson")
	resp, err := a.http.Do(req)
	ready()
	if err != nil {
		return nil
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for len(out) < n && lines.Scan() {
		var line struct {
			Record *wireRecord `json:"record"`
		}
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Record != nil {
			if r, err := line.Record.stored(); err == nil {
				out[string(r.Value)]++
			}
		}
	}
	return out
}

func TestAGroupSpansAllNodes(t *testing.T) {
	t.Parallel()
	nodes := threeNodes(t)
	var at []*api
	for _, n := range nodes {
		at = append(at, admin(t, n))
	}
	spread(t, at[0], "shared", 6)
	l := newLedger()
	ctx, stop := context.WithCancel(context.Background())
	var done sync.WaitGroup
	defer func() { stop(); done.Wait() }()
	for i, door := range []string{"polls", "SSE", "WebSocket"} {
		c := &consumer{name: fmt.Sprintf("%s-%d", door, i), group: "g", topics: []string{"shared"}, session: 10 * time.Second, a: at[i], l: l, leave: always}
		done.Go(func() { doors[door](c, ctx) })
	}
	eventually(t, startLimit, "each has its share", func() bool {
		d := at[0].group(t, "g")
		return d.State == "stable" && len(d.Members) == 3 && fmt.Sprint(d.sizes()) == "[2 2 2]"
	})
	const n = 300
	for k := range n {
		at[k%3].must(t, "POST", "/v1/topics/shared/records", map[string]any{"records": []any{map[string]any{"key": fmt.Sprint(k), "value": fmt.Sprint("v", k)}}}, nil)
	}
	for i := range at {
		var d described
		done := func() bool { d = at[i].group(t, "g"); return d.TotalLag == 0 && l.given() >= n }
		for end := time.Now().Add(startLimit); !done(); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				l.mu.Lock()
				defer l.mu.Unlock()
				t.Fatalf("at node %d not all is given and committed: %d given, by %v, %v; %+v", i+1, l.total, l.by, l.wrong, d)
			}
		}
	}
	l.mu.Lock()
	require.Empty(t, l.wrong)
	require.Equal(t, n, l.total, "each record once")
	l.mu.Unlock()

	// The coordinator's death is told, and healed when it is back.
	var list struct {
		Items []struct {
			Coordinator *int `json:"coordinator"`
		} `json:"items"`
	}
	at[1].must(t, "GET", "/v1/groups", nil, &list)
	require.Len(t, list.Items, 1)
	gone := *list.Items[0].Coordinator - 1
	left := at[(gone+1)%3]
	nodes[gone].kill()
	eventually(t, startLimit, "it is told that the coordinator is gone", func() bool {
		status, answer, err := left.try("GET", "/v1/groups/g/offsets", nil)
		return err == nil && status == 503 && strings.Contains(string(answer), "coordinator")
	})
	nodes[gone].start(t)
	at[gone] = admin(t, nodes[gone])
	eventually(t, startLimit, "the group is there again", func() bool {
		status, _, err := left.try("GET", "/v1/groups/g/offsets", nil)
		return err == nil && status == 200
	})
	var offsets struct {
		Offsets []struct {
			position
			Lag *int64 `json:"lag"`
		} `json:"offsets"`
	}
	left.must(t, "GET", "/v1/groups/g/offsets", nil, &offsets)
	sum := int64(0)
	for _, o := range offsets.Offsets {
		sum += o.Next
	}
	require.EqualValues(t, n, sum, "what was committed is there")
}

// given is how many records were given to members.
func (l *ledger) given() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total
}
