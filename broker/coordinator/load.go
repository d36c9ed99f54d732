package coordinator

import (
	"context"
	"time"

	"tidewire/broker/group"
	"tidewire/broker/group/offsetslog"
	"tidewire/broker/partition"
	"tidewire/internal/model"
	"tidewire/storage/record"
	"tidewire/storage/visible"
)

// Waits between attempts to load; each is twice the last.
const (
	firstRetry = 200 * time.Millisecond
	lastRetry  = 10 * time.Second
)

// loadBytes is how much is read at once: with what a batch inflates to it is the memory that
// loading takes beside the groups.
const loadBytes = 1 << 20

// load reads the partition until that has succeeded, or the shard has ended.
func (s *shard) load(ctx context.Context) {
	began := s.c.mono()
	for wait := firstRetry; ; wait = min(2*wait, lastRetry) {
		n, err := s.loadOnce(ctx)
		if err == nil {
			s.c.logger.Info("the groups of a partition are loaded", "partition", s.id, "epoch", s.epoch, "groups", n, "took", s.c.mono()-began)
			return
		}
		if !s.failedWith(err) {
			return
		}
		s.c.logger.Error("the groups of a partition cannot be loaded", "partition", s.id, "error", err)
		if !s.pause(ctx, wait) {
			return
		}
	}
}

// failedWith notes why an attempt to load failed; false: it does not matter any more.
func (s *shard) failedWith(err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = err
	return s.gone == nil
}

// pause waits, unless the shard or the node ends.
func (s *shard) pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-s.end:
	case <-ctx.Done():
	}
	return false
}

func (s *shard) loadOnce(ctx context.Context) (groups int, _ error) {
	select {
	case s.c.loading <- struct{}{}:
		defer func() { <-s.c.loading }()
	case <-s.end:
		return 0, s.ended()
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	s.c.mu.Lock()
	topic := s.c.topic
	s.c.mu.Unlock()
	replica, err := s.c.broker.Replica(ctx, topic, s.id)
	if err != nil {
		return 0, err
	}
	s.replica = replica
	if err := s.settle(ctx); err != nil {
		return 0, err
	}
	folds, err := s.fold(ctx, func(string) bool { return true })
	if err != nil {
		return 0, err
	}
	return len(folds), s.publish(folds)
}

func (s *shard) ended() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gone
}

