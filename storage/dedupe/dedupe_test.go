package dedupe

import (
	"encoding/hex"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"tidewire/internal/fsx"
	"tidewire/internal/model"
	"tidewire/internal/testkit/racing"
	"tidewire/storage/record"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// slice is a batch with a stamp at an offset.
func slice(t require.TestingT, s Stamp, base model.Offset, codec record.Codec) record.Batch {
	b := record.NewBuilder(100)
	b.SetProducer(model.NoProducer, -1, MarkSequence)
	for i := range s.Count {
		var h []record.Header
		if i == 0 {
			h = []record.Header{{Name: []byte("own")}, s.Header()}
		}
		b.Add(1000+int64(i), []byte("k"), []byte(strings.Repeat("v", 50)), h)
	}
	out, err := b.Finish(codec)
	require.NoError(t, err)
	record.SetBaseOffset(out, base)
	batch, _, err := record.ParseBatch(out)
	require.NoError(t, err)
	return batch
}

func stamp(key byte, time int64, count int32) Stamp {
	return Stamp{Key: Key{key}, Payload: Digest{key, 1}, Time: time, Partitions: 3, Count: count}
}

func TestAStampIsFoundWhateverTheCodec(t *testing.T) {
	t.Parallel()
	for _, codec := range []record.Codec{record.None, record.Gzip, record.Snappy, record.LZ4, record.Zstd} {
		x := NewIndex(nil)
		x.SetWindow(100)
		s := stamp(7, 5000, 4)
		b := slice(t, s, 42, codec)
		x.Enter(&b)
		e, ok := x.Find(Key{7}, 5099)
		require.True(t, ok)
		require.Equal(t, Entry{Stamp: s, Base: 42, AppendTime: -1}, e)
		require.EqualValues(t, 46, e.End())
		_, ok = x.Find(Key{7}, 5100)
		require.False(t, ok, "its window has passed")
		_, ok = x.Find(Key{8}, 5000)
		require.False(t, ok)
	}
}

func TestBatchesWithoutAStampEnterNothing(t *testing.T) {
	t.Parallel()
	x := NewIndex(nil)
	x.SetWindow(1 << 40)
	plain := record.NewBuilder(10)
	plain.SetProducer(model.NoProducer, -1, MarkSequence)
	plain.Add(1, nil, nil, nil)
	noHeader, err := plain.Finish(record.None)
	require.NoError(t, err)
	b, _, err := record.ParseBatch(noHeader)
	require.NoError(t, err)
	x.Enter(&b)
	whole := slice(t, stamp(1, 1, 2), 0, record.Zstd)
	cut := record.Batch{Header: whole.Header, Bytes: slices.Clone(whole.Bytes[:len(whole.Bytes)-9])}
	x.Enter(&cut)
	empty := whole
	empty.Header.Count = 0
	x.Enter(&empty)
	require.Zero(t, x.Len())
}

func TestKeysOfUsersDoNotMix(t *testing.T) {
	t.Parallel()
	require.NotEqual(t, KeyOf("a", "bc"), KeyOf("ab", "c"))
	require.NotEqual(t, KeyOf("", "abc"), KeyOf("abc", ""))
	require.Equal(t, KeyOf("a", "b"), KeyOf("a", "b"))
}

func TestAttachChangesNothingButTheStamp(t *testing.T) {
	t.Parallel()
	for _, codec := range []record.Codec{record.None, record.Gzip, record.Snappy, record.LZ4, record.Zstd} {
		for _, headers := range [][]record.Header{nil, {{Name: []byte("a"), Value: []byte{}}, {Name: []byte("a")}}, make([]record.Header, 70)} {
			b := record.NewBuilder(10)
			b.Add(5, nil, []byte("first"), headers)
			b.Add(9, []byte{}, nil, nil)
			plain, err := b.Finish(codec)
			require.NoError(t, err)
			s := stamp(3, 77, 2)
			out, err := Attach(slices.Clone(plain), &s, nil, len(plain)+1000)
			require.NoError(t, err)
			got, rest, err := record.ParseBatch(out)
			require.NoError(t, err)
			require.Empty(t, rest)
			require.NoError(t, got.VerifyCRC())
			require.True(t, Marked(&got.Header))
			require.Equal(t, codec, got.Header.Attributes.Codec())
			if codec == record.None {
				require.LessOrEqual(t, len(out), len(plain)+Overhead)
			}
			var it record.Iterator
			require.NoError(t, got.Records(record.NewDecompressor(1<<20), &it))
			require.True(t, it.Next())
			r := it.Record()
			require.Len(t, r.Headers, len(headers)+1)
			seen := Visible(&got.Header, r)
			require.Len(t, seen, len(headers))
			require.Equal(t, "first", string(r.Value))
			require.Nil(t, r.Key)
			require.True(t, it.Next())
			require.EqualValues(t, 9, it.Record().Timestamp)
			require.Empty(t, Visible(&got.Header, it.Record()))
			require.False(t, it.Next())
			require.NoError(t, it.Err())
			x := NewIndex(nil)
			x.SetWindow(1000)
			x.Enter(&got)
			e, ok := x.Find(s.Key, 77)
			require.True(t, ok)
			require.Equal(t, s, e.Stamp)
		}
	}
	_, err := Attach([]byte("no batch"), &Stamp{}, nil, 100)
	require.Error(t, err)
}

func TestOverheadBoundsTheStamp(t *testing.T) {
	t.Parallel()
	s := stamp(1, 1<<62, 1<<30)
	h := s.Header()
	without := record.RecordSize(0, 0, nil, make([]byte, 100), make([]record.Header, 63))
	with := record.RecordSize(0, 0, nil, make([]byte, 100), append(make([]record.Header, 63), h))
	require.LessOrEqual(t, with-without, Overhead)
}

func TestTheMemoryIsBoundedAndGivenBack(t *testing.T) {
	t.Parallel()
	budget := NewBudget(1000 * EntryBytes)
	x, y := NewIndex(budget), NewIndex(budget)
	for i, ix := range []*Index{x, y} {
		ix.SetWindow(100)
		for n := range 500 {
			require.False(t, ix.Full())
			ix.push(Entry{Stamp: Stamp{Key: Key{byte(i), byte(n), byte(n >> 8)}, Time: int64(n), Count: 1, Partitions: 1}, Base: model.Offset(n)})
		}
	}
	require.True(t, x.Full(), "the other one's entries count too")
	y.Expire(400)
	require.Equal(t, 199, y.Len())
	require.False(t, x.Full())
	require.EqualValues(t, (500+199)*EntryBytes, budget.Used())
	_, ok := y.Find(Key{1, byte(301 & 255), 301 >> 8}, 400)
	require.True(t, ok)
	x.Release()
	y.Expire(1 << 40)
	require.Zero(t, budget.Used())
	require.Zero(t, y.Len())
}

func TestAnOlderUseOfAKeyComesBackWithTheEndOfTheLog(t *testing.T) {
	t.Parallel()
	x := NewIndex(nil)
	x.SetWindow(1000)
	x.push(Entry{Stamp: stamp(1, 10, 2), Base: 0})
	x.push(Entry{Stamp: stamp(1, 20, 2), Base: 2})
	x.Truncate(3) // within the second
	e, ok := x.Find(Key{1}, 30)
	require.True(t, ok)
	require.EqualValues(t, 0, e.Base)
}

func TestTheFileIsByteForByteWhatTheDocumentSays(t *testing.T) {
	t.Parallel()
	x := NewIndex(nil)
	x.push(Entry{Stamp: Stamp{Key: Key{0xaa}, Payload: Digest{0xbb}, Time: 3, Partitions: 4, Count: 5}, Base: 6, AppendTime: -1})
	v := x.View(11)
	require.Equal(t, "TWIDEMP\x01", string(v.Encode()[:8]))
	b := v.Encode()
	require.Equal(t, "000000000000000b"+"00000001"+
		"aa000000000000000000000000000000"+"bb000000000000000000000000000000"+
		"0000000000000006"+"00000005"+"00000004"+"0000000000000003"+"ffffffffffffffff", hex.EncodeToString(b[12:]))
	require.Len(t, b, v.Bytes())
	for i := range b {
		bad := slices.Clone(b)
		bad[i] ^= 1
		_, _, err := Decode(bad)
		require.ErrorIs(t, err, ErrFile, "byte %d", i)
		_, _, err = Decode(b[:i])
		require.ErrorIs(t, err, ErrFile)
	}
	s := Stamp{Key: Key{1}, Payload: Digest{2}, Time: 3, Partitions: 4, Count: 5}
	require.Equal(t, "01"+"01000000000000000000000000000000"+"02000000000000000000000000000000"+"0000000000000003"+"00000004"+"00000005", hex.EncodeToString(s.Header().Value))
}

func FuzzDecode(f *testing.F) {
	x := NewIndex(nil)
	x.push(Entry{Stamp: stamp(1, 10, 2), Base: 0})
	v := x.View(5)
	f.Add(v.Encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		entries, covered, err := Decode(b)
		if err == nil && len(entries) > 0 && entries[len(entries)-1].End() > covered {
			t.Fatal("an entry beyond what the file covers")
		}
	})
}

