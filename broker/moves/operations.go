package moves

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"tidewire/broker"
	"tidewire/broker/operations"
	"tidewire/cluster/metadata"
	"tidewire/internal/model"
)

// Kinds of operations whose account is the metadata.
const (
	MovePartition operations.Kind = "move-partition"
	DrainBroker   operations.Kind = "drain-broker"
)

func moveID(topic model.TopicID, p model.PartitionID, m *metadata.Move) string {
	return fmt.Sprintf("move-%012x-%s-%d", int64(m.Since), topic, p)
}

func drainID(b *metadata.Broker) string {
	return fmt.Sprintf("drain-%012x-%d", int64(b.Drain.Since), b.ID)
}

// moveView is a move as an operation, with the progress that it is known to have.
func moveView(m *Moving) operations.View {
	move := m.Of().Move
	return operations.View{
		ID: moveID(m.Topic.ID, m.Partition, move), Broker: m.Of().Leader, State: operations.Running, CreatedAt: move.Since.Time(),
		Spec: operations.Spec{Kind: MovePartition, Resource: operations.Resource{Type: "partition", Name: m.Topic.Name, Partition: &m.Partition}, Principal: move.By, Unit: "bytes"},
		Done: m.Done, Total: m.Total, AtLeast: m.AtLeast,
	}
}

// drainView is a drain as an operation: how many replicas have left.
func drainView(b *metadata.Broker, left int) operations.View {
	v := operations.View{
		ID: drainID(b), Broker: b.ID, State: operations.Running, CreatedAt: b.Drain.Since.Time(),
		Spec:  operations.Spec{Kind: DrainBroker, Resource: operations.Resource{Type: "broker", Name: strconv.Itoa(int(b.ID))}, Principal: b.Drain.Principal, Unit: "partitions"},
		Total: int64(max(b.Drain.Replicas, left)),
	}
	v.Done = v.Total - int64(left)
	return v
}

// held counts the replicas of a broker.
func held(img *metadata.Image, id model.BrokerID) (n int) {
	for t := range img.Topics("") {
		for i := range t.Partitions {
			if slices.Contains(t.Partitions[i].Replicas, id) {
				n++
			}
		}
	}
	return n
}

// Operations are the moves and drains that run and that the caller may see: with describe on the
// cluster all, else its own.
func (s *Service) Operations(ctx context.Context, c broker.Caller) []operations.View {
	all := s.Broker.Allowed(c, metadata.OpDescribe, metadata.ResourceCluster, metadata.ClusterResource)
	mine := func(v *operations.View) bool { return all || v.Spec.Principal != "" && v.Spec.Principal == nameOf(c) }
	var out []operations.View
	img, list := s.Cluster.Image(), s.moving()
	known := s.states(ctx, concerned(img, list))
	s.measure(list, known)
	for i := range list {
		if v := moveView(&list[i]); mine(&v) {
			out = append(out, v)
		}
	}
	for b := range img.Brokers() {
		if b.Drain == nil {
			continue
		}
		left := held(img, b.ID)
		v := drainView(b, left)
		if left == 0 || !mine(&v) {
			continue
		}
		inBytes(&v, b, known)
		for i := range list { // it lasts as long as what has begun of it
			if slices.Contains(list[i].Of().Removing(), b.ID) {
				v.AtLeast = max(v.AtLeast, list[i].AtLeast)
			}
		}
		out = append(out, v)
	}
	return out
}

// concerned are the topics that moves and drains are about.
func concerned(img *metadata.Image, list []Moving) (topics []*metadata.Topic) {
	for i := range list {
		topics = append(topics, list[i].Topic)
	}
	for b := range img.Brokers() {
		if b.Drain != nil {
			topics = append(topics, holding(img, b.ID)...)
		}
	}
	return topics
}

// inBytes counts a drain in bytes, where it is known how many there were when it began.
func inBytes(v *operations.View, b *metadata.Broker, known states) {
	if b.Drain.Bytes == 0 {
		return
	}
	var topics []*metadata.Topic
	for _, t := range known {
		topics = append(topics, t.Topic)
	}
	_, left := known.holds(topics, b.ID)
	v.Spec.Unit, v.Total = "bytes", max(b.Drain.Bytes, left)
	v.Done = v.Total - left
}

// CancelOperation takes back a move, or ends a drain, that runs; false where there is none of
// that id. Errors: forbidden, conflict, those of the quorum.
func (s *Service) CancelOperation(ctx context.Context, c broker.Caller, id string) (found bool, err error) {
	for _, m := range s.moving() {
		if moveID(m.Topic.ID, m.Partition, m.Of().Move) == id {
			return true, s.Cancel(ctx, c, m.Topic.Name, m.Partition)
		}
	}
	for b := range s.Cluster.Image().Brokers() {
		if b.Drain != nil && drainID(b) == id {
			_, _, err := s.Undrain(ctx, c, Change{ID: b.ID})
			return true, err
		}
	}
	return false, nil
}

// noteEnded notes moves and drains that a change has ended. It runs on the applying goroutine.
func (s *Service) noteEnded(old, now *metadata.Image, d metadata.Delta) {
	for id := range d.Topics {
		if t := old.TopicByID(id); t != nil {
			s.noteTopic(t, now.TopicByID(id))
		}
	}
	for b := range old.Brokers() {
		if b.Drain == nil {
			continue
		}
		switch n := now.Broker(b.ID); {
		case n == nil || n.Drain == nil: // it was ended
			if left := held(old, b.ID); left > 0 {
				s.note(drainView(b, left), operations.Cancelled)
			}
		case len(d.Topics) > 0 && held(now, b.ID) == 0 && held(old, b.ID) > 0:
			v := drainView(b, 0)
			if b.Drain.Bytes > 0 {
				v.Spec.Unit, v.Total = "bytes", b.Drain.Bytes
			}
			s.note(v, operations.Done)
		}
	}
}

func (s *Service) noteTopic(t, now *metadata.Topic) {
	for i := range t.Partitions {
		m := t.Partitions[i].Move
		if m == nil {
			continue
		}
		v := moveView(&Moving{Topic: t, Partition: model.PartitionID(i)})
		switch {
		case now == nil:
			s.note(v, operations.Cancelled) // with its topic
		case now.Partitions[i].Move == nil && slices.Equal(now.Partitions[i].Replicas, m.To):
			s.note(v, operations.Done)
		case now.Partitions[i].Move == nil || moveID(t.ID, model.PartitionID(i), now.Partitions[i].Move) != v.ID:
			s.note(v, operations.Cancelled)
		}
	}
}

func (s *Service) note(v operations.View, state operations.State) {
	v.State, v.Changes = state, v.Changes+1
	if state == operations.Done {
		v.Done = v.Total
	}
	s.Account.Note(v)
}
