package metadata

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tidewire/internal/model"
)

// fiveLive is threeLive with two more brokers, 4 and 5, whose epochs are 8 and 10.
func fiveLive(t testing.TB, minISR string, replicas ...model.BrokerID) *Image {
	t.Helper()
	cmds := append(founding()[:5], UnfenceBroker{ID: 2, Epoch: 4}, UnfenceBroker{ID: 3, Epoch: 5},
		RegisterBroker{ID: 4, StorageID: "four", Incarnation: 41, Now: t0}, UnfenceBroker{ID: 4, Epoch: 8},
		RegisterBroker{ID: 5, StorageID: "five", Incarnation: 51, Now: t0}, UnfenceBroker{ID: 5, Epoch: 10},
	)
	config := map[string]string{}
	if minISR != "" {
		config["min.insync.replicas"] = minISR
	}
	return image(t, append(cmds, CreateTopic{ID: topicID(7), Name: "t", Assignments: [][]model.BrokerID{replicas}, Config: config, Now: t0})...)
}

// epochs of the brokers of fiveLive.
var liveEpochs = map[model.BrokerID]int64{1: 2, 2: 4, 3: 5, 4: 8, 5: 10}

func one7(m *Image) Partition { return m.Topic("t").Partitions[0] }

func moveTo(to ...model.BrokerID) AlterReassignments {
	return AlterReassignments{Moves: []Reassignment{{Topic: topicID(7), Replicas: to}}, Now: t0}
}

// does applies a command that is about one partition.
func does(t testing.TB, m *Image, c Command) (*Image, PartitionAltered) {
	t.Helper()
	next, _, res := Apply(m, m.Index()+1, c)
	require.Nil(t, res.Refusal)
	return next, res.Value.([]PartitionAltered)[0]
}

// inSync has the leader propose an ISR.
func inSync(p Partition, ids ...model.BrokerID) AlterPartitions {
	c := PartitionChange{Topic: topicID(7), LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch}
	for _, id := range ids {
		c.ISR = append(c.ISR, InSync{id, liveEpochs[id]})
	}
	return AlterPartitions{Broker: p.Leader, Epoch: liveEpochs[p.Leader], Changes: []PartitionChange{c}}
}

func TestAMoveEndsWhenItsTargetIsInSync(t *testing.T) {
	t.Parallel()
	img := fiveLive(t, "2", 1, 2, 3)
	before := one7(img)
	img, a := does(t, img, moveTo(4, 2, 5))
	require.Nil(t, a.Refusal)
	require.Equal(t, brokerIDs(4, 2, 5, 1, 3), a.Partition.Replicas)
	require.Equal(t, &Move{From: brokerIDs(1, 2, 3), To: brokerIDs(4, 2, 5), Since: t0}, a.Partition.Move)
	require.Equal(t, brokerIDs(4, 5), a.Partition.Adding())
	require.Equal(t, brokerIDs(1, 3), a.Partition.Removing())
	require.Equal(t, before.PartitionEpoch+1, a.Partition.PartitionEpoch)
	require.Equal(t, before.LeaderEpoch, a.Partition.LeaderEpoch, "nobody has left")
	require.Equal(t, brokerIDs(2, 1, 3), a.Partition.ISR, "in the order of the replicas")

	img, a = does(t, img, inSync(a.Partition, 1, 2, 3, 4))
	require.NotNil(t, a.Partition.Move, "5 is missing")
	_, short := does(t, img, inSync(a.Partition, 1, 4, 5))
	require.NotNil(t, short.Partition.Move, "2 stays, and is missing")
	img, a = does(t, img, inSync(a.Partition, 1, 2, 3, 4, 5))
	require.Nil(t, a.Refusal)
	require.Equal(t, Partition{
		Leader: 4, LeaderEpoch: before.LeaderEpoch + 1, PartitionEpoch: before.PartitionEpoch + 3,
		Replicas: brokerIDs(4, 2, 5), ISR: brokerIDs(4, 2, 5), ELR: brokerIDs(),
	}, a.Partition, "the leader was removed: the first of the target leads")
	require.Equal(t, a.Partition, one7(img))
}

