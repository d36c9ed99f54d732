package partitions

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"tidewire/api/problem"
	"tidewire/api/route"
	"tidewire/broker"
	"tidewire/broker/health"
	"tidewire/cluster/metadata"
	"tidewire/internal/model"
)

// Cluster is what the door asks of the cluster.
type Cluster interface {
	Image() *metadata.Image
	NodeID() model.BrokerID
	// Seen are the brokers that this node can reach.
	Seen() map[model.BrokerID]bool
}

// Config is what an API is made of.
type Config struct {
	Broker  *broker.Broker
	Cluster Cluster
}

// API is the door.
type API struct {
	broker  *broker.Broker
	cluster Cluster
}

// New returns an API, whose Routes are to be registered with a route.Gate.
func New(c Config) *API { return &API{broker: c.Broker, cluster: c.Cluster} }

// Routes are the rows of the endpoints.
func (a *API) Routes() []*route.Route {
	return []*route.Route{
		{Method: http.MethodGet, Path: "/v1/partitions", ID: "listPartitions", Needs: "any user; lists what may be described",
			Query: slices.Concat(route.ListQuery, []string{"health", "broker"}), Handle: a.listPartitions},
	}
}

// PartitionItem is a partition in a list, by what the metadata says and whom the node that
// answers can reach.
type PartitionItem struct {
	Topic             string  `json:"topic"`
	Partition         int32   `json:"partition"`
	Internal          bool    `json:"internal"`
	Health            string  `json:"health" enums:"healthy,under-replicated,under-min-isr,offline"`
	Leader            *int32  `json:"leader" extensions:"x-nullable"`
	LeaderEpoch       int32   `json:"leader_epoch"`
	Replicas          []int32 `json:"replicas"` // the first is the preferred leader
	ISR               []int32 `json:"isr"`
	OutOfSync         []int32 `json:"out_of_sync"`              // replicas that are not in sync, or cannot be reached
	Adding            []int32 `json:"adding"`                   // replicas that a reassignment adds, which count as out of sync nowhere
	Removing          []int32 `json:"removing"`                 // replicas that it takes away in the end
	Eligible          []int32 `json:"eligible_leader_replicas"` // not in sync, and known to hold everything that was acknowledged
	MinInsyncReplicas int64   `json:"min_insync_replicas"`
	// Why the node that answers, and leads it, cannot serve it.
	Error   *problem.Problem `json:"error" extensions:"x-nullable"`
	Actions []string         `json:"actions"` // on its topic
	ETag    string           `json:"etag"`    // changes with its leader, replicas and in-sync replicas
}

// located is a partition with how it is.
type located struct {
	topic *metadata.Topic
	state *broker.PartitionState
	how   health.Partition
}

// filter is what the query asks for besides what every list takes.
type filter struct {
	health []health.State // nil: any
	broker *model.BrokerID
}

// unhealthy is the word for all states but healthy.
const unhealthy = "unhealthy"

func filterOf(c *route.Call) (f filter, err error) {
	if s, given := c.Only("health"); given {
		for name := range strings.SplitSeq(s, ",") {
			state, ok := health.Parse(name)
			switch {
			case ok:
				f.health = append(f.health, state)
			case name == unhealthy:
				f.health = append(f.health, health.UnderReplicated, health.UnderMinISR, health.Offline)
			default:
				return f, model.Invalid("query:health", "health is healthy, under-replicated, under-min-isr, offline or %s, or several with commas between, not %q", unhealthy, name)
			}
		}
	}
	if s, given := c.Only("broker"); given {
		id, err := strconv.ParseInt(s, 10, 32)
		if err != nil || id < 0 {
			return f, model.Invalid("query:broker", "a node id is a whole number from 0, not %q", s)
		}
		f.broker = new(model.BrokerID(id))
	}
	return f, nil
}

func (f filter) wants(l *located) bool {
	return (f.health == nil || slices.Contains(f.health, l.how.State)) && (f.broker == nil || slices.Contains(l.state.Replicas, *f.broker))
}

