// Package conns bounds the connections of the HTTP port. A connection takes a seat when it is
// accepted. When all seats are taken, a newcomer gets that of a connection which waits for a
// request: of the address that has the most of them, the one that has waited longest. So a
// client that opens more than there is room for, whether it says nothing, sends its request in
// drops or leaves its connections idle, takes the place of its own connections, and others
// go on. One address never has more than three quarters of the seats, unless it is that of a
// trusted proxy. Where nobody waits, the newcomer is answered 429 rate-limited, before anything of it is
// read, and closed.
//
// State and locks: seats are in a set under Pool.mu; whether one waits is an atomic of its own,
// so that a request costs no lock. Victims are looked for many at a time, since a flood needs
// many. No lock is held while a connection is written to or closed. Refused connections stay
// open a moment, at most maxRefused of them, so that the answer arrives: closing while the
// client sends would destroy it. Run closes them, and ends with its context.
package conns

import (
	"cmp"
	"context"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// share of the seats that one address may have, in quarters.
	share = 3
	// batch is how many victims are looked for at a time.
	batch = 64
	// maxRefused and refusedFor bound the refused connections that are still open.
	maxRefused = 512
	refusedFor = 250 * time.Millisecond
)

// Config is what a Pool is made of.
type Config struct {
	Max     int                        // seats, at least 1
	Trusted func(addr netip.Addr) bool // of proxies, which may have all seats; nil: of nobody
	Answer  []byte                     // the whole HTTP answer to who is refused
}

// Pool holds the seats. It is safe for concurrent use.
type Pool struct {
	max, most int // in all, and of one address
	trusted   func(netip.Addr) bool
	answer    []byte
	refused   chan late

	mu        sync.Mutex
	seats     map[*Seat]struct{} // guarded by mu
	byAddress map[netip.Addr]int // guarded by mu: seats of each
	victims   []*Seat            // guarded by mu: who goes next, best last; some may be gone or busy

	turnedAway, displaced atomic.Int64
}

// late is a refused connection and when it is closed.
type late struct {
	conn net.Conn
	at   time.Time
}

// Seat is a connection's place. Its methods are safe for concurrent use.
type Seat struct {
	pool  *Pool
	addr  netip.Addr
	since atomic.Int64 // when it began to wait, in Unix nanoseconds; 0: it does not
	close func()
	gone  sync.Once
}

// New returns a pool whose seats are free.
func New(c Config) *Pool {
	p := &Pool{
		max: c.Max, most: max(1, c.Max*share/4), trusted: c.Trusted, answer: c.Answer, refused: make(chan late, maxRefused),
		seats: map[*Seat]struct{}{}, byAddress: map[netip.Addr]int{},
	}
	if p.trusted == nil {
		p.trusted = func(netip.Addr) bool { return false }
	}
	return p
}

// Run closes refused connections until ctx ends, and those that are left then.
func (p *Pool) Run(ctx context.Context) {
	t := time.NewTimer(time.Hour)
	defer t.Stop()
	for {
		select {
		case l := <-p.refused:
			t.Reset(time.Until(l.at))
			select {
			case <-t.C:
			case <-ctx.Done():
			}
			_ = l.conn.Close() // of no interest any more
		case <-ctx.Done():
			for {
				select {
				case l := <-p.refused:
					_ = l.conn.Close()
				default:
					return
				}
			}
		}
	}
}

// Take gives a new connection a seat, in which it waits; vacate has to end the connection at
// once where it still waits. Nil: it was refused, answered, and is or will be closed.
func (p *Pool) Take(c net.Conn, vacate func()) *Seat {
	s := &Seat{pool: p, addr: addressOf(c), close: vacate}
	s.Wait()
	victim, ok := p.seat(s)
	if !ok {
		p.turnedAway.Add(1)
		p.turnAway(c)
		return nil
	}
	if victim != nil {
		p.displaced.Add(1)
		victim.close()
		victim.Leave()
	}
	return s
}

