package rest

import (
	"context"
	"net/http"
	"slices"
	"strconv"

	"tidewire/api/route"
	"tidewire/broker/health"
	"tidewire/cluster/metadata"
	"tidewire/internal/model"
)

// ClusterView is the cluster at a glance.
type ClusterView struct {
	ClusterID                 string       `json:"cluster_id"`
	Name                      string       `json:"name"`
	Controller                *int32       `json:"controller" extensions:"x-nullable"`
	Version                   string       `json:"version"` // of the node that answers
	Quorum                    QuorumView   `json:"quorum"`
	Brokers                   []BrokerView `json:"brokers"`
	Topics                    int          `json:"topics"`
	Partitions                int          `json:"partitions"`
	OfflinePartitions         int          `json:"offline_partitions"`
	UnderReplicatedPartitions int          `json:"under_replicated_partitions"`
	UnderMinISRPartitions     int          `json:"under_min_isr_partitions"`
	Actions                   []string     `json:"actions"`
	ETag                      string       `json:"etag"` // changes with any of the metadata
}

// QuorumView is the quorum of the metadata, as the node that answers sees it. Where it is not
// available records are still read and, as far as their partitions allow, written; nothing else
// is changed, and no partition gets another leader.
type QuorumView struct {
	Available bool    `json:"available"` // somebody leads it
	Voters    []int32 `json:"voters"`
	Online    []int32 `json:"online"`   // the voters that can be reached
	Majority  int     `json:"majority"` // how many voters it takes
}

// BrokerView is one node.
type BrokerView struct {
	ID            int32       `json:"id"`
	Host          string      `json:"host"`
	HTTPAddress   *string     `json:"http_address" extensions:"x-nullable"`
	Rack          *string     `json:"rack" extensions:"x-nullable"`
	State         string      `json:"state" enums:"online,fenced,draining,offline"` // offline: the node that answers cannot reach it
	Role          string      `json:"role" enums:"controller,voter,observer"`       // in the metadata quorum
	Draining      bool        `json:"draining"`                                     // whatever its state is
	Leaders       int         `json:"leaders"`
	Replicas      int         `json:"replicas"`
	OutOfSync     int         `json:"out_of_sync"` // of the replicas, those that are not in sync
	Version       string      `json:"version"`
	DiskFreeBytes *int64      `json:"disk_free_bytes" extensions:"x-nullable"` // null where the node does not answer
	DiskBytes     *int64      `json:"disk_bytes" extensions:"x-nullable"`      // of the whole disk
	ClockOffsetMs *int64      `json:"clock_offset_ms" extensions:"x-nullable"` // how far its clock is ahead of the median of the nodes' clocks; null where there is nothing to compare
	StartedAt     *route.Time `json:"started_at" swaggertype:"string" format:"date-time" extensions:"x-nullable"`
	Actions       []string    `json:"actions" enums:"alter,drain,undrain,delete"` // what the caller may do to it, as it is now
	ETag          string      `json:"etag"`
}

// load is how many partitions a broker leads and holds, and how many of these are not in sync.
type load struct{ leaders, replicas, outOfSync int }

func loads(img *metadata.Image, seen health.Seen) map[model.BrokerID]load {
	out := map[model.BrokerID]load{}
	for t := range img.Topics("") {
		for i := range t.Partitions {
			p := &t.Partitions[i]
			for _, r := range p.Replicas {
				l := out[r]
				l.replicas++
				if r == p.Leader {
					l.leaders++
				}
				if !health.InSync(p, r, seen) && slices.Contains(p.Origin(), r) {
					l.outOfSync++
				}
				out[r] = l
			}
		}
	}
	return out
}

// brokerViews makes views of brokers of one image.
type brokerViews struct {
	seen          health.Seen
	voters        []model.BrokerID
	controller    model.BrokerID
	hasController bool
	loads         map[model.BrokerID]load
	actions       []string
	states        map[model.BrokerID]State
}

func (a *API) brokerViews(c *route.Call, img *metadata.Image) *brokerViews {
	v := &brokerViews{seen: a.cluster.Seen(), voters: a.cluster.VotingBrokers(), actions: a.clusterActions(c)}
	v.controller, v.hasController = a.cluster.Controller()
	v.loads = loads(img, v.seen)
	return v
}

