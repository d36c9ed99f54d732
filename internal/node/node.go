// Package node is the composition root: it builds a node's parts in order, starts them
// in order and stops them in reverse.
//
// Order: data folder and its lock; the HTTP listener, so that the address is known
// before it is registered; the store of logs; the cluster,
// with the ports to other nodes where there is a cluster key; auth; the broker, which opens
// the partitions; the coordinators of groups; the HTTP server. A node that cannot start leaves nothing running.
package node

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tidewire/api/admin"
	"tidewire/api/groups"
	moving "tidewire/api/moves"
	"tidewire/api/ops"
	"tidewire/api/partitions"
	"tidewire/api/rest"
	"tidewire/api/route"
	"tidewire/auth"
	"tidewire/broker"
	"tidewire/broker/audit"
	"tidewire/broker/coordinator"
	"tidewire/broker/moves"
	"tidewire/broker/quota"
	"tidewire/cluster"
	"tidewire/cluster/metadata"
	"tidewire/internal/buildinfo"
	"tidewire/internal/config"
	"tidewire/internal/datadir"
	"tidewire/internal/fsx"
	"tidewire/internal/history"
	"tidewire/internal/inflight"
	"tidewire/internal/lifecycle"
	"tidewire/storage/log"
	"tidewire/storage/record"
	"tidewire/web"
	"tidewire/web/starting"
	"tidewire/web/ws"
)

// Node is a running node.
type Node struct {
	cfg    *config.Config
	logger *slog.Logger
	out    io.Writer
	now    func() time.Time
	hasher *auth.Hasher

	dir      *datadir.Dir
	listener *net.TCPListener
	starting *starting.Server // lends the listener until the node is ready; nil before and after
	store    *log.Store
	storage  *lifecycle.Group // of the store
	cluster  *cluster.Cluster
	auth     *auth.Auth
	moves    *moves.Service
	broker   *broker.Broker
	groups   *coordinator.Coordinator
	streams  *ws.Handler
	server   *web.Server
	group    *lifecycle.Group // of everything else
	disk     *datadir.DiskGuard
	ballast  *datadir.Ballast
	mono     func() time.Duration
	// inflation is the memory for large batches, shared by all that inflate.
	inflation *record.Budget
	url       string
	past      atomic.Pointer[history.History] // nil until it is read

	firstAdmin string // the user that this start created; "" for none

	unchecked atomic.Int64 // bytes of records since the free space was last read
	checking  sync.Mutex   // one reads it at a time

	ready  atomic.Bool
	stops  []stop // what to undo, in order of starting
	failed chan error
	once   sync.Once
	abort  context.CancelCauseFunc // ends a start
}

// stop is how one part ends.
type stop struct {
	what string
	fn   func(ctx context.Context) error
}

// Start builds and starts a node; out gets the lines for the person who started it. On
// an error everything that was started has been stopped again.
func Start(ctx context.Context, cfg *config.Config, logger *slog.Logger, out io.Writer) (*Node, error) {
	now, err := wallClock()
	if err != nil {
		return nil, err
	}
	return StartWith(ctx, cfg, logger, out, Seams{Now: now, Monotonic: sinceBoot})
}

// Seams are what tests put in the place of the real thing.
type Seams struct {
	Now    func() time.Time // wall clock
	Hasher *auth.Hasher     // of passwords; nil: with the usual cost
	// Monotonic tells time that setting the wall clock does not change; nil: the process's.
	Monotonic func() time.Duration
}

// StartWith is Start for tests.
func StartWith(ctx context.Context, cfg *config.Config, logger *slog.Logger, out io.Writer, seams Seams) (*Node, error) {
	n := &Node{inflation: broker.NewInflation(), cfg: cfg, logger: logger, out: out, now: seams.Now, mono: seams.Monotonic, hasher: seams.Hasher, failed: make(chan error, 1)}
	ctx, n.abort = context.WithCancelCause(ctx)
	for _, line := range cfg.Unopened() {
		logger.Info(line)
	}
	for _, step := range []func(context.Context) error{
		n.openFolder, n.listen, n.openStore, n.startCluster, n.startAuth, n.startBroker, n.startServer, n.announce,
	} {
		if err := step(ctx); err != nil {
			stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cfg.ShutdownTimeout)
			defer cancel()
			return nil, errors.Join(n.fault(err), n.Stop(stopCtx))
		}
	}
	n.ready.Store(true)
	return n, nil
}

