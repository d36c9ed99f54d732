package h1

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// ranged is a part of a file that counts what is read of it.
type ranged struct {
	f      *os.File
	pos, n int64
	copied int64
	fail   error // of Sent
}

func (r *ranged) File() (uintptr, int64, int64, bool) { return r.f.Fd(), r.pos, r.n, true }

func (r *ranged) Sent(n int64) error {
	r.pos += n
	r.n -= n
	return r.fail
}

func (r *ranged) Read(p []byte) (int, error) {
	if r.n == 0 {
		return 0, io.EOF
	}
	n, err := r.f.ReadAt(p[:min(int64(len(p)), r.n)], r.pos)
	r.pos += int64(n)
	r.n -= int64(n)
	r.copied += int64(n)
	return n, err
}

const fileSize = 12 << 20

func newFile(t *testing.T) (*os.File, []byte) {
	t.Helper()
	content := bytes.Repeat([]byte("0123456789abcdef"), fileSize/16)
	name := filepath.Join(t.TempDir(), "f")
	require.NoError(t, os.WriteFile(name, content, 0o600))
	f, err := os.Open(name)
	require.NoError(t, err)
	t.Cleanup(func() { _ = f.Close() }) // it was only read
	return f, content
}

// sendFile answers with two ranges of a file, by ReadFrom.
func sendFile(w http.ResponseWriter, ranges ...*ranged) error {
	var total int64
	for _, r := range ranges {
		total += r.n
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.FormatInt(total, 10))
	for _, r := range ranges {
		if _, err := w.(io.ReaderFrom).ReadFrom(r); err != nil {
			return err
		}
	}
	return nil
}

// requests are a plain one and one whose connection is handed over to net/http.
var requests = map[string]string{
	"plain":       "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
	"handed over": "GET / HTTP/1.1\r\nHost: x\r\nConnection: keep-alive, x\r\n\r\n",
}

func TestAFileIsSentWithoutBeingCopied(t *testing.T) {
	t.Parallel()
	f, content := newFile(t)
	for name, raw := range requests {
		_, addr := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			first, second := &ranged{f: f, pos: 5, n: 1 << 20}, &ranged{f: f, pos: 2 << 20, n: 1000}
			if err := sendFile(w, first, second); err != nil {
				t.Error(name, err)
			}
			if copied := first.copied + second.copied; copied > 0 && (name == "plain" || copied > 512) { // net/http has a look at the beginning
				t.Error(name, copied)
			}
		}))
		c := dial(t, addr)
		for range 3 { // the connection goes on
			c.send(raw)
			got, err := c.read("GET")
			require.NoError(t, err, name)
			require.EqualValues(t, 1<<20+1000, got.length, name)
			require.Equal(t, string(content[5:5+1<<20])+string(content[2<<20:2<<20+1000]), got.body, name)
		}
	}
}

func TestAFileThatIsNotWhatItWasCutsTheAnswer(t *testing.T) {
	t.Parallel()
	f, _ := newFile(t)
	gone := errors.New("truncated")
	for name, raw := range requests {
		for what, r := range map[string]*ranged{
			"it is shorter":  {f: f, pos: fileSize - 1000, n: 2000},
			"it was changed": {f: f, n: fileSize, fail: gone},
		} {
			failed := make(chan error, 1)
			_, addr := start(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { failed <- sendFile(w, r) }))
			c := dial(t, addr)
			c.send(raw)
			got, err := c.read("GET")
			require.True(t, err != nil || got.cut, "%s, %s", name, what)
			require.Error(t, <-failed, "%s, %s", name, what)
		}
	}
}

func TestReadFromCopiesWhereAFileCannotBeSent(t *testing.T) {
	t.Parallel()
	f, content := newFile(t)
	_, addr := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		var src io.Reader = &ranged{f: f, n: 100_000} // its length is not declared
		if r.URL.Path == "/reader" {
			src = bytes.NewReader(content[:100_000])
		}
		if n, err := w.(io.ReaderFrom).ReadFrom(src); err != nil || n != 100_000 {
			t.Error(n, err)
		}
	}))
	c := dial(t, addr)
	for _, target := range []string{"/", "/reader"} {
		c.send("GET " + target + " HTTP/1.1\r\nHost: x\r\n\r\n")
		got, err := c.read("GET")
		require.NoError(t, err)
		require.Equal(t, string(content[:100_000]), got.body)
	}
	c.send("HEAD / HTTP/1.1\r\nHost: x\r\n\r\n")
	got, err := c.read("HEAD")
	require.NoError(t, err)
	require.Empty(t, got.body)
}

func TestMoreThanTheDeclaredLengthIsNotSent(t *testing.T) {
	t.Parallel()
	f, content := newFile(t)
	_, addr := start(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		w.Header().Set("Content-Length", "10")
		_, err := w.(io.ReaderFrom).ReadFrom(&ranged{f: f, n: 11})
		if !errors.Is(err, http.ErrContentLength) {
			t.Error(err)
		}
		if _, err := w.(io.ReaderFrom).ReadFrom(&ranged{f: f, n: 10}); err != nil {
			t.Error(err)
		}
	}))
	c := dial(t, addr)
	c.send(requests["plain"])
	got, err := c.read("GET")
	require.NoError(t, err)
	require.Equal(t, string(content[:10]), got.body)
}

func TestAClientThatTakesNothingRunsIntoTheDeadlineWhileAFileIsSent(t *testing.T) {
	t.Parallel()
	f, _ := newFile(t)
	failed := make(chan error, 1)
	_, addr := start(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if err := http.NewResponseController(w).SetWriteDeadline(past); err != nil {
			t.Error(err)
		}
		failed <- sendFile(w, &ranged{f: f, n: fileSize})
	}))
	c := dial(t, addr)
	c.send(requests["plain"])
	require.ErrorIs(t, <-failed, os.ErrDeadlineExceeded)
}
