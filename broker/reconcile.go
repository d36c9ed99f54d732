package broker

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"

	"tidewire/broker/operations"
	"tidewire/broker/partition"
	"tidewire/cluster/metadata"
	"tidewire/internal/model"
	"tidewire/storage/log"
)

// onChange notes which topics to look at; it runs on the applying goroutine and must
// not block.
func (b *Broker) onChange(old, now *metadata.Image, d metadata.Delta) {
	b.mu.Lock()
	for id := range d.Topics {
		for _, img := range []*metadata.Image{old, now} {
			if t := img.TopicByID(id); t != nil {
				b.pending[t.Name] = struct{}{}
			}
		}
	}
	if d.ClusterConfig {
		b.noteClusterConfigLocked(now)
	}
	b.mu.Unlock()
	select {
	case b.kick <- struct{}{}:
	default:
	}
	b.wakeGuards(old, &d)
}

// passEnd is closed at the end of the first reconciliation pass that ends after now.
func (b *Broker) passEnd() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.pass
}

func (b *Broker) reconcileLoop(ctx context.Context) {
	r := newReopening()
	defer r.timer.Stop()
	for {
		b.reconcilePending()
		b.mu.Lock()
		r.plan(len(b.unopened) > 0)
		b.mu.Unlock()
		select {
		case <-b.kick:
		case <-r.timer.C:
			r.fired()
			b.retryUnopened()
		case <-ctx.Done():
			return
		}
	}
}

func (b *Broker) reconcilePending() {
	b.mu.Lock()
	names := make([]string, 0, len(b.pending))
	for n := range b.pending {
		names = append(names, n)
	}
	clear(b.pending)
	b.mu.Unlock()
	slices.Sort(names)
	img := b.meta.Image()
	for _, n := range names {
		b.reconcileTopic(n, img.Topic(n))
	}
	if len(names) > 0 {
		b.kickRetention() // settings may have changed
	}
	b.mu.Lock()
	close(b.pass)
	b.pass = make(chan struct{})
	b.mu.Unlock()
}

// openers is how many topics are looked at at once at the start, and how many logs are
// opened at once: opening mostly waits for the disk.
const openers = 8

func (b *Broker) openAll(img *metadata.Image) {
	work := make(chan *metadata.Topic)
	var wg sync.WaitGroup
	for range openers {
		wg.Add(1)
		b.group.Go("broker/open", func(context.Context) {
			defer wg.Done()
			for t := range work {
				b.reconcileTopic(t.Name, t)
			}
		})
	}
	for t := range img.Topics("") {
		work <- t
	}
	close(work)
	wg.Wait()
}

// reconcileTopic makes this node's topic of that name what the image says; want is nil
// where the image has none.
func (b *Broker) reconcileTopic(name string, want *metadata.Topic) {
	var t *topic
	if v, ok := b.topics.Load(name); ok {
		t = v.(*topic)
	}
	b.mu.Lock()
	delete(b.unopened, name)
	b.mu.Unlock()
	if t != nil && (want == nil || t.id != want.ID) {
		b.topics.Delete(name)
		b.dropTopic(t)
		t = nil
	}
	if want == nil {
		if v, ok := b.underway.LoadAndDelete(workKey{operations.CreatePartitions, name}); ok {
			v.(*operations.Operation).End(unknownTopic(name)) // deleted before they were opened
		}
		return
	}
	if t == nil {
		t = newTopic(want)
	}
	t.config.Store(configOf(want.Config))
	b.leaveMoved(t, want)
	b.reopenTopic(t, want)
	b.growTopic(t, want)
	logs := t.openLogs()
	for i, p := range *t.parts.Load() {
		if p == nil {
			continue
		}
		configure(p, logs[i], want.Config)
		b.replicas.Take(b.nodeID, p, &want.Partitions[i])
	}
	t.noteLed(want, b.nodeID)
	t.inForce.Store(want.Config)
	b.topics.Store(name, t)
}

// noteLed notes which partitions this node leads.
func (t *topic) noteLed(want *metadata.Topic, me model.BrokerID) {
	lead := slices.Clone(*t.parts.Load())
	nobody := make([]bool, len(lead))
	for i := range lead {
		if i >= len(want.Partitions) || want.Partitions[i].Leader != me {
			lead[i] = nil
		}
		nobody[i] = i < len(want.Partitions) && want.Partitions[i].Leader == metadata.NoLeader
	}
	t.lead.Store(&lead)
	t.nobody.Store(nil)
	if slices.Contains(nobody, true) {
		t.nobody.Store(&nobody)
	}
}

// configure gives a partition and its log a topic's settings. The log's limit of message
// bytes is never below the partition's, or it would refuse what was merged by the latter.
func configure(p *partition.Partition, l *log.Log, c *metadata.TopicConfig) {
	s, lc := settingsOf(c), logConfigOf(c)
	if s.MaxMessageBytes > p.Settings().MaxMessageBytes {
		l.SetConfig(lc)
		p.SetSettings(s)
		return
	}
	p.SetSettings(s)
	l.SetConfig(lc)
}

// dropTopic ends a topic that was deleted: waiting calls learn it, its files go to the
// trash folder.
func (b *Broker) dropTopic(t *topic) {
	b.replicas.Leave(t.id, len(*t.parts.Load()))
	t.close(unknownTopic(t.name))
	logs := t.openLogs()
	op := b.takeWork(workKey{operations.DeletePartitions, t.name}, len(logs))
	failed := 0
	for i, l := range logs {
		if op.Advance(1); l == nil {
			continue
		}
		if err := b.store.Remove(l); err != nil {
			failed++
			b.logger.Error("the files of a deleted topic could not be moved away", "topic", t.name, "partition", i, "error", err)
		}
	}
	if failed > 0 {
		op.End(model.Errorf(model.StorageError, "the files of %d partitions could not be moved away; the log of the node says why", failed))
		return
	}
	op.End(nil)
}

// expectedFolders tells which folders belong to a replica of this node.
func (b *Broker) expectedFolders(img *metadata.Image) func(folder string) bool {
	return func(folder string) bool {
		i := strings.LastIndexByte(folder, '-')
		if i < 0 {
			return false
		}
		t := img.Topic(folder[:i])
		n, err := strconv.Atoi(folder[i+1:])
		return t != nil && err == nil && n >= 0 && n < len(t.Partitions) && slices.Contains(t.Partitions[n].Replicas, b.nodeID)
	}
}
