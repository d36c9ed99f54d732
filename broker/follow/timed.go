package follow

import (
	"net"
	"time"
)

// timed is a connection that is given up when nothing comes, or nothing leaves, for silence.
// Only that counts, and not how long a frame takes: a slow link is no dead one.
type timed struct{ net.Conn }

// Read reads what is there.
func (t timed) Read(b []byte) (int, error) {
	if err := t.SetReadDeadline(time.Now().Add(silence)); err != nil {
		return 0, err
	}
	return t.Conn.Read(b)
}

// Write writes all of b.
func (t timed) Write(b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		if err = t.SetWriteDeadline(time.Now().Add(silence)); err != nil {
			return n, err
		}
		var m int
		m, err = t.Conn.Write(b[n:min(len(b), n+bufferBytes)])
		n += m
	}
	return n, err
}
