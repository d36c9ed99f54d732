package group

import (
	"flag"
	"fmt"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tidewire/broker/group/cursor"
	"tidewire/internal/model"
)

var update = flag.Bool("update", false, "write the golden files anew")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// topics is a view for tests: it is changed in place, and tells no generation.
type topics map[string]Topic

func (v topics) ByName(name string) (Topic, bool) { t, ok := v[name]; return t, ok }
func (v topics) ByID(id model.TopicID) (Topic, bool) {
	for _, t := range v {
		if t.ID == id {
			return t, true
		}
	}
	return Topic{}, false
}
func (v topics) All() iter.Seq[Topic] {
	return func(yield func(Topic) bool) {
		for _, n := range slices.Sorted(maps.Keys(v)) {
			if !yield(v[n]) {
				return
			}
		}
	}
}
func (v topics) Generation() uint64 { return 0 }

// world is a group with its log and a trace of what happens to it.
type world struct {
	t      *testing.T
	g      *Group
	topics topics
	mono   time.Duration
	wallMs int64
	log    []Record
	trace  strings.Builder
	ids    byte
	names  map[model.TopicID]string
	cursor map[string]*cursor.Cursor // of each member's last answer
}

func newWorld(t *testing.T, settings Settings, list ...string) *world {
	w := &world{t: t, topics: topics{}, mono: time.Hour, wallMs: 1_700_000_000_000, names: map[model.TopicID]string{}, cursor: map[string]*cursor.Cursor{}}
	for _, x := range list {
		var name string
		var n int32
		_, err := fmt.Sscanf(strings.ReplaceAll(x, ":", " "), "%s %d", &name, &n)
		require.NoError(t, err)
		w.create(name, n)
	}
	w.g = New("g", settings)
	w.g.Load(w.env())
	return w
}

// calm are settings that put no assignment off.
func calm() Settings {
	s := DefaultSettings()
	s.AssignmentInterval = 0
	return s
}

func (w *world) env() Env { return Env{Mono: w.mono, WallMs: w.wallMs, Topics: w.topics} }

func (w *world) create(name string, n int32) {
	w.ids++
	id := model.TopicID{0: 0xaa, 15: w.ids}
	w.topics[name] = Topic{ID: id, Name: name, Partitions: n}
	w.names[id] = name
	if w.ids > 9 {
		w.t.Fatal("too many topics")
	}
}

func (w *world) note(format string, args ...any) { fmt.Fprintf(&w.trace, format+"\n", args...) }

// after notes time going by, and ticks.
func (w *world) after(d time.Duration) {
	w.mono += d
	w.wallMs += d.Milliseconds()
	w.note("")
	w.note("after %v", d)
	if at, ok := w.g.NextDeadline(); ok && at <= w.mono {
		w.took("tick", w.g.Tick(w.env()))
	}
}

// took notes effects.
func (w *world) took(what string, eff Effects) {
	w.log = append(w.log, eff.Records...)
	w.note("%s", what)
	for _, r := range eff.Records {
		w.note("  | %s", w.record(r))
	}
	if len(eff.Changed) > 0 {
		w.note("  changed: %s", strings.Join(eff.Changed, " "))
	}
	for _, u := range eff.Unresolved {
		w.note("  unresolved: %s/%d of %s by %s", u.Name, u.Index, u.Member, u.Policy)
	}
}

// failed notes an error.
func (w *world) failed(what string, err error) {
	w.note("%s", what)
	w.note("  refused: %v", err)
}

func (w *world) record(r Record) string {
	switch r := r.(type) {
	case GroupInfo:
		return fmt.Sprintf("group epoch=%d target=%d assignor=%s empty_since=%d", r.Epoch, r.TargetEpoch, r.Assignor, r.EmptySinceMs)
	case TopicInfo:
		return fmt.Sprintf("topic %s#%d initial=%d partitions=%d", r.Name, r.ID[15], r.Initial, r.Partitions)
	case Member:
		return fmt.Sprintf("member %s instance=%q topics=%v pattern=%q session=%v reset=%s auto_commit=%v", r.ID, r.InstanceID, r.Topics, r.Pattern, r.SessionTimeout, r.Reset, r.AutoCommit)
	case Target:
		var b strings.Builder
		for _, t := range r.Topics {
			fmt.Fprintf(&b, " %s#%d%v", w.names[t.Topic], t.Topic[15], t.Partitions)
		}
		return fmt.Sprintf("target of %s:%s", r.Member, b.String())
	case Current:
		var b strings.Builder
		for _, t := range r.Topics {
			fmt.Fprintf(&b, " %s#%d[", w.names[t.Topic], t.Topic[15])
			for i, x := range t.Grants {
				if i > 0 {
					b.WriteString(" ")
				}
				fmt.Fprintf(&b, "%d@%d", x.Index, x.Since)
				if x.Revoked != 0 {
					fmt.Fprintf(&b, "-revoked@%d", x.Revoked)
				}
			}
			b.WriteString("]")
		}
		return fmt.Sprintf("current of %s: version %d%s", r.Member, r.Version, b.String())
	case MemberGone:
		return fmt.Sprintf("gone %s reason=%d at=%d", r.Member, r.Reason, r.AtMs)
	case Offset:
		return fmt.Sprintf("offset %s#%d/%d=%d metadata=%q", r.Topic, r.TopicID[15], r.Partition, r.Next, r.Metadata)
	case StagedOffset:
		return fmt.Sprintf("staged by %d: %s", r.Producer, w.record(r.Offset))
	case Tombstone:
		k := r.Of
		return fmt.Sprintf("tombstone kind=%d member=%s topic=%s%s/%d", k.Kind, k.Member, w.names[k.TopicID], k.Topic, k.Partition)
	default:
		return fmt.Sprintf("%T", r)
	}
}

