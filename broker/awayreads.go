package broker

import (
	"context"
	"sync"

	"tidewire/broker/forward"
	"tidewire/internal/model"
	"tidewire/storage/dedupe"
)

// ServeCalls has calls of other nodes for what this one leads answered.
func (b *Broker) ServeCalls(m *forward.Mux) {
	x := atHand{b}
	forward.Serve(m, x)
	b.away.Own(x)
	forward.Handle(m, forward.MethodKeys, x.keys)
	forward.HandleBytes(m, forward.MethodStored, x.stored)
	forward.Handle(m, forward.MethodDelete, x.deleteRecords)
	forward.Handle(m, forward.MethodDescribe, x.describe)
}

// Calls is how calls go to other nodes.
func (b *Broker) Calls() *forward.Client { return b.away }

type keysRequest struct {
	Partitions []forward.Meant `json:"partitions"`
	Key        dedupe.Key      `json:"key"`
}

type keysAnswer struct {
	Entries []dedupe.Entry `json:"entries"`
	All     bool           `json:"all"` // every partition could be asked
}

func (x atHand) keys(ctx context.Context, q keysRequest) (keysAnswer, error) {
	a := keysAnswer{All: true}
	for _, m := range q.Partitions {
		p, err := x.Led(ctx, m.Key, m.Epoch)
		if err != nil {
			a.All = false
			continue
		}
		e, ok, err := p.FindKey(q.Key)
		if a.All = a.All && err == nil; ok {
			a.Entries = append(a.Entries, e)
		}
	}
	return a, nil
}

// keysAway asks the leaders elsewhere for an Idempotency-Key; asked: all of them have answered.
func (b *Broker) keysAway(ctx context.Context, t *topic, k dedupe.Key) (out []dedupe.Entry, asked bool) {
	byNode, nowhere := b.awayByNode(t)
	asked = len(nowhere) == 0
	for node, list := range byNode {
		a, err := forward.Ask[keysRequest, keysAnswer](ctx, b.away.Network(), node, forward.MethodKeys, keysRequest{list, k})
		asked = asked && err == nil && a.All
		out = append(out, a.Entries...)
	}
	return out, asked
}

// awayByNode are the partitions that other nodes lead, and those that nobody does.
func (b *Broker) awayByNode(t *topic) (byNode map[model.BrokerID][]forward.Meant, nowhere []model.PartitionID) {
	byNode = map[model.BrokerID][]forward.Meant{}
	img := b.meta.Image()
	for i := range *t.parts.Load() {
		k := t.key(model.PartitionID(i))
		at, err := forward.LeaderOf(img, k)
		switch {
		case err != nil:
			nowhere = append(nowhere, k.Partition)
		case at.Node != b.nodeID:
			byNode[at.Node] = append(byNode[at.Node], forward.Meant{Key: k, Epoch: at.Epoch})
		}
	}
	return byNode, nowhere
}

type storedRequest struct {
	forward.Meant
	From        model.Offset `json:"from"`
	MaxRecords  int          `json:"max_records"`
	MaxBytes    int          `json:"max_bytes"`
	Uncommitted bool         `json:"uncommitted,omitzero"`
}

// copiedAtMost bounds what is copied from another node at once, but for a first batch.
const copiedAtMost = 1 << 20

// stored gives stored batches to another node, which sends them to its client.
func (x atHand) stored(ctx context.Context, q storedRequest) (FetchInfo, []byte, error) {
	part, err := x.Led(ctx, q.Key, q.Epoch)
	if err != nil {
		return FetchInfo{}, nil, err
	}
	t := x.topic(q.Topic)
	if t == nil {
		return FetchInfo{}, nil, model.Errorf(model.LeaderUnavailable, "the topic is gone")
	}
	req := &FetchRequest{Partition: q.Partition, MaxRecords: q.MaxRecords, MaxBytes: min(q.MaxBytes, copiedAtMost)}
	if q.Uncommitted {
		req.Isolation = ReadUncommitted
	}
	f := fetching{b: x.b, topic: t, part: part, req: req, patience: memoryPatience, info: FetchInfo{NextOffset: q.From}}
	got, err := f.plan(ctx)
	if err != nil {
		return FetchInfo{}, nil, err
	}
	defer got.Close()
	out := make([]byte, 0, got.Size)
	for _, s := range got.Sections() {
		for s.n > 0 {
			n, err := s.Read(out[len(out):cap(out)])
			if err != nil {
				return FetchInfo{}, nil, f.readError(err)
			}
			out = out[:len(out)+n]
		}
	}
	return got.FetchInfo, out, nil
}

// planAway is plan of a partition that another node leads: its bytes are copied.
func (f *fetching) planAway(ctx context.Context, from *forward.Reading) (*Batches, error) {
	grant, err := f.b.memory.Take(ctx, f.owner, batchMemory+int64(min(f.req.MaxBytes, copiedAtMost)), memoryPatience)
	if err != nil {
		return nil, err
	}
	var info FetchInfo
	var copied []byte
	err = from.Ask(ctx, func(ctx context.Context, to model.BrokerID, m forward.Meant) (err error) {
		info, copied, err = forward.AskBytes[storedRequest, FetchInfo](ctx, f.b.away.Network(), to, forward.MethodStored, storedRequest{
			Meant: m, From: f.info.NextOffset, MaxRecords: f.req.MaxRecords, MaxBytes: f.req.MaxBytes, Uncommitted: f.req.Isolation == ReadUncommitted,
		})
		return err
	})
	if err != nil {
		grant.Release()
		return nil, err
	}
	f.info.HighWatermark, f.info.LastStable, f.info.LogStart = info.HighWatermark, info.LastStable, info.LogStart
	out := &Batches{FetchInfo: info, Size: int64(len(copied)), grant: grant, read: f}
	if len(copied) > 0 {
		out.sections = []*Section{{copied: copied, n: int64(len(copied))}}
	}
	if info.NextOffset < visibleEnd(from.Bounds(), f.req.Isolation) && out.Records > 0 {
		out.End = AtLimit
	}
	return out, nil
}

// together runs work for each of some nodes at a time, and returns once all is done.
func (b *Broker) together(nodes []model.BrokerID, work func(model.BrokerID)) {
	var wg sync.WaitGroup
	for i, n := range nodes {
		wg.Add(1)
		do := func(context.Context) {
			defer wg.Done()
			work(n)
		}
		if i == len(nodes)-1 || !b.group.Go("broker/ask", do) {
			do(context.Background())
		}
	}
	wg.Wait()
}
