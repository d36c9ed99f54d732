package replicas

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"tidewire/broker/replication"
	"tidewire/cluster/controller"
	"tidewire/cluster/metadata"
	"tidewire/internal/model"
	"tidewire/storage/epochs"
)

// fault is a rule that a run breaks on purpose.
type fault string

const (
	sound          fault = ""
	cutsToHW       fault = "a new follower cuts to its high watermark"
	growsAtOnce    fault = "a leader takes its own proposal for committed"
	acksUnsynced   fault = "what is written counts as synced"
	believesGhosts fault = "a replica joins whatever became of its node since"
	keepsEpoch     fault = "a replica leaves and the leader epoch goes on"
	endsEarly      fault = "a move ends before its target is in sync"
)

const (
	minISR = 2
	lagMs  = 10_000
)

var topicID = model.TopicID{1}

// entry is a record in a log.
type entry struct {
	epoch model.LeaderEpoch
	value int
}

// node is a broker. Its disk outlives its process.
type node struct {
	id      model.BrokerID
	storage int // which disk
	log     []entry
	synced  int // of log, survives a power cut
	savedHW model.Offset

	up      bool
	cut     bool // no message gets to it or away
	life    uint64
	epoch   int64 // of its registration
	applied int   // of world.images
	hw      model.Offset
	role    metadata.Partition
	lead    *replication.Leader
	waits   []waiting
}

// waiting is an acks=all record that is not answered.
type waiting struct {
	end   model.Offset
	value int
}

func (n *node) LogStart() model.Offset { return 0 }
func (n *node) LogEnd() model.Offset   { return model.Offset(len(n.log)) }

func (n *node) cache() (c epochs.Cache) {
	for i, e := range n.log {
		c, _ = c.Note(e.epoch, model.Offset(i))
	}
	return c
}

func (n *node) LogEndEpoch() model.LeaderEpoch { return n.cache().Latest() }
func (n *node) EpochEnd(e model.LeaderEpoch) (model.LeaderEpoch, model.Offset) {
	return n.cache().End(e, n.LogEnd())
}

func (n *node) CutFor(leader model.LeaderEpoch, leaderEnd model.Offset) (model.Offset, bool) {
	own, ownEnd := n.cache().Floor(leader, n.LogEnd())
	switch {
	case leader < 0 || own == model.NoEpoch:
		return min(max(leaderEnd, 0), n.LogEnd()), true
	case own != leader:
		return min(ownEnd, n.LogEnd()), false
	}
	return min(leaderEnd, ownEnd, n.LogEnd()), true
}

// cutTo is durable when it returns, as a log's is.
func (n *node) cutTo(to model.Offset) {
	n.log = n.log[:to]
	n.synced, n.hw, n.savedHW = min(n.synced, int(to)), min(n.hw, to), min(n.savedHW, to)
}

// message is on its way.
type message struct {
	from, to model.BrokerID
	what     string
	deliver  func()
}

// proposal is on its way to the controller.
type proposal struct {
	from *node
	life uint64
	p    replication.Proposal
}

type world struct {
	rnd   *rand.Rand
	fault fault
	now   int64 // ms
	told  []string
	done  counts

	nodes     []*node
	messages  []message
	proposals []proposal
	images    []*metadata.Image
	beats     map[model.BrokerID]beat

	committed []entry // below any high watermark that was shown
	leaders   map[model.LeaderEpoch]model.BrokerID
	highest   map[model.LeaderEpoch]model.Offset
	values    int
	acked     map[model.Offset]int
	wanted    []model.BrokerID // the replicas that the partition is to have in the end
}

type beat struct {
	at      int64
	epoch   int64
	applied uint64
}

