package rest

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"tidewire/api/problem"
	"tidewire/api/recordjson"
	"tidewire/api/route"
	"tidewire/broker"
	"tidewire/broker/browse"
	"tidewire/internal/model"
)

// Times of a stream.
const (
	progressEvery = time.Second      // where something was looked at
	quietEvery    = 15 * time.Second // a sign of life where there was nothing else
)

// lineForm writes a stream in one of its media types. Each method appends to b.
type lineForm interface {
	begin(b []byte) []byte
	record(b []byte, it browse.Item, after func() *browse.Cursor) []byte
	progress(b []byte, at *browse.Cursor, f *fit, s browse.Scanned) []byte
	quiet(b []byte, at *browse.Cursor, f *fit, s browse.Scanned) []byte
	// end and problem are the last of a stream; nil: the form cannot say it, and the
	// connection has to be cut so that the client does not take what it has for all.
	end(b []byte, reason string, at *browse.Cursor, f *fit) []byte
	problem(b []byte, p *problem.Problem) []byte
}

// browseStream streams records until the read ends. Nothing is queued for the client: what
// is written next is read from the logs once it has taken what was before.
func (a *API) browseStream(c *route.Call, q *browsing, x *broker.Browse) error {
	s := newBrowseStream(a, c, q, x)
	h := c.Writer.Header()
	h["Cache-Control"] = route.NoStore
	h.Set("X-Accel-Buffering", "no") // proxies in nginx's manner pass events on as they come
	h.Set("Content-Type", q.media)
	if q.media == mediaCSV {
		h.Set("Content-Type", mediaCSV+"; charset=utf-8; header=present")
	}
	c.Writer.WriteHeader(http.StatusOK)
	if c.Request.Method == http.MethodHead {
		return nil
	}
	s.buf = s.form.begin(s.buf)
	if q.req.Follow {
		s.buf = s.form.progress(s.buf, x.Here(), &s.fit, x.Scanned())
	}
	defer s.out.Release()
	s.run()
	return nil
}

// browsingStream is one stream under way.
type browsingStream struct {
	a    *API
	c    *route.Call
	x    *broker.Browse
	ctx  context.Context
	out  *route.Paced
	form lineForm
	fit  fit
	buf  []byte

	follow, count bool
	checked, told time.Time // of the last check, and of the last sign of life
	toldScan      int64     // records looked at, as of told
}

func newBrowseStream(a *API, c *route.Call, q *browsing, x *broker.Browse) *browsingStream {
	now := time.Now()
	s := &browsingStream{
		a: a, c: c, x: x, ctx: c.Request.Context(), fit: fit{q: q}, buf: make([]byte, 0, 8<<10),
		follow: q.req.Follow, count: q.count, checked: now, told: now,
	}
	s.out = route.NewPaced(c.Writer, func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), route.StuckAfter)
		defer cancel()
		return s.mayGoOn(ctx) == nil
	})
	base := recordForm{meta: recordjson.Meta{Topic: q.req.Topic}, enc: q.enc}
	switch q.media {
	case mediaSSE:
		s.form = &eventForm{base}
	case mediaCSV:
		s.form = &csvForm{base}
	default:
		s.form = &ndjsonForm{base}
	}
	return s
}

// mayGoOn may be called from any goroutine.
func (s *browsingStream) mayGoOn(ctx context.Context) error {
	select {
	case <-s.a.broker.Draining():
		return errDraining
	default:
	}
	return s.x.StillAllowed(ctx)
}

// errDraining ends streams when the node stops; it is told as an end, not as a problem.
var errDraining = errors.New("the node is stopping")

// run serves until the stream ends, and writes its last line.
func (s *browsingStream) run() {
	for {
		if err := s.slow(); err != nil {
			s.fail(err)
			return
		}
		progress, err := s.step()
		switch {
		case err != nil:
			s.fail(err)
			return
		case progress == browse.Stopped && s.fit.reason != "":
			s.end(s.fit.reason)
			return
		case progress == browse.Dry && !s.follow:
			s.end(edge(s.x.Reading()))
			return
		case progress == browse.Dry:
			err = s.wait()
		}
		if err != nil {
			s.fail(err)
			return
		}
	}
}

