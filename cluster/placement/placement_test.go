package placement

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"tidewire/cluster/metadata"
	"tidewire/internal/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world folds commands into an image.
type world struct {
	t      require.TestingT
	img    *metadata.Image
	epochs map[model.BrokerID]int64
	topics byte
}

// newWorld has brokers 1 to n online, in those racks in turn.
func newWorld(t require.TestingT, n int, racks ...string) *world {
	w := &world{t: t, img: metadata.Empty(), epochs: map[model.BrokerID]int64{}}
	w.do(metadata.BootstrapCluster{ClusterID: "c", MetadataVersion: 1})
	for i := range n {
		rack := ""
		if len(racks) > 0 {
			rack = racks[i%len(racks)]
		}
		w.join(model.BrokerID(i+1), rack)
	}
	return w
}

func (w *world) join(id model.BrokerID, rack string) {
	w.epochs[id] = w.do(metadata.RegisterBroker{ID: id, StorageID: fmt.Sprint(id), Rack: rack}).(*metadata.Broker).Epoch
	w.do(metadata.UnfenceBroker{ID: id, Epoch: w.epochs[id]})
}

func (w *world) fence(id model.BrokerID) { w.do(metadata.FenceBroker{ID: id, Epoch: w.epochs[id]}) }

func (w *world) do(c metadata.Command) any {
	next, _, res := metadata.Apply(w.img, w.img.Index()+1, c)
	require.Nil(w.t, res.Refusal)
	w.img = next
	return res.Value
}

func (w *world) topic(name string, assign ...[]model.BrokerID) *metadata.Topic {
	w.topics++
	return w.do(metadata.CreateTopic{ID: model.TopicID{w.topics}, Name: name, Assignments: assign, Internal: name[0] == '_'}).(*metadata.Topic)
}

// carryOut makes a plan's moves and has all that moves be in sync.
func (w *world) carryOut(p Plan) {
	if len(p.Moves) == 0 {
		return
	}
	for _, a := range w.do(metadata.AlterReassignments{Moves: p.Reassignments()}).([]metadata.PartitionAltered) {
		require.Nil(w.t, a.Refusal)
	}
	w.syncAll()
}

func (w *world) syncAll() {
	for t := range w.img.Topics("") {
		for i := range t.Partitions {
			p := w.img.Topic(t.Name).Partitions[i]
			if p.Leader == metadata.NoLeader {
				continue
			}
			c := metadata.PartitionChange{Topic: t.ID, Partition: model.PartitionID(i), LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch}
			for _, id := range p.Replicas {
				if !w.img.Broker(id).Fenced {
					c.ISR = append(c.ISR, metadata.InSync{ID: id, Epoch: w.epochs[id]})
				}
			}
			w.do(metadata.AlterPartitions{Broker: p.Leader, Epoch: w.epochs[p.Leader], Changes: []metadata.PartitionChange{c}})
		}
	}
}

func ids(n ...model.BrokerID) []model.BrokerID { return n }

// counts are the replicas and preferred leads of each broker.
func (w *world) counts() (replicas, leads map[model.BrokerID]int) {
	l := newLayout(w.img)
	return l.replicas, l.leads
}

func (p *Plan) copies() (n int) {
	for _, m := range p.Moves {
		for _, id := range m.To {
			if !slices.Contains(m.From, id) {
				n++
			}
		}
	}
	return n
}

func even(t require.TestingT, w *world, of map[model.BrokerID]int, brokers int, what string) {
	low, high := 1<<30, 0
	for i := range brokers {
		n := of[model.BrokerID(i+1)]
		low, high = min(low, n), max(high, n)
	}
	require.LessOrEqual(t, high-low, 1, "%s %v of %v", what, of, w.img)
}

// Whatever there is, a rebalance makes it even with no more copies than that takes, and plans
// nothing more afterwards.
func TestARebalanceMakesEvenAndCopiesNoMoreThanNeeded(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(rt, "brokers")
		w, least := newWorld(rt, n), 9
		for range rapid.IntRange(1, 4).Draw(rt, "topics") {
			rf := rapid.IntRange(1, n).Draw(rt, "rf")
			least = min(least, rf)
			var assign [][]model.BrokerID
			for range rapid.IntRange(1, 9).Draw(rt, "partitions") {
				var all []model.BrokerID
				for i := range n {
					all = append(all, model.BrokerID(i+1))
				}
				assign = append(assign, rapid.Permutation(all).Draw(rt, "order")[:rf])
			}
			w.topic(fmt.Sprint("t", w.topics), assign...)
		}
		before, _ := w.counts()
		plan := Rebalance(w.img)
		require.Equal(rt, plan, Rebalance(w.img), "it is deterministic")
		require.Equal(rt, leastCopies(before, n), plan.copies())
		for _, m := range plan.Moves {
			require.Len(rt, m.To, len(m.From))
		}
		w.carryOut(plan)
		replicas, leads := w.counts()
		even(rt, w, replicas, n, "replicas")
		if least > 1 { // a partition of one replica is led where that is
			even(rt, w, leads, n, "leads")
		}
		require.Empty(rt, Rebalance(w.img).Moves)
	})
}

