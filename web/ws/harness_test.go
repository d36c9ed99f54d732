package ws

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tidewire/api/problem"
	"tidewire/auth"
	"tidewire/broker"
	"tidewire/broker/coordinator"
	"tidewire/cluster/metadata"
	"tidewire/internal/fsx"
	"tidewire/internal/lifecycle"
	"tidewire/internal/model"
	"tidewire/storage/log"
	"tidewire/storage/record"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	password = "correct horse"
	root     = "root" // an administrator
	alice    = "alice"
)

// quorum is the cluster of one process: it folds commands with metadata.Apply.
type quorum struct {
	mu     sync.Mutex
	image  atomic.Pointer[metadata.Image]
	subs   map[int]func(old, new *metadata.Image, d metadata.Delta) // guarded by mu
	nextID int                                                      // guarded by mu
}

func (q *quorum) Image() *metadata.Image { return q.image.Load() }

func (q *quorum) Barrier(context.Context) error { return nil }

func (q *quorum) Propose(_ context.Context, cmd metadata.Command) (metadata.Result, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	old := q.image.Load()
	img, delta, res := metadata.Apply(old, old.Index()+1, cmd)
	q.image.Store(img)
	for _, fn := range q.subs {
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
	id := q.nextID
	q.nextID++
	q.subs[id] = fn
	return func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		delete(q.subs, id)
	}
}

// node is what a node has of the WebSocket path: the real broker over the real log on a
// file system in memory, the real auth, and an HTTP server that does what the router does.
type node struct {
	t       testing.TB
	quorum  *quorum
	auth    *auth.Auth
	broker  *broker.Broker
	groups  *coordinator.Coordinator
	handler *Handler
	group   *lifecycle.Group
	listen  net.Listener
	dial    func() (net.Conn, error)
	caller  broker.Caller // root
	origin  string        // of pages that may open sockets
	store   *logs
	log     lockedBuffer
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer // guarded by mu
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// pipes is a listener whose connections are net.Pipe, which work under fake time.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.IPAddr{IP: net.IPv4(127, 0, 0, 1)} }

func (p *pipes) dial() (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.conns <- server:
		return client, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// inBubble runs a test under fake time, over pipes.
func inBubble(t *testing.T, test func(t *testing.T, n *node)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPipes()
		n := newNode(t, p, p.dial)
		test(t, n)
	})
}

// overTCP runs a test with real sockets and real time.
func overTCP(t *testing.T, test func(t *testing.T, n *node)) {
	t.Helper()
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	test(t, newNode(t, &watched{Listener: l}, func() (net.Conn, error) { return net.Dial("tcp", l.Addr().String()) }))
}

func newNode(t testing.TB, l net.Listener, dial func() (net.Conn, error)) *node {
	t.Helper()
	n := &node{t: t, quorum: &quorum{subs: map[int]func(old, new *metadata.Image, d metadata.Delta){}}, listen: l, dial: dial}
	n.quorum.image.Store(metadata.Empty())
	n.found()
	logger := slog.New(slog.NewTextHandler(&n.log, nil))

	storeGroup := lifecycle.New(context.Background())
	disk, err := log.OpenStore(log.StoreOptions{FS: fsx.NewMem(), Dir: "data", Logger: logger, Group: storeGroup, Now: time.Now})
	require.NoError(t, err)
	store := &logs{Store: disk, open: map[Partition]*log.Log{}}
	n.store = store
	sealer, err := auth.NewSealer(bytes.Repeat([]byte{7}, 32))
	require.NoError(t, err)
	n.auth = auth.New(auth.Config{
		Cluster: n.quorum, Sealer: sealer, Hasher: auth.NewHasher(auth.Argon2Params{MemoryKiB: 64, Iterations: 1, Parallelism: 1}),
	})
	brokerGroup := lifecycle.New(context.Background())
	n.broker = broker.New(broker.Config{
		NodeID: 1, Metadata: n.quorum, Authorizer: n.auth.Authorizer, Store: store, Logger: logger, Group: brokerGroup, Now: time.Now,
	})
	n.groups = coordinator.New(coordinator.Config{NodeID: 1, Broker: n.broker, Metadata: n.quorum, Logger: logger, Group: brokerGroup, Now: time.Now})
	n.broker.Start()
	n.groups.Start()
	n.group = lifecycle.New(context.Background())
	n.handler = New(Config{
		Broker: n.broker, Groups: n.groups, Tokens: n.auth.Tokens, Group: n.group, Logger: logger, Now: time.Now,
		AllowedOrigins: func(r *http.Request) bool { return n.origin != "" && r.Header.Get("Origin") == n.origin },
	})
	n.addUser(root, true)
	n.addUser(alice, false)
	n.caller = broker.Caller{Principal: &auth.Principal{Name: root, Admin: true}, Host: "127.0.0.1"}

	server := &http.Server{Handler: http.HandlerFunc(n.serve)}
	httpGroup := lifecycle.New(context.Background())
	httpGroup.Go("http", func(context.Context) { _ = server.Serve(l) })
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := n.handler.Shutdown(ctx); err != nil && !errors.Is(err, errShutTwice) {
			t.Errorf("sockets did not end: %v", err)
		}
		require.NoError(t, server.Close())
		require.NoError(t, httpGroup.Stop(5*time.Second))
		n.broker.Drain()
		n.groups.Drain()
		require.NoError(t, n.group.Stop(5*time.Second))
		require.NoError(t, brokerGroup.Stop(5*time.Second))
		n.groups.Stop()
		n.broker.Stop()
		require.NoError(t, store.Close())
		require.NoError(t, storeGroup.Stop(5*time.Second))
		require.Zero(t, n.handler.Open())
	})
	return n
}

