package index

import (
	"errors"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewire/internal/fsx"
	"tidewire/storage/files"
	"tidewire/storage/producer"
)

// A sync for which the file could not be opened has done nothing: the next one does it.
func TestASyncThatFoundNoDescriptorIsDoneByTheNext(t *testing.T) {
	t.Parallel()
	mem := fsx.NewCrashMem()
	in := fsx.NewInject(mem, nil)
	x := NewAborted(in, "/0.txnindex", 0)
	x.Add(producer.AbortedTransaction{ProducerID: 1, FirstOffset: 0, LastOffset: 1})
	require.NoError(t, x.Flush())
	in.SetHook(fsx.FailIf(func(op fsx.Op) bool { return op.Kind == fsx.OpOpen }, syscall.EMFILE))
	require.True(t, errors.Is(x.Sync(), syscall.EMFILE))
	in.SetHook(nil)
	require.NoError(t, x.Sync())
	require.NoError(t, mem.SyncDir("/"))
	for seed := range uint64(20) {
		b, err := fsx.ReadFile(mem.Crash(seed), "/0.txnindex", maxAborted)
		require.NoError(t, err, "seed %d", seed)
		require.Len(t, b, producer.AbortedEntrySize, "seed %d", seed)
	}
}

// What a full disk has taken of an entry is cut off, and stays so after the next sync.
func TestAPartOfAnEntryDoesNotComeBack(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(fsx.FS) (flush, sync func() error){
		"index": func(fsys fsx.FS) (func() error, func() error) {
			x := New(files.New(fsys, 0), "/x", Offset, NewBuffers())
			x.Append(Entry{Key: 7, Val: 70})
			return x.Flush, func() error { return errors.Join(x.Cut(func(Entry) bool { return false }), x.Sync()) }
		},
		"aborted transactions": func(fsys fsx.FS) (func() error, func() error) {
			x := NewAborted(fsys, "/x", 0)
			before := x.Summary()
			x.Add(producer.AbortedTransaction{ProducerID: 1, LastOffset: 1})
			return x.Flush, func() error { return errors.Join(x.CutTail(before), x.Sync()) }
		},
	} {
		mem := fsx.NewCrashMem()
		in := fsx.NewInject(mem, nil)
		flush, sync := open(in)
		in.SetHook(func(op fsx.Op) *fsx.Fault {
			if op.Kind == fsx.OpWrite {
				return &fsx.Fault{Err: syscall.ENOSPC, Short: 4}
			}
			return nil
		})
		require.ErrorIs(t, flush(), syscall.ENOSPC, name)
		require.NoError(t, sync(), name)
		require.NoError(t, mem.SyncDir("/"))
		for seed := range uint64(20) {
			b, err := fsx.ReadFile(mem.Crash(seed), "/x", maxAborted)
			require.NoError(t, err, "%s, seed %d", name, seed)
			require.Empty(t, b, "%s, seed %d", name, seed)
		}
	}
}