// machine runs an index over a log that is only a list of batches, with its file on a disk
// that loses power: what the log kept is always known, and nothing else.
type machine struct {
	disk   *fsx.Mem
	x      *Index
	log    []record.Batch
	synced int // batches that a power cut leaves
	now    int64
	next   byte
}

const file = "/log/" + FileName

func (m *machine) end() model.Offset {
	if n := len(m.log); n > 0 {
		return m.log[n-1].Header.NextOffset()
	}
	return 0
}

func (m *machine) save(t *rapid.T) {
	v := m.x.View(m.end())
	require.NoError(t, fsx.WriteFile(m.disk, file, v.Encode()))
	m.x.Saved(v, m.now)
}

// open is what recovery does: the file, what lies behind, and a new file where it goes too far.
func (m *machine) open(t *rapid.T) {
	m.x = NewIndex(nil)
	m.x.SetWindow(1000)
	b, err := fsx.ReadFile(m.disk, file, MaxFile)
	require.NoError(t, err, "it is there from the first batch on")
	from, err := m.x.Load(b, m.end())
	require.NoError(t, err)
	for i := range m.log {
		if m.log[i].Header.BaseOffset >= from {
			m.x.Enter(&m.log[i])
		}
	}
	if m.x.Stale(m.end()) {
		m.save(t)
	}
}

