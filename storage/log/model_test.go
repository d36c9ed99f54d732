package log

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tidewire/internal/fsx"
	"tidewire/internal/model"
	"tidewire/internal/testkit/racing"
	"tidewire/storage/record"
)

// machine drives a log and a plain slice side by side.
type machine struct {
	h      *harness
	mem    *fsx.Mem
	l      *Log
	cfg    Config
	want   []rec
	epochs []model.LeaderEpoch // of each record
	epoch  model.LeaderEpoch
	start  model.Offset // the log start last answered
	counts map[string]int
}

func (m *machine) open(t tb) {
	l, err := m.h.store.Open(testID, "events", 0, m.cfg)
	require.NoError(t, err)
	m.l = l
}

func (m *machine) append(t *rapid.T) {
	n := rapid.IntRange(1, 4).Draw(t, "batches")
	var data []byte
	first := len(m.want)
	for range n {
		codec := record.Codec(rapid.IntRange(0, 4).Draw(t, "codec"))
		b := record.NewBuilder(64)
		for range rapid.IntRange(1, 5).Draw(t, "records") {
			ts := rapid.Int64Range(0, 300).Draw(t, "ts")
			val := fmt.Sprintf("%d-%0*d", len(m.want), rapid.IntRange(0, 200).Draw(t, "pad"), 0)
			b.Add(ts, nil, []byte(val), nil)
			m.want = append(m.want, rec{model.Offset(len(m.want)), ts, val})
			m.epochs = append(m.epochs, m.epoch)
		}
		out, err := b.Finish(codec)
		require.NoError(t, err)
		data = append(data, out...)
	}
	a, err := m.l.Append(data, m.epoch, 0)
	require.NoError(t, err)
	require.EqualValues(t, first, a.First)
	require.EqualValues(t, len(m.want)-1, a.Last)
	require.EqualValues(t, len(m.want), m.l.LogEnd())
}

func (m *machine) seek(t *rapid.T) {
	ts := rapid.Int64Range(0, 310).Draw(t, "seek")
	limit := model.Offset(rapid.IntRange(0, len(m.want)+1).Draw(t, "limit"))
	checkSeek(t, m.l, m.want[m.start:], ts, limit)
}

// advance moves the log start, as delete-records and retention do.
func (m *machine) advance(t *rapid.T) {
	limit := m.l.LogEnd()
	if m.cfg.WriteCaching || rapid.IntRange(0, 3).Draw(t, "beyond what is synced") > 0 {
		limit = m.l.StableEnd()
	}
	to := model.Offset(rapid.Int64Range(0, int64(limit)).Draw(t, "to"))
	require.NoError(t, m.l.AdvanceLogStart(to))
	require.Equal(t, max(m.start, to), m.l.LogStart())
	m.start = m.l.LogStart()
	segs := *m.l.segs.Load()
	require.True(t, len(segs) == 1 || segs[1].base > m.start, "segments below the log start are gone")
	require.LessOrEqual(t, segs[0].base, m.start)
	if m.start > 0 {
		_, err := m.l.Read(nil, m.start-1, allOffsets, 100)
		require.True(t, model.HasCode(err, model.OffsetOutOfRange), "%v", err)
	}
}

// checkSeek compares a seek with a brute-force scan.
func checkSeek(t tb, l *Log, want []rec, ts int64, limit model.Offset) {
	t.Helper()
	var exp *rec
	for i := range want {
		if want[i].ts >= ts && want[i].off < limit {
			exp = &want[i]
			break
		}
	}
	off, got, found, err := l.OffsetForTimestamp(ts, limit)
	require.NoError(t, err)
	require.Equal(t, exp != nil, found, "ts %d", ts)
	if exp != nil {
		require.Equal(t, exp.off, off, "ts %d", ts)
		require.Equal(t, exp.ts, got)
	}
}

func (m *machine) read(t *rapid.T) {
	from := model.Offset(rapid.IntRange(int(m.start), len(m.want)).Draw(t, "from"))
	limit := model.Offset(rapid.IntRange(0, len(m.want)+1).Draw(t, "limit"))
	maxBytes := rapid.IntRange(1, 3000).Draw(t, "max")
	data, err := m.l.Read([]byte("x"), from, limit, maxBytes)
	require.NoError(t, err)
	require.Equal(t, byte('x'), data[0])
	data = data[1:]
	if from >= min(limit, m.l.LogEnd()) {
		require.Empty(t, data)
		return
	}
	b, rest, err := record.ParseBatch(data)
	require.NoError(t, err)
	require.True(t, b.Header.BaseOffset <= from && b.Header.LastOffset() >= from)
	require.True(t, len(data) <= maxBytes || len(rest) == 0)
	for len(rest) > 0 {
		next := b.Header.NextOffset()
		b, rest, err = record.ParseBatch(rest)
		require.NoError(t, err)
		require.Equal(t, next, b.Header.BaseOffset)
		require.Less(t, b.Header.BaseOffset, limit)
	}
}

