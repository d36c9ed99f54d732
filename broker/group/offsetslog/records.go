package offsetslog

import (
	"encoding/binary"
	"time"

	"tidewire/broker/group"
	"tidewire/broker/group/assign"
	"tidewire/internal/model"
)

// Versions of keys, which tell kinds of records apart. They are persisted: a number is never
// changed, and never used again.
const (
	keyCommit0 = 0 // Kafka's, of versions before 0.9
	keyCommit  = commitKeyVersion

	keyOurs    = 0x5400 // ours are from here
	keyGroup   = 0x5401
	keyTopic   = 0x5402
	keyMember  = 0x5403
	keyTarget  = 0x5404
	keyCurrent = 0x5405
	keyGone    = 0x5406
	keyStaged  = 0x5407
	keyOursEnd = 0x5500
)

// valueVersion is the version of all values of our own.
const valueVersion = 1

// Encode gives the key and value of a record of a group. The value of a tombstone is nil.
func Encode(groupID string, r group.Record) (key, value []byte) {
	key = encodeKey(groupID, r.Key())
	if _, gone := r.(group.Tombstone); gone {
		return key, nil
	}
	return key, encodeValue(r)
}

func encodeKey(groupID string, k group.Key) []byte {
	if k.Kind == group.KindOffset {
		c := CommitKey{Group: groupID, Topic: k.Topic, Partition: k.Partition}
		return c.Append(make([]byte, 0, 2+2+len(groupID)+2+len(k.Topic)+4))
	}
	w := writer{make([]byte, 0, 24+len(groupID)+len(k.Member)+len(k.Topic))}
	w.int16(keyVersions[k.Kind])
	w.text(groupID)
	switch k.Kind {
	case group.KindTopic:
		w.id(k.TopicID)
	case group.KindMember, group.KindTarget, group.KindCurrent, group.KindGone:
		w.text(k.Member)
	case group.KindStaged:
		w.int(int64(k.Producer))
		w.text(k.Topic)
		w.int(int64(k.Partition))
	}
	return w.b
}

// keyVersions are the versions of keys by kind.
var keyVersions = map[group.Kind]int16{
	group.KindGroup: keyGroup, group.KindTopic: keyTopic, group.KindMember: keyMember, group.KindTarget: keyTarget,
	group.KindCurrent: keyCurrent, group.KindGone: keyGone, group.KindStaged: keyStaged,
}

func encodeValue(r group.Record) []byte {
	if o, ok := r.(group.Offset); ok {
		return appendOffset(nil, &o)
	}
	w := &writer{make([]byte, 0, 64)}
	w.byte(valueVersion)
	switch r := r.(type) {
	case group.GroupInfo:
		w.int(int64(r.Epoch))
		w.int(int64(r.TargetEpoch))
		w.text(string(r.Assignor))
		w.int(r.EmptySinceMs)
	case group.TopicInfo:
		w.text(r.Name)
		w.int(int64(r.Initial))
		w.int(int64(r.Partitions))
	case group.Member:
		w.member(&r)
	case group.Target:
		w.uint(uint64(len(r.Topics)))
		for _, t := range r.Topics {
			w.partitions(&t)
		}
	case group.Current:
		w.uint(uint64(r.Version))
		w.uint(uint64(len(r.Topics)))
		for _, t := range r.Topics {
			w.grants(&t)
		}
	case group.MemberGone:
		w.byte(byte(r.Reason))
		w.int(r.AtMs)
	case group.StagedOffset:
		w.b = appendOffset(w.b, &r.Offset)
	}
	return w.b
}

func appendOffset(dst []byte, o *group.Offset) []byte {
	c := Commit{Next: o.Next, LeaderEpoch: o.Epoch, Metadata: o.Metadata, CommittedAt: o.CommitMs, TopicID: o.TopicID}
	return c.Append(dst)
}

