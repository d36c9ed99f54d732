package ingest

import (
	"bytes"
	"context"
	"encoding/binary"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewire/internal/model"
	"tidewire/internal/testkit/bombs"
	"tidewire/internal/testkit/racing"
	"tidewire/storage/record"
)

// bomb claims a record of 40 MiB, which may be there, and of 8 where not so much follows.
func bomb(c record.Codec) []byte {
	if c == record.Snappy || c == record.None {
		return bombs.Batch(c, 8<<20, now)
	}
	return bombs.Batch(c, 40<<20, now)
}

func TestBombsAreSmallAndLarge(t *testing.T) {
	t.Parallel()
	racing.SkipSequential(t)
	for _, c := range codecs {
		raw := bomb(c)
		require.LessOrEqual(t, len(raw), 502_000, c)
		q, err := Parse(raw, 1)
		require.NoError(t, err, "nothing is wrong with it from outside")
		require.Equal(t, 1, q.Records)
	}
	refused(t, "gzip", bomb(record.Gzip), open(), model.InvalidRecord) // more follows its record
	refused(t, "lz4", bomb(record.LZ4), open(), model.InvalidRecord)
	refused(t, "zstd", bomb(record.Zstd), open(), model.InvalidRecord)
}

// A length is not believed: one beyond the limit is refused before anything is inflated.
func TestALengthBeyondTheLimitIsRefusedUnread(t *testing.T) {
	t.Parallel()
	for _, c := range codecs[1:] {
		data := compress(t, &client{codec: c}, append(binary.AppendVarint(nil, record.MaxInflated), 0, 0, 0))
		h := record.BatchHeader{Attributes: record.Attributes(c), ProducerID: -1, Count: 1}
		b := append(make([]byte, record.HeaderSize), data...)
		h.Put(b)
		refused(t, c.String(), b, open(), model.RecordTooLarge)
	}
}

// Fifty at once, checked and made anew, take little more than one after the other.
func TestFiftyBombsAtOnceTakeBoundedMemory(t *testing.T) {
	racing.SkipSequential(t)
	var before, after runtime.MemStats
	all := [][]byte{bomb(record.Gzip), bomb(record.Zstd), bomb(record.LZ4), bomb(record.Snappy)}
	p := NewPool(2, record.NewBudget(64<<20))
	runtime.GC()
	runtime.ReadMemStats(&before)
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			q, err := Parse(bytes.Clone(all[i%4]), 1)
			rules := open()
			rules.Recompress, rules.Codec = i%2 == 0, record.Zstd
			out := new(Result)
			out.Reset(true)
			if err == nil {
				err = p.Check(context.Background(), &q, &rules, now, out)
			}
			if !model.HasCode(err, model.InvalidRecord) && !model.HasCode(err, model.RecordTooLarge) {
				t.Errorf("bomb %d: %v", i, err)
			}
		}()
	}
	wg.Wait()
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(400<<20), "in all that time: half a MB of bytes each, and the codecs'")
}

func TestAWaitForInflationEndsWithItsContext(t *testing.T) {
	t.Parallel()
	p := NewPool(1, nil)
	taken := <-p.slots
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	q, err := Parse(sample(record.Gzip).bytes(t), 10)
	require.NoError(t, err)
	rules, out := open(), new(Result)
	err = p.Check(ctx, &q, &rules, now, out)
	require.True(t, model.HasCode(err, model.LeaderUnavailable), "%v", err)
	require.Equal(t, model.NotApplied, model.AsError(err).EffectiveOutcome())
	q, err = Parse(sample(record.None).bytes(t), 10)
	require.NoError(t, err)
	require.NoError(t, p.Check(ctx, &q, &rules, now, out), "what is not compressed does not wait")
	p.slots <- taken
}
