package auth

import (
	"context"
	"time"

	"tidewire/cluster/metadata"
)

// Intervals of Run: between looks, and after a failure.
const (
	maintainEvery = time.Hour
	maintainRetry = time.Minute
)

// Run rotates signing keys, removes what has expired and notes the use of API tokens until
// ctx ends. It looks at the image each hour and does what is due, so that every node may
// run it: the quorum takes one new key per rotation.
func (s *Service) Run(ctx context.Context) {
	t := time.NewTimer(0)
	defer t.Stop()
	touch := time.NewTicker(touchEvery)
	defer touch.Stop()
	for {
		select {
		case <-ctx.Done():
			s.noteLastUses(ctx)
			return
		case <-touch.C:
			s.noteUses(ctx)
			continue
		case <-t.C:
		}
		wait := maintainEvery
		if err := s.maintain(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("signing keys and sessions could not be maintained; trying again", "in", maintainRetry, "error", err)
			wait = maintainRetry
		}
		t.Reset(wait)
	}
}

// maintain adds a signing key when the newest is due to be replaced, and removes
// keys whose last token has expired and sessions and tokens past their time. A
// replaced key verifies for as long as a node that has not yet seen its successor
// might still have signed with it, and the lifetime of a token more.
func (s *Service) maintain(ctx context.Context) error {
	if err := s.addKey(ctx, true); err != nil {
		return err
	}
	now := metadata.MillisOf(s.now())
	if !prunable(s.cluster.Image(), now) {
		return nil
	}
	_, err := s.propose(ctx, metadata.Prune{Now: now})
	return err
}

// prunable reports whether anything has expired.
func prunable(img *metadata.Image, now metadata.Millis) bool {
	for k := range img.SigningKeys() {
		if k.VerifyUntil <= now {
			return true
		}
	}
	for x := range img.Sessions() {
		if x.ExpiresAt <= now {
			return true
		}
	}
	for x := range img.APITokens() {
		if x.ExpiresAt != 0 && x.ExpiresAt <= now {
			return true
		}
	}
	return false
}
