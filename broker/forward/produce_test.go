package forward

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tidewire/broker/partition"
	"tidewire/cluster/metadata"
	"tidewire/cluster/peer"
	"tidewire/internal/lifecycle"
	"tidewire/internal/model"
	"tidewire/storage/record"
)

var topicID = model.TopicID{1}

// world is a cluster as a node sees it that leads nothing, and what the others answer.
type world struct {
	t *testing.T

	mu      sync.Mutex
	img     *metadata.Image
	barrier error
	answer  func(to model.BrokerID, epoch model.LeaderEpoch) (sliceResult, error)
	asked   []model.BrokerID
}

// newWorld has a topic of one partition that node 1 leads, with replicas on so many nodes.
func newWorld(t *testing.T, replicas int) *world {
	t.Helper()
	w := &world{t: t, img: metadata.Empty()}
	w.apply(metadata.BootstrapCluster{ClusterID: "c", MetadataVersion: metadata.CurrentMetadataVersion})
	var on []model.BrokerID
	for id := range model.BrokerID(replicas) {
		on = append(on, id+1)
		w.apply(metadata.RegisterBroker{ID: id + 1, StorageID: string(rune('a' + id)), Incarnation: 1})
		w.apply(metadata.UnfenceBroker{ID: id + 1, Epoch: w.img.Broker(id + 1).Epoch})
	}
	w.apply(metadata.CreateTopic{Name: "t", ID: topicID, Assignments: [][]model.BrokerID{on}})
	return w
}

func (w *world) apply(c metadata.Command) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var res metadata.Result
	w.img, _, res = metadata.Apply(w.img, w.img.Index()+1, c)
	require.Nil(w.t, res.Refusal)
}

// fence has another node lead.
func (w *world) fence(id model.BrokerID) {
	w.apply(metadata.FenceBroker{ID: id, Epoch: w.Image().Broker(id).Epoch})
}

func (w *world) Image() *metadata.Image {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.img
}

func (w *world) Barrier(context.Context) error { return w.barrier }

func (w *world) CallBroker(_ context.Context, to model.BrokerID, _ peer.Method, payload []byte) ([]byte, error) {
	var q produceRequest
	if _, err := split(payload, &q); err != nil {
		return nil, err
	}
	w.mu.Lock()
	w.asked = append(w.asked, to)
	w.mu.Unlock()
	r, err := w.answer(to, q.Slices[0].Epoch)
	if err != nil {
		return nil, err
	}
	return join(produceAnswer{[]sliceResult{r}})
}

// produce sends a record from a node and returns what became of it, and after how long.
func (w *world) produce(from model.BrokerID, sequence *partition.Sequence, own Local) (partition.State, time.Duration) {
	w.t.Helper()
	g := lifecycle.New(w.t.Context())
	c := NewClient(from, w, w, g)
	if own != nil {
		c.Own(own)
	}
	s, err := NewSlice(Key{Topic: topicID}, &partition.Slice{Records: []record.Record{{Value: []byte("v")}}, Select: []int32{0}, Sequence: sequence})
	require.NoError(w.t, err)
	began, done := time.Now(), make(chan struct{})
	c.Send([]*Slice{s}, partition.AcksAll, 10*time.Second, nil, func(*Slice) { close(done) })
	<-done
	require.NoError(w.t, g.Stop(time.Minute))
	return s.State(), time.Since(began)
}

var (
	unreachable = &peer.CallError{Cause: errors.New("connection refused")}
	cutOff      = &peer.CallError{Sent: true, Cause: errors.New("connection reset")}
)

// dead answers for node 1, which is gone, and for others, which take what they lead.
func (w *world) dead(err error) {
	w.answer = func(to model.BrokerID, epoch model.LeaderEpoch) (sliceResult, error) {
		if to == 1 {
			return sliceResult{}, err
		}
		if at, _ := LeaderOf(w.Image(), Key{Topic: topicID}); at != (Place{to, epoch}) {
			return sliceResult{Done: true, Fault: Fault{model.Errorf(model.LeaderUnavailable, "another leads")}}, nil
		}
		return sliceResult{Done: true, Base: 7}, nil
	}
}