// verify compares the whole log with the slice.
func (m *machine) verify(t *rapid.T) {
	require.EqualValues(t, len(m.want), m.l.LogEnd())
	require.Equal(t, m.start, m.l.LogStart())
	got := scan(t, m.l, m.start, 4096)
	if want := m.want[m.start:]; len(got) > 0 || len(want) > 0 {
		require.Equal(t, want, got)
	}
	for i, e := range m.epochs {
		if model.Offset(i) < m.start {
			continue
		}
		if i+1 == len(m.epochs) || m.epochs[i+1] != e {
			ge, end := m.l.EpochEnd(e)
			require.Equal(t, e, ge)
			require.EqualValues(t, i+1, end)
		}
	}
	require.LessOrEqual(t, m.l.LogStart(), m.l.HighWatermark())
	require.LessOrEqual(t, m.l.HighWatermark(), m.l.LogEnd())
}

func (m *machine) restart(t *rapid.T, how string) {
	stable := m.l.StableEnd()
	if m.cfg.WriteCaching {
		stable = model.Offset(m.l.synced.Load())
	}
	end := model.Offset(len(m.want))
	switch how {
	case "clean":
		require.NoError(t, m.h.stop())
		stable = end
		if rapid.Bool().Draw(t, "power cut after the stop") {
			m.mem = m.mem.Crash(rapid.Uint64().Draw(t, "seed"))
		}
	case "kill":
		m.h.kill()
		stable = end // the page cache survives a killed process
	case "power cut":
		m.mem = m.mem.Crash(rapid.Uint64().Draw(t, "seed"))
		m.h.kill()
	}
	m.h.fs = m.mem
	m.h.start()
	require.Equal(t, how == "clean", m.h.store.found.clean)
	m.open(t)
	got := m.l.LogEnd()
	require.GreaterOrEqual(t, got, stable, how)
	require.LessOrEqual(t, got, end)
	require.GreaterOrEqual(t, m.l.LogStart(), m.start, "a log start that was answered never goes back")
	m.want, m.epochs = m.want[:got], m.epochs[:got]
	m.verify(t)
}

// The log under random appends, rolls, reads, seeks, checkpoints, restarts and
// power cuts answers as a slice does, and keeps what was stable.
func TestLogBehavesLikeASliceThroughRestartsAndPowerCuts(t *testing.T) {
	t.Parallel()
	racing.SkipSequential(t)
	counts := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		mem := fsx.NewCrashMem()
		m := &machine{mem: mem, h: newHarness(t, mem, "/data"), counts: counts}
		defer func() { m.h.kill() }()
		m.cfg = Config{
			SegmentBytes:       int64(rapid.IntRange(200, 5000).Draw(t, "segment.bytes")),
			SegmentMs:          int64(rapid.IntRange(50, 1000).Draw(t, "segment.ms")),
			IndexIntervalBytes: rapid.IntRange(1, 800).Draw(t, "interval"),
			SegmentIndexBytes:  rapid.IntRange(24, 400).Draw(t, "index bytes"),
			WriteCaching:       rapid.IntRange(0, 5).Draw(t, "caching") == 0,
		}
		m.open(t)
		step := func(name string, fn func(*rapid.T)) func(*rapid.T) {
			return func(t *rapid.T) { counts[name]++; fn(t) }
		}
		t.Repeat(map[string]func(*rapid.T){
			"append": step("append", m.append),
			"read":   step("read", m.read),
			"seek":   step("seek", m.seek),
			"epoch":  step("epoch", func(*rapid.T) { m.epoch++ }),
			"sync": step("sync", func(t *rapid.T) {
				if !m.cfg.WriteCaching {
					waitStable(t, m.l)
				}
			}),
			"advance": step("advance", m.advance),
			"checkpoint": step("checkpoint", func(t *rapid.T) {
				m.l.SetHighWatermark(max(m.l.StableEnd(), m.l.LogStart()))
				require.NoError(t, m.h.store.Checkpoint())
			}),
			"clean":     step("clean", func(t *rapid.T) { m.restart(t, "clean") }),
			"kill":      step("kill", func(t *rapid.T) { m.restart(t, "kill") }),
			"power cut": step("power cut", func(t *rapid.T) { m.restart(t, "power cut") }),
		})
		m.verify(t)
	})
	for _, k := range []string{"append", "read", "seek", "epoch", "sync", "advance", "checkpoint", "clean", "kill", "power cut"} {
		require.NotZero(t, counts[k], k)
	}
	t.Log(counts)
}
