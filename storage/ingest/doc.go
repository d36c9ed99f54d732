// Package ingest checks the record batches that clients hand in ready made, and makes of
// them what a topic's settings ask for.
//
// # Purpose and callers
//
// The broker gives it the bytes of a produce request (HTTP's
// application/vnd.kafka.record-batches, later the Kafka port's Produce) and appends what
// comes back. Parse looks at what the request alone shows: frames, checksums, headers. Check
// looks at every record, under the topic's rules: it inflates compressed records as a stream,
// in memory that does not depend on what they inflate to, and never beyond
// record.MaxInflated. Batches are stored as they came, byte for byte, except that a wrong
// largest timestamp is put right, and that a compression.type other than producer makes
// them anew.
//
// # Limits
//
// A Pool inflates only a few batches at a time, and holds what a codec needs beyond a MiB
// against the node's record.Budget; others wait, bounded by their context. So fifty batches of
// 500 KB that claim to be gigabytes cost processor time, a few at a time, and no memory.
//
// # Errors
//
// What was damaged on the way is CorruptBatch (Kafka's CORRUPT_MESSAGE, on which clients try
// again): frames cut short, checksums. With a checksum that fits, what is wrong is the
// client's doing: InvalidRecord (INVALID_RECORD), InvalidTimestamp, UnsupportedCompression,
// RecordTooLarge (MESSAGE_TOO_LARGE). Errors about one record have the pointer
// /records/<index within the request>.
//
// # Decisions
//
// Records are scanned by a decoder of their own instead of record.Iterator: that one needs
// all of them in memory, and keeps what it reads. A test compares the two, and both with
// other implementations. Numbers that Kafka reads as 32 bits must fit them here too, in at
// most five bytes: its readers would stop at them for ever. Negative timestamps are refused,
// −1 included, which Kafka takes as "none": no client of today sends it, and time would have
// no order with it.
package ingest
