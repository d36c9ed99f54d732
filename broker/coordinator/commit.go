package coordinator

import (
	"context"
	"slices"

	"tidewire/broker/group"
	"tidewire/internal/model"
)

// maxCommitMetadata bounds the metadata of one commit in all, in bytes, so that what one
// commit writes is one batch.
const maxCommitMetadata = 8 << 20

func checkCommit(offsets []group.CommitOffset) error {
	n := 0
	for i := range offsets {
		n += len(offsets[i].Metadata)
	}
	if n > maxCommitMetadata {
		return model.Errorf(model.RequestTooLarge, "the offsets have %d bytes of metadata; one commit may have %d", n, maxCommitMetadata)
	}
	return nil
}

// Commit stores offsets that a member names, all or none; they may go back. It begins the
// member's session anew. The result is in the request's order.
//
// Errors: invalid-argument (negative, metadata over 4,096 bytes, a partition twice, none at
// all), request-too-large, unknown-topic, unknown-partition, not-owner with partitions,
// unknown-member, member-expired, fenced, and those of any write.
func (c *Coordinator) Commit(ctx context.Context, groupID string, req group.CommitRequest) ([]group.Offset, error) {
	if err := checkCommit(req.Offsets); err != nil {
		return nil, err
	}
	return commitCall.do(ctx, c, groupID, req)
}

func (c *Coordinator) commitHere(ctx context.Context, groupID string, req group.CommitRequest) (out []group.Offset, err error) {
	err = c.member(ctx, groupID, req.Member, func(g *group.Group, env group.Env) (eff group.Effects, err error) {
		eff, out, err = g.Commit(env, req)
		return eff, err
	})
	return out, err
}

// CommitCursor stores what a cursor covers, never back, and releases what was being revoked in
// the answer that the cursor came with. The result has what is committed now.
//
// Errors: invalid-argument for a cursor that is none, unknown-member, member-expired, fenced,
// and those of any write.
func (c *Coordinator) CommitCursor(ctx context.Context, groupID, member, cur string) ([]group.Offset, error) {
	if cur == "" {
		return nil, model.Invalid("/cursor", "must not be empty")
	}
	if _, err := parseCursor(cur); err != nil {
		return nil, err
	}
	return commitCursorCall.do(ctx, c, groupID, memberAt{member, cur})
}

func (c *Coordinator) commitCursorHere(ctx context.Context, groupID string, q memberAt) (out []group.Offset, err error) {
	at, err := parseCursor(q.Cursor)
	if err != nil {
		return nil, err
	}
	err = c.member(ctx, groupID, q.Member, func(g *group.Group, env group.Env) (eff group.Effects, err error) {
		eff, out, err = g.CommitCursor(env, q.Member, at)
		return eff, err
	})
	return out, err
}

// CommitRead is CommitCursor for a stream: what was being revoked stays so until Release.
func (c *Coordinator) CommitRead(ctx context.Context, groupID, member, cur string) ([]group.Offset, error) {
	if at, err := parseCursor(cur); err != nil || at == nil {
		return nil, err
	}
	return commitReadCall.do(ctx, c, groupID, memberAt{member, cur})
}

func (c *Coordinator) commitReadHere(ctx context.Context, groupID string, q memberAt) (out []group.Offset, err error) {
	at, err := parseCursor(q.Cursor)
	if err != nil || at == nil {
		return nil, err
	}
	at.Version = 0
	err = c.member(ctx, groupID, q.Member, func(g *group.Group, env group.Env) (eff group.Effects, err error) {
		eff, out, err = g.CommitCursor(env, q.Member, at)
		return eff, err
	})
	return out, err
}

// PutOffsets stores offsets of a group without members, and makes the group where there is
// none. Errors: as of Commit but for those of members; group-not-empty.
func (c *Coordinator) PutOffsets(ctx context.Context, groupID string, offsets []group.CommitOffset, when ...Match) ([]group.Offset, error) {
	if err := checkGroup(groupID); err != nil {
		return nil, err
	}
	if err := checkCommit(offsets); err != nil {
		return nil, err
	}
	return putOffsetsCall.do(ctx, c, groupID, putRequest{offsets, when})
}

func (c *Coordinator) putOffsetsHere(ctx context.Context, groupID string, q putRequest) (out []group.Offset, err error) {
	err = c.run(ctx, groupID, true, func(g *group.Group, env group.Env) (eff group.Effects, err error) {
		if err = check(g, q.When); err != nil {
			return eff, err
		}
		eff, out, err = g.PutOffsets(env, q.Offsets)
		return eff, err
	})
	return out, err
}

