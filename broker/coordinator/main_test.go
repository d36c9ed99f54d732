package coordinator

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tidewire/auth"
	"tidewire/broker"
	"tidewire/broker/group"
	"tidewire/broker/partition"
	"tidewire/cluster/metadata"
	"tidewire/internal/fsx"
	"tidewire/internal/lifecycle"
	"tidewire/internal/model"
	"tidewire/storage/log"
	"tidewire/storage/record"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// quorum is the metadata of one process, without disk. It outlives the nodes of a test.
type quorum struct {
	mu    sync.Mutex
	image atomic.Pointer[metadata.Image]
	fns   map[int]func(old, new *metadata.Image, d metadata.Delta) // guarded by mu
	next  int                                                      // guarded by mu

	starts   uint64
	settings group.Settings // of coordinators
	follows  bool           // coordinators take what the cluster's config says in their place
}

func newQuorum(t testing.TB) *quorum {
	q := &quorum{settings: group.DefaultSettings(), fns: map[int]func(old, new *metadata.Image, d metadata.Delta){}}
	q.image.Store(metadata.Empty())
	q.propose(t, metadata.BootstrapCluster{ClusterID: "c", Name: "n", MetadataVersion: metadata.CurrentMetadataVersion, Now: 1})
	return q
}

// register does what a node does at its start, which begins a new leader epoch.
func (q *quorum) register(t testing.TB) {
	t.Helper()
	q.starts++
	q.propose(t, metadata.RegisterBroker{ID: 1, StorageID: "s", Incarnation: q.starts, HTTPAddr: "h:1", Now: 1})
	q.propose(t, metadata.UnfenceBroker{ID: 1, Epoch: q.Image().Broker(1).Epoch})
}

func (q *quorum) propose(t testing.TB, cmd metadata.Command) {
	t.Helper()
	res, err := q.Propose(context.Background(), cmd)
	require.NoError(t, err)
	require.Nil(t, res.Refusal)
}

func (q *quorum) Image() *metadata.Image        { return q.image.Load() }
func (q *quorum) Barrier(context.Context) error { return nil }

func (q *quorum) Propose(_ context.Context, cmd metadata.Command) (metadata.Result, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	old := q.image.Load()
	img, delta, res := metadata.Apply(old, old.Index()+1, cmd)
	q.image.Store(img)
	for _, fn := range q.fns {
		fn(old, img, delta)
	}
	if res.Refusal != nil {
		return res, res.Refusal
	}
	return res, nil
}

func (q *quorum) Subscribe(fn func(old, new *metadata.Image, d metadata.Delta)) (cancel func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.next++
	id := q.next
	q.fns[id] = fn
	return func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		delete(q.fns, id)
	}
}

// rights lets everybody do everything but read the topics that are closed.
type rights struct{ closed sync.Map }

func (r *rights) Allowed(_ *auth.Principal, q auth.Access) bool {
	_, no := r.closed.Load(q.Name)
	return !no
}

func (r *rights) Authorize(_ context.Context, p *auth.Principal, q auth.Access) error {
	if r.Allowed(p, q) {
		return nil
	}
	return model.Errorf(model.Forbidden, "%s is closed", q.Name)
}

// gate is a file system in which the syncs of __consumer_offsets wait while it is shut.
type gate struct {
	fsx.FS
	mu   sync.Mutex
	open chan struct{} // guarded by mu; nil: it is open
}

func (g *gate) OpenFile(name string, flag int) (fsx.File, error) {
	f, err := g.FS.OpenFile(name, flag)
	if err != nil || !strings.Contains(name, auth.OffsetsTopic) {
		return f, err
	}
	return &gatedFile{f, g}, nil
}

type gatedFile struct {
	fsx.File
	g *gate
}

func (f *gatedFile) SyncData() error {
	f.g.mu.Lock()
	open := f.g.open
	f.g.mu.Unlock()
	if open != nil {
		<-open
	}
	return f.File.SyncData()
}

