// Package audit keeps the audit log: who changed what, from where, and how it ended, as
// records of the internal topic __audit.
//
// # Entries
//
// A door makes an Entry of each call that may change something, once it has ended, and hands
// it to Log.Record: changes that were made and those that were refused, logins that succeed
// and fail. What changed is told by Changes, from the metadata before and after: it names
// only fields that are no secret. An entry holds no body, query, token or password, and
// nothing that a client sent but names, which are cut to a length; as JSON it has no line
// breaks. Its form is persisted (docs/formats.md).
//
// # Writing
//
// Record puts the encoded entry into a bounded queue, from which one goroutine (Run) writes
// it in order, many at a time, with acks=all. Record returns once the entry is written, so
// that a change that was answered is in the log; but it waits no longer than a second, and
// not at all while writing fails: the log must not take changes down with it. What the queue
// has no room for is counted, logged, and told by an entry of its own once writing works
// again. So is what is left of floods: entries about calls that changed nothing are limited
// for each address and in all, since anybody can cause them.
//
// # State and locks
//
// Log.mu guards queue and counters; it is never held while something is written or waited
// for. Run ends with its context, after a last try at what is queued.
package audit
