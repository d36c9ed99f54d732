// Package check reads a data folder, or a part of one, that no node has open, and tells
// what in it is not as docs/formats.md says: the log's batches, what is derived from them
// (indexes, aborted transactions, producers, leader epochs) and the checkpoints, each by
// itself and against the others.
//
// Callers: the command line (`tidewire check`). Run verifies, Dump prints. Nothing is
// changed, but by Options.RepairIndexes, which makes indexes anew from the logs and never
// touches a .log file. That no node runs meanwhile is for the caller to see to.
//
// Decision: the formats are read here once more instead of through the log engine, whose
// own opening repairs, truncates and removes. A second reading from the documentation also
// finds a mistake that writer and reader of the engine share. Batches are read by
// storage/record, which does no I/O. Rejected: opening a copy of the folder with the engine
// (needs the room, and tells what was repaired only in its log).
//
// Findings are damage or notes. Damage is what a start would refuse, repair or read wrongly.
// A note is what a start takes in its stride: a torn tail above the recovery point after a
// kill, indexes that recovery builds anew, files left over by an interrupted deletion.
package check
