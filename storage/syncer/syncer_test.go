package syncer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tidewire/internal/lifecycle"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const interval = 2 * time.Millisecond

// bench runs a scheduler in a bubble of its own time.
func bench(t *testing.T, fn func(t *testing.T, s *Scheduler)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		g := lifecycle.New(context.Background())
		s := New(interval)
		s.Start(g)
		fn(t, s)
		s.Close()
		require.NoError(t, g.Stop(time.Second))
	})
}

// disk is a member whose syncs wait until they are let through, and may fail.
type disk struct {
	*Member
	mu      sync.Mutex
	written int           // guarded by mu
	synced  int           // guarded by mu: of what was written when the last sync that went well began
	failed  error         // guarded by mu: latched
	fail    error         // guarded by mu: of the next sync
	syncs   int           // guarded by mu
	tells   int           // guarded by mu
	inside  atomic.Int32  // syncs and tells under way
	gate    chan struct{} // nil: syncs do not wait
	worst   atomic.Int32
}

func newDisk(gate chan struct{}) *disk {
	d := &disk{gate: gate}
	d.Member = NewMember(d.sync, d.tell)
	return d
}

func (d *disk) enter() { d.worst.Store(max(d.worst.Load(), d.inside.Add(1))) }

func (d *disk) sync() {
	d.enter()
	defer d.inside.Add(-1)
	d.mu.Lock()
	target, err := d.written, d.fail
	d.syncs++
	latched := d.failed != nil
	d.mu.Unlock()
	if d.gate != nil {
		<-d.gate
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case latched:
	case err != nil:
		d.failed = err
	default:
		d.synced = target
	}
}

func (d *disk) tell() {
	d.enter()
	defer d.inside.Add(-1)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tells++
}

func (d *disk) write(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.written += n
}

func (d *disk) state() (synced, syncs, tells int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.synced, d.syncs, d.tells
}

func TestOneSyncServesAllThatWait(t *testing.T) {
	t.Parallel()
	bench(t, func(t *testing.T, s *Scheduler) {
		gate := make(chan struct{})
		d := newDisk(gate)
		d.write(1)
		s.Enqueue(d.Member)
		synctest.Wait()
		require.True(t, d.Syncing())
		for range 50 { // while it runs
			d.write(1)
			s.Enqueue(d.Member)
		}
		gate <- struct{}{}
		synctest.Wait()
		synced, syncs, tells := d.state()
		require.Equal(t, []int{1, 2, 1}, []int{synced, syncs, tells}, "what came meanwhile is not in the first, and has one of its own")
		gate <- struct{}{}
		synctest.Wait()
		synced, syncs, tells = d.state()
		require.Equal(t, []int{51, 2, 2}, []int{synced, syncs, tells})
		require.False(t, d.Syncing())
		require.EqualValues(t, 1, d.worst.Load(), "one worker at a time")
	})
}

func TestWhatIsDirtyIsSyncedAnIntervalLater(t *testing.T) {
	t.Parallel()
	bench(t, func(t *testing.T, s *Scheduler) {
		d := newDisk(nil)
		began := time.Now()
		for range 10 {
			d.write(1)
			s.MarkDirty(d.Member)
		}
		synctest.Wait()
		_, syncs, _ := d.state()
		require.Zero(t, syncs)
		<-time.After(interval)
		synctest.Wait()
		synced, syncs, _ := d.state()
		require.Equal(t, []int{10, 1}, []int{synced, syncs})
		require.Equal(t, interval, time.Since(began))
		<-time.After(time.Hour)
		synctest.Wait()
		_, syncs, _ = d.state()
		require.Equal(t, 1, syncs, "an idle member is left alone")
	})
}

func TestWhoWasSyncedMeanwhileIsNotSyncedAgain(t *testing.T) {
	t.Parallel()
	bench(t, func(t *testing.T, s *Scheduler) {
		d := newDisk(nil)
		d.write(1)
		s.MarkDirty(d.Member)
		s.Enqueue(d.Member) // somebody waits
		synctest.Wait()
		<-time.After(10 * interval)
		synctest.Wait()
		synced, syncs, _ := d.state()
		require.Equal(t, []int{1, 1}, []int{synced, syncs})
		d.write(1)
		s.MarkDirty(d.Member)
		<-time.After(2 * interval)
		synctest.Wait()
		synced, _, _ = d.state()
		require.Equal(t, 2, synced, "and is dirty again when it is written to")
	})
}

func TestAFailureThatLatchesStopsOnlyItsMember(t *testing.T) {
	t.Parallel()
	bench(t, func(t *testing.T, s *Scheduler) {
		gate := make(chan struct{})
		bad, good := newDisk(gate), newDisk(nil)
		bad.fail = errors.New("the disk is gone")
		bad.write(1)
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() { s.Enqueue(bad.Member); good.write(1); s.Enqueue(good.Member) })
		}
		wg.Wait()
		close(gate)
		synctest.Wait()
		synced, syncs, tells := bad.state()
		require.Error(t, bad.failed)
		require.Zero(t, synced)
		require.Equal(t, syncs, tells, "each sync is told of, also one that failed")
		bad.mu.Lock()
		bad.fail = nil // the kernel would report success now
		bad.mu.Unlock()
		s.Enqueue(bad.Member)
		synctest.Wait()
		synced, _, _ = bad.state()
		require.Zero(t, synced, "a member that has latched stays so")
		synced, _, _ = good.state()
		require.Equal(t, 20, synced)
	})
}

