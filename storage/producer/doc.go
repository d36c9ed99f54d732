// Package producer is what a log knows of the producers that write to it (KIP-98): the last
// batches of each, by which a retry is told from a gap, the transactions that are open, and
// those that were aborted.
//
// # Purpose and callers
//
// storage/log asks CheckAppend before it writes, enters each batch as it is written (Enter),
// and keeps or takes back what an append changed (Commit, Rollback). A replay enters what is
// stored (Replay) into a State of its own, which the log's adopts. The codecs are of the
// producer snapshot and of the entries of the aborted transactions index; files are the
// caller's. The package is pure: bytes and times come as arguments.
//
// # State and locks
//
// A State is guarded by its owner's mutex, except LastStable, which reads a list that is
// replaced when it changes.
package producer
