package compact

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tidewire/internal/model"
	"tidewire/storage/record"
)

func TestTheMapHoldsWhatItsSizeAllowsAndNoMore(t *testing.T) {
	t.Parallel()
	for _, size := range []int64{0, 1, 24 * 9, 1000, 1 << 20, 4 << 20} {
		m := NewMap(size, Seed{1})
		n := 0
		for m.Put(fmt.Appendf(nil, "key %d", n), model.Offset(n)) {
			n++
			require.LessOrEqual(t, len(m.slots), max(m.max, 2))
		}
		require.Equal(t, n, m.Len())
		require.Positive(t, n)
		if size > 1000 {
			require.Greater(t, int64(n)*slotSize, size*6/10, "most of %d is used", size)
			require.LessOrEqual(t, int64(m.max+m.max/growth)*slotSize, size, "growing included")
		}
		require.True(t, m.Put([]byte("key 0"), 1<<40), "a key that is known always fits")
		for i := range n {
			want := model.Offset(i)
			if i == 0 {
				want = 1 << 40
			}
			require.Equal(t, want, m.Last(fmt.Appendf(nil, "key %d", i)))
		}
		require.EqualValues(t, -1, m.Last([]byte("other")))
	}
}

func TestTheMapIsAMap(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m, want := NewMap(rapid.Int64Range(0, 2000).Draw(t, "size"), Seed{byte(rapid.IntRange(0, 9).Draw(t, "seed"))}), map[string]model.Offset{}
		for off := range model.Offset(rapid.IntRange(0, 200).Draw(t, "records")) {
			key := rapid.StringN(0, 3, 4).Draw(t, "key")
			_, known := want[key]
			if ok := m.Put([]byte(key), off); ok {
				want[key] = off
			} else {
				require.False(t, known)
			}
		}
		require.Equal(t, len(want), m.Len())
		for k, off := range want {
			require.Equal(t, off, m.Last([]byte(k)))
		}
	})
}

func TestHashesDifferFromRunToRun(t *testing.T) {
	t.Parallel()
	a, b := NewMap(1000, Seed{1}), NewMap(1000, Seed{2})
	ah, al := a.hash([]byte("k"))
	bh, bl := b.hash([]byte("k"))
	require.NotEqual(t, [2]uint64{ah, al}, [2]uint64{bh, bl})
}

// nobody keeps nothing for producers.
type nobody struct{}

func (nobody) KeepsData(model.ProducerID, model.Offset) bool          { return false }
func (nobody) KeepsMarker(model.ProducerID, model.ProducerEpoch) bool { return false }

// somebody keeps the batch that ends at an offset, and the markers of an epoch.
type somebody struct {
	last  model.Offset
	epoch model.ProducerEpoch
}

func (s somebody) KeepsData(_ model.ProducerID, last model.Offset) bool { return last == s.last }
func (s somebody) KeepsMarker(_ model.ProducerID, epoch model.ProducerEpoch) bool {
	return epoch == s.epoch
}

type put struct {
	key, val string
	null     bool
	noKey    bool
	ts       int64
}

func make1(t *testing.T, base model.Offset, codec record.Codec, attrs record.Attributes, recs ...put) record.Batch {
	t.Helper()
	b := record.NewBuilder(256)
	b.SetAttributes(attrs)
	if attrs != 0 {
		b.SetProducer(7, 3, 11)
	}
	for _, r := range recs {
		key, val := []byte(r.key), []byte(r.val)
		if r.null {
			val = nil
		}
		if r.noKey {
			key = nil
		}
		b.Add(r.ts, key, val, []record.Header{{Name: []byte("n"), Value: nil}, {Name: nil, Value: []byte("v")}})
	}
	out, err := b.Finish(codec)
	require.NoError(t, err)
	out = append([]byte(nil), out...)
	record.SetBaseOffset(out, base)
	record.SetLeaderEpoch(out, 5)
	x, _, err := record.ParseBatch(out)
	require.NoError(t, err)
	return x
}

func newPass(k Keeper, now int64) *Pass {
	return NewPass(Options{Map: NewMap(1<<16, Seed{}), Inflate: record.NewDecompressor(1 << 20), Producers: k, Now: now, DeleteAfter: 1000}, 0)
}

// covering is a pass that has read batches, and cleans next.
func covering(t *testing.T, k Keeper, now int64, batches ...record.Batch) *Pass {
	t.Helper()
	p := newPass(k, now)
	note(t, p, batches...)
	return p
}

func note(t *testing.T, p *Pass, batches ...record.Batch) {
	t.Helper()
	for i := range batches {
		full, err := p.Note(&batches[i])
		require.NoError(t, err)
		require.False(t, full)
	}
	p.Rewind()
}

