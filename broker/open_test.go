package broker

import (
	"context"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tidewire/cluster/metadata"
	"tidewire/internal/model"
	"tidewire/storage/log"
)

// stubborn is a store that fails to open partitions as a test says.
type stubborn struct {
	*log.Store
	mu     sync.Mutex
	fault  map[model.PartitionID]error // guarded by mu
	tries  map[model.PartitionID]int   // guarded by mu
	inside chan struct{}               // when not nil: an Open waits until the test has taken two
}

func (s *stubborn) Open(id model.TopicID, topic string, p model.PartitionID, cfg log.Config) (*log.Log, error) {
	s.mu.Lock()
	s.tries[p]++
	err := s.fault[p]
	s.mu.Unlock()
	if s.inside != nil {
		s.inside <- struct{}{}
	}
	if err != nil {
		return nil, err
	}
	return s.Store.Open(id, topic, p, cfg)
}

func (s *stubborn) heal(p model.PartitionID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.fault, p)
}

func (s *stubborn) tried(p model.PartitionID) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tries[p]
}

// fixed is metadata that has an image and nothing else.
type fixed struct {
	Metadata
	image *metadata.Image
}

func (f fixed) Image() *metadata.Image { return f.image }

// A partition that could not be opened for want of room or of descriptors comes back by
// itself; a damaged one is left alone.
func TestAPartitionThatCouldNotBeOpenedIsTriedAgainWhereTheCauseMayPass(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(t)
		full := model.Errorf(model.StorageFull, "the disk is full").WithCause(fmt.Errorf("open: %w", syscall.ENOSPC))
		many := model.Errorf(model.LeaderUnavailable, "no descriptor").WithCause(fmt.Errorf("open: %w", syscall.EMFILE))
		damaged := model.Errorf(model.StorageError, "damaged").WithCause(fmt.Errorf("read: %w", syscall.EIO))
		s := &stubborn{Store: k.store, fault: map[model.PartitionID]error{1: full, 2: damaged, 3: many}, tries: map[model.PartitionID]int{}}
		k.Broker.store = s
		img := metadata.Empty()
		apply := func(index uint64, cmd metadata.Command) {
			var res metadata.Result
			img, _, res = metadata.Apply(img, index, cmd)
			require.Nil(t, res.Refusal, "%T", cmd)
		}
		apply(1, metadata.BootstrapCluster{ClusterID: "c", Name: "n", MetadataVersion: metadata.CurrentMetadataVersion, Now: 1})
		apply(2, metadata.RegisterBroker{ID: 1, StorageID: "s", Incarnation: 1, HTTPAddr: "h:1", Now: 1})
		assign := make([][]model.BrokerID, 5)
		for i := range assign {
			assign[i] = []model.BrokerID{1}
		}
		apply(3, metadata.CreateTopic{Name: "t", Assignments: assign, ID: model.TopicID{9}, Now: 1})
		k.Broker.meta = fixed{image: img}
		k.pending["t"] = struct{}{}
		k.group.Go("reconcile", k.reconcileLoop)
		synctest.Wait()
		v, ok := k.topics.Load("t")
		require.True(t, ok)
		tp := v.(*topic)
		open := func() (out []int) {
			for i, p := range *tp.parts.Load() {
				if p != nil && tp.openLogs()[i] != nil {
					out = append(out, i)
				}
			}
			return out
		}
		require.Equal(t, []int{0, 4}, open())
		require.True(t, model.HasCode(tp.notOpen(1), model.StorageFull))
		time.Sleep(10 * time.Second) // 1 s, 2 s, 4 s
		synctest.Wait()
		require.Equal(t, 4, s.tried(1))
		s.heal(1)
		time.Sleep(9 * time.Second)
		synctest.Wait()
		require.Equal(t, []int{0, 1, 4}, open())
		s.heal(2)
		s.heal(3)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		require.Equal(t, []int{0, 1, 3, 4}, open())
		require.Equal(t, 1, s.tried(2), "damage does not pass")
		tries := s.tried(0) + s.tried(1)
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, tries, s.tried(0)+s.tried(1), "what is open is left alone")
		k.stop()
	})
}

func TestAGrowingTopicOpensSeveralPartitionsAtOnceAndHoldsNoLock(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	s := &stubborn{Store: k.store, tries: map[model.PartitionID]int{}, inside: make(chan struct{})}
	k.Broker.store = s
	here := metadata.Partition{Replicas: []model.BrokerID{1}, ISR: []model.BrokerID{1}, Leader: 1}
	want := &metadata.Topic{Name: "wide", ID: model.TopicID{7}, Config: &metadata.TopicConfig{MaxMessageBytes: 1000, MinInsyncReplicas: 1}}
	for range 100 {
		want.Partitions = append(want.Partitions, here)
	}
	tp := newTopic(want)
	done := make(chan struct{})
	k.group.Go("grow", func(context.Context) { k.growTopic(tp, want); close(done) })
	require.Eventually(t, func() bool { return s.tried(0)+s.tried(1)+s.tried(2) == 3 }, 10*time.Second, time.Millisecond,
		"all wait in Open, of which none has returned")
	require.Empty(t, tp.openLogs(), "the topic's lock is free meanwhile")
	for range 100 {
		<-s.inside
	}
	<-done
	require.Len(t, *tp.parts.Load(), 100)
	for i, p := range *tp.parts.Load() {
		require.NoError(t, p.Err())
		require.EqualValues(t, i, p.ID)
	}
	k.stop()
}
