package ops

import (
	"context"
	"net/http"
	"slices"
	"time"

	"tidewire/api/route"
	"tidewire/broker"
	"tidewire/broker/operations"
	"tidewire/cluster/metadata"
	"tidewire/internal/history"
	"tidewire/internal/model"
)

// Cluster is what the door asks of the cluster.
type Cluster interface {
	Image() *metadata.Image
	NodeID() model.BrokerID
}

// Config is what an API is made of.
type Config struct {
	Broker  *broker.Broker
	Cluster Cluster
	Now     func() time.Time
	History *history.History
	Moves   Moves // nil: nothing moves
	Nodes   Nodes // nil: there is no other
}

// Nodes are asked for what they have measured.
type Nodes interface {
	// HistoryOf asks a node. Errors: leader-unavailable where it does not answer.
	HistoryOf(ctx context.Context, node model.BrokerID, q history.Asked) (history.Told, error)
}

// Moves are the operations whose account is the metadata.
type Moves interface {
	Operations(ctx context.Context, c broker.Caller) []operations.View
	CancelOperation(ctx context.Context, c broker.Caller, id string) (found bool, err error)
}

// API is the door.
type API struct {
	broker  *broker.Broker
	cluster Cluster
	now     func() time.Time
	history *history.History
	moves   Moves
	nodes   Nodes
}

// New returns an API, whose Routes are to be registered with a route.Gate.
func New(c Config) *API {
	return &API{broker: c.Broker, cluster: c.Cluster, now: c.Now, history: c.History, moves: c.Moves, nodes: c.Nodes}
}

const (
	get    = http.MethodGet
	post   = http.MethodPost
	patch  = http.MethodPatch
	remove = http.MethodDelete
)

// Routes are the rows of the endpoints.
func (a *API) Routes() []*route.Route {
	const config = "/v1/topics/{topic}/config"
	span := []string{"series", "from", "to", "step_ms"}
	return []*route.Route{
		{Method: get, Path: config, ID: "getTopicConfig", Needs: "describe-configs topic", Query: route.ListQuery, Handle: a.getTopicConfig},
		{Method: patch, Path: config, ID: "updateTopicConfig", Needs: "alter-configs topic", Body: route.JSON, Handle: a.updateTopicConfig},
		{Method: get, Path: "/v1/topic-configs", ID: "listTopicConfigs", Needs: "any user", Query: route.ListQuery, Handle: a.listTopicConfigs},
		{Method: post, Path: "/v1/topics/delete", ID: "deleteTopics", Needs: "delete topic, each named", Body: route.JSON, Query: []string{"dry_run"}, Handle: a.deleteTopics},
		{Method: get, Path: "/v1/metrics/history", ID: "metricsHistory", Needs: "describe cluster for series of the node, describe topic for a topic's", Query: span, Handle: a.metricsHistory},
		{Method: get, Path: "/v1/brokers/{broker}/metrics/history", ID: "brokerMetricsHistory", Needs: "describe cluster, and describe topic for a topic's series", Query: span, Handle: a.brokerMetricsHistory},
		{Method: get, Path: "/v1/operations", ID: "listOperations", Needs: "describe cluster, or own operations", Query: slices.Concat(route.ListQuery, []string{"state"}), Handle: a.listOperations},
		{Method: get, Path: "/v1/operations/{id}", ID: "getOperation", Needs: "describe cluster, or own operation", Handle: a.getOperation},
		{Method: remove, Path: "/v1/operations/{id}", ID: "cancelOperation", Needs: "alter cluster, or own operation", Handle: a.cancelOperation},
		{Method: get, Path: "/v1/cluster/config", ID: "getClusterConfig", Needs: "describe-configs cluster", Query: route.ListQuery, Handle: a.getClusterConfig},
		{Method: patch, Path: "/v1/cluster/config", ID: "updateClusterConfig", Needs: "alter-configs cluster", Body: route.JSON, Query: []string{"dry_run"}, Handle: a.updateClusterConfig},
	}
}