func clean(t *testing.T, p *Pass, b *record.Batch, last bool) (record.Batch, []record.Record, bool) {
	t.Helper()
	out, _, err := p.Clean(b, last)
	require.NoError(t, err)
	if out == nil {
		return record.Batch{}, nil, false
	}
	x, rest, err := record.ParseBatch(out)
	require.NoError(t, err)
	require.Empty(t, rest)
	require.NoError(t, x.VerifyCRC())
	var it record.Iterator
	require.NoError(t, x.Records(record.NewDecompressor(1<<20), &it))
	var recs []record.Record
	for it.Next() {
		r := *it.Record()
		r.Headers = append([]record.Header(nil), r.Headers...)
		recs = append(recs, r)
	}
	require.NoError(t, it.Err())
	return x, recs, true
}

func TestARewrittenBatchIsTheSameButForWhatWent(t *testing.T) {
	t.Parallel()
	for codec := range record.Codec(5) {
		b := make1(t, 100, codec, record.AttrTransactional,
			put{key: "a", val: "1", ts: 50}, put{key: "b", null: true, ts: 10}, put{key: "c", val: "", ts: 90}, put{key: "a", val: "4", ts: 20}, put{key: "d", val: "5", ts: -5})
		p := newPass(nobody{}, 1_000_000)
		note(t, p, b)
		got, recs, ok := clean(t, p, &b, false)
		require.True(t, ok)
		h, want := got.Header, b.Header
		require.Equal(t, []any{want.BaseOffset, want.LastOffsetDelta, want.LeaderEpoch, want.ProducerID, want.ProducerEpoch, want.BaseSequence, codec, int32(4), int64(90)},
			[]any{h.BaseOffset, h.LastOffsetDelta, h.LeaderEpoch, h.ProducerID, h.ProducerEpoch, h.BaseSequence, h.Attributes.Codec(), h.Count, h.MaxTimestamp})
		require.True(t, h.Attributes.Has(record.AttrDeleteHorizon|record.AttrTransactional))
		require.EqualValues(t, 1_001_000, h.BaseTimestamp)
		var text []string
		for _, r := range recs {
			require.Len(t, r.Headers, 2)
			require.Nil(t, r.Headers[0].Value)
			text = append(text, fmt.Sprintf("%d %d %s %q %v", r.Offset, r.Timestamp, r.Key, r.Value, r.Value == nil))
		}
		require.Equal(t, []string{`101 10 b "" true`, `102 90 c "" false`, `103 20 a "4" false`, `104 -5 d "5" false`}, text)

		// The next pass leaves it as it is until the horizon, then the tombstone goes.
		for now, n := range map[int64]int{1_000_999: 4, 1_001_000: 3} {
			p := newPass(nobody{}, now)
			note(t, p, got)
			again, recs, ok := clean(t, p, &got, false)
			require.True(t, ok)
			require.Len(t, recs, n)
			if n == 4 {
				require.Equal(t, &got.Bytes[0], &again.Bytes[0], "copied as it is")
			} else {
				require.True(t, again.Header.Attributes.Has(record.AttrDeleteHorizon))
			}
		}
	}
}

func TestABatchOfWhichAllStaysIsCopied(t *testing.T) {
	t.Parallel()
	b := make1(t, 0, record.Gzip, 0, put{key: "a", val: "1"}, put{key: "b", val: "2"})
	p := newPass(nobody{}, 0)
	note(t, p, b)
	got, _, ok := clean(t, p, &b, false)
	require.True(t, ok)
	require.Equal(t, &b.Bytes[0], &got.Bytes[0])
}

func TestTheLastBatchOfASegmentAndOfAProducerStaysWithoutRecords(t *testing.T) {
	t.Parallel()
	b := make1(t, 10, record.Zstd, record.AttrTransactional, put{key: "a", val: "1", ts: 77}, put{key: "b", val: "1", ts: 5})
	newer := make1(t, 12, record.None, 0, put{key: "a", val: "2"}, put{key: "b", val: "2"})
	for name, x := range map[string]struct {
		keeper Keeper
		last   bool
		stays  bool
	}{"neither": {nobody{}, false, false}, "last": {nobody{}, true, true}, "producer's": {somebody{last: 11}, false, true}} {
		p := newPass(x.keeper, 0)
		note(t, p, b, newer)
		got, recs, ok := clean(t, p, &b, x.last)
		require.Equal(t, x.stays, ok, name)
		if !ok {
			continue
		}
		require.Empty(t, recs)
		h := got.Header
		require.Equal(t, record.HeaderSize, h.Size())
		require.Equal(t, []any{model.Offset(10), model.Offset(11), model.ProducerID(7), model.ProducerEpoch(3), int32(11), int64(77), record.None, model.LeaderEpoch(5)},
			[]any{h.BaseOffset, h.LastOffset(), h.ProducerID, h.ProducerEpoch, h.BaseSequence, h.MaxTimestamp, h.Attributes.Codec(), h.LeaderEpoch})
		require.True(t, h.Attributes.Has(record.AttrTransactional))
		_, _, ok = clean(t, newPass(nobody{}, 0), &got, false)
		require.False(t, ok, "it goes once nobody needs it")
	}
}

