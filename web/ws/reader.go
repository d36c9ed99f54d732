package ws

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"tidewire/api/recordjson"
	"tidewire/broker"
	"tidewire/broker/group"
	"tidewire/internal/model"
	"tidewire/storage/record"
)

// frameBytes is about how large a records frame gets: the record that passes it still
// comes whole. A socket holds one such frame while the client is slow, and no more. Clients
// that have not shown yet that they keep up, or do not, get smaller ones, from firstFrame on.
const (
	frameBytes = 256 << 10
	firstFrame = 32 << 10
)

// reader is what a socket without a group reads: partitions and where it is in them.
type reader struct {
	want   *subscription
	topics []*readTopic
	parts  []*readPartition             // in the order in which they were assigned
	byName map[Partition]*readPartition // nil while they are few
	turn   int                          // index of the partition that the next frame begins with
	credit int64                        // records that may still be sent, where want.credit is set
	more   bool                         // a search has not come to the end of what is there
	most   int                          // about how large the next frame may be, in bytes
	sent   bool                         // a frame since most was set
	failed *readPartition               // that could not be read, and ended the frame
	member *groupMember                 // nil: the socket reads without a group

	shared *chunks // nil: what is read is of no use for others
	id     uint64  // of the socket, among those that share
}

type readTopic struct {
	topic *broker.StreamTopic
	whole bool // every partition is read, those added later too
	known int  // partitions that are assigned, where whole
}

type readPartition struct {
	topic   *broker.StreamTopic
	name    Partition
	next    model.Offset
	held    *group.Held // the grant of a member; nil without a group
	paused  bool
	stalled bool // it could not be read; the member's next round looks into it
}

// subscribe follows the topics and resolves where to begin; after an error nothing is
// followed.
func (s *session) subscribe(ctx context.Context, want *subscription) error {
	if want.wanted.group != "" {
		return s.join(ctx, want)
	}
	r, err := newReader(ctx, s.stream, want)
	if err != nil {
		s.stream.Unfollow()
		return err
	}
	if s.reader = r; want.filter() == nil && want.preview == nil {
		r.shared, r.id = s.h.shared, s.h.readers.Add(1)
	}
	return nil
}

