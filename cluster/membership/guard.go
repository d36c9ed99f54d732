package membership

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/hashicorp/serf/serf"
)

// guard keeps members of other clusters out; serf asks it before it takes anybody in.
type guard struct {
	mu      sync.Mutex
	cluster string // guarded by mu: the cluster of this node, or the first that it met
	refused error  // guarded by mu: the last refusal
}

// NotifyMerge implements serf.MergeDelegate.
func (g *guard) NotifyMerge(members []*serf.Member) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	known := g.cluster
	for _, m := range members {
		c := m.Tags[tagCluster]
		switch {
		case c == "" || c == known:
		case known == "":
			known = c
		default:
			g.refused = fmt.Errorf("%w: node %s is of cluster %s, this one of %s", ErrOtherCluster, m.Tags[tagNode], c, known)
			return g.refused
		}
	}
	g.cluster = known
	return nil
}

func (g *guard) set(cluster string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cluster = cluster
}

func (g *guard) forget() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refused = nil
}

func (g *guard) refusal() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.refused
}

// lines hands what serf and memberlist log to slog. What they warn of is of interest to who
// looks for a fault; what operators must know is logged by the callers.
type lines struct{ log *slog.Logger }

// Write logs one line.
func (l lines) Write(p []byte) (int, error) {
	level := slog.LevelDebug
	if bytes.Contains(p, []byte("[ERR]")) {
		level = slog.LevelInfo
	}
	text := p
	for _, mark := range []string{"[ERR] ", "[WARN] ", "[INFO] ", "[DEBUG] "} {
		if i := bytes.Index(p, []byte(mark)); i >= 0 {
			text = p[i+len(mark):]
		}
	}
	l.log.Log(context.Background(), level, string(bytes.TrimSpace(text)), "component", "gossip")
	return len(p), nil
}
