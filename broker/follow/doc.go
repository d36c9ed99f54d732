// Package follow carries records from the leaders of partitions to their followers: one
// connection from a follower's node to each node that leads something for it, for all its
// partitions. What is said is decided in broker/replication, done by broker/partition.
//
// # The protocol
//
// A follower's node opens a connection, says who it is and in which life (hello), and then
// sends updates: where the log of a partition ends, with the epoch of its last batch, how far
// it is synced, and whether it wants what comes next. The leader's node owes a partition that
// wants something one answer: records as soon as there are any, or that the logs part, or that
// it does not lead. When that is applied the follower's next update asks again. So one answer is
// under way for each partition, an idle partition costs nothing, and memory is bounded by
// an answer on each side. A stable end or a log start that has moved is an update too, at once, which
// asks for nothing. A high watermark or a log start that moves while nothing else is to be told follows
// within 50 ms.
//
// An update without partitions is a sign of life, sent when nothing else was for half a second
// and answered with an answer without partitions; a connection that is silent for longer than
// silence is given up.
//
// # Frames
//
// All numbers are big-endian. A frame is its length, 4 bytes, and that many bytes:
//
//	hello    1 version, 1 zero, 4 broker id, 8 epoch of its registration
//	updates  any number of: 16 topic id, 4 partition, 1 flags (1 wants, 2 goes), 4 leader epoch,
//	         8 log end, 4 epoch of the last batch, 8 stable end, 8 log start
//	answers  any number of: 16 topic id, 4 partition, 1 status, 4 leader epoch, 8 log end
//	         and 4 epoch of the last batch in the update, 4 epoch and 8 end where logs part,
//	         8 log start, 8 high watermark, 1 flags (1 compacted), 4 length of the batches, the
//	         batches
//
// # Goroutines and locks
//
// Each side has one that reads and one that writes for each connection. A partition calls a
// session under its own lock, so that a session never calls a partition under the session's.
package follow
