package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"tidewire/internal/model"
)

// How a member reads.
const (
	memberSession = 30 * time.Second
	memberWait    = 10 * time.Second // of a long poll
	memberPage    = 500              // records
	leaveWait     = 5 * time.Second  // for what is still to be said after an interrupt
)

// GroupOptions say what ConsumeGroup reads.
type GroupOptions struct {
	Group  string
	Topics []string
	From   string       // earliest, latest or none: where to begin without a committed offset
	Follow bool         // go on at the end; without it, stop at the latest offsets of the start
	Max    int64        // stop after so many records; 0: no bound
	Warn   func(string) // told of what does not end reading; may be nil
}

// ConsumeGroup reads topics as a member of a group, and hands each record to emit as the
// server's bytes, valid during the call. After each answer it calls flush, and then commits
// what was handed out: a record whose output failed is not committed, and comes again (at
// least once). It leaves the group at its end, also when ctx ends. It returns how many records
// were handed out.
//
// Without Follow it ends once it has come to the latest offsets of its start in all partitions
// that the group has given it; those of other members are theirs.
func (c *Client) ConsumeGroup(ctx context.Context, o GroupOptions, emit func(raw []byte) error, flush func() error) (int64, error) {
	m := &membership{c: c, o: o, emit: emit, flush: flush}
	if !o.Follow {
		if err := m.findEnds(ctx); err != nil {
			return 0, err
		}
	}
	err := m.run(ctx)
	m.leave(ctx)
	return m.n, err
}

// membership is one run of ConsumeGroup.
type membership struct {
	c      *Client
	o      GroupOptions
	emit   func([]byte) error
	flush  func() error
	ends   map[topicPartition]int64
	id     string // "": not joined
	cursor string
	n      int64
}

type topicPartition struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
}

// memberRecords is the answer of a member's read.
type memberRecords struct {
	Records    []json.RawMessage `json:"records"`
	Cursor     string            `json:"cursor"`
	Assignment struct {
		Partitions []topicPartition `json:"partitions"`
		Revoking   []topicPartition `json:"revoking"`
		Pending    bool             `json:"pending"`
	} `json:"assignment"`
	Positions []struct {
		topicPartition
		Next *int64 `json:"next_offset"`
	} `json:"positions"`
}

// findEnds notes where reading is to end.
func (m *membership) findEnds(ctx context.Context) error {
	m.ends = map[topicPartition]int64{}
	for _, topic := range m.o.Topics {
		list, err := m.c.offsets(ctx, topic, "latest")
		if err != nil {
			return err
		}
		for _, p := range list {
			if p.Offset != nil {
				m.ends[topicPartition{topic, int32(p.Partition)}] = int64(*p.Offset)
			}
		}
	}
	return nil
}

// run reads to the end. Faults that pass are waited for; a member whose session has ended
// joins anew.
func (m *membership) run(ctx context.Context) error {
	p := pause{wait: retryFirst}
	for {
		done, err := m.step(ctx)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err == nil && done:
			return nil
		case err == nil:
			p.wait = retryFirst
			continue
		case m.id != "" && isOver(err):
			m.id, m.cursor = "", ""
			m.warn("%v; joining the group again", err)
			continue
		case !mayPass(err):
			return err
		}
		m.warn("%v; trying again", err)
		if err := p.sleep(ctx, err); err != nil {
			return err
		}
	}
}

// isOver tells that a member is none any more, and may come back as another.
func isOver(err error) bool {
	var p *Problem
	return errors.As(err, &p) && (p.Code == model.MemberExpired || p.Code == model.UnknownMember)
}

func (m *membership) warn(format string, args ...any) {
	if m.o.Warn != nil {
		m.o.Warn(fmt.Sprintf(format, args...))
	}
}

func (m *membership) path(verb ...string) string {
	return Path(append([]string{"v1", "groups", m.o.Group, "members"}, verb...)...)
}

// step joins, or makes one read; done tells that there is nothing left to be read.
func (m *membership) step(ctx context.Context) (done bool, _ error) {
	if m.id == "" {
		return false, m.join(ctx)
	}
	got, err := m.read(ctx)
	if err != nil {
		return false, err
	}
	m.cursor = got.Cursor
	if err := m.print(got); err != nil {
		return false, err
	}
	if len(got.Records) > 0 || len(got.Assignment.Revoking) > 0 {
		if err := m.commit(ctx); err != nil {
			return false, err
		}
	}
	return m.o.Max > 0 && m.n >= m.o.Max || !m.o.Follow && m.atEnd(got), nil
}

func (m *membership) join(ctx context.Context) error {
	var member struct {
		ID string `json:"member_id"`
	}
	in := map[string]any{
		"topics": m.o.Topics, "session_timeout_ms": memberSession.Milliseconds(), "auto_offset_reset": m.o.From, "client_id": "tidewire-cli",
	}
	err := m.c.Call(ctx, Request{Method: http.MethodPost, Path: m.path(), Body: in}, &member)
	m.id = member.ID
	return err
}

func (m *membership) read(ctx context.Context) (*memberRecords, error) {
	room := int64(memberPage)
	if m.o.Max > 0 {
		room = min(room, m.o.Max-m.n)
	}
	wait := memberWait
	if !m.o.Follow {
		wait = time.Second
	}
	q := url.Values{"wait_ms": {strconv.FormatInt(wait.Milliseconds(), 10)}, "max_records": {strconv.FormatInt(room, 10)}}
	if m.cursor != "" {
		q.Set("cursor", m.cursor)
	}
	var got memberRecords
	return &got, m.c.Call(ctx, Request{Method: http.MethodGet, Path: m.path(m.id, "records"), Query: q}, &got)
}

// print hands the records out. What fails here ends reading, with nothing committed.
func (m *membership) print(got *memberRecords) error {
	for _, raw := range got.Records {
		if err := m.emit(raw); err != nil {
			return err
		}
		m.n++
	}
	return m.flush()
}

// commit stores what was handed out; an interrupt does not keep it from that.
func (m *membership) commit(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	return m.c.Call(ctx, Request{Method: http.MethodPost, Path: m.path(m.id, "commit"), Body: map[string]string{"cursor": m.cursor}}, nil)
}

// atEnd tells whether all that the member has was read up to the ends.
func (m *membership) atEnd(got *memberRecords) bool {
	if got.Assignment.Pending || len(got.Assignment.Revoking) > 0 || len(got.Positions) < len(got.Assignment.Partitions) {
		return false
	}
	for _, p := range got.Positions {
		if p.Next == nil || *p.Next < m.ends[p.topicPartition] {
			return false
		}
	}
	return true
}

// leave tells the group that the member is gone.
func (m *membership) leave(ctx context.Context) {
	if m.id == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveWait)
	defer cancel()
	if err := m.c.Call(ctx, Request{Method: http.MethodDelete, Path: m.path(m.id)}, nil); err != nil && !isOver(err) {
		m.warn("the group was not told that this member left, and waits %s for it: %v", memberSession, err)
	}
}
