package partition

import (
	"sync"
	"sync/atomic"

	"tidewire/internal/model"
	"tidewire/storage/dedupe"
	"tidewire/storage/log"
	"tidewire/storage/record"
)

// Log is what a partition needs of its log; *log.Log is one.
type Log interface {
	Writer
	Reader
	Ends
	SetCallbacks(onStable func(model.Offset), onSyncEnd func(), onFail func(error))
	Failed() error
}

// Writer is the side of a log that takes records.
type Writer interface {
	Append(batches []byte, epoch model.LeaderEpoch, now int64) (log.Appended, error)
	RequestSync()
	Syncing() bool
}

// Reader is the side of a log that gives them.
type Reader interface {
	Read(dst []byte, from, limit model.Offset, maxBytes int) ([]byte, error)
	Pin(from, limit model.Offset) (*log.Extent, error)
	First(from, limit model.Offset) (h record.BatchHeader, ok bool, err error)
	OffsetForTimestamp(ts int64, limit model.Offset) (model.Offset, int64, bool, error)
	AbortedTransactions(from, to model.Offset) ([]log.AbortedTransaction, error)
}

// Ends are the offsets that a log has.
type Ends interface {
	LogStart() model.Offset
	LogEnd() model.Offset
	StableEnd() model.Offset
	HighWatermark() model.Offset
	SetHighWatermark(model.Offset)
	LastStable(hw model.Offset) model.Offset
}

// Producers is what a log knows of idempotent producers, where it knows any.
type Producers interface {
	FindRetry(batches []byte, now int64) (*log.Appended, error)
}

// Keys is what a log remembers of Idempotency-Keys, where it remembers any.
type Keys interface {
	FindKey(k dedupe.Key, now int64) (dedupe.Entry, bool)
	BeginKeys() error
}

// Settings are the topic's settings that matter on the append path.
type Settings struct {
	MaxMessageBytes   int // largest batch, in bytes as stored
	MinInsyncReplicas int
	Codec             record.Codec // of batches built here; none unless compression.type names one
}

// Leadership is what the metadata says of this replica.
type Leadership struct {
	Leader bool
	Epoch  model.LeaderEpoch
	ISR    int // size of the in-sync replica set, this replica included
}

// Bounds are the offsets that describe a partition at one moment.
type Bounds struct {
	LogStart, HighWatermark, LastStable, LogEnd model.Offset
	// Unsettled says that the leader is new and may yet find records committed that readers of
	// the leader before have seen: until it is settled the newest visible offset might go back
	// (KIP-207).
	Unsettled bool
}

// Partition is one replica. Its methods are safe for concurrent use.
type Partition struct {
	Topic   string
	TopicID model.TopicID
	ID      model.PartitionID

	log       Log
	producers Producers // nil: the log knows none
	keys      Keys      // nil: the log remembers none
	now       func() int64

	mu       sync.Mutex
	settings Settings              // guarded by mu
	lead     Leadership            // guarded by mu
	closed   error                 // guarded by mu: why the replica serves no more
	released bool                  // guarded by mu: nothing is appended any more, see Release
	hw       model.Offset          // guarded by mu
	builder  record.Builder        // guarded by mu: holds the open batch, or the one being appended
	open     []*Slice              // guarded by mu: slices in the open batch
	queue    commitQueue           // guarded by mu: appended acks=all slices in offset order
	watchers map[*Watcher]struct{} // guarded by mu
	turnOver func()                // called under mu when another partition should take keyless records
	keyless  int                   // guarded by mu: bytes without keys since the last turn
	batches  []byte                // guarded by mu: a slice that became several batches
	spare    []*Slice              // guarded by mu: memory for the next inbox
	rep      *replica              // guarded by mu: nil where there is no other replica

	openUrgent bool // guarded by mu: the open batch holds a slice that must not wait for a sync

	inside  atomic.Int32 // calls of Submit under way
	inboxMu sync.Mutex
	inbox   []*Slice // guarded by inboxMu: submitted and not yet taken
	company int      // guarded by inboxMu: appends for which other requests are expected at the same time
}

// New returns a partition over an open log. turnOver is called, holding the partition's
// lock, when it has had its turn to take keyless records: those of one sync, or a good
// many bytes. now gives milliseconds since 1970.
func New(l Log, id Identity, s Settings, now func() int64, turnOver func()) *Partition {
	p := &Partition{
		Topic: id.Topic, TopicID: id.TopicID, ID: id.Partition,
		log: l, now: now, settings: s, turnOver: turnOver, watchers: map[*Watcher]struct{}{}, hw: l.HighWatermark(),
	}
	p.producers, _ = l.(Producers)
	p.keys, _ = l.(Keys)
	l.SetCallbacks(p.onStable, p.onSyncEnd, p.onFail)
	return p
}

// Identity names a partition.
type Identity struct {
	Topic     string
	TopicID   model.TopicID
	Partition model.PartitionID
}

// SetLeadership takes over what the metadata says. A replica that is no longer leader
// fails what waits on it: not applied where it was not appended, unknown where it was. One that
// leads on in another epoch has the same log, and what waits goes on to.
func (p *Partition) SetLeadership(l Leadership) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.setLeadershipLocked(l)
}

