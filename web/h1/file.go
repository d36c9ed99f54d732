package h1

import (
	"errors"
	"io"
	"net/http"
)

// FileRange is a reader of a part of a file that can be sent without being copied through
// the process, by io.ReaderFrom on a ResponseWriter of this package or of net/http's on a
// connection that was handed over.
type FileRange interface {
	io.Reader
	// File is where the rest is; not ok: it has to be read. The descriptor stays open until
	// the writer is done with the reader. The file's own position is not used.
	File() (fd uintptr, pos, n int64, ok bool)
	// Sent says that n bytes of it were sent; the error ends the sending, and the answer
	// before its declared length, unless these were the last bytes.
	Sent(n int64) error
}

// copySize is how much of what is not a file is copied at once.
const copySize = 64 << 10

// plain hides ReadFrom from io.Copy.
type plain struct{ io.Writer }

// ReadFrom sends what src has (io.ReaderFrom): a FileRange from its file, where the answer has
// a declared length, so that nothing stands between its bytes; anything else by copying.
func (x *exchange) ReadFrom(src io.Reader) (int64, error) {
	r, ok := src.(FileRange)
	if !ok {
		return io.CopyBuffer(plain{x}, src, make([]byte, copySize))
	}
	n, err := x.sendFile(r)
	if errors.Is(err, errors.ErrUnsupported) {
		var more int64
		more, err = io.CopyBuffer(plain{x}, src, make([]byte, copySize))
		n += more
	}
	return n, err
}

// sendFile sends a range from its file. ErrUnsupported: that cannot be, and what is left is
// to be copied.
func (x *exchange) sendFile(r FileRange) (int64, error) {
	x.writeMu.Lock()
	defer x.writeMu.Unlock()
	a := &x.answer
	if a.done {
		return 0, errOver
	}
	if a.parks {
		return 0, errors.ErrUnsupported // Write lets it go nowhere
	}
	if a.status == 0 {
		a.writeHeader(http.StatusOK)
	}
	_, _, n, ok := r.File()
	if !ok || a.head || a.declared < 0 || !a.haveType || !a.bodyAllowed() {
		return 0, errors.ErrUnsupported
	}
	if a.written+n > a.declared {
		return 0, http.ErrContentLength
	}
	a.unhold(nil)
	a.flush()
	if a.err != nil {
		return 0, a.err
	}
	sent, err := sendRange(x.c.raw, r)
	a.written += sent
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		a.sent(err)
	}
	return sent, err
}

// ReadFrom lets net/http send files without copying them through the process.
func (r *replayed) ReadFrom(src io.Reader) (int64, error) {
	f, ok := src.(FileRange)
	if !ok {
		return r.tcp.ReadFrom(src)
	}
	raw, err := r.tcp.SyscallConn()
	if err != nil {
		return 0, err
	}
	n, err := sendRange(raw, f)
	if errors.Is(err, errors.ErrUnsupported) {
		var more int64
		more, err = io.CopyBuffer(plain{r.tcp}, src, make([]byte, copySize))
		n += more
	}
	return n, err
}

var _ io.ReaderFrom = (*exchange)(nil)
