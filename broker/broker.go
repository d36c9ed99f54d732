package broker

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"tidewire/auth"
	"tidewire/broker/forward"
	"tidewire/broker/operations"
	"tidewire/broker/partition"
	"tidewire/broker/producerids"
	"tidewire/broker/quota"
	"tidewire/broker/replicas"
	"tidewire/cluster/metadata"
	"tidewire/cluster/placement"
	"tidewire/internal/budget"
	"tidewire/internal/lifecycle"
	"tidewire/internal/model"
	"tidewire/storage/ingest"
	"tidewire/storage/log"
	"tidewire/storage/record"
)

// Metadata is what the broker needs of the cluster.
type Metadata interface {
	Image() *metadata.Image
	Propose(ctx context.Context, cmd metadata.Command) (metadata.Result, error)
	Barrier(ctx context.Context) error
	Subscribe(fn func(old, new *metadata.Image, d metadata.Delta)) (cancel func())
}

// Authorizer decides whether a caller may do something; the error is forbidden.
type Authorizer interface {
	Authorize(ctx context.Context, p *auth.Principal, q auth.Access) error
	Allowed(p *auth.Principal, q auth.Access) bool
}

// Store is where the logs of this node are.
type Store interface {
	Open(id model.TopicID, topic string, p model.PartitionID, cfg log.Config) (*log.Log, error)
	Remove(l *log.Log) error
	Sweep(expected func(folder string) bool) error
	AdvanceLogStarts(moves []log.StartMove)
	Tune(t log.Tuning)
}

// Caller is on whose behalf a call is made and where it came from.
type Caller struct {
	Principal *auth.Principal
	Host      string // the client's IP address
	// Credential is looked at again by calls that last (see Guard); nil where it cannot
	// end.
	Credential auth.Credential
}

// Config is what a Broker is made of.
type Config struct {
	NodeID     model.BrokerID
	Metadata   Metadata
	Authorizer Authorizer
	Store      Store
	Logger     *slog.Logger
	Group      *lifecycle.Group
	Now        func() time.Time // wall clock
	// Monotonic tells time that setting the wall clock does not change, from any moment
	// on; nil is the process's own.
	Monotonic func() time.Duration
	// Appended is told the bytes that produce calls hand to the logs, before they are
	// written; nil: nobody wants to know.
	Appended func(bytes int)
	// Inflation is the node's memory for the inflation of large batches, which the store
	// shares; nil: the broker's own.
	Inflation *record.Budget
	// Operations is the account of long work; nil: one that nobody sees.
	Operations *operations.Registry
	// FetchMemory bounds the memory of all reads together, in bytes; 0 is 256 MiB.
	FetchMemory int64
	// Quotas limits what users may do; nil: nobody is limited.
	Quotas *quota.Limiter
	// Network reaches the other brokers; nil: there are none.
	Network forward.Network
	// Full tells which of some nodes have no room on their disks for so many new replicas
	// each; nil: all have.
	Full placement.Full
	// Peers is how replicas of other nodes are reached; nil: there are none.
	Peers replicas.Peers
}

// fetchMemory is the default of Config.FetchMemory.
const fetchMemory = 256 << 20

// Broker is one node's broker. Its methods are safe for concurrent use.
type Broker struct {
	nodeID     model.BrokerID
	meta       Metadata
	authorizer Authorizer
	store      Store
	logger     *slog.Logger
	group      *lifecycle.Group
	now        func() time.Time
	appended   func(bytes int)
	quotas     *quota.Limiter
	away       *forward.Client    // of what other nodes lead
	peers      replicas.Peers     // nil: no other node
	replicas   *replicas.Replicas // nil: no other node
	full       placement.Full

	topics      sync.Map   // name → *topic
	calls       *sync.Pool // of *produceCall; a pool of its own, as their channels belong to this broker's time
	diskFull    atomic.Bool
	memory      *budget.Budget // of reads
	producerIDs *producerids.IDs
	retention   retention
	compaction  compaction
	ops         *operations.Registry
	underway    sync.Map              // workKey → *operations.Operation that waits for its work
	starting    *operations.Operation // the opening of all partitions, while Start does it
	inflation   *record.Budget        // of the node, for batches that inflate to much
	ingest      *ingest.Pool
	checked     ingest.Results
	draining    chan struct{} // closed by Drain
	drained     sync.Once
	cancel      func()

	watchMu sync.Mutex
	guards  map[*Guard]string // guarded by watchMu: with the name of the caller's user

	mu      sync.Mutex
	pending map[string]struct{} // guarded by mu: topics to look at
	// unopened are the topics with partitions that could not be opened for a cause that
	// may pass.
	unopened map[string]struct{} // guarded by mu
	opening  chan struct{}       // a slot for each log that is being opened
	kick     chan struct{}
	pass     chan struct{} // guarded by mu: closed when the pass that began after now has ended
}

