package rest

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"tidewire/api/route"
	"tidewire/broker"
)

// fetchBatches answers a fetch with stored batches, sent from the log's files.
func (a *API) fetchBatches(c *route.Call, req *broker.FetchRequest) error {
	got, err := a.broker.FetchBatches(c.Request.Context(), c.Caller(), req)
	if err != nil {
		return err
	}
	defer got.Close()
	h := c.Writer.Header()
	h["Content-Type"] = []string{batchMedia}
	h["Content-Length"] = []string{strconv.FormatInt(got.Size, 10)}
	h["Cache-Control"] = route.NoStore
	for name, v := range map[string]int64{
		"Tidewire-Next-Offset": int64(got.NextOffset), "Tidewire-High-Watermark": int64(got.HighWatermark),
		"Tidewire-Last-Stable-Offset": int64(got.LastStable), "Tidewire-Log-Start-Offset": int64(got.LogStart),
	} {
		h[name] = []string{strconv.FormatInt(v, 10)}
	}
	c.Writer.WriteHeader(http.StatusOK)
	c.Writer.WriteHeaderNow()
	if c.Request.Method == http.MethodHead {
		return nil
	}
	to := fileWriter(c.Writer)
	for _, s := range got.Sections() {
		c.Stall()
		if _, err := to.ReadFrom(&sending{Section: s, a: a, c: c, of: got, checked: a.now()}); err != nil {
			// The length was declared: the connection ends before it, and the client sees
			// that the answer is not whole.
			return nil
		}
	}
	c.Taken()
	return nil
}

// fileWriter is the writer beneath gin's, which can send files.
func fileWriter(w http.ResponseWriter) io.ReaderFrom {
	for {
		if rf, ok := w.(io.ReaderFrom); ok {
			return rf
		}
		u, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return copier{w}
		}
		w = u.Unwrap()
	}
}

// copier copies where the writer cannot send files.
type copier struct{ http.ResponseWriter }

func (c copier) ReadFrom(src io.Reader) (int64, error) {
	return io.Copy(struct{ io.Writer }{c.ResponseWriter}, src)
}

// sending is a section on its way (web/h1's FileRange): each step gives the client time for
// the next, and looks from time to time whether it may go on.
type sending struct {
	*broker.Section
	a       *API
	c       *route.Call
	of      *broker.Batches
	checked time.Time
}

var errMayNot = errors.New("the client may not read on")

// Sent implements the file range.
func (s *sending) Sent(n int64) error {
	if err := s.Section.Sent(n); err != nil {
		return err
	}
	return s.step()
}

// Read implements io.Reader.
func (s *sending) Read(p []byte) (int, error) {
	n, err := s.Section.Read(p)
	if err == nil {
		err = s.step()
	}
	return n, err
}

func (s *sending) step() error {
	now := s.a.now()
	if now.Sub(s.checked).Abs() < route.RecheckEvery {
		return nil
	}
	s.checked = now
	s.c.Stall()
	if err := s.of.StillAllowed(s.c.Request.Context()); err != nil {
		return errors.Join(errMayNot, err)
	}
	return nil
}
