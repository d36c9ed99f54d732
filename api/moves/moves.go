package moves

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"time"

	"tidewire/api/problem"
	"tidewire/api/route"
	"tidewire/broker"
	"tidewire/broker/audit"
	"tidewire/broker/moves"
	"tidewire/cluster/metadata"
	"tidewire/cluster/placement"
	"tidewire/internal/model"
)

// Service is what the door calls.
type Service interface {
	MayAlter(c broker.Caller) bool
	List(ctx context.Context, c broker.Caller) ([]moves.Moving, error)
	Measure(ctx context.Context, list []moves.Moving)
	Remaining(m *moves.Moving) (time.Duration, bool)
	Create(ctx context.Context, c broker.Caller, q moves.Request) ([]moves.Outcome, error)
	Rebalance(ctx context.Context, c broker.Caller, throttle *int64, dry bool) (placement.Plan, []moves.Outcome, error)
	Cancel(ctx context.Context, c broker.Caller, topic string, p model.PartitionID) error
	Drain(ctx context.Context, c broker.Caller, ch moves.Change) (*metadata.Broker, placement.Plan, error)
	Undrain(ctx context.Context, c broker.Caller, ch moves.Change) (*metadata.Broker, []moves.Moving, error)
	Remove(ctx context.Context, c broker.Caller, ch moves.Change) error
	CanStop(ctx context.Context, c broker.Caller, id model.BrokerID) ([]string, error)
	Elect(ctx context.Context, c broker.Caller, e moves.Election) ([]moves.Outcome, error)
}

// Door holds the endpoints.
type Door struct{ service Service }

// New returns a Door, whose Routes are to be registered with a route.Gate.
func New(s Service) *Door { return &Door{s} }

const (
	get    = http.MethodGet
	post   = http.MethodPost
	remove = http.MethodDelete

	alter, describe = "alter cluster", "describe cluster"
	// maxBody holds the most moves of one request.
	maxBody = 4 << 20
)

// Routes are the rows of the endpoints.
func (d *Door) Routes() []*route.Route {
	dry := []string{"dry_run"}
	return []*route.Route{
		{Method: get, Path: "/v1/reassignments", ID: "listReassignments", Needs: describe, Query: route.ListQuery, Handle: d.listReassignments},
		{Method: post, Path: "/v1/reassignments", ID: "createReassignments", Needs: alter, Body: route.JSON, MaxBody: maxBody, Query: dry, Handle: d.createReassignments},
		{Method: post, Path: "/v1/reassignments/rebalance", ID: "rebalance", Needs: alter, Body: route.JSON, Query: dry, Handle: d.rebalance},
		{Method: remove, Path: "/v1/reassignments/{topic}/{partition}", ID: "cancelReassignment", Needs: alter, Handle: d.cancelReassignment},
		{Method: remove, Path: "/v1/brokers/{broker}", ID: "removeBroker", Needs: alter, Handle: d.removeBroker},
		{Method: post, Path: "/v1/brokers/{broker}/drain", ID: "drainBroker", Needs: alter, Query: dry, Handle: d.drainBroker},
		{Method: post, Path: "/v1/brokers/{broker}/undrain", ID: "undrainBroker", Needs: alter, Query: dry, Handle: d.undrainBroker},
		{Method: get, Path: "/v1/brokers/{broker}/can-stop", ID: "canStopBroker", Needs: describe, Handle: d.canStopBroker},
		{Method: post, Path: "/v1/elections", ID: "createElection", Needs: alter, Body: route.JSON, MaxBody: maxBody, Handle: d.createElection},
	}
}

// ReassignmentView is a partition that moves.
type ReassignmentView struct {
	Topic     string        `json:"topic"`
	Partition int32         `json:"partition"`
	Replicas  []int32       `json:"replicas"`                          // all, while it moves
	From      []int32       `json:"from"`                              // those before, which a cancellation brings back
	To        []int32       `json:"to"`                                // those afterwards
	Adding    []int32       `json:"adding"`                            // that it did not have before
	Removing  []int32       `json:"removing"`                          // that it will not have afterwards
	ISR       []int32       `json:"isr"`                               // in sync
	Principal *string       `json:"principal" extensions:"x-nullable"` // who asked for it; null: the cluster itself
	Since     route.Time    `json:"since" swaggertype:"string" format:"date-time"`
	Progress  *MoveProgress `json:"progress" extensions:"x-nullable"` // null where the leader does not tell
	ETAMs     *int64        `json:"eta_ms" extensions:"x-nullable"`   // until it is there, by how long it took so far and by the throttle; null where that cannot be told
	Actions   []string      `json:"actions"`
	ETag      string        `json:"etag"` // changes with the partition's replicas, leader and in-sync replicas
}

