package coordinator

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"tidewire/auth"
	"tidewire/broker"
	"tidewire/broker/group"
	"tidewire/broker/group/assign"
	"tidewire/broker/partition"
	"tidewire/internal/fsx"
	"tidewire/internal/model"
	"tidewire/storage/record"
)

func offsetsOf(pairs ...any) []group.CommitOffset {
	var out []group.CommitOffset
	for i := 0; i < len(pairs); i += 3 {
		out = append(out, group.CommitOffset{
			Name: group.Name{Topic: pairs[i].(string), Partition: model.PartitionID(pairs[i+1].(int))}, Next: model.Offset(pairs[i+2].(int)), Epoch: model.NoEpoch,
		})
	}
	return out
}

func TestTheTopicIsMadeWithTheFirstGroupAndByNobodyElse(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNode(t)
		require.True(t, n.Loaded())
		names, err := n.List(t.Context(), ListRequest{})
		require.NoError(t, err)
		require.Empty(t, names)
		_, err = n.Describe(t.Context(), "g", nil)
		code(t, model.UnknownGroup, err)
		code(t, model.UnknownMember, n.Heartbeat(t.Context(), "g", "m"))
		code(t, model.UnknownGroup, n.Delete(t.Context(), "g"))
		require.Nil(t, n.quorum.Image().Topic(auth.OffsetsTopic), "asking makes nothing")
		n.join(joining("g", "t"))
		topic := n.quorum.Image().Topic(auth.OffsetsTopic)
		require.True(t, topic.Internal)
		require.Len(t, topic.Partitions, 50)
		require.True(t, topic.Config.CleanupPolicy.Compact)
		synctest.Wait()
		require.True(t, n.Loaded())
		_, err = n.broker.MayDeleteTopic(t.Context(), caller, auth.OffsetsTopic)
		code(t, model.Conflict, err)
		require.NotContains(t, topicNames(n, false), auth.OffsetsTopic)
		require.Contains(t, topicNames(n, true), auth.OffsetsTopic)
	})
}

func topicNames(n *node, internal bool) (out []string) {
	for _, t := range n.broker.VisibleTopics(caller, "", internal) {
		out = append(out, t.Name)
	}
	return out
}

func TestAGroupIsDescribedWithItsLagInRecordsAndTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNode(t)
		n.topic("t", 2)
		n.topic("hidden", 1)
		n.produce("t", 0, "a", "b")
		pass(2 * time.Second)
		n.produce("t", 0, "c")
		m := n.join(joining("g", "t", "hidden"))
		settle(t, m)
		_, err := n.Commit(t.Context(), "g", group.CommitRequest{Member: m.id, Offsets: offsetsOf("t", 0, 2, "t", 1, 0, "hidden", 0, 0)})
		require.NoError(t, err)
		pass(3 * time.Second)
		d, err := n.Describe(t.Context(), "g", func(topic string) bool { return topic == "t" })
		require.NoError(t, err)
		require.Equal(t, group.Stable, d.State)
		require.Equal(t, assign.Range, d.Assignor)
		require.EqualValues(t, 1, d.Coordinator)
		require.Len(t, d.Members, 1)
		require.Equal(t, []string{"t"}, d.Members[0].Topics)
		require.Equal(t, "t/0 t/1", heldOf(d.Members[0].Assignment))
		require.Len(t, d.Offsets, 2)
		o := d.Offsets[0]
		require.Equal(t, model.Offset(2), o.Next)
		require.Equal(t, model.Offset(3), o.HighWatermark)
		require.EqualValues(t, 1, o.Lag)
		require.InDelta(t, 3000, o.LagMs, 600)
		require.Equal(t, m.id, o.MemberID)
		require.Zero(t, d.Offsets[1].LagMs)
		require.EqualValues(t, 1, d.TotalLag)
		whole, err := n.Describe(t.Context(), "g", nil)
		require.NoError(t, err)
		require.Equal(t, "hidden/0 t/0 t/1", heldOf(whole.Members[0].Assignment), "what was hidden from one is there for others")
	})
}