func (m *machine) check(t *rapid.T) {
	want := map[Key]model.Offset{}
	for i := range m.log {
		var it record.Iterator
		if s, ok := stampOf(&m.log[i], &it); ok && m.now-s.Time < 1000 {
			want[s.Key] = m.log[i].Header.BaseOffset
		}
	}
	for k := range 256 {
		e, ok := m.x.Find(Key{byte(k)}, m.now)
		base, known := want[Key{byte(k)}]
		require.Equal(t, known, ok, "key %d", k)
		require.True(t, !ok || e.Base == base)
	}
}

func TestAnIndexKnowsWhatItsLogHasThroughPowerCuts(t *testing.T) {
	t.Parallel()
	racing.SkipSequential(t)
	rapid.Check(t, func(t *rapid.T) {
		m := &machine{disk: fsx.NewCrashMem(), now: 5000}
		require.NoError(t, m.disk.MkdirAll(path.Dir(file)))
		require.NoError(t, m.disk.SyncDir("/"))
		m.x = NewIndex(nil)
		m.x.SetWindow(1000)
		m.save(t)
		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) {
				for range rapid.IntRange(1, 40).Draw(t, "slices") {
					m.next++
					codec := rapid.SampledFrom([]record.Codec{record.None, record.Zstd}).Draw(t, "codec")
					b := slice(t, stamp(m.next, m.now, int32(rapid.IntRange(1, 3).Draw(t, "records"))), m.end(), codec)
					m.log = append(m.log, b)
					m.x.Enter(&b)
				}
			},
			"sync": func(*rapid.T) { m.synced = len(m.log) },
			"save": func(t *rapid.T) { m.save(t) },
			"time": func(t *rapid.T) {
				m.now += rapid.Int64Range(0, 700).Draw(t, "ms")
				m.x.Expire(m.now)
			},
			"kill": func(t *rapid.T) { m.open(t) },
			"power cut": func(t *rapid.T) {
				keep := rapid.IntRange(m.synced, len(m.log)).Draw(t, "kept")
				m.log = m.log[:keep]
				m.disk = m.disk.Crash(rapid.Uint64().Draw(t, "seed"))
				m.open(t)
				m.synced = keep
			},
			"truncate": func(t *rapid.T) {
				keep := rapid.IntRange(0, len(m.log)).Draw(t, "kept")
				m.log, m.synced = m.log[:keep:keep], min(m.synced, keep)
				m.x.Truncate(m.end())
				if m.x.Stale(m.end()) || m.x.Behind() {
					m.save(t)
				}
			},
			"": m.check,
		})
	})
}

// A wall clock that is hours off, or was set, forgets no key: neither that of the node which was
// asked, whose time is in the stamp, nor that of the one which has the log.
func TestAWrongWallClockForgetsNoKeyEarly(t *testing.T) {
	t.Parallel()
	const hour, window = 3_600_000, 300_000
	steady := int64(1_000)
	x := NewIndex(nil)
	x.SetWindow(window)
	x.SetSteady(func() int64 { return steady })
	now := int64(10 * hour)
	x.push(Entry{Stamp: stamp(1, now-hour, 2), Base: 0}) // of a node that is behind
	x.push(Entry{Stamp: stamp(2, now, 2), Base: 2})
	has := func(wall int64) (n int) {
		for k := range byte(2) {
			if _, ok := x.Find(Key{k + 1}, wall); ok {
				n++
			}
		}
		return n
	}
	for _, wall := range []int64{now, now + hour, now - hour} {
		x.Expire(wall)
		require.Equal(t, 2, has(wall))
	}
	steady += window - 1
	x.Truncate(4)
	x.Expire(now + hour)
	require.Equal(t, 2, has(now+hour))
	steady++
	require.Equal(t, 1, has(now+window-1), "by both clocks")
	x.Expire(now + window)
	require.Zero(t, x.Len())

	x.push(Entry{Stamp: stamp(3, now, 2), Base: 4})
	x.push(Entry{Stamp: stamp(4, now, 2), Base: 6})
	steady += window / 2
	x.Truncate(6) // which makes the index anew, and its entries no younger
	steady += window / 2
	x.Expire(now + window)
	require.Zero(t, x.Len())
}
