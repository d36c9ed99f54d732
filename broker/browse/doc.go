// Package browse reads records of many partitions as one sequence: the merge behind
// GET /v1/topics/{topic}/records and its streams.
//
// # Order
//
// A read takes again and again, among each partition's next record in offset order, the
// one with the least (timestamp, partition); backward, among each partition's previous
// record, the one with the greatest. Where timestamps follow the offsets that is the order
// of time, and reading backward is reading forward in reverse. Where they do not, offset
// order within a partition comes first, and the two ways may interleave the partitions
// differently. A filter leaves records out of the sequence and does not change it: a read
// with a filter goes through time evenly, so that its progress means something, and a
// sparse search can stop and go on anywhere.
//
// # Memory
//
// A source holds stored batches of its partition, at least one and few otherwise, and the
// inflated records of one of them. What all sources of a Merge hold is kept below its
// budget plus one batch: beyond it the source whose next record is furthest away gives up
// its bytes, keeps the record's time and offset, and reads again when its turn comes. So
// memory does not grow with the number of partitions, nor with what they inflate to.
//
// # State and locks
//
// Nothing here has a lock, a goroutine or a clock; a Merge belongs to its caller, which
// bounds the time by the work that Scan may do in one call. Nothing is held open between
// calls: no segment, no lock of a log. Records that retention, a deletion or compaction
// takes away while they are ahead are passed over.
//
// # Cursors
//
// A cursor holds the boundary of each partition, and so works on any node. It is told to
// clients as opaque text and comes back as untrusted input; format.go has its bytes.
//
// Rejected: an index across partitions, which every append would pay for; merging what
// passed the filter, for which every partition would have to be searched for its next
// match before anything could be given; reading backward by an index of positions of its
// own: the log's sparse index answers "from this offset", and a step that adapts to the
// size of the records asks it for little more than what is used.
package browse
