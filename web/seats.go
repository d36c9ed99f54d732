package web

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"

	"github.com/prometheus/client_golang/prometheus"

	"tidewire/api/problem"
	"tidewire/internal/model"
	"tidewire/web/conns"
	"tidewire/web/h1"
)

// DefaultMaxConnections is how many connections a Server holds open unless told otherwise.
const DefaultMaxConnections = 10_000

func newSeats(c *Config) *conns.Pool {
	most := c.MaxConnections
	if most <= 0 {
		most = DefaultMaxConnections
	}
	trusted := func(a netip.Addr) bool {
		for _, p := range c.TrustedProxies {
			if p.Contains(a) {
				return true
			}
		}
		return false
	}
	config := conns.Config{Max: most, Trusted: trusted}
	if c.TLS == nil { // an answer would need a handshake first, which is work
		config.Answer = refusal(most)
	}
	return conns.New(config)
}

// refusal is the answer to a connection for which there is no room.
func refusal(most int) []byte {
	err := model.Errorf(model.RateLimited, "this node has as many connections open as it allows, %d in all and three quarters of them for one address", most)
	body, _ := json.Marshal(problem.Of(err, problem.Occurrence{Write: true})) // has nothing that JSON cannot carry
	return fmt.Appendf(nil, "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %d\r\nCache-Control: no-store\r\nRetry-After: 1\r\nConnection: close\r\n\r\n%s",
		http.StatusTooManyRequests, http.StatusText(http.StatusTooManyRequests), problem.MediaType, len(body), body)
}

// seats are a pool as h1 knows it.
type seats struct{ pool *conns.Pool }

// Take is the pool's.
func (s seats) Take(c net.Conn, vacate func()) h1.Seat {
	if seat := s.pool.Take(c, vacate); seat != nil {
		return seat
	}
	return nil
}

// seatedListener gives its connections seats; it is for TLS, where net/http serves.
type seatedListener struct {
	net.Listener
	pool *conns.Pool
}

// Accept waits for a connection that has got a seat.
func (l *seatedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if seat := l.pool.Take(c, func() { _ = c.Close() }); seat != nil {
			return &seatedConn{c, seat}, nil
		}
	}
}

type seatedConn struct {
	net.Conn
	seat *conns.Seat
}

// Close ends the connection and gives its seat back.
func (c *seatedConn) Close() error {
	c.seat.Leave()
	return c.Conn.Close()
}

// NetConn is the connection itself, as tls.Conn has it.
func (c *seatedConn) NetConn() net.Conn { return c.Conn }

// noteSecure tells the seat of a connection with TLS what it does.
func noteSecure(c net.Conn, state http.ConnState) {
	t, ok := c.(*tls.Conn)
	if !ok {
		return
	}
	seated, ok := t.NetConn().(*seatedConn)
	if !ok {
		return
	}
	switch state {
	case http.StateActive, http.StateHijacked: // the head of a request is there
		seated.seat.Work()
	case http.StateIdle:
		seated.seat.Wait()
	case http.StateNew, http.StateClosed:
	}
}

// RegisterConnections adds how the connections are used.
func (s *Server) RegisterConnections(r prometheus.Registerer) {
	gauge := func(name, help string, get func(conns.Stats) int) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "tidewire_http_connections" + name, Help: help},
			func() float64 { return float64(get(s.seats.Stats())) })
	}
	counter := func(name, help string, get func(conns.Stats) int64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "tidewire_http_connections_" + name, Help: help},
			func() float64 { return float64(get(s.seats.Stats())) })
	}
	r.MustRegister(
		gauge("", "Connections of the HTTP port that are open, WebSockets included.", func(x conns.Stats) int { return x.Open }),
		gauge("_limit", "How many connections of the HTTP port may be open, --http-max-connections.", func(x conns.Stats) int { return x.Max }),
		counter("refused_total", "Connections refused with 429 since there was no room.", func(x conns.Stats) int64 { return x.Refused }),
		counter("displaced_total", "Connections that waited for a request and were closed for others.", func(x conns.Stats) int64 { return x.Displaced }),
	)
}
