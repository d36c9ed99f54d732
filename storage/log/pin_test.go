package log

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewire/internal/fsx"
	"tidewire/internal/model"
	"tidewire/storage/files"
	"tidewire/storage/record"
)

// extentBytes reads what an extent has.
func extentBytes(t tb, x *Extent) []byte {
	t.Helper()
	b := make([]byte, x.End-x.Pos)
	require.NoError(t, fsx.ReadFull(x.File, b, x.Pos))
	return b
}

func TestAPinnedExtentSurvivesWhateverBecomesOfItsSegment(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(h *harness, l *Log){
		"deleted by retention": func(h *harness, l *Log) {
			require.NoError(t, l.AdvanceLogStart(l.LogEnd()))
		},
		"truncated away":      func(_ *harness, l *Log) { require.NoError(t, l.TruncateFullyAndStartAt(500)) },
		"the topic's removed": func(h *harness, l *Log) { require.NoError(t, h.store.Remove(l)) },
		"the store closes":    func(h *harness, _ *Log) { require.NoError(t, h.store.Close()) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t, fsx.OS(), t.TempDir())
			l := h.open(Config{SegmentBytes: 2000, FileDeleteDelayMs: -1})
			for i := range 40 {
				mustAppend(t, l, sized(t, 200, int64(1000+i)))
			}
			waitStable(t, l)
			require.Greater(t, l.Segments(), 3)
			x, err := l.Pin(3, allOffsets)
			require.NoError(t, err)
			require.EqualValues(t, 3, x.First.BaseOffset)
			want := extentBytes(t, x)
			fd, ok := x.File.Fd()
			require.True(t, ok)
			end(h, l)
			require.Equal(t, want, extentBytes(t, x))
			require.True(t, x.Intact(), "its bytes are what they were")
			now, ok := x.File.Fd()
			require.True(t, ok)
			require.Equal(t, fd, now, "the descriptor is still its own")
			f := x.File
			x.Close()
			if name != "truncated away" {
				require.Eventually(t, func() bool { _, err := f.ReadAt(make([]byte, 1), 0); return err != nil }, 10*time.Second, time.Millisecond,
					"it is closed with the last pin")
			}
			if name != "the store closes" {
				_ = h.store.Close()
			}
			require.NoError(t, h.group.Stop(10*time.Second))
		})
	}
}

func TestAnExtentTellsThatBytesOfItWereCut(t *testing.T) {
	t.Parallel()
	h := newHarness(t, fsx.NewMem(), "/data")
	l := h.open(Config{})
	for i := range 10 {
		mustAppend(t, l, sized(t, 200, int64(1000+i)))
	}
	x, err := l.Pin(2, allOffsets)
	require.NoError(t, err)
	require.True(t, x.Intact())
	require.NoError(t, l.TruncateTo(5))
	require.False(t, x.Intact())
	x.Close()
	x, err = l.Pin(2, allOffsets)
	require.NoError(t, err)
	mustAppend(t, l, sized(t, 200, 2000))
	require.True(t, x.Intact(), "appends change nothing of it")
	x.Close()
	require.NoError(t, h.stop())
}

func TestPinFindsWhatReadFinds(t *testing.T) {
	t.Parallel()
	h := newHarness(t, fsx.NewMem(), "/data")
	l := h.open(Config{SegmentBytes: 2000})
	for i := range 40 {
		mustAppend(t, l, sized(t, 100+i, int64(1000+i)), pbatch(-1, -1, -1, 3))
	}
	for off := range l.LogEnd() {
		got, err := l.Read(nil, off, allOffsets, 1<<20)
		require.NoError(t, err)
		x, err := l.Pin(off, allOffsets)
		require.NoError(t, err)
		require.Equal(t, got, extentBytes(t, x), "both go to the end of the segment")
		x.Close()
		first, ok, err := l.First(off, allOffsets)
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, x.First, first)
	}
	x, err := l.Pin(l.LogEnd(), allOffsets)
	require.NoError(t, err)
	require.Nil(t, x, "nothing at the log end")
	x, err = l.Pin(3, 3)
	require.NoError(t, err)
	require.Nil(t, x, "nothing below the limit")
	_, ok, err := l.First(3, 3)
	require.NoError(t, err)
	require.False(t, ok)
	_, err = l.Pin(l.LogEnd()+1, allOffsets)
	require.True(t, model.HasCode(err, model.OffsetOutOfRange))
	require.NoError(t, l.AdvanceLogStart(30))
	_, err = l.Pin(29, allOffsets)
	require.True(t, model.HasCode(err, model.OffsetOutOfRange))
	require.NoError(t, h.stop())
}

func TestReadsGoOnWhenNoMoreFilesMayBePinned(t *testing.T) {
	t.Parallel()
	mem := fsx.NewMem()
	h := &harness{t: t, fs: mem, opts: StoreOptions{FS: mem, Dir: "/data", CheckpointInterval: time.Hour, MaxOpenFiles: files.MinLimit}}
	h.start()
	l := h.open(Config{SegmentBytes: 1})
	for i := range files.MinLimit/2 + 1 {
		mustAppend(t, l, batch(t, record.None, int64(1000+i)))
	}
	var pinned []*Extent
	for off := range model.Offset(files.MinLimit / 2) {
		x, err := l.Pin(off, allOffsets)
		require.NoError(t, err)
		pinned = append(pinned, x)
	}
	last := l.LogEnd() - 1
	_, err := l.Pin(last, allOffsets)
	require.True(t, model.HasCode(err, model.RateLimited), "%v", err)
	_, ok, err := l.First(last, allOffsets)
	require.NoError(t, err)
	require.True(t, ok)
	_, err = l.Read(nil, last, allOffsets, 1)
	require.NoError(t, err)
	for _, x := range pinned {
		x.Close()
	}
	x, err := l.Pin(last, allOffsets)
	require.NoError(t, err)
	x.Close()
	require.NoError(t, h.stop())
}
