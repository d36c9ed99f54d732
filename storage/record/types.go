package record

import "tidewire/internal/model"

// Header is one header of a record. Names may repeat and their order is kept; a
// nil Value is null, an empty one has 0 bytes.
type Header struct {
	Name  []byte
	Value []byte
}

// Record is one record as it is read from, or put into, a batch. A nil Key or
// Value is null; an empty, non-nil one has 0 bytes.
type Record struct {
	Offset    model.Offset
	Timestamp int64 // milliseconds since 1970
	Key       []byte
	Value     []byte
	Headers   []Header
}

// SizeBound is the most that the record can take in a batch, in bytes, wherever it stands
// in it.
func (r *Record) SizeBound() int {
	n := len(r.Key) + len(r.Value)
	for i := range r.Headers {
		n += len(r.Headers[i].Name) + len(r.Headers[i].Value)
	}
	return RecordSizeBound(n, len(r.Headers))
}