// shut makes syncs wait until the returned function is called.
func (g *gate) shut() (open func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := make(chan struct{})
	g.open = c
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		close(c)
		g.open = nil
	}
}

// node is a broker with its coordinator over logs in memory.
type node struct {
	*Coordinator
	t      testing.TB
	quorum *quorum
	rights *rights
	fs     *fsx.Mem
	faults *fsx.Inject
	gate   *gate
	store  *log.Store
	broker *broker.Broker
	group  *lifecycle.Group
	disk   *lifecycle.Group // of the store
	once   sync.Once
	out    *bytes.Buffer
	skew   *atomic.Int64 // of the wall clock, ns
	keeps  bool          // polls keep their goroutines while they wait
	slept  atomic.Int64  // how often one has waited without
}

var caller = broker.Caller{Principal: &auth.Principal{Name: "alice"}, Host: "127.0.0.1"}

func newNode(t testing.TB) *node {
	t.Helper()
	return startNode(t, newQuorum(t), fsx.NewCrashMem())
}

func startNode(t testing.TB, q *quorum, fs *fsx.Mem) *node {
	t.Helper()
	n := startOver(t, q, fs, "/data")
	n.fs = fs
	return n
}

// startOver starts a node over a folder of any file system.
func startOver(t testing.TB, q *quorum, fs fsx.FS, dir string) *node {
	t.Helper()
	q.register(t)
	n := &node{t: t, keeps: strings.HasSuffix(t.Name(), strings.ReplaceAll(keeping, " ", "_")), quorum: q, rights: &rights{}, faults: fsx.NewInject(fs, nil), group: lifecycle.New(context.Background()), disk: lifecycle.New(context.Background()), out: &bytes.Buffer{}, skew: &atomic.Int64{}}
	n.gate = &gate{FS: n.faults}
	now := func() time.Time { return time.Now().Add(time.Duration(n.skew.Load())) }
	logger := slog.New(slog.NewTextHandler(n.out, nil))
	var err error
	n.store, err = log.OpenStore(log.StoreOptions{FS: n.gate, Dir: dir, Group: n.disk, Now: time.Now, Logger: logger})
	require.NoError(t, err)
	n.broker = broker.New(broker.Config{NodeID: 1, Metadata: q, Authorizer: n.rights, Store: n.store, Logger: logger, Group: n.group, Now: now})
	config := Config{NodeID: 1, Broker: n.broker, Metadata: q, Logger: logger, Group: n.group, Now: now, Settings: &q.settings}
	if q.follows {
		config.Settings = nil
	}
	n.Coordinator = New(config)
	n.broker.Start()
	n.Start()
	t.Cleanup(n.stop)
	return n
}

// stop ends the node in order.
func (n *node) stop() {
	n.t.Helper()
	n.once.Do(func() { require.NoError(n.t, n.end()) })
}

func (n *node) end() error {
	n.broker.Drain()
	n.Drain()
	require.NoError(n.t, n.group.Stop(10*time.Second))
	n.Stop()
	n.broker.Stop()
	err := n.store.Close()
	require.NoError(n.t, n.disk.Stop(10*time.Second))
	return err
}

// kill ends the node and gives what a power cut at this moment leaves.
func (n *node) kill(seed uint64) *node {
	n.t.Helper()
	left := n.fs.Crash(seed)
	n.faults.SetHook(fsx.FailIf(func(fsx.Op) bool { return true }, fmt.Errorf("the node is dead")))
	n.once.Do(func() { _ = n.end() }) // it fails, on purpose
	return startNode(n.t, n.quorum, left)
}

func (n *node) topic(name string, partitions int) {
	n.t.Helper()
	_, err := n.broker.CreateTopic(n.t.Context(), caller, broker.NewTopic{Name: name, Partitions: partitions, ReplicationFactor: 1})
	require.NoError(n.t, err)
}