// joins adds a member that wants topics by name, and notes it.
func (w *world) joins(id string, change func(*JoinRequest), topics ...string) {
	req := JoinRequest{Member: Member{ID: id, Topics: topics, SessionTimeout: 10 * time.Second, Reset: Earliest}}
	if change != nil {
		change(&req)
	}
	eff, res, err := w.g.Join(w.env(), req)
	if err != nil {
		w.failed("join of "+id, err)
		return
	}
	w.took("join of "+id, eff)
	w.note("  answer: assignor=%s epoch=%d fenced=%q", res.Assignor, res.Epoch, res.Fenced)
	w.resolve(eff)
}

// resolve places everything at offset 0 to 100 of each log.
func (w *world) resolve(eff Effects) {
	for _, u := range eff.Unresolved {
		e, _, err := w.g.Resolve(w.env(), ResolveRequest{Member: u.Member, Bounds: []Bounds{{Partition: u.Partition, At: NoOffset, Earliest: 0, Latest: 100, AtTime: 50}}})
		require.NoError(w.t, err)
		w.took(fmt.Sprintf("  resolve of %s/%d", u.Name, u.Index), e)
	}
}

// polls has a member poll, be given some records of each partition, and be answered.
func (w *world) polls(id string, c *cursor.Cursor) *Assignment {
	what := "poll of " + id
	if c == nil {
		what += " without cursor"
	} else {
		what += fmt.Sprintf(" with a cursor of version %d", c.Version)
	}
	eff, _, err := w.g.Poll(w.env(), PollRequest{Member: id, Cursor: c})
	if err != nil {
		w.failed(what, err)
		return nil
	}
	w.took(what, eff)
	w.resolve(eff)
	res, err := w.g.Look(id, c)
	require.NoError(w.t, err)
	require.Empty(w.t, res.Unresolved)
	reached := make([]model.Offset, len(res.Positions))
	for i, p := range res.Positions {
		reached[i] = p.Next + 10
	}
	a, err := w.g.Answer(w.env(), id, 0)
	require.NoError(w.t, err)
	w.cursor[id] = MakeCursor(id, a, res, reached)
	w.note("  answer: version=%d epoch=%d%s%s pending=%v", a.Version, a.Epoch, heldText(" held", a.Held, res.Positions, reached), heldText(" revoking", a.Revoking, nil, nil), a.Pending)
	return a
}

func heldText(what string, list []Held, at []Position, reached []model.Offset) string {
	if len(list) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString(what)
	for _, h := range list {
		fmt.Fprintf(&b, " %s/%d", h.Name, h.Index)
		for i, p := range at {
			if p.Held == h {
				fmt.Fprintf(&b, "[%d,%d)", p.Next, reached[i])
			}
		}
	}
	return b.String()
}

// goesOn polls with the cursor of the member's last answer.
func (w *world) goesOn(id string) *Assignment { return w.polls(id, w.cursor[id]) }

// topicsChange tells the group.
func (w *world) topicsChange(what string) {
	w.note("")
	eff := w.g.TopicsChanged(w.env())
	w.took(what, eff)
	w.resolve(eff)
}

// reload folds the log into a new group.
func (w *world) reload() {
	w.g = New("g", w.g.settings)
	for _, r := range w.log {
		w.g.Apply(r)
	}
	w.note("")
	w.took("the coordinator moved", w.g.Load(w.env()))
}

// golden compares the trace with its file, and the state with what its log folds to.
func (w *world) golden(name string) {
	w.t.Helper()
	d := w.g.Describe()
	w.note("")
	w.note("at the end the group is %s in epoch %d", d.State, d.Epoch)
	for _, m := range d.Members {
		w.note("  %s:%s%s", m.ID, heldText(" held", m.Assignment.Held, nil, nil), heldText(" revoking", m.Assignment.Revoking, nil, nil))
	}
	path := filepath.Join("testdata", name+".golden")
	if *update {
		require.NoError(w.t, os.WriteFile(path, []byte(w.trace.String()), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(w.t, err)
	require.Equal(w.t, string(want), w.trace.String())
	fresh := New("g", w.g.settings)
	for _, r := range w.log {
		fresh.Apply(r)
	}
	require.Equal(w.t, w.g.Snapshot(), fresh.Snapshot())
}

// held lists what a member may read, as topic/partition.
func (w *world) held(id string) []string {
	res, err := w.g.Look(id, nil)
	require.NoError(w.t, err)
	out := []string{}
	for _, h := range res.Assignment.Held {
		out = append(out, fmt.Sprintf("%s/%d", h.Name, h.Index))
	}
	return out
}

// place looks a position up by name.
func place(t *testing.T, res PollResult, topic string, p model.PartitionID) Position {
	for _, x := range res.Positions {
		if x.Name == topic && x.Index == p {
			return x
		}
	}
	require.Fail(t, "no such position", "%s/%d in %+v", topic, p, res)
	return Position{}
}
