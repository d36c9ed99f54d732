package index

import (
	"errors"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewire/internal/fsx"
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
