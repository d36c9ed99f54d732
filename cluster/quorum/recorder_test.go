package quorum

import (
	"context"
	"testing"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
)

// echo is a state machine that answers with the index.
type echo struct{ Machine }

func (echo) Applied() uint64 { return 0 }

func (echo) ApplyBatch(logs []*raft.Log) []any {
	out := make([]any, len(logs))
	for i, l := range logs {
		out[i] = l.Index
	}
	return out
}

func commands(indexes ...uint64) []*raft.Log {
	var out []*raft.Log
	for _, i := range indexes {
		out = append(out, &raft.Log{Index: i, Type: raft.LogCommand})
	}
	return out
}

func TestAnAnswerIsKeptForWhoExpectedItBefore(t *testing.T) {
	t.Parallel()
	r := newRecorder(echo{})
	r.ApplyBatch(commands(1, 2))
	require.Empty(t, r.kept, "nobody waits")
	_, done := r.expect()
	r.ApplyBatch(commands(3, 4))
	v, found, err := r.take(t.Context(), 4)
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, uint64(4), v)
	_, found, err = r.take(t.Context(), 2)
	require.NoError(t, err)
	require.False(t, found, "it was applied before")
	done()
	require.Empty(t, r.kept)
}

func TestAnswersStayForTheEarliestWhoWaits(t *testing.T) {
	t.Parallel()
	r := newRecorder(echo{})
	_, first := r.expect()
	r.ApplyBatch(commands(1))
	_, second := r.expect()
	r.ApplyBatch(commands(2))
	first()
	require.Equal(t, []answer{{2, uint64(2)}}, r.kept, "1 is of no use to the second")
	second()
	require.Empty(t, r.kept)
}

func TestWaitingForAnAnswerEndsWithIt(t *testing.T) {
	t.Parallel()
	r := newRecorder(echo{})
	_, done := r.expect()
	defer done()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err := r.take(ctx, 1)
	require.ErrorIs(t, err, context.Canceled)
	got := make(chan any, 1)
	go func() {
		v, _, _ := r.take(t.Context(), 1)
		got <- v
	}()
	r.ApplyBatch(commands(1))
	require.Equal(t, uint64(1), <-got)
}