// DeleteOffsets takes the committed offsets of topics away, and tells which there were. Errors:
// group-not-empty where a member subscribes to one of the topics, unknown-group, and those of
// any write.
func (c *Coordinator) DeleteOffsets(ctx context.Context, groupID string, topics []string, when ...Match) ([]group.Name, error) {
	return deleteOffsetsCall.do(ctx, c, groupID, topicsRequest{topics, when})
}

func (c *Coordinator) deleteOffsetsHere(ctx context.Context, groupID string, q topicsRequest) (out []group.Name, err error) {
	err = c.run(ctx, groupID, false, func(g *group.Group, env group.Env) (eff group.Effects, err error) {
		if err = check(g, q.When); err != nil {
			return eff, err
		}
		eff, out, err = g.DeleteOffsets(env, q.Topics)
		return eff, err
	})
	return out, err
}

// MayDeleteOffsets tells what DeleteOffsets would answer, and does nothing.
func (c *Coordinator) MayDeleteOffsets(ctx context.Context, groupID string, topics []string, when ...Match) ([]group.Name, error) {
	return mayDeleteOffsetsCall.do(ctx, c, groupID, topicsRequest{topics, when})
}

func (c *Coordinator) mayDeleteOffsetsHere(ctx context.Context, groupID string, q topicsRequest) (out []group.Name, err error) {
	err = c.run(ctx, groupID, false, func(g *group.Group, env group.Env) (group.Effects, error) {
		if err := check(g, q.When); err != nil {
			return group.Effects{}, err
		}
		if err := g.OffsetsDeletable(env, q.Topics); err != nil {
			return group.Effects{}, err
		}
		d := g.Describe()
		for _, o := range d.Offsets {
			if slices.Contains(q.Topics, o.Topic) {
				out = append(out, group.Name{Topic: o.Topic, Partition: o.Partition})
			}
		}
		return group.Effects{}, nil
	})
	return out, err
}

// Delete takes a group without members away, with its offsets. Errors: group-not-empty,
// unknown-group, and those of any write.
func (c *Coordinator) Delete(ctx context.Context, groupID string, when ...Match) error {
	_, err := deleteCall.do(ctx, c, groupID, when)
	return err
}

func (c *Coordinator) deleteHere(ctx context.Context, groupID string, when []Match) (none, error) {
	return none{}, c.run(ctx, groupID, false, func(g *group.Group, env group.Env) (group.Effects, error) {
		if err := check(g, when); err != nil {
			return group.Effects{}, err
		}
		return g.Delete(env)
	})
}

// MayDelete tells what Delete would take away, or why it would refuse, and does nothing.
func (c *Coordinator) MayDelete(ctx context.Context, groupID string, when ...Match) ([]group.Name, error) {
	return mayDeleteCall.do(ctx, c, groupID, when)
}

func (c *Coordinator) mayDeleteHere(ctx context.Context, groupID string, when []Match) (out []group.Name, err error) {
	err = c.run(ctx, groupID, false, func(g *group.Group, _ group.Env) (group.Effects, error) {
		if err := check(g, when); err != nil {
			return group.Effects{}, err
		}
		if err := g.Deletable(); err != nil {
			return group.Effects{}, err
		}
		d := g.Describe()
		for _, o := range d.Offsets {
			out = append(out, group.Name{Topic: o.Topic, Partition: o.Partition})
		}
		return group.Effects{}, nil
	})
	return out, err
}

// Match is an entity tag that a group must have for a change to be made; "": any.
type Match string

// check looks whether a group has the tags. Errors: etag-mismatch.
func check(g *group.Group, when []Match) error {
	for _, want := range when {
		if want == "" {
			continue
		}
		d := g.Describe()
		if have := d.Tag(); string(want) != have {
			return model.Errorf(model.ETagMismatch, "the group has changed: its entity tag is %q", have)
		}
	}
	return nil
}

// CheckCommit tells what the offsets of a commit alone show. Errors: invalid-argument,
// request-too-large.
func (c *Coordinator) CheckCommit(offsets []group.CommitOffset) error {
	if err := c.settings.CheckOffsets(offsets); err != nil {
		return err
	}
	return checkCommit(offsets)
}
