package peer

import (
	"bytes"
	"context"
	"encoding/json"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewire/internal/model"
)

// Calls for records, however large and many, do not stand in the way of the others.
func TestLargeAndWaitingCallsForRecordsLeaveTheOthersAlone(t *testing.T) {
	t.Parallel()
	n := newTown()
	stay := make(chan struct{})
	n.start(t, "s-2", options{data: func(ctx context.Context, r Request) ([]byte, error) {
		if len(r.Payload) > 1 {
			return r.Payload, nil
		}
		select {
		case <-stay:
			return r.Payload, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}})
	p := n.start(t, "s-1", options{})
	var waiting sync.WaitGroup
	for i := range 3 * parallelRequests {
		waiting.Go(func() {
			b, err := p.CallData(t.Context(), "s-2", 1, []byte{byte(i)})
			if err == nil && !bytes.Equal(b, []byte{byte(i)}) {
				t.Errorf("call %d was answered with %v", i, b)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	large := bytes.Repeat([]byte{7}, 3*MaxPayload)
	got, err := p.CallData(t.Context(), "s-2", 1, large)
	require.NoError(t, err)
	require.True(t, bytes.Equal(large, got))
	_, err = p.Call(t.Context(), "s-2", 9, large)
	require.True(t, model.HasCode(err, model.RequestTooLarge), "%v", err)
	b, err := p.Call(t.Context(), "s-2", 9, []byte("a metadata command"))
	require.NoError(t, err)
	require.Equal(t, "a metadata command", string(b))
	close(stay)
	waiting.Wait()
}

func TestRoomIsWaitedForAndMoreThanThereIsIsGivenAlone(t *testing.T) {
	t.Parallel()
	r := newRoom(10)
	require.NoError(t, r.take(25), "alone")
	took := make(chan error, 2)
	go func() { took <- r.take(4) }()
	select {
	case <-took:
		t.Fatal("there is no room")
	case <-time.After(20 * time.Millisecond):
	}
	r.release(25)
	require.NoError(t, <-took)
	go func() { took <- r.take(9) }()
	r.close()
	require.Error(t, <-took, "the port stops")
}

func TestAFaultKeepsWhatClientsAreTold(t *testing.T) {
	t.Parallel()
	e := model.Errorf(model.OffsetOutOfRange, "no").WithExtra("earliest", model.Offset(3)).WithOutcome(model.NotApplied)
	e.Fields = []model.FieldError{{Pointer: "/x", Detail: "bad"}}
	e.RetryAfter = 3 * time.Second
	e.Limit = &model.RateLimit{Policy: "p", Quota: 5}
	got := model.AsError(DecodeFault(EncodeFault(e)))
	require.Equal(t, e.Code, got.Code)
	require.Equal(t, json.Number("3"), got.Extra["earliest"])
	require.Equal(t, []any{e.Fields, e.RetryAfter, e.Limit, model.NotApplied}, []any{got.Fields, got.RetryAfter, got.Limit, got.EffectiveOutcome()})
	require.True(t, model.HasCode(DecodeFault(EncodeFault(model.Errorf(model.Internal, "x").WithExtra("c", make(chan int)))), model.Internal))
}
