package groups

import (
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"tidewire/broker/group"
	"tidewire/broker/group/cursor"
	"tidewire/internal/model"
)

// topic is a pretended topic: logs that are numbers only.
type topic struct {
	group.Topic
	start, end []model.Offset
}

// view is the topics of one moment.
type view struct {
	generation uint64
	byName     map[string]group.Topic
}

func (v *view) ByName(name string) (group.Topic, bool) { t, ok := v.byName[name]; return t, ok }

func (v *view) ByID(id model.TopicID) (group.Topic, bool) {
	for _, t := range v.byName {
		if t.ID == id {
			return t, true
		}
	}
	return group.Topic{}, false
}

func (v *view) All() iter.Seq[group.Topic] {
	return func(yield func(group.Topic) bool) {
		for _, n := range slices.Sorted(maps.Keys(v.byName)) {
			if !yield(v.byName[n]) {
				return
			}
		}
	}
}

func (v *view) Generation() uint64 { return v.generation }

// grant names one holding of a partition.
type grant struct {
	member string
	since  group.Version
}

// answer waits until its records are committed.
type answer struct {
	need    int    // length of the log that must be committed
	release func() // the shell writes it
}

// sim is one seed under way.
type sim struct {
	rng   *rand.Rand
	tally *tally
	told  []string

	mono time.Duration
	skew int64 // of the wall clock, ms
	unit int   // counts topics and members

	topics   map[string]*topic
	view     *view
	settings group.Settings
	g        *group.Group

	log       [][]group.Record // batches
	committed int              // how many of them are
	queue     []answer

	clients []*client
	byID    map[string]*client
	ids     int

	// The oracle.
	offsets map[group.Name]group.Offset
	seen    map[group.Partition]model.Offset // all below was received or jumped over
	serving map[group.Partition]grant
	retired map[group.Partition]map[grant]bool
	jumps   bool               // the operation under way may set offsets as it likes
	granted []group.Ungrounded // by the operations since the last call of ground
}

func newSim(seed uint64, t *tally) *sim {
	s := &sim{
		rng: rand.New(rand.NewPCG(seed, 0x67726f7570)), tally: t,
		mono: time.Hour, topics: map[string]*topic{}, byID: map[string]*client{},
		settings: group.DefaultSettings(),
	}
	s.settings.OffsetRetention = 10 * time.Minute
	s.settings.GoneFor = []time.Duration{20 * time.Second, time.Hour}[s.n(2)]
	s.settings.MaxGone = []int{2, 1000}[s.n(2)]
	s.settings.MaxMembers = []int{0, 0, 5}[s.n(3)]
	s.settings.AssignmentInterval = []time.Duration{0, 50 * time.Millisecond, time.Second}[s.n(3)]
	s.seen, s.serving = map[group.Partition]model.Offset{}, map[group.Partition]grant{}
	s.retired, s.offsets = map[group.Partition]map[grant]bool{}, map[group.Name]group.Offset{}
	for i := range 2 + s.n(2) {
		s.createTopic(topicNames[i])
	}
	s.g = group.New("g", s.settings)
	s.look()
	s.g.Load(s.env())
	for range 3 + s.n(5) {
		s.clients = append(s.clients, &client{n: len(s.clients)})
	}
	return s
}

var topicNames = []string{"orders", "payments", "events.eu", "events.us", "audit"}

func (s *sim) n(k int) int       { return s.rng.IntN(k) }
func (s *sim) chance(k int) bool { return s.rng.IntN(k) == 0 }
func (s *sim) done(what string)  { s.tally.done[what]++ }
func (s *sim) env() group.Env {
	return group.Env{Mono: s.mono, WallMs: s.mono.Milliseconds() + 1_700_000_000_000 + s.skew, Topics: s.view}
}

// is fails the seed.
func (s *sim) is(ok bool, format string, args ...any) {
	if !ok {
		panic(stopped{fmt.Sprintf(format, args...)})
	}
}

func (s *sim) tell(format string, args ...any) {
	s.told = append(s.told, fmt.Sprintf("%v ", s.mono)+fmt.Sprintf(format, args...))
}

// look makes the view of the topics as they are.
func (s *sim) look() {
	s.unit++
	v := &view{generation: uint64(s.unit), byName: map[string]group.Topic{}}
	for n, t := range s.topics {
		v.byName[n] = t.Topic
	}
	s.view = v
}

func (s *sim) createTopic(name string) {
	s.unit++
	n := 1 + s.n(6)
	t := &topic{Topic: group.Topic{ID: model.TopicID{byte(s.rng.Uint32()), byte(s.unit >> 8), byte(s.unit)}, Name: name, Partitions: int32(n)}}
	for range n {
		end := model.Offset(s.n(30))
		t.start, t.end = append(t.start, 0), append(t.end, end)
	}
	s.topics[name] = t
}

// logOf is the log of a partition; nil when its topic is gone.
func (s *sim) logOf(h group.Held) *topic {
	t := s.topics[h.Name]
	if t == nil || t.ID != h.Topic || int(h.Index) >= len(t.end) {
		return nil
	}
	return t
}

// took appends what an operation did, and checks it.
func (s *sim) took(what string, eff group.Effects) {
	if len(eff.Records) > 0 {
		s.log = append(s.log, eff.Records)
		s.follow(what, eff.Records)
		s.checkOwners()
	}
	s.is(slices.IsSorted(eff.Changed), "%s: changed members are not in order: %v", what, eff.Changed)
	s.granted = append(s.granted, eff.Unresolved...)
}