// step reads some records into the buffer and writes it when it is time.
func (s *browsingStream) step() (browse.Progress, error) {
	now := time.Now()
	if now.Sub(s.checked) >= route.RecheckEvery {
		s.checked = now
		if err := s.mayGoOn(s.ctx); err != nil {
			return browse.Worked, err
		}
	}
	progress, err := s.x.Scan(scanWork, s.visit)
	if err != nil {
		return progress, err
	}
	if s.ctx.Err() != nil {
		return progress, route.ErrGone
	}
	if len(s.buf) >= route.StreamChunk {
		return progress, s.write()
	}
	if scanned := s.x.Scanned(); time.Since(s.told) >= progressEvery && scanned.Records > s.toldScan {
		s.buf = s.form.progress(s.buf, s.x.Here(), &s.fit, scanned)
		s.toldScan, s.told = scanned.Records, time.Now()
		return progress, s.write()
	}
	return progress, nil
}

func (s *browsingStream) visit(it browse.Item) browse.Verdict {
	verdict := s.fit.admit(it)
	if verdict == browse.StopBefore || s.count {
		return verdict
	}
	s.buf = s.form.record(s.buf, it, func() *browse.Cursor { return s.x.After(it) })
	if verdict == browse.Go && len(s.buf) >= route.StreamChunk {
		return browse.StopAfter
	}
	return verdict
}

// slow waits as long as the user's quota is used up.
func (s *browsingStream) slow() error {
	for {
		delay := s.x.Delay()
		if delay == 0 {
			return nil
		}
		if err := s.rest(min(delay, route.RecheckEvery), nil); err != nil {
			return err
		}
	}
}

// wait writes what is there and waits for more.
func (s *browsingStream) wait() error {
	if err := s.rest(route.RecheckEvery, s.x.Changed()); err != nil {
		return err
	}
	return s.x.Renew(s.ctx)
}

// rest writes what is there and does nothing for a time, or until it is woken.
func (s *browsingStream) rest(most time.Duration, woken <-chan struct{}) error {
	if err := s.write(); err != nil {
		return err
	}
	s.x.Rest()
	tick := time.NewTimer(most)
	defer tick.Stop()
	select {
	case <-woken:
	case <-tick.C:
	case <-s.a.broker.Draining():
		return errDraining
	case <-s.ctx.Done():
		return route.ErrGone
	}
	s.checked = time.Now()
	if err := s.mayGoOn(s.ctx); err != nil {
		return err
	}
	if time.Since(s.told) >= quietEvery {
		s.buf = s.form.quiet(s.buf, s.x.Here(), &s.fit, s.x.Scanned())
		s.told = time.Now()
		return s.write()
	}
	return nil
}

// write sends the buffer.
func (s *browsingStream) write() error {
	if len(s.buf) == 0 {
		return nil
	}
	err := s.out.Send(s.buf)
	if cap(s.buf) > 4*route.StreamChunk {
		s.buf = nil
	}
	s.buf = s.buf[:0]
	if err != nil {
		return route.ErrGone
	}
	return nil
}

// end writes the last line of a stream that nothing went wrong with.
func (s *browsingStream) end(reason string) {
	switch last := s.form.end(s.buf, reason, s.x.Pages().Resume, &s.fit); {
	case last != nil:
		s.buf = last
	case reason == "node-stopping":
		s.abort()
	}
	_ = s.write() // the client may be gone
}

// fail writes the last line of a stream that has to end.
func (s *browsingStream) fail(err error) {
	switch {
	case errors.Is(err, route.ErrGone):
		s.out.Cut()
		return
	case errors.Is(err, errDraining):
		s.end("node-stopping")
		return
	}
	e := model.AsError(err)
	if status := model.Row(e.Code).Status; status >= http.StatusInternalServerError {
		s.a.logger.Log(context.Background(), route.FailureLevel(s.ctx, status), "a stream failed", "path", s.c.Route.Path,
			"request_id", s.c.Writer.Header().Get("X-Request-Id"), "code", e.Code, "error", err)
	}
	p := problem.Of(e, s.c.Occurrence())
	last := s.form.problem(s.buf, &p)
	if last == nil {
		s.abort()
		return
	}
	s.buf = last
	_ = s.write() // the client may be gone
}

// abort cuts the connection, so that the client sees that the answer is not whole.
func (s *browsingStream) abort() {
	_ = s.write() // what there is, if the client takes it
	panic(http.ErrAbortHandler)
}

// recordForm is what the forms share.
type recordForm struct {
	meta recordjson.Meta
	enc  recordjson.Encodings
}

