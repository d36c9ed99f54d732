package rest

import (
	"context"
	"net/http"
	"slices"
	"strconv"

	"tidewire/api/route"
	"tidewire/cluster/metadata"
	"tidewire/internal/model"
)

// ClusterView is the cluster at a glance.
type ClusterView struct {
	ClusterID                 string       `json:"cluster_id"`
	Name                      string       `json:"name"`
	Controller                *int32       `json:"controller" extensions:"x-nullable"`
	Version                   string       `json:"version"` // of the node that answers
	Brokers                   []BrokerView `json:"brokers"`
	Topics                    int          `json:"topics"`
	Partitions                int          `json:"partitions"`
	OfflinePartitions         int          `json:"offline_partitions"`
	UnderReplicatedPartitions int          `json:"under_replicated_partitions"`
	UnderMinISRPartitions     int          `json:"under_min_isr_partitions"`
	Actions                   []string     `json:"actions"`
	ETag                      string       `json:"etag"` // changes with any of the metadata
}

// BrokerView is one node.
type BrokerView struct {
	ID            int32       `json:"id"`
	Host          string      `json:"host"`
	HTTPAddress   *string     `json:"http_address" extensions:"x-nullable"`
	Rack          *string     `json:"rack" extensions:"x-nullable"`
	State         string      `json:"state" enums:"online,fenced,draining,offline"`
	Leaders       int         `json:"leaders"`
	Replicas      int         `json:"replicas"`
	Version       string      `json:"version"`
	DiskFreeBytes *int64      `json:"disk_free_bytes" extensions:"x-nullable"`
	StartedAt     *route.Time `json:"started_at" swaggertype:"string" format:"date-time" extensions:"x-nullable"`
	Actions       []string    `json:"actions"`
	ETag          string      `json:"etag"`
}

// load is how many partitions a broker leads and holds.
type load struct{ leaders, replicas int }

func loads(img *metadata.Image) map[model.BrokerID]load {
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
				out[r] = l
			}
		}
	}
	return out
}

func (a *API) brokerView(b *metadata.Broker, l load, disks map[model.BrokerID]int64) BrokerView {
	v := BrokerView{
		ID: int32(b.ID), Host: b.Host, State: "online", Leaders: l.leaders, Replicas: l.replicas, Version: b.BinaryVer,
		StartedAt: route.TimeOfMillis(b.RegisteredAt), Actions: []string{}, ETag: string(b.ETag()),
	}
	if b.HTTPAddr != "" {
		v.HTTPAddress = &b.HTTPAddr
	}
	if b.Rack != "" {
		v.Rack = &b.Rack
	}
	switch {
	case b.Fenced:
		v.State = "fenced"
	case b.State == metadata.BrokerDraining:
		v.State = "draining"
	}
	if free, known := disks[b.ID]; known {
		v.DiskFreeBytes = &free
	}
	return v
}

// disks are the free room of nodes' disks; those that are fenced or do not answer are left out.
func (a *API) disks(ctx context.Context, nodes []*metadata.Broker) map[model.BrokerID]int64 {
	var ids []model.BrokerID
	for _, b := range nodes {
		if !b.Fenced || b.ID == a.cluster.NodeID() {
			ids = append(ids, b.ID)
		}
	}
	return a.process.DisksFree(ctx, ids)
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
		ClusterID: img.Cluster().ID, Name: img.Cluster().Name, Version: a.version, Brokers: []BrokerView{}, Actions: []string{},
		ETag: strconv.FormatUint(img.Index(), 10),
	}
	if id, ok := a.cluster.Controller(); ok {
		v.Controller = new(int32(id))
	}
	byBroker := loads(img)
	nodes := slices.Collect(img.Brokers())
	disks := a.disks(c.Request.Context(), nodes)
	for _, b := range nodes {
		v.Brokers = append(v.Brokers, a.brokerView(b, byBroker[b.ID], disks))
	}
	for t := range img.Topics("") {
		v.Topics++
		a.countPartitions(&v, t)
	}
	return c.Resource(http.StatusOK, metadata.ETag(v.ETag), v)
}

func (a *API) countPartitions(v *ClusterView, t *metadata.Topic) {
	s := a.broker.StateOf(t)
	v.Partitions += len(s.Partitions)
	for i := range s.Partitions {
		p := &s.Partitions[i]
		// What another node leads that node knows.
		if p.Leader == metadata.NoLeader || p.Leader == a.cluster.NodeID() && p.Err != nil {
			v.OfflinePartitions++
		}
		if len(p.ISR) < len(p.Origin()) { // what a move only adds is not missing
			v.UnderReplicatedPartitions++
		}
		if int64(len(p.ISR)) < t.Config.MinInsyncReplicas {
			v.UnderMinISRPartitions++
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
	byBroker := loads(img)
	var disks map[model.BrokerID]int64
	l := route.Listing[*metadata.Broker, BrokerView]{
		Ready: func(list []*metadata.Broker) { disks = a.disks(c.Request.Context(), list) },
		Name:  func(b *metadata.Broker) string { return b.Host }, By: "host",
		View: func(b *metadata.Broker) BrokerView { return a.brokerView(b, byBroker[b.ID], disks) },
		Sorts: map[string]func(*metadata.Broker) any{
			"id":       func(b *metadata.Broker) any { return float64(b.ID) },
			"leaders":  func(b *metadata.Broker) any { return float64(byBroker[b.ID].leaders) },
			"replicas": func(b *metadata.Broker) any { return float64(byBroker[b.ID].replicas) },
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
	s := c.PathValue("broker")
	id, err := strconv.ParseInt(s, 10, 32)
	if err != nil || id < 0 {
		return model.Invalid("path:broker", "a node id is a whole number from 0, not %q", s)
	}
	if err := a.broker.MayDescribeCluster(c.Request.Context(), c.Caller()); err != nil {
		return err
	}
	b := a.cluster.Image().Broker(model.BrokerID(id))
	if b == nil {
		if err := a.cluster.Barrier(c.Request.Context()); err != nil {
			return err
		}
		if b = a.cluster.Image().Broker(model.BrokerID(id)); b == nil {
			return model.Errorf(model.UnknownBroker, "there is no node %d", id)
		}
	}
	return c.Resource(http.StatusOK, b.ETag(), a.brokerView(b, loads(a.cluster.Image())[b.ID], a.disks(c.Request.Context(), []*metadata.Broker{b})))
}
