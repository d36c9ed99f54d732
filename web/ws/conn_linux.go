package ws

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// unsentBytes is about how much the kernel takes for a socket beyond what is on its way to
// the client: without it, a client that reads nothing is given some megabytes, all of which
// have to be read and encoded. What is on its way, which a fast and far client needs, is not
// bounded by it (tcp(7), TCP_NOTSENT_LOWAT).
const unsentBytes = 128 << 10

// limitUnsent sets unsentBytes, as far as the kernel lets it be set.
func limitUnsent(c syscall.RawConn) {
	_ = c.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, unsentBytes)
	})
}

// writable tells whether less than half of unsentBytes is unsent; where it is not, the kernel
// tells the poller when it is.
func writable(fd uintptr) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
	n, err := unix.Poll(p, 0)
	return n != 0 || err != nil // faults are told by the write
}