func (w *writer) member(m *group.Member) {
	w.text(m.InstanceID)
	w.text(m.ClientID)
	w.text(m.Host)
	w.text(m.User)
	w.uint(uint64(len(m.Topics)))
	for _, t := range m.Topics {
		w.text(t)
	}
	w.text(m.Pattern)
	w.int(m.SessionTimeout.Milliseconds())
	w.text(string(m.Reset))
	w.int(m.ResetFromMs)
	w.bool(m.AutoCommit)
	w.int(m.JoinedMs)
}

// partitions are written as the distances between them, less one.
func (w *writer) partitions(t *group.TopicPartitions) {
	w.id(t.Topic)
	w.uint(uint64(len(t.Partitions)))
	before := model.PartitionID(-1)
	for _, p := range t.Partitions {
		w.uint(uint64(p - before - 1))
		before = p
	}
}

func (w *writer) grants(t *group.TopicGrants) {
	w.id(t.Topic)
	w.uint(uint64(len(t.Grants)))
	before := model.PartitionID(-1)
	for _, g := range t.Grants {
		w.uint(uint64(g.Index - before - 1))
		w.uint(uint64(g.Since))
		w.uint(uint64(g.Revoked))
		before = g.Index
	}
}

// Decode reads a record. Not ok: it is of Kafka's and says nothing to us. An error is
// storage-error: the record is damaged, or of a version above those that this build knows.
func Decode(key, value []byte) (groupID string, r group.Record, ok bool, _ error) {
	if len(key) < 2 {
		return "", nil, false, corrupt("a record without key")
	}
	version := int16(binary.BigEndian.Uint16(key))
	switch {
	case version == keyCommit || version == keyCommit0:
		return decodeCommit(key, value)
	case version < keyOurs || version >= keyOursEnd:
		return "", nil, false, nil
	}
	groupID, k, err := decodeKey(version, key[2:])
	if err != nil {
		return "", nil, false, err
	}
	if value == nil {
		return groupID, group.Tombstone{Of: k}, true, nil
	}
	r, err = decodeValue(k, value)
	return groupID, r, err == nil, err
}

func decodeCommit(key, value []byte) (string, group.Record, bool, error) {
	k, err := parseCommitKey(key)
	if err != nil {
		return "", nil, false, err
	}
	if value == nil {
		return k.Group, group.Tombstone{Of: group.Key{Kind: group.KindOffset, Topic: k.Topic, Partition: k.Partition}}, true, nil
	}
	c, err := parseCommit(value)
	if err != nil {
		return "", nil, false, err
	}
	return k.Group, c.of(k.Topic, k.Partition), true, nil
}

func (c *Commit) of(topic string, p model.PartitionID) group.Offset {
	return group.Offset{
		Topic: topic, TopicID: c.TopicID, Partition: p, Next: c.Next, Epoch: c.LeaderEpoch, Metadata: c.Metadata, CommitMs: c.CommittedAt,
	}
}

func decodeKey(version int16, b []byte) (groupID string, k group.Key, _ error) {
	r := &reader{b: b}
	groupID = r.text("the group's name")
	for kind, v := range keyVersions {
		if v == version {
			k.Kind = kind
		}
	}
	switch k.Kind {
	case group.KindGroup:
	case group.KindTopic:
		k.TopicID = r.id("the topic's id")
	case group.KindMember, group.KindTarget, group.KindCurrent, group.KindGone:
		k.Member = r.text("the member's id")
	case group.KindStaged:
		k.Producer = model.ProducerID(r.int("the producer's id"))
		k.Topic = r.text("the topic's name")
		k.Partition = r.partition()
	default:
		return "", k, corrupt("a key of version %#x, which a later version of Tidewire has written", version)
	}
	return groupID, k, r.end()
}

func (r *reader) partition() model.PartitionID {
	p := r.int32("the partition")
	if p < 0 {
		r.fail("the partition is negative")
		return 0
	}
	return model.PartitionID(p)
}