// leastCopies is how many replicas must go elsewhere so that no two brokers differ by two.
func leastCopies(of map[model.BrokerID]int, brokers int) (n int) {
	var have []int
	total := 0
	for i := range brokers {
		have = append(have, of[model.BrokerID(i+1)])
		total += have[i]
	}
	slices.Sort(have)
	slices.Reverse(have)
	for i, h := range have {
		want := total / brokers
		if i < total%brokers {
			want++
		}
		n += max(h-want, 0)
	}
	return n
}

func TestARebalanceSpreadsOverRacksAndLosesNone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 4, "a", "b")
	w.topic("same", ids(1, 3), ids(3, 1), ids(2, 4))
	w.topic("apart", ids(1, 2), ids(3, 4))
	plan := Rebalance(w.img)
	require.NotEmpty(t, plan.Moves)
	w.carryOut(plan)
	for top := range w.img.Topics("") {
		for _, p := range top.Partitions {
			require.NotEqual(t, p.Replicas[0]%2, p.Replicas[1]%2, "%s %v", top.Name, p.Replicas)
		}
	}
	replicas, leads := w.counts()
	even(t, w, replicas, 4, "replicas")
	even(t, w, leads, 4, "leads")
}

func TestARebalanceGivesANewBrokerItsShareAndLeavesOthersAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3)
	var assign [][]model.BrokerID
	for i := range 12 {
		assign = append(assign, metadata.Spread(Takers(w.img), metadata.SpreadOver{Partitions: 1, Replicas: 3, Start: uint32(i)})[0])
	}
	w.topic("t", assign...)
	w.join(4, "")
	plan := Rebalance(w.img)
	require.Equal(t, 9, plan.copies())
	for _, m := range plan.Moves {
		for _, id := range m.To {
			require.True(t, id == 4 || slices.Contains(m.From, id), "only the new one gets something")
		}
	}
	// What moves already is left alone, and so is a broker that is away.
	half := plan
	half.Moves = plan.Moves[:4]
	w.do(metadata.AlterReassignments{Moves: half.Reassignments()})
	for _, m := range Rebalance(w.img).Moves {
		require.Nil(t, m.Of().Move)
	}
	w.fence(4)
	require.Empty(t, Rebalance(w.img).Moves)
	require.Empty(t, Rebalance(metadata.Empty()).Moves)
}

func TestADrainLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 4, "a", "b", "c", "a")
	w.topic("t", ids(1, 2, 3), ids(2, 3, 4), ids(3, 1, 2))
	w.topic("u", ids(1, 2))
	w.topic("v", ids(1))
	require.Empty(t, Drain(w.img, 99).Moves, "nobody drains")
	asked := Drain(w.img, 99, 1)
	w.do(metadata.SetBrokerState{ID: 1, State: metadata.BrokerDraining})
	plan := Drain(w.img, 99)
	require.Equal(t, asked.Reassignments(), plan.Reassignments(), "what is shown is what is done")
	require.Empty(t, plan.Stuck)
	require.Equal(t, []model.BrokerID{4, 2, 3}, plan.Moves[0].To, "in its place, in its rack")
	first := Drain(w.img, 1)
	require.Len(t, first.Moves, 1)
	for steps := 0; ; steps++ {
		plan := Drain(w.img, 1)
		if len(plan.Moves) == 0 {
			break
		}
		require.Less(t, steps, 10)
		w.carryOut(plan)
	}
	replicas, _ := w.counts()
	require.Zero(t, replicas[1])
	require.Equal(t, metadata.BrokerDraining, w.img.Broker(1).State)
}

func TestADrainOverridesAMoveToTheDraining(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 4)
	top := w.topic("t", ids(1, 2))
	w.do(metadata.AlterReassignments{Moves: []metadata.Reassignment{{Topic: top.ID, Replicas: ids(3, 2)}}})
	w.do(metadata.SetBrokerState{ID: 3, State: metadata.BrokerDraining})
	w.carryOut(Drain(w.img, 9))
	require.NotContains(t, w.img.Topic("t").Partitions[0].Replicas, model.BrokerID(3))
	require.Len(t, w.img.Topic("t").Partitions[0].Replicas, 2)
}

func TestADrainWithNowhereToGoSaysSoAndDoesTheRest(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3)
	w.topic("wide", ids(1, 2, 3))
	w.topic("x", ids(1, 2))
	plan := Drain(w.img, 1, 1)
	require.Len(t, plan.Stuck, 1)
	require.Equal(t, "wide", plan.Stuck[0].Topic.Name)
	require.Len(t, plan.Moves, 1, "what is stuck takes no room")
	require.Equal(t, ids(3, 2), plan.Moves[0].To)
}

