package broker

import (
	"context"
	"time"

	"tidewire/cluster/metadata"
	"tidewire/internal/model"
)

// guards gives the read's guard, which most reads end without.
func (f *fetching) guards() *Guard {
	if f.guard == nil {
		f.guard = f.b.Guard(f.caller)
		f.guard.needs = []guarded{{Need: OnTopic(metadata.OpRead, f.topic.name), topic: f.topic.id, pinned: true}}
	}
	return f.guard
}

// end gives up what a read holds.
func (f *fetching) end() {
	if f.guard != nil {
		f.guard.Close()
		f.guard = nil
	}
}

// wait returns once found says that there is enough, the request's time is over or the node
// drains. It asks again whenever something has changed.
func (f *fetching) wait(ctx context.Context, found func(context.Context) (bool, error)) error {
	if enough, err := found(ctx); enough || err != nil {
		return err
	}
	g := f.guards()
	f.part.Watch(g.watcher)
	defer f.part.Unwatch(g.watcher)
	deadline := time.NewTimer(f.req.Wait)
	defer deadline.Stop()
	if err := g.Check(ctx); err != nil { // what has ended before the guard was there
		return err
	}
	for {
		if err := f.part.Err(); err != nil {
			return err
		}
		if enough, err := found(ctx); enough || err != nil {
			return err
		}
		select {
		case <-g.Changed():
		case <-deadline.C:
			return nil
		case <-f.b.draining:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := g.Check(ctx); err != nil {
			return err
		}
	}
}

// probe is a read that only counts, to find out whether there is enough for a read that
// waits: what is to be given must not be in memory meanwhile.
func (f *fetching) probe() *fetching {
	req := *f.req
	req.MaxBytes = min(req.MaxBytes, req.MinBytes)
	return &fetching{b: f.b, topic: f.topic, part: f.part, req: &req, owner: f.owner, patience: memoryPatience, info: f.info}
}

// found goes on counting.
func (f *fetching) found(ctx context.Context) (bool, error) {
	err := f.more(ctx)
	if model.HasCode(err, model.StorageError) && f.info.Records > 0 {
		return true, nil // what comes before it can be given
	}
	if err != nil {
		return false, err
	}
	return f.full || f.info.Records > 0 && f.info.Bytes+f.cut >= f.req.MinBytes, nil
}