func decodeValue(k group.Key, b []byte) (group.Record, error) {
	r := &reader{b: b}
	if v := r.byte("the version"); r.err == nil && v != valueVersion {
		return nil, corrupt("a value of version %d under a key of version %#x; this version of Tidewire knows version %d", v, keyVersions[k.Kind], valueVersion)
	}
	var rec group.Record
	switch k.Kind {
	case group.KindGroup:
		rec = group.GroupInfo{
			Epoch: group.Epoch(r.int32("the epoch")), TargetEpoch: group.Epoch(r.int32("the epoch of the targets")),
			Assignor: assign.Name(r.text("the assignor")), EmptySinceMs: r.int("the time of the last member"),
		}
	case group.KindTopic:
		rec = group.TopicInfo{ID: k.TopicID, Name: r.text("the topic's name"), Initial: r.int32("the first partitions"), Partitions: r.int32("the partitions")}
	case group.KindMember:
		rec = r.member(k.Member)
	case group.KindTarget:
		t := group.Target{Member: k.Member}
		for range r.count(17, "the topics") {
			t.Topics = append(t.Topics, r.partitions())
		}
		rec = t
	case group.KindCurrent:
		c := group.Current{Member: k.Member, Version: r.version("the version of the assignment")}
		for range r.count(17, "the topics") {
			c.Topics = append(c.Topics, r.grants())
		}
		rec = c
	case group.KindGone:
		rec = group.MemberGone{Member: k.Member, Reason: group.Reason(r.byte("the reason")), AtMs: r.int("the time")}
	case group.KindStaged:
		c, err := parseCommit(r.b)
		if err != nil {
			return nil, err
		}
		return group.StagedOffset{Producer: k.Producer, Offset: c.of(k.Topic, k.Partition)}, nil
	}
	return rec, r.end()
}

func (r *reader) member(id string) group.Member {
	m := group.Member{ID: id, InstanceID: r.text("the instance"), ClientID: r.text("the client"), Host: r.text("the host"), User: r.text("the user")}
	for range r.count(1, "the subscription") {
		m.Topics = append(m.Topics, r.text("a topic"))
	}
	m.Pattern = r.text("the pattern")
	m.SessionTimeout = time.Duration(r.int32("the session timeout")) * time.Millisecond
	m.Reset = group.ResetPolicy(r.text("the reset policy"))
	m.ResetFromMs = r.int("the reset time")
	m.AutoCommit = r.bool("auto commit")
	m.JoinedMs = r.int("the time of joining")
	return m
}

func (r *reader) version(what string) group.Version {
	v := r.uint(what)
	if v != uint64(uint32(v)) {
		r.fail(what + " is out of range")
		return 0
	}
	return group.Version(v)
}

// next reads a partition's number as the distance from the one before.
func (r *reader) next(before model.PartitionID) model.PartitionID {
	d := r.uint("a partition")
	if d > uint64(maxPartition-before-1) {
		r.fail("a partition is out of range")
		return before
	}
	return before + 1 + model.PartitionID(d)
}

const maxPartition = model.PartitionID(1<<31 - 1)

func (r *reader) partitions() group.TopicPartitions {
	t := group.TopicPartitions{Topic: r.id("a topic's id")}
	n := r.count(1, "the partitions")
	t.Partitions = make([]model.PartitionID, 0, n)
	before := model.PartitionID(-1)
	for range n {
		before = r.next(before)
		t.Partitions = append(t.Partitions, before)
	}
	return t
}

func (r *reader) grants() group.TopicGrants {
	t := group.TopicGrants{Topic: r.id("a topic's id")}
	n := r.count(3, "the grants")
	t.Grants = make([]group.Grant, 0, n)
	before := model.PartitionID(-1)
	for range n {
		before = r.next(before)
		t.Grants = append(t.Grants, group.Grant{Index: before, Since: r.version("a grant"), Revoked: r.version("a revocation")})
	}
	return t
}
