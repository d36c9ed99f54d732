package h1

import (
	"context"
	"errors"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// watches looks after the clients of requests that wait, by an epoll of its own and in one
// goroutine: one for each of them would be a fifth of what a long poll takes.
//
// The epoll is itself waited for by the runtime's, so that no thread is held. An event is only
// a reason to look: one that comes late, for a descriptor that has another connection by then,
// does no harm. A connection that is closed on this side gives none, so whoever closes one
// whose handler runs ends the watch too.
type watches struct {
	mu   sync.Mutex
	over bool              // guarded by mu: there is no epoll, or no more
	file *os.File          // guarded by mu: the epoll; nil until the first watch
	raw  syscall.RawConn   // of file, set with it
	fd   int               // of file, set with it; good while not over
	of   map[int]*exchange // guarded by mu: by descriptor
}

// watchEvents are the events that are waited for, once each: more from the client, or its end.
const watchEvents = unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLONESHOT

// add begins to watch the client of x. False: it cannot be watched here.
func (w *watches) add(x *exchange, done chan struct{}) (added bool) {
	err := x.c.raw.Control(func(fd uintptr) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if !w.readyLocked(x.c.s) {
			return
		}
		x.mu.Lock()
		defer x.mu.Unlock()
		event := unix.EpollEvent{Events: watchEvents, Fd: int32(fd)}
		if x.over || unix.EpollCtl(w.fd, unix.EPOLL_CTL_ADD, int(fd), &event) != nil {
			return
		}
		w.of[int(fd)] = x
		x.watching, x.shared, x.fd, added = done, true, int(fd), true
	})
	return err == nil && added
}

// readyLocked tells whether there is an epoll, and makes it the first time.
func (w *watches) readyLocked(s *Server) bool {
	if w.over || w.file != nil {
		return !w.over
	}
	w.over = true
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return false
	}
	if unix.SetNonblock(fd, true) != nil { // else the runtime would not wait for it
		_ = unix.Close(fd) // nothing is in it
		return false
	}
	file := os.NewFile(uintptr(fd), "epoll")
	raw, err := file.SyscallConn()
	if err != nil || file.SetReadDeadline(time.Time{}) != nil { // the runtime does not wait for it
		_ = file.Close() // nothing is in it
		return false
	}
	w.file, w.raw, w.fd, w.of = file, raw, fd, map[int]*exchange{}
	if w.over = !s.group.Go("http/watches", w.serve); w.over {
		_ = file.Close() // nothing is in it
	}
	return !w.over
}

// serve handles events until ctx ends, or close.
func (w *watches) serve(ctx context.Context) {
	defer context.AfterFunc(ctx, w.close)()
	defer w.close()
	events := make([]unix.EpollEvent, 128)
	_ = w.raw.Read(func(fd uintptr) bool { // ends when the epoll is closed
		for {
			n, err := unix.EpollWait(int(fd), events, 0)
			switch {
			case errors.Is(err, unix.EINTR):
				continue
			case err != nil || n == 0:
				return err != nil
			}
			for i := range events[:n] {
				w.look(int(events[i].Fd))
			}
		}
	})
}

// look finds out what has happened to a connection: more from the client ends the watch, the
// client's end ends the context too.
func (w *watches) look(fd int) {
	w.mu.Lock()
	x := w.of[fd]
	w.mu.Unlock()
	if x == nil {
		return
	}
	var n int
	var err error
	closed := x.c.raw.Control(func(fd uintptr) { n, err = peek(fd) })
	if closed == nil && errors.Is(err, unix.EAGAIN) {
		w.again(x)
		return
	}
	if w.end(x) && (closed != nil || err != nil || n == 0) {
		x.cancel()
	}
}

// again waits for the next event where there was none to speak of.
func (w *watches) again(x *exchange) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.over && w.of[x.fd] == x {
		event := unix.EpollEvent{Events: watchEvents, Fd: int32(x.fd)}
		_ = unix.EpollCtl(w.fd, unix.EPOLL_CTL_MOD, x.fd, &event) // it is there unless the connection is closed
	}
}

// end ends the watch of x, and tells whether there was one.
func (w *watches) end(x *exchange) (was bool) {
	done, was := w.take(x)
	if was {
		close(done)
	}
	return was
}

// take gives the watch of x up, and returns what is to be closed when another ends, which the
// caller may begin.
func (w *watches) take(x *exchange) (done chan struct{}, was bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.takeLocked(x)
}

func (w *watches) takeLocked(x *exchange) (done chan struct{}, was bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.shared {
		return nil, false
	}
	x.shared = false
	if w.of[x.fd] == x { // else it was closed, and the descriptor is another connection's
		delete(w.of, x.fd)
		if !w.over {
			_ = unix.EpollCtl(w.fd, unix.EPOLL_CTL_DEL, x.fd, nil) // it is there unless the connection is closed
		}
	}
	return x.watching, true
}

// close ends all watches, and the contexts of what is watched.
func (w *watches) close() {
	w.mu.Lock()
	if !w.over && w.file != nil {
		_ = w.file.Close() // nothing is waited for any more
	}
	w.over = true
	var all []*exchange
	for _, x := range w.of {
		all = append(all, x)
	}
	w.mu.Unlock()
	for _, x := range all {
		if w.end(x) {
			x.cancel()
		}
	}
}
