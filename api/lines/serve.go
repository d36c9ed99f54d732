package lines

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"tidewire/api/problem"
	"tidewire/api/recordjson"
	"tidewire/broker"
	"tidewire/broker/partition"
	"tidewire/internal/inflight"
	"tidewire/internal/lifecycle"
	"tidewire/internal/model"
	"tidewire/storage/record"
)

// Limits of one request.
const (
	maxFailures = 1000 // after so many it ends
	maxBatch    = 1024 // records that are submitted together
	maxFlights  = 4    // batches under way
	// maxLine bounds a line whatever the topic takes.
	maxLine = 64 << 20
)

// Results says which lines are answered.
type Results uint8

// What is answered besides the summary.
const (
	Errors Results = iota // lines that failed
	All                   // every line
	None
)

// Config is one request. Out and Control are the answer's, to which nothing was written
// yet; its header is set.
type Config struct {
	Producer  *broker.Producer
	Acks      partition.Acks
	Timeout   time.Duration // how long acks=all may take, for each batch
	Results   Results
	Partition *model.PartitionID // nil: the records say

	Body    io.Reader
	Out     http.ResponseWriter
	Control *http.ResponseController
	At      problem.Occurrence
	Budget  *inflight.Budget

	Expires  time.Time // of the token; zero: never
	Now      func() time.Time
	Draining <-chan struct{} // closed when the node is about to stop
}

// Durations of the end of a request.
const (
	stallAfter = 30 * time.Second       // the client neither sends nor takes: the connection is cut
	drainFor   = 30 * time.Second       // how long the rest of a body is read after an early end
	hurryFor   = time.Second            // the same when the node stops
	quietFor   = 500 * time.Millisecond // a client that sends nothing for so long then has no more to send
	lookAgain  = 15 * time.Second       // the wall clock may be set meanwhile

	checkWithin = 10 * time.Second // where the quorum is asked
)

// Serve reads lines and answers them; see the package's comment. What ends the request before
// its first line is a usual problem. It returns an error, rate-limited, only where nothing
// was answered or read.
func Serve(ctx context.Context, c Config) error {
	hold := c.Budget.Hold()
	if err := hold.Grow(holdBytes); err != nil {
		return err
	}
	defer hold.Release()
	_ = c.Control.EnableFullDuplex() // where it is not there, it is not needed
	s := &server{
		c: c, in: newInbox(c.Body, lineLimit(c.Producer.MaxMessageBytes()), &hold), req: requests.Get(),
		tick: time.NewTimer(lookAgain), late: time.NewTimer(time.Hour),
	}
	s.out = newOutbox(s.begin, c.Out, c.Control.Flush)
	defer s.tick.Stop()
	defer s.late.Stop()
	defer requests.Put(s.req)
	g := lifecycle.New(context.WithoutCancel(ctx))
	g.Go("lines/read", func(context.Context) { s.in.fill() })
	g.Go("lines/write", func(context.Context) { s.out.run() })
	s.run(ctx)
	s.finish()
	return nil
}

// lineLimit is the longest line that can hold a record of so many bytes: JSON may need six
// for one.
func lineLimit(maxMessage int) int {
	return min(maxLine, max(0, min(maxMessage, maxLine))*6+chunkBytes)
}

var requests recordjson.Pool

// server is the state of one request; it belongs to the goroutine of Serve.
type server struct {
	c   Config
	in  *inbox
	out *outbox
	req *recordjson.Request

	text  []byte // lines that were taken and not all decoded
	pos   int    // text[:pos] is decoded
	bad   []bad  // of text, those not come to yet
	spent []bad  // memory for the next ones
	index int64  // of the next line

	flights  []*flight // under way, in order
	free     []*flight
	started  bool   // there was a line, or the end of the body
	refusal  error  // answers the request instead of lines; set before out is started
	ended    bool   // the body has been read and decoded to its end
	stopped  string // why no more lines are read; "" otherwise
	cause    error  // of stopped, where the answer tells it
	gone     bool   // the client takes no more
	sum      summary
	scratch  []byte
	results  recordjson.Results
	tick     *time.Timer   // for what happens by the clock: the token, a stalled client
	delay    time.Duration // until the user's quota lets more in; 0: now
	late     *time.Timer   // for the oldest flight
	progress int64         // bytes moved either way when last looked
	since    time.Time     // when there last was progress
}

// flight is a batch under way.
type flight struct {
	batch    *broker.Batch
	first    int64 // index of its first line
	lines    int64
	refused  []refusal // lines that are not in the batch, by index
	deadline time.Time
}

type refusal struct {
	index int64
	why   error
}

// begin sends the head of the answer; it runs in the goroutine that writes.
func (s *server) begin() {
	if s.refusal != nil {
		problem.Write(s.c.Out, s.refusal, s.c.At)
		return
	}
	s.c.Out.Header()["Content-Type"] = []string{"application/x-ndjson"}
	s.c.Out.WriteHeader(http.StatusOK)
}

