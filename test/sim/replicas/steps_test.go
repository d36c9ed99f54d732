package replicas

import (
	"slices"
	"time"

	"tidewire/broker/replication"
	"tidewire/cluster/controller"
	"tidewire/cluster/metadata"
	"tidewire/internal/model"
)

func msDuration(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }

// step is something that happens; it reports whether it could.
type step struct {
	name   string
	weight int
	do     func(*world) bool
}

func steps() []step {
	return []step{
		{"produce", 20, (*world).produce},
		{"sync", 40, (*world).sync},
		{"fetch", 50, (*world).fetch},
		{"deliver", 110, (*world).deliver},
		{"lose a message", 4, (*world).loseMessage},
		{"double a message", 5, (*world).doubleMessage},
		{"learn of the metadata", 25, (*world).learn},
		{"beat", 10, (*world).beat},
		{"control", 8, (*world).control},
		{"want another ISR", 8, (*world).wantISR},
		{"decide on an ISR", 7, (*world).decideISR},
		{"save the high watermark", 4, (*world).saveHW},
		{"let time pass", 6, (*world).pass},
		{"cut a node off", 1, (*world).cutOff},
		{"heal the network", 4, (*world).heal},
		{"kill", 1, func(w *world) bool { return w.crash(false) }},
		{"cut the power", 1, func(w *world) bool { return w.crash(true) }},
		{"start", 6, (*world).restart},
		{"start with an empty disk", 1, (*world).restartEmpty},
		{"move", 1, (*world).move},
		{"drain a node", 1, (*world).drain},
		{"end a drain", 1, (*world).undrain},
		{"cancel a move", 1, (*world).cancelMove},
		{"elect the preferred leader", 1, (*world).electPreferred},
	}
}

// pick is a node for which ok holds.
func (w *world) pick(ok func(*node) bool) *node {
	var fit []*node
	for _, n := range w.nodes {
		if ok(n) {
			fit = append(fit, n)
		}
	}
	if len(fit) == 0 {
		return nil
	}
	return fit[w.rnd.IntN(len(fit))]
}

func (w *world) produce() bool {
	n := w.pick(func(n *node) bool { return n.up && n.lead != nil })
	if n == nil {
		return false
	}
	if n.lead.ISR() < minISR && w.rnd.IntN(4) > 0 {
		w.done["refused for want of replicas"]++
		return true
	}
	w.values++
	n.log = append(n.log, entry{n.lead.Epoch(), w.values})
	if n.lead.ISR() >= minISR {
		n.waits = append(n.waits, waiting{n.LogEnd(), w.values})
	}
	if w.fault == acksUnsynced {
		w.advance(n)
	}
	return true
}

func (w *world) sync() bool {
	n := w.pick(func(n *node) bool { return n.up && n.synced < len(n.log) })
	if n == nil {
		return false
	}
	n.synced = len(n.log)
	if n.lead != nil {
		w.advance(n)
	}
	return true
}

func (w *world) post(from, to model.BrokerID, what string, deliver func()) {
	if len(w.messages) < 60 {
		w.messages = append(w.messages, message{from, to, what, deliver})
	}
}

func (w *world) fetch() bool {
	n := w.pick(func(n *node) bool {
		return n.up && n.lead == nil && n.role.Leader != metadata.NoLeader && n.role.Leader != n.id && n.role.LeaderEpoch >= 0 &&
			slices.Contains(n.role.Replicas, n.id)
	})
	if n == nil {
		return false
	}
	at := replication.Position{Epoch: n.role.LeaderEpoch, LogEnd: n.LogEnd(), LastEpoch: n.LogEndEpoch(), StableEnd: w.stable(n)}
	leader, who, life := w.nodes[n.role.Leader-1], replication.Member{ID: n.id, Epoch: n.epoch}, n.life
	w.post(n.id, leader.id, "fetch", func() { w.serve(leader, n, who, life, at) })
	return true
}