// MoveProgress is how much of what a move copies is there.
type MoveProgress struct {
	Done  int64  `json:"done"`
	Total int64  `json:"total"`
	Unit  string `json:"unit" enums:"bytes"`
}

// MoveRequest asks for moves.
type MoveRequest struct {
	Moves             []MoveAsked `json:"moves" maxItems:"10000"`
	ThrottleBytesPerS *int64      `json:"throttle_bytes_per_s" minimum:"0" extensions:"x-nullable"` // of all moves from now on, on each node, to it and from it; 0: none; absent: as it is
}

// MoveAsked is a partition with the replicas that it is to have, the preferred leader first.
type MoveAsked struct {
	Topic     string  `json:"topic" binding:"required"`
	Partition int32   `json:"partition" minimum:"0"`
	Replicas  []int32 `json:"replicas" binding:"required" minItems:"1"`
}

// RebalanceRequest asks for a rebalance.
type RebalanceRequest struct {
	ThrottleBytesPerS *int64 `json:"throttle_bytes_per_s" minimum:"0" extensions:"x-nullable"` // as for reassignments
}

// MoveResults tells of each partition what became of it.
type MoveResults struct {
	Results []MoveResult `json:"results"`
}

// MoveResult is what became of one partition: without a problem it moves, or is there already,
// or in a dry run would.
type MoveResult struct {
	Topic     string           `json:"topic"`
	Partition int32            `json:"partition"`
	Leader    *int32           `json:"leader" extensions:"x-nullable"`
	Replicas  []int32          `json:"replicas"` // all that it has now
	Adding    []int32          `json:"adding"`
	Removing  []int32          `json:"removing"`
	Problem   *problem.Problem `json:"problem" extensions:"x-nullable"`
}

// PlanView is what a rebalance or a drain moves. Moves that copy nothing only change who leads.
type PlanView struct {
	Moves  []PlannedMove `json:"moves"`
	Copies int           `json:"copies"` // replicas that are copied
}

// PlannedMove is one partition of a plan.
type PlannedMove struct {
	Topic     string           `json:"topic"`
	Partition int32            `json:"partition"`
	From      []int32          `json:"from"`
	To        []int32          `json:"to"`
	Problem   *problem.Problem `json:"problem" extensions:"x-nullable"` // why it was not begun
}

// DrainView is a broker's wish to be drained.
type DrainView struct {
	Broker int32    `json:"broker"`
	State  string   `json:"state" enums:"active,draining"`
	Plan   PlanView `json:"plan"` // of a drain: where its replicas go; of its end: the moves that are taken back
	ETag   string   `json:"etag"`
}

// CanStopView tells whether a node can be stopped without harm.
type CanStopView struct {
	Safe    bool     `json:"safe"`
	Reasons []string `json:"reasons"` // why not
}

// ElectionRequest asks for elections.
type ElectionRequest struct {
	Type       string           `json:"type" binding:"required" enums:"preferred,unclean"`
	Partitions []PartitionAsked `json:"partitions" maxItems:"10000" extensions:"x-nullable"` // null, for preferred: all that do not have their preferred leader and can
}

// PartitionAsked names a partition.
type PartitionAsked struct {
	Topic     string `json:"topic" binding:"required"`
	Partition int32  `json:"partition" minimum:"0"`
}

func numbers(ids []model.BrokerID) []int32 {
	out := make([]int32, len(ids))
	for i, id := range ids {
		out[i] = int32(id)
	}
	return out
}

func brokersOf(ids []int32) []model.BrokerID {
	if ids == nil {
		return nil
	}
	out := make([]model.BrokerID, len(ids))
	for i, id := range ids {
		out[i] = model.BrokerID(id)
	}
	return out
}

