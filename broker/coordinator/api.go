package coordinator

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"time"

	"tidewire/broker"
	"tidewire/broker/group"
	"tidewire/broker/group/assign"
	"tidewire/broker/group/cursor"
	"tidewire/internal/model"
	"tidewire/storage/record"
)

// The façade: what doors call. A call takes a context, whose end is its deadline, and returns
// errors of package model. Rights on the group are the door's to look at, before the call; on
// topics Poll looks at them itself, where records are given.
//
// A write that fails says in its outcome whether it may have been made. leader-unavailable
// means that this node is not, or not yet, the coordinator of the group: nothing was done, and
// the call may be tried again.

// JoinRequest makes a member of a group, and the group where there is none.
type JoinRequest struct {
	Group          string
	Topics         []string    // of names; or
	Pattern        string      // RE2, of whole names; internal topics are never matched
	Assignor       assign.Name // "": the group's, or range
	SessionTimeout time.Duration
	Reset          group.ResetPolicy
	ResetFromMs    int64 // with group.FromTime
	// AutoCommit has each Poll commit what its cursor covers. Streams that commit by the clock
	// leave it off and call CommitCursor.
	AutoCommit bool
	InstanceID string // of a static member; "": none
	TakeOver   bool   // a live member of the same instance id is fenced
	ClientID   string
	Host       string
	User       string
}

// Join adds a member. Its id is new, and is what all further calls name; the member is alive
// from now for its session timeout.
//
// Errors: invalid-argument (pointers are those of the HTTP body), conflict (another assignor
// than the group's; a live member of the instance id; a full group), request-too-large, and those of any
// write.
func (c *Coordinator) Join(ctx context.Context, req JoinRequest) (group.JoinResult, error) {
	if err := checkGroup(req.Group); err != nil {
		return group.JoinResult{}, err
	}
	join := group.JoinRequest{
		Member: group.Member{
			ID: newMemberID(), InstanceID: req.InstanceID, ClientID: req.ClientID, Host: req.Host, User: req.User, Topics: req.Topics,
			Pattern: req.Pattern, SessionTimeout: req.SessionTimeout, Reset: req.Reset, ResetFromMs: req.ResetFromMs, AutoCommit: req.AutoCommit,
		},
		Assignor: req.Assignor, TakeOver: req.TakeOver,
	}
	return joinCall.do(ctx, c, req.Group, join)
}

func (c *Coordinator) joinHere(ctx context.Context, groupID string, join group.JoinRequest) (out group.JoinResult, err error) {
	err = c.run(ctx, groupID, true, func(g *group.Group, env group.Env) (eff group.Effects, err error) {
		eff, out, err = g.Join(env, join)
		return eff, err
	})
	return out, err
}

// newMemberID makes a random id of characters that need no escape anywhere.
func newMemberID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return "m-" + hex.EncodeToString(b[:])
}

// checkGroup is invalid-argument for what cannot be a group's name.
func checkGroup(name string) error {
	if why := model.CheckName(name); why != "" {
		return model.Invalid("path:group", "the name of a group %s", why)
	}
	return nil
}

// Member is what a member joined with. Errors: unknown-member, member-expired, fenced,
// leader-unavailable.
func (c *Coordinator) Member(ctx context.Context, groupID, member string) (group.Member, error) {
	return memberCall.do(ctx, c, groupID, member)
}

func (c *Coordinator) memberHere(ctx context.Context, groupID, member string) (m group.Member, err error) {
	err = c.member(ctx, groupID, member, func(g *group.Group, _ group.Env) (_ group.Effects, err error) {
		m, err = g.Facts(member)
		return group.Effects{}, err
	})
	return m, err
}

// Visit gets each record of a poll, in offset order within its partition. The record and its
// bytes are valid during the call only. logAppendTime tells the type of its timestamp.
type Visit func(p group.Held, r *record.Record, logAppendTime bool)

// PollRequest is a member's poll.
type PollRequest struct {
	Group, Member string
	Caller        broker.Caller
	// Cursor is what the answer before gave, or one of Seek; "": from the committed offsets.
	Cursor string
	// Wait is how long to wait for MinBytes of records, or for a change of the assignment.
	Wait       time.Duration
	MaxRecords int
	MaxBytes   int // of keys, values and headers; the first record always comes whole
	MinBytes   int
	Isolation  broker.Isolation

	// Stream says that the poll is one round of a stream (SSE, WebSocket): it releases nothing
	// that is being revoked, for which Release is, and Grace is how long the client has for
	// that. The user's quota does not refuse it; see broker.FetchDelay.
	Stream bool
	Grace  time.Duration
	// Known is the version of the assignment that the stream has told last: the poll waits only
	// while it is that. 0: none. Other polls' cursors say it.
	Known group.Version
	// Interrupt ends the wait as if its time were over; nil: nothing does.
	Interrupt <-chan struct{}
	// Watch is whose round the poll is; nil: a poll of its own. A round that Watch's function is
	// called for does not wait.
	Watch *Watch
	// Paused tells partitions that are passed over for now; nil: none.
	Paused func(p group.Held) bool
}

// End says why a poll was answered.
type End uint8

