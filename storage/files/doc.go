// Package files caps the open files of the log engine (Cache). storage/log opens every
// file through it: those that it comes back to by a Handle, which opens its file when it is
// used and keeps it open until room is needed, the rest by OpenFile, ReadDir and SyncDir,
// each of which holds a place for as long as it runs.
//
// # Pins
//
// Each operation of a Handle pins its descriptor for as long as it runs, so that an
// eviction never closes, and the kernel never gives to another file, what is being read,
// written, synced or sent from (Pin serves the last). What is sent goes at the pace of its
// reader, who may be slow: so Pin gives half of the places at most, and refuses beyond.
//
// # Which file goes
//
// Of the files that nobody uses, those without unsynced bytes go first, the one used
// longest ago before the others. Linux reports that a page could not be written back to
// descriptors that are open at the time; a later one may learn nothing of it, and an fsync
// by it succeed over lost data. So a file with unsynced bytes is synced before it is closed,
// when only such are left. An error of that sync stays with the Handle: every later write,
// truncation and sync of it fails with it, so that the log latches as it does when its own
// sync fails. Rejected: never to evict such files, since the indexes of active segments
// are not synced for long, and with enough of them nothing could be opened any more.
//
// # Places
//
// Who needs a place when all are in use waits until an operation ends. Nobody who has a
// place takes a lock of storage/log or another place, but for holders of Pin, who never have
// all, so the wait ends. The wait, and the
// sync before an eviction, may come while the caller holds its log's mutex: it is the
// counter-pressure of more files being written at a time than may be open, and only the
// log that needs the file is held up.
//
// When the process has no descriptor left all the same (EMFILE, ENFILE: the cap is above
// what connections leave over), files that nobody uses are closed and the call is repeated;
// the error comes only once none is left to close.
//
// # State and locks
//
// Cache.mu guards all places and lists, and is never held across I/O. Handle.open is held
// while a Handle's file is opened or renamed, so that an open finds the name that the file
// has. Lock order: Handle.open → Cache.mu. There is no goroutine and nothing to stop.
//
// Rejected: a goroutine that syncs ahead of evictions (a node with fewer active files than
// places, which is nearly every one, would have it for nothing), and a lock for each
// Handle with a heap of times of use (the one mutex costs 20 ns beside a system call).
package files
