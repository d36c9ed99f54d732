// Package placement decides which brokers have which replicas, pure: who may take new ones, what
// a cluster moves to be balanced, to have a broker drained and to give internal topics more
// replicas. Its callers are the controller, the broker and the doors, which show its plans.
//
// Plans are deterministic: two nodes that look at one image plan the same.
package placement
