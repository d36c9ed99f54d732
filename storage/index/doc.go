// Package index is the files that lead into a segment of a log: the sparse indexes by offset
// and by timestamp (Index), and the aborted transactions (Aborted). docs/formats.md states
// every byte; Kafka's tools read them.
//
// # Purpose and callers
//
// storage/log adds entries as it writes batches, and looks positions up. The package knows
// entries and files, and no batch: all of it can be made anew from the segment, and whether
// an entry fits is for the caller to see. All I/O goes through
// storage/files, so that an index holds no descriptor of its own.
//
// # State and locks
//
// Each index has a small mutex of its own, since its newest entries are in memory. It is
// held across I/O that goes to the page cache, and not across the sync of a file.
package index
