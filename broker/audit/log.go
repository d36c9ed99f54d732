package audit

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"tidewire/internal/model"
)

// Writer appends entries to the topic, all or, with an error, maybe none; it makes the topic
// where there is none.
type Writer interface {
	AppendAudit(ctx context.Context, entries []Encoded) error
}

// Encoded is an entry as it is written.
type Encoded struct {
	Value []byte
	At    int64 // milliseconds since 1970
}

// Config is what a Log is made of.
type Config struct {
	Writer Writer
	Node   model.BrokerID
	Logger *slog.Logger
	Now    func() time.Time
}

// Bounds of the queue and of waits.
const (
	maxQueued = 8192
	maxBytes  = 8 << 20
	maxBatch  = 500
	patience  = time.Second            // how long a call waits for its entry to be written
	lastTry   = 2 * time.Second        // for what is queued when the node stops
	firstWait = 100 * time.Millisecond // after a failure, doubled up to longWait
	longWait  = 5 * time.Second
	tellEvery = 10 * time.Second // how often what was left out is told
)

// Log writes the audit log. It is safe for concurrent use.
type Log struct {
	writer Writer
	node   model.BrokerID
	logger *slog.Logger
	now    func() time.Time
	start  int64 // begins ids, which are unique for the process with it

	mu      sync.Mutex
	queue   []queued // guarded by mu
	bytes   int      // guarded by mu: of queue
	next    uint64   // guarded by mu: of ids
	flood   *flood   // guarded by mu
	failing bool     // guarded by mu: the last write failed; nobody waits
	closed  bool     // guarded by mu: Run has ended
	counts  Counts   // guarded by mu
	told    Counts   // guarded by mu: what entries have told of counts
	wake    chan struct{}
}

type queued struct {
	Encoded
	written chan struct{} // closed once it is written or given up
}

// Counts are what became of entries since the start.
type Counts struct {
	Written    int64
	Lost       int64 // the queue was full, or the node stopped
	Suppressed int64 // a flood of calls that changed nothing
	Queued     int   // now
}

// NewLog returns a log that writes nothing until Run.
func NewLog(c Config) *Log {
	return &Log{
		writer: c.Writer, node: c.Node, logger: c.Logger, now: c.Now, start: c.Now().UnixMilli(),
		flood: newFlood(), wake: make(chan struct{}, 1),
	}
}

// Counts tells what became of entries.
func (l *Log) Counts() Counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.counts
	c.Queued = len(l.queue)
	return c
}

// Record writes an entry down, of which the caller has set what it knows; time, id and node
// are the log's. It returns once that is done, as far as it is done soon.
func (l *Log) Record(e Entry) {
	written := l.put(e)
	if written == nil {
		return
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-written:
	case <-timer.C:
	}
}

// Note is Record without a wait.
func (l *Log) Note(e Entry) { l.put(e) }

// put queues an entry; the channel is nil where nobody is to wait.
func (l *Log) put(e Entry) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	if e.Outcome != Success && e.Outcome != Unknown && !l.flood.admit(e.Host, now) {
		l.counts.Suppressed++
		return nil
	}
	return l.addLocked(e, now)
}

func (l *Log) addLocked(e Entry, now time.Time) <-chan struct{} {
	l.next++
	e.ID, e.Node, e.At = fmt.Sprintf("%d-%x-%d", l.node, l.start, l.next), int32(l.node), now
	q := queued{Encoded: Encoded{Value: e.encode(), At: now.UnixMilli()}, written: make(chan struct{})}
	if l.closed || len(l.queue) >= maxQueued || l.bytes+len(q.Value) > maxBytes {
		l.counts.Lost++
		return nil
	}
	l.queue = append(l.queue, q)
	l.bytes += len(q.Value)
	select {
	case l.wake <- struct{}{}:
	default:
	}
	if l.failing {
		return nil
	}
	return q.written
}

