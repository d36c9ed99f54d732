// Package datadir owns a node's data folder as a whole: it makes the folder and its
// parts, keeps other processes out with a lock, publishes the addresses in use, and
// watches the free space of its disk. What lies in topics/ and meta/ belongs to the
// storage packages.
//
//	<data>/topics/         one folder per replica
//	<data>/meta/           tidewire.db, the quorum's log, identity
//	<data>/node.lock       held with flock while a node runs; its text is the pid
//	<data>/endpoints.json  addresses in use, there only while a node runs
//
// Callers: the composition root opens the folder before anything else and closes it
// last; `tidewire check` and tests read Endpoints. The lock ends with the process,
// however it ends, so a lock file that a dead process left is no obstacle; the pid
// in it is for people and is never trusted. flock needs a local file system or one
// that implements it.
//
// The package starts no goroutine: the owner calls DiskGuard.Check once a second.
// Rejected: a pid file without lock (pids are reused), fcntl locks (released when
// any descriptor of the file is closed).
package datadir
