package coordinator

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tidewire/auth"
	"tidewire/broker"
	"tidewire/broker/group"
	"tidewire/broker/group/offsetslog"
	"tidewire/cluster/metadata"
	"tidewire/internal/fsx"
	"tidewire/internal/model"
)

// snapshot is all that is durable of a group.
func (n *node) snapshot(groupID string) []group.Record {
	n.t.Helper()
	var out []group.Record
	err := n.run(n.t.Context(), groupID, false, func(g *group.Group, _ group.Env) (group.Effects, error) {
		out = g.Snapshot()
		return group.Effects{}, nil
	})
	if model.HasCode(err, model.UnknownGroup) {
		return nil
	}
	require.NoError(n.t, err)
	return out
}

func (m *member) commit(p int, next model.Offset) error {
	_, err := m.n.Commit(m.n.t.Context(), m.group, group.CommitRequest{Member: m.id, Offsets: []group.CommitOffset{
		{Name: group.Name{Topic: "t", Partition: model.PartitionID(p)}, Next: next, Epoch: model.NoEpoch},
	}})
	return err
}

// A power cut in the middle of commits leaves the offsets where the last answered one put them,
// or a later one that was under way; members go on without joining again.
func TestAKilledNodeForgetsNothingThatWasAnswered(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				n := newNode(t)
				n.topic("t", 4)
				one, two := n.join(joining("g", "t")), n.join(joining("g", "t"))
				settle(t, one, two)
				owners := map[int]*member{}
				for _, m := range []*member{one, two} {
					for _, h := range m.poll(0).Assignment.Held {
						owners[int(h.Index)] = m
					}
				}
				require.Len(t, owners, 4)
				var answered, sent [4]atomic.Int64
				var wg sync.WaitGroup
				stop := make(chan struct{})
				for p, m := range owners {
					wg.Add(1)
					go func() {
						defer wg.Done()
						for next := int64(1); ; next++ {
							select {
							case <-stop:
								return
							default:
							}
							sent[p].Store(next)
							if m.commit(p, model.Offset(next)) != nil {
								return
							}
							answered[p].Store(next)
							pass(time.Duration(rand.IntN(300)) * time.Microsecond)
						}
					}()
				}
				pass(time.Duration(5+seed) * time.Millisecond)
				var before [4]int64
				for p := range before {
					before[p] = answered[p].Load()
				}
				next := n.kill(seed)
				close(stop)
				wg.Wait()
				for p := range 4 {
					got := int64(next.committed("g", "t", model.PartitionID(p)))
					require.GreaterOrEqual(t, got, before[p], "partition %d", p)
					require.LessOrEqual(t, got, sent[p].Load())
				}
				for _, m := range []*member{one, two} {
					m.n = next
					require.Len(t, m.poll(0).Assignment.Held, 2, "without joining again")
				}
			})
		})
	}
}

// What is served is what a reload of the log gives, after a random course of events.
func TestLiveStateIsWhatTheLogGives(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 1))
				n := newNode(t)
				n.topic("t", 6)
				groups := []string{"a", "b", "a/b ü"}
				var members []*member
				for range 120 {
					switch k := rng.IntN(12); {
					case k < 2 || len(members) == 0:
						req := joining(groups[rng.IntN(len(groups))], "t")
						req.AutoCommit = rng.IntN(2) == 0
						members = append(members, n.join(req))
					case k == 2:
						i := rng.IntN(len(members))
						_ = n.Leave(t.Context(), members[i].group, members[i].id, members[i].cursor)
						members = append(members[:i], members[i+1:]...)
					case k == 3:
						n.produce("t", rng.IntN(6), "v")
					case k == 4:
						pass(time.Duration(rng.IntN(4000)) * time.Millisecond)
					case k == 5:
						_ = members[rng.IntN(len(members))].commit(rng.IntN(6), model.Offset(rng.IntN(10)))
					default:
						m := members[rng.IntN(len(members))]
						if g, err := m.try(t.Context(), m.request(time.Duration(rng.IntN(200))*time.Millisecond)); err == nil {
							m.cursor = g.Cursor
						}
					}
				}
				for _, id := range groups {
					live := n.snapshot(id)
					s, err := n.shardOf(t.Context(), id, false)
					require.NoError(t, err)
					fold, err := s.fold(t.Context(), func(name string) bool { return name == id })
					require.NoError(t, err)
					var loaded []group.Record
					if f := fold[id]; f != nil {
						loaded = f.core.Snapshot()
					}
					require.Equal(t, live, loaded, "group %q", id)
				}
			})
		})
	}
}

