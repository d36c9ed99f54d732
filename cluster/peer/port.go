package peer

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"tidewire/internal/lifecycle"
	"tidewire/internal/model"
)

// Method names a request between nodes. Numbers are part of the protocol: never reuse one.
type Method uint16

// Request is a request of another node.
type Request struct {
	From    Identity
	Method  Method
	Payload []byte
}

// Handler answers requests. Its error should be a *model.Error, which the asker gets with
// its outcome; anything else becomes internal. The context ends with the time that the asker
// waits, or when it has given up or is gone. It is called from many goroutines.
type Handler func(ctx context.Context, r Request) ([]byte, error)

// ALPN names of connections of requests.
const (
	requestProtocol = "tidewire-peer"
	dataProtocol    = "tidewire-data"
)

// RaftProtocol is the ALPN name of raft's connections.
const RaftProtocol = "tidewire-raft"

// Config is what a Port is made of.
type Config struct {
	Keys     *Keys
	Listener net.Listener    // plain TCP; Stop closes it
	Self     func() Identity // who this node is; the cluster's id may become known later
	// Resolve finds the address, host:port, of a node's port by its storage id.
	Resolve func(storageID string) (address string, known bool)
	Handler Handler
	Data    Handler  // of CallData; nil: nothing is answered there
	Streams []string // ALPN names of connections that Streams hands out
	Logger  *slog.Logger
}

// Port is one node's port between nodes. Its methods are safe for concurrent use.
type Port struct {
	cfg     Config
	serving *tls.Config
	cert    tls.Certificate
	group   *lifecycle.Group
	streams map[string]*Streams
	control *lane // of Call
	data    *lane // of CallData

	mu      sync.Mutex
	clients map[clientKey]*client // guarded by mu
	open    map[net.Conn]bool     // guarded by mu: accepted, closed by Stop; nil after it
	told    map[string]time.Time  // guarded by mu: when a host's refusal was last logged
}

// Start begins to accept connections.
func Start(cfg Config) (*Port, error) {
	cert, err := cfg.Keys.mint(cfg.Self().Storage)
	if err != nil {
		return nil, fmt.Errorf("make the certificate of the port between nodes: %w", err)
	}
	p := &Port{
		cfg: cfg, cert: cert, group: lifecycle.New(context.Background()), streams: map[string]*Streams{},
		clients: map[clientKey]*client{}, open: map[net.Conn]bool{}, told: map[string]time.Time{},
	}
	p.control = &lane{protocol: requestProtocol, handler: cfg.Handler, payload: MaxPayload, parallel: parallelRequests}
	p.data = &lane{protocol: dataProtocol, handler: cfg.Data, payload: MaxData, parallel: parallelData, refuses: true, room: newRoom(dataBytes)}
	p.serving = cfg.Keys.config(cert, append([]string{requestProtocol, dataProtocol}, cfg.Streams...))
	for _, protocol := range cfg.Streams {
		p.streams[protocol] = newStreams(p, protocol)
	}
	p.group.Go("peer accept", p.accept)
	return p, nil
}

// Address is where the port listens.
func (p *Port) Address() net.Addr { return p.cfg.Listener.Addr() }

// Streams are the connections of one ALPN name, which must be among Config.Streams.
func (p *Port) Streams(protocol string) *Streams { return p.streams[protocol] }

// Stop closes the listener and every connection, those of streams too, and waits for the
// port's goroutines. Requests that wait for an answer fail.
func (p *Port) Stop(within time.Duration) error {
	err := p.cfg.Listener.Close()
	if errors.Is(err, net.ErrClosed) {
		err = nil
	}
	p.mu.Lock()
	open, clients := p.open, p.clients
	p.open, p.clients = nil, nil
	p.mu.Unlock()
	for c := range open {
		_ = c.Close() // ends its goroutines, which say so
	}
	for _, c := range clients {
		c.close(errStopped)
	}
	for _, s := range p.streams {
		_ = s.Close()
	}
	p.data.room.close()
	return errors.Join(err, p.group.Stop(within))
}

// accept takes connections until the listener is closed.
func (p *Port) accept(ctx context.Context) {
	for {
		c, err := p.cfg.Listener.Accept()
		if err != nil {
			if ctx.Err() == nil && !errors.Is(err, net.ErrClosed) {
				p.cfg.Logger.Warn("the port between nodes could not take a connection", "error", err)
				if pause(ctx, 100*time.Millisecond) {
					continue
				}
			}
			return
		}
		if !p.track(c) {
			_ = c.Close() // the port stops
			return
		}
		p.group.Go("peer connection", func(ctx context.Context) { p.serve(ctx, c) })
	}
}

// track notes a connection so that Stop closes it.
func (p *Port) track(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open == nil {
		return false
	}
	p.open[c] = true
	return true
}

func (p *Port) untrack(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, c)
}

// serve finds out who calls and what for.
func (p *Port) serve(ctx context.Context, raw net.Conn) {
	c, who, err := secureAccepted(ctx, raw, p.serving, p.cfg.Self())
	if err != nil {
		p.tell(raw, err)
		_ = raw.Close()
		p.untrack(raw)
		return
	}
	if s := p.streams[c.ConnectionState().NegotiatedProtocol]; s != nil {
		s.offer(ctx, trackedConn{Conn: c, closed: func() { p.untrack(raw) }})
		return
	}
	defer p.untrack(raw)
	of := p.control
	if c.ConnectionState().NegotiatedProtocol == dataProtocol {
		of = p.data
	}
	p.serveRequests(c, who, of)
}

// tellEvery bounds the log lines about one host that is refused.
const tellEvery = time.Minute

// tell logs why a connection was refused, once a minute for each host.
func (p *Port) tell(c net.Conn, err error) {
	host, _, splitErr := net.SplitHostPort(c.RemoteAddr().String())
	if splitErr != nil {
		host = c.RemoteAddr().String()
	}
	now := time.Now()
	p.mu.Lock()
	again := now.Sub(p.told[host]) < tellEvery
	if !again {
		if len(p.told) > 1000 {
			clear(p.told)
		}
		p.told[host] = now
	}
	p.mu.Unlock()
	if !again {
		p.cfg.Logger.Warn("a connection to the port between nodes was refused", "from", host, "error", err)
	}
}

// dial connects to a node for one protocol.
func (p *Port) dial(ctx context.Context, storageID, protocol string) (*tls.Conn, Identity, error) {
	address, known := p.cfg.Resolve(storageID)
	if !known {
		return nil, Identity{}, fmt.Errorf("%w: %s", ErrNoAddress, storageID)
	}
	ctx, cancel := context.WithTimeout(ctx, handshakeTime)
	defer cancel()
	raw, err := (&net.Dialer{KeepAlive: 5 * time.Second}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, Identity{}, err
	}
	cfg := p.cfg.Keys.config(p.cert, []string{protocol})
	cfg.ServerName = storageID
	c, who, err := secureDialled(ctx, raw, cfg, p.cfg.Self())
	if err == nil && who.Storage != storageID {
		err = fmt.Errorf("%w: it says it is %q", ErrOtherNode, who.Storage)
	}
	if err != nil {
		_ = raw.Close()
		return nil, who, fmt.Errorf("%s: %w", address, err)
	}
	return c, who, nil
}

// ErrNoAddress says that nothing is known of where a node is.
var ErrNoAddress = errors.New("no address is known of the node")

// errStopped ends what waits when the port stops.
var errStopped = model.Errorf(model.LeaderUnavailable, "the node is stopping")

// pause waits and reports whether the context goes on.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