func TestGroupsAreListedByWhatIsWanted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNode(t)
		n.topic("t", 1)
		n.topic("u", 1)
		n.produce("t", 0, "a", "b", "c")
		for _, id := range []string{"a/b", "x#y", "p@q", "t:n", "ü", "%2F", strings.Repeat("g", 255)} {
			_, err := n.PutOffsets(t.Context(), id, offsetsOf("t", 0, 1))
			require.NoError(t, err)
		}
		_, err := n.PutOffsets(t.Context(), "other", offsetsOf("u", 0, 0))
		require.NoError(t, err)
		_, err = n.PutOffsets(t.Context(), strings.Repeat("g", 256), offsetsOf("t", 0, 1))
		code(t, model.InvalidArgument, err)
		names := func(req ListRequest) []string {
			out, err := n.List(t.Context(), req)
			require.NoError(t, err)
			return out
		}
		require.Len(t, names(ListRequest{}), 8)
		require.True(t, slices.IsSorted(names(ListRequest{})))
		require.Equal(t, []string{"x#y"}, names(ListRequest{Prefix: "x"}))
		require.Equal(t, []string{"p@q"}, names(ListRequest{Contains: "@"}))
		require.Equal(t, []string{"other"}, names(ListRequest{Topic: "u"}))
		require.Len(t, names(ListRequest{Topic: "t"}), 7)
		require.Empty(t, names(ListRequest{Topic: "nothing"}))
		require.Equal(t, []string{"ü"}, names(ListRequest{May: func(g string) bool { return g == "ü" }}))
		rows := n.Summaries(t.Context(), []string{"a/b", "nobody"}, nil)
		require.NotEmpty(t, rows[0].Tag, "of what it was, for who changes it")
		rows[0].Tag = ""
		require.Equal(t, Summary{Group: "a/b", State: group.Empty, Topics: []string{"t"}, TotalLag: 2, Coordinator: 1}, rows[0])
		code(t, model.UnknownGroup, rows[1].Err)
		next := n.kill(1)
		again, err := next.List(t.Context(), ListRequest{Topic: "t"})
		require.NoError(t, err)
		require.Len(t, again, 7, "the index is there again after a restart")
		_, err = next.DeleteOffsets(t.Context(), "a/b", []string{"t"})
		require.NoError(t, err)
		again, err = next.List(t.Context(), ListRequest{Topic: "t"})
		require.NoError(t, err)
		require.NotContains(t, again, "a/b")
	})
}

func TestOffsetsWithoutAMemberAreForGroupsWithoutMembers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNode(t)
		n.topic("t", 2)
		m := n.join(joining("g", "t"))
		settle(t, m)
		_, err := n.PutOffsets(t.Context(), "g", offsetsOf("t", 0, 1))
		code(t, model.GroupNotEmpty, err)
		_, err = n.DeleteOffsets(t.Context(), "g", []string{"t"})
		code(t, model.GroupNotEmpty, err)
		code(t, model.GroupNotEmpty, n.Delete(t.Context(), "g"))
		_, err = n.Reset(t.Context(), "g", group.ResetRequest{To: group.ToEarliest}, true)
		code(t, model.GroupNotEmpty, err)
		require.NoError(t, n.Leave(t.Context(), "g", m.id, ""))
		list, err := n.PutOffsets(t.Context(), "g", offsetsOf("t", 1, 7, "t", 0, 3))
		require.NoError(t, err)
		require.Equal(t, []model.Offset{7, 3}, []model.Offset{list[0].Next, list[1].Next})
		for _, bad := range [][]group.CommitOffset{offsetsOf("t", 0, -1), offsetsOf("t", 0, 1, "t", 0, 2), nil} {
			_, err = n.PutOffsets(t.Context(), "g", bad)
			code(t, model.InvalidArgument, err)
		}
		_, err = n.PutOffsets(t.Context(), "g", offsetsOf("t", 0, 9, "nothing", 0, 1))
		code(t, model.UnknownTopic, err)
		_, err = n.PutOffsets(t.Context(), "g", offsetsOf("t", 0, 9, "t", 2, 1))
		code(t, model.UnknownPartition, err)
		long := offsetsOf("t", 0, 9)
		long[0].Metadata = strings.Repeat("m", 4096)
		_, err = n.PutOffsets(t.Context(), "g", long)
		require.NoError(t, err)
		long[0].Metadata += "m"
		_, err = n.PutOffsets(t.Context(), "g", long)
		code(t, model.InvalidArgument, err)
		require.Equal(t, model.Offset(9), n.committed("g", "t", 0))
		require.NoError(t, n.Delete(t.Context(), "g"))
		_, err = n.Describe(t.Context(), "g", nil)
		code(t, model.UnknownGroup, err)
		require.Empty(t, n.all())
		next := n.kill(1)
		_, err = next.Describe(t.Context(), "g", nil)
		code(t, model.UnknownGroup, err)
	})
}