func (n *Node) onStop(what string, fn func(ctx context.Context) error) {
	n.stops = append(n.stops, stop{what, fn})
}

// URL is where the node's HTTP port can be reached from this machine.
func (n *Node) URL() string { return n.url }

// Failed receives the fault for which the node must stop.
func (n *Node) Failed() <-chan error { return n.failed }

// fatal reports a local fault after which the node must not go on.
func (n *Node) fatal(err error) {
	n.once.Do(func() {
		n.failed <- err
		n.abort(err)
	})
}

// fault is why a start has ended with an error: that, or the fault that it came from.
func (n *Node) fault(err error) error {
	select {
	case fault := <-n.failed:
		return fmt.Errorf("the node must stop: %w", fault)
	default:
		return err
	}
}

// Stop ends the parts in reverse order until ctx ends: it stops accepting, answers what
// waits, finishes requests, syncs, and closes. All errors are joined.
func (n *Node) Stop(ctx context.Context) error {
	if n.ready.Swap(false) {
		n.logger.Info("the node is stopping")
	}
	var errs []error
	for i := len(n.stops) - 1; i >= 0; i-- {
		if err := n.stops[i].fn(ctx); err != nil {
			errs = append(errs, fmt.Errorf("stopping %s: %w", n.stops[i].what, err))
		}
	}
	n.stops = nil
	n.abort(nil)
	return errors.Join(errs...)
}

// stopGroup ends a group within what is left of ctx.
func stopGroup(g *lifecycle.Group) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		left := time.Minute
		if d, ok := ctx.Deadline(); ok {
			left = max(time.Until(d), 100*time.Millisecond)
		}
		return g.Stop(left)
	}
}

func (n *Node) openFolder(context.Context) error {
	dir, err := datadir.Open(n.cfg.DataDir)
	if err != nil {
		return err
	}
	n.dir = dir
	n.onStop("the data folder", func(context.Context) error { return dir.Close() })
	return n.openDisk()
}

func (n *Node) listen(ctx context.Context) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", n.cfg.HTTP.Listen)
	if err != nil {
		return fmt.Errorf("http-listen: %w", err)
	}
	n.listener = l.(*net.TCPListener)
	n.onStop("the HTTP listener", func(context.Context) error {
		if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			return err
		}
		return nil
	})
	addr, err := config.Dialable(l.Addr())
	if err != nil {
		return err
	}
	n.url = n.cfg.HTTP.URL(addr)
	tlsConfig, err := n.tlsConfig()
	if err != nil {
		return err
	}
	n.starting = starting.Serve(starting.Config{Listener: n.listener, TLS: tlsConfig, Prefix: n.cfg.HTTP.PathPrefix, Logger: n.logger})
	n.onStop("the answers while starting", func(context.Context) error { return n.endStarting() })
	return nil
}

// endStarting takes the listener back from what answers while the node starts.
func (n *Node) endStarting() error {
	s := n.starting
	if n.starting = nil; s == nil {
		return nil
	}
	return s.End()
}

func (n *Node) openStore(ctx context.Context) error {
	openFiles, err := n.openFiles()
	if err != nil {
		return err
	}
	n.storage = lifecycle.New(context.WithoutCancel(ctx))
	n.onStop("the store's goroutines", stopGroup(n.storage))
	store, err := log.OpenStore(log.StoreOptions{
		FS: fsx.OS(), Dir: n.dir.Path(), Logger: n.logger, Group: n.storage, Now: n.now, Monotonic: n.mono, SyncInterval: n.cfg.LogSyncInterval,
		DedupeBufferBytes: max(int64(n.cfg.CompactionBuffer), 1<<20), MaxOpenFiles: openFiles, Inflation: n.inflation,
		Room: n.roomForNewLog,
	})
	if err != nil {
		return err
	}
	n.store = store
	n.onStop("the store", func(context.Context) error { return store.Close() })
	return nil
}

