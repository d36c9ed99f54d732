// Package record is the codec of Apache Kafka's RecordBatch v2 (magic 2), the
// one form in which records are stored, replicated and handed to binary clients.
// docs/formats.md states every byte.
//
// Builder makes batches of records (the HTTP produce path), Validate checks those
// that clients hand in whole, ParseBatch and Iterator read stored ones, and the
// setters change in place what the log assigns. The package has no state and does
// no I/O; Builder, Decompressor and Iterator are reused and pooled by their
// owners. Records alias the batch, or the Decompressor's buffer.
//
// Bounds: nothing is allocated by a length that the bytes merely claim. Inflation
// stops at the Decompressor's limit; zstd frames that do not tell their length get
// a window of at most 8 MiB.
//
// Decisions: one header decoder and one record decoder serve validation, recovery
// and reads. Inflation goes into one buffer instead of a stream of records, since
// records may then alias it; memory is bounded by the limit times the number of
// Decompressors in use, which the owner of the pool bounds. Snappy is written in
// snappy-java's frame, which every client reads. Rejected: kmsg's batch types,
// which copy; they check this package in its tests.
package record