func TestNoMoreThanTheWorkersSyncAtATime(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		takes time.Duration // each sync
		few   int           // at a time
		most  int
	}{
		"where syncs are quick": {0, fewWorkers, fewWorkers},
		"where they are slow":   {slowSync * 8, fewWorkers, Workers}, // one of them makes the average
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bench(t, func(t *testing.T, s *Scheduler) {
				gate := make(chan struct{})
				disks := make([]*disk, 3*Workers)
				for i := range disks {
					disks[i] = newDisk(gate)
					s.Enqueue(disks[i].Member)
				}
				running := func() (n int) {
					for _, d := range disks {
						if d.Syncing() {
							n++
						}
					}
					return n
				}
				synctest.Wait()
				require.Equal(t, c.few, running())
				<-time.After(c.takes)
				most := 0
				for range len(disks) {
					gate <- struct{}{}
					synctest.Wait()
					most = max(most, running())
				}
				require.Equal(t, c.most, most)
				for i, d := range disks {
					_, syncs, _ := d.state()
					require.Equal(t, 1, syncs, "member %d", i)
				}
			})
		})
	}
}

func TestTheWorkersAreFewAgainOnceSyncsAreQuick(t *testing.T) {
	t.Parallel()
	bench(t, func(t *testing.T, s *Scheduler) {
		slow := newDisk(make(chan struct{}))
		s.Enqueue(slow.Member)
		<-time.After(8 * slowSync)
		slow.gate <- struct{}{}
		synctest.Wait()
		quick := newDisk(nil)
		for range 100 {
			s.Enqueue(quick.Member)
			synctest.Wait()
		}
		gate := make(chan struct{})
		disks := make([]*disk, Workers)
		for i := range disks {
			disks[i] = newDisk(gate)
			s.Enqueue(disks[i].Member)
		}
		synctest.Wait()
		running := 0
		for _, d := range disks {
			if d.Syncing() {
				running++
			}
		}
		require.Equal(t, fewWorkers, running)
		close(gate)
	})
}

func TestDrainWaitsForTheSyncThatRuns(t *testing.T) {
	t.Parallel()
	bench(t, func(t *testing.T, s *Scheduler) {
		gate := make(chan struct{})
		d := newDisk(gate)
		d.write(1)
		s.Enqueue(d.Member)
		synctest.Wait()
		s.MarkDirty(d.Member)
		drained := make(chan struct{})
		go func() { s.Drain(d.Member); close(drained) }()
		waited := make(chan struct{})
		go func() { s.WaitRunning(d.Member); close(waited) }()
		synctest.Wait()
		for _, c := range []chan struct{}{drained, waited} {
			select {
			case <-c:
				t.Fatal("a sync was not waited for")
			default:
			}
		}
		gate <- struct{}{}
		<-drained
		<-waited
		_, _, tells := d.state()
		require.Equal(t, 1, tells, "nor its callbacks")
		<-time.After(10 * interval)
		synctest.Wait()
		_, syncs, _ := d.state()
		require.Equal(t, 1, syncs, "a drained member is not dirty any more")
	})
}

func TestCloseEndsAfterWhatRunsAndLeavesTheQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := lifecycle.New(context.Background())
		s := New(interval)
		s.Start(g)
		gate := make(chan struct{})
		disks := make([]*disk, fewWorkers+3)
		for i := range disks {
			disks[i] = newDisk(gate)
			disks[i].write(1)
			s.Enqueue(disks[i].Member)
		}
		synctest.Wait()
		closed := make(chan struct{})
		go func() { s.Close(); close(closed) }()
		synctest.Wait()
		close(gate)
		<-closed
		total := 0
		for _, d := range disks {
			_, syncs, tells := d.state()
			require.Equal(t, syncs, tells)
			total += syncs
		}
		require.Equal(t, fewWorkers, total)
		s.Drain(disks[len(disks)-1].Member) // of a queue that nobody works off, it returns
		s.MarkDirty(disks[0].Member)
		s.Close()
		require.NoError(t, g.Stop(time.Second))
	})
}

func TestEachCallsForAllAndGivesAnError(t *testing.T) {
	t.Parallel()
	for _, stopped := range []bool{false, true} {
		g := lifecycle.New(context.Background())
		if stopped {
			require.NoError(t, g.Stop(time.Second))
		}
		for _, n := range []int{0, 1, Workers, 100} {
			var seen sync.Map
			var count atomic.Int32
			err := Each(g, n, func(i int) error {
				_, twice := seen.LoadOrStore(i, true)
				if count.Add(1); twice {
					return errors.New("twice")
				}
				if i%7 == 3 {
					return fmt.Errorf("number %d", i)
				}
				return nil
			})
			require.EqualValues(t, n, count.Load(), "an error ends nothing")
			if n > 3 {
				require.ErrorContains(t, err, "number")
			} else {
				require.NoError(t, err)
			}
		}
		require.NoError(t, g.Stop(time.Second))
	}
}