func (n *Node) startCluster(ctx context.Context) error {
	http, err := n.cfg.HTTP.Advertised(n.listener.Addr())
	if err != nil {
		return err
	}
	host, _, err := net.SplitHostPort(http)
	if err != nil {
		return err
	}
	network, err := n.network(ctx)
	if err != nil {
		return err
	}
	waits := n.starting // may be told of a wait that has just ended
	waits.Because("it reads its metadata")
	c, err := cluster.Start(ctx, cluster.Config{
		Dir: n.dir.Meta(), NodeID: n.cfg.NodeID, Host: host, HTTPAddr: http, Rack: n.cfg.Rack,
		Version: buildinfo.Version, ClusterName: "tidewire", BootstrapExpect: n.cfg.BootstrapExpect, Network: network,
		Logger: n.logger, Fatal: n.fatal, Now: n.now, Room: n.makeRoom,
		Waits: func(what string) { waits.Because("it waits for " + what) },
	})
	if err != nil {
		return err
	}
	n.cluster = c
	n.onStop("the cluster", c.Stop)
	n.starting.Because("its partitions are being opened")
	return nil
}

func (n *Node) startAuth(ctx context.Context) error {
	sealer, former, err := n.sealers()
	if err != nil {
		return err
	}
	n.auth = auth.New(auth.Config{Cluster: n.cluster, Sealer: sealer, Hasher: n.hasher, Logger: n.logger, Now: n.now})
	cancel := n.cluster.Subscribe(func(_, _ *metadata.Image, d metadata.Delta) { n.auth.Tokens.Forget(&d) })
	n.onStop("auth", func(context.Context) error { cancel(); return nil })
	if former != nil {
		if err := n.auth.Service.Reseal(ctx, former); err != nil { // a full disk, say, keeps no node from starting
			n.logger.Warn("secrets could not be sealed anew with the cluster key; the next start tries again", "error", err)
		}
	}
	opened, err := n.auth.Service.Bootstrap(ctx, auth.FirstStart{AdminPassword: n.cfg.AdminPassword.Reveal(), Dev: n.cfg.Dev})
	if err != nil {
		return err
	}
	if opened.SetupToken != "" {
		fmt.Fprintf(n.out, "First start: make the administrator at %s/ui/setup?token=%s (or by POST /v1/setup; %s makes one without)\n",
			n.url, opened.SetupToken, config.AdminPasswordVariable)
	}
	n.firstAdmin = opened.AdminCreated
	if opened.AdminCreated != "" {
		n.logger.Info("the first administrator was created", "user", opened.AdminCreated)
	}
	return nil
}

// sealers are that of this node's secret and, where it has a cluster key and had none before, the
// former one.
func (n *Node) sealers() (now, former *auth.Sealer, err error) {
	secret := n.cfg.ClusterKey.Bytes()
	if secret == nil {
		secret, err = auth.LoadSecret(n.dir.Meta())
	} else {
		former, err = auth.FormerSealer(n.dir.Meta())
	}
	if err != nil {
		return nil, nil, err
	}
	now, err = auth.NewSealer(secret)
	return now, former, err
}

