// Package moves is the door to moving replicas: reassignments, rebalancing, draining and removing
// brokers, whether one can be stopped, and elections by hand. What these are is in broker/moves.
package moves