func moveView(m moves.Moving, actions []string) ReassignmentView {
	p := m.Of()
	v := ReassignmentView{
		Topic: m.Topic.Name, Partition: int32(m.Partition), Replicas: numbers(p.Replicas), From: numbers(p.Move.From), To: numbers(p.Move.To),
		Adding: numbers(p.Adding()), Removing: numbers(p.Removing()), ISR: numbers(p.ISR), Since: route.TimeOf(p.Move.Since.Time()),
		Actions: actions, ETag: strconv.Itoa(int(p.PartitionEpoch)),
	}
	if p.Move.By != "" {
		v.Principal = &p.Move.By
	}
	if m.Known {
		v.Progress = &MoveProgress{m.Done, m.Total, "bytes"}
	}
	return v
}

// listReassignments lists the partitions that move.
//
//	@ID			listReassignments
//	@Summary	List reassignments
//	@Tags		Cluster
//	@Param		limit		query		int		false	"items of a page"	minimum(1)	maximum(1000)	default(100)
//	@Param		page_token	query		string	false	"next_page_token of the page before"
//	@Param		prefix		query		string	false	"start of the topic's name"
//	@Param		q			query		string	false	"part of the topic's name, in any case"
//	@Param		sort		query		string	false	"a field, with - in front descending"	Enums(topic, -topic, partition, -partition, since, -since)
//	@Param		fields		query		string	false	"fields of the items, with commas between"
//	@Success	200			{object}	route.Page[ReassignmentView]
//	@Router		/v1/reassignments [get]
func (d *Door) listReassignments(c *route.Call) error {
	actions := []string{}
	if d.service.MayAlter(c.Caller()) {
		actions = append(actions, "cancel")
	}
	measured := map[string]moves.Moving{}
	key := func(m moves.Moving) string { return m.Topic.Name + "-" + strconv.Itoa(int(m.Partition)) }
	l := route.Listing[moves.Moving, ReassignmentView]{
		Name: func(m moves.Moving) string { return m.Topic.Name }, By: "topic", Unique: key,
		Ready: func(list []moves.Moving) {
			list = slices.Clone(list)
			d.service.Measure(c.Request.Context(), list)
			for _, m := range list {
				measured[key(m)] = m
			}
		},
		View: func(m moves.Moving) ReassignmentView {
			if x, ok := measured[key(m)]; ok {
				m = x
			}
			v := moveView(m, actions)
			if left, known := d.service.Remaining(&m); known {
				v.ETAMs = new(left.Milliseconds())
			}
			return v
		},
		Sorts: map[string]func(moves.Moving) any{
			"partition": func(m moves.Moving) any { return float64(m.Partition) },
			"since":     func(m moves.Moving) any { return float64(m.Of().Move.Since) },
		},
	}
	return l.Serve(c, func() ([]moves.Moving, error) { return d.service.List(c.Request.Context(), c.Caller()) })
}

func (d *Door) results(c *route.Call, all []moves.Outcome) MoveResults {
	out := MoveResults{Results: make([]MoveResult, len(all))}
	for i := range all {
		o := &all[i]
		r := MoveResult{Topic: o.Topic, Partition: int32(o.Partition), Replicas: numbers(o.After.Replicas), Adding: numbers(o.After.Adding()), Removing: numbers(o.After.Removing())}
		if len(o.After.Replicas) > 0 && o.After.Leader != metadata.NoLeader {
			r.Leader = new(int32(o.After.Leader))
		}
		if o.Err != nil {
			r.Problem = new(problem.Of(o.Err, c.Occurrence()))
		}
		out.Results[i] = r
	}
	return out
}

// createReassignments moves partitions to other replicas. Each is decided on by itself, and some
// may be refused while others move. While a partition moves it keeps its old replicas too; when
// all of its new ones are in sync the others leave. One that moves already goes to its new target
// instead. Without moves the request only changes the throttle.
//
//	@ID			createReassignments
//	@Summary	Move partitions
//	@Tags		Cluster
//	@Param		dry_run	query		bool		false	"only tell what would become of each"
//	@Param		body	body		MoveRequest	true	"which partitions, and where to"
//	@Success	200		{object}	MoveResults
//	@Router		/v1/reassignments [post]
func (d *Door) createReassignments(c *route.Call) error {
	in, err := route.Decode[MoveRequest](c)
	if err != nil {
		return err
	}
	q := moves.Request{Throttle: in.ThrottleBytesPerS}
	if q.DryRun, err = c.QueryBool("dry_run"); err != nil {
		return err
	}
	for _, m := range in.Moves {
		q.Moves = append(q.Moves, moves.Asked{Topic: m.Topic, Partition: model.PartitionID(m.Partition), Replicas: brokersOf(m.Replicas)})
	}
	about(c, in.ThrottleBytesPerS)
	c.Note("partitions", len(q.Moves))
	out, err := d.service.Create(c.Request.Context(), c.Caller(), q)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, d.results(c, out))
}