func TestRecordsWithoutKeyGo(t *testing.T) {
	t.Parallel()
	b := make1(t, 0, record.None, 0, put{noKey: true, val: "1"}, put{key: "", val: "2"})
	p := newPass(nobody{}, 0)
	note(t, p, b)
	_, recs, _ := clean(t, p, &b, false)
	require.Len(t, recs, 1, "an empty key is a key")
	require.EqualValues(t, 1, p.Stats().Keyless)
}

// Beyond what the map covers nothing goes, and no tombstone gets a horizon: what it deletes
// may still be there when that has passed.
func TestWhatTheMapDoesNotCoverStays(t *testing.T) {
	t.Parallel()
	b := make1(t, 0, record.None, 0, put{key: "a", val: "1"}, put{key: "a", null: true}, put{key: "b", null: true}, put{key: "b", null: true})
	p := NewPass(Options{Map: NewMap(1, Seed{}), Inflate: record.NewDecompressor(1 << 10), Producers: nobody{}, Now: 5, DeleteAfter: 1}, 0)
	full, err := p.Note(&b)
	require.NoError(t, err)
	require.True(t, full)
	require.EqualValues(t, 2, p.Covered())
	p.Rewind()
	got, recs, _ := clean(t, p, &b, false)
	require.Len(t, recs, 3)
	require.False(t, got.Header.Attributes.Has(record.AttrDeleteHorizon))
}

func TestAMarkerThatIsAllThatIsKnownOfAProducerStays(t *testing.T) {
	t.Parallel()
	mk := func(horizon bool) record.Batch {
		out, err := record.NewBuilder(64).FinishMarker(7, 3, record.Marker{Type: record.ControlCommit, CoordinatorEpoch: 2, Timestamp: 40})
		require.NoError(t, err)
		b, _, err := record.ParseBatch(append([]byte(nil), out...))
		require.NoError(t, err)
		if horizon {
			got, _, ok := clean(t, covering(t, nobody{}, 0, b), &b, false)
			require.True(t, ok)
			require.EqualValues(t, 1000, got.Header.BaseTimestamp)
			b = got
			b.Bytes = append([]byte(nil), got.Bytes...)
		}
		return b
	}
	b := mk(true)
	m, ok, err := b.Marker()
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, record.Marker{Type: record.ControlCommit, CoordinatorEpoch: 2, Timestamp: 40}, m, "a horizon changes nothing in a marker")
	_, _, ok = clean(t, covering(t, somebody{epoch: 3}, 5000, b), &b, false)
	require.True(t, ok)
	_, _, ok = clean(t, covering(t, somebody{epoch: 4}, 5000, b), &b, false)
	require.False(t, ok)
	got, _, ok := clean(t, covering(t, nobody{}, 5000, b), &b, true)
	require.True(t, ok, "the last batch of a segment")
	_, isMarker, err := got.Marker()
	require.NoError(t, err)
	require.False(t, isMarker)
	plain := mk(false)
	_, _, ok = clean(t, covering(t, nobody{}, math1, plain), &plain, false)
	require.True(t, ok, "not before a horizon was set")
	got, _, ok = clean(t, newPass(nobody{}, math1), &b, false)
	require.True(t, ok, "not beyond what a pass covers")
	require.Equal(t, b.Bytes, got.Bytes)
	got, _, ok = clean(t, newPass(nobody{}, math1), &plain, false)
	require.True(t, ok)
	require.Equal(t, plain.Bytes, got.Bytes, "nor does it get a horizon there")
}

const math1 = 1 << 50

func TestDamageAndInflationAreErrors(t *testing.T) {
	t.Parallel()
	b := make1(t, 0, record.Zstd, 0, put{key: "a", val: string(make([]byte, 4096))})
	small := NewPass(Options{Map: NewMap(1000, Seed{}), Inflate: record.NewDecompressor(100), Producers: nobody{}}, 0)
	_, err := small.Note(&b)
	require.True(t, model.HasCode(err, model.RecordTooLarge))
	_, _, err = small.Clean(&b, false)
	require.True(t, model.HasCode(err, model.RecordTooLarge))
	rng := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		x := b
		x.Bytes = append([]byte(nil), b.Bytes...)
		x.Bytes[21+rng.IntN(len(x.Bytes)-21)] ^= 1 << rng.IntN(8)
		p := newPass(nobody{}, 0)
		_, err := p.Note(&x)
		require.True(t, model.HasCode(err, model.CorruptBatch))
		_, _, err = p.Clean(&x, true)
		require.True(t, model.HasCode(err, model.CorruptBatch))
	}
}