// listPartitions lists partitions of the topics that the caller may describe, internal ones
// too, by how they are. It needs no quorum and asks no other node: a partition that its leader
// cannot serve is offline here only where the leader is the node that answers. Without
// min.insync.replicas in sync a partition is under-min-isr, without all of its replicas
// under-replicated.
//
//	@ID			listPartitions
//	@Summary	List partitions by their health
//	@Tags		Topics
//	@Param		limit		query		int		false	"items of a page"	minimum(1)	maximum(1000)	default(100)
//	@Param		page_token	query		string	false	"next_page_token of the page before"
//	@Param		prefix		query		string	false	"start of the topic's name"
//	@Param		q			query		string	false	"part of the topic's name, in any case"
//	@Param		sort		query		string	false	"a field, with - in front descending"	Enums(topic, -topic, health, -health, leader, -leader)
//	@Param		fields		query		string	false	"fields of the items, with commas between"
//	@Param		health		query		string	false	"only those of these states, with commas between; unhealthy is all but healthy"
//	@Param		broker		query		int		false	"only those with a replica on this node"	minimum(0)
//	@Success	200			{object}	route.Page[PartitionItem]
//	@Router		/v1/partitions [get]
func (a *API) listPartitions(c *route.Call) error {
	f, err := filterOf(c)
	if err != nil {
		return err
	}
	l := route.Listing[*located, PartitionItem]{
		Name: func(l *located) string { return l.topic.Name }, By: "topic",
		Unique: func(l *located) string { return fmt.Sprintf("%05d", l.state.ID) },
		View:   func(l *located) PartitionItem { return a.view(c, l) },
		Sorts: map[string]func(*located) any{
			"health": func(l *located) any { return float64(l.how.State) },
			"leader": func(l *located) any { return float64(l.state.Leader) },
		},
	}
	prefix, _ := c.Only("prefix")
	return l.Serve(c, func() ([]*located, error) {
		seen := health.Seen(a.cluster.Seen())
		var out []*located
		for _, t := range a.broker.VisibleTopics(c.Caller(), prefix, true) {
			out = append(out, a.locate(t, seen, f)...)
		}
		return out, nil
	})
}

// locate judges a topic's partitions, and leaves out what is not asked for.
func (a *API) locate(t *metadata.Topic, seen health.Seen, f filter) []*located {
	s := a.broker.StateOf(t)
	var out []*located
	for i := range s.Partitions {
		p := &s.Partitions[i]
		if p.Leader != a.cluster.NodeID() {
			p.Err = nil // what another node leads that node knows
		}
		l := &located{topic: t, state: p, how: health.Of(&p.Partition, t.Config.MinInsyncReplicas, seen, p.Err != nil)}
		if f.wants(l) {
			out = append(out, l)
		}
	}
	return out
}

// actions are what a caller may do to a partition's topic.
var actions = []struct {
	name string
	op   metadata.Operation
}{{"read", metadata.OpRead}, {"write", metadata.OpWrite}, {"alter", metadata.OpAlter}}

func (a *API) view(c *route.Call, l *located) PartitionItem {
	p := l.state
	v := PartitionItem{
		Topic: l.topic.Name, Partition: int32(p.ID), Internal: l.topic.Internal, Health: l.how.State.String(), LeaderEpoch: int32(p.LeaderEpoch),
		Replicas: ids(p.Replicas), ISR: ids(p.ISR), OutOfSync: ids(l.how.OutOfSync), Eligible: ids(p.ELR),
		Adding: ids(p.Adding()), Removing: ids(p.Removing()),
		MinInsyncReplicas: l.topic.Config.MinInsyncReplicas, Actions: []string{},
		ETag: fmt.Sprintf("%s-%d-%d", l.topic.ETag(), p.LeaderEpoch, p.PartitionEpoch),
	}
	if p.Leader != metadata.NoLeader {
		v.Leader = new(int32(p.Leader))
	}
	if p.Err != nil {
		v.Error = new(problem.Of(p.Err, c.Occurrence()))
	}
	for _, x := range actions {
		if a.broker.Allowed(c.Caller(), x.op, metadata.ResourceTopic, l.topic.Name) {
			v.Actions = append(v.Actions, x.name)
		}
	}
	return v
}

func ids(list []model.BrokerID) []int32 {
	out := make([]int32, len(list))
	for i, id := range list {
		out[i] = int32(id)
	}
	return out
}