func TestALeaderThatStaysLeadsOnInANewEpoch(t *testing.T) {
	t.Parallel()
	img := fiveLive(t, "2", 1, 2, 3)
	img, a := does(t, img, moveTo(2, 1, 4))
	_, a = does(t, img, inSync(a.Partition, 1, 2, 3, 4))
	require.Nil(t, a.Partition.Move)
	require.Equal(t, model.BrokerID(1), a.Partition.Leader)
	require.Equal(t, int32(1), int32(a.Partition.LeaderEpoch), "what 3 has said of its log counts no more")
}

func TestATargetThatIsInSyncIsThereAtOnce(t *testing.T) {
	t.Parallel()
	img := fiveLive(t, "1", 1, 2, 3)
	_, a := does(t, img, moveTo(3, 2))
	require.Equal(t, brokerIDs(3, 2), a.Partition.Replicas)
	require.Nil(t, a.Partition.Move)
	require.Equal(t, model.BrokerID(3), a.Partition.Leader)
	_, a = does(t, img, moveTo(2, 3, 1))
	require.Equal(t, brokerIDs(2, 3, 1), a.Partition.Replicas, "only another order")
	require.Equal(t, model.BrokerID(1), a.Partition.Leader)
	require.Equal(t, one7(img).LeaderEpoch, a.Partition.LeaderEpoch)
	same, a := does(t, img, moveTo(1, 2, 3))
	require.Equal(t, one7(img), a.Partition, "nothing changes")
	require.Equal(t, one7(img), one7(same))
}

func TestACancelledMoveHasItsOldReplicas(t *testing.T) {
	t.Parallel()
	img := fiveLive(t, "2", 1, 2, 3)
	before := one7(img)
	cancel := CancelReassignments{Partitions: []PartitionRef{{Topic: topicID(7)}}}
	_, a := does(t, img, cancel)
	require.Equal(t, model.NotFound, a.Refusal.Code)
	img, a = does(t, img, moveTo(4, 5, 3))
	img, _ = does(t, img, inSync(a.Partition, 1, 2, 3, 4))
	_, a = does(t, img, cancel)
	require.Nil(t, a.Refusal)
	require.Equal(t, before.Replicas, a.Partition.Replicas, "in their old order")
	require.Equal(t, before.ISR, a.Partition.ISR)
	require.Nil(t, a.Partition.Move)
	require.Equal(t, before.LeaderEpoch+1, a.Partition.LeaderEpoch)
	// A leader that was added gives its lead back.
	led := fold(t, img, img.Index()+1, []Command{FenceBroker{ID: 1, Epoch: 2}, FenceBroker{ID: 2, Epoch: 4}}, 1)
	require.Equal(t, model.BrokerID(4), one7(led).Leader)
	_, a = does(t, led, cancel)
	require.Nil(t, a.Refusal)
	require.Equal(t, model.BrokerID(3), a.Partition.Leader)
	require.Equal(t, brokerIDs(3), a.Partition.ISR)
	// Where only what was added is in sync, all would be lost.
	alone := fold(t, led, led.Index()+1, []Command{FenceBroker{ID: 3, Epoch: 5}}, 1)
	require.Equal(t, brokerIDs(4), one7(alone).ISR)
	_, a = does(t, alone, cancel)
	require.Equal(t, model.Conflict, a.Refusal.Code)
	require.Equal(t, one7(alone), a.Partition)
}

func TestAMoveIsReplacedByAnother(t *testing.T) {
	t.Parallel()
	img := fiveLive(t, "1", 1, 2)
	img, a := does(t, img, moveTo(4, 3))
	img, _ = does(t, img, inSync(a.Partition, 1, 2, 4))
	img, a = does(t, img, moveTo(3, 5))
	require.Nil(t, a.Refusal)
	require.Equal(t, brokerIDs(3, 5, 1, 2), a.Partition.Replicas, "4 has left at once")
	require.Equal(t, brokerIDs(1, 2), a.Partition.Move.From)
	require.Equal(t, brokerIDs(1, 2), a.Partition.ISR)
	require.Equal(t, int32(1), int32(a.Partition.LeaderEpoch))
	_, a = does(t, img, moveTo(1, 2))
	require.Nil(t, a.Partition.Move, "back to where it was")
	require.Equal(t, brokerIDs(1, 2), a.Partition.Replicas)
}

