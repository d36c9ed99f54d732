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
