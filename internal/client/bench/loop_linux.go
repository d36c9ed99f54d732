package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// loopTick bounds how long a cut connection's timeout and an interrupt go unnoticed.
const loopTick = 50 * time.Millisecond

var errMore = errors.New("more of the answer is to come")

// received is what came in of an answer. It reads as errMore at its end, and as io.EOF
// once the server has closed.
type received struct {
	b     []byte
	taken int
	eof   bool
}

func (s *received) Read(p []byte) (int, error) {
	if s.taken < len(s.b) {
		n := copy(p, s.b[s.taken:])
		s.taken += n
		return n, nil
	}
	if s.eof {
		return 0, io.EOF
	}
	return 0, errMore
}

// looped is a connection of a loop.
type looped struct {
	conn
	fd      int // −1: not connected
	in      received
	out     []byte // what is still to be written
	started time.Time
	next    int   // index of the request's body
	left    int64 // requests still to send, the one in flight included
	errors  int   // requests that failed
	renewed bool  // the token was renewed for this request
	waits   bool  // for room to write
}

// loop drives all connections of a measurement from one goroutine by epoll(7), as
// load generators do: a goroutine for each connection costs about as much processor time
// again, which a server on the same cores lacks.
type loop struct {
	ep     int
	conns  []looped
	job    job
	tally  tally
	active int
}

// produceLoop does the job from one goroutine. Not ok: this machine or this target needs
// another way.
func produceLoop(ctx context.Context, t *target, j job) (_ *tally, took time.Duration, ok bool, err error) {
	if t.base.Scheme != "http" {
		return nil, 0, false, nil
	}
	l := &loop{conns: make([]looped, j.o.Connections), job: j}
	if l.ep, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, 0, true, fmt.Errorf("epoll_create1: %w", err)
	}
	defer func() { err = errors.Join(err, l.close()) }()
	token, err := t.tokens.Token(ctx)
	if err != nil {
		return nil, 0, true, err
	}
	for i := range l.conns {
		c := &l.conns[i]
		c.conn, c.fd = conn{t: t, token: token}, -1
		c.next, c.left = i, j.share(i)
	}
	start := time.Now()
	for i := range l.conns {
		if l.conns[i].left > 0 {
			l.active++
			l.send(ctx, i)
		}
	}
	err = l.run(ctx)
	return &l.tally, time.Since(start), true, err
}

func (l *loop) close() error {
	for i := range l.conns {
		l.conns[i].drop()
	}
	return unix.Close(l.ep)
}

// run answers what epoll tells until every connection has done its part.
func (l *loop) run(ctx context.Context) error {
	events := make([]unix.EpollEvent, len(l.conns))
	checked := time.Now()
	for l.active > 0 && ctx.Err() == nil {
		n, err := unix.EpollWait(l.ep, events, int(loopTick/time.Millisecond))
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("epoll_wait: %w", err)
		}
		for _, e := range events[:max(n, 0)] {
			l.ready(ctx, int(e.Fd), e.Events)
		}
		if now := time.Now(); now.Sub(checked) > loopTick {
			checked = now
			l.expire(ctx, now)
		}
	}
	return nil
}

// expire fails requests that wait too long.
func (l *loop) expire(ctx context.Context, now time.Time) {
	for i := range l.conns {
		if c := &l.conns[i]; c.fd >= 0 && c.left > 0 && now.Sub(c.started) > c.t.callTimeout() {
			l.failed(ctx, i, errTimeout)
		}
	}
}

// connect gives connection i a descriptor of its own that only the loop's epoll watches.
func (l *loop) connect(ctx context.Context, i int) error {
	c := &l.conns[i]
	d := net.Dialer{Timeout: dialTimeout}
	nc, err := d.DialContext(ctx, "tcp", c.host())
	if err != nil {
		return err
	}
	defer func() { _ = nc.Close() }() // its duplicate lives on
	raw, err := nc.(*net.TCPConn).SyscallConn()
	if err != nil {
		return err
	}
	fd := -1
	cerr := raw.Control(func(s uintptr) { fd, err = unix.FcntlInt(s, unix.F_DUPFD_CLOEXEC, 0) })
	if err = errors.Join(cerr, err); err != nil {
		return err
	}
	c.fd = fd
	c.in.eof, c.waits = false, false
	return l.watch(i, unix.EPOLL_CTL_ADD)
}

// watch tells epoll what connection i waits for.
func (l *loop) watch(i, op int) error {
	c := &l.conns[i]
	e := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLRDHUP, Fd: int32(i)}
	if c.waits {
		e.Events |= unix.EPOLLOUT
	}
	return unix.EpollCtl(l.ep, op, c.fd, &e)
}

