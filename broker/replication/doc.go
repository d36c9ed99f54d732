// Package replication is the core of replicating a partition, pure: what a leader knows of
// its followers, how far the high watermark goes and who is in sync (Leader); how a leader
// answers a fetch (Serve); and what a follower does with an answer (Next). It does no I/O,
// keeps no clock, and is for one caller at a time. The engine (broker/partition), the
// transport (broker/follow) and the simulation (test/sim/replicas) are its callers.
//
// # The rules
//
// A follower pulls. A fetch says where its log ends, in which leader epoch its last batch was
// written, and how far it is synced. The leader compares the epoch with its own log (KIP-101,
// 279, 595): where the follower has more of that epoch than the leader, the logs part, and the
// answer says where; the follower cuts there and asks again. So a log that is served is a
// prefix of the leader's, whatever leaders there were in between, and the high watermark alone
// never decides on truncation.
//
// The high watermark is the lowest stable end of the maximal ISR, leader included, and stays
// while fewer than min.insync.replicas are in sync (KIP-966). The maximal ISR is what is
// committed together with those whose joining is proposed: whether the proposal is committed
// is not known until the metadata says so, and until then both must be safe (KIP-497). Who
// leaves counts until that is committed.
//
// A follower is in sync while its fetches reach the log end that was there at its fetch before,
// and its stable end does; one that has not for the lag time leaves. It may join when its
// stable end has reached the high watermark and the start of the leader's epoch.
package replication
