// Package log is one partition's segmented log (Log), and the data folder that
// holds the logs of a node (Store). docs/formats.md states every byte.
//
// # Purpose and callers
//
// It knows bytes and offsets, and neither brokers nor topics beyond a folder's
// name and id. broker/partition appends, reads and waits for the stable end;
// internal/node opens and closes the Store. Client batches are validated by the
// caller (storage/ingest): Append checks frames only, assigns offsets and leader
// epoch in place, and writes.
//
// # Ends of a log
//
//	log start ≤ high watermark ≤ … stable end ≤ log end
//
// The log end is what has been written, to the page cache; the stable end is what
// has been synced (with write caching: the log end). What was really synced is
// kept apart (synced) and checkpointed as the recovery point.
//
// # State and locks
//
// Log.mu covers appends: stamping, writes to the page cache, rolls, the list of
// segments, epochs. Reads take no lock of the log: they load the log end, then
// the list of segments (copied when it changes), then a segment's size, which an append
// stores in the opposite order; so a read blocks no append and no append a read.
// The readers' last stable offset is a list that is replaced (storage/producer). Each
// index has a small mutex of its own, since its newest entries are in memory.
//
// Lock order, outermost first:
//
//	Log.cutMu → Store.cpMu → Store.mu → Log.mu → those of storage/index → those of storage/files
//	Log.mu → syncer.Scheduler.mu
//
// Only Log.mu and those of indexes are held across I/O, and only such as goes to the page
// cache, with four exceptions: rebuilding a damaged index, the sync of the
// active indexes when the store closes, that of an append that a full disk took back, and,
// when more files are written to than may be open, the sync of another file before its
// eviction (storage/files). No lock is held across fdatasync of a log
// file in service nor during a callback. Store.cpMu, which only the writer of
// checkpoints takes, is held across theirs, and so is Log.cutMu by truncations, the
// marker of compaction, and the end of a log's service.
//
// # Syncing
//
// The scheduler (storage/syncer) has one queue and eight workers. RequestSync queues a
// log at once; a dirty log without a waiter is queued an interval (2 ms) after it
// became dirty; the timer runs only while something is dirty. A log is with one
// worker at a time, until its callbacks have returned; what is asked for meanwhile
// runs right after. One sync covers the sealed segments not yet synced, with their
// indexes, the active segment, and the folder if files were made or removed. So
// whatever lies below the recovery point is durable: data, indexes and names.
//
// A failed sync, or any failed write but a full disk, latches the log (Failed): a
// second fdatasync may report success over pages the kernel has dropped. So recovery
// writes again what it finds above the recovery point before it syncs it. A full
// disk takes the append back whole and refuses it.
//
// # Start and stop
//
// OpenStore loads the checkpoints, removes the clean-stop marker and starts
// goroutines in the caller's lifecycle.Group; Open recovers a log, in parallel
// with others (recover.go). Close syncs, checkpoints and leaves the marker if all
// went well. It must come before the Group is stopped for callbacks to be served
// to the end, but is right after it too.
//
// # Parts
//
// What can be told apart from a log has a package of its own: producers and transactions
// (storage/producer), leader epochs (storage/epochs), the files that lead into a segment
// (storage/index), which files are open (storage/files), and what compaction keeps (storage/compact).
//
// # Decisions
//
//   - Appends run in the caller's goroutine under a mutex. Rejected: a goroutine
//     per log (measured five times slower).
//   - Index entries go to the file in blocks of 4 KiB. Rejected: a write per entry
//     (two more system calls per 4 KiB of data), and whole indexes in memory
//     (2.6 MB for each full active segment). The price is that the indexes of the
//     active segment are built anew after an unclean stop, as its data is read then
//     anyway.
//   - Index files are not preallocated and memory-mapped as Kafka's are: pread of
//     few entries and one block costs some µs, and a mapping turns an I/O error
//     into SIGBUS.
//   - Indexes are trusted only as far as a batch confirms them. Rejected: checksums
//     beside them, which Kafka's tools would not know.
//   - A segment's roll needs no sync of its own: the next sync does it before the
//     stable end passes. Rejected: syncing in the append.
//   - Checkpoints are keyed by topic id, so that a re-created topic never inherits.
//   - A lost recovery-point file makes recovery careful instead of permissive: cut
//     only what is followed by no whole batch.
//   - Segments must follow each other without a gap, and so must batches, until the
//     log is marked as compacted (gaps.go): reads refuse to step over a hole that
//     compaction did not make. Above the recovery point segments always adjoin.
//   - A truncation publishes the shorter log first and cuts files after; readers
//     count cuts and repeat what one came between. Rejected: a lock for readers.
//   - Producers are entered batch by batch while an append is written, with what
//     they were kept beside, so that a roll in its middle has the right snapshot and
//     a failed append is taken back. Snapshots are encoded at the roll and written by
//     the next sync. Rejected: to write them in the append.
//   - A producer that is not known may only begin at sequence 0 (UnknownProducer,
//     on which clients get a new epoch). Rejected: to take any sequence, as Kafka
//     does, which lets a retry in twice once the state is lost.
//   - Snapshots carry all five batches in a trailer. Rejected: Kafka's one batch,
//     which a leader without followers loses four with; and reading the log instead.
//
// # Log start
//
// AdvanceLogStarts writes the log-start checkpoint, then publishes the new start, then
// takes the segments below out of the list, then renames their files (logstart.go); the
// bin removes them after a delay (bin.go). Whoever loads the list after the start finds a
// segment for each offset above it; a reader that is late reads the renamed file until it is
// removed, and then sees by the start that its offset is out of range. A dropped segment
// holds no descriptor but while it is read. Retain (retention.go) only decides.
//
// # Open files
//
// Every file is opened through the store's files.Cache, which caps how many are open at
// once (StoreOptions.MaxOpenFiles) and closes those used longest ago for others. An idle log
// holds none after a start. Compaction publishes its segment once that is durable under
// .log.swap, and closes the old ones before their names become another's, so that none has
// to be held open for readers. Rejected: to hold the files of a group open while it is
// swapped, which are up to 192 descriptors that cannot be given to others.
//
// Seams for what comes: compaction calls MarkCompacted, then Checkpoint, then swaps, and sets lastSnap to -1
// so that the next stop writes what the indexes of aborted transactions are now; it
// must keep the last batch of a segment and of each producer.
package log