func (n *Node) startBroker(ctx context.Context) error {
	n.group = lifecycle.New(context.WithoutCancel(ctx))
	limiter := new(quota.Limiter)
	cancel := n.cluster.Subscribe(limiter.Follow)
	n.onStop("the quotas", func(context.Context) error { cancel(); return nil })
	limiter.Set(n.cluster.Image())
	account := n.openOperations()
	n.broker = broker.New(broker.Config{
		Peers: n.peers(), Full: n.withoutRoom,
		Quotas:    limiter,
		Inflation: n.inflation, Operations: account,
		NodeID: n.cfg.NodeID, Metadata: n.cluster, Authorizer: n.auth.Authorizer, Store: n.store,
		Logger: n.logger, Group: n.group, Now: n.now, Monotonic: n.mono, Appended: n.noteAppended,
		FetchMemory: max(int64(n.cfg.FetchMemory), 16<<20), Network: n.cluster,
	})
	n.groups = coordinator.New(coordinator.Config{
		NodeID: n.cfg.NodeID, Broker: n.broker, Metadata: n.cluster, Logger: n.logger, Group: n.group, Now: n.now, Monotonic: n.mono,
	})
	moved, stopNoting := moves.New(moves.Config{Cluster: n.cluster, Broker: n.broker, Account: account, Now: n.now})
	n.moves = moved
	n.onStop("the account of moves", func(context.Context) error { stopNoting(); return nil })
	n.onStop("the broker", func(context.Context) error { n.broker.Stop(); return nil })
	n.onStop("the group coordinators", func(context.Context) error { n.groups.Stop(); return nil })
	n.onStop("background work", stopGroup(n.group))
	n.onStop("the followers", func(context.Context) error { return n.stopFollow() })
	n.broker.Start()
	n.groups.Start()
	n.answerCalls()
	n.onStop("leaderships", n.resign)
	n.group.Go("auth", n.auth.Service.Run)
	n.group.Go("disk", n.watchDisk)
	n.group.Go("memory", n.trimMemory)
	return nil
}

func (n *Node) startServer(context.Context) error {
	tlsConfig, err := n.tlsConfig()
	if err != nil {
		return err
	}
	most, err := n.maxConnections()
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	n.broker.RegisterMetrics(registry)
	n.groups.RegisterMetrics(registry)
	registerOpenFiles(registry, n.store)
	registerClock(registry, n.cluster)
	budget := inflight.New(max(int64(n.cfg.HTTPInflightBytes), 64<<20))
	web.RegisterInflight(registry, budget)
	metrics := web.NewMetrics(registry)
	trail := audit.NewLog(audit.Config{Writer: audit.NewWriter(n.broker), Node: n.cfg.NodeID, Logger: n.logger, Now: n.now})
	trail.RegisterMetrics(registry)
	n.group.Go("audit", trail.Run)
	n.noteFirstAdmin(trail)
	gate := route.New(route.Config{
		Service: n.auth.Service, Tokens: n.auth.Tokens, Logger: n.logger, Prefix: n.cfg.HTTP.PathPrefix,
		Proxies: n.cfg.HTTP.TrustedProxies, Inflight: budget, Limits: n.broker,
		Auditor: trail, Images: n.cluster,
	})
	api := rest.New(rest.Config{
		Broker: n.broker, Auth: n.auth, Cluster: n.cluster, Process: n, Logger: n.logger, Now: n.now,
		Version: buildinfo.Version, Metrics: metrics.Handler(), Inflight: budget,
		MetricsPublic: n.cfg.HTTP.MetricsPublic || n.cfg.Dev, MaxWebSockets: ws.DefaultMaxSockets,
	})
	doors := admin.New(admin.Config{Service: n.auth.Service, Authz: n.auth.Authorizer, Cluster: n.cluster, Broker: n.broker})
	past := n.openHistory(metrics)
	operate := ops.New(ops.Config{Broker: n.broker, Cluster: n.cluster, Now: n.now, History: past.history, Moves: n.moves, Nodes: n})
	consumers := groups.New(groups.Config{Groups: n.groups, Broker: n.broker, Authz: n.auth.Authorizer, Logger: n.logger, Inflight: budget})
	placed := partitions.New(partitions.Config{Broker: n.broker, Cluster: n.cluster})
	friends := web.AllowedOrigins(n.cfg.HTTP.CORSOrigins)
	n.streams = ws.New(ws.Config{
		Broker: n.broker, Groups: n.groups, Tokens: n.auth.Tokens, Logger: n.logger, Now: n.now, Group: n.group, Inflight: budget,
		MaxSockets:     max(most*3/4, 1), // so that requests always have some connections
		AllowedOrigins: func(r *http.Request) bool { return gate.OwnOrigin(r) || friends(r) },
	})
	n.server, err = web.New(web.Config{
		Gate: gate, Doors: []web.Door{api, doors, operate, consumers, placed, moving.New(n.moves)}, Streams: web.NewStreams(n.streams), Metrics: metrics, Logger: n.logger, Prefix: n.cfg.HTTP.PathPrefix,
		CORSOrigins: n.cfg.HTTP.CORSOrigins, TrustedProxies: n.cfg.HTTP.TrustedProxies, TLS: tlsConfig, Now: n.now,
		MaxConnections: most, Linger: n.linger(),
	})
	if err != nil {
		return err
	}
	if err := n.endStarting(); err != nil {
		return fmt.Errorf("http-listen: %w", err)
	}
	n.server.RegisterConnections(registry)
	n.group.Go("history", past.run)
	n.group.Go("http", func(context.Context) {
		if err := n.server.Serve(n.listener); err != nil {
			n.fatal(err)
		}
	})
	n.onStop("the HTTP server", n.server.Shutdown)
	n.onStop("waiting calls", func(context.Context) error { n.broker.Drain(); n.groups.Drain(); return nil })
	return nil
}