func (x *brokerViews) of(b *metadata.Broker) BrokerView {
	l := x.loads[b.ID]
	v := BrokerView{
		ID: int32(b.ID), Host: b.Host, State: "online", Role: "observer", Leaders: l.leaders, Replicas: l.replicas, OutOfSync: l.outOfSync,
		Version: b.BinaryVer, StartedAt: route.TimeOfMillis(b.RegisteredAt), Actions: x.actionsOn(b, l.replicas), ETag: string(b.ETag()),
		Draining: b.State == metadata.BrokerDraining,
	}
	if b.HTTPAddr != "" {
		v.HTTPAddress = &b.HTTPAddr
	}
	if b.Rack != "" {
		v.Rack = &b.Rack
	}
	switch {
	case !x.seen[b.ID]:
		v.State = "offline"
	case b.Fenced:
		v.State = "fenced"
	case b.State == metadata.BrokerDraining:
		v.State = "draining"
	}
	switch {
	case x.hasController && x.controller == b.ID:
		v.Role = "controller"
	case slices.Contains(x.voters, b.ID):
		v.Role = "voter"
	}
	state := x.states[b.ID]
	v.ClockOffsetMs = state.ClockOffsetMs
	if d := state.Disk; d != nil {
		v.DiskFreeBytes = &d.Free
		if d.Total > 0 {
			v.DiskBytes = &d.Total
		}
	}
	return v
}

// actionsOn are what the caller may do to a broker as it is: one that is online, or holds
// anything, cannot be removed.
func (x *brokerViews) actionsOn(b *metadata.Broker, replicas int) []string {
	if !slices.Contains(x.actions, string(metadata.OpAlter)) {
		return []string{}
	}
	out := []string{string(metadata.OpAlter)}
	if b.State == metadata.BrokerDraining {
		out = append(out, "undrain")
	} else {
		out = append(out, "drain")
	}
	if b.Fenced && replicas == 0 {
		out = append(out, "delete")
	}
	return out
}

// clusterActions are what a caller may do to the cluster.
func (a *API) clusterActions(c *route.Call) []string {
	out := []string{}
	for _, op := range []metadata.Operation{metadata.OpAlter, metadata.OpAlterConfigs, metadata.OpDescribeConfigs} {
		if a.broker.Allowed(c.Caller(), op, metadata.ResourceCluster, metadata.ClusterResource) {
			out = append(out, string(op))
		}
	}
	return out
}

// quorum is what the views' node sees of the quorum.
func (x *brokerViews) quorum() QuorumView {
	v := QuorumView{Available: x.hasController, Voters: []int32{}, Online: []int32{}, Majority: len(x.voters)/2 + 1}
	for _, id := range slices.Sorted(slices.Values(x.voters)) {
		v.Voters = append(v.Voters, int32(id))
		if x.seen[id] {
			v.Online = append(v.Online, int32(id))
		}
	}
	return v
}

// askStates asks nodes for what they tell of themselves; those that cannot be reached are left out.
func (a *API) askStates(ctx context.Context, x *brokerViews, nodes []*metadata.Broker) {
	var ids []model.BrokerID
	for _, b := range nodes {
		if x.seen[b.ID] {
			ids = append(ids, b.ID)
		}
	}
	x.states = a.process.States(ctx, ids)
}

// getCluster gives the cluster at a glance.
//
//	@ID			getCluster
//	@Summary	The cluster
//	@Tags		Cluster
//	@Success	200	{object}	ClusterView
//	@Header		200	{string}	ETag	"the metadata's entity tag"
//	@Router		/v1/cluster [get]
func (a *API) getCluster(c *route.Call) error {
	if err := a.broker.MayDescribeCluster(c.Request.Context(), c.Caller()); err != nil {
		return err
	}
	img := a.cluster.Image()
	v := ClusterView{
		ClusterID: img.Cluster().ID, Name: img.Cluster().Name, Version: a.version, Brokers: []BrokerView{},
		ETag: strconv.FormatUint(img.Index(), 10),
	}
	if id, ok := a.cluster.Controller(); ok {
		v.Controller = new(int32(id))
	}
	x := a.brokerViews(c, img)
	v.Quorum, v.Actions = x.quorum(), x.actions
	nodes := slices.Collect(img.Brokers())
	a.askStates(c.Request.Context(), x, nodes)
	for _, b := range nodes {
		v.Brokers = append(v.Brokers, x.of(b))
	}
	for t := range img.Topics("") {
		v.Topics++
		a.countPartitions(&v, t, x.seen)
	}
	return c.Resource(http.StatusOK, metadata.ETag(v.ETag), v)
}

