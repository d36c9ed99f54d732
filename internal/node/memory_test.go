package node

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMemoryIsGivenBackByAQuietNodeThatHoldsMuchForNothing(t *testing.T) {
	t.Parallel()
	before := heapUse{allocated: 1 << 30}
	holds := func(allocated, objects, live, free uint64) heapUse {
		return heapUse{allocated: before.allocated + allocated, objects: objects, live: live, free: free}
	}
	for name, c := range map[string]struct {
		now  heapUse
		trim bool
	}{
		"garbage":                     {holds(0, 100<<20, 60<<20, 0), true},
		"free memory":                 {holds(0, 60<<20, 60<<20, 40<<20), true},
		"both together":               {holds(quietBytes, 70<<20, 60<<20, 6<<20), true},
		"at light work":               {holds(10<<20, 100<<20, 60<<20, 0), true},
		"at light work of late":       {holds(10<<20+1, 100<<20, 60<<20, 0), false},
		"the most that is light":      {holds(steadyBytes, 260<<20, 60<<20, 0), true},
		"at work":                     {holds(steadyBytes+1, 300<<20, 60<<20, 0), false},
		"little to give":              {holds(0, 70<<20, 60<<20, 5<<20), false},
		"more live than there is now": {holds(0, 60<<20, 61<<20, 1<<20), false},
	} {
		require.Equal(t, c.trim, shouldTrim(before, c.now), name)
	}
}

func TestTheRuntimeTellsOfItsHeap(t *testing.T) {
	t.Parallel()
	before := readHeap()
	b := make([]byte, 8<<20)
	now := readHeap()
	require.GreaterOrEqual(t, now.allocated-before.allocated, uint64(8<<20))
	require.GreaterOrEqual(t, now.objects, uint64(8<<20))
	runtime.KeepAlive(b)
}
