package broker

import (
	"bytes"
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tidewire/auth"
	"tidewire/broker/partition"
	"tidewire/cluster/metadata"
	"tidewire/internal/lifecycle"
	"tidewire/internal/model"
)

// oneNode is a quorum of one process, without disk.
type oneNode struct {
	mu    sync.Mutex
	image atomic.Pointer[metadata.Image]
	fn    func(old, new *metadata.Image, d metadata.Delta) // guarded by mu
}

func (o *oneNode) Image() *metadata.Image        { return o.image.Load() }
func (o *oneNode) Barrier(context.Context) error { return nil }

func (o *oneNode) Propose(_ context.Context, cmd metadata.Command) (metadata.Result, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	old := o.image.Load()
	img, delta, res := metadata.Apply(old, old.Index()+1, cmd)
	o.image.Store(img)
	if o.fn != nil {
		o.fn(old, img, delta)
	}
	if res.Refusal != nil {
		return res, res.Refusal
	}
	return res, nil
}

func (o *oneNode) Subscribe(fn func(old, new *metadata.Image, d metadata.Delta)) (cancel func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.fn = fn
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.fn = nil
	}
}

// watched is a broker with real auth, a topic t that alice may read, and nothing on disk.
type watched struct {
	*Broker
	t    *testing.T
	meta *oneNode
	auth *auth.Auth
}

const watchedPassword = "correct horse"

func newWatched(t *testing.T) *watched {
	t.Helper()
	o := &oneNode{}
	o.image.Store(metadata.Empty())
	sealer, err := auth.NewSealer(bytes.Repeat([]byte{7}, 32))
	require.NoError(t, err)
	a := auth.New(auth.Config{
		Cluster: o, Sealer: sealer, Hasher: auth.NewHasher(auth.Argon2Params{MemoryKiB: 64, Iterations: 1, Parallelism: 1}),
	})
	g := lifecycle.New(context.Background())
	w := &watched{t: t, meta: o, auth: a, Broker: New(Config{NodeID: 1, Metadata: o, Authorizer: a.Authorizer, Group: g, Now: time.Now})}
	cancel := o.Subscribe(func(old, _ *metadata.Image, d metadata.Delta) { w.wakeGuards(old, &d) })
	g.Go("guards", w.guardLoop)
	t.Cleanup(func() {
		cancel()
		require.NoError(t, g.Stop(5*time.Second))
	})
	w.propose(metadata.BootstrapCluster{ClusterID: "c", Name: "n", MetadataVersion: metadata.CurrentMetadataVersion, Now: 1})
	w.propose(metadata.RegisterBroker{ID: 1, StorageID: "s", Incarnation: 1, HTTPAddr: "h:1", Now: 1})
	w.topic(1)
	for name, admin := range map[string]bool{"root": true, "alice": false, "bob": false} {
		_, err := a.Service.CreateUser(t.Context(), auth.NewUser{Username: name, Password: watchedPassword, Admin: admin})
		require.NoError(t, err)
	}
	w.allow("alice")
	return w
}

func (w *watched) propose(cmd metadata.Command) {
	w.t.Helper()
	_, err := w.meta.Propose(context.Background(), cmd)
	require.NoError(w.t, err)
}

func (w *watched) topic(id byte) {
	w.t.Helper()
	w.propose(metadata.CreateTopic{ID: model.TopicID{id}, Name: "t", Assignments: [][]model.BrokerID{{1}}, Now: 1})
}

var readT = metadata.ACLFields{
	Principal: "User:alice", ResourceType: metadata.ResourceTopic, ResourceName: "t", Pattern: metadata.PatternLiteral,
	Operation: metadata.OpRead, Permission: metadata.Allow, Host: "*",
}

func (w *watched) allow(user string) {
	w.t.Helper()
	f := readT
	f.Principal = "User:" + user
	_, _, err := w.auth.Service.CreateACL(w.t.Context(), f)
	require.NoError(w.t, err)
}

func (w *watched) caller(user string) Caller {
	w.t.Helper()
	g, err := w.auth.Service.Login(w.t.Context(), auth.LoginRequest{Username: user, Password: watchedPassword})
	require.NoError(w.t, err)
	c := w.auth.Tokens.Credential(g.AccessToken)
	p, err := c.Verify(w.t.Context())
	require.NoError(w.t, err)
	return Caller{Principal: p, Host: "127.0.0.1", Credential: c}
}

// woken tells whether a guard was woken, once all that goes on has settled.
func woken(g *Guard) bool {
	synctest.Wait()
	select {
	case <-g.Changed():
		return true
	default:
		return false
	}
}

