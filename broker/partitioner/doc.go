// Package partitioner tells which partition a key belongs to, as Kafka's clients do.
package partitioner