// found makes the cluster and its one broker.
func (n *node) found() {
	now := metadata.MillisOf(time.Now())
	n.propose(metadata.BootstrapCluster{
		ClusterID: "3f1c8f0a-0000-4000-8000-000000000001", Name: "test", MetadataVersion: metadata.CurrentMetadataVersion, Now: now,
	})
	res := n.propose(metadata.RegisterBroker{ID: 1, StorageID: "s", Incarnation: 1, Host: "h", Now: now})
	n.propose(metadata.UnfenceBroker{ID: 1, Epoch: res.Value.(*metadata.Broker).Epoch})
}

func (n *node) propose(cmd metadata.Command) metadata.Result {
	n.t.Helper()
	res, err := n.quorum.Propose(context.Background(), cmd)
	require.NoError(n.t, err)
	return res
}

func (n *node) addUser(name string, admin bool) {
	n.t.Helper()
	_, err := n.auth.Service.CreateUser(context.Background(), auth.NewUser{Username: name, Password: password, Admin: admin})
	require.NoError(n.t, err)
}

func (n *node) token(user string) string {
	n.t.Helper()
	g, err := n.auth.Service.Login(context.Background(), auth.LoginRequest{Username: user, Password: password})
	require.NoError(n.t, err)
	return g.AccessToken
}

func (n *node) allow(user, topic string) metadata.ACLFields {
	n.t.Helper()
	f := metadata.ACLFields{
		Principal: "User:" + user, ResourceType: metadata.ResourceTopic, ResourceName: topic, Pattern: metadata.PatternLiteral,
		Operation: metadata.OpRead, Permission: metadata.Allow, Host: "*",
	}
	_, _, err := n.auth.Service.CreateACL(context.Background(), f)
	require.NoError(n.t, err)
	return f
}

func (n *node) topic(name string, partitions int) {
	n.t.Helper()
	_, err := n.broker.CreateTopic(context.Background(), n.caller, broker.NewTopic{Name: name, Partitions: partitions})
	require.NoError(n.t, err)
}

// logs is the real store, and knows the logs that the broker opened.
type logs struct {
	*log.Store
	mu   sync.Mutex
	open map[Partition]*log.Log // guarded by mu
}

func (l *logs) Open(id model.TopicID, topic string, p model.PartitionID, cfg log.Config) (*log.Log, error) {
	opened, err := l.Store.Open(id, topic, p, cfg)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[Partition{topic, int32(p)}] = opened
	return opened, err
}

func (l *logs) of(p Partition) *log.Log {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open[p]
}

// produce stores values in one partition and returns once they are visible.
func (n *node) produce(topic string, partitionID int32, values ...string) {
	n.t.Helper()
	recs := make([]record.Record, len(values))
	for i, v := range values {
		recs[i] = record.Record{Timestamp: time.Now().UnixMilli(), Value: []byte(v)}
	}
	n.produceRecords(topic, partitionID, recs)
}

// produceRecords writes to the log itself: the broker's pool of produce calls holds
// channels, which must not leave a bubble of fake time.
func (n *node) produceRecords(topic string, partitionID int32, recs []record.Record) {
	n.t.Helper()
	l := n.store.of(Partition{topic, partitionID})
	b := record.NewBuilder(1024)
	for _, r := range recs {
		b.Add(r.Timestamp, r.Key, r.Value, r.Headers)
	}
	batch, err := b.Finish(record.None)
	require.NoError(n.t, err)
	at, err := l.Append(batch, 0, time.Now().UnixMilli())
	require.NoError(n.t, err)
	l.RequestSync()
	for l.HighWatermark() <= at.Last {
		<-time.After(time.Microsecond)
	}
}

