package coordinator

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewire/broker"
	"tidewire/broker/forward"
	"tidewire/broker/partition"
	"tidewire/cluster/metadata"
	"tidewire/cluster/peer"
	"tidewire/internal/fsx"
	"tidewire/internal/lifecycle"
	"tidewire/internal/model"
	"tidewire/storage/log"
	"tidewire/storage/record"
)

// wires connect the nodes of a test: a call is what crosses them, as bytes.
type wires struct {
	mu    sync.Mutex
	muxes map[model.BrokerID]*forward.Mux                        // guarded by mu
	cut   func(to model.BrokerID, m peer.Method) *peer.CallError // guarded by mu: before a call is served; nil: nothing is
	lose  func(to model.BrokerID, m peer.Method) bool            // guarded by mu: the answer of a call that was served
}

func (w *wires) set(cut func(model.BrokerID, peer.Method) *peer.CallError, lose func(model.BrokerID, peer.Method) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut, w.lose = cut, lose
}

func (w *wires) CallBroker(ctx context.Context, to model.BrokerID, m peer.Method, payload []byte) ([]byte, error) {
	w.mu.Lock()
	mux, cut, lose := w.muxes[to], w.cut, w.lose
	w.mu.Unlock()
	if mux == nil {
		return nil, &peer.CallError{Cause: errors.New("there is nobody")}
	}
	if cut != nil {
		if err := cut(to, m); err != nil {
			return nil, err
		}
	}
	b, err := mux.Serve(ctx, peer.Request{Method: m, Payload: bytes.Clone(payload)})
	switch {
	case lose != nil && lose(to, m), ctx.Err() != nil:
		return nil, &peer.CallError{Sent: true, Cause: errors.New("cut")}
	case err != nil:
		return nil, peer.DecodeFault(peer.EncodeFault(err))
	}
	return bytes.Clone(b), nil
}

// threeNodes are three nodes of one quorum, which spread partitions.
func threeNodes(t testing.TB) ([]*node, *wires) {
	t.Helper()
	q := newQuorum(t)
	w := &wires{muxes: map[model.BrokerID]*forward.Mux{}}
	for id := model.BrokerID(1); id <= 3; id++ {
		q.propose(t, metadata.RegisterBroker{ID: id, StorageID: fmt.Sprint("s", id), Incarnation: uint64(id), HTTPAddr: fmt.Sprint("h:", id), Now: 1})
		q.propose(t, metadata.UnfenceBroker{ID: id, Epoch: q.Image().Broker(id).Epoch})
	}
	var out []*node
	for id := model.BrokerID(1); id <= 3; id++ {
		out = append(out, startOne(t, q, w, id))
	}
	return out, w
}

func startOne(t testing.TB, q *quorum, w *wires, id model.BrokerID) *node {
	t.Helper()
	n := &node{t: t, quorum: q, rights: &rights{}, group: lifecycle.New(context.Background()), disk: lifecycle.New(context.Background()), out: &bytes.Buffer{}, skew: &atomic.Int64{}}
	logger := slog.New(slog.DiscardHandler)
	var err error
	n.store, err = log.OpenStore(log.StoreOptions{FS: fsx.NewCrashMem(), Dir: "/data", Group: n.disk, Now: time.Now, Logger: logger})
	require.NoError(t, err)
	n.broker = broker.New(broker.Config{NodeID: id, Metadata: q, Authorizer: n.rights, Store: n.store, Logger: logger, Group: n.group, Now: time.Now, Network: w})
	n.Coordinator = New(Config{NodeID: id, Broker: n.broker, Metadata: q, Logger: logger, Group: n.group, Now: time.Now, Settings: &q.settings})
	n.broker.Start()
	n.Start()
	m := forward.NewMux()
	n.broker.ServeCalls(m)
	n.ServeCalls(m)
	w.mu.Lock()
	w.muxes[id] = m
	w.mu.Unlock()
	t.Cleanup(n.stop)
	return n
}

// ledBy is a partition of a topic that a node leads.
func (n *node) ledBy(topic string, id model.BrokerID) int {
	n.t.Helper()
	for i, p := range n.quorum.Image().Topic(topic).Partitions {
		if p.Leader == id {
			return i
		}
	}
	n.t.Fatalf("node %d leads nothing of %q", id, topic)
	return 0
}

