package log

import (
	"log/slog"
	"math"
	"time"

	"tidewire/internal/fsx"
	"tidewire/internal/lifecycle"
	"tidewire/storage/files"
	"tidewire/storage/index"
	"tidewire/storage/record"
)

// Config is what one log takes from its topic's configuration. The zero value of
// a number means its default.
type Config struct {
	SegmentBytes       int64 // segment.bytes; default 500 MiB
	SegmentMs          int64 // segment.ms; default 7 days
	SegmentJitterMs    int64 // segment.jitter.ms; default 0
	FileDeleteDelayMs  int64 // file.delete.delay.ms; negative: at once; default 60 s
	IndexIntervalBytes int   // index.interval.bytes; default 4096
	SegmentIndexBytes  int   // segment.index.bytes; default 10 MiB
	MaxMessageBytes    int   // max.message.bytes, of one stored batch with its header; default 1 MiB + 12
	LogAppendTime      bool  // message.timestamp.type=LogAppendTime
	DedupeWindowMs     int64 // dedupe.window.ms; negative: none; default 5 min
	WriteCaching       bool  // write.caching: the stable end follows the log end at once
}

// Defaults of Config, as Kafka's except SegmentBytes.
const (
	DefaultSegmentBytes       = 500 << 20
	DefaultSegmentMs          = 7 * 24 * 3600 * 1000
	DefaultFileDeleteDelayMs  = 60_000
	DefaultIndexIntervalBytes = 4096
	DefaultSegmentIndexBytes  = 10 << 20
	DefaultMaxMessageBytes    = 1<<20 + 12
	DefaultDedupeWindowMs     = 5 * 60 * 1000
)

func (c Config) withDefaults() Config {
	if c.SegmentBytes <= 0 {
		c.SegmentBytes = DefaultSegmentBytes
	}
	c.SegmentBytes = min(c.SegmentBytes, math.MaxInt32)
	if c.SegmentMs <= 0 {
		c.SegmentMs = DefaultSegmentMs
	}
	if c.FileDeleteDelayMs == 0 {
		c.FileDeleteDelayMs = DefaultFileDeleteDelayMs
	}
	if c.DedupeWindowMs == 0 {
		c.DedupeWindowMs = DefaultDedupeWindowMs
	}
	if c.IndexIntervalBytes <= 0 {
		c.IndexIntervalBytes = DefaultIndexIntervalBytes
	}
	if c.SegmentIndexBytes <= 0 {
		c.SegmentIndexBytes = DefaultSegmentIndexBytes
	}
	// Two time entries must fit: one for the interval, one for sealing.
	c.SegmentIndexBytes = max(c.SegmentIndexBytes, 2*index.Time.EntrySize())
	if c.MaxMessageBytes <= 0 {
		c.MaxMessageBytes = DefaultMaxMessageBytes
	}
	return c
}

// StoreOptions says where a Store lives and what it uses. FS, Dir and Group are
// required.
type StoreOptions struct {
	FS                 fsx.FS
	Dir                string // the data folder; logs live in Dir/topics
	Logger             *slog.Logger
	Group              *lifecycle.Group // owns the store's goroutines
	Now                func() time.Time
	Monotonic          func() time.Duration // a clock that nobody sets; nil: keys of Idempotency-Keys age by Now alone
	SyncInterval       time.Duration        // dirty logs without a waiter are synced this often; default 2 ms
	CheckpointInterval time.Duration        // default 1 s
	TrashDelay         time.Duration        // how long removed folders stay in Dir/trash; default 60 s
	Tuning             Tuning               // until Tune says otherwise
	MaxInflate         int                  // bytes that one compressed batch may inflate to in a seek by time or in compaction; default record.MaxInflated
	// Inflation is the memory for large batches in seeks by time, which come in numbers; of
	// compaction, which has one batch at a time, it is not. nil: without limit.
	Inflation *record.Budget
	// DedupeBufferBytes is the memory for the keys of what one pass of compaction covers, at
	// 24 bytes a key; default 128 MiB. It is taken while a pass runs, and no more than it needs.
	DedupeBufferBytes int64
	// KeyMemory is the memory for Idempotency-Keys of all logs, dedupe.EntryBytes each; default
	// 128 MiB. Beyond it leaders refuse further keys with RateLimited.
	KeyMemory int64
	// Room is asked before the folder of a new log is made; its error is that of Open. nil:
	// there is room.
	Room func() error
	// MaxOpenFiles is how many files are open at once at most; default files.DefaultLimit, and
	// at least files.MinLimit.
	MaxOpenFiles int
}

func (o StoreOptions) withDefaults() StoreOptions {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.SyncInterval <= 0 {
		o.SyncInterval = 2 * time.Millisecond
	}
	if o.CheckpointInterval <= 0 {
		o.CheckpointInterval = time.Second
	}
	if o.TrashDelay <= 0 {
		o.TrashDelay = time.Minute
	}
	if o.DedupeBufferBytes <= 0 {
		o.DedupeBufferBytes = 128 << 20
	}
	if o.KeyMemory <= 0 {
		o.KeyMemory = 128 << 20
	}
	if o.MaxOpenFiles <= 0 {
		o.MaxOpenFiles = files.DefaultLimit
	}
	if o.Room == nil {
		o.Room = func() error { return nil }
	}
	if o.MaxInflate <= 0 {
		o.MaxInflate = record.MaxInflated
	}
	return o
}
