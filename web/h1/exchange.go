package h1

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// watchAfter is how long a handler may wait for Done before the client is watched: most
// requests end sooner, and a watch costs a goroutine and two system calls.
const watchAfter = 50 * time.Millisecond

// exchange is one request with its answer. It is made anew for each, so that what a
// handler keeps by mistake never meets another request.
type exchange struct {
	c      *conn
	req    http.Request
	url    url.URL          // of the request
	values [keptHere]string // of the request's header, the first ones

	asked  atomic.Bool // somebody waits for the context's end
	polled atomic.Bool // somebody has looked whether it has ended

	// The locks are taken in the order writeMu, readMu, mu. The first two are held during
	// I/O: they keep what a handler left running from the next request.
	writeMu sync.Mutex
	answer  answer       // guarded by writeMu
	readMu  sync.Mutex   // held while the body is read
	reading atomic.Int32 // reads by the handler, or by what it left running, that are under way

	mu       sync.Mutex
	left     int64              // guarded by mu, changed under readMu too: bytes of the body not read yet
	bodyErr  error              // guarded by mu: how reading the body failed
	closed   bool               // guarded by mu: the handler has closed the body
	over     bool               // guarded by mu: the handler has returned
	gone     bool               // guarded by mu: the context has ended
	ctx      context.Context    // guarded by mu: made when somebody asks for it, for most do not
	stop     context.CancelFunc // guarded by mu: ends ctx
	timer    *time.Timer        // guarded by mu: starts the watch
	watching chan struct{}      // guarded by mu: closed when the watch has ended; nil without one
	parked   *parked            // guarded by mu: nil unless the handler has parked
	asleep   bool               // guarded by mu: the request has no goroutine
	woken    bool               // guarded by mu: it was woken while it had one
	shared   bool               // guarded by mu, changed under watches.mu: the watch is one of the server's watches
	fd       int                // guarded by mu: of the connection, where shared
}

// parse makes the exchange of a head; not ok: the request is not plain.
func (c *conn) parse(raw []byte) (*exchange, bool) {
	h, ok := c.last.parse(raw)
	if !ok {
		return nil, false
	}
	return c.exchange(h), true
}

func (c *conn) exchange(h head) *exchange {
	c.later, c.blank = true, 0
	if h.method == http.MethodPost {
		c.blank = maxBlank
	}
	x := &exchange{c: c, left: h.length}
	x.answer.init(x, h.method == http.MethodHead)
	var body io.ReadCloser = http.NoBody
	if h.length > 0 {
		body = (*requestBody)(x)
	}
	x.url = h.url
	x.req = *fresh.WithContext((*requestContext)(x)) // nothing else gives a request a context
	r := &x.req
	r.Method, r.URL, r.Host, r.RequestURI, r.RemoteAddr = h.method, &x.url, h.host, h.target, c.remote
	r.Header, r.Body, r.ContentLength = h.header(x.values[:0]), body, h.length
	return x
}

// keptHere is for how many fields of a header the exchange has room.
const keptHere = 10

// fresh is what all requests have in common.
var fresh = http.Request{Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}

// run calls the handler, again where it has parked, and sends the answer.
func (x *exchange) run() (out fate) {
	returned := false
	defer func() {
		if out != sleeps {
			x.leave(returned)
		}
	}()
	for {
		if !x.handle() {
			return ends
		}
		if !x.parks() {
			break
		}
		if x.sleep() {
			return sleeps
		}
		x.rise()
	}
	returned = true
	x.end()
	last, err := x.finish()
	if err != nil {
		return ends
	}
	if last {
		x.c.linger()
		return ends
	}
	return next
}

// end ends what the handler has of the request: body and context.
func (x *exchange) end() {
	x.mu.Lock()
	x.over = true
	x.mu.Unlock()
	x.stopWatch()
	x.cancel()
}

// finish completes the answer. last: the connection ends with it.
func (x *exchange) finish() (last bool, err error) {
	x.writeMu.Lock()
	defer x.writeMu.Unlock()
	x.answer.finish()
	x.answer.last = x.abortRead() || x.answer.last
	if !x.answer.last && x.answer.err == nil {
		x.answer.drain() // with full duplex the body may have been left until now
	}
	return x.answer.last, x.answer.err
}

