// Package log is one partition's segmented log, and the data folder that holds
// the logs of a node.
package log
