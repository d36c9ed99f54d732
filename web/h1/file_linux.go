package h1

import (
	"errors"
	"io"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxSend is how much one call sends at most: between calls the range tells whether it is
// still good.
const maxSend = 4 << 20

// sendRange sends a range by sendfile, which takes the pages from the cache.
func sendRange(raw syscall.RawConn, r FileRange) (int64, error) {
	return sendWith(raw, r, func(socket, fd uintptr, pos, n int64) (int64, error) {
		for {
			sent, err := unix.Sendfile(int(socket), int(fd), &pos, int(min(n, maxSend)))
			switch {
			case errors.Is(err, unix.EINTR):
				continue
			case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS): // the file system has no such thing
				return 0, errors.ErrUnsupported
			case err != nil:
				return 0, err
			}
			return int64(sent), nil
		}
	})
}

// sender is what sends of a file to a socket: at most n bytes, and as much as goes at once.
type sender func(socket, fd uintptr, pos, n int64) (int64, error)

// sendWith sends a whole range, waiting for room in the socket where there is none.
func sendWith(raw syscall.RawConn, r FileRange, send sender) (total int64, err error) {
	for {
		fd, pos, n, ok := r.File()
		if !ok {
			return total, errors.ErrUnsupported
		}
		if n == 0 {
			return total, nil
		}
		var sent int64
		var failed error
		if err := raw.Write(func(socket uintptr) bool {
			sent, failed = send(socket, fd, pos, n)
			return !errors.Is(failed, syscall.EAGAIN)
		}); err != nil {
			return total, err
		}
		if failed != nil {
			return total, failed
		}
		if sent == 0 { // the file has less than it should
			return total, io.ErrUnexpectedEOF
		}
		total += sent
		if err := r.Sent(sent); err != nil {
			return total, err
		}
	}
}
