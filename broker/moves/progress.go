package moves

import (
	"context"
	"math"
	"slices"
	"time"

	"tidewire/broker"
	"tidewire/cluster/metadata"
	"tidewire/internal/model"
)

// Moving is a partition that moves.
type Moving struct {
	Topic       *metadata.Topic
	Partition   model.PartitionID
	Done, Total int64         // bytes that the new replicas have, and are to have
	Known       bool          // Done and Total
	AtLeast     time.Duration // that the rest takes by the throttle; 0 where it is not known or there is none
}

// Of is the partition as it moves.
func (m *Moving) Of() *metadata.Partition { return &m.Topic.Partitions[m.Partition] }

// Remaining estimates how long a move goes on; false where that cannot be told.
func (s *Service) Remaining(m *Moving) (time.Duration, bool) {
	v := moveView(m)
	return v.Remaining(s.Now())
}

// List gives the partitions that move, in the order of topics. Errors: forbidden.
func (s *Service) List(ctx context.Context, c broker.Caller) ([]Moving, error) {
	if err := s.Broker.MayOnCluster(ctx, c, metadata.OpDescribe); err != nil {
		return nil, err
	}
	return s.moving(), nil
}

func (s *Service) moving() []Moving {
	var out []Moving
	for t := range s.Cluster.Image().Topics("") {
		for i := range t.Partitions {
			if t.Partitions[i].Move != nil {
				out = append(out, Moving{Topic: t, Partition: model.PartitionID(i)})
			}
		}
	}
	return out
}

// Measure asks leaders how far moves are. The moves of the list are taken to share the throttle
// with each other alone.
func (s *Service) Measure(ctx context.Context, list []Moving) {
	var topics []*metadata.Topic
	for i := range list {
		topics = append(topics, list[i].Topic)
	}
	s.measure(list, s.states(ctx, topics))
}

func (s *Service) measure(list []Moving, known states) {
	for i := range list {
		m := &list[i]
		if p := known.of(m.Topic.ID, m.Partition); p != nil {
			m.Done, m.Total = copied(p)
			m.Known = true
		}
	}
	pace(list, s.Cluster.Image().Cluster().Settings().MoveBytesPerSecond)
}

// pace tells of moves how long a throttle has them take: of each node as long as all that it is
// to send, or to take, and the longest of a move's nodes counts.
func pace(list []Moving, rate int64) {
	if rate == math.MaxInt64 || rate <= 0 {
		return
	}
	sends, takes := map[model.BrokerID]int64{}, map[model.BrokerID]int64{}
	for i := range list {
		m := &list[i]
		p := m.Of()
		sends[p.Leader] += m.Total - m.Done
		for _, id := range p.Adding() {
			takes[id] += (m.Total - m.Done) / int64(len(p.Adding()))
		}
	}
	for i := range list {
		m := &list[i]
		if !m.Known || m.Done >= m.Total {
			continue
		}
		most := sends[m.Of().Leader]
		for _, id := range m.Of().Adding() {
			most = max(most, takes[id])
		}
		m.AtLeast = time.Duration(min(float64(most)/float64(rate)*float64(time.Second), math.MaxInt64/2))
	}
}

// states are those of topics, as the partitions' leaders tell.
type states map[model.TopicID]*broker.TopicState

// states asks for topics, each once.
func (s *Service) states(ctx context.Context, topics []*metadata.Topic) states {
	topics = slices.Clone(topics)
	slices.SortFunc(topics, func(a, b *metadata.Topic) int { return slices.Compare(a.ID[:], b.ID[:]) })
	topics = slices.CompactFunc(topics, func(a, b *metadata.Topic) bool { return a.ID == b.ID })
	out := states{}
	if len(topics) == 0 {
		return out
	}
	for _, t := range s.Broker.States(ctx, topics) {
		out[t.Topic.ID] = t
	}
	return out
}

// of is a partition's state; nil where its leader has not told.
func (x states) of(t model.TopicID, p model.PartitionID) *broker.PartitionState {
	if s := x[t]; s != nil && int(p) < len(s.Partitions) && s.Partitions[p].Err == nil {
		return &s.Partitions[p]
	}
	return nil
}

// copied is how much of a partition the replicas have that a move adds, by their log ends.
func copied(p *broker.PartitionState) (done, total int64) {
	adding := p.Adding()
	total = p.SizeBytes * int64(len(adding))
	span := float64(p.LogEnd - p.LogStart)
	for _, f := range p.Followers {
		switch {
		case !slices.Contains(adding, f.ID):
		case f.InSync || span <= 0:
			done += p.SizeBytes
		case f.LogEnd > p.LogStart:
			done += int64(float64(p.SizeBytes) * min(float64(f.LogEnd-p.LogStart)/span, 1))
		}
	}
	return min(done, total), total
}

// holding are the topics of which a broker has a replica.
func holding(img *metadata.Image, id model.BrokerID) (out []*metadata.Topic) {
	for t := range img.Topics("") {
		if slices.ContainsFunc(t.Partitions, func(p metadata.Partition) bool { return slices.Contains(p.Replicas, id) }) {
			out = append(out, t)
		}
	}
	return out
}

// holds is how many bytes of record data a broker holds, and how many of them are not where
// they move to yet. A partition whose leader does not tell counts as the mean of the others.
func (x states) holds(topics []*metadata.Topic, id model.BrokerID) (all, left int64) {
	told, untold := int64(0), int64(0)
	for _, t := range topics {
		for i := range t.Partitions {
			p := x.of(t.ID, model.PartitionID(i))
			switch {
			case !slices.Contains(t.Partitions[i].Replicas, id):
				continue
			case p == nil:
				untold++
				continue
			}
			told++
			all += p.SizeBytes
			left += p.SizeBytes
			if done, total := copied(p); total > 0 && slices.Contains(p.Removing(), id) {
				left -= int64(float64(p.SizeBytes) * (float64(done) / float64(total)))
			}
		}
	}
	if told > 0 {
		all, left = all+all/told*untold, left+all/told*untold
	}
	return all, left
}