// noteFirstAdmin writes down that the node made the first administrator by itself.
func (n *Node) noteFirstAdmin(trail *audit.Log) {
	if n.firstAdmin == "" {
		return
	}
	by := "TIDEWIRE_ADMIN_PASSWORD"
	if n.cfg.AdminPassword.Reveal() == "" {
		by = "--dev"
	}
	trail.Note(audit.Entry{
		Action: "create-user", Resource: audit.Resource{Type: "user", Name: n.firstAdmin}.String(), Outcome: audit.Success,
		After: map[string]any{"admin": true, "disabled": false}, Details: map[string]any{"by": by},
	})
}

func (n *Node) tlsConfig() (*tls.Config, error) {
	if !n.cfg.HTTP.TLS() {
		return nil, nil
	}
	cert, err := tls.LoadX509KeyPair(n.cfg.HTTP.TLSCert, n.cfg.HTTP.TLSKey)
	if err != nil {
		return nil, fmt.Errorf("http-tls-cert, http-tls-key: %w", err)
	}
	return &tls.Config{
		Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12,
		// WebSocket needs HTTP/1.1 (RFC 8441 is not in the library we use).
		NextProtos: []string{"http/1.1"},
	}, nil
}

func (n *Node) announce(ctx context.Context) error {
	gossip, peer := n.cluster.Ports()
	err := n.dir.Publish(datadir.Endpoints{
		HTTP: n.url, Gossip: gossip, Peer: peer, PID: os.Getpid(), NodeID: n.cfg.NodeID, Version: buildinfo.Version, StartedAt: n.now(),
	})
	if err != nil {
		return err
	}
	if n.cfg.Dev {
		fmt.Fprintf(n.out, "Tidewire %s (development) is ready.\n  Console:  %s/ui/\n  API:      %s/docs\n  Login:    %s\n",
			buildinfo.Version, n.url, n.url, n.devLogin(ctx))
		return nil
	}
	fmt.Fprintf(n.out, "Tidewire %s is ready at %s\n", buildinfo.Version, n.url)
	return nil
}

// devLogin tells with what to log in: the known login only where it is good, since the
// data folder may have users from before.
func (n *Node) devLogin(ctx context.Context) string {
	if _, err := n.auth.Service.Authenticate(ctx, auth.LoginRequest{Username: auth.DevUsername, Password: auth.DevPassword}); err == nil {
		return "user " + auth.DevUsername + ", password " + auth.DevPassword
	}
	return "the users of this data folder"
}

// Ready says why the node does not serve; it is part of rest.Process.
func (n *Node) Ready() []string {
	if !n.ready.Load() {
		return []string{"the node is starting or stopping"}
	}
	if !n.groups.Loaded() {
		return []string{"the coordinators of consumer groups are reading their state"}
	}
	return nil
}

// Handler is the node's whole HTTP surface, for tests.
func (n *Node) Handler() http.Handler { return n.server.Handler() }