// coordinatedBy is the name of a group that a node looks after.
func (n *node) coordinatedBy(id model.BrokerID) string {
	n.t.Helper()
	if n.quorum.Image().Topic(offsetsTopic.Name) == nil { // with a replica each: nobody follows here
		assign := make([][]model.BrokerID, offsetsTopic.Partitions)
		for i := range assign {
			assign[i] = []model.BrokerID{model.BrokerID(i%3 + 1)}
		}
		n.quorum.propose(n.t, metadata.CreateTopic{Name: offsetsTopic.Name, Internal: true, ID: model.TopicID{9}, Assignments: assign, Config: offsetsTopic.Config, Now: 1})
	}
	require.NoError(n.t, n.broker.EnsureInternal(n.t.Context(), offsetsTopic))
	for i := range 1000 {
		name := fmt.Sprint("g", i)
		if _, at := n.coordinatorOf(name); at == id {
			return name
		}
	}
	n.t.Fatalf("node %d looks after no group", id)
	return ""
}

func (n *node) produceOne(topic string, p int, value string) (broker.RecordResult, error) {
	req := &broker.ProduceRequest{
		Topic: topic, Acks: partition.AcksAll, Timeout: 10 * time.Second,
		Records: []record.Record{{Timestamp: broker.NoTimestamp, Key: []byte("k"), Value: []byte(value), Headers: []record.Header{{Name: []byte("h"), Value: nil}}}},
		Routing: []broker.Routing{{Partition: model.PartitionID(p), HasPartition: true}},
	}
	var out broker.RecordResult
	err := n.broker.Produce(context.Background(), caller, req, func(r *broker.ProduceResult) { out = r.Results[0] })
	return out, err
}

func (n *node) read(topic string, p int, wait time.Duration, from int64) (values []string, info broker.FetchInfo, err error) {
	req := &broker.FetchRequest{
		Topic: topic, Partition: model.PartitionID(p), From: broker.Position{Value: from}, MaxRecords: 1000, MaxBytes: 1 << 20, MinBytes: 1, Wait: wait,
	}
	info, err = n.broker.Fetch(context.Background(), caller, req, func(r *record.Record, _ bool) { values = append(values, string(r.Value)) })
	return values, info, err
}

func TestAnyNodeTakesAndGivesRecordsOfAnyPartition(t *testing.T) {
	bubble(t, func(t *testing.T) {
		nodes, _ := threeNodes(t)
		nodes[0].topic("t", 6)
		for p := range 6 {
			for i, n := range nodes {
				r, err := n.produceOne("t", p, fmt.Sprint("v", i))
				require.NoError(t, err)
				require.NoError(t, r.Err)
				require.EqualValues(t, i, r.Offset)
			}
			for _, n := range nodes {
				got, info, err := n.read("t", p, 0, 0)
				require.NoError(t, err)
				require.Equal(t, []string{"v0", "v1", "v2"}, got)
				require.EqualValues(t, 3, info.HighWatermark)
				_, _, err = n.read("t", p, 0, 9)
				e := code(t, model.OffsetOutOfRange, err)
				require.EqualValues(t, "3", fmt.Sprint(e.Extra["latest"]))
			}
		}
		for _, n := range nodes {
			list, err := n.broker.Offsets(t.Context(), caller, "t", broker.Position{Kind: broker.Latest})
			require.NoError(t, err)
			for _, o := range list {
				require.EqualValues(t, 3, o.Offset)
			}
			s, err := n.broker.DescribeTopic(t.Context(), caller, "t")
			require.NoError(t, err)
			require.EqualValues(t, 18, s.RecordsNow)
			for i := range s.Partitions {
				require.NoError(t, s.Partitions[i].Err)
			}
		}
	})
}

func TestAReadThatWaitsIsWokenByTheLeader(t *testing.T) {
	bubble(t, func(t *testing.T) {
		nodes, _ := threeNodes(t)
		nodes[0].topic("t", 3)
		p := nodes[0].ledBy("t", 2)
		var got []string
		var done sync.WaitGroup
		began := time.Now()
		done.Go(func() { got, _, _ = nodes[0].read("t", p, time.Minute, 0) })
		pass(5 * time.Second)
		_, err := nodes[2].produceOne("t", p, "late")
		require.NoError(t, err)
		done.Wait()
		require.Equal(t, []string{"late"}, got)
		require.Less(t, time.Since(began), 6*time.Second)
	})
}

