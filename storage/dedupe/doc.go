// Package dedupe is what one log remembers of the Idempotency-Keys under which records were
// stored in it, so that a request which is repeated is stored once.
//
// # Purpose and callers
//
// The broker makes a Stamp of each request with a key, and puts it into the first record of
// each of the batches that the request becomes, one in a partition. Whoever appends a batch
// (leader, follower, recovery) enters it into the log's Index; the partition looks into that
// before it appends. storage/log keeps the Index, its locks and its file; this package knows
// batches, offsets and times, and neither files nor clocks. docs/formats.md states every byte.
//
// # Decisions
//
//   - The stamp is a header of the first record (HeaderName), so that it is replicated,
//     synced and truncated with the records. Readers of records do not get it, and nobody can
//     send it.
//   - The batch says by its base sequence (MarkSequence), which means nothing without a
//     producer id, that its first record has a stamp. Rejected: to look into every batch,
//     which for compressed ones would mean to inflate them all, also on followers.
//   - The stamp has the number of partitions that the topic had, besides what the design lists:
//     a repeat finds its partitions by it, though the topic has grown meanwhile. And it has the
//     time of the request, which the window counts from on every replica alike, and which
//     records without a timestamp have.
//   - An entry counts while its window has not passed by either of two clocks: the wall clock
//     since the request, and a steady one since this process took the entry in. So a wall clock
//     that is wrong, of the node that was asked or of the one that has the log, forgets nothing
//     early. After a restart, or where a follower takes over, keys count for longer than their
//     window.
//   - Entries outlive their records: retention and compaction may take those away within the
//     window. So the file is written before they do.
//   - Where there is no room left, no further key is taken (Full) until others are forgotten.
//     Rejected: to forget keys early, which stores records twice and tells nobody. Followers
//     and recovery take what there is: a leader took it before.
//   - Entries lie in blocks that are never changed once full, so that a View for the file
//     costs a list of pointers under the log's lock, and no copy.
package dedupe