func (p *Partition) setLeadershipLocked(l Leadership) {
	p.endEpochLocked(l)
	was := p.lead
	p.lead = l
	if was.Leader && !l.Leader {
		p.failLocked(model.Errorf(model.LeaderUnavailable, "the leadership of partition %d of %q moved", p.ID, p.Topic),
			model.Errorf(model.NotEnoughReplicasAfterAppend, "the leadership of partition %d of %q moved after the append", p.ID, p.Topic))
	}
	p.advanceLocked(p.log.StableEnd())
	p.wakeLocked()
}

// endEpochLocked appends what is open in the epoch that it was admitted to, where this replica
// leads on in another.
func (p *Partition) endEpochLocked(next Leadership) {
	if p.lead.Leader && next.Leader && next.Epoch != p.lead.Epoch && len(p.open) > 0 && p.closed == nil && p.log.Failed() == nil {
		p.sealLocked()
	}
}

// Leadership is what the metadata said last.
func (p *Partition) Leadership() Leadership {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lead
}

// SetSettings takes over changed topic settings. What is open goes into the log first,
// under the settings by which it was merged: call it before the log gets a smaller limit
// of message bytes, and after it got a larger one.
func (p *Partition) SetSettings(s Settings) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.open) > 0 && s != p.settings {
		p.sealLocked()
	}
	p.settings = s
}

// Settings are those in force.
func (p *Partition) Settings() Settings {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.settings
}

// Release ends appends: the node is about to stop, and another is to lead. What was submitted is
// appended, and answered as before; see Waits.
func (p *Partition) Release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.released = true
	if len(p.open) > 0 {
		p.sealLocked()
	}
}

// Waits tells whether a leader has records that are not acknowledged yet and yet may be.
func (p *Partition) Waits() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lead.Leader && p.closed == nil && p.queue.head() != nil
}

// Close ends the replica: what waits gets why, and so does every later call. The log
// is not closed.
func (p *Partition) Close(why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed != nil {
		return
	}
	if len(p.open) > 0 && p.lead.Leader {
		p.sealLocked()
	}
	p.closed = why
	p.failLocked(why, unknownAfter(why))
	p.wakeLocked()
}

// unknownAfter is the error of records that are in the log when the partition closes.
// 503 tells the client that nothing was applied, so that code becomes another.
func unknownAfter(why error) error {
	e := model.AsError(why)
	if e.Code == model.LeaderUnavailable {
		return model.Errorf(model.NotEnoughReplicasAfterAppend, "%s, after the append", e.Detail).WithCause(why)
	}
	return e.WithOutcome(model.Unknown)
}

// Bounds returns the partition's offsets. Without open transactions the last stable offset
// is the high watermark.
func (p *Partition) Bounds() Bounds {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Bounds{LogStart: p.log.LogStart(), HighWatermark: p.hw, LastStable: p.log.LastStable(p.hw), LogEnd: p.log.LogEnd(), Unsettled: p.unsettledLocked()}
}

// Err says why the partition cannot be read now, or nil.
func (p *Partition) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.usableLocked()
}

func (p *Partition) usableLocked() error {
	if p.closed != nil {
		return p.closed
	}
	if !p.lead.Leader {
		return model.Errorf(model.LeaderUnavailable, "this node does not lead partition %d of %q", p.ID, p.Topic)
	}
	return nil
}

// advanceLocked raises the high watermark to the stable end, or as far as all that are in sync
// are stable, and answers what it passed.
func (p *Partition) advanceLocked(stable model.Offset) {
	if !p.lead.Leader || p.closed != nil {
		return
	}
	if stable = p.reachLocked(stable); stable <= p.hw {
		return
	}
	p.hw = stable
	p.log.SetHighWatermark(stable)
	for s := p.queue.head(); s != nil && s.end <= stable; s = p.queue.head() {
		p.queue.pop()
		s.finishLocked(nil)
	}
	p.wakeLocked()
	if p.rep != nil {
		for t := range p.rep.tails {
			t.Moved()
		}
	}
}

func (p *Partition) onStable(stable model.Offset) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stepLocked() // before anybody is answered, so that a lone producer goes round
	p.advanceLocked(stable)
}

func (p *Partition) onSyncEnd() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.open) > 0 && p.closed == nil && p.log.Failed() == nil { // else onFail follows, which knows that the open batch was not applied
		p.sealLocked()
	}
	p.syncedLocked()
}

// onFail is told that the log latched: nothing above its stable end is served any more.
func (p *Partition) onFail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := model.AsError(err)
	p.failLocked(e.WithOutcome(model.NotApplied), e.WithOutcome(model.Unknown))
	p.wakeLocked()
}

// failLocked ends every waiting slice: those without an offset with notApplied.
func (p *Partition) failLocked(notApplied, unknown error) {
	for _, s := range p.open {
		s.finishLocked(notApplied)
	}
	p.resetOpenLocked()
	for s := p.queue.head(); s != nil; s = p.queue.head() {
		p.queue.pop()
		s.finishLocked(unknown)
	}
}
