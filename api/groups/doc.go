// Package groups is the HTTP door to consumer groups: groups as people look at them and
// change them, and members that join, read, commit and leave, by requests or by a stream of
// events. The handlers decode, look at rights, call and encode; what groups are and do is in
// broker/coordinator and broker/group.
//
// # Rights
//
// Who uses a group needs read on the group and on each topic that the request names, as in
// Kafka; who looks at it describe, and of what concerns topics nothing is told that the
// caller may not describe. Reading looks at the topics' rights in the coordinator, where
// records are given, again and again.
//
// # Reading
//
// An answer of records is written while it is read: nothing of a long poll is in memory
// while it waits. An event of a stream is gathered first, since its id (the cursor behind its
// records) comes before them; it is bounded, counts in the node's budget of requests under
// way, and the buffer is given back before the stream waits again.
//
// A stream is one poll after the other. Between them it holds nothing of the group, and the
// client's pace is the stream's. What was written is committed by the clock where the member
// has auto-commit.
//
// The package holds no state beside what requests under way have.
package groups