// abortRead ends a read of the body that the handler left running.
func (x *exchange) abortRead() (aborted bool) {
	if x.reading.Load() == 0 {
		return false
	}
	_ = x.c.net.SetReadDeadline(past) // a closed connection ends the read too
	x.readMu.Lock()
	defer x.readMu.Unlock()
	x.c.deadline = past
	return true
}

// past is a deadline that ends what waits.
var past = time.Unix(1, 0)

// leave frees what the exchange holds. If the handler panicked or ended its goroutine the
// connection is cut first, so that nothing that it left running waits for the client.
func (x *exchange) leave(returned bool) {
	if !returned {
		x.c.closeIf(active)
		x.end()
		_ = x.abortRead() // the connection is closed in either case
	}
	x.writeMu.Lock()
	x.answer.free()
	x.writeMu.Unlock()
	x.c.restore()
}

// handle calls the handler; a panic cuts the connection.
func (x *exchange) handle() (ok bool) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		ok = false
		if err, isErr := p.(error); !isErr || !errors.Is(err, http.ErrAbortHandler) {
			x.c.s.logger.Error("a handler panicked", "method", x.req.Method, "path", x.req.URL.Path, "panic", p, "stack", string(debug.Stack()))
		}
	}()
	x.c.s.handler.ServeHTTP(x, &x.req)
	return true
}

// requestBody is an exchange as its request's body.
type requestBody exchange

func (b *requestBody) Read(p []byte) (int, error) { return (*exchange)(b).read(p) }

// Close ends the reading; what is left is dealt with before the answer.
func (b *requestBody) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	return nil
}

// read is counted before it looks whether it may, so that either it sees the handler's end or
// that sees it: once the handler has returned nobody waits here for the lock, under which the
// rest of the body may be waited for.
func (x *exchange) read(p []byte) (int, error) {
	x.reading.Add(1)
	defer x.reading.Add(-1)
	if x.shut() {
		return 0, http.ErrBodyReadAfterClose
	}
	x.readMu.Lock()
	defer x.readMu.Unlock()
	if x.shut() {
		return 0, http.ErrBodyReadAfterClose
	}
	return x.readMuLocked(p, true)
}

// shut tells whether the handler may not read any more.
func (x *exchange) shut() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.over || x.closed
}

// rest is an exchange as the part of the body that its handler left.
type rest exchange

func (r *rest) Read(p []byte) (int, error) {
	x := (*exchange)(r)
	x.readMu.Lock()
	defer x.readMu.Unlock()
	return x.readMuLocked(p, false)
}

// readMuLocked reads of the body. Bytes must keep coming: a pause of the idle timeout ends
// the body with an error.
func (x *exchange) readMuLocked(p []byte, handler bool) (int, error) {
	left, err := x.unread()
	if err != nil {
		return 0, err
	}
	if left == 0 {
		return 0, io.EOF
	}
	if len(p) == 0 {
		return 0, nil
	}
	p = p[:min(int64(len(p)), left)]
	n := x.c.takeBody(p)
	if n == 0 {
		if err = x.c.extend(x.c.s.idleTimeout); err == nil {
			// Asked again behind the move of the deadline, which may have undone that of
			// abortRead.
			if handler && x.shut() {
				return 0, http.ErrBodyReadAfterClose
			}
			n, err = x.c.readBody(p)
		}
	}
	return n, x.took(n, err)
}

// took notes how a read of the body ended. After a failure the client is gone, or as good
// as.
func (x *exchange) took(n int, err error) error {
	x.mu.Lock()
	x.left -= int64(n)
	if x.left == 0 {
		err = nil
		if x.asked.Load() {
			x.armLocked()
		}
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		x.bodyErr = err
	}
	x.mu.Unlock()
	if err != nil {
		x.cancel()
	}
	return err
}

// unread is how much of the body is left; the error says why it cannot be read.
func (x *exchange) unread() (left int64, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.left, x.bodyErr
}

// requestContext is an exchange as its request's context.
type requestContext exchange