func TestMovesAreRefusedWithTheirReason(t *testing.T) {
	t.Parallel()
	img := fiveLive(t, "2", 1, 2, 3)
	img = fold(t, img, img.Index()+1, []Command{
		FenceBroker{ID: 5, Epoch: 10}, FenceBroker{ID: 3, Epoch: 5}, SetBrokerState{ID: 4, State: BrokerDraining, Now: t0},
	}, 1)
	stale := moveTo(1, 2, 3)
	stale.Moves[0].IfEpoch = new(int32(0))
	other := moveTo(1)
	other.Moves[0].Partition = 1
	for name, c := range map[string]struct {
		cmd  AlterReassignments
		want model.Code
	}{
		"nobody": {moveTo(), model.InvalidArgument}, "twice": {moveTo(1, 1), model.InvalidArgument}, "unknown": {moveTo(1, 9), model.InvalidArgument},
		"below min ISR": {moveTo(1), model.InvalidArgument}, "fenced": {moveTo(1, 5), model.Conflict}, "draining": {moveTo(1, 4), model.Conflict},
		"another epoch": {stale, model.Conflict}, "no such partition": {other, model.UnknownPartition},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			next, a := does(t, img, c.cmd)
			require.NotNil(t, a.Refusal)
			require.Equal(t, c.want, a.Refusal.Code)
			require.Equal(t, one7(img), one7(next))
		})
	}
	_, a := does(t, img, moveTo(2, 3))
	require.Nil(t, a.Refusal, "who has a replica already may be fenced")
	for _, c := range []Command{AlterReassignments{}, CancelReassignments{}, ElectLeaders{Type: ElectPreferred}, ElectLeaders{Type: "x", Partitions: []PartitionRef{{}}}, AlterReassignments{Throttle: new(int64(-1))}} {
		_, _, res := Apply(img, 99, c)
		require.NotNil(t, res.Refusal, "%+v", c)
		require.Equal(t, model.InvalidArgument, res.Refusal.Code)
	}
}

func TestMinISRFollowsWhatEveryPartitionHas(t *testing.T) {
	t.Parallel()
	img := fiveLive(t, "", 1)
	img = fold(t, img, img.Index()+1, []Command{CreatePartitions{Name: "t", From: 1, Assignments: one(1)}}, 1)
	require.Equal(t, int64(1), img.Topic("t").Config.MinInsyncReplicas)
	grow := moveTo(1, 2, 3)
	grow.Moves = append(grow.Moves, Reassignment{Topic: topicID(7), Partition: 1, Replicas: brokerIDs(1, 2, 3)})
	img = fold(t, img, img.Index()+1, []Command{grow}, 1)
	require.Equal(t, 1, img.Topic("t").ReplicationFactor())
	img, _ = does(t, img, inSync(one7(img), 1, 2, 3))
	require.Equal(t, int64(1), img.Topic("t").Config.MinInsyncReplicas, "the other one could not be written to")
	last := inSync(img.Topic("t").Partitions[1], 1, 2, 3)
	last.Changes[0].Partition = 1
	img, _ = does(t, img, last)
	require.Equal(t, 3, img.Topic("t").ReplicationFactor())
	require.Equal(t, int64(2), img.Topic("t").Config.MinInsyncReplicas)
	img = fold(t, img, img.Index()+1, []Command{FenceBroker{ID: 1, Epoch: 2}, FenceBroker{ID: 2, Epoch: 4}}, 1)
	require.Equal(t, brokerIDs(2), one7(img).ELR)
	img, a := does(t, img, moveTo(3))
	require.Nil(t, a.Refusal)
	require.Equal(t, int64(1), img.Topic("t").Config.MinInsyncReplicas)
	require.Empty(t, img.Topic("t").Partitions[1].ELR, "one is enough from here on")
	again, err := Decode(Encode(img))
	require.NoError(t, err)
	require.Equal(t, img.Topic("t"), again.Topic("t"))
}