// Run writes what is queued until ctx ends, and then tries once more.
func (l *Log) Run(ctx context.Context) {
	wait := firstWait
	tell := time.NewTicker(tellEvery)
	defer tell.Stop()
	for {
		var retry <-chan time.Time
		if !l.flush(context.WithoutCancel(ctx)) { // what has begun is not left in doubt
			retry = time.After(wait)
			wait = min(2*wait, longWait)
		} else {
			wait = firstWait
		}
		select {
		case <-ctx.Done():
			l.finish(ctx)
			return
		case <-retry:
			continue
		case <-tell.C:
			l.tell()
			continue
		case <-l.woken(retry == nil):
		}
	}
}

// woken is where entries are announced, or nothing while writing is not tried anyway.
func (l *Log) woken(now bool) <-chan struct{} {
	if now {
		return l.wake
	}
	return nil
}

// flush writes all that is queued; false when that failed.
func (l *Log) flush(ctx context.Context) bool {
	for {
		batch := l.head()
		if len(batch) == 0 {
			return true
		}
		entries := make([]Encoded, len(batch))
		for i, q := range batch {
			entries[i] = q.Encoded
		}
		err := l.writer.AppendAudit(ctx, entries)
		l.wrote(len(batch), err)
		if err != nil {
			return false
		}
	}
}

// head is the oldest entries, which stay queued.
func (l *Log) head() []queued {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.queue[:min(len(l.queue), maxBatch):min(len(l.queue), maxBatch)]
}

// wrote notes what became of the oldest n.
func (l *Log) wrote(n int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if failing := err != nil; failing != l.failing {
		l.failing = failing
		if failing {
			l.logger.Error("the audit log cannot be written; entries are kept and tried again", "queued", len(l.queue), "error", err)
		} else {
			l.logger.Info("the audit log is written again")
		}
	}
	if err != nil {
		for i := range l.queue { // nobody waits for what may take long
			l.queue[i].release()
		}
		return
	}
	l.counts.Written += int64(n)
	l.dropLocked(n)
	l.tellLocked()
}

// dropLocked takes the oldest n out of the queue.
func (l *Log) dropLocked(n int) {
	for i := range n {
		l.bytes -= len(l.queue[i].Value)
		l.queue[i].release()
	}
	l.queue = append(l.queue[:0:0], l.queue[n:]...)
}

// release lets who waits for an entry go on, once.
func (q *queued) release() {
	if q.written != nil {
		close(q.written)
		q.written = nil
	}
}

// tell writes down how many entries were left out.
func (l *Log) tell() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.counts.Suppressed > l.told.Suppressed {
		n := l.counts.Suppressed - l.told.Suppressed
		l.told.Suppressed = l.counts.Suppressed
		l.logger.Warn("entries of the audit log about calls that changed nothing were left out: too many came", "entries", n)
		l.addLocked(Entry{Action: "audit-suppressed", Resource: "audit", Outcome: Success, Details: map[string]any{"entries": n}}, l.now())
	}
	l.tellLocked()
}

// tellLocked writes down what was lost, where there is room for it.
func (l *Log) tellLocked() {
	n := l.counts.Lost - l.told.Lost
	if n <= 0 || l.failing || l.closed || len(l.queue) >= maxQueued/2 {
		return
	}
	l.told.Lost = l.counts.Lost
	l.logger.Error("entries of the audit log were lost: the queue was full", "entries", n)
	l.addLocked(Entry{Action: "audit-lost", Resource: "audit", Outcome: Success, Details: map[string]any{"entries": n}}, l.now())
}

// finish writes what is left when the node stops.
func (l *Log) finish(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastTry)
	defer cancel()
	l.tell()
	l.flush(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if n := len(l.queue); n > 0 {
		l.counts.Lost += int64(n)
		l.logger.Error("entries of the audit log were lost: the node stopped and could not write them", "entries", n)
		l.dropLocked(n)
	}
}