// New returns a broker that does nothing until Start.
func New(c Config) *Broker {
	if c.FetchMemory <= 0 {
		c.FetchMemory = fetchMemory
	}
	if c.Appended == nil {
		c.Appended = func(int) {}
	}
	if c.Operations == nil {
		c.Operations = operations.New(c.NodeID, c.Now)
	}
	if c.Quotas == nil {
		c.Quotas = new(quota.Limiter)
	}
	if c.Inflation == nil {
		c.Inflation = NewInflation()
	}
	return &Broker{
		away: forward.NewClient(c.NodeID, c.Metadata, c.Network, c.Group),
		ops:  c.Operations, appended: c.Appended, full: c.Full, quotas: c.Quotas, memory: budget.New("fetch-memory", c.FetchMemory), inflation: c.Inflation, ingest: ingest.NewPool(parallelInflation(), c.Inflation),
		nodeID: c.NodeID, meta: c.Metadata, authorizer: c.Authorizer, store: c.Store, logger: c.Logger,
		group: c.Group, now: c.Now, draining: make(chan struct{}), guards: map[*Guard]string{},
		retention:   retention{kick: make(chan struct{}, 1), clock: newClockWatch(c.Now, c.Monotonic)},
		compaction:  compaction{kick: make(chan struct{}, 1), retries: map[*log.Log]*compactionRetry{}},
		producerIDs: producerids.New(c.NodeID, c.Metadata),
		peers:       c.Peers,
		calls:       newProducePool(), pending: map[string]struct{}{},
		unopened: map[string]struct{}{}, opening: make(chan struct{}, openers), kick: make(chan struct{}, 1), pass: make(chan struct{}),
	}
}

// Start opens every partition that the image places on this node and then follows the
// image. A damaged partition is logged and reported by the calls that need it.
func (b *Broker) Start() {
	b.startReplicas()
	b.cancel = b.meta.Subscribe(b.onChange)
	img := b.meta.Image()
	b.tuneStore(img)
	began := b.now()
	b.starting = b.startWork(img)
	b.openAll(img)
	b.starting.End(notOpened(b.countUnopened()))
	b.starting = nil
	b.logger.Info("the partitions of this node are open", "topics", img.TopicCount(), "took", b.now().Sub(began))
	if err := b.store.Sweep(b.expectedFolders(img)); err != nil {
		b.logger.Error("folders that belong to no topic could not be moved away", "error", err)
	}
	b.group.Go("broker/reconcile", b.reconcileLoop)
	b.group.Go("broker/rates", b.ratesLoop)
	b.group.Go("broker/guards", b.guardLoop)
	b.group.Go("broker/retention", b.retentionLoop)
	b.group.Go("broker/compaction", b.compactionLoop)
}

// Drain makes every waiting read answer now; later waits end at once.
func (b *Broker) Drain() { b.drained.Do(func() { close(b.draining) }) }

// Draining is closed once the node is about to stop.
func (b *Broker) Draining() <-chan struct{} { return b.draining }

// Stop ends the partitions: what waits gets leader-unavailable. The group's context
// must have ended before. The logs stay open.
func (b *Broker) Stop() {
	b.Drain()
	if b.cancel != nil {
		b.cancel()
	}
	why := model.Errorf(model.LeaderUnavailable, "the node is stopping")
	b.topics.Range(func(_, v any) bool {
		v.(*topic).close(why)
		return true
	})
}

// SetDiskFull makes produce calls fail early with storage-full, or ends that.
func (b *Broker) SetDiskFull(full bool) { b.diskFull.Store(full) }

// Image is the metadata as this node has applied it.
func (b *Broker) Image() *metadata.Image { return b.meta.Image() }

func (b *Broker) nowMs() int64 { return b.now().UnixMilli() }

// topic finds a topic that the image has, waiting for this node to open it and to take over
// its settings: what was changed before a call is in force for it. That a topic is unknown is
// confirmed by a read barrier.
func (b *Broker) topic(ctx context.Context, name string) (*topic, error) {
	want := b.meta.Image().Topic(name)
	if want == nil {
		if err := b.meta.Barrier(ctx); err != nil {
			return nil, err
		}
		if want = b.meta.Image().Topic(name); want == nil {
			return nil, unknownTopic(name)
		}
	}
	if v, ok := b.topics.Load(name); ok {
		if t := v.(*topic); t.follows(want) {
			return t, nil
		}
	}
	return b.awaitTopic(ctx, name)
}

func unknownTopic(name string) error {
	return model.Errorf(model.UnknownTopic, "there is no topic %q", name)
}

// openWait bounds how long a call waits for a partition to be opened.
const openWait = 10 * time.Second

func (b *Broker) awaitTopic(ctx context.Context, name string) (*topic, error) {
	ctx, cancel := context.WithTimeout(ctx, openWait)
	defer cancel()
	for {
		pass := b.passEnd()
		want := b.meta.Image().Topic(name)
		if want == nil {
			return nil, unknownTopic(name)
		}
		if v, ok := b.topics.Load(name); ok {
			if t := v.(*topic); t.follows(want) {
				return t, nil
			}
		}
		select {
		case <-pass:
		case <-ctx.Done():
			return nil, model.Errorf(model.LeaderUnavailable, "topic %q is still being opened on this node", name)
		}
	}
}

// partition finds one partition that this node leads.
func (b *Broker) partition(ctx context.Context, name string, p model.PartitionID) (*topic, *partition.Partition, error) {
	t, err := b.topic(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	parts := *t.parts.Load()
	if p < 0 || int(p) >= len(parts) {
		return nil, nil, model.Errorf(model.UnknownPartition, "topic %q has partitions 0 to %d, not %d", name, len(parts)-1, p)
	}
	part := parts[p]
	if part == nil {
		return nil, nil, t.notOpen(int32(p))
	}
	if err := part.Err(); err != nil {
		return nil, nil, err
	}
	return t, part, nil
}