func TestASliceThatWasNotTakenWaitsForTheNextLeader(t *testing.T) {
	t.Parallel()
	for name, why := range map[string]error{
		"unreachable": unreachable,
		"stopping":    model.Errorf(model.LeaderUnavailable, "the node is stopping"),
	} {
		for _, barrier := range []error{nil, model.Errorf(model.QuorumUnavailable, "no leader")} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, 2)
					w.dead(why)
					w.barrier = barrier
					time.AfterFunc(3*time.Second, func() { w.fence(1) })
					s, after := w.produce(9, nil, nil)
					require.NoError(t, s.Err)
					require.EqualValues(t, 7, s.Base)
					require.Less(t, after, 4*time.Second)
					require.Equal(t, []model.BrokerID{1, 2}, w.asked, "who was not reached is not asked again")
				})
			})
		}
	}
}

func TestASliceThatWasNotTakenAnywhereIsNotApplied(t *testing.T) {
	t.Parallel()
	for replicas, want := range map[int]time.Duration{1: time.Second, 2: 10 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, replicas)
			w.dead(unreachable)
			s, after := w.produce(9, nil, nil)
			require.True(t, model.HasCode(s.Err, model.LeaderUnavailable), "%v", s.Err)
			require.Equal(t, model.NotApplied, model.AsError(s.Err).EffectiveOutcome())
			require.Less(t, after, want, "before the caller's own time is over, or at once where nobody else can lead")
		})
	}
}

func TestALostSliceIsSentAgainOnlyWhereItIsStoredOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		w.dead(cutOff)
		s, _ := w.produce(9, nil, nil)
		require.True(t, model.HasCode(s.Err, model.Timeout))
		require.Equal(t, model.Unknown, model.AsError(s.Err).EffectiveOutcome())
		require.Len(t, w.asked, 1)
	})
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		lost := false
		w.dead(unreachable)
		rest := w.answer
		w.answer = func(to model.BrokerID, epoch model.LeaderEpoch) (sliceResult, error) {
			if !lost {
				lost = true
				return sliceResult{}, cutOff
			}
			return rest(to, epoch)
		}
		time.AfterFunc(3*time.Second, func() { w.fence(1) })
		s, _ := w.produce(9, &partition.Sequence{ID: 1}, nil)
		require.NoError(t, s.Err, "the connection was lost, then nobody listened, then another led")
		require.Equal(t, []model.BrokerID{1, 1, 2}, w.asked)
	})
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		lost := false
		w.answer = func(model.BrokerID, model.LeaderEpoch) (sliceResult, error) {
			if !lost {
				lost = true
				return sliceResult{}, cutOff
			}
			return sliceResult{}, unreachable
		}
		s, _ := w.produce(9, &partition.Sequence{ID: 1}, nil)
		require.Equal(t, model.Unknown, model.AsError(s.Err).EffectiveOutcome(), "what was lost before may have been stored")
	})
}

// refusing is a node that leads nothing any more by the time that it is asked.
type refusing struct {
	Local
	asked int
}

func (r *refusing) Led(context.Context, Key, model.LeaderEpoch) (*partition.Partition, error) {
	r.asked++
	return nil, model.Errorf(model.StorageError, "its log has failed")
}

func TestASliceGoesToThisNodeWhereItLeadsByThen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		w.dead(unreachable)
		time.AfterFunc(time.Second, func() { w.fence(1) })
		own := &refusing{}
		s, _ := w.produce(2, nil, own)
		require.True(t, model.HasCode(s.Err, model.StorageError), "%v", s.Err)
		require.Equal(t, 1, own.asked)
		require.Equal(t, []model.BrokerID{1}, w.asked)
	})
}
