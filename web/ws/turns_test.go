package ws

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tidewire/internal/lifecycle"
)

// resting requires that no socket has a turn under way.
func (n *node) resting() {
	n.t.Helper()
	synctest.Wait()
	n.handler.each(func(s *session) {
		s.turns.mu.Lock()
		defer s.turns.mu.Unlock()
		require.False(n.t, s.turns.running)
	})
}

func TestASocketWithNothingToDoHasNoGoroutineThatWrites(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.topic("t", 3)
		c := n.connect(dialOptions{})
		producer := n.connect(dialOptions{path: producePath})
		c.subscribe(`"topics":["t"],"id":1`)
		n.resting()
		for range 3 { // and comes back to rest after each thing it did
			n.produce("t", 1, "a")
			require.Equal(t, []string{"1:a"}, c.records(1))
			n.resting()
			c.send(`{"op":"pause","id":2,"partitions":[]}`)
			c.want("paused")
			producer.send(`{"op":"produce","id":3,"topic":"t","records":[]}`)
			producer.refused("3", "invalid-argument")
			n.resting()
			advance(20 * time.Second) // a ping
			n.resting()
		}
		n.topic("other", 1)
		n.resting()
		require.Equal(t, 2, n.handler.Open())
	})
}

func TestASocketWhoseFrameWaitsIsNotTakenForLost(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		c := n.connect(dialOptions{})
		n.resting()
		n.handler.each(func(s *session) {
			s.heard.Store(0)
			s.offered.Store(true)
			require.Positive(t, time.Until(s.lost(time.Now())))
			s.offered.Store(false)
			require.Negative(t, time.Until(s.lost(time.Now())))
			_ = s.alive("")
		})
		c.send(`{"op":"unsubscribe","id":1}`)
		c.refused("1", "conflict")
	})
}

// Whoever wakes is followed by a look at what there is to do, however it falls together with
// the end of a turn.
func TestNothingThatWakesIsMissed(t *testing.T) {
	t.Parallel()
	g := lifecycle.New(context.Background())
	defer func() { require.NoError(t, g.Stop(5*time.Second)) }()
	var x turns
	var todo, done atomic.Int64
	var busy atomic.Int32
	run := func(context.Context) {
		require.EqualValues(t, 1, busy.Add(1), "one turn at a time")
		for {
			done.Add(todo.Swap(0))
			busy.Add(-1)
			if x.rest() {
				return
			}
			busy.Add(1)
		}
	}
	var wakers sync.WaitGroup
	const each = 5000
	for range 4 {
		wakers.Go(func() {
			for range each {
				todo.Add(1)
				require.True(t, x.wake(g, run))
			}
		})
	}
	wakers.Wait()
	require.NoError(t, g.Stop(5*time.Second))
	require.EqualValues(t, 4*each, done.Load())
	require.False(t, x.wake(g, run), "the group has ended")
}
