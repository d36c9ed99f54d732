package record

import (
	"errors"

	"tidewire/internal/model"
)

// Validated says what a client's batch holds.
type Validated struct {
	Header       BatchHeader
	MinTimestamp int64
	MaxTimestamp int64 // of the records; when it differs from Header.MaxTimestamp call SetMaxTimestamp before the append
	FirstNullKey int   // index of the first record without key, or -1: compacted topics refuse it
	PayloadBytes int   // of keys, values and headers
}

// Validate checks the first batch of b as it came from a client: lengths, CRC,
// attributes, count, dense offset deltas, every record, inflating no further than
// d's limit. It returns the rest of b. Errors: CorruptBatch (also when b ends
// early), RecordTooLarge (inflation), InvalidArgument (a batch that only the
// broker may write), InvalidTimestamp (LogAppendTime set by the client).
func Validate(b []byte, d *Decompressor, it *Iterator) (Validated, []byte, error) {
	v := Validated{FirstNullKey: -1}
	batch, rest, err := ParseBatch(b)
	if errors.Is(err, ErrShort) {
		return v, b, corrupt("the batch is cut short")
	}
	if err != nil {
		return v, b, err
	}
	if err := batch.VerifyCRC(); err != nil {
		return v, b, err
	}
	v.Header = batch.Header
	if err := checkClientHeader(&v.Header); err != nil {
		return v, b, err
	}
	if err := batch.Records(d, it); err != nil {
		return v, b, err
	}
	it.dense = true
	for i := 0; it.Next(); i++ {
		r := it.Record()
		if i == 0 {
			v.MinTimestamp, v.MaxTimestamp = r.Timestamp, r.Timestamp
		}
		v.MinTimestamp = min(v.MinTimestamp, r.Timestamp)
		v.MaxTimestamp = max(v.MaxTimestamp, r.Timestamp)
		if r.Key == nil && v.FirstNullKey < 0 {
			v.FirstNullKey = i
		}
		v.PayloadBytes += r.payload()
	}
	if err := it.Err(); err != nil {
		return v, b, err
	}
	return v, rest, nil
}

func checkClientHeader(h *BatchHeader) error {
	switch {
	case h.Attributes&^knownBits != 0:
		return corrupt("the batch has unknown attributes %#x", uint16(h.Attributes))
	case h.Attributes.Has(AttrControl) || h.Attributes.Has(AttrDeleteHorizon):
		return model.Errorf(model.InvalidArgument, "a client may not write control batches or delete horizons")
	case h.Attributes.Has(AttrLogAppendTime):
		return model.Errorf(model.InvalidTimestamp, "a client may not set the append time")
	case h.Count <= 0 || int64(h.Count) != int64(h.LastOffsetDelta)+1:
		return corrupt("the batch has %d records in %d offsets", h.Count, int64(h.LastOffsetDelta)+1)
	case h.ProducerID >= 0 && (h.BaseSequence < 0 || h.ProducerEpoch < 0):
		return corrupt("the batch has a producer id without epoch or sequence")
	case h.Attributes.Has(AttrTransactional) && h.ProducerID < 0:
		return corrupt("the batch is transactional without a producer id")
	}
	return nil
}

func (r *Record) payload() int {
	n := len(r.Key) + len(r.Value)
	for i := range r.Headers {
		n += len(r.Headers[i].Name) + len(r.Headers[i].Value)
	}
	return n
}
