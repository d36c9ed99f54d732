package coordinator

import (
	"context"

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
	var out []group.Offset
	err := c.member(ctx, groupID, req.Member, func(g *group.Group, env group.Env) (eff group.Effects, err error) {
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
	at, err := parseCursor(cur)
	if err != nil {
		return nil, err
	}
	var out []group.Offset
	err = c.member(ctx, groupID, member, func(g *group.Group, env group.Env) (eff group.Effects, err error) {
		eff, out, err = g.CommitCursor(env, member, at)
		return eff, err
	})
	return out, err
}

// CommitRead is CommitCursor for a stream: what was being revoked stays so until Release.
func (c *Coordinator) CommitRead(ctx context.Context, groupID, member, cur string) ([]group.Offset, error) {
	at, err := parseCursor(cur)
	if err != nil || at == nil {
		return nil, err
	}
	at.Version = 0
	var out []group.Offset
	err = c.member(ctx, groupID, member, func(g *group.Group, env group.Env) (eff group.Effects, err error) {
		eff, out, err = g.CommitCursor(env, member, at)
		return eff, err
	})
	return out, err
}

// PutOffsets stores offsets of a group without members, and makes the group where there is
// none. Errors: as of Commit but for those of members; group-not-empty.
func (c *Coordinator) PutOffsets(ctx context.Context, groupID string, offsets []group.CommitOffset) ([]group.Offset, error) {
	if err := checkGroup(groupID); err != nil {
		return nil, err
	}
	if err := checkCommit(offsets); err != nil {
		return nil, err
	}
	var out []group.Offset
	err := c.run(ctx, groupID, true, func(g *group.Group, env group.Env) (eff group.Effects, err error) {
		eff, out, err = g.PutOffsets(env, offsets)
		return eff, err
	})
	return out, err
}

// DeleteOffsets takes the committed offsets of topics away, and tells which there were. Errors:
// group-not-empty where a member subscribes to one of the topics, unknown-group, and those of
// any write.
func (c *Coordinator) DeleteOffsets(ctx context.Context, groupID string, topics []string) ([]group.Name, error) {
	var out []group.Name
	err := c.run(ctx, groupID, false, func(g *group.Group, env group.Env) (eff group.Effects, err error) {
		eff, out, err = g.DeleteOffsets(env, topics)
		return eff, err
	})
	return out, err
}

// Delete takes a group without members away, with its offsets. Errors: group-not-empty,
// unknown-group, and those of any write.
func (c *Coordinator) Delete(ctx context.Context, groupID string) error {
	return c.run(ctx, groupID, false, func(g *group.Group, env group.Env) (group.Effects, error) { return g.Delete(env) })
}