func TestInternalTopicsGrowWithTheCluster(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.topic("__audit", ids(1), ids(1))
	w.topic("users", ids(1))
	require.Empty(t, Grow(w.img, 9).Moves)
	w.join(2, "")
	w.carryOut(Grow(w.img, 9))
	require.Equal(t, ids(1, 2), w.img.Topic("__audit").Partitions[1].Replicas)
	w.join(3, "")
	w.join(4, "")
	require.Len(t, Grow(w.img, 1).Moves, 1)
	w.carryOut(Grow(w.img, 9))
	for _, p := range w.img.Topic("__audit").Partitions {
		require.Len(t, p.Replicas, 3)
		require.Equal(t, ids(1, 2), p.Replicas[:2], "it adds, and takes nothing away")
	}
	require.Len(t, w.img.Topic("users").Partitions[0].Replicas, 1)
	w.fence(3)
	w.fence(4)
	require.Empty(t, Grow(w.img, 9).Moves)
}

// A node of three is drained though internal topics have a replica on each: they have two
// meanwhile, and three again afterwards.
func TestInternalTopicsShrinkForADrain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3)
	w.topic("__audit", ids(1, 2, 3), ids(3, 1, 2))
	w.do(metadata.SetBrokerState{ID: 1, State: metadata.BrokerDraining})
	plan := Drain(w.img, 9)
	require.Empty(t, plan.Stuck)
	w.carryOut(plan)
	require.Equal(t, ids(2, 3), w.img.Topic("__audit").Partitions[0].Replicas)
	require.Equal(t, ids(3, 2), w.img.Topic("__audit").Partitions[1].Replicas)
	require.Empty(t, Grow(w.img, 9).Moves, "not while it drains")
	w.do(metadata.SetBrokerState{ID: 1, State: metadata.BrokerActive})
	w.carryOut(Grow(w.img, 9))
	require.Equal(t, ids(2, 3, 1), w.img.Topic("__audit").Partitions[0].Replicas)
	// The last replica stays where it is.
	alone := newWorld(t, 1)
	alone.topic("__audit", ids(1))
	require.Len(t, Drain(alone.img, 9, 1).Stuck, 1)
}

func TestLeadsGoBackToWhoIsSteadyAndInSync(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3)
	w.topic("t", ids(1, 2, 3), ids(1, 3, 2), ids(2, 1, 3))
	steady := func(model.BrokerID) bool { return true }
	require.Empty(t, Preferred(w.img, steady, 9))
	w.fence(1)
	require.Empty(t, Preferred(w.img, steady, 9), "it is away")
	w.do(metadata.UnfenceBroker{ID: 1, Epoch: w.epochs[1]})
	require.Empty(t, Preferred(w.img, steady, 9), "it is not in sync")
	w.syncAll()
	require.Empty(t, Preferred(w.img, func(model.BrokerID) bool { return false }, 9))
	require.Len(t, Preferred(w.img, steady, 1), 1)
	back := Preferred(w.img, steady, 9)
	require.Len(t, back, 2)
	w.do(metadata.ElectLeaders{Type: metadata.ElectPreferred, Partitions: back})
	require.Equal(t, model.BrokerID(1), w.img.Topic("t").Partitions[0].Leader)
	require.Empty(t, Preferred(w.img, steady, 9))
	w.fence(1)
	w.do(metadata.UnfenceBroker{ID: 1, Epoch: w.epochs[1]})
	w.syncAll()
	w.do(metadata.SetBrokerState{ID: 1, State: metadata.BrokerDraining})
	require.Empty(t, Preferred(w.img, steady, 9), "what is drained gets no leads")
}

func TestWhatCanStopIsWhatNobodyMisses(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3)
	voters := ids(1, 2, 3)
	w.topic("t", ids(1, 2, 3))
	require.Empty(t, CanStop(w.img, 1, voters))
	w.fence(3)
	require.Equal(t, []string{
		`partition 0 of "t" would take no acks=all writes: fewer than min.insync.replicas would be in sync`,
		"the metadata quorum would lose its majority: 1 of 3 voters would be online",
	}, CanStop(w.img, 1, voters))
	require.Empty(t, CanStop(w.img, 3, voters), "it is stopped")
	require.Empty(t, CanStop(w.img, 9, voters))
	w.topic("alone", ids(2), ids(2))
	require.Equal(t, []string{
		`partition 0 of "alone" and 1 others would have no leader: no other replica is in sync`,
		`partition 0 of "t" would take no acks=all writes: fewer than min.insync.replicas would be in sync`,
	}, CanStop(w.img, 2, ids(1)))
}
