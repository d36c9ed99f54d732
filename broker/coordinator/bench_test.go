package coordinator

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewire/broker/group"
	"tidewire/internal/fsx"
	"tidewire/internal/model"
)

// committers are members of as many groups, over all partitions of __consumer_offsets, on the
// disk of the machine.
func committers(b *testing.B, groups, partitions int) (*node, []*member) {
	n := startOver(b, newQuorum(b), fsx.OS(), b.TempDir())
	n.topic("t", partitions)
	out := make([]*member, groups)
	for i := range out {
		req := joining(fmt.Sprintf("group-%d", i), "t")
		req.SessionTimeout = group.MaxSessionTimeout
		out[i] = n.join(req)
	}
	var wg sync.WaitGroup
	for _, m := range out {
		wg.Go(func() {
			for len(m.poll(time.Second).Assignment.Held) < partitions {
				continue
			}
		})
	}
	wg.Wait()
	return n, out
}

// BenchmarkCommits has 64 callers commit offsets of some partitions each.
func BenchmarkCommits(b *testing.B) {
	for _, each := range []int{1, 10} {
		n, members := committers(b, 200, each)
		b.Run(fmt.Sprintf("partitions=%d", each), func(b *testing.B) {
			var turn, next atomic.Int64
			b.SetParallelism(32) // of two cores
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					m := members[int(turn.Add(1))%len(members)]
					req := group.CommitRequest{Member: m.id}
					at := model.Offset(next.Add(1))
					for p := range each {
						req.Offsets = append(req.Offsets, group.CommitOffset{Name: group.Name{Topic: "t", Partition: model.PartitionID(p)}, Next: at, Epoch: model.NoEpoch})
					}
					if _, err := n.Commit(b.Context(), m.group, req); err != nil {
						b.Error(err)
						return
					}
				}
			})
			b.StopTimer()
			s := b.Elapsed().Seconds()
			b.ReportMetric(float64(b.N)/s, "commits/s")
			b.ReportMetric(float64(b.N*each)/s, "offsets/s")
		})
	}
}

// BenchmarkPollsWithoutRecords is what a long poll costs that ends without records.
func BenchmarkPollsWithoutRecords(b *testing.B) {
	for _, partitions := range []int{1, 100, 2000} {
		b.Run(fmt.Sprintf("partitions=%d", partitions), func(b *testing.B) {
			n := newNode(b)
			n.topic("t", partitions)
			req := joining("g", "t")
			req.SessionTimeout = group.MaxSessionTimeout
			m := n.join(req)
			for len(m.poll(time.Second).Assignment.Held) < partitions {
				continue
			}
			b.ReportAllocs()
			for b.Loop() {
				_, err := m.try(b.Context(), m.request(0))
				require.NoError(b, err)
			}
		})
	}
}

// BenchmarkMemoryOfAMember is what an idle member takes while its long poll waits, all in.
func BenchmarkMemoryOfAMember(b *testing.B) {
	n := newNode(b)
	n.topic("t", 10)
	const groups, each = 100, 10
	var members []*member
	for i := range groups {
		for range each {
			req := joining(fmt.Sprintf("group-%d", i), "t")
			req.SessionTimeout = group.MaxSessionTimeout
			members = append(members, n.join(req))
		}
	}
	for _, m := range members {
		m.poll(time.Second)
	}
	before := inUse()
	ctx, cancel := context.WithCancel(b.Context())
	var wg sync.WaitGroup
	for _, m := range members {
		wg.Go(func() {
			for ctx.Err() == nil {
				g, err := m.try(ctx, m.request(time.Minute))
				if err == nil {
					m.cursor = g.Cursor
				}
			}
		})
	}
	for n.metrics.polls.Load() < groups*each {
		<-time.After(10 * time.Millisecond)
	}
	<-time.After(2 * time.Second)
	for b.Loop() {
		b.ReportMetric(float64(inUse()-before)/groups/each, "B/poll")
	}
	cancel()
	wg.Wait()
}

func inUse() uint64 {
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.HeapInuse + s.StackInuse
}
