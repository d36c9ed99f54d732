package conns

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// from is a connection of an address; what is written to it is kept.
type from struct {
	net.Conn
	addr   string
	mu     sync.Mutex
	got    []byte // guarded by mu
	closed bool   // guarded by mu
}

func (f *from) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(f.addr), 9))
}
func (f *from) SetDeadline(time.Time) error { return nil }
func (f *from) Write(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.got = append(f.got, b...)
	return len(b), nil
}

func (f *from) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	return nil
}

func (f *from) state() (string, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return string(f.got), f.closed
}

type client struct {
	*from
	seat *Seat
	left bool
}

func take(p *Pool, addr string) *client {
	c := &client{from: &from{addr: addr}}
	c.seat = p.Take(c.from, func() { c.left = true })
	return c
}

func TestANewcomerTakesThePlaceOfTheAddressThatHasMostAndWaitsLongest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Max: 8})
		var flood []*client
		for range 5 {
			flood = append(flood, take(p, "10.0.0.1"))
			<-time.After(time.Millisecond)
		}
		good := take(p, "10.0.0.2")
		flood[0].seat.Work()
		flood[1].seat.Work()
		<-time.After(time.Millisecond)
		flood[1].seat.Wait() // the youngest of those who wait
		others := []*client{take(p, "10.0.0.3"), take(p, "10.0.0.4")}
		require.Equal(t, 8, p.Stats().Open)
		for i, next := range []int{2, 3, 4} {
			require.NotNil(t, take(p, []string{"10.0.0.5", "10.0.0.6", "10.0.0.7"}[i]).seat)
			require.True(t, flood[next].left, next)
			require.Equal(t, 8, p.Stats().Open)
		}
		require.False(t, flood[0].left, "a request is under way")
		require.False(t, flood[1].left)
		require.False(t, good.left)
		require.False(t, others[0].left || others[1].left)
		require.Equal(t, Stats{Open: 8, Max: 8, Displaced: 3}, p.Stats())
	})
}

func TestWhereNobodyWaitsTheNewcomerIsAnsweredAndClosedAMomentLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Max: 2, Trusted: func(netip.Addr) bool { return true }, Answer: []byte("full")})
		ctx, cancel := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { p.Run(ctx) })
		for range 2 {
			take(p, "10.0.0.1").seat.Work()
		}
		late := take(p, "10.0.0.2")
		require.Nil(t, late.seat)
		text, closed := late.state()
		require.Equal(t, "full", text)
		require.False(t, closed)
		<-time.After(refusedFor + time.Millisecond)
		synctest.Wait()
		_, closed = late.state()
		require.True(t, closed)
		last := take(p, "10.0.0.2")
		cancel()
		run.Wait()
		_, closed = last.state()
		require.True(t, closed, "none stays open beyond the end")
		require.Equal(t, Stats{Open: 2, Max: 2, Refused: 2}, p.Stats())
	})
}

func TestAnAddressHasThreeQuartersAtMostUnlessItIsTrusted(t *testing.T) {
	t.Parallel()
	p := New(Config{Max: 8, Trusted: func(a netip.Addr) bool { return a == netip.MustParseAddr("10.0.0.9") }})
	var own []*client
	for range 6 {
		own = append(own, take(p, "10.0.0.1"))
		own[len(own)-1].seat.Work()
	}
	require.Nil(t, take(p, "10.0.0.1").seat)
	own[3].seat.Wait()
	require.NotNil(t, take(p, "::ffff:10.0.0.1").seat, "in the place of its own")
	require.True(t, own[3].left)
	for range 2 {
		require.NotNil(t, take(p, "10.0.0.9").seat)
	}
	for _, c := range own {
		c.seat.Leave()
		c.seat.Leave() // a second one does nothing
	}
	require.Equal(t, 3, p.Stats().Open)
	for range 5 {
		require.NotNil(t, take(p, "10.0.0.9").seat)
	}
	require.Equal(t, 8, p.Stats().Open)
}

func TestSeatsAreCountedRightWhileManyComeAndGo(t *testing.T) {
	t.Parallel()
	p := New(Config{Max: 16})
	var clients sync.WaitGroup
	for i := range 8 {
		clients.Go(func() {
			addr := []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"}[i%3]
			for j := range 2000 {
				s := p.Take(&from{addr: addr}, func() {})
				if s == nil {
					continue
				}
				if j%5 != 0 { // else it is left to be displaced
					s.Work()
					s.Leave()
				}
				if open := p.Stats().Open; open > 16 {
					panic(open)
				}
			}
		})
	}
	clients.Wait()
	require.LessOrEqual(t, p.Stats().Open, 16)
	total := 0
	p.mu.Lock()
	for _, n := range p.byAddress {
		total += n
	}
	require.Equal(t, len(p.seats), total)
	p.mu.Unlock()
	close(p.refused)
	for l := range p.refused {
		require.NoError(t, l.conn.Close())
	}
}