func TestTheThrottleIsASettingOfTheCluster(t *testing.T) {
	t.Parallel()
	img := fiveLive(t, "1", 1)
	img, _, res := Apply(img, img.Index()+1, AlterReassignments{Throttle: new(int64(5000))})
	require.Nil(t, res.Refusal)
	require.Equal(t, int64(5000), img.Cluster().Settings().MoveBytesPerSecond)
	slower := moveTo(2)
	slower.Throttle = new(int64(10))
	img, _ = does(t, img, slower)
	require.Equal(t, int64(10), img.Cluster().Settings().MoveBytesPerSecond)
	img, d, _ := Apply(img, img.Index()+1, AlterReassignments{Throttle: new(int64(0))})
	require.True(t, d.ClusterConfig)
	require.NotContains(t, img.Cluster().Config, MoveThrottleKey)
}

func TestLeadersAreElectedByHand(t *testing.T) {
	t.Parallel()
	elect := func(how ElectionType) ElectLeaders {
		return ElectLeaders{Type: how, Partitions: []PartitionRef{{Topic: topicID(7)}}}
	}
	img := fiveLive(t, "1", 1, 2, 3)
	for _, how := range []ElectionType{ElectPreferred, ElectUnclean} {
		_, a := does(t, img, elect(how))
		require.Equal(t, model.Conflict, a.Refusal.Code, "it is not needed")
	}
	moved := fold(t, img, img.Index()+1, []Command{FenceBroker{ID: 1, Epoch: 2}}, 1)
	_, a := does(t, moved, elect(ElectPreferred))
	require.Equal(t, model.Conflict, a.Refusal.Code, "the preferred leader is away")
	moved = fold(t, moved, moved.Index()+1, []Command{UnfenceBroker{ID: 1, Epoch: 2}}, 1)
	_, a = does(t, moved, elect(ElectPreferred))
	require.Equal(t, model.Conflict, a.Refusal.Code, "and not in sync")
	moved, a = does(t, moved, inSync(one7(moved), 1, 2, 3))
	epoch := a.Partition.LeaderEpoch
	_, a = does(t, moved, elect(ElectPreferred))
	require.Nil(t, a.Refusal)
	require.Equal(t, model.BrokerID(1), a.Partition.Leader)
	require.Equal(t, epoch+1, a.Partition.LeaderEpoch)
	require.Equal(t, brokerIDs(1, 2, 3), a.Partition.ISR)

	lost := fold(t, img, img.Index()+1, []Command{FenceBroker{ID: 3, Epoch: 5}, FenceBroker{ID: 2, Epoch: 4}, FenceBroker{ID: 1, Epoch: 2}}, 1)
	_, a = does(t, lost, elect(ElectUnclean))
	require.Equal(t, model.Conflict, a.Refusal.Code, "nobody is there")
	lost = fold(t, lost, lost.Index()+1, []Command{UnfenceBroker{ID: 3, Epoch: 5}}, 1)
	require.Equal(t, NoLeader, one7(lost).Leader)
	_, a = does(t, lost, elect(ElectUnclean))
	require.Equal(t, model.BrokerID(3), a.Partition.Leader)
	require.Equal(t, brokerIDs(3), a.Partition.ISR)
}

func TestABrokerIsForgottenOnlyWhenItHoldsNothingAndIsGone(t *testing.T) {
	t.Parallel()
	img := fiveLive(t, "1", 1, 2)
	code := func(m *Image, c Command) model.Code {
		_, _, res := Apply(m, m.Index()+1, c)
		if res.Refusal == nil {
			return ""
		}
		return res.Refusal.Code
	}
	require.Equal(t, model.UnknownBroker, code(img, UnregisterBroker{ID: 9}))
	require.Equal(t, model.UnknownBroker, code(img, SetBrokerState{ID: 9, State: BrokerActive}))
	require.Equal(t, model.InvalidArgument, code(img, SetBrokerState{ID: 1, State: "odd"}))
	require.Equal(t, model.ETagMismatch, code(img, SetBrokerState{ID: 1, State: BrokerDraining, IfMatch: "z"}))
	require.Equal(t, model.Conflict, code(img, UnregisterBroker{ID: 3}), "it is alive")
	img = fold(t, img, img.Index()+1, []Command{
		SetBrokerState{ID: 1, State: BrokerDraining, Principal: "root", Now: t0}, RegisterBroker{ID: 1, StorageID: "storage-b", Incarnation: 12, Now: t0},
	}, 1)
	require.Equal(t, BrokerDraining, img.Broker(1).State, "a restart ends no drain")
	require.Equal(t, &Drain{Since: t0, Replicas: 2 - 1, Principal: "root"}, img.Broker(1).Drain)
	require.True(t, img.Broker(1).Fenced)
	require.Equal(t, model.Conflict, code(img, UnregisterBroker{ID: 1}), "it has replicas")
	img, _ = does(t, img, moveTo(2))
	require.Equal(t, brokerIDs(2), one7(img).Replicas)
	require.Equal(t, model.ETagMismatch, code(img, UnregisterBroker{ID: 1, IfMatch: "z"}))
	next, d, res := Apply(img, img.Index()+1, UnregisterBroker{ID: 1})
	require.Nil(t, res.Refusal)
	require.Nil(t, next.Broker(1))
	require.Equal(t, Deleted, d.Brokers[1])
	back := fold(t, img, img.Index()+1, []Command{SetBrokerState{ID: 1, State: BrokerActive}}, 1)
	require.Nil(t, back.Broker(1).Drain)
}