func TestWhatIsKnownOfALostAnswerIsTold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		nodes, w := threeNodes(t)
		nodes[0].topic("t", 3)
		p := nodes[0].ledBy("t", 2)
		isProduce := func(m peer.Method) bool { return m == forward.MethodProduce }
		w.set(func(_ model.BrokerID, m peer.Method) *peer.CallError {
			if isProduce(m) {
				return &peer.CallError{Cause: errors.New("refused")}
			}
			return nil
		}, nil)
		r, err := nodes[0].produceOne("t", p, "never")
		require.NoError(t, err)
		require.Equal(t, model.NotApplied, code(t, model.LeaderUnavailable, r.Err).EffectiveOutcome(), "it was never sent")

		w.set(nil, func(_ model.BrokerID, m peer.Method) bool { return isProduce(m) })
		r, err = nodes[0].produceOne("t", p, "maybe")
		require.NoError(t, err)
		require.Equal(t, model.Unknown, code(t, model.Timeout, r.Err).EffectiveOutcome(), "its answer was lost")

		lost := 0
		w.set(nil, func(_ model.BrokerID, m peer.Method) bool {
			if isProduce(m) {
				lost++
			}
			return isProduce(m) && lost == 1
		})
		req := &broker.ProduceRequest{
			Topic: "t", Acks: partition.AcksAll, Timeout: 10 * time.Second, IdempotencyKey: "once",
			Records: []record.Record{{Timestamp: broker.NoTimestamp, Value: []byte("once")}}, Routing: []broker.Routing{{Partition: model.PartitionID(p), HasPartition: true}},
		}
		require.NoError(t, nodes[0].broker.Produce(t.Context(), caller, req, func(r *broker.ProduceResult) { require.NoError(t, r.Results[0].Err) }))
		w.set(nil, nil)
		got, _, err := nodes[1].read("t", p, 0, 0)
		require.NoError(t, err)
		require.Equal(t, []string{"maybe", "once"}, got, "what is safe to repeat is repeated, and stored once")
	})
}

func TestALeadershipThatNobodyHasIsTold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		nodes, w := threeNodes(t)
		nodes[0].topic("t", 3)
		p := nodes[0].ledBy("t", 2)
		g := nodes[0].coordinatedBy(2)
		w.mu.Lock()
		delete(w.muxes, 2)
		w.mu.Unlock()
		r, err := nodes[0].produceOne("t", p, "x")
		require.NoError(t, err)
		code(t, model.LeaderUnavailable, r.Err)
		_, _, err = nodes[0].read("t", p, 0, 0)
		require.Contains(t, code(t, model.LeaderUnavailable, err).Detail, "node 2")
		_, err = nodes[0].Join(t.Context(), joining(g, "t"))
		require.EqualValues(t, 2, code(t, model.LeaderUnavailable, err).Extra["coordinator"])

		nodes[0].quorum.propose(t, metadata.FenceBroker{ID: 2, Epoch: nodes[0].quorum.Image().Broker(2).Epoch})
		_, _, err = nodes[0].read("t", p, 0, 0)
		require.Contains(t, code(t, model.LeaderUnavailable, err).Detail, "has no leader")
		pass(time.Second) // the node follows its metadata
		for range 6 {
			keyless := &broker.ProduceRequest{Topic: "t", Acks: partition.AcksAll, Timeout: 10 * time.Second, Records: []record.Record{{Timestamp: broker.NoTimestamp}}}
			require.NoError(t, nodes[0].broker.Produce(t.Context(), caller, keyless, func(r *broker.ProduceResult) {
				require.NoError(t, r.Results[0].Err, "records that may go anywhere go where somebody leads")
			}))
		}
		_, err = nodes[0].Describe(t.Context(), g, nil)
		require.Contains(t, code(t, model.LeaderUnavailable, err).Detail, "no coordinator")
	})
}

