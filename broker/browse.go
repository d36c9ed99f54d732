package broker

import (
	"context"
	"slices"

	"tidewire/broker/browse"
	"tidewire/cluster/metadata"
	"tidewire/internal/model"
)

// BrowseRequest is a read over partitions of one topic as one sequence.
type BrowseRequest struct {
	Topic      string
	Partitions []model.PartitionID // ascending; nil: all, or those of the cursor
	// From is where to begin, where there is no cursor; not AtOffset.
	From   Position
	Cursor *browse.Cursor
	// Direction that was asked for; nil: the cursor's, else forward.
	Direction *browse.Direction
	Isolation Isolation
	// Filter, each part of which wins over the cursor's.
	Filter browse.Filter
	// TextGiven says that Filter's text was asked for, even if it is empty.
	TextGiven bool
	// Follow goes on at the end. Without it the read is bounded by the latest offsets of
	// its start, or of the start of the read that gave the cursor.
	Follow bool
	// Lasts says that the read is a stream, which asks Delay: it is not refused by the user's
	// quota.
	Lasts bool
	// BufferBytes bounds what the read holds, beside one batch.
	BufferBytes int
}

// Browse is such a read under way. It holds neither locks nor files between calls, and
// queues nothing: each Scan reads from the logs. Only one goroutine at a time may use it;
// Changed may be received from another. Close must be called.
type Browse struct {
	*Stream
	asked     Caller // as it began; the stream's own caller is one goroutine's
	topic     *StreamTopic
	merge     *browse.Merge
	parts     []source
	direction browse.Direction
	isolation Isolation
	filter    browse.Filter
	follow    bool
	whole     bool
	known     int // partitions of the topic that the read has, where whole
	cursor    browse.Cursor
}

// Browse begins a read. Errors: forbidden, unknown-topic, unknown-partition,
// invalid-argument (a cursor of another topic or of other partitions; too many
// partitions), rate-limited (the user's quota), leader-unavailable, storage-error.
func (b *Broker) Browse(ctx context.Context, c Caller, req *BrowseRequest) (*Browse, error) {
	if !req.Lasts {
		if err := b.allowFetch(c); err != nil {
			return nil, err
		}
	}
	x := &Browse{Stream: b.NewStream(c), asked: c, isolation: req.Isolation, follow: req.Follow}
	if err := x.open(ctx, req); err != nil {
		x.Close()
		return nil, err
	}
	return x, nil
}

func (x *Browse) open(ctx context.Context, req *BrowseRequest) error {
	topics, err := x.Follow(ctx, []string{req.Topic})
	if err != nil {
		return err
	}
	x.topic = topics[0]
	if x.known, err = x.topic.Partitions(ctx); err != nil {
		return err
	}
	reading := x.orient(req)
	var parts []browse.Part
	if req.Cursor != nil {
		parts, err = x.resume(req)
	} else {
		parts, err = x.begin(req)
	}
	if err != nil {
		return err
	}
	x.cursor.Topic, x.cursor.Direction, x.cursor.Whole, x.cursor.Filter = x.topic.t.id, x.direction, x.whole, x.filter
	x.merge = browse.NewMerge(parts, reading, req.BufferBytes)
	return nil
}

// orient settles direction and filter, and tells which way to read: the page before a
// place is read from the place away.
func (x *Browse) orient(req *BrowseRequest) (reading browse.Direction) {
	x.filter = req.Filter
	c := req.Cursor
	if c != nil {
		x.direction = c.Direction
		x.filter = mergeFilters(req, &c.Filter)
	}
	if req.Direction != nil {
		x.direction = *req.Direction
	}
	if c != nil && c.Before && x.direction == c.Direction {
		return x.direction.Opposite()
	}
	return x.direction
}

func mergeFilters(req *BrowseRequest, of *browse.Filter) browse.Filter {
	f := req.Filter
	if !req.TextGiven {
		f.Text, f.In = of.Text, of.In
	}
	if !f.HasKey {
		f.Key, f.HasKey = of.Key, of.HasKey
	}
	if !f.HasTo {
		f.To, f.HasTo = of.To, of.HasTo
	}
	return f
}

