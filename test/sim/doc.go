// Package sim is the seeded simulation of the log engine and the proof that damage is
// found. It has tests only.
//
// A seed draws some hundred steps, each of which does something to one log of a real
// store: it leads and follows, serves idempotent producers and transactions, is compacted,
// cut, has its start moved, expires, fills the disk, meets failing files, and loses its
// process or its power at any operation. Beside it stands a list of all batches that were
// ever handed in (model), from which plain loops work out what the log must say.
//
// All runs in memory (fsx.Mem) and in a bubble of testing/synctest, where the clock stands
// still while anything runs. So a seed gives the same run each time, syncs and checkpoints
// included:
//
//	go test ./test/sim -run TestModel -first-seed 4711 -seeds 1 -v
//
// With -seeds, -first-seed and -steps more or others are run; make sim does so. A run
// prints how often each step, fault and check came up, and fails when one never did.
//
// TestModel has restarts, kills and failing operations; TestCrash power cuts too, of which
// every unsynced byte and directory entry is kept or lost by the seed. TestDamage changes
// files of a stopped, and of a killed, data folder.
package sim
