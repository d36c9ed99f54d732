package partition

import (
	"sync/atomic"

	"tidewire/internal/model"
	"tidewire/storage/dedupe"
	"tidewire/storage/record"
)

// Acks says when a produce request is answered (Kafka's acks).
type Acks int8

// Levels of acknowledgement, with Kafka's numbers.
const (
	AcksNone   Acks = 0
	AcksLeader Acks = 1
	AcksAll    Acks = -1
)

// Slice is the part of one produce request that goes to one partition: the records
// Records[Select[0]], Records[Select[1]], … in this order, or ready-made batches. The caller fills the first
// group of fields, and reads the second only after the slice's Completion is done or
// after Abandon.
type Slice struct {
	Records []record.Record
	Select  []int32
	Acks    Acks
	Keyless bool // no key and no partition were given: the slice may be anywhere
	Plain   bool // may share a batch with other requests
	// Sequence and Expected belong to slices that are not plain, whose records are one
	// batch; nil: none.
	Sequence *Sequence
	Expected *model.Offset // what the log end must be for the slice to be appended
	// Within is the leader epoch in which alone the slice is to be appended; nil: any. It is
	// for who has read the log in that epoch and decides by what was there.
	Within *model.LeaderEpoch
	// Whole says that the records become one batch or are refused.
	Whole bool

	// Once is for a slice of a request with an Idempotency-Key, which is stored once; nil: it
	// has none.
	Once *Once

	// Batches are whole batches to append as they are, Count records in all, in the place of
	// Records and Select. Submit may write into them and does not keep them.
	Batches []byte
	Count   int

	Base       model.Offset // offset of the first record
	AppendTime int64        // the log append time in milliseconds, or −1 under CreateTime
	Duplicate  bool         // the records were appended by an earlier request
	StoredTime int64        // where Duplicate: the largest timestamp of the stored records
	Err        error

	end     model.Offset // offset after the last record
	size    int          // bound of the records' bytes in a batch
	first   int          // index of the first record within the open batch
	state   sliceState
	waiting *Completion
}

// records is how many records the slice has.
func (s *Slice) records() int {
	if s.Batches != nil {
		return s.Count
	}
	return len(s.Select)
}

// Once is what makes the slices of a request stored once.
type Once struct {
	dedupe.Stamp // but for Count, which is the slice's
	// Refusal is why the slice is not to be appended where it is not there yet; nil: it is.
	Refusal error
}

// Sequence is where a slice stands in what an idempotent producer sends to its partition
// (KIP-98).
type Sequence struct {
	ID    model.ProducerID
	Epoch model.ProducerEpoch
	First int32 // of the slice's first record
}

type sliceState uint8

const (
	sliceNew      sliceState = iota
	sliceOpen                // in the open batch: no offset yet
	sliceAppended            // in the log, waits for the high watermark
	sliceDone
)

// Completion counts down the slices of one request and signals when the last one has
// ended.
type Completion struct {
	left atomic.Int32
	done chan struct{}
	call func() // in the place of done, where not nil
}

// NewCompletion returns one that waits for n slices.
func NewCompletion(n int) *Completion {
	c := &Completion{done: make(chan struct{}, 1)}
	c.left.Store(int32(n))
	return c
}

// NewCallback returns a completion for n slices that calls fn when the last one has ended, in
// the place of Done. A partition's lock is held then: fn must neither wait nor call a
// partition.
func NewCallback(n int, fn func()) *Completion {
	c := &Completion{call: fn}
	c.left.Store(int32(n))
	return c
}

// Reset makes a finished completion ready for n further slices. It must not be called
// while slices of an earlier use are still waiting.
func (c *Completion) Reset(n int) { c.left.Store(int32(n)) }

// Done receives once when every slice has ended.
func (c *Completion) Done() <-chan struct{} { return c.done }

// Discount ends n slices that were never submitted.
func (c *Completion) Discount(n int) {
	if n <= 0 || c.left.Add(-int32(n)) != 0 {
		return
	}
	if c.call != nil {
		c.call()
		return
	}
	c.done <- struct{}{}
}

func (s *Slice) finishLocked(err error) {
	s.state = sliceDone
	s.Err = err
	s.waiting.Discount(1)
}