// begin resolves where a read without a cursor begins.
func (x *Browse) begin(req *BrowseRequest) ([]browse.Part, error) {
	numbers := req.Partitions
	if x.whole = numbers == nil; x.whole {
		for p := range x.known {
			numbers = append(numbers, model.PartitionID(p))
		}
	}
	if len(numbers) > browse.MaxPartitions {
		return nil, model.Invalid("query:partitions", "one read has at most %d partitions; name them with partitions", browse.MaxPartitions)
	}
	out := make([]browse.Part, len(numbers))
	for i, p := range numbers {
		part, err := x.part(p)
		if err != nil {
			return nil, err
		}
		end := visibleEnd(part.Bounds(), x.isolation)
		next, err := resolve(part, req.From, x.isolation)
		if err != nil {
			return nil, err
		}
		out[i] = browse.Part{Partition: p, Log: browsed{part, x.isolation}, Next: next, Bound: x.bound(end)}
		if x.direction == browse.Backward {
			out[i].Bound = max(end, next)
		}
	}
	return out, nil
}

func (x *Browse) bound(end model.Offset) model.Offset {
	if x.follow {
		return browse.Unbounded
	}
	return end
}

// resume takes the places of a cursor, which is not trusted: what lies outside of what may
// be seen is kept out by the merge.
func (x *Browse) resume(req *BrowseRequest) ([]browse.Part, error) {
	c := req.Cursor
	x.whole = c.Whole
	if c.Topic != x.topic.t.id {
		return nil, model.Invalid("query:cursor", "the cursor belongs to another topic, maybe a deleted one of the same name")
	}
	if req.Partitions != nil && !slices.EqualFunc(req.Partitions, c.Places, func(p model.PartitionID, at browse.Place) bool { return p == at.Partition }) {
		return nil, model.Invalid("query:partitions", "the cursor belongs to a read of other partitions")
	}
	out := make([]browse.Part, 0, len(c.Places))
	for _, at := range c.Places {
		part, err := x.part(at.Partition)
		if err != nil {
			return nil, err
		}
		p := browse.Part{Partition: at.Partition, Log: browsed{part, x.isolation}, Next: at.Next, Bound: at.Bound}
		if at.Bound == browse.Unbounded || x.follow {
			p.Bound = x.bound(max(at.Next, visibleEnd(part.Bounds(), x.isolation)))
		}
		out = append(out, p)
	}
	if x.whole && (x.follow || len(c.Places) > 0 && c.Places[0].Bound == browse.Unbounded) {
		added, err := x.added(len(out))
		return append(out, added...), err
	}
	return out, nil
}

// added are the partitions from a number on, from their log start: they came after the
// read began.
func (x *Browse) added(from int) ([]browse.Part, error) {
	var out []browse.Part
	for n := from; n < x.known; n++ {
		if n >= browse.MaxPartitions {
			return nil, model.Invalid("query:partitions", "one read has at most %d partitions, and the topic has more now", browse.MaxPartitions)
		}
		part, err := x.part(model.PartitionID(n))
		if err != nil {
			return nil, err
		}
		b := part.Bounds()
		out = append(out, browse.Part{
			Partition: model.PartitionID(n), Log: browsed{part, x.isolation}, Next: b.LogStart, Bound: x.bound(visibleEnd(b, x.isolation)),
		})
	}
	return out, nil
}

// part finds a partition; one that is followed wakes the stream from now on.
func (x *Browse) part(p model.PartitionID) (source, error) {
	at, err := x.topic.partition(p)
	if err != nil {
		return nil, err
	}
	if x.follow {
		x.topic.watch(p, at)
	}
	part := sourceOf(context.Background(), at, chunkBytes)
	x.parts = append(x.parts, part)
	return part, nil
}

// browsed is a partition as a merge reads it.
type browsed struct {
	part source
	iso  Isolation
}

// Bounds are the log start and the end of what may be seen.
func (b browsed) Bounds() (start, end model.Offset) {
	bounds := b.part.Bounds()
	return bounds.LogStart, visibleEnd(bounds, b.iso)
}

// Read reads stored batches.
func (b browsed) Read(dst []byte, from, limit model.Offset, maxBytes int) ([]byte, error) {
	return b.part.Read(dst, from, limit, maxBytes)
}

// Reversed tells that records come in reverse: what was asked for is the page before a
// place, in the direction of the read that gave the cursor.
func (x *Browse) Reversed() bool { return x.merge.Direction() != x.direction }

// Reading is the way in which the records come.
func (x *Browse) Reading() browse.Direction { return x.merge.Direction() }

