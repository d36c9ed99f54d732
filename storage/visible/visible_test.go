package visible

import (
	"bytes"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewire/internal/model"
	"tidewire/storage/producer"
	"tidewire/storage/record"
)

// stored is a file of batches; each has n records of size bytes at the next offset.
type stored struct {
	t    *testing.T
	b    []byte
	next model.Offset
	ends []int64 // positions behind each batch
}

func (s *stored) add(n, size int, attrs record.Attributes, pid model.ProducerID) *stored {
	b := record.NewBuilder(1024)
	if attrs != 0 {
		b.SetAttributes(attrs)
		b.SetProducer(pid, 0, 0)
	}
	for range n {
		b.Add(1000, nil, make([]byte, size), nil)
	}
	out, err := b.Finish(record.None)
	require.NoError(s.t, err)
	record.SetBaseOffset(out, s.next)
	s.b = append(s.b, out...)
	s.next += model.Offset(n)
	s.ends = append(s.ends, int64(len(s.b)))
	return s
}

func (s *stored) source() Source { return Source{File: bytes.NewReader(s.b), End: int64(len(s.b))} }

// plain has batches of 1, 2, 3, … records.
func plain(t *testing.T, batches int) *stored {
	s := &stored{t: t}
	for i := range batches {
		s.add(i+1, 10, 0, 0)
	}
	return s
}

func TestAWalkTakesWholeBatchesUpToItsLimits(t *testing.T) {
	t.Parallel()
	s := plain(t, 5) // offsets 0, 1–2, 3–5, 6–9, 10–14
	size := func(batches int) int64 { return s.ends[batches-1] }
	for name, c := range map[string]struct {
		to      model.Offset
		bytes   int64
		records int
		batches int
		full    bool
		next    model.Offset
	}{
		"all":                              {15, 1 << 20, 1000, 5, false, 15},
		"the bytes of three":               {15, size(3), 1000, 3, true, 6},
		"a byte less":                      {15, size(3) - 1, 1000, 2, true, 3},
		"the first always comes":           {15, 1, 1, 1, true, 1},
		"six records":                      {15, 1 << 20, 6, 3, true, 6},
		"seven records":                    {15, 1 << 20, 7, 3, true, 6},
		"what is visible":                  {6, 1 << 20, 1000, 3, false, 6},
		"no batch beyond what may be seen": {8, 1 << 20, 1000, 3, false, 6},
		"nothing visible":                  {0, 1 << 20, 1000, 0, false, 0},
	} {
		w := Walk{Filter: Filter{To: c.to}, MaxBytes: c.bytes, MaxRecords: c.records}
		runs, err := w.Through(s.source())
		require.NoError(t, err, name)
		require.Equal(t, c.full, w.Full, name)
		require.Equal(t, c.next, w.Next, name)
		if c.batches == 0 {
			require.Empty(t, runs, name)
			continue
		}
		require.Equal(t, []Run{{0, size(c.batches)}}, runs, name)
		require.Equal(t, size(c.batches), w.Bytes, name)
		require.True(t, w.Over(), name)
	}
}

func TestALargeFirstBatchComesWhole(t *testing.T) {
	t.Parallel()
	s := (&stored{t: t}).add(1, 100_000, 0, 0).add(1, 10, 0, 0)
	w := Walk{Filter: Filter{To: 2}, MaxBytes: 1, MaxRecords: 1}
	runs, err := w.Through(s.source())
	require.NoError(t, err)
	require.Equal(t, []Run{{0, s.ends[0]}}, runs)
	w = Walk{Filter: Filter{To: 2}, MaxBytes: 1 << 20, MaxRecords: 9}
	_, err = w.Through(s.source())
	require.NoError(t, err)
	require.Equal(t, 2, w.Records, "headers behind large batches are found")
}

