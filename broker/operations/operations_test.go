package operations_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tidewire/broker/operations"
	"tidewire/internal/fsx"
	"tidewire/internal/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a registry with a clock that a test sets.
type world struct {
	*operations.Registry
	now time.Time
}

func newWorld() *world {
	w := &world{now: time.UnixMilli(1_700_000_000_000)}
	w.Registry = operations.New(7, func() time.Time { return w.now })
	return w
}

func (w *world) view(t *testing.T, id string) operations.View {
	t.Helper()
	v, ok := w.Get(id)
	require.True(t, ok)
	return v
}

// only is the id of the one operation there is.
func (w *world) only(t *testing.T) string {
	t.Helper()
	list := w.List()
	require.Len(t, list, 1)
	return list[0].ID
}

func spec() operations.Spec {
	return operations.Spec{Kind: operations.Compact, Principal: "u", Total: 100, Unit: "bytes", Resource: operations.Resource{Type: "topic", Name: "t"}}
}

func TestAnOperationTellsHowFarItIs(t *testing.T) {
	t.Parallel()
	w := newWorld()
	_, op := w.Begin(t.Context(), spec())
	id := w.only(t)
	v := w.view(t, id)
	require.Equal(t, operations.Running, v.State)
	_, known := v.Remaining(w.now)
	require.False(t, known, "nothing is done yet")
	op.Advance(25)
	w.now = w.now.Add(time.Minute)
	v = w.view(t, id)
	left, known := v.Remaining(w.now)
	require.True(t, known)
	require.Equal(t, 3*time.Minute, left)
	_, known = v.Remaining(w.now.Add(-time.Hour))
	require.False(t, known, "the clock was set back")
	op.End(nil)
	v = w.view(t, id)
	require.Equal(t, operations.Done, v.State)
	require.EqualValues(t, 100, v.Done)
	require.Equal(t, w.now, v.EndedAt)
	require.Greater(t, v.Changes, uint64(0))
	op.End(model.Errorf(model.Internal, "late"))
	require.Equal(t, operations.Done, w.view(t, id).State, "only the first end counts")
	var none *operations.Operation
	none.Advance(1)
	none.End(nil)
}

// other is the one of two that is not id.
func (w *world) other(t *testing.T, id string) operations.View {
	t.Helper()
	list := w.List()
	require.Len(t, list, 2)
	return list[slices.IndexFunc(list, func(v operations.View) bool { return v.ID != id })]
}

func TestAFailedOperationSaysWhy(t *testing.T) {
	t.Parallel()
	w := newWorld()
	_, op := w.Begin(t.Context(), spec())
	id := w.only(t)
	op.End(model.Errorf(model.StorageFull, "no room"))
	v := w.view(t, id)
	require.Equal(t, operations.Failed, v.State)
	require.Equal(t, model.StorageFull, v.Err.Code)
	w.now = w.now.Add(time.Second)
	_, op = w.Begin(t.Context(), spec())
	op.End(context.Canceled)
	require.Equal(t, model.CommitUnknown, w.other(t, id).Err.Code)
}

func TestCancelEndsTheWorkAndWaitsForIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		ctx, op := w.Begin(t.Context(), spec())
		id := w.only(t)
		go func() { <-ctx.Done(); op.End(ctx.Err()) }()
		require.NoError(t, w.Cancel(t.Context(), id))
		require.Equal(t, operations.Cancelled, w.view(t, id).State)
		require.Nil(t, w.view(t, id).Err)
		require.True(t, model.HasCode(w.Cancel(t.Context(), id), model.Conflict), "it has ended")
		require.True(t, model.HasCode(w.Cancel(t.Context(), "none"), model.NotFound))
	})
}

func TestWhatCannotBeCancelledSaysWhy(t *testing.T) {
	t.Parallel()
	w := newWorld()
	s := spec()
	s.Lasting = "delete the topic"
	ctx, op := w.Begin(t.Context(), s)
	err := w.Cancel(t.Context(), w.only(t))
	require.True(t, model.HasCode(err, model.Conflict))
	require.Contains(t, model.AsError(err).Detail, "delete the topic")
	require.NoError(t, ctx.Err())
	op.End(nil)
}

func TestWorkThatEndsBeforeItNoticesWasNotCancelled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		ctx, op := w.Begin(t.Context(), spec())
		id := w.only(t)
		go func() { <-ctx.Done(); op.End(nil) }()
		require.True(t, model.HasCode(w.Cancel(t.Context(), id), model.Conflict))
		require.Equal(t, operations.Done, w.view(t, id).State)

		w.now = w.now.Add(time.Second)
		_, stuck := w.Begin(t.Context(), spec())
		limited, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		require.True(t, model.HasCode(w.Cancel(limited, w.other(t, id).ID), model.Timeout))
		stuck.End(nil)
	})
}