// Groups of a topic that was compacted are what they were.
func TestACompactedTopicLoadsTheSame(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNode(t)
		n.topic("t", 3)
		m := n.join(joining("g", "t"))
		settle(t, m)
		_, err := n.broker.AlterTopicConfig(t.Context(), caller, broker.ConfigChange{Topic: auth.OffsetsTopic, Set: map[string]string{
			"segment.bytes": "65536", "min.cleanable.dirty.ratio": "0.1", "delete.retention.ms": "1000", "file.delete.delay.ms": "0",
		}})
		require.NoError(t, err)
		for i := range 2000 {
			require.NoError(t, m.commit(i%3, model.Offset(i)))
		}
		gone := n.join(joining("g", "t"))
		require.NoError(t, n.Leave(t.Context(), "g", gone.id, ""))
		for i := range 2000 {
			require.NoError(t, m.commit(i%3, model.Offset(2000+i)))
			if i%500 == 0 {
				require.NoError(t, n.Heartbeat(t.Context(), "g", m.id))
			}
		}
		size := n.sizeOf("g")
		for range 20 {
			pass(5 * time.Second)
			require.NoError(t, n.Heartbeat(t.Context(), "g", m.id))
		}
		require.Less(t, n.sizeOf("g"), size/2, "it was compacted")
		live := n.snapshot("g")
		next := n.kill(1)
		require.Equal(t, live, next.snapshot("g"))
		require.Equal(t, model.Offset(3998), next.committed("g", "t", 0))
		m.n = next
		require.Len(t, m.poll(0).Assignment.Held, 3)
	})
}

// sizeOf is the bytes of the partition that has a group.
func (n *node) sizeOf(groupID string) int64 {
	s, err := n.broker.DescribeTopic(n.t.Context(), caller, auth.OffsetsTopic)
	require.NoError(n.t, err)
	return s.Partitions[offsetslog.PartitionOf(groupID, len(s.Partitions))].SizeBytes
}

// A change that cannot be written is not made, the caller is told so, and the group goes on
// once there is room.
func TestACommitThatCannotBeWrittenIsNotMade(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNode(t)
		n.topic("t", 1)
		m := n.join(joining("g", "t"))
		settle(t, m)
		require.NoError(t, m.commit(0, 5))
		n.faults.SetHook(fsx.FailIf(func(op fsx.Op) bool {
			return op.Kind == fsx.OpWrite && strings.Contains(op.Path, auth.OffsetsTopic) && strings.HasSuffix(op.Path, ".log")
		}, syscall.ENOSPC))
		err := m.commit(0, 6)
		require.Equal(t, model.NotApplied, code(t, model.StorageFull, err).EffectiveOutcome())
		require.Equal(t, model.Offset(5), n.committed("g", "t", 0))
		n.faults.SetHook(nil)
		require.NoError(t, m.commit(0, 7))
		require.Equal(t, model.Offset(7), n.committed("g", "t", 0))
		require.Equal(t, "t/0", heldOf(m.poll(0).Assignment), "the member goes on")
		require.EqualValues(t, 1, n.metrics.reloads.Load())
	})
}