// Deadline of the context: none.
func (r *requestContext) Deadline() (time.Time, bool) { return time.Time{}, false }

// Done is closed when the handler has returned or the client is gone.
func (r *requestContext) Done() <-chan struct{} {
	x := (*exchange)(r)
	ctx := x.context()
	x.ask()
	return ctx.Done()
}

// Err is nil until then. Who looks a second time is taken to wait for the end.
func (r *requestContext) Err() error {
	x := (*exchange)(r)
	if x.polled.Swap(true) {
		x.ask()
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.gone {
		return context.Canceled
	}
	return nil
}

// Value knows what net/http's requests know, and what Remember has the connection keep.
func (r *requestContext) Value(key any) any {
	switch key {
	case r.c.s.memoryKey:
		if r.c.memory != nil {
			return r.c.memory
		}
	case r.c.s.parkingKey:
		if key != nil {
			return (*Parking)(r)
		}
	case http.ServerContextKey:
		return r.c.s.http
	case http.LocalAddrContextKey:
		return r.c.local
	}
	return (*exchange)(r).context().Value(key)
}

// context is the cancellable context behind the request's.
func (x *exchange) context() context.Context {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.ctx == nil {
		x.ctx, x.stop = context.WithCancel(context.Background())
		if x.gone {
			x.stop()
		}
	}
	return x.ctx
}

// cancel ends the request's context.
func (x *exchange) cancel() {
	x.mu.Lock()
	x.gone = true
	stop, parked := x.stop, x.parked != nil
	x.mu.Unlock()
	if stop != nil {
		stop() // outside the lock: it calls what waits for the end
	}
	if parked {
		(*Parking)(x).Wake()
	}
}

// armLocked has the client watched if the request lasts. While the body is being read
// nobody needs to: reading notices.
func (x *exchange) armLocked() {
	if x.left > 0 || x.over || x.timer != nil {
		return
	}
	x.timer = time.AfterFunc(watchAfter, x.watch)
}

// ask notes that somebody waits for the context's end.
func (x *exchange) ask() {
	if x.asked.Swap(true) {
		return
	}
	x.mu.Lock()
	x.armLocked()
	x.mu.Unlock()
}

// watch waits until the client sends more, which ends the watch, or goes away, which ends
// the context. A deadline for reading that the handler had set ends with it (as in
// net/http, whose own watch takes it away too); one that it sets now ends the context.
func (x *exchange) watch() {
	done := make(chan struct{})
	if x.c.s.watches.add(x, done) {
		return
	}
	x.mu.Lock()
	if x.over {
		x.mu.Unlock()
		return
	}
	x.watching = done
	_ = x.c.net.SetReadDeadline(time.Time{}) // on a closed connection the read fails too
	x.mu.Unlock()
	x.follow(done)
}

// follow is watch in the goroutine of its caller, which is held meanwhile.
func (x *exchange) follow(done chan struct{}) {
	defer close(done)
	gone := false
	err := x.c.raw.Read(func(fd uintptr) bool {
		n, err := peek(fd)
		if errors.Is(err, unix.EAGAIN) {
			return false
		}
		gone = err != nil || n == 0
		return true
	})
	x.mu.Lock()
	over := x.over
	x.mu.Unlock()
	if gone || err != nil && !over {
		x.cancel()
	}
}

// stopWatch ends the watch once the handler is over; the connection can be read again then.
func (x *exchange) stopWatch() {
	x.mu.Lock()
	timer, watching := x.timer, x.watching
	x.mu.Unlock()
	if timer == nil || watching == nil && timer.Stop() || x.c.s.watches.end(x) {
		return
	}
	x.mu.Lock()
	watching = x.watching
	x.mu.Unlock()
	if watching == nil {
		return // it will see that the handler has returned
	}
	_ = x.c.net.SetReadDeadline(past) // a closed connection wakes the watch too
	<-watching
	_ = x.c.net.SetReadDeadline(time.Time{}) // the next read fails if this does
	x.c.deadline = time.Time{}
}

// peek looks whether a byte can be read, without taking it.
func peek(fd uintptr) (int, error) {
	var b [1]byte
	for {
		n, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}