// Scan shows the next records to visit; see browse.Merge.Scan. Errors: unknown-topic,
// storage-error, leader-unavailable.
func (x *Browse) Scan(work int, visit func(browse.Item) browse.Verdict) (browse.Progress, error) {
	records, bytes := 0, 0
	defer func() {
		x.topic.t.rates.out(records, bytes)
		x.b.chargeFetch(x.asked, bytes)
	}()
	progress, err := x.merge.Scan(&x.filter, work, func(it browse.Item) browse.Verdict {
		v := visit(it)
		if v != browse.StopBefore {
			records++
			bytes += browse.Bytes(it.Record)
		}
		return v
	})
	return progress, x.why(err)
}

// why tells that the topic is gone where that is what a failed read comes from.
func (x *Browse) why(err error) error {
	if err != nil && x.b.meta.Image().TopicByID(x.topic.t.id) == nil {
		return unknownTopic(x.topic.t.name)
	}
	return err
}

// Renew looks again for records at the end of each partition, and for partitions that were
// added, where the read follows: call it once Changed received and Check was asked. Errors:
// unknown-topic, leader-unavailable, storage-error.
func (x *Browse) Renew(ctx context.Context) error {
	for _, p := range x.parts {
		if err := p.Err(); err != nil {
			return x.why(err)
		}
	}
	if x.follow && x.whole {
		n, err := x.topic.Partitions(ctx)
		if err != nil {
			return err
		}
		if n > x.known {
			before := x.known
			x.known = n
			added, err := x.added(before)
			if err != nil {
				return err
			}
			x.merge.Add(added)
		}
	}
	return x.why(x.merge.Refresh())
}

// Rest gives up the memory of the read, for a while in which nothing comes.
func (x *Browse) Rest() { x.merge.Release() }

// Scanned is how much was looked at so far.
func (x *Browse) Scanned() browse.Scanned { return x.merge.Scanned() }

// Ranges tells what was looked at of each partition.
func (x *Browse) Ranges() []browse.Range { return x.merge.Ranges() }

// After is the cursor behind a record that is being visited, valid until the next call.
func (x *Browse) After(it browse.Item) *browse.Cursor {
	c := x.here()
	x.merge.After(c.Places, it)
	return c
}

// Here is the cursor of the present place, valid until the next call of After or Here.
func (x *Browse) Here() *browse.Cursor { return x.here() }

func (x *Browse) here() *browse.Cursor {
	x.cursor.Places = x.merge.AppendPlaces(x.cursor.Places[:0])
	return &x.cursor
}

// Pages are the cursors around what was read so far. Next and Prev are nil where there is
// nothing that way: at the latest offsets of the start, and at the log start. Resume is
// where to go on in any case, beyond those latest offsets too.
type Pages struct{ Next, Prev, Resume *browse.Cursor }

// Pages tells how to go on from what was read so far, and back.
func (x *Browse) Pages() Pages {
	after, before := x.merge.AppendPlaces(nil), x.merge.Began()
	if x.Reversed() {
		after, before = before, after
	}
	next, prev, resume := x.cursor, x.cursor, x.cursor
	next.Places, prev.Places, resume.Places = after, before, after
	prev.Before = true
	p := Pages{Next: &next, Prev: &prev, Resume: &resume}
	if x.nothing(after, x.direction) {
		p.Next = nil
		resume.Places = unbound(after)
	}
	if x.nothing(before, x.direction.Opposite()) {
		p.Prev = nil
	}
	return p
}

// unbound are places whose read is bounded anew when it goes on.
func unbound(places []browse.Place) []browse.Place {
	out := slices.Clone(places)
	for i := range out {
		out[i].Bound = browse.Unbounded
	}
	return out
}

// nothing tells that a direction has no more offsets from places on.
func (x *Browse) nothing(places []browse.Place, dir browse.Direction) bool {
	for i, p := range places {
		start, end := browsed{x.parts[i], x.isolation}.Bounds()
		if dir == browse.Forward && p.Next < min(p.Bound, end) || dir == browse.Backward && p.Next > start {
			return false
		}
	}
	return true
}

// StillAllowed tells, like Check but from any goroutine, whether the read may go on.
func (x *Browse) StillAllowed(ctx context.Context) error {
	if err := x.b.StillAllowed(ctx, x.asked, metadata.OpRead, x.topic.t.name); err != nil {
		return err
	}
	if x.b.meta.Image().TopicByID(x.topic.t.id) == nil {
		return unknownTopic(x.topic.t.name)
	}
	return nil
}
