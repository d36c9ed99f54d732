// Package compact decides what compaction keeps of a log: for each key at least the last
// value, in the order and at the offsets that records had.
//
// Callers: storage/log, which reads the segments, writes what is kept and swaps the files.
// Nothing here touches a file or a clock.
//
// One pass over a log is two readings. The first, of the section that is dirty, fills a Map
// from keys to their last offsets (Pass.Note); when the map is full the pass covers the log
// up to there only. The second, of everything from the log start on, gives each batch to
// Pass.Clean, which answers with the bytes that stay. The rules are those of Kafka's log
// cleaner:
//
//   - A record stays unless the map has a later offset for its key. Without a key it goes:
//     it could be written only before the topic was compacted.
//   - A tombstone (null value) stays until the delete horizon of its batch, which the first
//     pass that sees it sets (KIP-534).
//   - Records of aborted transactions go, and supersede nothing. A marker stays until no
//     batch of its transaction was met in a pass, then until a delete horizon of its own. It
//     has no key, whatever its bytes look like, and stays where a pass does not cover it.
//   - The last batch of each producer, and the last one of a segment, stay, if need be
//     without records, so that sequences and offsets are not lost. A producer of whom only
//     a marker is known keeps that marker whole.
//
// Of what is dirty the second reading needs no keys: a record stays when its offset is one of
// those in the map. They are put into a set of bits, as far as the map's size has room for it,
// and a batch without any of them is not even looked into.
//
// The map holds hashes of keys: 128 bits of a keyed hash, under a random seed of the run, of the
// key, so that nobody can make two keys meet, and chance makes it once in 2^128/n² runs.
// Rejected: the keys themselves, whose size has no bound, and faster hashes that are not
// made to withstand who chooses the keys: a collision would lose a record.
package compact