func newWorld(seed uint64, f fault, done counts) *world {
	w := &world{
		rnd: rand.New(rand.NewPCG(seed, 7)), fault: f, done: done, now: 1,
		beats: map[model.BrokerID]beat{}, leaders: map[model.LeaderEpoch]model.BrokerID{}, highest: map[model.LeaderEpoch]model.Offset{}, acked: map[model.Offset]int{},
	}
	w.images = []*metadata.Image{metadata.Empty()}
	w.propose(metadata.BootstrapCluster{ClusterID: "c", MetadataVersion: metadata.CurrentMetadataVersion})
	for i := range 4 + w.rnd.IntN(2) {
		n := &node{id: model.BrokerID(i + 1), storage: i + 1}
		w.nodes = append(w.nodes, n)
		w.start(n)
		w.propose(metadata.UnfenceBroker{ID: n.id, Epoch: n.epoch})
	}
	replicas := w.some(3 + w.rnd.IntN(2))
	w.wanted = replicas
	w.propose(metadata.CreateTopic{ID: topicID, Name: "t", Assignments: [][]model.BrokerID{replicas}, Config: map[string]string{"min.insync.replicas": fmt.Sprint(minISR)}})
	return w
}

func (w *world) say(format string, args ...any) {
	w.told = append(w.told, fmt.Sprintf("%6d ", w.now)+fmt.Sprintf(format, args...))
}

func (w *world) image() *metadata.Image { return w.images[len(w.images)-1] }

// propose commits a command.
func (w *world) propose(cmd metadata.Command) metadata.Result {
	next, _, res := metadata.Apply(w.image(), w.image().Index()+1, cmd)
	if w.fault == keepsEpoch {
		next = withoutEpoch(w.image(), next)
	}
	w.images = append(w.images, next)
	if p := w.partition(); p != nil {
		w.say("committed %s: leader %d epoch %d.%d replicas %v isr %v elr %v move %+v (%v)", cmd.Kind(), p.Leader, p.LeaderEpoch, p.PartitionEpoch, p.Replicas, p.ISR, p.ELR, p.Move, res.Refusal)
	}
	return res
}

// some are that many nodes, in any order.
func (w *world) some(n int) []model.BrokerID {
	var out []model.BrokerID
	for _, i := range w.rnd.Perm(len(w.nodes))[:n] {
		out = append(out, w.nodes[i].id)
	}
	return out
}

// partition is what is committed of it.
func (w *world) partition() *metadata.Partition {
	if t := w.image().Topic("t"); t != nil {
		return &t.Partitions[0]
	}
	return nil
}

// start registers a node's process. It has applied its registration then.
func (w *world) start(n *node) {
	n.up, n.lead, n.waits = true, nil, nil
	n.life++
	n.hw = min(n.savedHW, n.LogEnd())
	n.role = metadata.Partition{Leader: metadata.NoLeader, LeaderEpoch: -1}
	res := w.propose(metadata.RegisterBroker{ID: n.id, StorageID: fmt.Sprint("disk-", n.storage), Incarnation: n.life*100 + uint64(n.id)})
	if res.Refusal != nil { // another disk under a node id that is not fenced yet
		n.up = false
		return
	}
	n.epoch = res.Value.(*metadata.Broker).Epoch
	n.applied = len(w.images) - 1
	w.takeRole(n)
}

// stop ends a node's process; with power lost a part of what is not synced is gone.
func (w *world) stop(n *node, power bool) {
	n.up, n.lead, n.waits = false, nil, nil
	if power && n.synced < len(n.log) {
		keep := n.synced + w.rnd.IntN(len(n.log)-n.synced+1)
		w.say("node %d loses %d records that were not synced", n.id, len(n.log)-keep)
		n.log = n.log[:keep]
		w.done["unsynced records lost"]++
	}
	n.synced = len(n.log) // recovery syncs what it finds
}

