// Package offsetslog is the codec of the internal topic __consumer_offsets: committed offsets in
// Apache Kafka's own formats, and what groups and their members are in records of our own,
// which Kafka's tools skip since they do not know the version in their keys. It is pure: keys
// and values on one side, group.Record on the other. docs/formats.md states every byte.
//
// # Keys
//
// A key begins with an int16. Kafka has 0 and 1 for committed offsets and further small numbers
// for its own groups, which we pass over, as Kafka does with ours: they lie from 0x5401 on. Each
// kind of record has a number and never changes it; a record that a number was once used for
// is not given to another.
//
// # Values
//
// A null value is a tombstone: the fact of that key is no more. A value of our own begins with a
// version. One that is above what this build knows is an error, since state that is not
// understood must not be ignored: the partition is not served.
//
// # Where a group is
//
// All records of a group are in one partition, PartitionOf, as Kafka's tools compute it.
package offsetslog
