// Package moves is the façade of moving replicas, for doors: what moves and how far it is, new
// moves and their plans, cancellation, draining and removing of brokers, whether one can be
// stopped, and elections by hand. It authorises, plans by cluster/placement and proposes to the
// metadata, where everything that is under way is kept; the controller, leaders and followers do
// the rest.
//
// Moves and drains that run are operations whose account is the metadata, the same at every
// node. What each node has seen end it notes in its own account.
package moves
