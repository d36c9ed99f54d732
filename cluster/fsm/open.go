package fsm

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/hashicorp/raft"

	"tidewire/cluster/metadata"
	"tidewire/storage/meta"
)

// Config is what the state machine stands on.
type Config struct {
	Path      string // of the SQLite file
	ClusterID string // "" while this node does not know it
	Snapshots raft.SnapshotStore
	Logs      raft.LogStore
	Logger    *slog.Logger
	Fatal     func(error) // called once on a local fault; must not block
}

// ErrLogBehind is returned when SQLite has applied more than raft's log and snapshots
// hold: acknowledged changes are missing from the log, and going on would lose them
// silently.
var ErrLogBehind = errors.New("the metadata log ends before what was applied; meta/raft was replaced or lost entries")

// ErrLogGap is returned when the log's first entries are gone and no snapshot holds them.
var ErrLogGap = errors.New("the metadata log does not begin where its newest readable snapshot ends")

// Open opens the state machine from SQLite, or, when that file cannot be used or lies
// below the newest snapshot, rebuilds it from the newest snapshot that reads and the log
// behind it. What the log holds beyond that is applied by raft.
func Open(cfg Config) (*FSM, error) {
	f := &FSM{log: cfg.Logger, fatal: cfg.Fatal, advanced: make(chan struct{}), closing: make(chan struct{})}
	ends, err := findEnds(cfg)
	if err != nil {
		return nil, err
	}
	store, img, applied, err := meta.Open(cfg.Path, cfg.ClusterID)
	reason := err
	switch {
	case errors.Is(err, meta.ErrUnusable):
	case err != nil:
		return nil, err
	case applied > max(ends.last, ends.snapshot):
		return nil, errors.Join(fmt.Errorf("%w: it ends at %d, applied was %d", ErrLogBehind, max(ends.last, ends.snapshot), applied), store.Close())
	case missesCommands(cfg.Logs, applied, ends.snapshot):
		reason = fmt.Errorf("it has applied %d, below the newest snapshot", applied)
		if err := store.Close(); err != nil {
			return nil, err
		}
	default:
		f.store, f.applied = store, applied
		f.image.Store(img)
		return f, nil
	}
	return f, f.rebuild(cfg, ends, reason)
}

// ends says which raft indexes the log and the snapshots cover; 0 is none.
type ends struct{ first, last, snapshot uint64 }

func findEnds(cfg Config) (ends, error) {
	var e ends
	var err error
	if e.first, err = cfg.Logs.FirstIndex(); err != nil {
		return e, fmt.Errorf("metadata log: %w", err)
	}
	if e.last, err = cfg.Logs.LastIndex(); err != nil {
		return e, fmt.Errorf("metadata log: %w", err)
	}
	list, err := cfg.Snapshots.List()
	if err != nil {
		return e, fmt.Errorf("metadata snapshots: %w", err)
	}
	if len(list) > 0 {
		e.snapshot = list[0].Index
	}
	if e.first > e.snapshot+1 {
		return e, fmt.Errorf("%w: it begins at %d, the snapshot ends at %d", ErrLogGap, e.first, e.snapshot)
	}
	return e, nil
}

// missesCommands reports whether a store that has applied one index lacks anything up to
// a snapshot's. Raft's own entries are not applied, so a store may end below a snapshot
// and be whole.
func missesCommands(logs raft.LogStore, applied, snapshot uint64) bool {
	for index := applied + 1; index <= snapshot; index++ {
		var l raft.Log
		if err := logs.GetLog(index, &l); err != nil || l.Type == raft.LogCommand {
			return true
		}
	}
	return false
}

// rebuild makes SQLite anew. Raft replays the log from the newest snapshot on, so
// whatever an older snapshot lacks up to there is replayed here.
func (f *FSM) rebuild(cfg Config, e ends, reason error) error {
	img, from, err := newestReadable(cfg)
	if err != nil {
		return err
	}
	for index := from + 1; index <= e.snapshot; index++ {
		var l raft.Log
		if err := cfg.Logs.GetLog(index, &l); err != nil {
			return fmt.Errorf("%w: entry %d: %w", ErrLogGap, index, err)
		}
		if l.Type != raft.LogCommand {
			continue
		}
		cmd, err := metadata.DecodeCommand(l.Data)
		if err != nil {
			return fmt.Errorf("metadata log entry %d: %w", index, err)
		}
		img, _, _ = metadata.Apply(img, index, cmd)
	}
	f.applied = max(from, e.snapshot)
	if f.store, err = meta.Create(cfg.Path, img, f.applied); err != nil {
		return fmt.Errorf("rebuild the metadata store: %w", err)
	}
	f.image.Store(img)
	if e.last > 0 || e.snapshot > 0 {
		f.log.Warn("the metadata store is rebuilt from snapshot and log", "reason", reason,
			"snapshot_index", from, "log_end", e.last)
	}
	return nil
}

// newestReadable returns the newest snapshot that reads with its index, or an empty
// image with 0 when there is none.
func newestReadable(cfg Config) (*metadata.Image, uint64, error) {
	list, err := cfg.Snapshots.List()
	if err != nil {
		return nil, 0, fmt.Errorf("metadata snapshots: %w", err)
	}
	for _, s := range list {
		_, r, err := cfg.Snapshots.Open(s.ID)
		if err == nil {
			var img *metadata.Image
			if img, err = readSnapshot(r); err == nil {
				return img, s.Index, nil
			}
		}
		cfg.Logger.Error("a metadata snapshot does not read; trying an older one", "snapshot", s.ID, "error", err)
	}
	return metadata.Empty(), 0, nil
}
