//go:build linux

// Package faults runs a cluster of real processes under faults and judges what its clients saw.
//
// A World is N nodes, each in a network namespace of its own, all on one bridge that the
// caller's namespace is on too: clients always reach every node, while faults cut, thin or slow
// what nodes say to each other. Run puts load on it (idempotent and plain producers, producers
// with keys, readers, a consumer group, all through any node), breaks something all the time
// by a seed, heals everything, and has the history judged by test/history. It also compares the
// replicas byte by byte, watches that the newest visible offset never goes back, and that no
// leader epoch has two leaders.
//
// It takes root and the commands ip, iptables and tc; Unable says in one line what is missing.
// Latency is not among the faults where the kernel has no netem. Steps of the clock are where the
// binary was built with the tag faultinject.
package faults