// After a sync that failed nobody knows what is on the disk: the caller is told that, and
// nothing is served that is not known to be.
func TestACommitWhoseSyncFailsIsUnknown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNode(t)
		n.topic("t", 1)
		m := n.join(joining("g", "t"))
		settle(t, m)
		require.NoError(t, m.commit(0, 5))
		n.faults.SetHook(fsx.FailIf(func(op fsx.Op) bool {
			return op.Kind == fsx.OpSync && strings.Contains(op.Path, auth.OffsetsTopic)
		}, syscall.EIO))
		err := m.commit(0, 6)
		require.Equal(t, model.Unknown, code(t, model.StorageError, err).EffectiveOutcome())
		n.faults.SetHook(nil)
		pass(time.Second)
		err = m.commit(0, 7)
		require.Equal(t, model.NotApplied, code(t, model.StorageError, err).EffectiveOutcome(), "the log is latched")
		require.True(t, n.Loaded(), "a damaged partition does not unready a node")
		n.once.Do(func() { _ = n.end() })
		next := startNode(t, n.quorum, n.fs.Crash(3))
		require.Contains(t, []model.Offset{5, 6}, next.committed("g", "t", 0))
		m.n = next
		require.NoError(t, m.commit(0, 8))
	})
}

// A new leadership of the same node reads its groups anew, and commits of the former one fail
// or hold.
func TestANewLeadershipReadsItsGroupsAnew(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNode(t)
		n.topic("t", 1)
		m := n.join(joining("g", "t"))
		settle(t, m)
		require.NoError(t, m.commit(0, 5))
		before, err := n.shardOf(t.Context(), "g", false)
		require.NoError(t, err)
		p := m.background(m.request(time.Minute))
		n.quorum.register(t)
		pass(time.Second)
		after, err := n.shardOf(t.Context(), "g", false)
		require.NoError(t, err)
		require.Greater(t, after.epoch, before.epoch)
		require.NotSame(t, before, after)
		require.True(t, p.waiting(), "a poll goes on with the new one")
		require.NoError(t, m.commit(0, 6))
		require.Equal(t, model.Offset(6), n.committed("g", "t", 0))
		n.produce("t", 0, "x")
		require.False(t, p.waiting())
		require.NoError(t, p.err)
		require.Equal(t, []string{"t/0/0=x"}, p.records)
	})
}

func TestACoordinatorThatIsElsewhereIsSaidToBe(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNode(t)
		n.topic("t", 1)
		m := n.join(joining("g", "t"))
		settle(t, m)
		p := m.background(m.request(time.Minute))
		n.Coordinator.nodeID = 2 // as if the metadata had another node lead
		n.follow()
		require.False(t, p.waiting())
		code(t, model.LeaderUnavailable, p.err)
		err := m.commit(0, 1)
		require.Equal(t, model.NotApplied, code(t, model.LeaderUnavailable, err).EffectiveOutcome())
		n.Coordinator.nodeID = 1
		n.follow()
		require.NoError(t, m.commit(0, 1))
	})
}

func TestCommitsOfMembersThatAreNoMoreChangeNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNode(t)
		n.topic("t", 1)
		n.produce("t", 0, "0", "1", "2", "3", "4", "5")
		req := joining("g", "t")
		req.InstanceID = "i"
		m := n.join(req)
		settle(t, m)
		require.NoError(t, m.commit(0, 5))
		_, err := n.Join(t.Context(), req)
		code(t, model.Conflict, err)
		req.TakeOver = true
		heir := n.join(req)
		code(t, model.Fenced, m.commit(0, 6))
		_, err = n.CommitCursor(t.Context(), "g", m.id, m.cursor)
		code(t, model.Fenced, err)
		require.Equal(t, "t/0", heldOf(heir.poll(0).Assignment), "taken over without a rebalance")
		pass(11 * time.Second)
		code(t, model.MemberExpired, heir.commit(0, 7))
		code(t, model.UnknownMember, (&member{n: n, group: "g", id: "m-nobody"}).commit(0, 8))
		code(t, model.UnknownMember, (&member{n: n, group: "nothing", id: heir.id}).commit(0, 8))
		require.Equal(t, model.Offset(5), n.committed("g", "t", 0))
		next := n.kill(1)
		heir.n = next
		code(t, model.MemberExpired, heir.commit(0, 9))
		require.Equal(t, model.Offset(5), next.committed("g", "t", 0))
	})
}

