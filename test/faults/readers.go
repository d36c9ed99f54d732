//go:build linux

package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"tidewire/test/history"
)

type fetched struct {
	Records []struct {
		Partition int    `json:"partition"`
		Offset    int64  `json:"offset"`
		Value     string `json:"value"`
	} `json:"records"`
	Next  int64 `json:"next_offset"`
	Above int64 `json:"high_watermark"`
	Start int64 `json:"log_start_offset"`
}

func (f *fetched) history() []history.Record {
	out := make([]history.Record, len(f.Records))
	for i, r := range f.Records {
		out[i] = history.Record{Partition: partitionName(r.Partition), Offset: r.Offset, Value: r.Value}
	}
	return out
}

// reader reads every partition by long polls, each request at any node, until ctx ends.
func (l *load) reader(ctx context.Context, name string) {
	var group sync.WaitGroup
	for p := range partitions {
		group.Go(func() { l.follow(ctx, name, p) })
	}
	group.Wait()
}

func (l *load) follow(ctx context.Context, name string, p int) {
	r := l.random(fmt.Sprint(name, p))
	node := l.anyNode(r)
	for next := int64(0); ctx.Err() == nil; {
		if r.IntN(5) == 0 {
			node = l.anyNode(r)
		}
		path := fmt.Sprintf("/v1/topics/%s/partitions/%d/records?offset=%d&max_records=2000&wait_ms=1000", topic, p, next)
		a := l.c.At(node).Call(ctx, http.MethodGet, path, nil)
		var got fetched
		if !a.OK() {
			if !l.w.passing(&a) {
				l.complain("%s: reading partition %d at %d on node %d: %s", name, p, next, node, &a)
			}
			node = l.anyNode(r)
			pause(ctx, 50*time.Millisecond)
			continue
		}
		if err := a.Into(&got); err != nil {
			l.complain("%s: %v: %s", name, err, &a)
			return
		}
		if len(got.Records) > 0 {
			l.read.Add(int64(len(got.Records)))
			l.hist.Add(history.Event{Type: history.Read, Client: name, Records: got.history()})
		}
		if got.Next < next {
			l.complain("%s: next_offset of partition %d is %d after %d", name, p, got.Next, next)
		}
		next = got.Next
	}
}

// watch asks any node for the newest visible offsets and for who leads, until ctx ends. Neither may
// go back, each seen at one node; nor seen at several, but for nodes that a fault has kept from
// hearing of others.
func (l *load) watch(ctx context.Context, name string) {
	r := l.random(name)
	at := map[[2]int]int64{}
	for pause(ctx, 20*time.Millisecond) {
		node := l.anyNode(r)
		l.latest(ctx, node, at)
		if r.IntN(10) == 0 {
			l.leaders(ctx, node)
		}
	}
}

func (l *load) latest(ctx context.Context, node int, at map[[2]int]int64) {
	l.mu.Lock()
	before := make(map[int]int64, len(l.top))
	for p, off := range l.top {
		before[p] = off
	}
	l.mu.Unlock()
	var got struct {
		Offsets []struct {
			Partition int    `json:"partition"`
			Offset    *int64 `json:"offset"`
		} `json:"offsets"`
	}
	behind := l.w.Node(node).impaired()
	a := l.c.At(node).Call(ctx, http.MethodGet, "/v1/topics/"+topic+"/offsets?timestamp=latest", nil)
	behind = behind || l.w.Node(node).impaired()
	if a.Into(&got) != nil {
		return
	}
	for _, o := range got.Offsets {
		if o.Offset == nil {
			continue
		}
		k := [2]int{node, o.Partition}
		if *o.Offset < at[k] {
			l.complain("latest of partition %d goes back at node %d: %d after %d", o.Partition, node, *o.Offset, at[k])
		}
		at[k] = *o.Offset
		if behind {
			continue
		}
		if *o.Offset < before[o.Partition] {
			l.complain("latest of partition %d goes back: %d at node %d after %d before", o.Partition, *o.Offset, node, before[o.Partition])
		}
		l.mu.Lock()
		l.top[o.Partition] = max(l.top[o.Partition], *o.Offset)
		l.mu.Unlock()
	}
}