func TestMembersOnAllNodesShareATopicOfAllNodes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		nodes, _ := threeNodes(t)
		nodes[0].topic("t", 6)
		g := nodes[0].coordinatedBy(1)
		var members []*member
		for _, n := range nodes {
			members = append(members, n.join(joining(g, "t")))
		}
		settle(t, members...)
		for p := range 6 {
			for k := range 10 {
				nodes[(p+k)%3].produce("t", p, fmt.Sprint(p, "-", k))
			}
		}
		var all []string
		for range 10 {
			for _, m := range members {
				got := m.poll(0)
				require.Len(t, got.Assignment.Held, 2)
				all = append(all, got.records...)
				_, err := m.n.CommitCursor(t.Context(), g, m.id, got.Cursor)
				require.NoError(t, err)
			}
		}
		slices.Sort(all)
		require.Len(t, all, 60)
		require.Len(t, slices.Compact(all), 60, "each once")
		for _, n := range nodes {
			d, err := n.Describe(t.Context(), g, nil)
			require.NoError(t, err)
			require.Len(t, d.Members, 3)
			require.Zero(t, d.TotalLag)
			require.NoError(t, d.Unknown)
			require.EqualValues(t, 1, d.Coordinator)
			names, err := n.List(t.Context(), ListRequest{})
			require.NoError(t, err)
			require.Equal(t, []string{g}, names)
			s := n.Summaries(t.Context(), names, nil)[0]
			require.NoError(t, s.Err)
			require.Equal(t, 3, s.Members)
		}
	})
}

func TestAPollThatWaitsElsewhereIsWokenAndReplaced(t *testing.T) {
	bubble(t, func(t *testing.T) {
		nodes, _ := threeNodes(t)
		nodes[0].topic("t", 3)
		g := nodes[0].coordinatedBy(3)
		m := nodes[0].join(joining(g, "t"))
		settle(t, m)
		firsts, seconds := make(chan got, 1), make(chan got, 1)
		waiting := *m // m itself is asked for no more
		go func() { g, _ := waiting.try(context.Background(), waiting.request(time.Minute)); firsts <- g }()
		pass(time.Second)
		other := *m
		other.n = nodes[1]
		began := time.Now()
		go func() { g, _ := other.try(context.Background(), other.request(time.Minute)); seconds <- g }()
		first := <-firsts
		require.NotNil(t, first.PollResult)
		require.Equal(t, EndReplaced, first.End, "a poll through another node takes its place")

		m2 := nodes[2].join(joining(g, "t"))
		for range 20 {
			m2.poll(0)
			pass(50 * time.Millisecond)
		}
		second := <-seconds
		require.Equal(t, EndChanged, second.End)
		require.Less(t, time.Since(began), 10*time.Second)
		require.NotEmpty(t, second.Assignment.Revoking, "another member has come")
	})
}

func TestAMemberIsToldOfPartitionsThatCannotBeRead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		nodes, w := threeNodes(t)
		nodes[0].topic("t", 3)
		g := nodes[0].coordinatedBy(1)
		m := nodes[0].join(joining(g, "t"))
		settle(t, m)
		nodes[0].produce("t", nodes[0].ledBy("t", 1), "here")
		w.set(func(to model.BrokerID, _ peer.Method) *peer.CallError {
			if to != 1 {
				return &peer.CallError{Cause: errors.New("gone")}
			}
			return nil
		}, nil)
		got := m.poll(0)
		require.Len(t, got.records, 1, "the others are read on")
		require.Len(t, got.Unreadable, 2)
		for _, u := range got.Unreadable {
			code(t, model.LeaderUnavailable, u.Err)
		}
		d, err := nodes[0].Describe(t.Context(), g, nil)
		require.NoError(t, err)
		code(t, model.LeaderUnavailable, d.Unknown)
	})
}

func TestRequestsOfAStreamKeepTheirOrderElsewhere(t *testing.T) {
	bubble(t, func(t *testing.T) {
		nodes, _ := threeNodes(t)
		nodes[0].topic("t", 3)
		p := nodes[0].ledBy("t", 3)
		var order forward.Order
		var want []string
		var pending []*broker.Pending
		for k := range 200 {
			want = append(want, fmt.Sprint(k))
			sent, err := nodes[0].broker.Submit(t.Context(), caller, &broker.ProduceRequest{
				Topic: "t", Acks: partition.AcksAll, Timeout: 10 * time.Second, Order: &order,
				Records: []record.Record{{Timestamp: broker.NoTimestamp, Value: []byte(want[k])}}, Routing: []broker.Routing{{Partition: model.PartitionID(p), HasPartition: true}},
			})
			require.NoError(t, err)
			pending = append(pending, sent)
		}
		for k, sent := range pending {
			<-sent.Done()
			sent.Result(nil, func(r *broker.ProduceResult) {
				require.NoError(t, r.Results[0].Err)
				require.EqualValues(t, k, r.Results[0].Offset)
			})
		}
		got, _, err := nodes[1].read("t", p, 0, 0)
		require.NoError(t, err)
		require.Equal(t, want, got)
	})
}

