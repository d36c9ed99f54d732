// Package model holds the words every layer shares: identifiers with distinct
// types, the rules for names, and the one table of errors. It has no state, does
// no I/O and imports nothing of the project.
package model

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
)

// Offset is the position of a record in a partition's log. The first record has
// offset 0; offsets are dense when written and may have gaps after compaction.
type Offset int64

// MaxOffset is the largest offset that clients may name as a place to go on from: JSON readers
// that keep numbers as float64 tell no larger ones apart (RFC 8259, section 6).
const MaxOffset Offset = 1<<53 - 1

// LeaderEpoch counts the leaderships of a partition (KIP-101). The first leader
// has epoch 0; NoEpoch means unknown.
type LeaderEpoch int32

// NoEpoch is the leader epoch of a batch or request that names none.
const NoEpoch LeaderEpoch = -1

// BrokerID names a node of the cluster, as set by --node-id.
type BrokerID int32

// PartitionID numbers a topic's partitions from 0.
type PartitionID int32

// ProducerID identifies an idempotent producer (KIP-98); NoProducer means none.
type ProducerID int64

// NoProducer is the producer id of a batch written without idempotence.
const NoProducer ProducerID = -1

// ProducerEpoch fences older instances of a producer (KIP-98).
type ProducerEpoch int16

// TopicID is the UUID of a topic. A topic that was deleted and created again has
// another id (KIP-516).
type TopicID [16]byte

// NewTopicID makes a random UUID (RFC 9562, version 4).
func NewTopicID() (t TopicID) {
	_, _ = rand.Read(t[:]) // never fails (crypto/rand)
	t[6] = t[6]&0x0f | 0x40
	t[8] = t[8]&0x3f | 0x80
	return t
}

// String gives the usual 8-4-4-4-12 form in lower-case hex.
func (t TopicID) String() string {
	var b [36]byte
	hex.Encode(b[0:8], t[0:4])
	b[8] = '-'
	hex.Encode(b[9:13], t[4:6])
	b[13] = '-'
	hex.Encode(b[14:18], t[6:8])
	b[18] = '-'
	hex.Encode(b[19:23], t[8:10])
	b[23] = '-'
	hex.Encode(b[24:36], t[10:16])
	return string(b[:])
}

// IsZero reports whether the id is the zero UUID, which names no topic.
func (t TopicID) IsZero() bool { return t == TopicID{} }

// MarshalText writes the form of String.
func (t TopicID) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText reads the form of String.
func (t *TopicID) UnmarshalText(b []byte) error {
	id, err := ParseTopicID(string(b))
	if err != nil {
		return err
	}
	*t = id
	return nil
}

var errTopicID = errors.New("a topic id has the form 8-4-4-4-12 in hex digits")

// ParseTopicID reads the form of String; hex digits may be of either case.
func ParseTopicID(s string) (TopicID, error) {
	var t TopicID
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return t, errTopicID
	}
	h := s[0:8] + s[9:13] + s[14:18] + s[19:23] + s[24:36]
	if _, err := hex.Decode(t[:], []byte(h)); err != nil {
		return TopicID{}, errTopicID
	}
	return t, nil
}