func TestAGuardTellsWithinASecondWhyACallEnds(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		end  func(w *watched, c Caller) // nil: time passes
		want model.Code
	}{
		"the token expires":   {nil, model.TokenExpired},
		"the user logs out":   {func(w *watched, c Caller) { require.NoError(w.t, w.auth.Service.Logout(w.t.Context(), c.Principal)) }, model.Unauthenticated},
		"the password is set": {func(w *watched, _ Caller) { w.setPassword() }, model.Unauthenticated},
		"the user is disabled": {func(w *watched, _ Caller) {
			w.propose(metadata.AlterUser{Name: "alice", Disabled: new(true)})
		}, model.Unauthenticated},
		"the user is deleted": {func(w *watched, _ Caller) { w.propose(metadata.DeleteUser{Name: "alice"}) }, model.Unauthenticated},
		"the rule goes":       {func(w *watched, _ Caller) { w.propose(metadata.DeleteACLs{Filter: readT}) }, model.Forbidden},
		"a rule denies": {func(w *watched, _ Caller) {
			f := readT
			f.Permission = metadata.Deny
			w.propose(metadata.CreateACL{ID: "deny", Rule: f})
		}, model.Forbidden},
		"the topic is deleted": {func(w *watched, _ Caller) { w.propose(metadata.DeleteTopic{Name: "t"}) }, model.UnknownTopic},
		"the topic is another": {func(w *watched, _ Caller) {
			w.propose(metadata.DeleteTopic{Name: "t"})
			w.topic(2)
		}, model.UnknownTopic},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWatched(t)
				c := w.caller("alice")
				g := w.Guard(c, OnTopic(metadata.OpRead, "t"))
				defer g.Close()
				require.NoError(t, g.Check(t.Context()))
				require.False(t, woken(g))
				if x.end != nil {
					x.end(w, c)
				} else {
					time.Sleep(auth.DefaultAccessTTL)
				}
				time.Sleep(time.Second)
				require.True(t, woken(g))
				err := g.Check(t.Context())
				require.Error(t, err)
				require.Equal(t, x.want, model.AsError(err).Code, "%v", err)
			})
		})
	}
}

func (w *watched) setPassword() {
	w.t.Helper()
	root := w.caller("root")
	require.NoError(w.t, w.auth.Service.SetPassword(w.t.Context(), root.Principal, auth.PasswordChange{Username: "alice", Password: "another password"}))
}

func TestAGuardSleepsWhileOthersComeAndGo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWatched(t)
		g := w.Guard(w.caller("alice"), OnTopic(metadata.OpRead, "t"))
		defer g.Close()
		require.NoError(t, g.Check(t.Context()))
		bob := w.caller("bob")
		require.NoError(t, w.auth.Service.Logout(t.Context(), bob.Principal))
		w.propose(metadata.AlterUser{Name: "bob", Disabled: new(true)})
		w.caller("alice") // another session of hers
		require.False(t, woken(g))
		w.propose(metadata.AlterUser{Name: "alice", Admin: new(true)})
		require.True(t, woken(g))
		require.NoError(t, g.Check(t.Context()))
		require.True(t, g.Caller().Principal.Admin, "Check sees the principal anew")
	})
}

func TestAWatcherIsWokenByEveryChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWatched(t)
		watcher := partition.NewWatcher()
		cancel := w.Watch(watcher)
		w.caller("bob")
		<-watcher.C()
		cancel()
		w.caller("bob")
		synctest.Wait()
		require.Empty(t, watcher.C())
		require.Empty(t, w.guards)
	})
}

func TestACallThatLastsMayAskFromAnyGoroutine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWatched(t)
		c := w.caller("alice")
		require.NoError(t, w.StillAllowed(t.Context(), c, metadata.OpRead, "t"))
		require.Equal(t, model.Forbidden, model.AsError(w.StillAllowed(t.Context(), c, metadata.OpWrite, "t")).Code)
		require.NoError(t, w.auth.Service.Logout(t.Context(), c.Principal))
		require.Equal(t, model.Unauthenticated, model.AsError(w.StillAllowed(t.Context(), c, metadata.OpRead, "t")).Code)
	})
}

func TestAGuardThatIsClosedIsForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWatched(t)
		g := w.Guard(w.caller("alice"))
		g.Close()
		w.propose(metadata.AlterUser{Name: "alice", Admin: new(true)})
		require.False(t, woken(g))
		require.Empty(t, w.guards)
	})
}

// A topic that did not exist when the guard was made is pinned when it is first seen.
func TestAGuardOfATopicThatIsNotThereSaysSo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWatched(t)
		w.propose(metadata.DeleteTopic{Name: "t"})
		g := w.Guard(w.caller("alice"), OnTopic(metadata.OpRead, "t"))
		defer g.Close()
		requireUnknown := func() {
			t.Helper()
			require.Equal(t, model.UnknownTopic, model.AsError(g.Check(t.Context())).Code)
		}
		requireUnknown()
		w.topic(3)
		require.NoError(t, g.Check(t.Context()))
		w.propose(metadata.DeleteTopic{Name: "t"})
		w.topic(4)
		requireUnknown()
	})
}

func TestANewCredentialPutsTheEndOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWatched(t)
		g := w.Guard(w.caller("alice"), OnTopic(metadata.OpRead, "t"))
		defer g.Close()
		time.Sleep(auth.DefaultAccessTTL - time.Minute)
		g.SetCaller(w.caller("alice"))
		time.Sleep(2 * time.Minute)
		require.False(t, woken(g))
		require.NoError(t, g.Check(t.Context()))
	})
}
