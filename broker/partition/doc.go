// Package partition is one replica of a partition as its leader serves it: it turns
// slices of produce requests into batches, appends them to the log, decides when a
// slice is committed, and wakes readers.
//
// # Words
//
// The log end offset (LEO) is the log's written end, the stable end its synced end.
// The high watermark (HW) is the lowest stable end of the maximal in-sync replica
// set; it never decreases. Readers see what lies below it, and acks=all answers when
// it has reached a slice's end. With one replica the HW is the stable end.
//
// # Merging
//
// Slices of plain requests that arrive while the log is being synced are collected in
// an open batch. When the sync ends the open batch is sealed: appended as one batch
// and synced at once, so under load many requests share one batch and one fdatasync,
// and a lone request waits for nobody. An acks=leader slice seals the open batch it
// joins, since it must not wait for company. Slices that wait for the partition's lock,
// because an append is in the kernel, are taken together by the next one to get it, so
// they share a batch too and wait no longer for it. Order of arrival is order in the log:
// a slice that cannot share a batch first has what is open sealed. (Rejected: a linger timer as in Kafka's
// producer, which delays lone requests; a goroutine per partition fed by a channel,
// which measured five times slower than appending under the mutex.)
//
// # Keyless records
//
// A partition takes a topic's keyless records for a turn, which ends with a sync of its
// log or after 64 KiB: what arrives together lands in one log, so that few logs are
// synced at a time, and all get their share. (Rejected: a turn for each append. Under
// acks=leader it keeps every log of a topic dirty, and each is synced all the time.)
//
// # State and locks
//
// Everything is under Partition.mu. Lock order: Partition.mu, then Partition.inboxMu
// or the log's own mutex. The log calls back holding no lock of its own. No lock is held while waiting:
// a producer waits on its Completion, a reader on its Watcher.
package partition
