// Package broker is the façade that every door calls: REST, WebSocket and, later, the
// Kafka port. Each operation exists once, here: it authorises the caller, finds the
// topic, and calls the engine that leads the partition. A door only decodes, calls and
// encodes.
//
// # State and locks
//
// What exists is the metadata image; the broker only mirrors it. One goroutine,
// "broker/reconcile", opens, grows, reconfigures and closes partitions until they are
// what the image says; changes of the image are hints which topics to look at, and at
// the start it looks at all. A request that meets a topic that the image has and the
// mirror does not yet have waits for the reconciliation. Topic values are read through
// atomics; the broker's own mutex guards only the set of topics to look at and the
// channel that announces the end of a pass. Lock order: Broker.mu, then nothing.
//
// # Start and stop
//
// Start opens every partition of this node before it returns. Drain makes waiting
// reads answer with what is there; Stop closes the partitions and leaves the logs to
// the Store's owner.
package broker
