package ingest

import (
	"errors"
	"fmt"
	"math"
	"strconv"

	"tidewire/internal/model"
	"tidewire/storage/record"
)

// minRecordBody is the length of a record without key, value and headers.
const minRecordBody = 6

func invalid(format string, args ...any) error {
	return model.Errorf(model.InvalidRecord, format, args...)
}

// at gives an error about one record the record's place in the request.
func at(record int, err error) error {
	e := *model.AsError(err)
	e.Detail = fmt.Sprintf("record %d: %s", record, e.Detail)
	e.Fields = []model.FieldError{{Pointer: "/records/" + strconv.Itoa(record), Detail: e.Detail}}
	return &e
}

// checkHeader looks at a header of a client, whose checksum fits.
func checkHeader(h *record.BatchHeader) error {
	const known = 7 | record.AttrLogAppendTime | record.AttrTransactional
	a := h.Attributes
	switch {
	case a.Has(record.AttrControl):
		return invalid("clients may not write control batches")
	case a.Has(record.AttrDeleteHorizon):
		return invalid("clients may not write delete horizons")
	case a.Has(record.AttrLogAppendTime):
		return model.Errorf(model.InvalidTimestamp, "clients may not set the time of the append")
	case a&^known != 0:
		return invalid("the batch has unknown attributes %#x", uint16(a))
	case a.Codec() > record.Zstd:
		return model.Errorf(model.UnsupportedCompression, "the batch has the unknown codec %d", int8(a.Codec()))
	case h.Count == 0 || int64(h.Count) != int64(h.LastOffsetDelta)+1:
		return invalid("the batch has %d records in %d offsets", h.Count, int64(h.LastOffsetDelta)+1)
	case h.ProducerID < model.NoProducer:
		return invalid("the batch has the producer id %d", h.ProducerID)
	case h.ProducerID != model.NoProducer && (h.BaseSequence < 0 || h.ProducerEpoch < 0):
		return invalid("the batch has a producer id, and no epoch or sequence")
	case h.ProducerID == model.NoProducer && h.BaseSequence < -1:
		return invalid("the batch has base sequence %d and no producer id: batches that were stored under an Idempotency-Key are read, and sent again, as records", h.BaseSequence)
	case a.Has(record.AttrTransactional) && h.ProducerID == model.NoProducer:
		return invalid("the batch is transactional, and has no producer id")
	}
	return nil
}

// checking is the look at the records of one batch.
type checking struct {
	s     *scanner
	rules *Rules
	h     *record.BatchHeader
	now   int64
	first int // index of its first record within the request
	limit int64
	out   *Result
	maxTs int64

	before []byte // the request's batches before this one
	whole  int    // bytes of the request
}

// records looks at every record and requires that nothing follows.
func (c *checking) records() error {
	c.maxTs = math.MinInt64
	for i := range int(c.h.Count) {
		if err := c.record(int64(i)); err != nil {
			return at(c.first+i, c.cause(err))
		}
	}
	if c.s.more() {
		return invalid("bytes follow the last of the batch's %d records", c.h.Count)
	}
	return c.s.err
}

// cause is what the stream under the scanner says, where that is more than the scanner's
// own error.
func (c *checking) cause(err error) error {
	why := c.s.err
	switch {
	case why == nil:
		return err
	case errors.Is(why, errEnds), errors.Is(why, errLength), errors.Is(why, errBadNumber), errors.Is(why, errReserved):
		return invalid("%s", why.Error())
	}
	return why
}

func (c *checking) record(i int64) error {
	s := c.s
	n := s.int()
	end := s.at() + n
	switch {
	case s.err != nil:
		return s.err
	case n < minRecordBody:
		return invalid("its length is %d", n)
	case end > c.limit: // a length that only claims: nothing is inflated for it
		return c.tooLong(n)
	}
	s.byte() // attributes: unused, as in Kafka
	ts, overflow := addTimestamps(c.h.BaseTimestamp, s.long())
	delta := s.int()
	key := s.int()
	payload := max(key, 0)
	if key != -1 {
		s.skip(key, end)
	}
	if value := s.int(); value != -1 {
		payload += max(value, 0)
		s.skip(value, end)
	}
	payload += c.headers(end)
	switch {
	case s.err != nil:
		return s.err
	case s.at() != end:
		return invalid("it does not fit its length")
	case delta != i:
		return invalid("its offset delta is %d instead of %d", delta, i)
	case key == -1 && c.rules.Compact:
		return invalid("a topic with cleanup.policy=compact takes no record without key")
	case overflow && !c.rules.LogAppendTime:
		return model.Errorf(model.InvalidTimestamp, "its timestamp is out of range")
	}
	c.out.Payload += int(payload)
	return c.timestamp(ts)
}

func (c *checking) tooLong(n int64) error {
	if c.h.Attributes.Codec() == record.None {
		return invalid("its length is %d, and the batch ends before", n)
	}
	return model.Errorf(model.RecordTooLarge, "the batch inflates to more than %d bytes", c.limit)
}

// headers passes over a record's headers and gives their size.
func (c *checking) headers(end int64) (payload int64) {
	s := c.s
	n := s.int()
	if n < 0 || n > (end-s.at())/2 { // each takes two bytes at least
		s.fail(errLength)
		return 0
	}
	for range n {
		name := s.int()
		if name == int64(len(reserved)) {
			c.name(end)
		} else {
			s.skip(name, end)
		}
		value := s.int()
		if value != -1 {
			s.skip(value, end)
		}
		if s.err != nil {
			return 0
		}
		payload += name + max(value, 0)
	}
	return payload
}

// reserved is the name of a header that only nodes write (storage/dedupe).
const reserved = "tidewire-idem"

var errReserved = errors.New("its header " + reserved + " is written by nodes alone")

// name reads a header's name that is as long as the reserved one.
func (c *checking) name(end int64) {
	if int64(len(reserved)) > end-c.s.at() {
		c.s.fail(errLength)
		return
	}
	same := true
	for i := range len(reserved) {
		same = c.s.byte() == reserved[i] && same
	}
	if same && c.s.err == nil {
		c.s.fail(errReserved)
	}
}

func addTimestamps(base, delta int64) (ts int64, overflow bool) {
	ts = base + delta
	return ts, (ts > base) != (delta > 0) && delta != 0
}

// timestamp applies message.timestamp.*.max.ms (KIP-937) and notes what is old. Where the
// time of the append replaces it, it may be anything.
func (c *checking) timestamp(ts int64) error {
	r := c.rules
	if r.LogAppendTime {
		return nil
	}
	switch {
	case ts < 0:
		return model.Errorf(model.InvalidTimestamp, "its timestamp %d is negative", ts)
	case r.AfterMaxMs >= 0 && ts > c.now && ts-c.now > r.AfterMaxMs:
		return model.Errorf(model.InvalidTimestamp, "its timestamp %d is more than message.timestamp.after.max.ms=%d ahead of this node's clock", ts, r.AfterMaxMs)
	case r.BeforeMaxMs >= 0 && ts < c.now && c.now-ts > r.BeforeMaxMs:
		return model.Errorf(model.InvalidTimestamp, "its timestamp %d is more than message.timestamp.before.max.ms=%d behind this node's clock", ts, r.BeforeMaxMs)
	}
	if r.OldMs >= 0 && ts < c.now-r.OldMs {
		c.out.Old++
	}
	c.maxTs = max(c.maxTs, ts)
	if c.out.keepTimestamps {
		c.out.Timestamps = append(c.out.Timestamps, ts)
	}
	return nil
}
