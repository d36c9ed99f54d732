package coordinator

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"tidewire/broker"
	"tidewire/broker/forward"
	"tidewire/broker/group"
	"tidewire/internal/model"
)

// OffsetState is a committed offset, or a partition that a member has without one, with what
// its log says. Where Err is set the log could not be asked: HighWatermark, Lag and LagMs mean
// nothing then, and neither without a committed offset (Next is group.NoOffset).
type OffsetState struct {
	group.OffsetDescription
	HighWatermark model.Offset
	Lag           int64 // records between the two
	LagMs         int64 // age of the next record to be read, in ms; 0: there is none
	Err           error
}

// Description is a group as people look at it.
type Description struct {
	group.Description
	Coordinator model.BrokerID
	Offsets     []OffsetState // in the place of Description.Offsets
	TotalLag    int64         // of those whose lag is known
	Unknown     error         // why TotalLag is not all of it; nil: it is
	Tag         string        // the group's entity tag, hidden topics included
}

// TopicFilter tells the topics that the caller may hear of; nil: all.
type TopicFilter func(topic string) bool

func (f TopicFilter) lets(topic string) bool { return f == nil || f(topic) }

// Describe tells all of a group: what of it concerns topics that the filter leaves out is not
// told. It reads one batch of each partition that lags, for its age. Errors: unknown-group,
// leader-unavailable.
func (c *Coordinator) Describe(ctx context.Context, groupID string, may TopicFilter) (*Description, error) {
	out := &Description{}
	var err error
	if out.Description, err = describeCall.do(ctx, c, groupID, none{}); err != nil {
		return nil, err
	}
	out.Tag = out.Description.Tag()
	_, out.Coordinator = c.coordinatorOf(groupID)
	rows := filled(&out.Description, may)
	out.Description.Offsets = nil
	hide(&out.Description, may)
	out.Offsets = make([]OffsetState, len(rows))
	list := make([]*OffsetState, len(rows))
	for i, o := range rows {
		list[i] = &out.Offsets[i]
		list[i].OffsetDescription = o
	}
	c.measureAll(ctx, list, true)
	for _, s := range list {
		switch {
		case s.Err != nil && out.Unknown == nil:
			out.Unknown = s.Err
		case s.Err == nil && s.Next != group.NoOffset:
			out.TotalLag += s.Lag
		}
	}
	return out, nil
}

func (c *Coordinator) describeHere(ctx context.Context, groupID string, _ none) (out group.Description, err error) {
	err = c.run(ctx, groupID, false, func(g *group.Group, _ group.Env) (group.Effects, error) {
		if g.Vacant() {
			return group.Effects{}, unknownGroup(groupID)
		}
		out = g.Describe()
		return group.Effects{}, nil
	})
	return out, err
}

