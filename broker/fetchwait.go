package broker

import (
	"context"
	"time"

	"tidewire/broker/partition"
	"tidewire/cluster/metadata"
	"tidewire/internal/model"
)

// recheck is how often a waiting read looks again at the caller's token and rights even
// though nothing woke it: what ends by the clock alone wakes nobody.
const recheck = 500 * time.Millisecond

// wait returns once found says that there is enough, the request's time is over or the node
// drains. It asks again whenever something has changed.
func (f *fetching) wait(ctx context.Context, c Caller, found func(context.Context) (bool, error)) error {
	if enough, err := found(ctx); enough || err != nil {
		return err
	}
	w := partition.NewWatcher()
	f.part.Watch(w)
	defer f.part.Unwatch(w)
	defer f.b.Watch(w)()
	deadline := time.NewTimer(f.req.Wait)
	defer deadline.Stop()
	tick := time.NewTicker(recheck)
	defer tick.Stop()
	for {
		if err := f.part.Err(); err != nil {
			return err
		}
		if enough, err := found(ctx); enough || err != nil {
			return err
		}
		select {
		case <-w.C():
		case <-tick.C:
		case <-deadline.C:
			return nil
		case <-f.b.draining:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := f.b.StillAllowed(ctx, c, metadata.OpRead, f.topic.name); err != nil {
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
	return f.full || f.info.Records > 0 && f.info.Bytes >= f.req.MinBytes, nil
}
