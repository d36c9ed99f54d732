package cluster_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tidewire/cluster/clustertest"
	"tidewire/cluster/metadata"
	"tidewire/internal/lifecycle"
	"tidewire/internal/model"
)

// A probe of gossip that was under way ends by itself, a little later than its node; and serf
// leaves a goroutine behind when it cannot listen, which ends the process.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/hashicorp/memberlist.(*Memberlist).probeNode"),
		goleak.IgnoreAnyFunction("github.com/hashicorp/serf/serf.(*serfQueries).stream"))
}

func TestANewNodeFoundsAClusterAndComesBackToIt(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := clustertest.StartIn(t, dir)
	id, storage, epoch := c.ClusterID(), c.StorageID(), c.BrokerEpoch()
	require.Len(t, id, 36)
	require.Equal(t, id, c.Image().Cluster().ID)
	require.Equal(t, "test", c.Image().Cluster().Name)
	controller, ok := c.Controller()
	require.True(t, ok)
	require.Equal(t, model.BrokerID(1), controller)
	createTopic(t, c, 1)
	stop(t, c)

	c = clustertest.StartIn(t, dir)
	require.Equal(t, id, c.ClusterID())
	require.Equal(t, storage, c.StorageID())
	require.Greater(t, c.BrokerEpoch(), epoch)
	b := c.Image().Broker(1)
	require.False(t, b.Fenced)
	require.Equal(t, c.BrokerEpoch(), b.Epoch)
	require.Equal(t, model.LeaderEpoch(1), c.Image().Topic("topic-1").Partitions[0].LeaderEpoch)
}

func TestARefusalIsTheErrorOfPropose(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t)
	createTopic(t, c, 1)
	res, err := c.Propose(t.Context(), metadata.CreateTopic{ID: model.TopicID{9}, Name: "topic-1", Assignments: [][]model.BrokerID{{1}}})
	require.True(t, model.HasCode(err, model.TopicExists))
	require.Equal(t, model.NotApplied, model.AsError(err).EffectiveOutcome())
	require.Equal(t, err, error(res.Refusal))
	require.NotZero(t, res.Index)
}

func TestWhatWasProposedIsInTheImageWhenProposeReturns(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t)
	g := lifecycle.New(t.Context())
	const proposers, each = 16, 25
	var wg sync.WaitGroup
	for p := range proposers {
		wg.Add(1)
		g.Go("proposer", func(ctx context.Context) {
			defer wg.Done()
			for i := range each {
				name := fmt.Sprintf("t-%d-%d", p, i)
				res, err := c.Propose(ctx, metadata.CreateTopic{
					ID: model.TopicID{0: 1, 1: byte(p), 2: byte(i)}, Name: name, Assignments: [][]model.BrokerID{{1}},
				})
				if err != nil || c.Image().Topic(name) == nil || c.Image().Index() < res.Index {
					t.Errorf("%s: %v", name, err)
				}
			}
		})
	}
	wg.Wait()
	require.NoError(t, g.Stop(time.Second))
	require.Equal(t, proposers*each, c.Image().TopicCount())
}

func TestOnlyOneOfManyFirstUsersIsCreated(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t)
	g := lifecycle.New(t.Context())
	errs := make(chan error, 8)
	for i := range cap(errs) {
		g.Go("proposer", func(ctx context.Context) {
			_, err := c.Propose(ctx, metadata.CreateUser{
				Name: fmt.Sprint("admin", i), Admin: true, Credentials: metadata.Credentials{PasswordHash: "h"}, OnlyIfNoUsers: true,
			})
			errs <- err
		})
	}
	created := 0
	for range cap(errs) {
		if err := <-errs; err == nil {
			created++
		} else {
			require.True(t, model.HasCode(err, model.Conflict), "%v", err)
		}
	}
	require.NoError(t, g.Stop(time.Second))
	require.Equal(t, 1, created)
	require.Equal(t, 1, c.Image().UserCount())
}

func TestSubscribersSeeEveryChangeOnceAndInOrder(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t)
	seen := map[model.TopicID]bool{} // only touched by the subscriber until cancel has returned
	last := c.Image()
	cancel := c.Subscribe(func(old, next *metadata.Image, d metadata.Delta) {
		if old != last {
			t.Errorf("an image between %d and %d was skipped", last.Index(), old.Index())
		}
		last = next
		for id, change := range d.Topics {
			if change != metadata.Created || next.TopicByID(id) == nil || old.TopicByID(id) != nil || seen[id] {
				t.Errorf("change %d of %s", change, id)
			}
			seen[id] = true
		}
	})
	for n := range 30 {
		createTopic(t, c, n)
	}
	cancel()
	createTopic(t, c, 30)
	require.Len(t, seen, 30)
}

func TestBarrierAndWaitAppliedReturn(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t)
	createTopic(t, c, 1)
	g := lifecycle.New(t.Context())
	var wg sync.WaitGroup
	for range 32 {
		wg.Add(1)
		g.Go("reader", func(ctx context.Context) {
			defer wg.Done()
			if err := c.Barrier(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	require.NoError(t, g.Stop(time.Second))
	require.NoError(t, c.WaitApplied(t.Context(), c.Image().Index()))
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	err := c.WaitApplied(ctx, c.Image().Index()+1)
	require.True(t, model.HasCode(err, model.Timeout), "%v", err)
}

func TestAStoppedClusterTakesNoChanges(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t)
	index := c.Image().Index()
	stop(t, c)
	_, err := c.Propose(t.Context(), metadata.Prune{})
	require.Error(t, err)
	require.True(t, model.HasCode(err, model.QuorumUnavailable), "%v", err)
	require.True(t, model.HasCode(c.Barrier(t.Context()), model.QuorumUnavailable))
	require.True(t, model.HasCode(c.WaitApplied(t.Context(), index+1), model.QuorumUnavailable))
	require.Equal(t, index, c.Image().Index(), "reads of what is there go on")
	require.NoError(t, c.Stop(t.Context()))
}

func TestAnEndedContextIsNotProposed(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := c.Propose(ctx, metadata.CreateTopic{ID: model.TopicID{1}, Name: "n", Assignments: [][]model.BrokerID{{1}}})
	require.True(t, model.HasCode(err, model.QuorumUnavailable), "%v", err)
	require.NoError(t, c.Barrier(t.Context()))
	require.Nil(t, c.Image().Topic("n"))
}
