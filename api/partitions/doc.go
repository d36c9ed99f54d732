// Package partitions is the HTTP door to the partitions of all topics, by how they are. The
// handlers decode, call and encode; what health is, is in broker/health.
package partitions