// Whatever moves, fails and comes back: somebody is in sync, leaders are in sync, epochs rise,
// and every partition is where its move says.
func TestPartitionsStayWholeWhateverMoves(t *testing.T) {
	t.Parallel()
	ends := 0
	rapid.Check(t, func(rt *rapid.T) {
		img := fiveLive(t, "", 1, 2, 3)
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			before := one7(img)
			c := anyMove(rt, img)
			next, _, _ := Apply(img, img.Index()+1, c)
			p := one7(next)
			at := fmt.Sprintf("%+v: %+v", c, p)
			require.NotEmpty(rt, p.ISR, at)
			require.Empty(rt, missing(p.ISR, p.Replicas), at)
			require.Empty(rt, missing(p.ELR, p.Replicas), at)
			if p.Leader != NoLeader {
				require.Contains(rt, p.ISR, p.Leader, at)
				require.False(rt, next.Broker(p.Leader).Fenced, at)
			}
			if p.Move != nil {
				require.Equal(rt, p.Replicas, append(slices.Clone(p.Move.To), missing(p.Move.From, p.Move.To)...), at)
				require.NotEmpty(rt, missing(p.Move.To, p.ISR), at)
			} else if before.Move != nil {
				ends++
			}
			if p.Leader != before.Leader || len(missing(before.Replicas, p.Replicas)) > 0 {
				require.Greater(rt, p.LeaderEpoch, before.LeaderEpoch, at)
			}
			if fmt.Sprintf("%+v", p) != fmt.Sprintf("%+v", before) {
				require.Greater(rt, p.PartitionEpoch, before.PartitionEpoch, at)
			}
			require.LessOrEqual(rt, next.Topic("t").Config.MinInsyncReplicas, int64(len(p.Target())), at)
			img = next
		}
	})
	require.NotZero(t, ends)
}

func anyMove(rt *rapid.T, img *Image) Command {
	p := one7(img)
	id := model.BrokerID(rapid.IntRange(1, 5).Draw(rt, "broker"))
	some := func(from []model.BrokerID) []model.BrokerID {
		all := rapid.Permutation(from).Draw(rt, "order")
		return all[:rapid.IntRange(1, len(all)).Draw(rt, "many")]
	}
	ref := []PartitionRef{{Topic: topicID(7)}}
	switch rapid.IntRange(0, 7).Draw(rt, "what") {
	case 0, 1:
		return moveTo(some(brokerIDs(1, 2, 3, 4, 5))...)
	case 2:
		return CancelReassignments{Partitions: ref}
	case 3:
		return FenceBroker{ID: id, Epoch: liveEpochs[id]}
	case 4:
		return UnfenceBroker{ID: id, Epoch: liveEpochs[id]}
	case 5:
		return ElectLeaders{Type: rapid.SampledFrom([]ElectionType{ElectPreferred, ElectUnclean}).Draw(rt, "type"), Partitions: ref}
	}
	isr := p.Replicas // all, or some
	if rapid.Bool().Draw(rt, "some") {
		isr = some(p.Replicas)
	}
	if p.Leader == NoLeader {
		return FenceBroker{ID: 9}
	}
	return inSync(p, isr...)
}
