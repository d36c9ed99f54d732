// Package groups is the seeded simulation of the core of consumer groups (broker/group).
// It has tests only.
//
// A seed draws some hundred steps over one group: members join, poll, commit, seek, leave
// and fall silent; answers are late, lost, or given to old cursors; topics come, grow, go
// and come again; the wall clock jumps; the coordinator moves, which drops its state, loses
// a part of the log that nobody was answered for, and folds the rest. The simulation is
// the shell in small: it keeps the log, keeps answers back until their records are
// committed, reads pretended logs for polls in several steps, and calls Tick, late at times.
//
// After each step it checks
//
//   - that no partition is held by two members, and that no answer gives records of a
//     partition for a grant after an answer was given for a later one;
//   - that a member reads on where its cursor says, for this very grant, and else at the
//     committed offset;
//   - that nothing is skipped: below where anybody reads, every record was received by some
//     member, but for what a reset policy or an operator jumped over;
//   - that no committed offset goes back by itself;
//   - that a refused operation changes nothing;
//   - that the state is what its log folds to, whole or compacted.
//
// At the end the storm ceases, and every member that lives must get all that is its own:
//
//	go test ./test/sim/groups -first-seed 4711 -seeds 1 -v
//
// A run prints how often each step and effect came up, and fails when one never did.
package groups
