// Package record is the codec of Apache Kafka's RecordBatch v2 (magic 2), the
// one form in which records are stored, replicated and handed to binary clients.
// docs/formats.md states every byte.
//
// Builder makes batches of records (the HTTP produce path), ParseBatch and Iterator
// read stored ones, Rewriter and Deflater make others of them, and the setters change in
// place what the log assigns. Those that clients hand in are checked by storage/ingest. The
// package does no I/O; Builder, Decompressor and Iterator are reused and pooled by their
// owners. Records alias the batch, or the Decompressor's buffer.
//
// Bounds: nothing is allocated by a length that the bytes merely claim, but out of the
// Budget. Inflation stops at the Decompressor's limit, MaxInflated for what a node stores. A
// batch of more than a MiB is counted before there is memory for it, and that memory comes
// out of the node's Budget, as do a codec's large windows and blocks.
//
// Decisions: one header decoder and one record decoder serve recovery and reads. Inflation
// goes into one buffer instead of a stream of records, since records may then alias it.
// Rejected: to let buffers grow with what arrives and bound the number of readers, as a few
// large batches then stop all who read small ones. Snappy is written in snappy-java's frame,
// which every client reads. Rejected: kmsg's batch types, which copy; they check this package
// in its tests.
package record