// ground resolves what was granted, as the shell does after an operation.
func (s *sim) ground() {
	list := s.granted
	s.granted = nil
	for _, u := range list {
		if s.chance(2) { // the shell may be late: the member's poll asks again
			s.resolve(u.Member, []group.Unresolved{u.Unresolved}, nil)
		}
	}
}

// answerWith keeps an answer back until what is in the log now is committed.
func (s *sim) answerWith(release func()) {
	s.queue = append(s.queue, answer{len(s.log), release})
}

// follow has the oracle see records, in the order of the log.
func (s *sim) follow(what string, records []group.Record) {
	for _, r := range records {
		switch r := r.(type) {
		case group.Offset:
			old, ok := s.offsets[group.Name{Topic: r.Topic, Partition: r.Partition}]
			back := ok && old.TopicID == r.TopicID && r.Next < old.Next
			s.is(!back || s.jumps, "%s took the committed offset of %s/%d back from %d to %d", what, r.Topic, r.Partition, old.Next, r.Next)
			if back {
				s.done("an offset went back because it was told to")
			}
			s.offsets[group.Name{Topic: r.Topic, Partition: r.Partition}] = r
			if s.jumps {
				p := group.Partition{Topic: r.TopicID, Index: r.Partition}
				s.seen[p] = max(s.seen[p], r.Next)
			}
		case group.Tombstone:
			if r.Of.Kind == group.KindOffset {
				delete(s.offsets, group.Name{Topic: r.Of.Topic, Partition: r.Of.Partition})
			}
		case group.MemberGone:
			s.done(map[group.Reason]string{group.Expired: "a member expired", group.Fenced: "a member was fenced"}[r.Reason])
		}
	}
}

// checkOwners wants each partition to have one holder at most.
func (s *sim) checkOwners() {
	holder := map[group.Partition]string{}
	for _, m := range s.g.Describe().Members {
		for _, list := range [][]group.Held{m.Assignment.Held, m.Assignment.Revoking} {
			for _, h := range list {
				other, ok := holder[h.Partition]
				s.is(!ok, "%s/%d is held by %s and %s", h.Name, h.Index, other, m.ID)
				holder[h.Partition] = m.ID
				s.is(h.Name != "", "a topic that is gone is held by %s", m.ID)
			}
		}
	}
}

// checkFold wants the state to be what the log folds to, and what a compacted log does.
func (s *sim) checkFold() {
	want := fmt.Sprintf("%+v", s.g.Snapshot())
	fresh := group.New("g", s.settings)
	last := map[group.Key]int{}
	n := 0
	for _, batch := range s.log {
		for _, r := range batch {
			fresh.Apply(r)
			last[r.Key()] = n
			n++
		}
	}
	s.is(want == fmt.Sprintf("%+v", fresh.Snapshot()), "the log does not fold to the state:\n%s\n%+v", want, fresh.Snapshot())
	compacted := group.New("g", s.settings)
	n = 0
	for _, batch := range s.log {
		for _, r := range batch {
			if last[r.Key()] == n || s.chance(4) { // compaction leaves some of the old
				compacted.Apply(r)
			}
			n++
		}
	}
	s.is(want == fmt.Sprintf("%+v", compacted.Snapshot()), "the compacted log does not fold to the state:\n%s\n%+v", want, compacted.Snapshot())
	s.done("the log folds to the state")
}

// refused wants that an operation that failed has changed nothing.
func (s *sim) refused(what string, err error, eff group.Effects, codes ...model.Code) {
	s.is(len(eff.Records)+len(eff.Changed) == 0, "%s failed and had effects: %v %+v", what, err, eff)
	for _, c := range codes {
		if model.HasCode(err, c) {
			s.done("refused: " + string(c))
			return
		}
	}
	s.is(false, "%s: wanted one of %v: %v", what, codes, err)
}

// commitLog has some of the log committed, and answers written.
func (s *sim) commitLog(upTo int) {
	s.committed = max(s.committed, min(upTo, len(s.log)))
	for len(s.queue) > 0 && s.queue[0].need <= s.committed {
		a := s.queue[0]
		s.queue = s.queue[1:]
		a.release()
	}
}

// served notes that an answer with records of a grant was written.
func (s *sim) served(p group.Partition, by grant) {
	s.is(!s.retired[p][by], "records of partition %d were given to %v after a later holder had some", p.Index, by)
	if was, ok := s.serving[p]; ok && was != by {
		if s.retired[p] == nil {
			s.retired[p] = map[grant]bool{}
		}
		s.retired[p][was] = true
		s.done("a partition went to another holder")
		if was.member == by.member {
			s.done("a partition was lost and came back")
		}
	}
	s.serving[p] = by
}

// position is where the oracle has a member read.
func (s *sim) position(h group.Held, member string, c *cursor.Cursor) model.Offset {
	if c != nil && c.Member == cursor.Tag(member) {
		for _, t := range c.Topics {
			for _, e := range t.Entries {
				if t.Tag == cursor.TagOf(h.Topic) && e.Partition == h.Index && e.Since == h.Since {
					return e.Next
				}
			}
		}
	}
	if o, ok := s.offsets[group.Name{Topic: h.Name, Partition: h.Index}]; ok && o.TopicID == h.Topic {
		return o.Next
	}
	return group.NoOffset
}