func (a *API) countPartitions(v *ClusterView, t *metadata.Topic, seen health.Seen) {
	s := a.broker.StateOf(t)
	v.Partitions += len(s.Partitions)
	for i := range s.Partitions {
		p := &s.Partitions[i]
		// What another node leads that node knows.
		h := health.Of(&p.Partition, t.Config.MinInsyncReplicas, seen, p.Leader == a.cluster.NodeID() && p.Err != nil)
		if h.State == health.Offline {
			v.OfflinePartitions++
		}
		if h.TooFew {
			v.UnderMinISRPartitions++
		}
		if len(h.OutOfSync) > 0 {
			v.UnderReplicatedPartitions++
		}
	}
}

// listBrokers lists the nodes.
//
//	@ID			listBrokers
//	@Summary	List nodes
//	@Tags		Cluster
//	@Param		limit		query		int		false	"items of a page"	minimum(1)	maximum(1000)	default(100)
//	@Param		page_token	query		string	false	"next_page_token of the page before"
//	@Param		prefix		query		string	false	"start of the host"
//	@Param		q			query		string	false	"part of the host, in any case"
//	@Param		sort		query		string	false	"a field, with - in front descending"	Enums(host, -host, id, -id, leaders, -leaders, replicas, -replicas)
//	@Param		fields		query		string	false	"fields of the items, with commas between"
//	@Success	200			{object}	route.Page[BrokerView]
//	@Router		/v1/brokers [get]
func (a *API) listBrokers(c *route.Call) error {
	img := a.cluster.Image()
	x := a.brokerViews(c, img)
	l := route.Listing[*metadata.Broker, BrokerView]{
		Ready: func(list []*metadata.Broker) { a.askStates(c.Request.Context(), x, list) },
		Name:  func(b *metadata.Broker) string { return b.Host }, By: "host", View: x.of,
		Sorts: map[string]func(*metadata.Broker) any{
			"id":       func(b *metadata.Broker) any { return float64(b.ID) },
			"leaders":  func(b *metadata.Broker) any { return float64(x.loads[b.ID].leaders) },
			"replicas": func(b *metadata.Broker) any { return float64(x.loads[b.ID].replicas) },
		},
		Unique: func(b *metadata.Broker) string { return strconv.Itoa(int(b.ID)) },
	}
	return l.Serve(c, func() ([]*metadata.Broker, error) {
		if err := a.broker.MayDescribeCluster(c.Request.Context(), c.Caller()); err != nil {
			return nil, err
		}
		return slices.Collect(a.cluster.Image().Brokers()), nil
	})
}

// getBroker gives one node.
//
//	@ID			getBroker
//	@Summary	Get a node
//	@Tags		Cluster
//	@Param		broker	path		int	true	"node id"	minimum(0)
//	@Success	200		{object}	BrokerView
//	@Header		200		{string}	ETag	"the node's entity tag"
//	@Router		/v1/brokers/{broker} [get]
//	@x-errors	["unknown-broker"]
func (a *API) getBroker(c *route.Call) error {
	id, err := c.PathBroker()
	if err != nil {
		return err
	}
	if err := a.broker.MayDescribeCluster(c.Request.Context(), c.Caller()); err != nil {
		return err
	}
	b, err := c.Broker(id)
	if err != nil {
		return err
	}
	x := a.brokerViews(c, a.cluster.Image())
	a.askStates(c.Request.Context(), x, []*metadata.Broker{b})
	return c.Resource(http.StatusOK, b.ETag(), x.of(b))
}
