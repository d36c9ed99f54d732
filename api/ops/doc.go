// Package ops is the HTTP door to what people who run a cluster look at and change beyond
// single topics and users: settings with what they mean, work on many topics at once,
// operations under way, the history of metrics, and what a node is and takes. The handlers
// decode, call and encode; the rules are in broker, cluster/metadata and internal/history.
package ops