// seat finds a place for s, and who has to leave for it.
func (p *Pool) seat(s *Seat) (victim *Seat, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.byAddress[s.addr] >= p.most && !p.trusted(s.addr):
		victim = p.victimLocked(func(v *Seat) bool { return v.addr == s.addr })
	case len(p.seats) >= p.max:
		victim = p.victimLocked(func(*Seat) bool { return true })
	default:
		p.addLocked(s)
		return nil, true
	}
	if victim == nil {
		return nil, false
	}
	p.removeLocked(victim)
	p.addLocked(s)
	return victim, true
}

// victimLocked is who has to leave, among those for whom fits is true.
func (p *Pool) victimLocked(fits func(*Seat) bool) *Seat {
	for looked := false; ; looked = true {
		for n := len(p.victims); n > 0; n = len(p.victims) {
			v := p.victims[n-1]
			p.victims = p.victims[:n-1]
			if _, there := p.seats[v]; there && v.since.Load() != 0 && fits(v) {
				return v
			}
		}
		if looked {
			return nil
		}
		p.lookLocked(fits)
	}
}

// lookLocked finds the next victims.
func (p *Pool) lookLocked(fits func(*Seat) bool) {
	type waiting struct {
		seat  *Seat
		of    int // seats of its address
		since int64
	}
	all := make([]waiting, 0, len(p.seats))
	for s := range p.seats {
		if since := s.since.Load(); since != 0 && fits(s) {
			all = append(all, waiting{s, p.byAddress[s.addr], since})
		}
	}
	slices.SortFunc(all, func(a, b waiting) int { return cmp.Or(cmp.Compare(b.of, a.of), cmp.Compare(a.since, b.since)) })
	all = all[:min(len(all), batch)]
	for i := range all {
		// Taking seats from one address beyond what the next has would be for a new look.
		if all[i].of < all[0].of-i {
			break
		}
		p.victims = append(p.victims, all[i].seat)
	}
	slices.Reverse(p.victims)
}

func (p *Pool) addLocked(s *Seat) {
	p.seats[s] = struct{}{}
	p.byAddress[s.addr]++
}

func (p *Pool) removeLocked(s *Seat) {
	if _, there := p.seats[s]; !there {
		return
	}
	delete(p.seats, s)
	if p.byAddress[s.addr]--; p.byAddress[s.addr] == 0 {
		delete(p.byAddress, s.addr)
	}
}

// turnAway answers a connection, without waiting for it, and has it closed.
func (p *Pool) turnAway(c net.Conn) {
	now := time.Now()
	_ = c.SetDeadline(now.Add(refusedFor))
	_, err := c.Write(p.answer) // a new connection takes so much at once
	if t, ok := c.(*net.TCPConn); ok && err == nil {
		err = t.CloseWrite()
	}
	if err == nil {
		select {
		case p.refused <- late{c, now.Add(refusedFor)}:
			return
		default:
		}
	}
	_ = c.Close()
}

// Wait says that the connection waits for a request, and may be ended for another.
func (s *Seat) Wait() { s.since.Store(time.Now().UnixNano()) }

// Work says that a request is under way, or that the connection has become a stream.
func (s *Seat) Work() { s.since.Store(0) }

// Leave gives the seat back. Calls after the first do nothing.
func (s *Seat) Leave() {
	s.gone.Do(func() {
		s.pool.mu.Lock()
		defer s.pool.mu.Unlock()
		s.pool.removeLocked(s)
	})
}

// Stats is what a pool has and has done.
type Stats struct {
	Open, Max          int   // seats taken, and there
	Refused, Displaced int64 // connections since the start: answered 429, and ended for another
}

// Stats tells how the seats are used.
func (p *Pool) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Stats{Open: len(p.seats), Max: p.max, Refused: p.turnedAway.Load(), Displaced: p.displaced.Load()}
}

func addressOf(c net.Conn) netip.Addr {
	if t, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		return t.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}