// The wall clock may jump: sessions go by another.
func TestAClockThatJumpsEndsNoSession(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNode(t)
		n.topic("t", 1)
		m := n.join(joining("g", "t"))
		settle(t, m)
		require.NoError(t, m.commit(0, 5))
		for _, skew := range []time.Duration{time.Hour, -time.Hour, 10 * 365 * 24 * time.Hour, 0} {
			n.skew.Store(int64(skew))
			pass(5 * time.Second)
			require.NoError(t, n.Heartbeat(t.Context(), "g", m.id))
		}
		require.NoError(t, n.Leave(t.Context(), "g", m.id, ""))
		n.skew.Store(int64(30 * 24 * time.Hour))
		pass(time.Hour)
		require.Equal(t, model.Offset(5), n.committed("g", "t", 0), "while the clock is in doubt nothing expires")
	})
}

func TestOffsetsOfAnEmptyGroupExpire(t *testing.T) {
	bubble(t, func(t *testing.T) {
		q := newQuorum(t)
		q.settings.OffsetRetention = 30 * time.Minute // an hour of the bubble is many checkpoints
		n := startNode(t, q, fsx.NewCrashMem())
		n.topic("t", 1)
		m := n.join(joining("g", "t"))
		settle(t, m)
		require.NoError(t, m.commit(0, 5))
		require.NoError(t, n.Leave(t.Context(), "g", m.id, ""))
		next := n.kill(1)
		pass(25 * time.Minute)
		require.Equal(t, model.Offset(5), next.committed("g", "t", 0))
		pass(16 * time.Minute)
		require.Equal(t, group.NoOffset, next.committed("g", "t", 0))
		names, err := next.List(t.Context(), ListRequest{})
		require.NoError(t, err)
		require.Empty(t, names, "a group with nothing left is forgotten")
		require.Empty(t, next.all())
		require.Empty(t, next.of("t"))
		again := next.kill(2)
		require.Empty(t, again.snapshot("g"))
	})
}

// The cluster's settings are in force at once, for groups that live too, and after a restart.
func TestTheClusterLimitsItsGroups(t *testing.T) {
	bubble(t, func(t *testing.T) {
		q := newQuorum(t)
		q.follows = true
		n := startNode(t, q, fsx.NewCrashMem())
		n.topic("t", 2)
		set := func(key, value string) {
			q.propose(t, metadata.AlterClusterConfig{Set: map[string]string{key: value}})
		}
		one, two := n.join(joining("g", "t")), n.join(joining("g", "t"))
		settle(t, one, two)
		set("group.max.size", "1")
		_, err := n.Join(t.Context(), joining("g", "t"))
		code(t, model.Conflict, err)
		settle(t, one, two) // those that there are stay
		set("group.max.size", "3")
		three := n.join(joining("g", "t"))
		for _, m := range []*member{one, two, three} {
			require.NoError(t, n.Leave(t.Context(), "g", m.id, ""))
		}
		_, err = n.PutOffsets(t.Context(), "g", []group.CommitOffset{{Name: group.Name{Topic: "t"}, Next: 0, Epoch: model.NoEpoch}})
		require.NoError(t, err)
		pass(30 * time.Minute)
		require.Equal(t, model.Offset(0), n.committed("g", "t", 0))
		set("offsets.retention.minutes", "20")
		next := n.kill(1)
		require.Equal(t, model.Offset(0), next.committed("g", "t", 0))
		pass(11 * time.Minute)
		require.Equal(t, group.NoOffset, next.committed("g", "t", 0))
	})
}

