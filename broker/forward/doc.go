// Package forward brings calls for partitions to the nodes that lead them: the client's side of
// what another node leads, and the server's side of what this one does.
//
// Callers are package broker, which decides for each partition whether it is led here, and
// package coordinator, whose own requests go by Ask and Handle.
//
// # One hop
//
// A request says which leader epoch it means. The node that gets it serves it if it leads the
// partition in just that epoch, and refuses it otherwise: it never passes it on. Whoever asked
// then has its metadata brought up to date and asks once more where that names another leader.
// Only what was certainly not applied is asked again.
//
// # Reads
//
// A Partition is what this node knows of a partition that is led elsewhere: its offsets, as of
// the last answer, and whom to wake when they move. While somebody waits, one request for each
// leader (a feed) is parked there that names all partitions which are waited for, and is
// answered when one has moved. Records come by pulling: a Reading asks for some batches when its
// reader wants them, so that nothing is queued for a slow client.
//
// # Writes
//
// The node that a client has called checks the records, chooses partitions and waits; the leader
// appends, under the guard of the epoch. One request brings all slices for one leader. A
// connection that is lost after the request has left makes the outcome unknown.
//
// # State and locks
//
// Partition.mu and feed.mu are never held over a call. Lock order: feed.mu, then Partition.mu.
//
// # Form
//
// A message is a head as JSON, which one length precedes, and bytes of record batches behind it:
// batches are copied and not looked at on the way.
package forward