// drop closes the connection.
func (c *looped) drop() {
	if c.fd >= 0 {
		_ = unix.Close(c.fd) // nothing is to be said to the server any more
		c.fd = -1
	}
	c.out, c.in.b = nil, c.in.b[:0]
}

// send begins the next request of connection i.
func (l *loop) send(ctx context.Context, i int) {
	c := &l.conns[i]
	c.renewed = false
	c.started = time.Now()
	l.transmit(ctx, i)
}

// transmit writes the request of connection i from its beginning.
func (l *loop) transmit(ctx context.Context, i int) {
	c := &l.conns[i]
	if c.fd < 0 {
		if err := l.connect(ctx, i); err != nil {
			l.failed(ctx, i, err)
			return
		}
	}
	body := l.job.bodies[c.next%len(l.job.bodies)]
	c.buildHead(l.job.path, body)
	c.head = append(c.head, body...)
	c.out, c.in.b = c.head, c.in.b[:0]
	l.flush(ctx, i)
}

// flush writes what goes; the rest waits for room.
func (l *loop) flush(ctx context.Context, i int) {
	c := &l.conns[i]
	for len(c.out) > 0 {
		n, err := unix.Write(c.fd, c.out)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if errors.Is(err, unix.EAGAIN) {
			break
		}
		if err != nil {
			l.failed(ctx, i, err)
			return
		}
		c.out = c.out[n:]
	}
	if waits := len(c.out) > 0; waits != c.waits {
		c.waits = waits
		if err := l.watch(i, unix.EPOLL_CTL_MOD); err != nil {
			l.failed(ctx, i, err)
		}
	}
}

func (l *loop) ready(ctx context.Context, i int, events uint32) {
	c := &l.conns[i]
	if c.fd < 0 {
		return // it was dropped by an event before this one
	}
	if events&unix.EPOLLOUT != 0 {
		l.flush(ctx, i)
	}
	if c.fd < 0 || events&^unix.EPOLLOUT == 0 {
		return
	}
	if err := c.receive(); err != nil {
		l.failed(ctx, i, err)
		return
	}
	l.answered(ctx, i)
}

// receive reads what is there, at least one byte or the end.
func (c *looped) receive() error {
	if cap(c.in.b)-len(c.in.b) < 1024 {
		c.in.b = append(make([]byte, 0, 2*cap(c.in.b)+4096), c.in.b...)
	}
	n, err := unix.Read(c.fd, c.in.b[len(c.in.b):cap(c.in.b)])
	switch {
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
		return nil
	case err != nil:
		return err
	case n == 0:
		c.in.eof = true
	}
	c.in.b = c.in.b[:len(c.in.b)+n]
	return nil
}

// answered takes the answer of connection i, if it is whole.
func (l *loop) answered(ctx context.Context, i int) {
	c := &l.conns[i]
	c.in.taken = 0
	if c.r == nil {
		c.r = bufio.NewReaderSize(&c.in, readBuffer)
	}
	c.r.Reset(&c.in)
	status, last, err := c.readAnswer()
	switch {
	case errors.Is(err, errMore):
		return
	case err != nil:
		l.failed(ctx, i, err)
		return
	}
	c.in.b = c.in.b[:0]
	if last || c.in.eof || len(c.out) > 0 {
		c.drop() // also when the server answered before it had the whole request
	}
	if status == 401 && !c.renewed && l.renew(ctx, i) {
		return
	}
	l.done(ctx, i, statusError(status, c.body.Bytes()))
}

// renew sends the request again with a new token.
func (l *loop) renew(ctx context.Context, i int) bool {
	c := &l.conns[i]
	c.renewed = true
	token, err := c.t.tokens.Renew(ctx, c.token)
	if err != nil || token == "" {
		return false
	}
	c.token = token
	l.transmit(ctx, i)
	return true
}

// failed counts a request that got no answer.
func (l *loop) failed(ctx context.Context, i int, err error) {
	l.conns[i].drop()
	l.done(ctx, i, err)
}

// done counts a request and begins the next one.
func (l *loop) done(ctx context.Context, i int, err error) {
	c := &l.conns[i]
	if ctx.Err() != nil {
		return
	}
	c.left--
	c.next++
	l.tally.count(err, time.Since(c.started), &l.job)
	if err != nil {
		c.errors++
	}
	if c.left == 0 || c.errors >= maxErrors {
		c.left = 0
		c.drop()
		l.active--
		return
	}
	l.send(ctx, i)
}
