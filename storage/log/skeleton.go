package log

import (
	"log/slog"
	"time"

	"tidewire/internal/fsx"
	"tidewire/internal/lifecycle"
	"tidewire/internal/model"
)

// Config is what one log takes from its topic's configuration. The zero value of
// a number means its default.
type Config struct {
	SegmentBytes       int64 // segment.bytes; default 500 MiB
	SegmentMs          int64 // segment.ms; default 7 days
	IndexIntervalBytes int   // index.interval.bytes; default 4096
	SegmentIndexBytes  int   // segment.index.bytes; default 10 MiB
	MaxMessageBytes    int   // max.message.bytes, of one stored batch with its header; default 1 MiB + 12
	LogAppendTime      bool  // message.timestamp.type=LogAppendTime
	WriteCaching       bool  // write.caching: the stable end follows the log end at once
}

// StoreOptions says where a Store lives and what it uses. FS, Dir and Group are
// required.
type StoreOptions struct {
	FS                 fsx.FS
	Dir                string // the data folder; logs live in Dir/topics
	Logger             *slog.Logger
	Group              *lifecycle.Group // owns the store's goroutines
	Now                func() time.Time
	SyncInterval       time.Duration // dirty logs without a waiter are synced this often; default 2 ms
	CheckpointInterval time.Duration // default 1 s
	TrashDelay         time.Duration // how long removed folders stay in Dir/trash; default 60 s
}

// Appended says where an append landed.
type Appended struct {
	First, Last   model.Offset // of the first and the last record
	Batches       int
	Bytes         int
	MaxTimestamp  int64 // largest timestamp of the appended batches, as stored
	LogAppendTime int64 // the time stamped on every record, or -1 for CreateTime
}

// Store is one data folder.
type Store struct{}

// OpenStore reads the checkpoints of a data folder (creating it when absent),
// takes away the clean-stop marker and starts the sync scheduler.
func OpenStore(o StoreOptions) (*Store, error) { panic("skeleton") }

// Open opens or creates a partition's log; recovery runs here when it must. Safe
// to call from many goroutines for different partitions. A folder whose
// partition.metadata names another topic id is moved to Dir/trash first. An error
// of code StorageError means that the folder is damaged below its checkpointed
// stable end and was left as it is.
func (s *Store) Open(id model.TopicID, topic string, p model.PartitionID, cfg Config) (*Log, error) {
	panic("skeleton")
}

// Remove takes a log out of service and moves its folder to Dir/trash, from where
// it is deleted in the background after TrashDelay.
func (s *Store) Remove(l *Log) error { panic("skeleton") }

// Close syncs every log, writes the checkpoints and, when no log has failed, the
// clean-stop marker.
func (s *Store) Close() error { panic("skeleton") }

// Log is one partition's log. All methods are safe for concurrent use.
type Log struct{}

// Append stores one or more whole batches at the log end. It writes base offset,
// leader epoch and (LogAppendTime) timestamp into batches in place. On return the
// bytes are in the page cache. now is in milliseconds. Errors: RecordTooLarge,
// CorruptBatch, StorageFull (nothing appended), StorageError (latched).
func (l *Log) Append(batches []byte, epoch model.LeaderEpoch, now int64) (Appended, error) {
	panic("skeleton")
}

// LogStart is the first offset that can be read.
func (l *Log) LogStart() model.Offset { panic("skeleton") }

// LogEnd is the offset that the next record gets.
func (l *Log) LogEnd() model.Offset { panic("skeleton") }

// StableEnd is the end of what is synced; with WriteCaching the log end.
func (l *Log) StableEnd() model.Offset { panic("skeleton") }

// LogEndEpoch is the epoch of the last batch, or NoEpoch for an empty log.
func (l *Log) LogEndEpoch() model.LeaderEpoch { panic("skeleton") }

// EpochEnd gives the largest epoch ≤ epoch and the offset at which it ended
// (KIP-101, KIP-279); NoEpoch and -1 when epoch is above the latest or unknown.
func (l *Log) EpochEnd(epoch model.LeaderEpoch) (model.LeaderEpoch, model.Offset) {
	panic("skeleton")
}

// RequestSync says that somebody waits for the stable end: the log is synced at
// once, or again right after the sync that runs now. No effect with WriteCaching.
func (l *Log) RequestSync() { panic("skeleton") }

// Syncing reports whether a sync is running now. A true answer means that
// onSyncEnd will be called later.
func (l *Log) Syncing() bool { panic("skeleton") }

// SetCallbacks registers what the sync goroutines call, holding no lock, never
// two at a time for one log: onStable after the stable end moved; onSyncEnd after
// each sync (also a failed one), before the next begins; onFail once, when the log latches. Any may be nil.
// With WriteCaching Append moves the stable end itself and onStable is not called for it.
func (l *Log) SetCallbacks(onStable func(model.Offset), onSyncEnd func(), onFail func(error)) {
	panic("skeleton")
}

// Read appends to dst whole stored batches, starting with the one that holds
// from: at least one, at most about maxBytes, none whose base offset is ≥ limit,
// all of one segment. from at limit or at the log end gives nothing. from outside
// [log start, log end] is OffsetOutOfRange with Extra earliest and latest. CRCs
// are not checked.
func (l *Log) Read(dst []byte, from, limit model.Offset, maxBytes int) ([]byte, error) {
	panic("skeleton")
}

// OffsetForTimestamp finds the smallest offset in [log start, limit) whose record
// timestamp is ≥ ts, whatever the order of timestamps.
func (l *Log) OffsetForTimestamp(ts int64, limit model.Offset) (off model.Offset, recTs int64, found bool, err error) {
	panic("skeleton")
}

// SetHighWatermark gives the high watermark that the next checkpoint writes.
func (l *Log) SetHighWatermark(hw model.Offset) { panic("skeleton") }

// HighWatermark is the last one set, or after Open the checkpointed one, within
// [log start, log end].
func (l *Log) HighWatermark() model.Offset { panic("skeleton") }

// SetConfig changes the configuration from the next append on.
func (l *Log) SetConfig(cfg Config) { panic("skeleton") }

// Size is the number of bytes in .log files.
func (l *Log) Size() int64 { panic("skeleton") }

// Segments is the number of segments.
func (l *Log) Segments() int { panic("skeleton") }

// Failed is the error that latched the log, or nil.
func (l *Log) Failed() error { panic("skeleton") }
