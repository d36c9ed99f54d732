package forward

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tidewire/broker/partition"
	"tidewire/internal/model"
	"tidewire/storage/record"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRecordsOfASliceComeOutAsTheyWentIn(t *testing.T) {
	t.Parallel()
	in := []record.Record{
		{Timestamp: 5, Key: nil, Value: []byte{}},
		{Timestamp: 3, Key: []byte("k"), Value: nil, Headers: []record.Header{{Name: []byte("a"), Value: nil}, {Name: []byte("a"), Value: []byte{}}}},
		{Timestamp: 9, Key: []byte("left out"), Value: nil},
		{Timestamp: 1, Key: []byte{}, Value: make([]byte, batchTarget+1)},
		{Timestamp: 2, Key: nil, Value: []byte("last"), Headers: []record.Header{{Name: []byte("b"), Value: []byte("c")}}},
	}
	s, err := NewSlice(Key{}, &partition.Slice{Records: in, Select: []int32{0, 1, 3, 4}})
	require.NoError(t, err)
	require.Equal(t, 4, s.head.Count)
	var got records
	require.NoError(t, got.unpack(s.bytes, 4))
	require.Equal(t, []int32{0, 1, 2, 3}, got.order)
	for i, from := range []int{0, 1, 3, 4} {
		r, want := &got.list[i], &in[from]
		require.Equal(t, want.Timestamp, r.Timestamp)
		require.Equal(t, want.Key, r.Key)
		require.Equal(t, want.Value, r.Value)
		require.Len(t, r.Headers, len(want.Headers))
		for j := range want.Headers {
			require.Equal(t, want.Headers[j], r.Headers[j])
		}
	}
	require.True(t, model.HasCode(new(records).unpack(s.bytes, 5), model.Internal), "not as many as were said")
	require.True(t, model.HasCode(new(records).unpack(s.bytes[:len(s.bytes)-1], 4), model.Internal), "cut")
}

// The methods' numbers are part of the protocol.
func TestMethodsKeepTheirNumbers(t *testing.T) {
	t.Parallel()
	require.EqualValues(t, []any{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 64}, []any{
		int(MethodEnds), int(MethodRead), int(MethodAt), int(MethodAborted), int(MethodWatch), int(MethodProduce), int(MethodKeys),
		int(MethodDelete), int(MethodDescribe), int(MethodStored), int(MethodNode), int(MethodHistory), int(FirstOfGroups),
	})
}

func FuzzSplit(f *testing.F) {
	b, err := join(endsRequest{Partitions: []Meant{{Epoch: 3}}}, []byte("body"))
	require.NoError(f, err)
	f.Add(b)
	f.Add([]byte("\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var q endsRequest
		body, err := split(b, &q)
		if err == nil {
			require.LessOrEqual(t, len(body)+headLengthBytes, len(b))
		}
		_ = new(records).unpack(b, len(b)/8) // whatever it is
	})
}
