// Package replicas is the seeded simulation of replication: the core of leaders and followers
// (broker/replication), who is in sync and who leads (cluster/metadata), and who is fenced
// (cluster/controller), over a network, disks and processes that fail. It has tests only.
//
// A seed draws some hundred steps over one partition with three or four replicas on four or five
// nodes: producers write to whoever believes to lead, logs are synced late, fetches and answers are late, lost, doubled and
// overtake each other, nodes learn of the metadata at different times, are cut off, lose their
// process or their power with what was not synced, come back, also with an empty disk, and
// proposals of in-sync sets arrive late or lose their answer. Meanwhile the partition is moved to
// other nodes, moves are replaced and cancelled, nodes are drained (cluster/placement), and
// preferred leaders elected; who holds no replica any more has discarded its log.
//
// After each step it checks
//
//   - that no offset ever has two values below a high watermark that any leader has shown;
//   - that every record that was acknowledged is below that, with its value;
//   - that every member of the committed ISR, and every eligible replica, has synced all of it;
//   - that an epoch has one leader, and its high watermark does not go back.
//
// At the end the storm ceases, and all replicas must become equal and in sync, and be just those
// that were asked for last:
//
//	go test ./test/sim/replicas -run TestReplicas -first-seed 4711 -seeds 1 -v
//
// TestPlantedFaultsAreFound breaks the rules one by one, and fails when that goes unnoticed.
package replicas
