package broker

import (
	"context"
	"maps"
	"slices"
	"time"

	"tidewire/broker/forward"
	"tidewire/broker/partition"
	"tidewire/broker/replication"
	"tidewire/cluster/metadata"
	"tidewire/internal/model"
	"tidewire/storage/log"
)

type deleteRequest struct {
	Moves []moveAsked `json:"moves"`
}

type moveAsked struct {
	forward.Meant
	To model.Offset `json:"to"`
}

type deleteAnswer struct {
	Moved []moveMade `json:"moved"` // in the order of the request
}

type moveMade struct {
	Start model.Offset  `json:"start"`
	Fault forward.Fault `json:"fault,omitzero"`
}

// deleteRecords moves log starts on behalf of another node, which has checked them.
func (x atHand) deleteRecords(ctx context.Context, q deleteRequest) (deleteAnswer, error) {
	a := deleteAnswer{Moved: make([]moveMade, len(q.Moves))}
	moves, parts, at := []log.StartMove{}, []*partition.Partition{}, []int{}
	for i, m := range q.Moves {
		part, err := x.Led(ctx, m.Key, m.Epoch)
		if err != nil {
			a.Moved[i].Fault.Err = err
			continue
		}
		if hw := part.Bounds().HighWatermark; m.To > hw {
			a.Moved[i].Fault.Err = model.Errorf(model.LeaderUnavailable, "the high watermark of partition %d is %d on its leader", m.Partition, hw)
			continue
		}
		t := x.topic(m.Topic)
		if t == nil {
			a.Moved[i].Fault.Err = model.Errorf(model.LeaderUnavailable, "the topic is gone")
			continue
		}
		parts = append(parts, part)
		moves, at = append(moves, log.StartMove{Log: t.openLogs()[m.Partition], To: m.To}), append(at, i)
	}
	partition.DeleteRecords(ctx, x.b.store, parts, moves)
	for k, m := range moves {
		a.Moved[at[k]] = moveMade{m.Start, forward.Fault{Err: m.Err}}
	}
	return a, nil
}

// advance moves log starts, here and on the leaders elsewhere.
func (b *Broker) advance(ctx context.Context, topic model.TopicID, what []RecordDeletion, moves []startMove) {
	here, parts, hereAt := []log.StartMove{}, []*partition.Partition{}, []int{}
	byNode := map[model.BrokerID][]int{}
	for i := range moves {
		at, err := forward.LeaderOf(b.meta.Image(), forward.Key{Topic: topic, Partition: what[i].Partition})
		switch {
		case moves[i].Log != nil:
			here, hereAt, parts = append(here, moves[i].StartMove), append(hereAt, i), append(parts, moves[i].part)
		case err != nil:
			moves[i].Err = err
		default:
			byNode[at.Node] = append(byNode[at.Node], i)
		}
	}
	b.together(slices.Collect(maps.Keys(byNode)), func(node model.BrokerID) {
		keys, list := make([]forward.Key, len(byNode[node])), make([]*startMove, len(byNode[node]))
		for k, i := range byNode[node] {
			keys[k], list[k] = forward.Key{Topic: topic, Partition: what[i].Partition}, &moves[i]
		}
		b.advanceAt(ctx, node, keys, list)
	})
	if len(here) > 0 {
		partition.DeleteRecords(ctx, b.store, parts, here)
	}
	for k, i := range hereAt {
		moves[i].StartMove = here[k]
	}
}

// advanceAt moves log starts of partitions that one other node leads.
func (b *Broker) advanceAt(ctx context.Context, node model.BrokerID, keys []forward.Key, moves []*startMove) {
	var q deleteRequest
	for i, k := range keys {
		at, _ := forward.LeaderOf(b.meta.Image(), k) // else the leader refuses it
		q.Moves = append(q.Moves, moveAsked{forward.Meant{Key: k, Epoch: at.Epoch}, moves[i].To})
	}
	a, err := forward.Ask[deleteRequest, deleteAnswer](ctx, b.away.Network(), node, forward.MethodDelete, q)
	for i, k := range keys {
		switch {
		case forward.Lost(err):
			moves[i].Err = model.Errorf(model.Timeout, "node %d did not answer: whether the records of partition %d were deleted is not known", node, k.Partition).WithCause(err)
		case err != nil:
			moves[i].Err = forward.Unanswered(k, forward.Place{Node: node}, err)
		case i < len(a.Moved):
			moves[i].Start, moves[i].Err = a.Moved[i].Start, a.Moved[i].Fault.Err
		default:
			moves[i].Err = model.Errorf(model.Timeout, "node %d has not told what became of partition %d", node, k.Partition)
		}
	}
}