func TestMarkersAndAbortedBatchesAreLeftOutAndPassed(t *testing.T) {
	t.Parallel()
	const txn, control = record.AttrTransactional, record.AttrTransactional | record.AttrControl
	s := (&stored{t: t}).
		add(2, 10, txn, 7).     // 0–1: aborted
		add(2, 10, txn, 8).     // 2–3: committed
		add(1, 10, 0, 0).       // 4
		add(1, 10, control, 7). // 5: 7's abort
		add(1, 10, control, 8). // 6
		add(1, 10, txn, 7).     // 7: 7's next transaction, committed
		add(1, 10, control, 7)  // 8
	asked := 0
	aborted := func(from, to model.Offset) ([]producer.AbortedTransaction, error) {
		asked++
		require.EqualValues(t, 9, to)
		return []producer.AbortedTransaction{{ProducerID: 7, FirstOffset: 0, LastOffset: 5, LastStable: 6}}, nil
	}
	w := Walk{Filter: Filter{To: 9, Aborted: aborted}, MaxBytes: 1 << 20, MaxRecords: 100}
	runs, err := w.Through(s.source())
	require.NoError(t, err)
	require.Equal(t, []Run{{s.ends[0], s.ends[2] - s.ends[0]}, {s.ends[4], s.ends[5] - s.ends[4]}}, runs)
	require.EqualValues(t, 9, w.Next)
	require.Equal(t, 4, w.Records)
	require.Equal(t, 1, asked)

	w = Walk{Filter: Filter{To: 9}, MaxBytes: 1 << 20, MaxRecords: 100}
	runs, err = w.Through(s.source())
	require.NoError(t, err)
	require.Equal(t, []Run{{0, s.ends[2]}, {s.ends[4], s.ends[5] - s.ends[4]}}, runs, "read_uncommitted leaves out markers only")

	failed := errors.New("no index")
	w = Walk{Filter: Filter{To: 9, Aborted: func(_, _ model.Offset) ([]producer.AbortedTransaction, error) { return nil, failed }}}
	_, err = w.Through(s.source())
	require.ErrorIs(t, err, failed)
}

func TestAWalkDoesNotStepOverHolesOrDamage(t *testing.T) {
	t.Parallel()
	s := plain(t, 4)
	holed := append(bytes.Clone(s.b[:s.ends[0]]), s.b[s.ends[1]:]...)
	w := Walk{Filter: Filter{To: s.next}, MaxBytes: 1 << 20, MaxRecords: 100}
	runs, err := w.Through(Source{File: bytes.NewReader(holed), End: int64(len(holed))})
	require.True(t, model.HasCode(err, model.CorruptBatch), "%v", err)
	require.Equal(t, []Run{{0, s.ends[0]}}, runs, "what comes before it was found")

	w = Walk{Filter: Filter{To: s.next}, MaxBytes: 1 << 20, MaxRecords: 100}
	runs, err = w.Through(Source{File: bytes.NewReader(holed), End: int64(len(holed)), Compacted: true})
	require.NoError(t, err)
	require.Equal(t, []Run{{0, int64(len(holed))}}, runs)

	for _, n := range []int64{s.ends[3] - 1, s.ends[2] + 5} {
		w = Walk{Filter: Filter{To: s.next}, MaxBytes: 1 << 20, MaxRecords: 100}
		_, err = w.Through(Source{File: bytes.NewReader(s.b[:n]), End: n})
		require.ErrorIs(t, err, record.ErrShort)
	}
	twice := append(bytes.Clone(s.b[:s.ends[1]]), s.b[:s.ends[1]]...)
	w = Walk{Filter: Filter{To: s.next}, MaxBytes: 1 << 20, MaxRecords: 100}
	_, err = w.Through(Source{File: bytes.NewReader(twice), End: int64(len(twice)), Compacted: true})
	require.True(t, model.HasCode(err, model.CorruptBatch), "offsets must grow: %v", err)
}

func TestAGapOfCompactionReachesToTheEnd(t *testing.T) {
	t.Parallel()
	s := &stored{t: t, next: 10}
	s.add(1, 10, 0, 0)
	w := Walk{Filter: Filter{To: 8}, MaxBytes: 1 << 20, MaxRecords: 100, Next: 5}
	src := s.source()
	src.Compacted = true
	runs, err := w.Through(src)
	require.NoError(t, err)
	require.Empty(t, runs)
	require.EqualValues(t, 8, w.Next)
	require.True(t, w.Over())
}
