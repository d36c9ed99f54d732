package group

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"

	"tidewire/internal/model"
)

// What a request alone shows, for doors, which tell it before they look at rights and at
// what there is. The operations check the same again.

// CheckJoin tells what is wrong with a request to join, whatever the group. Errors:
// invalid-argument.
func CheckJoin(req JoinRequest) error {
	req.Member.ID = "-"
	_, err := normalise(req)
	return err
}

// CheckOffsets tells what is wrong with the offsets of a commit, whatever the group. Errors:
// invalid-argument.
func (s Settings) CheckOffsets(list []CommitOffset) error {
	if err := (&Group{settings: s}).checkOffsets(list); err != nil {
		return err
	}
	return checkNames(namesOf(list), "offsets")
}

// CheckSeek tells what is wrong with the positions of a seek, whatever the group. Errors:
// invalid-argument.
func CheckSeek(list []SeekPosition) error {
	if len(list) == 0 {
		return model.Invalid("/positions", "at least one position is needed")
	}
	names := make([]Name, len(list))
	for i, p := range list {
		names[i] = p.Name
		if p.Next < 0 || p.Next > model.MaxOffset {
			return model.Invalid(pointer("positions", i, "next_offset"), "an offset is a number from 0 to %d", model.MaxOffset)
		}
	}
	return checkNames(names, "positions")
}

// CheckReset tells what is wrong with a reset, whatever the group. Errors: invalid-argument.
func CheckReset(req ResetRequest) error {
	if err := req.check(); err != nil {
		return err
	}
	return checkNames(req.Partitions, "partitions")
}

// checkNames refuses what no partition can be, and one that is named twice.
func checkNames(names []Name, list string) error {
	seen := make(map[Name]bool, len(names))
	for i, n := range names {
		if n.Partition < 0 {
			return model.Invalid(pointer(list, i, "partition"), "a partition must not be negative")
		}
		if seen[n] {
			return model.Invalid(pointer(list, i, "partition"), "partition %d of topic %q is named twice", n.Partition, n.Topic)
		}
		seen[n] = true
	}
	return nil
}

// Deletable tells why Delete would refuse. Errors: as Delete's.
func (g *Group) Deletable() error {
	if err := g.errMembers(); err != nil {
		return err
	}
	if g.Vacant() {
		return model.Errorf(model.UnknownGroup, "there is no group %q", g.id)
	}
	return nil
}

// OffsetsDeletable tells why DeleteOffsets would refuse. Errors: as DeleteOffsets's.
func (g *Group) OffsetsDeletable(env Env, topics []string) error {
	wanted := g.wanted(env.Topics)
	for _, t := range topics {
		if wanted[t] {
			return model.Errorf(model.GroupNotEmpty, "members of the group %q subscribe to the topic %q", g.id, t)
		}
	}
	return nil
}

// Tag is another one whenever what is described is: the group's entity tag.
func (d *Description) Tag() string {
	h := sha256.New()
	var n [8]byte
	num := func(v int64) {
		binary.BigEndian.PutUint64(n[:], uint64(v))
		_, _ = h.Write(n[:]) // a hash takes everything
	}
	text := func(s string) {
		num(int64(len(s)))
		_, _ = h.Write([]byte(s)) // as above
	}
	text(d.ID)
	text(string(d.State))
	text(string(d.Assignor))
	num(int64(d.Epoch))
	for i := range d.Members {
		m := &d.Members[i]
		text(m.ID)
		num(int64(m.Assignment.Version))
	}
	for i := range d.Offsets {
		o := &d.Offsets[i]
		text(o.Topic)
		num(int64(o.Partition))
		num(int64(o.Next))
		num(o.CommitMs)
		text(o.Metadata)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}
