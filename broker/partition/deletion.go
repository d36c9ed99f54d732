package partition

import (
	"context"
	"time"

	"tidewire/internal/model"
	"tidewire/storage/log"
)

// Starts moves the starts of logs; *log.Store does.
type Starts interface {
	AdvanceLogStarts(moves []log.StartMove)
}

// deletionWait bounds how long a deletion waits for followers, whatever its caller would: one
// that does not follow has left the in-sync set by then.
const deletionWait = 15 * time.Second

// DeleteRecords moves the log starts of partitions up, each by the move at its index, and waits
// until no replica that may lead next has the records any more (KIP-107). A move's error is
// what the store says, or timeout or fenced, with outcome unknown: the records are deleted
// here, and may come back when another replica leads.
func DeleteRecords(ctx context.Context, s Starts, parts []*Partition, moves []log.StartMove) {
	s.AdvanceLogStarts(moves)
	ctx, cancel := context.WithTimeout(ctx, deletionWait)
	defer cancel()
	for i := range moves { // all follow at the same time
		if m := &moves[i]; m.Err == nil {
			m.Err = parts[i].awaitDeleted(ctx, m.To)
		}
	}
}

// awaitDeleted waits until the in-sync followers begin at an offset or later.
func (p *Partition) awaitDeleted(ctx context.Context, below model.Offset) error {
	if !p.beginDeletion() {
		return nil
	}
	w := NewWatcher()
	p.Watch(w)
	defer p.endDeletion(w)
	for {
		if done, err := p.deleted(below); done || err != nil {
			return err
		}
		select {
		case <-w.C():
		case <-ctx.Done():
			return model.Errorf(model.Timeout, "the records of partition %d of %q below offset %d are deleted on its leader, and not yet on all replicas in sync: asking again is safe", p.ID, p.Topic, below).
				WithOutcome(model.Unknown).WithCause(context.Cause(ctx))
		}
	}
}

// beginDeletion tells the followers of the log start; false: there are none.
func (p *Partition) beginDeletion() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rep == nil {
		return false
	}
	p.rep.deleting++
	for t := range p.rep.tails {
		t.Moved()
	}
	return true
}

func (p *Partition) endDeletion(w *Watcher) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rep.deleting--
	delete(p.watchers, w)
}

func (p *Partition) deleted(below model.Offset) (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed != nil:
		return false, model.AsError(p.closed).WithOutcome(model.Unknown)
	case p.rep.lead == nil:
		return false, model.Errorf(model.Timeout, "partition %d of %q has got another leader meanwhile: whether its records below offset %d are deleted is not known", p.ID, p.Topic, below).WithOutcome(model.Unknown)
	}
	return p.rep.lead.Deleted(below), nil
}