// takeRole does what the metadata that the node has applied says.
func (w *world) takeRole(n *node) {
	t := w.images[n.applied].Topic("t")
	if t == nil {
		return
	}
	p := t.Partitions[0]
	was := n.role
	n.role = p
	if !slices.Contains(p.Replicas, n.id) {
		if len(n.log) > 0 {
			w.say("node %d has no replica any more and discards its log", n.id)
			w.done["logs discarded"]++
		}
		n.lead, n.waits, n.log, n.synced, n.savedHW, n.hw = nil, nil, nil, 0, 0, 0
		return
	}
	if p.Leader != n.id {
		n.lead, n.waits = nil, nil
		if w.fault == cutsToHW && p.LeaderEpoch != was.LeaderEpoch {
			n.cutTo(n.hw)
		}
		return
	}
	s := replication.State{LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch, Replicas: p.Replicas, ISR: p.ISR, Adding: p.Adding()}
	if n.lead != nil && n.lead.Epoch() == p.LeaderEpoch {
		n.lead.Update(s, w.now)
		w.advance(n)
		return
	}
	w.say("node %d leads in epoch %d from %d, hw %d", n.id, p.LeaderEpoch, len(n.log), n.hw)
	w.done["leaderships"]++
	if other, twice := w.leaders[p.LeaderEpoch]; twice && other != n.id {
		w.wrong("epoch %d has two leaders, %d and %d", p.LeaderEpoch, other, n.id)
	}
	w.leaders[p.LeaderEpoch] = n.id
	n.waits = nil
	n.lead = replication.NewLeader(replication.Start{Self: n.id, LogEnd: n.LogEnd(), HighWatermark: n.hw}, s, w.now)
	w.advance(n)
}

func (w *world) stable(n *node) model.Offset {
	if w.fault == acksUnsynced {
		return n.LogEnd()
	}
	return model.Offset(n.synced)
}

// advance moves a leader's high watermark, shows what is below it and answers producers.
func (w *world) advance(n *node) {
	hw := n.lead.Advance(w.stable(n), minISR)
	if hw < w.highest[n.lead.Epoch()] {
		w.wrong("the high watermark of epoch %d went back from %d to %d", n.lead.Epoch(), w.highest[n.lead.Epoch()], hw)
	}
	w.highest[n.lead.Epoch()] = hw
	n.hw = hw
	for i := range min(int(hw), len(w.committed)) {
		if w.committed[i] != n.log[i] {
			w.wrong("offset %d was shown as %v, and node %d shows %v", i, w.committed[i], n.id, n.log[i])
		}
	}
	for i := len(w.committed); i < int(hw); i++ {
		w.committed = append(w.committed, n.log[i])
	}
	n.waits = slices.DeleteFunc(n.waits, func(x waiting) bool {
		if x.end <= hw {
			w.acked[x.end-1] = x.value
			w.done["acknowledged"]++
		}
		return x.end <= hw
	})
}

// stopped is how a seed ends where something is wrong.
type stopped struct{ what string }

func (w *world) wrong(format string, args ...any) { panic(stopped{fmt.Sprintf(format, args...)}) }

// check looks at what must hold between steps.
func (w *world) check() {
	p := w.partition()
	for off, v := range w.acked {
		if int(off) >= len(w.committed) || w.committed[off].value != v {
			w.wrong("record %d was acknowledged at offset %d and is not there", v, off)
		}
	}
	for _, n := range w.nodes {
		if n.lead != nil && n.lead.Epoch() == p.LeaderEpoch {
			w.hasAll(n, len(n.log), "leads")
		}
		if slices.Contains(p.ISR, n.id) {
			w.hasAll(n, n.synced, "is in sync")
		}
		if slices.Contains(p.ELR, n.id) {
			w.hasAll(n, n.synced, "is eligible")
		}
	}
}

func (w *world) hasAll(n *node, have int, why string) {
	if have < len(w.committed) || !slices.Equal(n.log[:len(w.committed)], w.committed) {
		w.wrong("node %d %s and has not all of the %d records that were shown: %d of %d are synced", n.id, why, len(w.committed), n.synced, len(n.log))
	}
}

// brokers is what the controller has heard.
func (w *world) brokers() (out []controller.Broker) {
	for b := range w.image().Brokers() {
		x := controller.Broker{ID: b.ID, Epoch: b.Epoch, Fenced: b.Fenced, Voter: true}
		h := w.beats[b.ID]
		x.Silent = msDuration(w.now - h.at)
		x.Said, x.Applied = h.epoch, h.applied
		x.Gone = !w.nodes[b.ID-1].up
		out = append(out, x)
	}
	return out
}