func (l *load) leaders(ctx context.Context, node int) {
	seen, err := l.c.Partitions(ctx, node, topic)
	if err != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, p := range seen {
		if p.Leader == nil {
			continue
		}
		k := fmt.Sprintf("%d in epoch %d", i, p.Epoch)
		if other, known := l.leads[k]; known && other != *p.Leader {
			l.wrong = append(l.wrong, fmt.Sprintf("partition %s is led by %d and by %d", k, other, *p.Leader))
		}
		l.leads[k] = *p.Leader
	}
}

// group is the consumer group's name.
const group = "readers"

// member is one member of the group at a time: it joins again when it has expired.
type member struct {
	l    *load
	r    *rand.Rand
	name string

	lives  int
	id     string // "": it is none
	cursor string
	epoch  int64
}

type polled struct {
	fetched
	Assignment struct {
		Epoch int64 `json:"epoch"`
	} `json:"assignment"`
	Cursor string `json:"cursor"`
}

// run polls and commits until ctx ends, each call at any node.
func (m *member) run(ctx context.Context) {
	for ctx.Err() == nil {
		if m.id == "" {
			m.join(ctx)
			continue
		}
		m.poll(ctx)
	}
}

func (m *member) join(ctx context.Context) {
	a := m.l.c.At(m.l.anyNode(m.r)).Call(ctx, http.MethodPost, "/v1/groups/"+group+"/members", map[string]any{
		"topics": []string{topic}, "auto_offset_reset": "earliest", "session_timeout_ms": 10000,
	})
	var got struct {
		ID string `json:"member_id"`
	}
	if a.Into(&got) != nil {
		if !m.l.w.passing(&a) {
			m.l.complain("%s: joining: %s", m.name, &a)
		}
		pause(ctx, longest)
		return
	}
	m.lives++
	m.id, m.cursor, m.epoch = got.ID, "", -1
}

func (m *member) client() string { return fmt.Sprint(m.name, "/", m.lives) }

func (m *member) poll(ctx context.Context) {
	path := "/v1/groups/" + group + "/members/" + m.id
	body := map[string]any{"wait_ms": 500, "max_records": 1000}
	if m.cursor != "" {
		body["cursor"] = m.cursor
	}
	a := m.l.c.At(m.l.anyNode(m.r)).Call(ctx, http.MethodPost, path+"/poll", body)
	if m.failed(ctx, "polling", &a) {
		return
	}
	var got polled
	if err := json.Unmarshal(a.Body, &got); err != nil {
		m.l.complain("%s: %v: %s", m.name, err, &a)
		return
	}
	if got.Assignment.Epoch != m.epoch {
		m.epoch = got.Assignment.Epoch
		m.l.hist.Add(history.Event{Type: history.Assign, Client: m.client()})
	}
	m.cursor = got.Cursor
	if len(got.Records) == 0 {
		return
	}
	m.l.given.Add(int64(len(got.Records)))
	m.l.hist.Add(history.Event{Type: history.Read, Client: m.client(), Records: got.history()})
	m.l.mu.Lock()
	for _, r := range got.Records {
		m.l.toThem[r.Value] = struct{}{}
	}
	m.l.mu.Unlock()
	c := m.l.c.At(m.l.anyNode(m.r)).Call(ctx, http.MethodPost, path+"/commit", map[string]any{"cursor": m.cursor})
	m.failed(ctx, "committing", &c)
}

// failed deals with what a call was refused for.
func (m *member) failed(ctx context.Context, what string, a *Answer) bool {
	if a.OK() {
		return false
	}
	p := a.Problem()
	switch {
	case m.l.w.passing(a):
	case slices.Contains([]string{"unknown-member", "member-expired"}, p.Code):
		m.id = ""
	case p.Code == "not-owner": // the partition was taken back
	default:
		m.l.complain("%s: %s: %s", m.name, what, a)
	}
	m.epoch = -1 // what is given next may begin anew
	pause(ctx, 50*time.Millisecond)
	return true
}
