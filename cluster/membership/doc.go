// Package membership tells which nodes are there: hashicorp/serf's gossip, encrypted under
// a key that is derived from the cluster key.
//
// Its caller is cluster. What is seen here is a hint to whoever decides: who fences a node or
// makes it a voter looks at more than gossip.
//
// A member's name in gossip is <node-id>.<storage-id>, so that two processes that were given
// the same node id by mistake do not take turns under one name, and serf's own resolution of
// such conflicts is off. A node that comes back with another address is believed as soon as
// the old one is known to be gone (tuned: within about three seconds of a kill).
//
// Gossip refuses to merge two clusters: a member of another cluster than the one that is
// known is neither joined nor let in.
package membership
