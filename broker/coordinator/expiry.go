package coordinator

import (
	"context"
	"time"

	"tidewire/broker/group"
)

// Offsets that nobody needs any more are looked for so often (Kafka's
// offsets.retention.check.interval.ms).
const expiryInterval = 10 * time.Minute

// maxDrift is how far the wall clock may move against the monotonic one before the age of
// commits is in doubt: a clock set a year ahead would make all of them old.
const maxDrift = 5 * time.Minute

// expiryLoop takes offsets away whose time is over.
func (c *Coordinator) expiryLoop(ctx context.Context) {
	wall0, mono0 := c.now().Round(0), c.mono() // Round takes the monotonic reading away
	t := time.NewTicker(expiryInterval)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
		drift := c.now().Round(0).Sub(wall0) - (c.mono() - mono0)
		if drift.Abs() > maxDrift {
			c.logger.Warn("the wall clock has moved against the monotonic clock: no committed offsets expire until it is set right, or the node is restarted with a clock that is right", "drift", drift)
			continue
		}
		c.expire()
	}
}

func (c *Coordinator) expire() {
	for _, a := range c.all() {
		a.post(expireOffsets)
	}
}

func expireOffsets(g *group.Group, env group.Env) (group.Effects, error) {
	return g.ExpireOffsets(env), nil
}
