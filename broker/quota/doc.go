// Package quota limits what each user may do on a node: bytes produced, bytes fetched and
// requests, per second. It is one place for every door.
//
// # Limits
//
// A user's limits are its own and, one by one where it has none, those of all users
// (metadata.DefaultQuota). They hold on each node for itself, as Kafka's do: a user that
// talks to three nodes may do three times as much.
//
// # Buckets
//
// Each user and kind has a token bucket that holds one second's worth: after a second of
// rest that much may come at once. Bytes are known only once a request is there, so a
// request is let in while its bucket holds anything and may then leave it with a debt; the
// next one waits until the debt is paid. So a request that is larger than a second's worth
// passes too, nobody is starved by others of the same user that are smaller, and over time
// no more passes than the limit says. Requests are counted one by one and make no debt.
//
// A call that stands for itself is refused (Take, Allow), with the time after which it may
// come again. A call that lasts is slowed: it charges what it did (Charge) and goes on once
// Delay says 0.
//
// # Cost
//
// Where no user has a limit a call costs one atomic load. Where some have, others pay one
// more lookup in a map that does not change, and take no lock. A bucket exists only while it
// is not full; those that are full are swept when new ones come, so memory follows the
// number of users that were busy lately. What time it is, the caller says.
package quota
