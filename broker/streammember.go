package broker

import (
	"context"
	"slices"

	"tidewire/internal/model"
)

// Need adds rights without which the stream must end, and looks at them at once. Topics need
// not exist: of a member of a group it is its group that follows what becomes of them. Errors:
// forbidden, and the quorum's; nothing was added then.
func (s *Stream) Need(ctx context.Context, needs ...Need) error {
	for _, n := range needs {
		if err := s.b.may(ctx, s.guard.caller, n); err != nil {
			return err
		}
	}
	for _, n := range needs {
		s.guard.needs = append(s.guard.needs, guarded{Need: n, right: true})
	}
	return nil
}

// Take adds a topic for as long as somebody else says so: that it is deleted does not end the
// stream, but is an error of reading it. Errors: unknown-topic, also where the topic of the
// name has another id; leader-unavailable.
func (s *Stream) Take(ctx context.Context, name string, id model.TopicID) (*StreamTopic, error) {
	t, err := s.b.topic(ctx, name)
	switch {
	case err != nil:
		return nil, err
	case t.id != id:
		return nil, unknownTopic(name)
	}
	out := &StreamTopic{s: s, t: t}
	s.topics = append(s.topics, out)
	return out, nil
}

// Drop takes a topic back that Take has added; it must not be used again.
func (s *Stream) Drop(t *StreamTopic) {
	for p := range t.open {
		t.Shut(model.PartitionID(p))
	}
	s.topics = slices.DeleteFunc(s.topics, func(x *StreamTopic) bool { return x == t })
}

// Shut ends the reading of a partition: it does not wake the stream any more.
func (t *StreamTopic) Shut(p model.PartitionID) {
	if part := t.opened(p); part != nil {
		part.Unwatch(t.s.guard.watcher)
		t.open[p] = nil
	}
}
