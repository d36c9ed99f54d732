package recordanswer

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Reading ends with the request, with its cause, and when writing has failed, with one too.
func TestAReadEndsWithItsRequestOrItsClient(t *testing.T) {
	t.Parallel()
	type key struct{}
	why := errors.New("why")
	request, cancel := context.WithCancelCause(context.WithValue(context.Background(), key{}, 1))
	defer cancel(nil)
	ended, failed := &readContext{Context: request}, &readContext{Context: request}
	require.NoError(t, ended.Err())
	require.Equal(t, 1, ended.Value(key{}))
	failed.failed = errors.New("broken pipe")
	require.ErrorIs(t, failed.Err(), context.Canceled)
	require.ErrorIs(t, context.Cause(failed), context.Canceled, "a read that looks for the cause stops")
	require.NoError(t, ended.Err(), "of this answer alone")
	cancel(why)
	<-ended.Done()
	require.ErrorIs(t, ended.Err(), context.Canceled)
	require.Equal(t, why, context.Cause(ended))
}

// A buffer that is given back is not held any more, and one that grew too long is not kept.
func TestABufferIsTakenOnce(t *testing.T) {
	t.Parallel()
	var b Buffer
	b.Free()
	b.Take(JSONStart)
	b.B = append(b.B, 'x')
	b.Take(JSONStart)
	require.Equal(t, JSONStart+"x", string(b.B), "it is there already")
	b.B = make([]byte, maxPooled+1)
	b.Free()
	require.Nil(t, b.B)
	b.Take("")
	require.Empty(t, b.B)
	require.LessOrEqual(t, cap(b.B), maxPooled)
	b.Free()
}
