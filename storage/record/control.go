package record

import (
	"encoding/binary"

	"tidewire/internal/model"
)

// ControlType says what a control batch's record means; it is the second half of the
// record's key.
type ControlType int16

// The markers that end a transaction (KIP-98).
const (
	ControlAbort  ControlType = 0
	ControlCommit ControlType = 1
)

// Marker is the record of a control batch that ends a transaction: its key is version
// (int16, 0) and type (int16), its value version (int16, 0) and coordinator epoch (int32).
type Marker struct {
	Type             ControlType
	CoordinatorEpoch int32
	Timestamp        int64
}

const (
	controlKeySize   = 4
	controlValueSize = 6
)

// Marker decodes the marker of a control batch. ok is false when the batch has none:
// compaction has removed it, or it is a control record of another type. The CRC is not
// checked. Errors: CorruptBatch.
func (b *Batch) Marker() (m Marker, ok bool, err error) {
	if !b.Header.Attributes.Has(AttrControl) {
		return m, false, corrupt("the batch at offset %d is no control batch", b.Header.BaseOffset)
	}
	if b.Header.Count == 0 {
		return m, false, nil
	}
	if b.Header.Attributes.Codec() != None || b.Header.Count != 1 {
		return m, false, corrupt("the control batch at offset %d is compressed or has %d records", b.Header.BaseOffset, b.Header.Count)
	}
	var it Iterator
	if err := b.Records(nil, &it); err != nil {
		return m, false, err
	}
	if !it.Next() {
		return m, false, it.Err()
	}
	r := it.Record()
	if len(r.Key) < controlKeySize || int16(binary.BigEndian.Uint16(r.Key)) < 0 {
		return m, false, corrupt("the control record at offset %d has a bad key", r.Offset)
	}
	m.Type = ControlType(binary.BigEndian.Uint16(r.Key[2:]))
	if m.Type != ControlAbort && m.Type != ControlCommit {
		return m, false, nil
	}
	if len(r.Value) < controlValueSize || int16(binary.BigEndian.Uint16(r.Value)) < 0 {
		return m, false, corrupt("the control record at offset %d has a bad value", r.Offset)
	}
	m.CoordinatorEpoch = int32(binary.BigEndian.Uint32(r.Value[2:]))
	m.Timestamp = r.Timestamp
	return m, true, it.Err()
}

// FinishMarker makes the builder's contents the control batch that ends a producer's
// transaction, as Finish does. What was added before is dropped.
func (b *Builder) FinishMarker(id model.ProducerID, epoch model.ProducerEpoch, m Marker) ([]byte, error) {
	b.Reset()
	b.SetAttributes(AttrTransactional | AttrControl)
	b.SetProducer(id, epoch, -1)
	key := binary.BigEndian.AppendUint16([]byte{0, 0}, uint16(m.Type))
	value := binary.BigEndian.AppendUint32([]byte{0, 0}, uint32(m.CoordinatorEpoch))
	b.Add(m.Timestamp, key, value, nil)
	return b.Finish(None)
}
