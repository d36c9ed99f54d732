package broker

import "tidewire/internal/model"

// TopicTotals is what this node counts of a topic. Bytes and records are since the process
// began.
type TopicTotals struct {
	ID                    model.TopicID
	BytesIn, BytesOut     int64
	RecordsIn, RecordsOut int64
	SizeBytes             int64 // of record data on this node
	Partitions, Offline   int   // with a replica here, and of those that cannot be read
}

// Totals yields what this node counts of each of its topics.
func (b *Broker) Totals(yield func(TopicTotals) bool) {
	b.topics.Range(func(_, v any) bool {
		t := v.(*topic)
		parts := *t.parts.Load()
		n := TopicTotals{
			ID: t.id, BytesIn: t.rates.bytesIn.Load(), BytesOut: t.rates.bytesOut.Load(),
			RecordsIn: t.rates.recordsIn.Load(), RecordsOut: t.rates.recordsOut.Load(),
			Partitions: len(parts), Offline: countFailed(parts),
		}
		for _, l := range t.openLogs() {
			if l != nil {
				n.SizeBytes += l.Size()
			}
		}
		return yield(n)
	})
}