func TestAResetIsPlannedAndThenMade(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNode(t)
		n.topic("t", 2)
		n.produce("t", 0, "a", "b")
		pass(time.Minute)
		at := time.Now().UnixMilli()
		n.produce("t", 0, "c", "d")
		_, err := n.Reset(t.Context(), "g", group.ResetRequest{To: group.ToLatest}, false)
		code(t, model.UnknownGroup, err)
		_, err = n.PutOffsets(t.Context(), "g", offsetsOf("t", 0, 3, "t", 1, 0))
		require.NoError(t, err)
		for _, x := range []struct {
			to    group.ResetTo
			value int64
			want  model.Offset
		}{{group.ToEarliest, 0, 0}, {group.ToLatest, 0, 4}, {group.ToTimestamp, at, 2}, {group.ToOffset, 1, 1}, {group.ToOffset, 99, 4}, {group.ToShift, -2, 1}, {group.ToShift, 99, 4}} {
			req := group.ResetRequest{To: x.to, Value: x.value}
			plan, err := n.Reset(t.Context(), "g", req, true)
			require.NoError(t, err)
			require.Len(t, plan, 2)
			require.Equal(t, x.want, plan[0].To, "%s %d", x.to, x.value)
			require.Equal(t, model.Offset(3), n.committed("g", "t", 0), "a dry run changes nothing")
			made, err := n.Reset(t.Context(), "g", req, false)
			require.NoError(t, err)
			require.Equal(t, plan, made)
			require.Equal(t, x.want, n.committed("g", "t", 0))
			_, err = n.PutOffsets(t.Context(), "g", offsetsOf("t", 0, 3))
			require.NoError(t, err)
		}
		_, err = n.Reset(t.Context(), "new", group.ResetRequest{Topics: []string{"t"}, To: group.ToEarliest}, true)
		require.NoError(t, err)
		require.Equal(t, group.NoOffset, n.committed("new", "t", 0))
		_, err = n.Reset(t.Context(), "new", group.ResetRequest{Topics: []string{"t"}, To: group.ToEarliest}, false)
		require.NoError(t, err)
		require.Equal(t, model.Offset(0), n.committed("new", "t", 0))
	})
}

