package rest

import (
	"context"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"tidewire/auth"
	"tidewire/broker"
	"tidewire/cluster/metadata"
	"tidewire/internal/inflight"
	"tidewire/internal/model"
)

// Authorization is what REST asks itself: what is not about a topic's data.
type Authorization interface {
	Authorize(ctx context.Context, p *auth.Principal, q auth.Access) error
	RequireAdmin(ctx context.Context, p *auth.Principal, what string) error
}

// Cluster is what REST asks of the cluster.
type Cluster interface {
	Image() *metadata.Image
	Barrier(ctx context.Context) error
	NodeID() model.BrokerID
	Controller() (model.BrokerID, bool)
	// Seen are the brokers that this node can reach, VotingBrokers those with a vote in the quorum.
	Seen() map[model.BrokerID]bool
	VotingBrokers() []model.BrokerID
}

// Process is what REST tells about the node that runs it.
type Process interface {
	// Ready returns why the node does not serve yet; none means ready.
	Ready() []string
	// States asks nodes for what they tell of themselves; those that do not answer are left out, or
	// tell nothing.
	States(ctx context.Context, nodes []model.BrokerID) map[model.BrokerID]State
}

// State is what a node tells of itself.
type State struct {
	Disk          *Disk  // nil: not known
	ClockOffsetMs *int64 // how far its clock is ahead of the cluster's time; nil: not known
}

// Disk is the room of a node's disk, in bytes. A total of 0 is not known.
type Disk struct{ Free, Total int64 }

// Config is what an API is made of.
type Config struct {
	Broker  *broker.Broker
	Auth    *auth.Auth
	Cluster Cluster
	Process Process
	Logger  *slog.Logger
	Now     func() time.Time
	Version string
	// Metrics answers /metrics.
	Metrics http.Handler
	// MetricsPublic serves /metrics without authentication.
	MetricsPublic bool
	// Inflight bounds the bytes of lines under way; nil: nothing does.
	Inflight *inflight.Budget
	// MaxWebSockets is how many the node holds open, which /v1/info tells.
	MaxWebSockets int
}

// API is the REST door.
type API struct {
	broker         *broker.Broker
	service        *auth.Service
	tokens         *auth.Tokens
	authz          Authorization
	decider        *auth.Authorizer
	cluster        Cluster
	process        Process
	logger         *slog.Logger
	now            func() time.Time
	version        string
	metricsPublic  bool
	metricsHandler http.Handler
	inflight       *inflight.Budget
	maxWebSockets  int
	browses        atomic.Int64 // reads over partitions under way
}

// New returns an API, whose Routes are to be registered with a route.Gate.
func New(c Config) *API {
	return &API{
		broker: c.Broker, service: c.Auth.Service, tokens: c.Auth.Tokens, authz: c.Auth.Authorizer, decider: c.Auth.Authorizer,
		cluster: c.Cluster, process: c.Process, logger: c.Logger, now: c.Now, version: c.Version,
		metricsPublic: c.MetricsPublic, metricsHandler: c.Metrics,
		inflight: c.Inflight, maxWebSockets: c.MaxWebSockets,
	}
}
