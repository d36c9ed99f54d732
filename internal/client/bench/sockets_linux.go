package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// follow reads all sockets until the context ends: from one goroutine by epoll(7) into one
// buffer, since a goroutine and a buffer for each would take more of the processor than
// the server has for sending. TLS needs the goroutines.
func (s *sockets) follow(ctx context.Context) (err error) {
	if s.c.Base().Scheme != "http" {
		return s.followAlone(ctx)
	}
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return fmt.Errorf("epoll_create1: %w", err)
	}
	defer func() { err = errors.Join(err, unix.Close(ep)) }()
	for i, x := range s.all {
		if err := x.takeDescriptor(); err != nil {
			return err
		}
		e := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(i)}
		if err := unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, x.fd, &e); err != nil {
			return fmt.Errorf("epoll_ctl: %w", err)
		}
	}
	events, buf := make([]unix.EpollEvent, 256), make([]byte, socketBuffer)
	for ctx.Err() == nil {
		n, err := unix.EpollWait(ep, events, int(loopTick/time.Millisecond))
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("epoll_wait: %w", err)
		}
		for _, e := range events[:max(n, 0)] {
			s.ready(s.all[e.Fd], buf)
		}
		if n > 0 {
			s.wake()
		}
	}
	return nil
}

// ready reads what is there for a socket.
func (s *sockets) ready(x *socket, buf []byte) {
	n, err := unix.Read(x.fd, buf)
	switch {
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
		return
	case n == 0 && err == nil:
		err = io.EOF
	}
	s.took(x, buf[:max(n, 0)], err)
	if x.err != nil {
		x.closeDescriptor() // which takes it from epoll too
	}
}

// takeDescriptor gives the socket a descriptor that Go's own poller does not watch.
func (x *socket) takeDescriptor() error {
	raw, err := x.conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		return err
	}
	cerr := raw.Control(func(s uintptr) { x.fd, err = unix.FcntlInt(s, unix.F_DUPFD_CLOEXEC, 0) })
	if err = errors.Join(cerr, err); err != nil {
		return err
	}
	err = x.conn.Close() // the duplicate lives on
	x.conn = nil
	return err
}

func (x *socket) closeDescriptor() {
	if x.fd >= 0 {
		_ = unix.Close(x.fd) // nothing is to be said to the server any more
		x.fd = -1
	}
}

func (x *socket) writeDescriptor(b []byte) error {
	_, err := unix.Write(x.fd, b)
	return err
}