// filled are a group's offsets that the filter lets through, with partitions that members have
// and nothing is committed of.
func filled(d *group.Description, may TopicFilter) []group.OffsetDescription {
	var out []group.OffsetDescription
	seen := map[group.Name]bool{}
	for _, o := range d.Offsets {
		if may.lets(o.Topic) {
			out = append(out, o)
			seen[group.Name{Topic: o.Topic, Partition: o.Partition}] = true
		}
	}
	for i := range d.Members {
		a := d.Members[i].Assignment
		for _, list := range [][]group.Held{a.Held, a.Revoking} {
			for _, h := range list {
				if seen[group.Name{Topic: h.Name, Partition: h.Index}] || !may.lets(h.Name) {
					continue
				}
				out = append(out, group.OffsetDescription{
					Offset:   group.Offset{Topic: h.Name, TopicID: h.Topic, Partition: h.Index, Next: group.NoOffset, Epoch: model.NoEpoch},
					MemberID: d.Members[i].ID,
				})
			}
		}
	}
	slices.SortFunc(out, func(a, b group.OffsetDescription) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return out
}

// hide leaves out of members what the filter does not let through. What they share with the
// group is not changed.
func hide(d *group.Description, may TopicFilter) {
	if may == nil {
		return
	}
	no := func(h group.Held) bool { return !may(h.Name) }
	for i := range d.Members {
		m := &d.Members[i]
		m.Topics = slices.DeleteFunc(slices.Clone(m.Topics), func(t string) bool { return !may(t) })
		a := *m.Assignment
		a.Held, a.Revoking = slices.DeleteFunc(slices.Clone(a.Held), no), slices.DeleteFunc(slices.Clone(a.Revoking), no)
		m.Assignment = &a
	}
}

// measureAll asks the logs of committed offsets; age: how old the next record is too.
func (c *Coordinator) measureAll(ctx context.Context, list []*OffsetState, age bool) {
	keys := make([]forward.Key, len(list))
	for i, s := range list {
		keys[i] = forward.Key{Topic: s.TopicID, Partition: s.Partition}
		if s.TopicID.IsZero() { // committed by others, which know topics by name
			if t, ok := c.view().ByName(s.Topic); ok {
				keys[i].Topic = t.ID
			}
		}
	}
	logs, errs := c.broker.Readables(ctx, keys)
	for i, s := range list {
		if s.Err = errs[i]; s.Err == nil {
			c.measure(ctx, s, logs[i], age)
		}
	}
}

// measure asks one log.
func (c *Coordinator) measure(ctx context.Context, s *OffsetState, replica broker.Readable, age bool) {
	bounds := replica.Bounds()
	s.HighWatermark = bounds.HighWatermark
	if s.Next == group.NoOffset {
		return
	}
	s.Lag = max(0, int64(bounds.HighWatermark-max(s.Next, bounds.LogStart)))
	if s.Lag == 0 || !age {
		return
	}
	ms, ok, err := replica.TimeOfNext(ctx, s.Next, broker.ReadCommitted)
	if err != nil {
		s.Err = err
		return
	}
	if ok {
		s.LagMs = max(0, c.now().UnixMilli()-ms)
	}
}

// Offsets are the committed offsets of a group, of topics that the filter lets through, as
// Describe has them. Errors: unknown-group, leader-unavailable.
func (c *Coordinator) Offsets(ctx context.Context, groupID string, may TopicFilter) ([]OffsetState, error) {
	d, err := c.Describe(ctx, groupID, may)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(d.Offsets, func(o OffsetState) bool { return o.Next == group.NoOffset }), nil
}

// ListRequest says which groups are wanted.
type ListRequest struct {
	Prefix   string
	Contains string                  // in the name
	Topic    string                  // that they subscribe to or have offsets of; "": any
	May      func(group string) bool // that the caller may hear of; nil: all
}

func (r *ListRequest) wants(name string) bool {
	return strings.HasPrefix(name, r.Prefix) && strings.Contains(name, r.Contains) && (r.May == nil || r.May(name))
}

// listAsked is what each coordinator is asked for its groups.
type listAsked struct {
	Prefix   string `json:"prefix"`
	Contains string `json:"contains"`
	Topic    string `json:"topic"`
	Index    uint64 `json:"index"`
}

type listAnswer struct {
	Names []string      `json:"names"`
	Fault forward.Fault `json:"fault,omitzero"` // why some are missing
}

// List gives the names of groups, ascending, of all nodes that look after some. It waits for
// groups that are still being read. Errors: leader-unavailable, storage-error; the names are
// then those of the partitions that could be read.
func (c *Coordinator) List(ctx context.Context, req ListRequest) ([]string, error) {
	q := listAsked{req.Prefix, req.Contains, req.Topic, c.meta.Image().Index()}
	nodes, all := c.coordinators()
	var out []string
	var failed error
	if !all {
		failed = model.Errorf(model.LeaderUnavailable, "some groups have no coordinator now: a node that looks after groups does not run")
	}
	for _, node := range nodes {
		a, err := c.listAt(ctx, node, q)
		if err = cmp.Or(c.unanswered("*", node, true, err), a.Fault.Err); failed == nil {
			failed = err
		}
		for _, name := range a.Names {
			if req.May == nil || req.May(name) {
				out = append(out, name)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out), failed
}

func (c *Coordinator) listAt(ctx context.Context, node model.BrokerID, q listAsked) (listAnswer, error) {
	if node == c.nodeID {
		return c.listHere(ctx, q)
	}
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	return forward.Ask[listAsked, listAnswer](ctx, c.broker.Calls().Network(), node, methodList, q)
}

// listTime is how long another node has to tell of its groups.
const listTime = 10 * time.Second

func (c *Coordinator) listHere(ctx context.Context, q listAsked) (listAnswer, error) {
	var a listAnswer
	if err := c.caughtUp(ctx, q.Index); err != nil {
		return a, err
	}
	for _, s := range c.current() {
		if err := s.await(ctx); err != nil && a.Fault.Err == nil {
			a.Fault.Err = err
		}
	}
	actors := c.all()
	if q.Topic != "" {
		actors = c.of(q.Topic)
	}
	req := ListRequest{Prefix: q.Prefix, Contains: q.Contains}
	a.Names = make([]string, 0, len(actors))
	for _, x := range actors {
		if req.wants(x.name) && x.exists() {
			a.Names = append(a.Names, x.name)
		}
	}
	return a, nil
}

// exists tells whether there is anything of the group.
func (a *actor) exists() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.gone == nil && !a.core.Vacant()
}

// Summary is one row of a list of groups. With Err set only Group means something.
type Summary struct {
	Group       string
	State       group.State
	Members     int
	Topics      []string // ascending; those that the filter lets through
	TotalLag    int64    // records, of offsets whose logs could be asked
	Coordinator model.BrokerID
	Tag         string
	Unknown     error // why TotalLag is not all of it; nil: it is
	Err         error
}

// Summaries are rows of a list, of groups by name, as of this moment: they may hold what is
// about to be committed.
func (c *Coordinator) Summaries(ctx context.Context, names []string, may TopicFilter) []Summary {
	out := make([]Summary, len(names))
	byNode := map[model.BrokerID][]int{}
	for i, name := range names {
		out[i].Group = name
		node, err := c.place(ctx, name, false)
		if err != nil {
			out[i].Err = err
			continue
		}
		byNode[node] = append(byNode[node], i)
	}
	var rows []*OffsetState
	var of []*Summary
	for node, list := range byNode {
		q := make([]string, len(list))
		for k, i := range list {
			q[k] = names[i]
		}
		a, err := c.summariesAt(ctx, node, q)
		for k, i := range list {
			s := &out[i]
			if s.Err = c.unanswered(names[i], node, true, err); err != nil || k >= len(a) {
				continue
			}
			if s.Err = a[k].Fault.Err; s.Err == nil {
				for _, o := range s.take(&a[k], node, may) {
					rows, of = append(rows, o), append(of, s)
				}
			}
		}
	}
	c.measureAll(ctx, rows, false)
	for i, row := range rows {
		if row.Err == nil {
			of[i].TotalLag += row.Lag
		} else if of[i].Unknown == nil {
			of[i].Unknown = row.Err
		}
	}
	return out
}

// brief is what a coordinator tells of a group.
type brief struct {
	Description group.Description `json:"description"`
	Topics      []string          `json:"topics"`
	Fault       forward.Fault     `json:"fault,omitzero"`
}

// take takes over what the coordinator tells, and returns the offsets whose lag is to be
// measured.
func (s *Summary) take(b *brief, node model.BrokerID, may TopicFilter) (rows []*OffsetState) {
	d := &b.Description
	s.State, s.Members, s.Tag, s.Coordinator = d.State, len(d.Members), d.Tag(), node
	s.Topics = slices.DeleteFunc(b.Topics, func(t string) bool { return !may.lets(t) })
	for _, o := range d.Offsets {
		if may.lets(o.Topic) {
			rows = append(rows, &OffsetState{OffsetDescription: o})
		}
	}
	return rows
}

func (c *Coordinator) summariesAt(ctx context.Context, node model.BrokerID, names []string) ([]brief, error) {
	if node == c.nodeID {
		return c.summariesHere(ctx, names)
	}
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	return forward.Ask[[]string, []brief](ctx, c.broker.Calls().Network(), node, methodSummaries, names)
}

func (c *Coordinator) summariesHere(ctx context.Context, names []string) ([]brief, error) {
	out := make([]brief, len(names))
	for i, name := range names {
		out[i] = c.brief(ctx, name)
	}
	return out, nil
}

func (c *Coordinator) brief(ctx context.Context, name string) (b brief) {
	a, err := c.find(ctx, name, false)
	if err == nil && a == nil {
		err = unknownGroup(name)
	}
	if err != nil {
		b.Fault.Err = err
		return b
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.core.Vacant() {
		b.Fault.Err = unknownGroup(name)
		return b
	}
	b.Description, b.Topics = a.core.Describe(), a.core.Topics()
	return b
}