func TestIdleGroupsHaveNoGoroutines(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNode(t)
		n.topic("t", 1)
		first := n.join(joining("g", "t"))
		settle(t, first)
		synctest.Wait()
		before := runtime.NumGoroutine()
		for i := range 2000 { // many, since tests beside this one have goroutines too
			n.join(joining(fmt.Sprintf("g-%d", i), "t"))
		}
		synctest.Wait()
		require.InDelta(t, before, runtime.NumGoroutine(), 200)
		require.Len(t, n.all(), 2001)
	})
}

// Calls of one group that come together share batches.
func TestCallsThatComeTogetherShareABatch(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNode(t)
		n.topic("t", 1)
		m := n.join(joining("g", "t"))
		settle(t, m)
		open := n.gate.shut()
		rounds := n.metrics.rounds.Load()
		errs := make(chan error, 20)
		for i := range 20 {
			go func() { errs <- m.commit(0, model.Offset(i)) }()
		}
		synctest.Wait()
		require.Empty(t, errs, "nobody is answered before the sync")
		open()
		for range 20 {
			require.NoError(t, <-errs)
		}
		require.LessOrEqual(t, n.metrics.rounds.Load()-rounds, int64(3))
	})
}

// Who does not wait any longer is told whether the change may have been made.
func TestACallThatRunsOutOfTimeSaysWhatMayHaveHappened(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNode(t)
		n.topic("t", 1)
		m := n.join(joining("g", "t"))
		settle(t, m)
		open := n.gate.shut()
		errs := make(chan error, 2)
		go func() { errs <- m.commit(0, 1) }()
		synctest.Wait()
		go func() { errs <- m.commit(0, 2) }()
		pass(patience + time.Second)
		var outcomes []model.Outcome
		for range 2 {
			outcomes = append(outcomes, model.AsError(<-errs).EffectiveOutcome())
		}
		require.ElementsMatch(t, []model.Outcome{model.Unknown, model.NotApplied}, outcomes)
		open()
		synctest.Wait()
		require.Equal(t, model.Offset(1), n.committed("g", "t", 0))
	})
}

func TestTwoGroupsEachGetEverything(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNode(t)
		n.topic("t", 2)
		n.produce("t", 0, "a")
		n.produce("t", 1, "b")
		for _, id := range []string{"one", "two"} {
			m := n.join(joining(id, "t"))
			require.Len(t, m.poll(time.Second).records, 2)
			require.NoError(t, m.commit(0, 1))
		}
		require.Equal(t, model.Offset(1), n.committed("one", "t", 0))
	})
}

// Members of one group that poll, commit, join and leave at once read each record, and none
// whose commit was answered a second time.
func TestManyMembersAtOnceReadEachRecord(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNode(t)
		n.topic("t", 6)
		for p := range 6 {
			for i := range 20 {
				n.produce("t", p, fmt.Sprint(i))
			}
		}
		var mu sync.Mutex
		seen := map[string]int{}
		var wg sync.WaitGroup
		for k := range 8 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				pass(time.Duration(k*37) * time.Millisecond)
				for life := range 4 {
					m := n.join(joining("g", "t"))
					for range 10 {
						req := m.request(200 * time.Millisecond)
						req.MaxRecords = 3
						g, err := m.try(t.Context(), req)
						if err != nil {
							t.Error(err)
							return
						}
						mu.Lock()
						for _, r := range g.records {
							seen[r]++
						}
						mu.Unlock()
						m.cursor = g.Cursor
						if _, err := n.CommitCursor(t.Context(), "g", m.id, m.cursor); err != nil {
							t.Error(err)
							return
						}
					}
					if life < 3 || k > 0 {
						if err := n.Leave(t.Context(), "g", m.id, ""); err != nil {
							t.Error(err)
						}
					}
				}
			}()
		}
		wg.Wait()
		last := n.join(joining("g", "t"))
		for range 60 {
			for _, r := range last.poll(500 * time.Millisecond).records {
				seen[r]++
			}
		}
		require.Len(t, seen, 120)
		for r, times := range seen {
			require.Equal(t, 1, times, r)
		}
	})
}
