package group

import (
	"maps"
	"slices"

	"tidewire/internal/model"
)

// ResetTo says where a reset goes.
type ResetTo string

// Where a reset goes: the ends of the log, the first record at or after a time, an offset,
// or so many records forward (back, where negative).
const (
	ToEarliest  ResetTo = "earliest"
	ToLatest    ResetTo = "latest"
	ToTimestamp ResetTo = "timestamp"
	ToOffset    ResetTo = "offset"
	ToShift     ResetTo = "shift"
)

// ResetRequest says which committed offsets are to be moved. Without topics and partitions
// it is all that the group has.
type ResetRequest struct {
	Topics     []string
	Partitions []Name
	To         ResetTo
	Value      int64 // ms since 1970, the offset, or the number of records
}

// check tells what the request alone shows.
func (req *ResetRequest) check() error {
	switch req.To {
	case ToEarliest, ToLatest, ToShift:
	case ToTimestamp, ToOffset:
		if req.Value < 0 {
			return model.Invalid("/value", "must not be negative")
		}
	default:
		return model.Invalid("/to", "must be one of earliest, latest, timestamp, offset and shift")
	}
	return nil
}

// ResetFrom is a partition that a reset is about.
type ResetFrom struct {
	Partition
	Name string
	From model.Offset // committed now, or NoOffset
}

// ResetMove is what a reset does to one partition.
type ResetMove struct {
	Partition
	Name     string
	From, To model.Offset // From is NoOffset where nothing is committed
}

// ResetScope tells which partitions a reset is about, for which the shell asks the logs
// (Bounds; AtTime is for ToTimestamp's value). In order of name and number.
//
// Errors: invalid-argument for an unknown To, a value that To does not allow, an empty
// scope; unknown-topic, unknown-partition; unknown-group where the group has no offsets
// and none are named; group-not-empty.
func (g *Group) ResetScope(env Env, req ResetRequest) ([]ResetFrom, error) {
	if err := req.check(); err != nil {
		return nil, err
	}
	names, err := g.resetNames(env, req)
	if err != nil {
		return nil, err
	}
	ids, err := find(env.Topics, names, "partitions")
	if err != nil {
		return nil, err
	}
	if err := g.errMembers(); err != nil {
		return nil, err
	}
	out := make([]ResetFrom, len(names))
	for i, n := range names {
		out[i] = ResetFrom{Partition: ids[i], Name: n.Topic, From: NoOffset}
		if o, ok := g.committed(Held{Partition: ids[i], Name: n.Topic}); ok {
			out[i].From = o.Next
		}
	}
	return out, nil
}

// resetNames lists what a request names, in order, none twice.
func (g *Group) resetNames(env Env, req ResetRequest) ([]Name, error) {
	set := map[Name]bool{}
	for _, n := range req.Partitions {
		set[n] = true
	}
	for _, topic := range req.Topics {
		t, ok := env.Topics.ByName(topic)
		if !ok {
			return nil, model.Errorf(model.UnknownTopic, "there is no topic %q", topic)
		}
		for p := range t.Partitions {
			set[Name{topic, model.PartitionID(p)}] = true
		}
	}
	if len(req.Partitions)+len(req.Topics) == 0 {
		if g.Vacant() {
			return nil, model.Errorf(model.UnknownGroup, "there is no group %q", g.id)
		}
		for topic, byPartition := range g.offsets {
			if _, ok := env.Topics.ByName(topic); !ok {
				continue // deleted, which the group is about to hear
			}
			for p := range byPartition {
				set[Name{topic, p}] = true
			}
		}
	}
	return slices.SortedFunc(maps.Keys(set), compareNames), nil
}

// PlanReset works out where each partition goes: its dry run is this and no more. An offset
// outside of the log becomes the nearer end, as with Kafka's tool. A shift starts from the
// committed offset, or from the log's end where there is none. Partitions without bounds
// are left out.
func PlanReset(req ResetRequest, scope []ResetFrom, bounds []Bounds) []ResetMove {
	byPartition := make(map[Partition]Bounds, len(bounds))
	for _, b := range bounds {
		byPartition[b.Partition] = b
	}
	out := make([]ResetMove, 0, len(scope))
	for _, f := range scope {
		b, ok := byPartition[f.Partition]
		if !ok {
			continue
		}
		var to model.Offset
		switch req.To {
		case ToEarliest:
			to = b.Earliest
		case ToLatest:
			to = b.Latest
		case ToTimestamp:
			to = b.AtTime
		case ToOffset:
			to = model.Offset(req.Value)
		case ToShift:
			to = shifted(f.From, req.Value, b)
		}
		to = max(b.Earliest, min(to, b.Latest))
		out = append(out, ResetMove{Partition: f.Partition, Name: f.Name, From: f.From, To: to})
	}
	return out
}

// shifted moves an offset by so many records, without overflow.
func shifted(from model.Offset, by int64, b Bounds) model.Offset {
	if from == NoOffset {
		from = b.Latest
	}
	if by > 0 && int64(from) > int64(b.Latest)-min(by, int64(b.Latest)) {
		return b.Latest
	}
	if by < 0 && int64(from)+max(by, -int64(from)) <= int64(b.Earliest) {
		return b.Earliest
	}
	return from + model.Offset(by)
}

// Reset stores what PlanReset worked out. A move that is none is stored too: it renews the
// commit's time.
//
// Errors: group-not-empty; unknown-topic for a topic that was deleted since the plan.
func (g *Group) Reset(env Env, moves []ResetMove) (Effects, error) {
	if err := g.errMembers(); err != nil {
		return Effects{}, err
	}
	for _, m := range moves {
		if _, ok := env.Topics.ByID(m.Topic); !ok {
			return Effects{}, model.Errorf(model.UnknownTopic, "there is no topic %q any more", m.Name)
		}
	}
	s := g.step(env)
	for _, m := range moves {
		s.emit(Offset{Topic: m.Name, TopicID: m.Topic, Partition: m.Index, Next: m.To, Epoch: model.NoEpoch, CommitMs: env.WallMs})
	}
	return s.finish(), nil
}