func (r *recordForm) of(it browse.Item) *recordjson.Meta {
	r.meta.Partition, r.meta.LogAppendTime = it.Partition, it.LogAppendTime
	return &r.meta
}

func appendProgress(b []byte, at *browse.Cursor, f *fit, s browse.Scanned) []byte {
	b = append(b, `{"cursor":`...)
	b = appendCursor(b, at)
	b = append(b, `,"count":`...)
	b = f.appendCount(b)
	b = append(b, `,"scanned_records":`...)
	b = strconv.AppendInt(b, s.Records, 10)
	b = append(b, `,"scanned_bytes":`...)
	b = strconv.AppendInt(b, s.Bytes, 10)
	return append(b, '}')
}

func appendProblem(b []byte, p *problem.Problem) []byte {
	j, err := json.Marshal(p)
	if err != nil { // an extension member that JSON cannot carry
		return append(b, "{}"...)
	}
	return append(b, j...)
}

// ndjsonForm writes a JSON object a line.
type ndjsonForm struct{ recordForm }

func (n *ndjsonForm) begin(b []byte) []byte { return b }

func (n *ndjsonForm) record(b []byte, it browse.Item, _ func() *browse.Cursor) []byte {
	return recordjson.AppendRecordLine(b, n.of(it), it.Record, n.enc)
}

func (n *ndjsonForm) progress(b []byte, at *browse.Cursor, f *fit, s browse.Scanned) []byte {
	return append(appendProgress(append(b, `{"progress":`...), at, f, s), "}\n"...)
}

func (n *ndjsonForm) quiet(b []byte, at *browse.Cursor, f *fit, s browse.Scanned) []byte {
	return n.progress(b, at, f, s)
}

func (n *ndjsonForm) end(b []byte, reason string, at *browse.Cursor, f *fit) []byte {
	return append(appendEnd(append(b, `{"end":`...), reason, at, f), "}\n"...)
}

func (n *ndjsonForm) problem(b []byte, p *problem.Problem) []byte {
	return append(appendProblem(append(b, `{"problem":`...), p), "}\n"...)
}

// eventForm writes server-sent events (HTML standard §9.2); data has no line breaks.
type eventForm struct{ recordForm }

func (e *eventForm) begin(b []byte) []byte { return append(b, ":\n\n"...) }

func (e *eventForm) record(b []byte, it browse.Item, after func() *browse.Cursor) []byte {
	b = appendEvent(b, "record", after())
	b = recordjson.AppendRecord(b, e.of(it), it.Record, e.enc)
	return append(b, "\n\n"...)
}

// appendEvent appends an event up to where its data begin.
func appendEvent(b []byte, name string, id *browse.Cursor) []byte {
	b = append(b, "event: "...)
	b = append(b, name...)
	if id != nil {
		b = append(b, "\nid: "...)
		b = id.Append(b)
	}
	return append(b, "\ndata: "...)
}

func (e *eventForm) progress(b []byte, at *browse.Cursor, f *fit, s browse.Scanned) []byte {
	return append(appendProgress(appendEvent(b, "progress", at), at, f, s), "\n\n"...)
}

func (e *eventForm) quiet(b []byte, _ *browse.Cursor, _ *fit, _ browse.Scanned) []byte {
	return append(b, ":\n\n"...)
}

func (e *eventForm) end(b []byte, reason string, at *browse.Cursor, f *fit) []byte {
	return append(appendEnd(appendEvent(b, "end", at), reason, at, f), "\n\n"...)
}

func (e *eventForm) problem(b []byte, p *problem.Problem) []byte {
	return append(appendProblem(appendEvent(b, "problem", nil), p), "\n\n"...)
}

// csvForm writes rows. Its end is the end of the answer, and it has no other words.
type csvForm struct{ recordForm }

func (r *csvForm) begin(b []byte) []byte { return append(b, recordjson.CSVHeader...) }

func (r *csvForm) record(b []byte, it browse.Item, _ func() *browse.Cursor) []byte {
	return recordjson.AppendCSV(b, r.of(it), it.Record, r.enc)
}

func (r *csvForm) progress(b []byte, _ *browse.Cursor, _ *fit, _ browse.Scanned) []byte { return b }

func (r *csvForm) quiet(b []byte, _ *browse.Cursor, _ *fit, _ browse.Scanned) []byte { return b }

func (r *csvForm) end([]byte, string, *browse.Cursor, *fit) []byte { return nil }

func (r *csvForm) problem([]byte, *problem.Problem) []byte { return nil }
