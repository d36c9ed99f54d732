package record

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"tidewire/internal/model"
)

func TestMarkersAreKafkasAndComeBack(t *testing.T) {
	t.Parallel()
	for _, typ := range []ControlType{ControlAbort, ControlCommit} {
		want := Marker{Type: typ, CoordinatorEpoch: 77, Timestamp: 1234}
		b := NewBuilder(64)
		b.Add(1, nil, []byte("dropped"), nil)
		data, err := b.FinishMarker(9, 3, want)
		require.NoError(t, err)
		batch, rest, err := ParseBatch(data)
		require.NoError(t, err)
		require.Empty(t, rest)
		require.NoError(t, batch.VerifyCRC())
		require.Equal(t, model.ProducerID(9), batch.Header.ProducerID)
		require.EqualValues(t, -1, batch.Header.BaseSequence)
		require.True(t, batch.Header.Attributes.Has(AttrControl|AttrTransactional))
		got, ok, err := batch.Marker()
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, want, got)

		var it Iterator
		require.NoError(t, batch.Records(nil, &it))
		require.True(t, it.Next())
		var key kmsg.ControlRecordKey
		require.NoError(t, key.ReadFrom(it.Record().Key))
		require.EqualValues(t, typ, key.Type)
		var value kmsg.EndTxnMarker
		require.NoError(t, value.ReadFrom(it.Record().Value))
		require.EqualValues(t, 77, value.CoordinatorEpoch)
	}
}

func TestBadMarkersAreCorruptAndOthersAreNone(t *testing.T) {
	t.Parallel()
	make2 := func(attrs Attributes, key, value []byte, n int) Batch {
		b := NewBuilder(64)
		b.SetAttributes(attrs)
		b.SetProducer(1, 0, -1)
		for range n {
			b.Add(1, key, value, nil)
		}
		data, err := b.Finish(None)
		require.NoError(t, err)
		batch, _, err := ParseBatch(data)
		require.NoError(t, err)
		return batch
	}
	key, value := []byte{0, 0, 0, 1}, []byte{0, 0, 0, 0, 0, 1}
	for name, b := range map[string]Batch{
		"no control batch": make2(AttrTransactional, key, value, 1),
		"two records":      make2(AttrControl, key, value, 2),
		"short key":        make2(AttrControl, key[:3], value, 1),
		"null key":         make2(AttrControl, nil, value, 1),
		"key version":      make2(AttrControl, []byte{0xff, 0, 0, 1}, value, 1),
		"short value":      make2(AttrControl, key, value[:5], 1),
		"value version":    make2(AttrControl, key, []byte{0x80, 0, 0, 0, 0, 1}, 1),
	} {
		_, _, err := b.Marker()
		require.True(t, model.HasCode(err, model.CorruptBatch), "%s: %v", name, err)
	}
	leaderChange := make2(AttrControl, []byte{0, 0, 0, 2}, value, 1)
	_, ok, err := leaderChange.Marker()
	require.NoError(t, err)
	require.False(t, ok)
}

// Compaction keeps the header of a batch whose records have gone, with its codec.
func TestBatchWithoutRecordsIsReadForEveryCodec(t *testing.T) {
	t.Parallel()
	for codec := None; codec <= Zstd; codec++ {
		b := NewBuilder(64)
		b.Add(1, nil, []byte("v"), nil)
		data, err := b.Finish(codec)
		require.NoError(t, err)
		data = data[:HeaderSize]
		binary.BigEndian.PutUint32(data[posLength:], HeaderSize-LengthSize)
		binary.BigEndian.PutUint32(data[posCount:], 0)
		setCRC(data)
		batch, _, err := ParseBatch(data)
		require.NoError(t, err)
		var it Iterator
		require.NoError(t, batch.Records(NewDecompressor(100), &it))
		require.False(t, it.Next())
		require.NoError(t, it.Err())
	}
}
