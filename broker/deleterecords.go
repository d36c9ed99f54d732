package broker

import (
	"context"
	"strconv"

	"tidewire/broker/partition"
	"tidewire/cluster/metadata"
	"tidewire/internal/model"
	"tidewire/storage/log"
)

// RecordDeletion asks for the records of one partition below an offset to go.
type RecordDeletion struct {
	Partition     model.PartitionID
	Before        model.Offset
	HighWatermark bool // all that is committed; Before means nothing
}

// DeletedRecords says where a partition begins now.
type DeletedRecords struct {
	Partition model.PartitionID
	LogStart  model.Offset
}

// DeleteRecords moves the log starts of partitions up (KIP-107) and returns once they are
// durable, in the order of what. An offset at or below a log start changes nothing. All
// is checked before anything is done, and with dry nothing is: the answer is where the
// partitions would begin. It takes delete on the topic.
//
// Errors: forbidden, unknown-topic, unknown-partition, invalid-argument (a partition
// twice), conflict (the topic is compacted only), offset-out-of-range (beyond the high
// watermark, with earliest and latest), leader-unavailable, storage-full, storage-error.
// An error whose outcome is unknown may have changed some partitions; asking again is
// safe.
func (b *Broker) DeleteRecords(ctx context.Context, c Caller, name string, what []RecordDeletion, dry bool) ([]DeletedRecords, error) {
	t, err := b.find(ctx, c, metadata.OpDelete, name)
	if err != nil {
		return nil, err
	}
	if !t.Config.CleanupPolicy.Delete {
		return nil, model.Errorf(model.Conflict, "topic %q has cleanup.policy=compact: only topics whose policy holds delete lose records by offset", name)
	}
	moves := make([]startMove, len(what))
	seen := make(map[model.PartitionID]bool, len(what))
	for i, d := range what {
		if seen[d.Partition] {
			return nil, model.Invalid(pointerTo(i)+"/partition", "partition %d is given twice", d.Partition)
		}
		seen[d.Partition] = true
		if moves[i], err = b.deletion(ctx, name, d); err != nil {
			return nil, err
		}
	}
	if dry {
		for i := range moves {
			moves[i].Start = max(moves[i].To, moves[i].had)
		}
		return deleted(what, moves)
	}
	b.advance(ctx, t.ID, what, moves)
	return deleted(what, moves)
}

// startMove is a log start that is to move; Log is nil where another node leads the partition.
type startMove struct {
	log.StartMove
	had  model.Offset
	part *partition.Partition // with Log
}

func pointerTo(i int) string { return "/partitions/" + strconv.Itoa(i) }

// deletion checks one partition's part.
func (b *Broker) deletion(ctx context.Context, name string, d RecordDeletion) (startMove, error) {
	t, part, err := b.source(ctx, name, d.Partition, 0)
	if err != nil {
		return startMove{}, err
	}
	bounds := part.Bounds()
	to := d.Before
	if d.HighWatermark {
		to = bounds.HighWatermark
	}
	if to > bounds.HighWatermark {
		return startMove{}, beyondHighWatermark(d, bounds)
	}
	m := startMove{StartMove: log.StartMove{To: to}, had: bounds.LogStart}
	if m.part, _ = part.(*partition.Partition); m.part != nil {
		m.Log = t.openLogs()[d.Partition]
	}
	return m, nil
}

func beyondHighWatermark(d RecordDeletion, bounds partition.Bounds) error {
	return model.Errorf(model.OffsetOutOfRange, "offset %d of partition %d is beyond the high watermark %d", d.Before, d.Partition, bounds.HighWatermark).
		WithExtra("earliest", bounds.LogStart).WithExtra("latest", bounds.HighWatermark)
}

// deleted turns what became of the moves into the answer. When some were made and others
// not, the outcome of the whole is unknown.
func deleted(what []RecordDeletion, moves []startMove) ([]DeletedRecords, error) {
	out := make([]DeletedRecords, len(moves))
	var failed error
	done := 0
	for i := range moves {
		if moves[i].Err != nil {
			failed = moves[i].Err
			continue
		}
		done++
		out[i] = DeletedRecords{Partition: what[i].Partition, LogStart: moves[i].Start}
	}
	if failed == nil {
		return out, nil
	}
	if done > 0 {
		return nil, model.AsError(failed).WithOutcome(model.Unknown)
	}
	return nil, failed
}