// about says that a call is about the cluster, of whose settings the throttle is one.
func about(c *route.Call, throttle *int64) {
	c.About(audit.Resource{Type: "cluster"})
	if throttle != nil {
		c.Note("throttle_bytes_per_s", *throttle)
	}
}

func (d *Door) plan(c *route.Call, p placement.Plan, out []moves.Outcome) PlanView {
	v := PlanView{Moves: make([]PlannedMove, len(p.Moves))}
	for i, m := range p.Moves {
		v.Moves[i] = PlannedMove{Topic: m.Topic.Name, Partition: int32(m.Partition), From: numbers(m.From), To: numbers(m.To)}
		if i < len(out) && out[i].Err != nil {
			v.Moves[i].Problem = new(problem.Of(out[i].Err, c.Occurrence()))
		}
		for _, id := range m.To {
			if !slices.Contains(m.From, id) {
				v.Copies++
			}
		}
	}
	return v
}

// rebalance evens out replicas and preferred leaders over the nodes that are online and not
// draining, and spreads replicas over racks. It copies as few replicas as that needs. A plan has
// at most 10,000 partitions; another rebalance does the rest.
//
//	@ID			rebalance
//	@Summary	Rebalance the cluster
//	@Tags		Cluster
//	@Param		dry_run	query		bool				false	"only show the plan"
//	@Param		body	body		RebalanceRequest	true	"how"
//	@Success	200		{object}	PlanView
//	@Router		/v1/reassignments/rebalance [post]
func (d *Door) rebalance(c *route.Call) error {
	in, err := route.Decode[RebalanceRequest](c)
	if err != nil {
		return err
	}
	dry, err := c.QueryBool("dry_run")
	if err != nil {
		return err
	}
	about(c, in.ThrottleBytesPerS)
	plan, out, err := d.service.Rebalance(c.Request.Context(), c.Caller(), in.ThrottleBytesPerS, dry)
	if err != nil {
		return err
	}
	c.Note("partitions", len(plan.Moves))
	return c.JSON(http.StatusOK, d.plan(c, plan, out))
}

// cancelReassignment takes the move of a partition back: it has the replicas again that it had
// before.
//
//	@ID			cancelReassignment
//	@Summary	Cancel a reassignment
//	@Tags		Cluster
//	@Param		topic		path	string	true	"topic"
//	@Param		partition	path	int		true	"partition"	minimum(0)
//	@Success	204			"cancelled"
//	@Router		/v1/reassignments/{topic}/{partition} [delete]
//	@x-errors	["unknown-topic","unknown-partition","not-found","conflict"]
func (d *Door) cancelReassignment(c *route.Call) error {
	p, err := c.PathPartition()
	if err != nil {
		return err
	}
	topic := c.PathValue("topic")
	c.About(audit.Resource{Type: "topic", Name: topic})
	c.Note("partition", int32(p))
	if err := d.service.Cancel(c.Request.Context(), c.Caller(), topic, p); err != nil {
		return err
	}
	return c.NoContent()
}

// createElection elects leaders by hand. Preferred: the first replica of each partition, which
// must be online and in sync. Unclean: of a partition without a leader, any replica that is online;
// records may be lost. Each partition is decided on by itself.
//
//	@ID			createElection
//	@Summary	Elect leaders
//	@Tags		Cluster
//	@Param		body	body		ElectionRequest	true	"which election"
//	@Success	200		{object}	MoveResults
//	@Router		/v1/elections [post]
func (d *Door) createElection(c *route.Call) error {
	in, err := route.Decode[ElectionRequest](c)
	if err != nil {
		return err
	}
	e := moves.Election{Type: metadata.ElectionType(in.Type)}
	if in.Partitions != nil {
		e.Partitions = []moves.Asked{}
	}
	for _, p := range in.Partitions {
		e.Partitions = append(e.Partitions, moves.Asked{Topic: p.Topic, Partition: model.PartitionID(p.Partition)})
	}
	about(c, nil)
	c.Note("type", in.Type)
	out, err := d.service.Elect(c.Request.Context(), c.Caller(), e)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, d.results(c, out))
}