// serve does what the router does: authenticates and answers errors.
func (n *node) serve(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Request-Id", "req-1")
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	p, err := n.auth.Tokens.Verify(r.Context(), token)
	if err == nil {
		serve := n.handler.Consume
		if r.URL.Path == producePath {
			serve = n.handler.Produce
		}
		err = serve(w, r, broker.Caller{Principal: p, Host: "127.0.0.1", Credential: n.auth.Tokens.Credential(token)})
	}
	if err != nil {
		problem.Write(w, err, problem.Occurrence{Path: r.URL.EscapedPath(), RequestID: "req-1"})
	}
}

// client is one socket. Frames are read into got by a goroutine, as a browser does,
// until stopReading or the end.
type client struct {
	t    testing.TB
	n    *node
	ws   *websocket.Conn
	resp *http.Response
	got  chan string
	end  error // valid once got is closed
}

type dialOptions struct {
	user      string // root
	token     string
	path      string // /v1/ws/consume
	query     string
	header    http.Header
	protocols []string
	lazy      bool // do not read
}

func (n *node) handshake(o dialOptions) (*websocket.Conn, *http.Response, error) {
	n.t.Helper()
	if o.user == "" {
		o.user = root
	}
	if o.token == "" {
		o.token = n.token(o.user)
	}
	h := o.header.Clone()
	if h == nil {
		h = http.Header{}
	}
	h.Set("Authorization", "Bearer "+o.token)
	d := websocket.Dialer{
		NetDialContext: func(context.Context, string, string) (net.Conn, error) { return n.dial() },
		Subprotocols:   o.protocols, HandshakeTimeout: time.Minute,
	}
	if o.path == "" {
		o.path = "/v1/ws/consume"
	}
	u := "ws://node.example" + o.path
	if o.query != "" {
		u += "?" + o.query
	}
	return d.DialContext(context.Background(), u, h)
}

func (n *node) connect(o dialOptions) *client {
	n.t.Helper()
	conn, resp, err := n.handshake(o)
	if resp != nil && err != nil {
		b := new(bytes.Buffer)
		_, _ = b.ReadFrom(resp.Body)
		n.t.Fatalf("handshake: %v: %s", err, b)
	}
	require.NoError(n.t, err)
	c := &client{t: n.t, n: n, ws: conn, resp: resp, got: make(chan string, 1<<16)}
	readers := lifecycle.New(context.Background())
	n.t.Cleanup(func() {
		_ = conn.Close()
		require.NoError(n.t, readers.Stop(5*time.Second))
	})
	if !o.lazy {
		readers.Go("client", func(context.Context) { c.pump() })
	}
	return c
}

func (c *client) pump() {
	defer close(c.got)
	for {
		_, b, err := c.ws.ReadMessage()
		if err != nil {
			c.end = err
			return
		}
		c.got <- string(b)
	}
}

// send writes a frame; args are for its format.
func (c *client) send(format string, args ...any) {
	c.t.Helper()
	require.NoError(c.t, c.ws.WriteMessage(websocket.TextMessage, fmt.Appendf(nil, format, args...)))
}

// next returns the next frame's text, which must come within a minute.
func (c *client) next() string {
	c.t.Helper()
	t := time.NewTimer(time.Minute)
	defer t.Stop()
	select {
	case f, ok := <-c.got:
		if !ok {
			c.t.Fatalf("the socket ended: %v", c.end)
		}
		return f
	case <-t.C:
		c.t.Fatal("no frame came")
		return ""
	}
}

// frame is any frame, decoded.
type frame struct {
	Op         string          `json:"op"`
	ID         json.RawMessage `json:"id"`
	Reason     string          `json:"reason"`
	ExpiresAt  *string         `json:"expires_at"`
	Credit     *int64          `json:"credit"`
	Partitions []Position      `json:"partitions"`
	Records    []recordOf      `json:"records"`
	Problem    problemOf       `json:"problem"`
	Topics     []string        `json:"topics"`
	All        map[string]any  `json:"-"`
}

type recordOf struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
	Value     any    `json:"value"`
	Encoding  string `json:"value_encoding"`
}