func TestWhatHasEndedIsKeptForAWhile(t *testing.T) {
	t.Parallel()
	w := newWorld()
	_, runs := w.Begin(t.Context(), spec())
	for range operations.MaxEnded + 10 {
		w.now = w.now.Add(time.Millisecond)
		_, op := w.Begin(t.Context(), spec())
		op.End(nil)
	}
	require.Len(t, w.List(), operations.MaxEnded+1, "bounded by number")
	w.now = w.now.Add(operations.MaxAge + time.Second)
	list := w.List()
	require.Len(t, list, 1, "and by age; what runs stays")
	require.Equal(t, operations.Running, list[0].State)
	runs.End(nil)
}

func TestTheListOutlivesARestartAndSaysWhatWasCutOff(t *testing.T) {
	t.Parallel()
	disk, out := fsx.NewMem(), &bytes.Buffer{}
	require.NoError(t, disk.MkdirAll("/d"))
	f := operations.File{FS: disk, Name: "/d/operations", Logger: slog.New(slog.NewTextHandler(out, nil))}
	w := newWorld()
	p := model.PartitionID(3)
	s := spec()
	s.Resource = operations.Resource{Type: "partition", Name: "t", Partition: &p}
	_, ended := w.Begin(t.Context(), s)
	ended.End(model.Errorf(model.StorageFull, "no room"))
	_, op := w.Begin(t.Context(), spec())
	op.Advance(40)
	require.NoError(t, w.Save(f))
	op.End(nil) // unnoticed: a kill came first

	next := newWorld()
	next.now = w.now.Add(time.Hour)
	next.Load(f)
	list := next.List()
	require.Len(t, list, 2)
	for _, v := range list {
		require.Equal(t, operations.Failed, v.State)
		require.EqualValues(t, 7, v.Broker)
		if v.Spec.Resource.Type == "partition" {
			require.Equal(t, model.StorageFull, v.Err.Code)
			require.Equal(t, p, *v.Spec.Resource.Partition)
			continue
		}
		require.Contains(t, v.Err.Detail, "the node stopped")
		require.EqualValues(t, 40, v.Done)
		require.Equal(t, next.now, v.EndedAt)
	}
	require.Empty(t, out.String())

	b, err := fsx.ReadFile(disk, f.Name, 1<<20)
	require.NoError(t, err)
	b[20] ^= 1
	file, err := disk.OpenFile(f.Name, fsx.ReadWrite)
	require.NoError(t, err)
	_, err = file.WriteAt(b, 0)
	require.NoError(t, err)
	require.NoError(t, file.Close())
	last := newWorld()
	last.Load(f)
	require.Empty(t, last.List())
	require.Contains(t, out.String(), "dropped", "a damaged file is told of")
}

func TestAListThatCannotBeWrittenIsTriedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		disk, out := fsx.NewInject(fsx.NewMem(), nil), &bytes.Buffer{}
		require.NoError(t, disk.MkdirAll("/d"))
		f := operations.File{FS: disk, Name: "/d/operations", Logger: slog.New(slog.NewTextHandler(out, nil))}
		w := newWorld()
		_, op := w.Begin(t.Context(), spec())
		defer op.End(nil)
		disk.SetHook(func(o fsx.Op) *fsx.Fault { return &fsx.Fault{Err: fmt.Errorf("write: %w", syscall.ENOSPC)} })
		ctx, stop := context.WithCancel(t.Context())
		over := make(chan struct{})
		go func() { w.Run(ctx, f); close(over) }()
		time.Sleep(3500 * time.Millisecond)
		synctest.Wait()
		require.Equal(t, 1, bytes.Count(out.Bytes(), []byte("could not be written")))
		disk.SetHook(nil)
		time.Sleep(time.Second)
		stop()
		<-over
		next := newWorld()
		next.Load(f)
		require.Len(t, next.List(), 1)
	})
}

func TestWhatRemainsIsNeverLessThanALimitAllows(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1_700_000_000_000)
	for name, c := range map[string]struct {
		v     operations.View
		left  time.Duration
		known bool
	}{
		"by what is done":        {operations.View{Done: 25, Total: 100}, 30 * time.Second, true},
		"nothing is done":        {operations.View{Total: 100}, 0, false},
		"nothing, with a limit":  {operations.View{Total: 100, AtLeast: time.Minute}, time.Minute, true},
		"a limit that is slower": {operations.View{Done: 25, Total: 100, AtLeast: time.Minute}, time.Minute, true},
		"a limit that is faster": {operations.View{Done: 25, Total: 100, AtLeast: time.Second}, 30 * time.Second, true},
		"hardly anything":        {operations.View{Done: 1, Total: 1 << 62}, 1 << 62, true},
	} {
		c.v.State, c.v.CreatedAt = operations.Running, now.Add(-10*time.Second)
		left, known := c.v.Remaining(now)
		require.Equal(t, c.known, known, name)
		require.Equal(t, c.left, left, name)
		c.v.State = operations.Done
		_, known = c.v.Remaining(now)
		require.False(t, known, name)
	}
}
