package health_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tidewire/broker/health"
	"tidewire/cluster/metadata"
	"tidewire/internal/model"
)

func TestAPartitionIsAsItsLeaderAndItsReplicasAre(t *testing.T) {
	t.Parallel()
	ids := func(list ...model.BrokerID) []model.BrokerID { return list }
	for name, c := range map[string]struct {
		leader        model.BrokerID
		replicas, isr []model.BrokerID
		minISR        int64
		seen          []model.BrokerID
		broken        bool
		want          health.State
		out           []model.BrokerID
	}{
		"all in sync":                       {leader: 1, replicas: ids(1, 2, 3), isr: ids(1, 2, 3), minISR: 2, seen: ids(1, 2, 3)},
		"a single replica":                  {leader: 1, replicas: ids(1), isr: ids(1), minISR: 1, seen: ids(1)},
		"one has left the ISR":              {leader: 1, replicas: ids(1, 2, 3), isr: ids(1, 3), minISR: 2, seen: ids(1, 2, 3), want: health.UnderReplicated, out: ids(2)},
		"one cannot be reached":             {leader: 1, replicas: ids(1, 2, 3), isr: ids(1, 2, 3), minISR: 2, seen: ids(1, 3), want: health.UnderReplicated, out: ids(2)},
		"one of each":                       {leader: 1, replicas: ids(3, 2, 1), isr: ids(1, 2), minISR: 2, seen: ids(1, 3), want: health.UnderMinISR, out: ids(3, 2)},
		"too few in sync":                   {leader: 2, replicas: ids(1, 2, 3), isr: ids(2), minISR: 2, seen: ids(1, 2, 3), want: health.UnderMinISR, out: ids(1, 3)},
		"as few as must be":                 {leader: 2, replicas: ids(1, 2, 3), isr: ids(2), minISR: 1, seen: ids(1, 2, 3), want: health.UnderReplicated, out: ids(1, 3)},
		"no leader":                         {leader: metadata.NoLeader, replicas: ids(1, 2), isr: ids(2), minISR: 1, seen: ids(1), want: health.Offline, out: ids(1, 2)},
		"the leader cannot be reached":      {leader: 2, replicas: ids(1, 2, 3), isr: ids(1, 2, 3), minISR: 1, seen: ids(1, 3), want: health.Offline, out: ids(2)},
		"the leader cannot serve it":        {leader: 1, replicas: ids(1), isr: ids(1), minISR: 1, seen: ids(1), broken: true, want: health.Offline},
		"nobody in sync can be reached":     {leader: metadata.NoLeader, replicas: ids(1, 2), minISR: 2, want: health.Offline, out: ids(1, 2)},
		"more asked for than there can be":  {leader: 1, replicas: ids(1), isr: ids(1), minISR: 2, seen: ids(1), want: health.UnderMinISR},
		"a broker beside it does not count": {leader: 1, replicas: ids(1, 2), isr: ids(1, 2), minISR: 2, seen: ids(1, 2)},
	} {
		p := metadata.Partition{Leader: c.leader, Replicas: c.replicas, ISR: c.isr}
		seen := health.Seen{}
		for _, id := range c.seen {
			seen[id] = true
		}
		got := health.Of(&p, c.minISR, seen, c.broken)
		require.Equal(t, c.want.String(), got.State.String(), name)
		require.Equal(t, c.out, got.OutOfSync, name)
		if c.want != health.Offline {
			require.Equal(t, c.want == health.UnderMinISR, got.TooFew, name)
		}
	}
}

func TestOneThatIsOfflineMayLackReplicasToo(t *testing.T) {
	t.Parallel()
	p := metadata.Partition{Leader: metadata.NoLeader, Replicas: []model.BrokerID{1, 2, 3}, ISR: []model.BrokerID{2, 3}}
	require.False(t, health.Of(&p, 2, health.Seen{1: true, 2: true, 3: true}, false).TooFew)
	require.True(t, health.Of(&p, 2, health.Seen{1: true, 2: true}, false).TooFew)
}

func TestWhatAMoveOnlyAddsIsNotMissing(t *testing.T) {
	t.Parallel()
	p := metadata.Partition{
		Leader: 1, Replicas: []model.BrokerID{1, 2, 3}, ISR: []model.BrokerID{1, 2},
		Move: &metadata.Move{From: []model.BrokerID{1, 2}, To: []model.BrokerID{2, 3}},
	}
	seen := health.Seen{1: true, 2: true, 3: true}
	require.Equal(t, health.Partition{}, health.Of(&p, 2, seen, false))
	delete(seen, 2)
	require.Equal(t, []model.BrokerID{2}, health.Of(&p, 1, seen, false).OutOfSync)
}

func TestStatesAreFoundByTheirNames(t *testing.T) {
	t.Parallel()
	for _, s := range []health.State{health.Healthy, health.UnderReplicated, health.UnderMinISR, health.Offline} {
		got, ok := health.Parse(s.String())
		require.True(t, ok)
		require.Equal(t, s, got)
	}
	_, ok := health.Parse("unhealthy")
	require.False(t, ok)
}