// serve answers a fetch at the leader.
func (w *world) serve(l, f *node, who replication.Member, life uint64, at replication.Position) {
	if !l.up || l.lead == nil || l.lead.Epoch() != at.Epoch {
		return
	}
	a := replication.Serve(l, at)
	if w.fault == cutsToHW && at.LogEnd <= l.LogEnd() {
		a = replication.Answer{}
	}
	var data []entry
	if a.Verdict == replication.Serving {
		if !l.lead.Fetched(replication.Progress{Member: who, LogEnd: at.LogEnd, StableEnd: at.StableEnd}, l.LogEnd(), w.now) {
			w.done["an earlier life refused"]++
			return
		}
		w.advance(l)
		data = slices.Clone(l.log[at.LogEnd:min(int(at.LogEnd)+1+w.rnd.IntN(4), len(l.log))])
	} else {
		l.lead.Forget(who)
	}
	hw := l.hw
	w.post(l.id, f.id, "answer", func() { w.apply(f, life, at, a, hw, data) })
}

// apply does with an answer what it says.
func (w *world) apply(f *node, life uint64, at replication.Position, a replication.Answer, hw model.Offset, data []entry) {
	if !f.up || f.life != life || f.lead != nil || f.role.LeaderEpoch != at.Epoch || !replication.SameLog(f.LogEnd(), f.LogEndEpoch(), at) {
		return
	}
	switch s := replication.Next(f, a); s.Action {
	case replication.Truncate:
		w.say("node %d cuts its log from %d to %d", f.id, len(f.log), s.To)
		w.done["truncations"]++
		f.cutTo(s.To)
	case replication.Restart:
		w.say("node %d begins anew", f.id)
		f.cutTo(0)
	case replication.Append:
		f.log = append(f.log, data...)
		f.hw = max(f.hw, min(hw, f.LogEnd()))
	}
}

func (w *world) deliver() bool {
	if len(w.messages) == 0 {
		return false
	}
	i := w.rnd.IntN(min(len(w.messages), 1+w.rnd.IntN(6))) // mostly in order
	m := w.messages[i]
	w.messages = slices.Delete(w.messages, i, i+1)
	if w.nodes[m.from-1].cut || w.nodes[m.to-1].cut {
		w.done["messages into the void"]++
		return true
	}
	m.deliver()
	return true
}

func (w *world) loseMessage() bool {
	if len(w.messages) == 0 {
		return false
	}
	i := w.rnd.IntN(len(w.messages))
	w.messages = slices.Delete(w.messages, i, i+1)
	return true
}

func (w *world) doubleMessage() bool {
	if len(w.messages) == 0 {
		return false
	}
	w.messages = append(w.messages, w.messages[w.rnd.IntN(len(w.messages))])
	return true
}

func (w *world) learn() bool {
	n := w.pick(func(n *node) bool { return n.up && !n.cut && n.applied < len(w.images)-1 })
	if n == nil {
		return false
	}
	n.applied += 1 + w.rnd.IntN(len(w.images)-1-n.applied)
	w.takeRole(n)
	return true
}

func (w *world) beat() bool {
	for _, n := range w.nodes {
		if n.up && !n.cut && w.rnd.IntN(8) > 0 {
			w.beats[n.id] = beat{at: w.now, epoch: n.epoch, applied: w.images[n.applied].Index()}
		}
	}
	return true
}

func (w *world) control() bool {
	next := controller.NextFencing(w.brokers())
	for _, id := range next.Fence {
		w.done["fenced"]++
		w.propose(metadata.FenceBroker{ID: id, Epoch: w.image().Broker(id).Epoch})
	}
	for _, id := range next.Unfence {
		w.done["unfenced"]++
		w.propose(metadata.UnfenceBroker{ID: id, Epoch: w.image().Broker(id).Epoch})
	}
	w.moveDrained()
	return true
}

func (w *world) wantISR() bool {
	n := w.pick(func(n *node) bool { return n.up && n.lead != nil })
	if n == nil {
		return false
	}
	p, ok := n.lead.Propose(n.LogEnd(), w.now, replication.Rule{LagMs: lagMs, Fit: func(m replication.Member) bool {
		b := w.images[n.applied].Broker(m.ID)
		return w.fault == believesGhosts || b != nil && !b.Fenced && b.Epoch == m.Epoch
	}})
	if !ok && w.rnd.IntN(60) == 0 {
		if p, ok = n.lead.Resign(w.now); ok {
			w.done["resigned"]++
		}
	}
	if !ok {
		return true
	}
	w.say("node %d wants the ISR %v in epoch %d.%d", n.id, p.ISR, p.LeaderEpoch, p.PartitionEpoch)
	w.proposals = append(w.proposals, proposal{n, n.life, p})
	if w.fault == growsAtOnce {
		s := replication.State{LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch, Replicas: n.role.Replicas}
		for _, m := range p.ISR {
			s.ISR = append(s.ISR, m.ID)
		}
		n.lead.Refused(p, w.now)
		n.lead.Update(s, w.now)
		w.advance(n)
	}
	return true
}

