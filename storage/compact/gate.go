package compact

import (
	"context"
	"sync"

	"tidewire/internal/model"
)

// Gate lets one pass over a log in at a time, and none while somebody holds it shut. It is safe
// for concurrent use.
type Gate struct {
	mu     sync.Mutex
	holds  int                // guarded by mu
	cancel context.CancelFunc // guarded by mu: of the pass that runs
	done   chan struct{}      // guarded by mu: closed at its end
}

// ErrNoPass says that somebody keeps the log as it is, or that a pass runs.
var ErrNoPass = model.Errorf(model.LeaderUnavailable, "the log cannot be compacted now")

// Enter begins a pass, whose context ends when somebody shuts the gate.
func (g *Gate) Enter(ctx context.Context) (context.Context, func(), error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.holds > 0 || g.done != nil {
		return nil, nil, ErrNoPass
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	g.cancel, g.done = cancel, done
	return ctx, func() {
		cancel()
		g.mu.Lock()
		g.cancel, g.done = nil, nil
		g.mu.Unlock()
		close(done)
	}, nil
}

// Shut ends the pass that runs, waits for its end, and lets none in until open.
func (g *Gate) Shut() (open func()) {
	g.mu.Lock()
	g.holds++
	done := g.done
	if done != nil {
		g.cancel()
	}
	g.mu.Unlock()
	if done != nil {
		<-done
	}
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.holds--
	}
}

// Held reports whether somebody holds it shut.
func (g *Gate) Held() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.holds > 0
}
