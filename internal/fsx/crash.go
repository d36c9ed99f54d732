package fsx

import (
	"math/rand/v2"
	"slices"
)

// Crash returns what a power cut at this moment leaves: all that was synced, and
// of each unsynced write, change of length and directory entry either all,
// nothing or (a write) a part of it, as the seed says. m itself is not changed.
func (m *Mem) Crash(seed uint64) *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	rng := rand.New(rand.NewPCG(seed, 0x7469646577697265))
	out := NewCrashMem()
	keep := make(map[*entryOp]bool, len(m.entryOps))
	mode := rng.IntN(4) // 0: lose everything, 1: keep everything, else by coin
	coin := func() bool { return mode == 1 || mode > 1 && rng.IntN(2) == 0 }
	for _, op := range m.entryOps {
		keep[op] = coin()
	}
	entries := map[*memNode]map[string]*memNode{}
	var durable func(n *memNode) map[string]*memNode //nolint:staticcheck // it calls itself
	durable = func(n *memNode) map[string]*memNode {
		if e, ok := entries[n]; ok {
			return e
		}
		e := make(map[string]*memNode, len(n.durable))
		for name, c := range n.durable {
			e[name] = c
		}
		entries[n] = e
		return e
	}
	for _, op := range m.entryOps {
		if keep[op] {
			op.apply(durable)
		}
	}
	clones := map[*memNode]*memNode{}
	var clone func(n *memNode) *memNode
	clone = func(n *memNode) *memNode {
		if c, ok := clones[n]; ok {
			return c
		}
		c := &memNode{dir: n.dir}
		clones[n] = c
		if !n.dir {
			c.synced = n.afterCrash(rng, coin)
			c.data = slices.Clone(c.synced)
			out.used += int64(len(c.data))
			return c
		}
		c.entries, c.durable = map[string]*memNode{}, map[string]*memNode{}
		for _, name := range sortedNames(durable(n)) {
			child := clone(durable(n)[name])
			c.entries[name], c.durable[name] = child, child
		}
		return c
	}
	out.root = clone(m.root)
	return out
}

func (op *entryOp) apply(entries func(*memNode) map[string]*memNode) {
	for i, d := range op.dirs {
		if op.nodes[i] == nil {
			delete(entries(d), op.names[i])
		} else {
			entries(d)[op.names[i]] = op.nodes[i]
		}
	}
}

func (n *memNode) afterCrash(rng *rand.Rand, coin func() bool) []byte {
	data := slices.Clone(n.synced)
	for _, op := range n.ops {
		switch {
		case !coin():
		case op.data == nil:
			data = resize(data, op.off)
		default:
			b := op.data
			if len(b) > 1 && rng.IntN(4) == 0 {
				b = b[:rng.IntN(len(b))] // torn
			}
			data = overwrite(data, b, op.off)
		}
	}
	return data
}

// Clone returns a copy of the file system at this moment, with what is unsynced: what a
// killed process leaves behind. m itself is not changed, and files that are open stay m's.
func (m *Mem) Clone() *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := cloner{nodes: map[*memNode]*memNode{}}
	out := &Mem{track: m.track, capacity: m.capacity, used: m.used, root: c.node(m.root)}
	for _, op := range m.entryOps {
		out.entryOps = append(out.entryOps, &entryOp{dirs: c.all(op.dirs), names: op.names, nodes: c.all(op.nodes)})
	}
	return out
}

// cloner keeps it that a file has several names, or is known by what is durable alone.
type cloner struct {
	nodes map[*memNode]*memNode
}

func (c *cloner) node(n *memNode) *memNode {
	if n == nil {
		return nil
	}
	if k, ok := c.nodes[n]; ok {
		return k
	}
	k := &memNode{dir: n.dir, data: slices.Clone(n.data), synced: slices.Clone(n.synced), ops: slices.Clone(n.ops)}
	c.nodes[n] = k
	if n.dir {
		k.entries, k.durable = map[string]*memNode{}, map[string]*memNode{}
		for name, e := range n.entries {
			k.entries[name] = c.node(e)
		}
		for name, e := range n.durable {
			k.durable[name] = c.node(e)
		}
	}
	return k
}

func (c *cloner) all(in []*memNode) []*memNode {
	out := make([]*memNode, 0, len(in))
	for _, n := range in {
		out = append(out, c.node(n))
	}
	return out
}