// decideISR has a proposal arrive at the controller, and its answer come back or not.
func (w *world) decideISR() bool {
	if len(w.proposals) == 0 {
		return false
	}
	i := w.rnd.IntN(len(w.proposals))
	x := w.proposals[i]
	w.proposals = slices.Delete(w.proposals, i, i+1)
	here := x.from.up && x.from.life == x.life && x.from.lead != nil && x.from.lead.Epoch() == x.p.LeaderEpoch
	if x.from.cut || w.rnd.IntN(10) == 0 {
		if here {
			x.from.lead.Unanswered(x.p, w.now)
		}
		w.done["proposals lost"]++
		return true
	}
	c := metadata.PartitionChange{Topic: topicID, LeaderEpoch: x.p.LeaderEpoch, PartitionEpoch: x.p.PartitionEpoch}
	for _, m := range x.p.ISR {
		if w.fault == believesGhosts {
			m.Epoch = w.image().Broker(m.ID).Epoch
		}
		c.ISR = append(c.ISR, metadata.InSync{ID: m.ID, Epoch: m.Epoch})
	}
	res := w.propose(metadata.AlterPartitions{Broker: x.from.id, Epoch: x.from.epoch, Changes: []metadata.PartitionChange{c}})
	refused := res.Refusal != nil || res.Value.([]metadata.PartitionAltered)[0].Refusal != nil
	if before := w.images[len(w.images)-2].Topic("t").Partitions[0].Move; before != nil && w.partition().Move == nil {
		w.done["moves ended"]++
	}
	switch {
	case refused:
		w.done["ISR refused"]++
	case len(w.partition().ISR) < len(w.images[len(w.images)-2].Topic("t").Partitions[0].ISR):
		w.done["ISR shrunk"]++
	default:
		w.done["ISR grown"]++
	}
	if here && w.rnd.IntN(5) == 0 {
		x.from.lead.Unanswered(x.p, w.now)
	} else if here && refused {
		x.from.lead.Refused(x.p, w.now)
		w.advance(x.from)
	}
	return true
}

func (w *world) saveHW() bool {
	n := w.pick(func(n *node) bool { return n.up })
	if n == nil {
		return false
	}
	n.savedHW = n.hw
	return true
}

func (w *world) pass() bool {
	w.now += int64(w.rnd.IntN(400))
	if w.rnd.IntN(30) == 0 {
		w.now += int64(w.rnd.IntN(12_000))
	}
	return true
}

func (w *world) cutOff() bool {
	n := w.pick(func(n *node) bool { return !n.cut })
	if n == nil {
		return false
	}
	w.say("node %d is cut off", n.id)
	n.cut = true
	return true
}

func (w *world) heal() bool {
	n := w.pick(func(n *node) bool { return n.cut })
	if n == nil {
		return false
	}
	w.say("node %d is reached again", n.id)
	n.cut = false
	return true
}

func (w *world) crash(power bool) bool {
	n := w.pick(func(n *node) bool { return n.up })
	if n == nil {
		return false
	}
	w.say("node %d stops, power lost: %v", n.id, power)
	w.stop(n, power)
	return true
}

func (w *world) restart() bool {
	n := w.pick(func(n *node) bool { return !n.up && !n.cut })
	if n == nil {
		return false
	}
	w.say("node %d starts", n.id)
	w.start(n)
	return true
}

// restartEmpty takes a disk away. Others that are in sync must be left, or there would be
// nobody to have the records.
func (w *world) restartEmpty() bool {
	p := w.partition()
	n := w.pick(func(n *node) bool {
		others := slices.DeleteFunc(slices.Clone(p.ISR), func(id model.BrokerID) bool { return id == n.id })
		return !n.up && !n.cut && w.image().Broker(n.id).Fenced && len(others) > 0
	})
	if n == nil {
		return false
	}
	w.say("node %d starts with an empty disk", n.id)
	n.log, n.synced, n.savedHW = nil, 0, 0
	n.storage += 100
	w.start(n)
	return true
}