// run follows the request until its lines have ended and nothing is under way.
func (s *server) run(ctx context.Context) {
	for {
		s.settle()
		if len(s.flights) == 0 && (s.ended || s.stopped != "") {
			return
		}
		s.delay = s.c.Producer.Delay()
		if s.mayTake() && s.take(ctx) {
			continue
		}
		s.wait(ctx)
	}
}

// mayTake tells whether further lines may be submitted. While the user's quota is used up the
// body is not read any further than the window, so that the client is slowed.
func (s *server) mayTake() bool {
	return len(s.flights) < maxFlights && s.stopped == "" && !s.ended && s.delay == 0
}

// take submits a batch of what has arrived; false when there was nothing.
func (s *server) take(ctx context.Context) bool {
	if s.pos == len(s.text) {
		var err error
		s.text, s.bad, err = s.in.take(s.text, s.spent)
		s.pos, s.spent = 0, s.bad
		if len(s.text) == 0 {
			s.bodyEnded(err)
			return err != nil
		}
		s.start()
	}
	if s.recheck(ctx); s.stopped != "" {
		return true
	}
	f := s.newFlight()
	s.decode(f)
	if f.batch.Len() > 0 {
		f.deadline = time.Now().Add(s.c.Timeout)
		s.sum.old += f.batch.Submit()
	}
	if s.flights = append(s.flights, f); len(s.flights) == 1 {
		s.late.Reset(s.c.Timeout)
	}
	return true
}

func (s *server) bodyEnded(err error) {
	switch {
	case err == nil:
	case errors.Is(err, io.EOF):
		s.start()
		s.ended = true
	default:
		var e *model.Error
		if !errors.As(err, &e) {
			e = model.Errorf(model.MalformedBody, "the body broke off in or behind line %d", s.index).WithCause(err)
		}
		s.stop(e)
	}
}

// start has the head of the answer sent, though there may be nothing to say for long.
func (s *server) start() {
	if !s.started {
		s.started = true
		s.out.start()
	}
}

// stop has no more lines read, for a reason that the answer tells.
func (s *server) stop(why error) {
	if s.stopped == "" {
		s.stopped, s.cause = string(model.AsError(why).Code), why
		s.in.dropRest()
	}
}

// stopQuietly is stop for reasons that are no error.
func (s *server) stopQuietly(reason string) {
	if s.stopped == "" {
		s.stopped = reason
		s.in.dropRest()
	}
}

func (s *server) newFlight() *flight {
	var f *flight
	if n := len(s.free); n > 0 {
		f, s.free = s.free[n-1], s.free[:n-1]
	} else {
		f = &flight{batch: s.c.Producer.NewBatch()}
	}
	f.batch.Begin()
	f.first, f.lines, f.refused = s.index, 0, f.refused[:0]
	s.req.Reset()
	return f
}

// decode puts lines into a flight, until it is full or they have ended.
func (s *server) decode(f *flight) {
	for s.pos < len(s.text) && f.batch.Len() < maxBatch && s.stopped == "" {
		start := s.pos
		end := start + bytes.IndexByte(s.text[start:], '\n')
		s.pos = end + 1
		var err error
		switch line := s.text[start:end:end]; {
		case len(s.bad) > 0 && s.bad[0].at == start:
			err = s.bad[0].why
			s.bad = s.bad[1:]
		case blank(line):
			continue
		default:
			err = s.add(f, line)
		}
		if err != nil {
			f.refused = append(f.refused, refusal{s.index, err})
			s.failed()
		}
		s.index++
		f.lines++
	}
}

func blank(line []byte) bool {
	for _, c := range line {
		if c != ' ' && c != '\t' && c != '\r' {
			return false
		}
	}
	return true
}

// add decodes one line into the batch.
func (s *server) add(f *flight, line []byte) error {
	if err := s.req.DecodeRecord(line); err != nil {
		return err
	}
	r := &s.req.Records[len(s.req.Records)-1]
	to := broker.Routing{
		Partition: r.Partition, HasPartition: r.HasPartition,
		PartitionKey: r.PartitionKey, HasPartitionKey: r.HasPartitionKey,
	}
	if p := s.c.Partition; p != nil {
		if r.HasPartition && r.Partition != *p {
			return model.Invalid("/partition", "partition %d is not the path's partition %d", r.Partition, *p)
		}
		to.Partition, to.HasPartition = *p, true
	}
	rec := record.Record{Timestamp: broker.NoTimestamp, Key: r.Key, Value: r.Value, Headers: r.Headers}
	if r.HasTimestamp {
		rec.Timestamp = r.Timestamp
	}
	return f.batch.Add(&rec, &to)
}

// failed counts a failure; after many the client is taken to send something else than it
// thinks.
func (s *server) failed() {
	if s.sum.failed++; s.sum.failed >= maxFailures {
		s.stopQuietly("too-many-failures")
	}
}