func newReader(ctx context.Context, stream *broker.Stream, want *subscription) (*reader, error) {
	r := &reader{want: want, most: firstFrame}
	if want.credit != nil {
		r.credit = *want.credit
	}
	topics, err := stream.Follow(ctx, want.names())
	if err != nil {
		return nil, err
	}
	index := map[string]int{}
	for i, t := range topics {
		index[t.Name()] = i
		rt := &readTopic{topic: t, whole: i < len(want.topics)}
		r.topics = append(r.topics, rt)
		if err := r.assignWhole(ctx, rt, want.startOf); err != nil {
			return nil, err
		}
	}
	for _, p := range want.partitions {
		if r.find(p.Partition) != nil {
			continue
		}
		t := topics[index[p.Topic]]
		if err := r.assign(new(readPartition), t, p.Partition, want.startOf(p.Partition)); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// assignWhole assigns the partitions of a whole topic that are not assigned yet.
func (r *reader) assignWhole(ctx context.Context, t *readTopic, from func(Partition) broker.Position) error {
	if !t.whole {
		return nil
	}
	n, err := t.topic.Partitions(ctx)
	if err != nil {
		return err
	}
	r.parts = slices.Grow(r.parts, n-t.known)
	all := make([]readPartition, max(0, n-t.known)) // together: they live as long as each other
	for ; t.known < n; t.known++ {
		p := Partition{Topic: t.topic.Name(), Partition: int32(t.known)}
		if err := r.assign(&all[len(all)-(n-t.known)], t.topic, p, from(p)); err != nil {
			return err
		}
	}
	return nil
}

// assign makes p a partition that is read from a position on.
func (r *reader) assign(p *readPartition, t *broker.StreamTopic, name Partition, at broker.Position) error {
	next, err := t.Open(model.PartitionID(name.Partition), at, r.want.isolation)
	if err != nil {
		return ofPartition(err, name)
	}
	p.topic, p.name, p.next = t, name, next
	r.parts = append(r.parts, p)
	if r.byName == nil && len(r.parts) > fewPartitions {
		r.byName = make(map[Partition]*readPartition, len(r.parts))
		for _, p := range r.parts {
			r.byName[p.name] = p
		}
	}
	if r.byName != nil {
		r.byName[name] = p
	}
	return nil
}

// fewPartitions are searched one after the other: a map costs more than it gives.
const fewPartitions = 16

// find finds an assigned partition, else nil.
func (r *reader) find(name Partition) *readPartition {
	if r.byName != nil {
		return r.byName[name]
	}
	for _, p := range r.parts {
		if p.name == name {
			return p
		}
	}
	return nil
}

// ofPartition says in an error about offsets which partition it is about.
func ofPartition(err error, p Partition) error {
	if e := model.AsError(err); e.Code == model.OffsetOutOfRange {
		return e.WithExtra("topic", p.Topic).WithExtra("partition", p.Partition)
	}
	return err
}

// takeAdded assigns partitions that were added to whole topics, from their log start, and
// tells the client: nothing that is written to them is missed.
func (s *session) takeAdded(ctx context.Context) *ending {
	r := s.reader
	before := len(r.parts)
	for _, t := range r.topics {
		err := r.assignWhole(ctx, t, func(Partition) broker.Position { return broker.Position{Kind: broker.Earliest} })
		if err != nil {
			return s.failed(err)
		}
	}
	if len(r.parts) == before {
		return nil
	}
	return s.send(encodeFrame(AssignedFrame{"assigned", r.positions(before)}))
}

// buffers hold one records frame while it is made and written.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 64<<10); return &b }}

// maxPooledBuffer bounds what the pool keeps.
const maxPooledBuffer = 2 * frameBytes

// deliver sends at most one frame of records; more tells that there may be others at once.
// Each partition is asked once per frame, and the next frame begins with the partition
// behind the last one that gave something, so that none waits for more than one frame of
// each other.
func (s *session) deliver(ctx context.Context) (more bool, _ *ending) {
	r := s.reader
	room := r.room()
	if room == 0 {
		return false, nil
	}
	buf := buffers.Get().(*[]byte)
	f := &filling{b: append(append((*buf)[:0], headRoom[:]...), recordsStart...), room: room}
	readErr := r.collect(ctx, f)
	more = f.n > 0 || r.more
	defer func() {
		if cap(f.b) <= maxPooledBuffer {
			*buf = f.b
			buffers.Put(buf)
		}
	}()
	if f.n > 0 {
		if r.want.credit != nil {
			r.credit -= int64(f.n)
		}
		f.b = append(f.b, `]}`...)
		r.sent = true
		if end := s.sendFrame(f.b); end != nil {
			return true, end
		}
		if r.member != nil {
			r.member.written()
		}
	}
	switch {
	case readErr == nil:
		return more, nil
	case r.member != nil:
		return true, s.unread(readErr) // the others are read on
	case model.HasCode(readErr, model.OffsetOutOfRange): // deletion has overtaken the client
		return true, s.failedWith(model.AsError(readErr), closeSlow)
	}
	return true, s.failed(readErr)
}

// room is how many records the next frame may have.
func (r *reader) room() int {
	if r.want.credit != nil {
		return int(min(r.want.maxRecords, r.credit))
	}
	return int(r.want.maxRecords)
}

// pace waits until the client takes more, and sets how large a frame it gets.
func (s *session) pace() *ending {
	c, r := s.net.Load(), s.reader
	if c.ready() != nil {
		return &ending{}
	}
	switch {
	case c.keptWaiting():
		r.most = firstFrame
	case r.sent:
		r.most = min(2*r.most, frameBytes)
	}
	r.sent = false
	return s.tooSlow()
}

const recordsStart = `{"op":"records","records":[`

// filling is a frame of records in the making.
type filling struct {
	b       []byte
	n, room int  // records in it, and how many may be
	full    bool // what comes next does not fit
}

func (f *filling) empty() bool { return f.n == 0 }

// collect appends up to room records, each partition's in its order.
func (r *reader) collect(ctx context.Context, f *filling) error {
	r.more = false
	for range r.parts {
		at := r.turn % len(r.parts)
		r.turn = (at + 1) % len(r.parts)
		p := r.parts[at]
		if p.paused || p.stalled {
			continue
		}
		if err := r.fill(ctx, f, p); err != nil {
			r.failed = p
			return ofPartition(err, p.name)
		}
		if f.full {
			r.turn, r.more = at, true // the next frame begins with what did not fit
		}
		if f.full || f.n >= f.room || len(f.b) >= r.most {
			break
		}
	}
	return nil
}

// fill appends what a partition has: what another socket has read of it, or what it reads
// itself, which others may then take.
func (r *reader) fill(ctx context.Context, f *filling, p *readPartition) error {
	if r.shared == nil {
		_, err := r.read(ctx, f, p)
		return err
	}
	key := chunkKey{p.topic.ID(), model.PartitionID(p.name.Partition), p.next, r.want.isolation, r.want.encoding, r.want.maxRecords}
	c, wanted := r.shared.get(key, r.id)
	if c != nil {
		if done, err := r.take(ctx, f, p, c); done || err != nil {
			return err
		}
	}
	start := len(f.b)
	info, err := r.read(ctx, f, p)
	if wanted && info.Records > 0 && err == nil {
		r.shared.put(key, bytes.TrimPrefix(f.b[start:], []byte{','}), broker.Read{
			Partition: key.partition, Isolation: key.isolation, From: key.from, Next: info.NextOffset, Records: info.Records, Bytes: info.Bytes,
		})
	}
	return err
}

// take appends a chunk that fits. One that does not is for the next frame; one that the
// client has no credit for is not done, and neither is one that is not there for it.
func (r *reader) take(ctx context.Context, f *filling, p *readPartition, c *chunk) (done bool, _ error) {
	if c.read.Records > f.room-f.n || !f.empty() && len(f.b)+len(c.text) > r.most {
		f.full = !f.empty()
		return f.full, nil
	}
	if ok, err := p.topic.TakeRead(ctx, &c.read); err != nil || !ok {
		return false, err
	}
	if !f.empty() {
		f.b = append(f.b, ',')
	}
	f.b = append(f.b, c.text...)
	f.n += c.read.Records
	p.next = c.read.Next
	return true, nil
}

// read appends what the log has.
func (r *reader) read(ctx context.Context, f *filling, p *readPartition) (broker.FetchInfo, error) {
	meta := recordjson.Meta{Topic: p.name.Topic, Partition: model.PartitionID(p.name.Partition)}
	enc := recordjson.Encodings{Value: r.want.encoding}
	if r.want.preview != nil {
		enc.Preview, enc.PreviewBytes = true, int(*r.want.preview)
	}
	first := f.empty()
	visit := func(rec *record.Record, logAppendTime bool) {
		if !first {
			f.b = append(f.b, ',')
		}
		first = false
		meta.LogAppendTime = logAppendTime
		f.b = recordjson.AppendRecord(f.b, &meta, rec, enc)
	}
	info, err := p.topic.Read(ctx, &broker.FetchRequest{
		Partition: meta.Partition, From: broker.Position{Value: int64(p.next)}, Isolation: r.want.isolation,
		MaxRecords: f.room - f.n, MaxBytes: max(1, r.most-len(f.b)), Filter: r.want.filter(),
	}, visit)
	f.n += info.Records
	if err != nil {
		return info, err
	}
	p.next = info.NextOffset
	r.more = r.more || info.End != broker.AtVisibleEnd
	return info, nil
}

// positions lists the partitions from the index on, and what is next to be read of them.
func (r *reader) positions(from int) []Position {
	out := make([]Position, 0, len(r.parts)-from)
	for _, p := range r.parts[from:] {
		out = append(out, p.position())
	}
	return out
}

func (p *readPartition) position() Position {
	return Position{Topic: p.name.Topic, Partition: p.name.Partition, NextOffset: int64(p.next)}
}

// subscribed tells the values in effect.
func (r *reader) subscribed(id json.RawMessage) SubscribedFrame {
	f := SubscribedFrame{
		AnswerFrame: AnswerFrame{"subscribed", id}, Topics: []string{}, QIn: []string{}, From: r.want.fromText, Credit: r.want.credit,
		MaxRecords: r.want.maxRecords, Encoding: r.want.encoding.String(), Isolation: "read_committed",
		PreviewBytes: r.want.preview,
	}
	if r.want.filter() != nil {
		f.Q, f.QIn = &r.want.q, r.want.search.In.Names()
	}
	for _, t := range r.topics {
		f.Topics = append(f.Topics, t.topic.Name())
	}
	if r.member != nil {
		r.member.describe(&f)
	}
	if r.want.isolation == broker.ReadUncommitted {
		f.Isolation = "read_uncommitted"
	}
	return f
}

func (r *reader) grant(id json.RawMessage, c creditCmd) (any, error) {
	switch {
	case r.want.credit == nil:
		return nil, model.Errorf(model.Conflict, "the subscription has no credit to add to; subscribe with credit")
	case r.credit > maxCredit-c.records:
		return nil, model.Invalid("/records", "the credit would pass %d", int64(maxCredit))
	}
	r.credit += c.records
	return CreditedFrame{AnswerFrame{"credited", id}, r.credit}, nil
}

func (r *reader) pause(id json.RawMessage, c pauseCmd) (any, error) {
	parts := make([]*readPartition, len(c.partitions))
	for i, name := range c.partitions {
		var err error
		if parts[i], err = r.assigned(i, name); err != nil {
			return nil, err
		}
	}
	for _, p := range parts {
		p.paused = c.on
	}
	op := "resumed"
	if c.on {
		op = "paused"
	}
	return PartitionsAnswer{AnswerFrame{op, id}, append([]Partition{}, c.partitions...)}, nil
}

// seek moves positions, all or none.
func (r *reader) seek(id json.RawMessage, c seekCmd) (any, error) {
	parts := make([]*readPartition, len(c.partitions))
	for i, to := range c.partitions {
		name := Partition{Topic: to.Topic, Partition: to.Partition}
		var err error
		if parts[i], err = r.assigned(i, name); err != nil {
			return nil, err
		}
		at := broker.Position{Value: to.NextOffset}
		if _, err := parts[i].topic.Open(model.PartitionID(name.Partition), at, r.want.isolation); err != nil {
			return nil, ofPartition(err, name)
		}
	}
	for i, p := range parts {
		p.next = model.Offset(c.partitions[i].NextOffset)
	}
	return SoughtFrame{AnswerFrame{"sought", id}, append([]Position{}, c.partitions...)}, nil
}

// assigned finds the partition that stands at index i of a frame's partitions.
func (r *reader) assigned(i int, name Partition) (*readPartition, error) {
	if p := r.find(name); p != nil {
		return p, nil
	}
	if r.member != nil {
		return nil, notOwner(name)
	}
	return nil, model.Invalid(fmt.Sprintf("/partitions/%d", i), "partition %d of %q is not assigned to this socket", name.Partition, name.Topic)
}
