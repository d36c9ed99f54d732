package auth

import (
	"context"
	"time"

	"tidewire/cluster/metadata"
)

// Writing down when API tokens were used: each node once a minute, for tokens that were
// used a minute or more after what is written; so a busy token costs a node one entry a
// minute, and all of them together a few commands.
const (
	touchEvery   = time.Minute
	maxUsesNoted = 1000 // in one command
	lastNoteTime = time.Second
)

// noteUses writes down the last uses of API tokens.
func (s *Service) noteUses(ctx context.Context) {
	uses := s.tokens.unnoted(touchEvery)
	for len(uses) > 0 && ctx.Err() == nil {
		n := min(len(uses), maxUsesNoted)
		if _, err := s.propose(ctx, metadata.TouchAPITokens{Uses: uses[:n]}); err != nil {
			s.log.Debug("the last use of API tokens could not be noted; trying again later", "error", err)
			return
		}
		uses = uses[n:]
	}
}

// noteLastUses writes down what is left before the node stops, if that is quick.
func (s *Service) noteLastUses(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastNoteTime)
	defer cancel()
	s.noteUses(ctx)
}

// unnoted are the uses that lie a step or more behind what the metadata has. Tokens that
// are gone are forgotten.
func (t *Tokens) unnoted(step time.Duration) []metadata.TokenUse {
	img := t.cluster.Image()
	var out []metadata.TokenUse
	t.uses.Range(func(key, value any) bool {
		id, at := key.(string), metadata.Millis(value.(*tokenUse).at.Load())
		k := img.APIToken(id)
		switch {
		case k == nil:
			t.uses.Delete(id)
		case at != 0 && (k.LastUsedAt == 0 || at >= k.LastUsedAt+metadata.Millis(step.Milliseconds())):
			out = append(out, metadata.TokenUse{ID: id, At: at})
		}
		return true
	})
	return out
}
