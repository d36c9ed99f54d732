package log

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"tidewire/internal/fsx"
	"tidewire/internal/model"
	"tidewire/storage/record"
)

func TestSeekByTimeEqualsABruteForceScanWhateverTheOrder(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 4))
	times := make([]int64, 3000)
	for i := range times {
		times[i] = 1_700_000_000_000 + rng.Int64N(50_000)*7
	}
	slices.Sort(times)
	orders := map[string][]int64{"oldest first": slices.Clone(times)}
	rev := slices.Clone(times)
	slices.Reverse(rev)
	orders["newest first"] = rev
	shuf := slices.Clone(times)
	rng.Shuffle(len(shuf), func(i, j int) { shuf[i], shuf[j] = shuf[j], shuf[i] })
	orders["shuffled"] = shuf
	for name, order := range orders {
		for _, logTime := range []bool{false, true} {
			t.Run(fmt.Sprint(name, logTime), func(t *testing.T) {
				t.Parallel()
				h := newHarness(t, fsx.NewMem(), "/data")
				cfg := Config{SegmentBytes: 8000, IndexIntervalBytes: 500, LogAppendTime: logTime}
				l := h.open(cfg)
				var want []rec
				for i := 0; i < len(order); i += 10 {
					_, err := l.Append(batch(t, record.Codec(i/10%5), order[i:i+10]...), 0, order[i])
					require.NoError(t, err)
					for _, ts := range order[i : i+10] {
						r := rec{model.Offset(len(want)), ts, ""}
						if logTime {
							r.ts = order[i]
						}
						want = append(want, r)
					}
				}
				require.GreaterOrEqual(t, l.Segments(), 10)
				check := func(l *Log) {
					prev := int64(0)
					for _, ts := range times {
						for _, x := range []int64{ts, (ts + prev) / 2, ts + 1} {
							checkSeek(t, l, want, x, allOffsets)
						}
						prev = ts
					}
					checkSeek(t, l, want, 0, allOffsets)
					checkSeek(t, l, want, times[1500], 700)
				}
				check(l)
				require.NoError(t, h.stop())
				h.start()
				check(h.open(cfg))
				require.NoError(t, h.stop())
			})
		}
	}
}

// The three files as bytes, decoded by hand and with Kafka's own types.
func TestFilesAreKafkasByteForByte(t *testing.T) {
	t.Parallel()
	mem := fsx.NewMem()
	h := newHarness(t, mem, "/data")
	l := h.open(Config{IndexIntervalBytes: 70})
	for _, ts := range []int64{1000, 3000, 2000, 4000} {
		_, err := l.Append(batch(t, record.None, ts, ts), 7, 0)
		require.NoError(t, err)
	}
	require.NoError(t, h.stop())
	file := func(name string) []byte {
		b, err := fsx.ReadFile(mem, logDir+"/"+name, 1<<20)
		require.NoError(t, err)
		return b
	}
	// Batches have 61 + 2 × 14 = 89 bytes; from the second on each gets an entry.
	require.Equal(t, []byte{
		0, 0, 0, 3, 0, 0, 0, 89,
		0, 0, 0, 5, 0, 0, 0, 178,
		0, 0, 0, 7, 0, 0, 1, 11,
	}, file("00000000000000000000.index"))
	require.Equal(t, []byte{
		0, 0, 0, 0, 0, 0, 0x0b, 0xb8, 0, 0, 0, 3,
		0, 0, 0, 0, 0, 0, 0x0f, 0xa0, 0, 0, 0, 7,
	}, file("00000000000000000000.timeindex"))
	require.Equal(t, "version: 0\ntopic_id: AQIDBAUGBwgJCgsMDQ4PEA", string(file("partition.metadata")))
	require.Equal(t, "0\n1\n7 0\n", string(file("leader-epoch-checkpoint")))

	data := file("00000000000000000000.log")
	require.Len(t, data, 4*89)
	for i, want := range []int64{1000, 3000, 2000, 4000} {
		raw := data[i*89 : (i+1)*89]
		var b kmsg.RecordBatch
		require.NoError(t, b.ReadFrom(raw))
		require.EqualValues(t, 2*i, b.FirstOffset)
		require.EqualValues(t, 7, b.PartitionLeaderEpoch)
		require.EqualValues(t, 77, b.Length)
		require.EqualValues(t, 2, b.Magic)
		require.EqualValues(t, 2, b.NumRecords)
		require.EqualValues(t, want, b.MaxTimestamp)
		require.Equal(t, crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)), uint32(b.CRC))
		require.EqualValues(t, binary.BigEndian.Uint32(raw[17:]), uint32(b.CRC))
	}
	cp, err := fsx.ReadFile(mem, "/data/recovery-point", 1<<20)
	require.NoError(t, err)
	require.Equal(t, "tidewire-checkpoint 1 recovery-point\ngeneration 2\nentries 1\n"+
		"01020304-0506-0708-090a-0b0c0d0e0f10 0 8\ncrc32c 788468b5\n", string(cp))
	mark, err := fsx.ReadFile(mem, "/data/clean-stop", 1<<20)
	require.NoError(t, err)
	require.Equal(t, "tidewire-clean-stop 1\nrecovery-point 2\nreplication 2\nlog-start 2\ncleaner 0\ncrc32c b9b5ceb5\n", string(mark))
}
