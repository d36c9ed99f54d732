package node

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// memoryTick is how often a node looks whether it is quiet.
	memoryTick = 2 * time.Second
	// quietBytes is the most that a quiet node allocates in a tick.
	quietBytes = 4 << 20
	// steadyBytes is the most that one allocates in a tick whose work is light but never stops,
	// such as that of many long polls.
	steadyBytes = 24 << 20
	// steadyTicks is how many ticks of such work have to have left something to give back: so
	// collecting costs little of the work's own time.
	steadyTicks = 4
	// spareBytes is what a quiet node may keep that nobody uses.
	spareBytes = 16 << 20
)

// heapUse is what the Go runtime tells of the heap, in bytes.
type heapUse struct {
	allocated uint64 // since the start
	objects   uint64 // in use or not collected yet
	live      uint64 // found in use by the last collection
	free      uint64 // in no use, and not given back to the system
}

// spare is how much could be given back.
func (u heapUse) spare() uint64 {
	if u.objects < u.live {
		return u.free
	}
	return u.objects - u.live + u.free
}

// shouldTrim tells whether a node has been quiet since before, or at light work, and holds memory
// for nothing.
// The collector, which has a floor under its goal (see docs/operations.md), would leave that
// until much more has been allocated.
func shouldTrim(before, now heapUse) bool {
	allocated, spare := now.allocated-before.allocated, now.spare()
	return spare >= spareBytes && (allocated <= quietBytes || allocated <= steadyBytes && spare >= steadyTicks*allocated)
}

func readHeap() heapUse {
	s := []metrics.Sample{
		{Name: "/gc/heap/allocs:bytes"}, {Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/free:bytes"},
	}
	metrics.Read(s)
	return heapUse{s[0].Value.Uint64(), s[1].Value.Uint64(), s[2].Value.Uint64(), s[3].Value.Uint64()}
}

// trimMemory gives memory back to the system that a burst of work has left behind, once the
// node is quiet: what many connections cost is then what they hold.
func (n *Node) trimMemory(ctx context.Context) {
	tick := time.NewTicker(memoryTick)
	defer tick.Stop()
	before := readHeap()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		now := readHeap()
		if shouldTrim(before, now) {
			debug.FreeOSMemory()
		}
		before = now
	}
}
