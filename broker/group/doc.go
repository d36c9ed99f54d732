// Package group is the pure core of consumer groups: who is a member, which partitions
// each may read, and from where. It follows Kafka's KIP-848 (assignment by the server,
// epochs, incremental reconciliation), for members that poll over HTTP and sockets. It
// does no I/O, reads no clock, starts no goroutine and rolls no dice; ids and times come
// with each call. The shell that owns it (the coordinator) keeps the log, the timers and
// the doors' calls.
//
// # State is a fold
//
// Every durable fact is a Record with a Key, and Group.Apply is the only way in which
// durable state changes, live and on replay. An operation decides from the state, applies
// the records of its decision at once, and returns them in Effects. The shell
//
//   - serialises the calls to a Group,
//   - appends the records of one operation as one batch, in the order of operations,
//   - keeps back every answer, also of an operation without records, until the last record
//     that the group had then is committed (an answer may rest on what an earlier, still
//     uncommitted operation did), and
//   - when an append fails drops the Group and loads it anew from the log.
//
// An operation that returns an error has changed nothing durable. A Tombstone takes a
// record away; a log that keeps the last record of each key folds to the same state.
//
// After a replay, Load starts what is not durable: sessions and time-outs begin in full.
// A member goes on without joining again.
//
// # Epochs
//
// The group's epoch rises when members, subscriptions or the topics they match change.
// The assignor then makes a target assignment for that epoch: at once, or, where another
// was made less than Settings.AssignmentInterval ago, when that has passed, so that a
// hundred joins are not a hundred assignments. Each member is then led from what it has
// to its target: what it is to lose is being revoked from that moment; what it is to get
// is granted as soon as nobody else holds it. Partitions that do not move are not touched.
//
// Each change of what a member holds makes a new Version of its assignment. A grant is
// named by the version that it came with (Since), a revocation likewise (Revoked).
//
// # Hand-over
//
// A partition being revoked yields no more records; its holder may commit it; nobody else
// has it. It is released
//
//   - by a poll or a commit with a cursor whose Version is at or past Revoked: the member
//     has seen the answer that named it,
//   - by a poll without cursor once an answer has named it,
//   - by Release, which sockets use,
//   - when the grace that began with the first answer naming it has passed,
//   - when the member leaves, expires or is fenced,
//   - at once, where no answer has shown the grant to the member.
//
// Its next holder begins at the committed offset.
//
// # A poll, step by step
//
//  1. Poll: counts as a heartbeat until its wait is over, commits and releases by the
//     cursor, and tells what may be read and from where (PollResult).
//  2. If PollResult.Unresolved is not empty the shell asks the logs and calls Resolve.
//  3. The shell reads, waits, and is woken by Effects.Changed of others' operations.
//  4. Answer, right before the answer is written: it gives the assignment of this moment,
//     starts the grace of what it names as being revoked, and restarts the session. Of
//     what was read, only records of partitions that the Assignment still Holds with the
//     same Since may be given. A stream or socket does so before each write of records:
//     what no Answer has shown is taken back without waiting.
//  5. MakeCursor makes the answer's cursor from the assignment and the positions reached.
//
// A poll that is ended by the member's next one is answered without Answer, with its
// PollResult's assignment and no records: its client has gone or does not read it.
//
// # Starting positions
//
// A partition that the group has no committed offset for is resolved once, by the policy
// of the member that holds it first, and the result is stored as committed offset. What
// appeared after the group subscribed starts at the log start whatever the policy: for
// each topic a record keeps how many partitions it had when the group came to know it.
//
// # Rejected
//
// Letting members report what they own (KIP-848's heartbeat): a cursor proves more with
// less. Reconciling a member only when it calls: revocations would wait for its next poll.
// Timers per member: one deadline for the group, which is recomputed when it has passed.
package group