// produce appends values to a partition.
func (n *node) produce(topic string, p int, values ...string) {
	n.t.Helper()
	req := &broker.ProduceRequest{Topic: topic, Acks: partition.AcksAll, Timeout: 10 * time.Second}
	for _, v := range values {
		req.Records = append(req.Records, record.Record{Timestamp: broker.NoTimestamp, Value: []byte(v)})
		req.Routing = append(req.Routing, broker.Routing{Partition: model.PartitionID(p), HasPartition: true})
	}
	require.NoError(n.t, n.broker.Produce(n.t.Context(), caller, req, func(r *broker.ProduceResult) { require.Zero(n.t, r.Failed) }))
}

func joining(groupID string, topics ...string) JoinRequest {
	return JoinRequest{Group: groupID, Topics: topics, SessionTimeout: 10 * time.Second, Reset: group.Earliest, ClientID: "c", Host: "h", User: "alice"}
}

// member is a client that polls over HTTP.
type member struct {
	n      *node
	group  string
	id     string
	cursor string
}

func (n *node) join(req JoinRequest) *member {
	n.t.Helper()
	j, err := n.Join(n.t.Context(), req)
	require.NoError(n.t, err)
	return &member{n: n, group: req.Group, id: j.Member.ID}
}

func (m *member) request(wait time.Duration) *PollRequest {
	return &PollRequest{
		Group: m.group, Member: m.id, Caller: caller, Cursor: m.cursor, Wait: wait, MaxRecords: 500, MaxBytes: 1 << 20, MinBytes: 1,
	}
}

// got is what a poll gave: records as "topic/partition/offset=value".
type got struct {
	*PollResult
	records []string
}

func (m *member) try(ctx context.Context, req *PollRequest) (got, error) {
	var g got
	visit := func(p group.Held, r *record.Record, _ bool) {
		g.records = append(g.records, fmt.Sprintf("%s/%d/%d=%s", p.Name, p.Index, r.Offset, r.Value))
	}
	if m.n.keeps {
		res, err := m.n.Poll(ctx, req, visit)
		g.PollResult = res
		return g, err
	}
	woken := make(chan struct{}, 1)
	res, waiting, err := m.n.PollLater(ctx, req, visit, func() {
		select {
		case woken <- struct{}{}:
		default:
		}
	})
	for waiting != nil {
		m.n.slept.Add(1)
		select {
		case <-woken:
		case <-ctx.Done():
		}
		res, waiting, err = waiting.Resume(ctx, visit)
	}
	g.PollResult = res
	return g, err
}

// poll polls with the last answer's cursor.
func (m *member) poll(wait time.Duration) got {
	m.n.t.Helper()
	g, err := m.try(m.n.t.Context(), m.request(wait))
	require.NoError(m.n.t, err)
	m.cursor = g.Cursor
	return g
}

func heldOf(a *group.Assignment) string {
	var out []string
	for _, h := range a.Held {
		out = append(out, fmt.Sprintf("%s/%d", h.Name, h.Index))
	}
	return strings.Join(out, " ")
}

// settle lets members poll until each has what it is to have.
func settle(t testing.TB, members ...*member) {
	t.Helper()
	for range 50 {
		calm := true
		for _, m := range members {
			g := m.poll(0)
			calm = calm && !g.Assignment.Pending && len(g.Assignment.Revoking) == 0
		}
		if calm {
			return
		}
		pass(60 * time.Millisecond)
	}
	t.Fatal("the group does not settle")
}

// pass lets time of the bubble pass.
func pass(d time.Duration) { <-time.After(d) }

func bubble(t *testing.T, fn func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, fn)
}

// bothWays runs a test with polls that keep their goroutines, and with those that wait without.
func bothWays(t *testing.T, fn func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	for _, way := range []string{keeping, "without a goroutine"} {
		t.Run(way, func(t *testing.T) { bubble(t, fn) })
	}
}

const keeping = "in a goroutine"

func code(t testing.TB, want model.Code, err error) *model.Error {
	t.Helper()
	require.True(t, model.HasCode(err, want), "want %s, got %v", want, err)
	return model.AsError(err)
}