// settle waits until the replica leads in the shard's epoch, and everything that its log had
// then is committed: what an earlier leader wrote and did not see committed counts, once this
// one has.
func (s *shard) settle(ctx context.Context) error {
	w := partition.NewWatcher()
	s.replica.Watch(w)
	defer s.replica.Unwatch(w)
	end := model.Offset(-1)
	for {
		lead := s.replica.Leadership()
		if lead.Leader && lead.Epoch == s.epoch {
			if err := s.replica.Err(); err != nil {
				return err
			}
			bounds := s.replica.Bounds()
			if end < 0 {
				end = bounds.LogEnd
			}
			if bounds.HighWatermark >= end {
				return nil
			}
		}
		select {
		case <-w.C():
		case <-s.end:
			return s.ended()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// folding is a group being read from the log.
type folding struct {
	core      *group.Group
	patterned bool
}

// fold reads what is committed of the groups that are wanted.
func (s *shard) fold(ctx context.Context, want func(name string) bool) (map[string]*folding, error) {
	out := map[string]*folding{}
	bounds := s.replica.Bounds()
	filter := visible.Filter{To: bounds.HighWatermark, Aborted: s.replica.AbortedTransactions}
	inflate := record.NewDecompressor(record.MaxInflated)
	defer inflate.Release()
	var buf []byte
	for next := bounds.LogStart; next < bounds.HighWatermark; {
		select {
		case <-s.end:
			return nil, s.ended()
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		default:
		}
		chunk, err := s.replica.Read(buf[:0], next, bounds.HighWatermark, loadBytes)
		if err != nil {
			return nil, err
		}
		if len(chunk) == 0 {
			break
		}
		buf = chunk[:0]
		for len(chunk) > 0 {
			var batch record.Batch
			if batch, chunk, err = record.ParseBatch(chunk); err != nil {
				return nil, damaged(s.id, next, err)
			}
			if err := foldBatch(out, &batch, &filter, inflate, foldArgs{s, want}); err != nil {
				return nil, err
			}
			next = batch.Header.NextOffset()
		}
		s.c.metrics.read(s.id, int64(next-bounds.LogStart), int64(bounds.HighWatermark-bounds.LogStart))
	}
	for name, f := range out {
		if f.core.Vacant() {
			delete(out, name)
		}
	}
	return out, nil
}

type foldArgs struct {
	s    *shard
	want func(name string) bool
}

func foldBatch(out map[string]*folding, batch *record.Batch, filter *visible.Filter, inflate *record.Decompressor, a foldArgs) error {
	at := batch.Header.BaseOffset
	if err := batch.VerifyCRC(); err != nil {
		return damaged(a.s.id, at, err)
	}
	if hidden, err := filter.Hides(&batch.Header); hidden || err != nil {
		return err
	}
	var it record.Iterator
	if err := batch.Records(inflate, &it); err != nil {
		return damaged(a.s.id, at, err)
	}
	for it.Next() {
		r := it.Record()
		name, rec, ok, err := offsetslog.Decode(r.Key, r.Value)
		if err != nil {
			return damaged(a.s.id, r.Offset, err)
		}
		if !ok || !a.want(name) {
			continue
		}
		f := out[name]
		if f == nil {
			if _, gone := rec.(group.Tombstone); gone {
				continue
			}
			f = &folding{core: group.New(name, a.s.c.settings)}
			out[name] = f
		}
		f.core.Apply(rec)
		if m, ok := rec.(group.Member); ok && m.Pattern != "" {
			f.patterned = true
		}
	}
	if err := it.Err(); err != nil {
		return damaged(a.s.id, at, err)
	}
	return nil
}

func damaged(p model.PartitionID, at model.Offset, err error) error {
	return model.Errorf(model.StorageError, "partition %d of __consumer_offsets cannot be read at offset %d", p, at).WithCause(err)
}

// publish lets calls in.
func (s *shard) publish(folds map[string]*folding) error {
	s.mu.Lock()
	if s.gone != nil {
		defer s.mu.Unlock()
		return s.gone
	}
	actors := make([]*actor, 0, len(folds))
	for name, f := range folds {
		actors = append(actors, s.adoptLocked(name, f))
	}
	s.loaded, s.failed = true, nil
	close(s.ready)
	s.mu.Unlock()
	s.welcome(actors)
	return nil
}

// adoptLocked makes an actor of a group that was read. Its sessions begin with its first
// operation.
func (s *shard) adoptLocked(name string, f *folding) *actor {
	a := s.newActor(name, f.core)
	a.patterned, a.idled = f.patterned, true
	s.groups[name] = a
	return a
}

// welcome begins the sessions of groups that were read, and tells them what happened
// meanwhile.
func (s *shard) welcome(actors []*actor) {
	for _, a := range actors {
		a.settle()
		a.post(topicsChanged)
	}
}

// reload has the group of an actor, whose lock is held, read again: its state is not what is
// committed.
func (s *shard) reload(a *actor, why error) {
	s.c.metrics.reloads.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone != nil || s.groups[a.name] != a {
		return
	}
	delete(s.groups, a.name)
	first := len(s.again) == 0
	s.again[a.name] = &reloading{ready: make(chan struct{})}
	s.c.logger.Warn("a change of a group was not committed; the group is read again", "group", a.name, "partition", s.id, "error", why)
	if first {
		s.c.group.Go("coordinator/reload", s.reloadLoop)
	}
}

// reloadLoop reads groups again until none is left to be.
func (s *shard) reloadLoop(ctx context.Context) {
	for wait := firstRetry; ; wait = min(2*wait, lastRetry) {
		names := s.dropped()
		if len(names) == 0 {
			return
		}
		folds, err := s.fold(ctx, func(name string) bool { return names[name] })
		if err == nil {
			if s.comeBack(names, folds) {
				return
			}
			wait = firstRetry
			continue
		}
		s.c.logger.Error("groups cannot be read again", "partition", s.id, "groups", len(names), "error", err)
		s.refuse(names, err)
		if !s.pause(ctx, wait) {
			return
		}
	}
}

func (s *shard) dropped() map[string]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[string]bool, len(s.again))
	for name := range s.again {
		out[name] = true
	}
	return out
}

// refuse gives those who wait for groups the reason why these cannot be read.
func (s *shard) refuse(names map[string]bool, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range names {
		if r := s.again[name]; r != nil && r.err == nil {
			r.err = why
			close(r.ready)
		}
	}
}

// comeBack lets calls to groups in that were read again; whole: there are no others to be.
func (s *shard) comeBack(names map[string]bool, folds map[string]*folding) (whole bool) {
	var actors []*actor
	s.mu.Lock()
	if s.gone != nil {
		s.mu.Unlock()
		return true
	}
	for name := range names {
		r := s.again[name]
		delete(s.again, name)
		if r.err == nil {
			close(r.ready)
		}
		if f := folds[name]; f != nil {
			actors = append(actors, s.adoptLocked(name, f))
		}
	}
	whole = len(s.again) == 0
	s.mu.Unlock()
	s.welcome(actors)
	return whole
}
