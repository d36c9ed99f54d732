// Package founding decides which of several new nodes founds a cluster. It is pure: it is
// told what is seen and said, and tells what to keep, ask and answer.
//
// The rule. Nodes that expect N > 1 found a cluster only together: the one with the lowest
// node id that it sees asks the others for their grant, and founds, alone, once N−1 of them
// have given it and it has given its own to itself. A grant is kept on disk before it is
// said. Only a node that belongs to no cluster gives one, and only one. So of fewer than 2N
// nodes that expect N at most one ever founds: two would need 2N grants. The others join
// the founder's cluster.
//
// Grants may have to move, or N+1 nodes that start at once could split them so that nobody
// ever gets N−1. One that holds its own grant and has not founded may yield to a lower id,
// for good: it gives its own grant to it. What was granted to the one that has yielded is
// free then, since without its own grant it never founds. Ids only fall along such moves, so
// they end.
//
// A node that was granted and is gone for good before it founded stands in the way: whether
// it founded nobody can know. Decision.Wait says so, and an operator decides.
package founding
