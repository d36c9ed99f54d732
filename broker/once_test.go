package broker

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tidewire/internal/model"
	"tidewire/storage/dedupe"
	"tidewire/storage/record"
)

func TestRequestsOfOneKeyGoOneAfterAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var f inFlight
		k := dedupe.Key{1}
		leave, err := f.enter(context.Background(), k, time.Second)
		require.NoError(t, err)
		other, err := f.enter(context.Background(), dedupe.Key{2}, time.Second)
		require.NoError(t, err, "another key does not wait")
		other()

		began := time.Now()
		_, err = f.enter(context.Background(), k, 3*time.Second)
		require.True(t, model.HasCode(err, model.IdempotencyInProgress), "%v", err)
		require.Equal(t, 3*time.Second, time.Since(began), "it waits up to timeout_ms")
		require.Equal(t, model.Unknown, model.AsError(err).EffectiveOutcome())
		gone, cancel := context.WithCancelCause(context.Background())
		cancel(errors.New("gone"))
		_, err = f.enter(gone, k, time.Hour)
		require.True(t, model.HasCode(err, model.IdempotencyInProgress), "%v", err)

		inside, most := 0, 0
		done := make(chan error)
		for range 50 {
			go func() {
				leave, err := f.enter(context.Background(), k, time.Hour)
				if err == nil {
					inside++
					most = max(most, inside)
					<-time.After(time.Millisecond)
					inside--
					leave()
				}
				done <- err
			}()
		}
		synctest.Wait()
		leave()
		for range 50 {
			require.NoError(t, <-done)
		}
		require.Equal(t, 1, most)
		require.Empty(t, f.keys, "nothing is left behind")
	})
}

func TestDifferentPayloadsHaveDifferentDigests(t *testing.T) {
	t.Parallel()
	rec := func(key, value []byte, headers ...record.Header) *ProduceRequest {
		return &ProduceRequest{Records: []record.Record{{Timestamp: NoTimestamp, Key: key, Value: value, Headers: headers}}, Routing: make([]Routing, 1)}
	}
	at := func(to Routing) *ProduceRequest {
		r := rec([]byte("k"), []byte("v"))
		r.Routing[0] = to
		return r
	}
	two := rec([]byte("k"), []byte("v"))
	two.Records, two.Routing = append(two.Records, two.Records[0]), append(two.Routing, Routing{})
	dated := rec([]byte("k"), []byte("v"))
	dated.Records[0].Timestamp = 7
	seen := map[dedupe.Digest]int{}
	for i, r := range []*ProduceRequest{
		rec(nil, nil), rec([]byte{}, nil), rec(nil, []byte{}), rec([]byte("k"), []byte("v")), rec([]byte("kv"), nil), rec([]byte("kv"), []byte{}), rec([]byte{}, []byte("kv")),
		rec([]byte("k"), []byte("v"), record.Header{Name: []byte{}}), rec([]byte("k"), []byte("v"), record.Header{Name: []byte{}, Value: []byte{}}),
		rec([]byte("k"), []byte("v"), record.Header{Name: []byte("a")}, record.Header{Name: []byte("b")}), rec([]byte("k"), []byte("v"), record.Header{Name: []byte("b")}, record.Header{Name: []byte("a")}),
		at(Routing{Partition: 0, HasPartition: true}), at(Routing{Partition: 1, HasPartition: true}), at(Routing{HasPartitionKey: true}), at(Routing{HasPartitionKey: true, PartitionKey: []byte("k")}),
		two, dated,
	} {
		d := payloadOf(r)
		if was, twice := seen[d]; twice {
			t.Fatalf("%d and %d look the same", was, i)
		}
		seen[d] = i
		require.Equal(t, d, payloadOf(r))
	}
}
