package auth

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewire/cluster/metadata"
	"tidewire/internal/model"
)

// fakeCluster is a quorum of one process that folds commands with the real
// metadata.Apply. What another node commits (remotely) is seen here only after a
// Barrier, as on a node that is behind.
type fakeCluster struct {
	mu        sync.Mutex
	committed *metadata.Image // guarded by mu
	delta     metadata.Delta  // guarded by mu: everything since the last takeDelta

	seen     atomic.Pointer[metadata.Image]
	barriers atomic.Int64
	offline  atomic.Bool // Barrier and Propose fail
	// onPropose, when set, runs before a command is ordered. Set before use.
	onPropose func(metadata.Command)
}

const testClusterID = "3f1c8f0a-0000-4000-8000-000000000001"

func newFakeCluster(t testing.TB, now time.Time) *fakeCluster {
	f := &fakeCluster{committed: metadata.Empty()}
	f.seen.Store(f.committed)
	f.mustPropose(t, metadata.BootstrapCluster{
		ClusterID: testClusterID, Name: "test", MetadataVersion: metadata.CurrentMetadataVersion, Now: metadata.MillisOf(now),
	})
	return f
}

func (f *fakeCluster) Image() *metadata.Image { return f.seen.Load() }

func (f *fakeCluster) Barrier(context.Context) error {
	f.barriers.Add(1)
	if f.offline.Load() {
		return model.Errorf(model.QuorumUnavailable, "offline")
	}
	f.publish()
	return nil
}

func (f *fakeCluster) publish() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen.Store(f.committed)
}

func (f *fakeCluster) Propose(_ context.Context, cmd metadata.Command) (metadata.Result, error) {
	if f.onPropose != nil {
		f.onPropose(cmd)
	}
	if f.offline.Load() {
		return metadata.Result{}, model.Errorf(model.QuorumUnavailable, "offline")
	}
	res, err := f.order(cmd)
	f.publish()
	return res, err
}

// order commits a command in the form it has in the log.
func (f *fakeCluster) order(cmd metadata.Command) (metadata.Result, error) {
	b, err := metadata.EncodeCommand(cmd)
	if err != nil {
		return metadata.Result{}, err
	}
	if cmd, err = metadata.DecodeCommand(b); err != nil {
		return metadata.Result{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	img, delta, res := metadata.Apply(f.committed, f.committed.Index()+1, cmd)
	f.committed = img
	f.delta.Merge(delta)
	if res.Refusal != nil {
		return res, res.Refusal
	}
	return res, nil
}

// takeDelta returns what changed since it was last called.
func (f *fakeCluster) takeDelta() metadata.Delta {
	f.mu.Lock()
	defer f.mu.Unlock()
	d := f.delta
	f.delta = metadata.Delta{}
	return d
}

func (f *fakeCluster) mustPropose(t testing.TB, cmd metadata.Command) metadata.Result {
	t.Helper()
	res, err := f.Propose(context.Background(), cmd)
	require.NoError(t, err)
	return res
}

// view is another node of the same quorum, with an image of its own.
func (f *fakeCluster) view() *fakeView {
	v := &fakeView{f: f}
	v.seen.Store(f.Image())
	return v
}

type fakeView struct {
	f    *fakeCluster
	seen atomic.Pointer[metadata.Image]
}

func (v *fakeView) Image() *metadata.Image { return v.seen.Load() }

func (v *fakeView) Barrier(context.Context) error { return v.catchUp() }

func (v *fakeView) catchUp() error {
	v.f.mu.Lock()
	defer v.f.mu.Unlock()
	v.seen.Store(v.f.committed)
	return nil
}

func (v *fakeView) Propose(_ context.Context, cmd metadata.Command) (metadata.Result, error) {
	res, err := v.f.order(cmd)
	_ = v.catchUp()
	return res, err
}

// clock is a wall clock that moves when told.
type clock struct{ at atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.at.Store(time.Date(2030, 1, 2, 3, 4, 5, 678e6, time.UTC).UnixNano())
	return c
}

func (c *clock) now() time.Time          { return time.Unix(0, c.at.Load()).UTC() }
func (c *clock) advance(d time.Duration) { c.at.Add(int64(d)) }

// node is one node's auth over the fake quorum.
type node struct {
	*Auth
	cluster *fakeCluster
	clock   *clock
	hashes  *hashCalls
	seen    map[string]*Seen // token → as a connection remembers it
}

const goodPassword = "correct horse"

func newNode(t testing.TB) *node {
	t.Helper()
	c := newClock()
	n := &node{cluster: newFakeCluster(t, c.now()), clock: c}
	var h *Hasher
	h, n.hashes = countingHasher()
	n.Auth = New(Config{Cluster: n.cluster, Sealer: testSealer(t), Hasher: h, Now: c.now})
	return n
}

// other is a second node of the same cluster, with the same clock and keys.
func (n *node) other(t testing.TB) *Auth {
	t.Helper()
	return New(Config{Cluster: n.cluster.view(), Sealer: testSealer(t), Hasher: cheapHasher(), Now: n.clock.now})
}

// withUsers returns a node with an administrator "root" and plain users.
func withUsers(t testing.TB, users ...string) *node {
	t.Helper()
	n := newNode(t)
	n.addUser(t, "root", true)
	for _, u := range users {
		n.addUser(t, u, false)
	}
	return n
}

func (n *node) addUser(t testing.TB, name string, admin bool) {
	t.Helper()
	_, err := n.Service.CreateUser(context.Background(), NewUser{Username: name, Password: goodPassword, Admin: admin})
	require.NoError(t, err)
}

func (n *node) login(t testing.TB, name string) *Grant {
	t.Helper()
	g, err := n.Service.Login(context.Background(), LoginRequest{Username: name, Password: goodPassword})
	require.NoError(t, err)
	return g
}

// verify says what becomes of a token: "ok" or the code of the refusal.
// A connection that brought it before, or brings it for the first time, must get the same.
func (n *node) verify(token string) string {
	if n.seen == nil {
		n.seen = map[string]*Seen{}
	}
	_, seen, err := n.Tokens.VerifyAgain(context.Background(), token, n.seen[token])
	if err == nil {
		n.seen[token] = seen
	}
	again, other := codeOf(err), verdict(n.Tokens, token)
	if again != other {
		return "a connection that brought it before gets " + again + ", another " + other
	}
	return other
}

func verdict(tokens *Tokens, token string) string {
	_, err := tokens.Verify(context.Background(), token)
	return codeOf(err)
}

func codeOf(err error) string {
	if err == nil {
		return "ok"
	}
	return string(model.AsError(err).Code)
}

func requireCode(t testing.TB, want model.Code, err error) {
	t.Helper()
	require.Error(t, err)
	require.Equal(t, want, model.AsError(err).Code, "%v", err)
}
