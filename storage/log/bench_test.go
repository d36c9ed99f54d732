package log

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewire/internal/fsx"
	"tidewire/internal/model"
	"tidewire/storage/record"
)

func benchBatch(b *testing.B) []byte {
	bl := record.NewBuilder(1 << 14)
	for i := range 100 {
		bl.Add(int64(i), nil, make([]byte, 100), nil)
	}
	out, err := bl.Finish(record.None)
	require.NoError(b, err)
	return out
}

// Append of ready batches of 100 × 100 B to the page cache, synced in the
// background as on a node.
func BenchmarkAppend(b *testing.B) {
	h := newHarness(b, fsx.OS(), filepath.Join(b.TempDir(), "data"))
	l := h.open(Config{WriteCaching: true})
	data := benchBatch(b)
	b.ReportAllocs()
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if _, err := l.Append(data, 0, 0); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)*100/b.Elapsed().Seconds(), "records/s")
	require.NoError(b, h.stop())
}

func BenchmarkReadSequential(b *testing.B) {
	h := newHarness(b, fsx.OS(), filepath.Join(b.TempDir(), "data"))
	l := h.open(Config{WriteCaching: true})
	data := benchBatch(b)
	for range 20000 {
		_, err := l.Append(data, 0, 0)
		require.NoError(b, err)
	}
	buf := make([]byte, 0, 2<<20)
	next := l.LogStart()
	b.ReportAllocs()
	var total int64
	for b.Loop() {
		if next == l.LogEnd() {
			next = 0
		}
		var err error
		buf, err = l.Read(buf[:0], next, allOffsets, 1<<20)
		if err != nil {
			b.Fatal(err)
		}
		total += int64(len(buf))
		next += model.Offset(100 * (len(buf) / len(data)))
	}
	b.ReportMetric(float64(total)/b.Elapsed().Seconds()/1e9, "GB/s")
	require.NoError(b, h.stop())
}

func BenchmarkReadOne(b *testing.B) {
	h := newHarness(b, fsx.OS(), filepath.Join(b.TempDir(), "data"))
	l := h.open(Config{WriteCaching: true, SegmentBytes: 1 << 20})
	data := benchBatch(b)
	for range 20000 {
		_, err := l.Append(data, 0, 0)
		require.NoError(b, err)
	}
	buf := make([]byte, 0, 2<<20)
	off := l.LogStart()
	b.ReportAllocs()
	for b.Loop() {
		off = (off + 1_000_003) % l.LogEnd()
		if _, err := l.Read(buf[:0], off, allOffsets, 1); err != nil {
			b.Fatal(err)
		}
	}
	require.NoError(b, h.stop())
}
