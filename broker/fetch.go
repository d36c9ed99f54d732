package broker

import (
	"context"
	"time"

	"tidewire/auth"
	"tidewire/broker/browse"
	"tidewire/broker/partition"
	"tidewire/cluster/metadata"
	"tidewire/internal/model"
	"tidewire/storage/record"
)

// Isolation says which records a read sees (KIP-98): those below the last stable offset
// whose transaction was not aborted, or all below the high watermark. Without transactions
// both are the same.
type Isolation uint8

// Isolation levels.
const (
	ReadCommitted Isolation = iota
	ReadUncommitted
)

// Position is where a read begins.
type Position struct {
	Kind  PositionKind
	Value int64 // an offset, or a time in milliseconds since 1970
}

// PositionKind says how a Position is meant.
type PositionKind uint8

// Kinds of positions. Latest is the last stable offset, or the high watermark under
// ReadUncommitted; AtTime is the smallest visible offset whose record's timestamp is at
// least Value, and as Latest where there is none.
const (
	AtOffset PositionKind = iota
	Earliest
	Latest
	AtTime
)

// FetchRequest is one read of one partition.
type FetchRequest struct {
	Topic      string
	Partition  model.PartitionID
	From       Position
	MaxRecords int
	MaxBytes   int // of keys, values and headers; the first record always comes whole
	// Preview says that the reader cuts each key, value and header value to PreviewBytes, and
	// that only what is left counts for MaxBytes. One call then looks at previewScan bytes
	// at most.
	Preview      bool
	PreviewBytes int
	// Strict says that not even the first record may be larger than MaxBytes: a read that is
	// part of a larger one.
	Strict    bool
	MinBytes  int           // a waiting read answers once it has so many
	Wait      time.Duration // 0: answer at once
	Isolation Isolation
	// Filter leaves records out; nil: none. One call then looks at scanBytes of them at
	// most, and NextOffset tells how far it came.
	Filter *browse.Filter
}

// previewScan is how much one read that is for previews looks at, once it has given a record.
const previewScan = 64 << 20

// scanBytes is how much that a filter leaves out is looked at in one read.
const scanBytes = 1 << 20

// FetchInfo describes the partition at the time of a read. NextOffset is where the next
// read goes on: it passes offsets that hold nothing for the reader.
type FetchInfo struct {
	NextOffset, HighWatermark, LastStable, LogStart model.Offset
	Records, Bytes                                  int
	End                                             End
}

// End says why a read gave no more.
type End uint8

// Reasons. AtVisibleEnd: there was no more to see; AtLimit: the request's limits, or a batch
// that cannot be read (which the next read reports); AtStop: the node is about to stop.
const (
	AtVisibleEnd End = iota
	AtLimit
	AtStop
)

// Visit gets each record of a read in offset order. The record and its bytes are valid
// during the call only. logAppendTime tells the type of its timestamp.
type Visit func(r *record.Record, logAppendTime bool)

// Fetch reads records of one partition and, where the request waits, holds neither a
// lock nor a worker nor memory until there is enough. A read that waits ends early with what
// is there when the node drains; it ends with an error when the caller's rights, its token
// or the topic go away. Nothing is visited before it is known that the read may be answered.
//
// visit may take its time, for it may write to the client: the read's memory comes out of the
// node's budget for reads. It stops early when ctx ends, with its cause; visit may be what
// ends it. A batch that cannot be read ends a read that has given records before, and fails
// the next one.
//
// Errors: forbidden, unknown-topic, unknown-partition, offset-out-of-range (with
// earliest and latest), rate-limited (the user's quota, or no memory for it), leader-unavailable, storage-error.
func (b *Broker) Fetch(ctx context.Context, c Caller, req *FetchRequest, visit Visit) (FetchInfo, error) {
	f, err := b.begin(ctx, c, req)
	if err != nil {
		return FetchInfo{}, err
	}
	defer f.end()
	if req.Wait > 0 {
		probe := f.probe()
		if err := f.wait(ctx, probe.found); err != nil {
			return f.info, err
		}
	}
	f.visit, f.patience = visit, memoryPatience
	err = f.more(ctx)
	b.chargeFetch(c, f.info.Bytes)
	return f.info, err
}

// begin authorises a read and finds out where it begins.
func (b *Broker) begin(ctx context.Context, c Caller, req *FetchRequest) (*fetching, error) {
	if err := b.mayRead(ctx, c, req.Topic); err != nil {
		return nil, err
	}
	t, part, err := b.source(ctx, req.Topic, req.Partition, req.MaxBytes)
	if err != nil {
		return nil, err
	}
	next, err := resolve(part, req.From, req.Isolation)
	if err != nil {
		return nil, b.away.ConfirmRead(ctx, t.key(req.Partition), part, err)
	}
	if err := b.allowFetch(c); err != nil {
		return nil, err
	}
	return &fetching{b: b, topic: t, part: part, req: req, owner: ownerOf(c), caller: c, info: FetchInfo{NextOffset: next}}, nil
}

// ownerOf names who has to share memory with others.
func ownerOf(c Caller) string {
	if c.Principal == nil {
		return ""
	}
	return c.Principal.Name
}

func (b *Broker) mayRead(ctx context.Context, c Caller, topic string) error {
	return b.authorizer.Authorize(ctx, c.Principal, auth.Access{Operation: metadata.OpRead, Resource: metadata.ResourceTopic, Name: topic, Host: c.Host})
}

// resolve turns a position into an offset between the log start and the log end.
func resolve(part source, at Position, iso Isolation) (model.Offset, error) {
	bounds := part.Bounds()
	limit := visibleEnd(bounds, iso)
	switch at.Kind {
	case Earliest:
		return bounds.LogStart, nil
	case Latest:
		return limit, settled(bounds)
	case AtTime:
		off, _, found, err := part.OffsetForTimestamp(at.Value, limit)
		if err != nil || found {
			return off, err
		}
		return limit, settled(bounds)
	}
	off := model.Offset(at.Value)
	if off < bounds.LogStart || off > bounds.LogEnd {
		return 0, outOfRange(off, bounds, limit)
	}
	return off, nil
}

// settled is nil where the newest visible offset cannot go back.
func settled(b partition.Bounds) error {
	if b.Unsettled {
		return model.Errorf(model.LeaderUnavailable, "the partition's leader is new and does not know yet how far its records are committed")
	}
	return nil
}

func outOfRange(off model.Offset, bounds partition.Bounds, limit model.Offset) error {
	return model.Errorf(model.OffsetOutOfRange, "offset %d is not between the log start %d and the log end %d",
		off, bounds.LogStart, bounds.LogEnd).WithExtra("earliest", bounds.LogStart).WithExtra("latest", limit)
}

func visibleEnd(b partition.Bounds, iso Isolation) model.Offset {
	if iso == ReadUncommitted {
		return b.HighWatermark
	}
	return b.LastStable
}