// Reasons. EndRecords: there are as many as were asked for, or its time was over. EndChanged: the assignment
// has changed. EndReplaced: a later poll of the member took its place; there are no records,
// and the assignment is that of the poll's begin. EndStopping: the node is about to stop.
const (
	EndRecords End = iota
	EndChanged
	EndReplaced
	EndStopping
)

// PollResult is the answer of a poll; its records went to the Visit.
type PollResult struct {
	Assignment *group.Assignment
	Positions  []group.Position // of Assignment.Held, in its order; Next may be group.NoOffset
	Cursor     string
	Records    int
	Bytes      int
	End        End
	// Unreadable are partitions of Assignment.Held that could not be read, such as those whose
	// leader does not run. A poll without records of which all are such fails.
	Unreadable []Unreadable
}

// Unreadable is a partition that cannot be read now.
type Unreadable struct {
	group.Held
	Err error
}

// Heartbeat begins a member's session anew. Errors: unknown-member, member-expired, fenced,
// leader-unavailable.
func (c *Coordinator) Heartbeat(ctx context.Context, groupID, member string) error {
	_, err := heartbeatCall.do(ctx, c, groupID, member)
	return err
}

func (c *Coordinator) heartbeatHere(ctx context.Context, groupID, member string) (none, error) {
	return none{}, c.member(ctx, groupID, member, func(g *group.Group, env group.Env) (group.Effects, error) {
		return group.Effects{}, g.Heartbeat(env, member)
	})
}

// Leave ends a member at once; what it had goes to others. Where it has auto-commit, what the
// cursor covers is committed; "": none. Errors: invalid-argument for a cursor that is none,
// unknown-member, member-expired, fenced, and those of any write.
func (c *Coordinator) Leave(ctx context.Context, groupID, member, cur string) error {
	if _, err := parseCursor(cur); err != nil {
		return err
	}
	_, err := leaveCall.do(ctx, c, groupID, memberAt{member, cur})
	return err
}

func (c *Coordinator) leaveHere(ctx context.Context, groupID string, q memberAt) (none, error) {
	at, err := parseCursor(q.Cursor)
	if err != nil {
		return none{}, err
	}
	return none{}, c.member(ctx, groupID, q.Member, func(g *group.Group, env group.Env) (group.Effects, error) {
		return g.Leave(env, q.Member, at)
	})
}

// Release tells that a member is done with partitions that are being revoked from it; nil: with
// all that were named to it. Others are passed over. Errors: unknown-member, member-expired,
// fenced, and those of any write.
func (c *Coordinator) Release(ctx context.Context, groupID, member string, partitions []group.Name) error {
	_, err := releaseCall.do(ctx, c, groupID, releaseRequest{member, partitions})
	return err
}

func (c *Coordinator) releaseHere(ctx context.Context, groupID string, q releaseRequest) (none, error) {
	return none{}, c.member(ctx, groupID, q.Member, func(g *group.Group, env group.Env) (group.Effects, error) {
		return g.Release(env, q.Member, q.Partitions)
	})
}

// Seek makes a cursor that reads on elsewhere; nothing is stored. cur gives the positions of
// partitions that are not named; "": their committed offsets. Errors: invalid-argument,
// not-owner with partitions, unknown-topic, unknown-partition, unknown-member, member-expired,
// fenced, leader-unavailable.
func (c *Coordinator) Seek(ctx context.Context, groupID, cur string, req group.SeekRequest) (string, error) {
	at, err := parseCursor(cur)
	if err != nil {
		return "", err
	}
	req.Cursor = at
	return seekCall.do(ctx, c, groupID, req)
}

func (c *Coordinator) seekHere(ctx context.Context, groupID string, req group.SeekRequest) (string, error) {
	var out *cursor.Cursor
	err := c.member(ctx, groupID, req.Member, func(g *group.Group, env group.Env) (_ group.Effects, err error) {
		out, err = g.Seek(env, req)
		return group.Effects{}, err
	})
	if err != nil {
		return "", err
	}
	return out.String(), nil
}

func parseCursor(text string) (*cursor.Cursor, error) {
	if text == "" {
		return nil, nil
	}
	c, err := cursor.Parse(text)
	if err != nil {
		e := model.AsError(err)
		return nil, model.Invalid("query:cursor", "%s", e.Detail)
	}
	return c, nil
}

// run has a group do an operation. Where there is no such group, and none is to be made, it is
// unknown-group.
func (c *Coordinator) run(ctx context.Context, groupID string, create bool, op operation) error {
	for {
		a, err := c.find(ctx, groupID, create)
		if err != nil {
			return err
		}
		if a == nil {
			return unknownGroup(groupID)
		}
		if err := a.within(ctx, op); err != errMoved { //nolint:errorlint // it is never wrapped
			return err
		}
		if ctx.Err() != nil {
			return model.Errorf(model.LeaderUnavailable, "the coordinator of group %q did not get to the call in time", groupID)
		}
	}
}

func unknownGroup(name string) error {
	return model.Errorf(model.UnknownGroup, "there is no group %q", name)
}

// member is run for calls of a member: of a group that is not there it is unknown too.
func (c *Coordinator) member(ctx context.Context, groupID, member string, op operation) error {
	err := c.run(ctx, groupID, false, op)
	if model.HasCode(err, model.UnknownGroup) {
		return model.Errorf(model.UnknownMember, "the group %q has no member %q", groupID, member)
	}
	return err
}