type describeRequest struct {
	Topics []model.TopicID `json:"topics"`
	Index  uint64          `json:"index"` // of the metadata that the asker has applied
}

type describeAnswer struct {
	Topics []topicHere `json:"topics"` // in the order of the request
}

// topicHere is what a node tells of a topic: its own traffic, and the partitions that it leads.
type topicHere struct {
	In         float64         `json:"in"`
	Out        float64         `json:"out"`
	Partitions []partitionHere `json:"partitions"`
}

type partitionHere struct {
	ID       model.PartitionID `json:"id"`
	Bounds   partition.Bounds  `json:"bounds"`
	Size     int64             `json:"size"`
	Segments int               `json:"segments"`

	Followers []replication.FollowerState `json:"followers,omitempty"`
	Fault     forward.Fault               `json:"fault,omitzero"`
}

func (x atHand) describe(ctx context.Context, q describeRequest) (describeAnswer, error) {
	a := describeAnswer{Topics: make([]topicHere, len(q.Topics))}
	if x.b.meta.Image().Index() < q.Index {
		if err := x.b.meta.Barrier(ctx); err != nil {
			return a, err
		}
	}
	for i, id := range q.Topics {
		t := x.b.meta.Image().TopicByID(id)
		if t == nil {
			continue
		}
		_, _ = x.b.topic(ctx, t.Name) // what is not open yet has an error
		s := x.b.StateOf(t)
		h := topicHere{In: s.BytesInPerS, Out: s.OutPerS}
		for j := range s.Partitions {
			p := &s.Partitions[j]
			if p.Leader == x.b.nodeID {
				h.Partitions = append(h.Partitions, partitionHere{p.ID, p.Bounds, p.SizeBytes, p.Segments, p.Followers, forward.Fault{Err: p.Err}})
			}
		}
		a.Topics[i] = h
	}
	return a, nil
}

// describeTime is how long other nodes have to tell of their partitions.
const describeTime = 3 * time.Second

// States adds to topics of the image what their leaders know, each of which is asked once.
// Partitions whose leader does not answer have an error.
func (b *Broker) States(ctx context.Context, topics []*metadata.Topic) []*TopicState {
	out := make([]*TopicState, len(topics))
	byNode := map[model.BrokerID][]int{}
	for i, t := range topics {
		out[i] = b.StateOf(t)
		seen := map[model.BrokerID]bool{b.nodeID: true, metadata.NoLeader: true}
		for j := range t.Partitions {
			if n := t.Partitions[j].Leader; !seen[n] {
				seen[n] = true
				byNode[n] = append(byNode[n], i)
			}
		}
	}
	if len(byNode) == 0 {
		return out
	}
	answers := make(map[model.BrokerID]*describeAnswer, len(byNode))
	for n := range byNode {
		answers[n] = &describeAnswer{}
	}
	ctx, cancel := context.WithTimeout(ctx, describeTime)
	defer cancel()
	b.together(slices.Collect(maps.Keys(byNode)), func(node model.BrokerID) {
		q := describeRequest{Index: b.meta.Image().Index()}
		for _, i := range byNode[node] {
			q.Topics = append(q.Topics, topics[i].ID)
		}
		if a, err := forward.Ask[describeRequest, describeAnswer](ctx, b.away.Network(), node, forward.MethodDescribe, q); err == nil {
			*answers[node] = a
		} // else its partitions keep their error
	})
	for node, list := range byNode {
		for k, i := range list {
			if a := answers[node]; k < len(a.Topics) {
				out[i].merge(node, &a.Topics[k])
			}
		}
	}
	return out
}

// State is States of one topic.
func (b *Broker) State(ctx context.Context, t *metadata.Topic) *TopicState {
	return b.States(ctx, []*metadata.Topic{t})[0]
}

// merge takes over what a node tells of what it leads.
func (s *TopicState) merge(node model.BrokerID, h *topicHere) {
	s.BytesInPerS += h.In
	s.OutPerS += h.Out
	for i := range h.Partitions {
		from := &h.Partitions[i]
		if from.ID < 0 || int(from.ID) >= len(s.Partitions) {
			continue
		}
		p := &s.Partitions[from.ID]
		if p.Leader != node {
			continue
		}
		p.Bounds, p.SizeBytes, p.Segments, p.Followers, p.Err = from.Bounds, from.Size, from.Segments, from.Followers, from.Fault.Err
		if p.Err == nil {
			s.SizeBytes += p.SizeBytes
			s.RecordsNow += int64(p.HighWatermark - p.LogStart)
		}
	}
}
