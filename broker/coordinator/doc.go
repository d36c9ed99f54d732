// Package coordinator looks after consumer groups: it is the shell around the pure core of
// package group, and the façade that every door calls. What groups are is in the compacted
// internal topic __consumer_offsets; a node looks after the groups of the partitions that it
// leads.
//
// # Where state is
//
// A group's records are in one partition (offsetslog.PartitionOf). When this node comes to lead
// it, a shard reads it whole, once everything in it is committed, and folds the records into
// groups; when the leadership goes, the shard ends and forgets them. A shard belongs to one
// leader epoch, and appends in no other: what an answer rests on was committed by this very
// leadership. Nothing is kept elsewhere, so a node that is killed forgets nothing that was
// answered.
//
// # Rounds
//
// An actor looks after one group. Operations run in rounds: all that are queued are run one
// after another, what they write is appended as one batch with acks=all, and all of them,
// those without records too, are answered when it is committed; what comes meanwhile is the
// next round. So the state that an operation sees is always committed, calls of one group
// share a sync, and rounds of several groups of a partition are merged by its log. A round
// that fails is answered as failed, and its group is read again from the log.
//
// There is no goroutine per group or member: the caller who begins a round sees it to its end,
// and one goroutine takes over where that caller has gone or more is queued.
//
// # Time
//
// Each group has one deadline, the earliest of its own, in one heap; the monotonic clock
// decides. Only what is stored, and the expiry of offsets, goes by the wall clock, and nothing
// expires while that is in doubt.
//
// # Polls
//
// A poll goes through the group three times at most: Poll, Resolve where a position is
// missing or out of range, Answer right before records are given. In between it waits with one
// registration, which new records of any of its partitions, a change of its assignment, a later
// poll of the member, the end of the caller's credential, and the node's stop wake. While it
// waits it has no memory of records: they are counted, and read once it is known that the poll
// may be answered. Nor has it a goroutine where its door can go on with it later (PollLater).
//
// # State and locks
//
// actor.mu guards a group and is never held while something is waited for. Lock order:
// actor.mu, then one of Coordinator.mu, shard.mu, timers.mu or a partition's; Coordinator.mu
// then shard.mu. Partitions call back under their own lock, and do no more than close a
// channel.
//
// # Start and stop
//
// Start follows the metadata; the topic is made when the first group is. Drain answers waiting
// polls; Stop, after the group of goroutines has ended, forgets everything.
//
// # Rejected
//
// Deciding the next operation on records that are not committed yet (as Kafka's runtime does,
// which can go back to snapshots): a batch that fails in the middle of others would leave
// answers that rest on nothing, and rounds share syncs just as well. A goroutine per group: tens
// of thousands idle ones. A group read again by itself from a side index: a failed append is
// rare, and the whole partition is soon read.
package coordinator