type problemOf struct {
	Code      string             `json:"code"`
	Status    int                `json:"status"`
	Detail    string             `json:"detail"`
	Instance  string             `json:"instance"`
	RequestID string             `json:"request_id"`
	Errors    []model.FieldError `json:"errors"`
	Earliest  *int64             `json:"earliest"`
	Latest    *int64             `json:"latest"`
	Topic     string             `json:"topic"`
	Partition *int32             `json:"partition"`
}

func (c *client) frame() frame {
	c.t.Helper()
	text := c.next()
	var f frame
	require.NoError(c.t, json.Unmarshal([]byte(text), &f), text)
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	require.NoError(c.t, dec.Decode(&f.All), text)
	return f
}

// want returns the next frame, which must have this op.
func (c *client) want(op string) frame {
	c.t.Helper()
	f := c.frame()
	require.Equal(c.t, op, f.Op, "%+v", f.All)
	return f
}

// records reads frames of records until there are n, as "partition:value".
func (c *client) records(n int) []string {
	c.t.Helper()
	var out []string
	for len(out) < n {
		for _, r := range c.want("records").Records {
			out = append(out, fmt.Sprintf("%d:%v", r.Partition, r.Value))
		}
	}
	return out
}

// silent requires that nothing comes for a while of fake time.
func (c *client) silent(d time.Duration) {
	c.t.Helper()
	select {
	case f, ok := <-c.got:
		c.t.Fatalf("something came: %v %s", ok, f)
	case <-time.After(d):
	}
}

// closed requires the end of the socket with this code, and nothing before.
func (c *client) closed(code int) {
	c.t.Helper()
	select {
	case f, ok := <-c.got:
		require.False(c.t, ok, "a frame came: %s", f)
	case <-time.After(time.Minute):
		c.t.Fatal("the socket did not end")
	}
	var ce *websocket.CloseError
	require.ErrorAs(c.t, c.end, &ce)
	require.Equal(c.t, code, ce.Code, "%v", ce)
}

// fails requires an error frame without id and then the close code.
func (c *client) fails(code model.Code, closing int) problemOf {
	c.t.Helper()
	f := c.want("error")
	require.Nil(c.t, f.ID)
	require.Equal(c.t, string(code), f.Problem.Code, f.Problem.Detail)
	c.closed(closing)
	return f.Problem
}

// refused requires an error frame with the id.
func (c *client) refused(id string, code model.Code) problemOf {
	c.t.Helper()
	f := c.want("error")
	require.Equal(c.t, id, string(f.ID))
	require.Equal(c.t, string(code), f.Problem.Code, f.Problem.Detail)
	return f.Problem
}

// subscribe sends a frame and reads its answers.
func (c *client) subscribe(members string) (subscribed, assigned frame) {
	c.t.Helper()
	c.send(`{"op":"subscribe",%s}`, members)
	return c.want("subscribed"), c.want("assigned")
}

// advance lets fake time pass and everything that is due happen.
func advance(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// waits lets more fake time pass than next allows before it runs then.
func (c *client) waits(d time.Duration, then func()) {
	c.t.Helper()
	for step := time.Second; d > 0 && len(c.got) == 0; d -= step {
		advance(step)
	}
	then()
}

// frame15Minutes reads the next frame, which may take 15 minutes.
func (c *client) frame15Minutes() frame {
	c.t.Helper()
	var f frame
	c.waits(15*time.Minute, func() { f = c.frame() })
	return f
}

// ruleOfAlice is what lets alice read t.
func (n *node) ruleOfAlice() metadata.ACLFields {
	return metadata.ACLFields{
		Principal: "User:" + alice, ResourceType: metadata.ResourceTopic, ResourceName: "t", Pattern: metadata.PatternLiteral,
		Operation: metadata.OpRead, Permission: metadata.Allow, Host: "*",
	}
}

// watched is a listener that knows how long its connections have been writing.
type watched struct {
	net.Listener
	mu    sync.Mutex
	conns []*watchedConn // guarded by mu
}

type watchedConn struct {
	net.Conn
	began atomic.Int64 // of the write under way, in nanoseconds; 0: none
}

// NetConn is the connection below, as with TLS.
func (c *watchedConn) NetConn() net.Conn { return c.Conn }

func (c *watchedConn) Write(b []byte) (int, error) {
	c.began.Store(time.Now().UnixNano())
	defer c.began.Store(0)
	return c.Conn.Write(b)
}

func (l *watched) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	w := &watchedConn{Conn: c}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns = append(l.conns, w)
	return w, nil
}

// stuck reports whether a write has been under way for so long.
func (l *watched) stuck(d time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		if at := c.began.Load(); at != 0 && time.Since(time.Unix(0, at)) > d {
			return true
		}
	}
	return false
}
