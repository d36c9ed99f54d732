// Package metadata is the cluster's replicated state machine as pure functions:
// commands go in, an immutable Image, a Delta and a Result come out.
//
// Purpose. Everything a cluster must agree on lives in the Image: brokers, topics
// with their partitions, users, ACL rules, quotas, sessions, API tokens, signing keys, the
// cluster's own settings and the producer-id cursor. A change is a Command, one Go
// struct per kind, that raft orders and Apply folds into the image.
//
// Callers. cluster/fsm applies committed commands; cluster proposes them; every hot
// path of broker, auth and api/rest reads the image without locks or I/O.
//
// Rules. Apply touches no clock, no randomness, no disk and no network: commands
// carry every id, time, hash and random value. A refusal ("topic exists") is a
// Result, equal on all nodes. A kind that this binary does not know stops the node
// unless the envelope marks it as ignorable. A changed rule, field, kind or config
// key needs a metadata version (MetadataVersion), so that nodes of two versions
// never decide differently.
//
// State. An Image never changes once published; entities reached through it must
// not be modified. Copies share structure (immutable radix trees), so a change costs
// the path to it and not the size of the image.
//
// Versions. Every entity carries the raft index of its last change, from which its
// ETag derives. A topic's version changes with its partition count; leaders and
// in-sync replicas have the partition epoch instead, and the topic's config has a
// version of its own. Broker epochs and credential epochs are raft indexes too: they
// grow for ever, also when a name is deleted and created again.
package metadata
