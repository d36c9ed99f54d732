// Package lifecycle gives every goroutine of a node an owner, a name and an end
// (habits: no bare go statement). A Group starts named goroutines under one
// context; Stop ends the context, waits with a deadline and names who is still
// running.
package lifecycle

import (
	"context"
	"fmt"
	"sort"
	"strings"
	"sync"
	"time"
)

// Group owns goroutines. The zero value is not usable; call New. All methods are
// safe for concurrent use.
type Group struct {
	ctx    context.Context
	cancel context.CancelFunc

	mu      sync.Mutex
	running map[string]int // guarded by mu: name → live goroutines
	live    int            // guarded by mu
	stopped bool           // guarded by mu
	idle    chan struct{}  // guarded by mu: closed when stopped and live is 0
}

// New returns a group whose context is a child of parent.
func New(parent context.Context) *Group {
	ctx, cancel := context.WithCancel(parent)
	return &Group{ctx: ctx, cancel: cancel, running: map[string]int{}, idle: make(chan struct{})}
}

// Context ends when Stop is called or the parent ends.
func (g *Group) Context() context.Context { return g.ctx }

// Go runs fn in a goroutine under the name. After Stop it does nothing and
// reports false.
func (g *Group) Go(name string, fn func(ctx context.Context)) bool {
	g.mu.Lock()
	if g.stopped {
		g.mu.Unlock()
		return false
	}
	g.running[name]++
	g.live++
	g.mu.Unlock()
	go func() {
		defer g.done(name)
		fn(g.ctx)
	}()
	return true
}

func (g *Group) done(name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.running[name]--; g.running[name] == 0 {
		delete(g.running, name)
	}
	if g.live--; g.live == 0 && g.stopped {
		close(g.idle)
	}
}

// Stop ends the group's context and waits up to timeout for every goroutine; the
// error names those still running. A second call waits again.
func (g *Group) Stop(timeout time.Duration) error {
	g.mu.Lock()
	if !g.stopped {
		g.stopped = true
		if g.live == 0 {
			close(g.idle)
		}
	}
	g.mu.Unlock()
	g.cancel()
	t := time.NewTimer(timeout)
	defer t.Stop()
	select {
	case <-g.idle:
		return nil
	case <-t.C:
		return fmt.Errorf("still running after %s: %s", timeout, strings.Join(g.names(), ", "))
	}
}

func (g *Group) names() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := make([]string, 0, len(g.running))
	for n := range g.running {
		out = append(out, n)
	}
	sort.Strings(out)
	return out
}