// settle answers the flights that have ended, in their order, while the client takes its
// answer.
func (s *server) settle() {
	for len(s.flights) > 0 && s.mayAnswer() {
		f := s.flights[0]
		var why error
		if f.batch.Len() > 0 {
			select {
			case <-f.batch.Done():
			default:
				if time.Now().Before(f.deadline) {
					return
				}
				why = broker.NotInTime(s.c.Timeout)
			}
		}
		s.land(f, why)
	}
}

func (s *server) mayAnswer() bool { return s.c.Results != All || s.gone || s.out.hasRoom() }

// land answers the oldest flight.
func (s *server) land(f *flight, why error) {
	s.answer(f, why)
	s.flights = append(s.flights[:0], s.flights[1:]...)
	s.free = append(s.free, f)
	if len(s.flights) > 0 {
		s.late.Reset(time.Until(s.flights[0].deadline))
	}
}

// wait sleeps until there may be something to do.
func (s *server) wait(ctx context.Context) {
	var arrived, done <-chan struct{}
	var late <-chan time.Time
	if s.mayTake() {
		arrived = s.in.arrived
	}
	if len(s.flights) > 0 && s.mayAnswer() {
		late = s.late.C
		done = s.flights[0].batch.Done()
	}
	s.tick.Reset(s.untilTick())
	draining := s.c.Draining
	if s.stopped != "" {
		draining = nil
	}
	failed := s.out.failed
	if s.gone {
		failed = nil
	}
	select {
	case <-arrived:
	case <-done:
		s.land(s.flights[0], nil)
	case <-late:
	case <-s.out.room:
	case <-failed:
		s.gone = true
		s.stopQuietly("client-gone") // nobody reads it
	case <-draining:
		s.stopQuietly(stopsNode)
	case <-s.c.Producer.Changed():
		s.recheck(ctx)
	case <-s.tick.C:
		s.recheck(ctx)
		s.cutStalled()
	}
}

const stopsNode = "node-stopping"

// recheck asks whether the producer may go on. That the client has stopped sending ends
// the request's context, and not this.
func (s *server) recheck(ctx context.Context) {
	if s.stopped != "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), checkWithin)
	defer cancel()
	if err := s.c.Producer.Check(ctx); err != nil {
		s.stop(err)
	}
}

// untilTick is when the token ends, the quota lets more in, or to look again.
func (s *server) untilTick() time.Duration {
	if s.stopped != "" {
		return lookAgain
	}
	left := lookAgain
	if s.delay > 0 {
		left = min(left, s.delay)
	}
	if !s.c.Expires.IsZero() {
		left = min(left, s.c.Expires.Sub(s.c.Now()))
	}
	return max(left, time.Millisecond)
}

// cutStalled ends the connection of a client that has an answer to take, and for long
// neither took nor sent anything.
func (s *server) cutStalled() {
	now := time.Now()
	moved := s.in.read.Load() + s.out.written.Load()
	if moved != s.progress || s.since.IsZero() || !s.out.pending() {
		s.progress, s.since = moved, now
		return
	}
	if now.Sub(s.since) >= stallAfter {
		_ = s.c.Control.SetWriteDeadline(now) // a connection that has ended needs none
	}
}

// finish tells the summary, has the answer written, and reads the rest of the body while it
// comes, so that a client which sends everything before it reads gets to its answer.
func (s *server) finish() {
	if s.started {
		s.out.put(s.summary())
	} else if s.refusal = s.cause; s.refusal == nil {
		s.refusal = model.Errorf(model.LeaderUnavailable, "the node is stopping")
	}
	s.out.close()
	look := time.NewTicker(quietFor / 2)
	defer look.Stop()
	drain := s.newDrain()
	reading, writing := s.in.ended, s.out.ended
	for reading != nil || writing != nil {
		select {
		case <-reading:
			reading = nil
		case <-writing:
			writing = nil
		case now := <-look.C:
			s.cutStalled()
			if drain.over(now, s.in.read.Load()) {
				s.hangUp(writing != nil && s.stopped == stopsNode)
			}
		case <-s.out.failed:
			s.hangUp(false)
			<-s.in.ended
			return
		}
	}
}

// hangUp ends the reading of the body, and if told so the writing of the answer.
func (s *server) hangUp(writing bool) {
	now := time.Now()
	_ = s.c.Control.SetReadDeadline(now) // a connection that has ended needs none
	if writing {
		_ = s.c.Control.SetWriteDeadline(now) // as above
	}
}

// drain is the reading of what follows an early end.
type drain struct {
	until time.Time
	moved time.Time // when bytes came last
	read  int64
}

func (s *server) newDrain() *drain {
	now := time.Now()
	limit := drainFor
	if s.stopped == stopsNode {
		limit = hurryFor
	}
	return &drain{until: now.Add(limit), moved: now, read: s.in.read.Load()}
}

// over tells whether the client has stopped sending, or sends for too long.
func (d *drain) over(now time.Time, read int64) bool {
	if read != d.read {
		d.read, d.moved = read, now
	}
	return now.Sub(d.moved) >= quietFor || now.After(d.until)
}
