// Package peer is the port between the nodes of a cluster: one TCP port, always mutual TLS
// 1.3 under a certificate authority that is derived from the cluster key, so that whoever
// does not have the key gets no further than the handshake.
//
// Callers are cluster, for requests between nodes, and cluster/quorum, for raft's streams.
//
// What a connection is for is its ALPN name: requests share one connection from node to
// node and are answered out of order; every other use, raft's first, has connections of its
// own, so that a long transfer never stands in the way of a request. After TLS both sides say
// who they are (Hello), and another cluster, another version or another node than the one
// that was meant is refused with an error that says so.
//
// A node is addressed by its storage id, never by host and port: those change with a
// restart, and a certificate carries the storage id, so that a connection to an address that
// another node has taken over does not come about.
//
// Goroutines: one that accepts, and for each connection one that reads and one that writes;
// one for each request that is served. All end with Stop. No lock is held across I/O.
package peer