func TestASoughtPositionIsReadFromAndNotStored(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNode(t)
		n.topic("t", 2)
		n.produce("t", 0, "a", "b", "c")
		n.produce("t", 1, "d")
		m := n.join(joining("g", "t"))
		require.Len(t, m.poll(time.Second).records, 4)
		cur, err := n.Seek(t.Context(), "g", m.cursor, group.SeekRequest{
			Member: m.id, Positions: []group.SeekPosition{{Name: group.Name{Topic: "t"}, Next: 1}},
		})
		require.NoError(t, err)
		m.cursor = cur
		require.Equal(t, []string{"t/0/1=b", "t/0/2=c"}, m.poll(0).records)
		require.Equal(t, model.Offset(0), n.committed("g", "t", 0))
		_, err = n.Seek(t.Context(), "g", "", group.SeekRequest{Member: m.id, Positions: []group.SeekPosition{{Name: group.Name{Topic: "t"}, Next: -1}}})
		code(t, model.InvalidArgument, err)
		_, err = n.Seek(t.Context(), "g", "no cursor", group.SeekRequest{Member: m.id})
		code(t, model.InvalidArgument, err)
	})
}

func TestTheMetricsTellGroupsAndAppends(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNode(t)
		n.topic("t", 1)
		m := n.join(joining("g", "t"))
		settle(t, m)
		p := m.background(m.request(time.Minute))
		r := prometheus.NewRegistry()
		n.RegisterMetrics(r)
		families, err := r.Gather()
		require.NoError(t, err)
		got := map[string]float64{}
		for _, f := range families {
			got[f.GetName()] = f.GetMetric()[0].GetGauge().GetValue() + f.GetMetric()[0].GetCounter().GetValue()
		}
		require.EqualValues(t, 1, got["tidewire_group_groups"])
		require.EqualValues(t, 1, got["tidewire_group_polls"])
		require.EqualValues(t, 50, got["tidewire_group_coordinator_partitions"])
		require.Zero(t, got["tidewire_group_coordinator_partitions_loading"])
		require.Positive(t, got["tidewire_group_appends_total"])
		require.True(t, p.waiting())
	})
}

// What a partition holds that is not understood is not passed over: it is not served, the node
// is ready all the same, and the other partitions are.
func TestAPartitionThatCannotBeReadIsNotServed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNode(t)
		n.topic("t", 1)
		n.join(joining("g", "t"))
		s, err := n.shardOf(t.Context(), "g", false)
		require.NoError(t, err)
		slice := &partition.Slice{
			Records: []record.Record{{Timestamp: 1, Key: []byte{0x54, 0x77, 1, 'g'}, Value: []byte{1}}}, Select: []int32{0}, Acks: partition.AcksAll, Plain: true,
		}
		done := make(chan struct{})
		s.replica.Submit(slice, partition.NewCallback(1, func() { close(done) }))
		<-done
		require.NoError(t, slice.Err)
		next := n.kill(1)
		pass(time.Second)
		require.True(t, next.Loaded())
		code(t, model.StorageError, next.Heartbeat(t.Context(), "g", "m"))
		require.NotNil(t, next.join(joining("a", "t")))
	})
}

func TestCallsWaitForGroupsThatAreBeingRead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNode(t)
		n.topic("t", 1)
		m := n.join(joining("g", "t"))
		settle(t, m)
		next := n.kill(1) // its partitions are being read while the call comes
		m.n = next
		require.Equal(t, "t/0", heldOf(m.poll(0).Assignment))
		synctest.Wait()
		require.True(t, next.Loaded())
	})
}

func TestReadsCountInTheCallersQuotaAndNotInLag(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := startNode(t, newQuorum(t), fsx.NewCrashMem())
		n.topic("t", 1)
		n.produce("t", 0, "a")
		m := n.join(joining("g", "t"))
		settle(t, m)
		before := totals(n, "t")
		_, err := n.Describe(t.Context(), "g", nil)
		require.NoError(t, err)
		require.Equal(t, before, totals(n, "t"))
		m.cursor = ""
		require.Len(t, m.poll(0).records, 1)
		require.Equal(t, before+1, totals(n, "t"))
	})
}

// totals are the records of a topic that went out.
func totals(n *node, topic string) (out int64) {
	id := n.quorum.Image().Topic(topic).ID
	n.broker.Totals(func(x broker.TopicTotals) bool {
		if x.ID == id {
			out = x.RecordsOut
		}
		return true
	})
	return out
}