func TestRequestsOfAnOtherLeadershipAreRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		nodes, w := threeNodes(t)
		nodes[0].topic("t", 3)
		p := nodes[0].ledBy("t", 2)
		key := forward.Key{Topic: nodes[0].quorum.Image().Topic("t").ID, Partition: model.PartitionID(p)}
		ask := func(to model.BrokerID, epoch int) string {
			q := fmt.Sprintf(`{"partitions":[{"topic":%q,"partition":%d,"epoch":%d}]}`, key.Topic, key.Partition, epoch)
			b, err := w.CallBroker(t.Context(), to, forward.MethodEnds, []byte(q))
			require.NoError(t, err)
			return string(b)
		}
		epoch := int(nodes[0].quorum.Image().Topic("t").Partitions[p].LeaderEpoch)
		require.NotContains(t, ask(2, epoch), "leader-unavailable")
		require.Contains(t, ask(2, epoch+1), "leader-unavailable", "an epoch that is to come")
		require.Contains(t, ask(2, epoch-1), "leader-unavailable", "one that is over")
		require.Contains(t, ask(3, epoch), "leader-unavailable", "it is not passed on")
		_, err := w.CallBroker(t.Context(), 2, forward.MethodProduce, []byte("\xff\xff\xff\xffx"))
		code(t, model.Internal, err)
	})
}

// A leader that does not know yet to be committed what the one before has told of does not say
// that nothing is there: who reads would pass over it.
func TestAReaderDoesNotPassOverWhatANewLeaderDoesNotKnowToBeCommitted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		nodes, w := threeNodes(t)
		nodes[0].topic("t", 3)
		p := nodes[0].ledBy("t", 2)
		for range 3 {
			r, err := nodes[0].produceOne("t", p, "x")
			require.NoError(t, err)
			require.NoError(t, r.Err)
		}
		topic := nodes[0].quorum.Image().Topic("t")
		ask := func(from, limit int) error {
			head, err := json.Marshal(map[string]any{"topic": topic.ID, "partition": p, "epoch": topic.Partitions[p].LeaderEpoch, "from": from, "limit": limit, "max": 1000, "most": 1000})
			require.NoError(t, err)
			_, err = w.CallBroker(t.Context(), 2, forward.MethodRead, append(binary.BigEndian.AppendUint32(nil, uint32(len(head))), head...))
			return err
		}
		require.NoError(t, ask(0, 10), "what is known is given")
		require.NoError(t, ask(3, 3), "nothing is asked for")
		code(t, model.LeaderUnavailable, ask(3, 10))
	})
}

// Who waits for a partition that nobody leads for a while hears of its records afterwards.
func TestAPollThatWaitsThroughAnOutageGoesOn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		nodes, w := threeNodes(t)
		nodes[0].topic("t", 3)
		p := nodes[0].ledBy("t", 2)
		g := nodes[0].coordinatedBy(1)
		m := nodes[0].join(joining(g, "t"))
		settle(t, m)
		first, err := m.try(context.Background(), m.request(0))
		require.NoError(t, err)
		answers := make(chan got, 1)
		go func() {
			req := m.request(10 * time.Minute)
			req.Cursor = first.Cursor
			g, _ := m.try(context.Background(), req)
			answers <- g
		}()
		pass(time.Second)
		w.mu.Lock()
		mux := w.muxes[2]
		delete(w.muxes, 2)
		w.mu.Unlock()
		pass(30 * time.Second)
		q := nodes[0].quorum
		q.propose(t, metadata.FenceBroker{ID: 2, Epoch: q.Image().Broker(2).Epoch})
		pass(30 * time.Second)
		w.mu.Lock()
		w.muxes[2] = mux
		w.mu.Unlock()
		q.propose(t, metadata.UnfenceBroker{ID: 2, Epoch: q.Image().Broker(2).Epoch})
		pass(30 * time.Second)
		r, err := nodes[1].produceOne("t", p, "after")
		require.NoError(t, err)
		require.NoError(t, r.Err)
		pass(10 * time.Second)
		select {
		case a := <-answers:
			require.NotNil(t, a.PollResult)
			require.Equal(t, []string{fmt.Sprintf("t/%d/0=after", p)}, a.records)
		default:
			require.Fail(t, "the poll still waits")
		}
	})
}
