package replicas

import (
	"flag"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tidewire/cluster/metadata"
	"tidewire/internal/model"
)

// The slice that every run of the tests does.
const (
	sliceSeeds = 400
	leastSteps = 1000
	// foundWithin is how many seeds a planted fault may stay unnoticed.
	foundWithin = 2000
)

var (
	seedsFlag = flag.Int("seeds", sliceSeeds, "how many seeds TestReplicas runs")
	firstFlag = flag.Uint64("first-seed", 1, "the first of them")
	stepsFlag = flag.Int("steps", leastSteps, "steps of each seed")
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// counts is how often each thing happened.
type counts map[string]int

func (c counts) add(o counts) {
	for k, n := range o {
		c[k] += n
	}
}

// failure is what is wrong in one seed.
type failure struct {
	seed uint64
	what string
	told []string
}

// runSeed runs one seed; every step that could be done is counted under its name.
func runSeed(seed uint64, steps int, f fault) (done counts, fail *failure) {
	done = counts{}
	w := newWorld(seed, f, done)
	defer func() {
		if p := recover(); p != nil {
			x, ours := p.(stopped)
			if !ours {
				buf := make([]byte, 16<<10)
				x.what = fmt.Sprintf("panic: %v\n%s", p, buf[:runtime.Stack(buf, false)])
			}
			fail = &failure{seed, x.what, w.told}
		}
	}()
	w.storm(steps)
	w.calm()
	return done, nil
}

func (w *world) storm(n int) {
	all := steps()
	sum := 0
	for _, s := range all {
		sum += s.weight
	}
	for range n {
		w.now += int64(w.rnd.IntN(40))
		at := w.rnd.IntN(sum)
		for _, s := range all {
			if at -= s.weight; at < 0 {
				if s.do(w) {
					w.done[s.name]++
				}
				break
			}
		}
		w.done["steps"]++
		w.check()
	}
}

// calm heals everything; all must become equal and in sync then. In some worlds one node stays
// away for a while first, and the others must be in sync without it.
func (w *world) calm() {
	w.say("the storm ceases")
	for _, n := range w.nodes {
		n.cut = false
	}
	if w.rnd.IntN(2) == 0 {
		w.calmWithout(w.nodes[w.rnd.IntN(len(w.nodes))])
	}
	for round := range 400 {
		w.calmRound(nil)
		if w.settled() {
			return
		}
		if round == 300 {
			w.say("nodes %+v", w.nodes)
		}
	}
	w.wrong("the replicas do not become equal and in sync: %+v", *w.partition())
}

// calmRound is a tenth of a second in which everything goes well, but for a node that stays
// away.
func (w *world) calmRound(away *node) {
	w.now += 100
	for _, n := range w.nodes {
		if n == away {
			continue
		}
		if !n.up {
			w.start(n)
		}
		if n.up {
			n.synced = len(n.log)
			n.applied = len(w.images) - 1
			w.takeRole(n)
			w.beats[n.id] = beat{at: w.now, epoch: n.epoch, applied: w.images[n.applied].Index()}
		}
	}
	w.control()
	for range 3 * len(w.nodes) {
		w.fetch()
		w.deliver()
		w.deliver()
	}
	w.wantISR()
	for len(w.proposals) > 0 {
		w.decideISR()
	}
	w.check()
}

// calmWithout lets the others become in sync while one node is away. A partition that only that
// one could lead waits for it, and a move to it does too.
func (w *world) calmWithout(away *node) {
	w.say("all are well but node %d", away.id)
	if away.up {
		w.stop(away, false)
	}
	for range 400 {
		w.calmRound(away)
		p := w.partition()
		if p.Leader == metadata.NoLeader || p.Move != nil {
			continue
		}
		if !slices.ContainsFunc(p.Replicas, func(id model.BrokerID) bool { return id != away.id && !slices.Contains(p.ISR, id) }) && !slices.Contains(p.ISR, away.id) {
			w.done["in sync without one node"]++
			return
		}
	}
	if p := w.partition(); p.Leader != metadata.NoLeader && p.Move == nil {
		w.wrong("the replicas that are there do not become in sync: %+v", *p)
	}
}

func (w *world) settled() bool {
	p := w.partition()
	if !w.drained() || p.Move != nil || len(p.ISR) != len(p.Replicas) || p.Leader < 0 {
		return false
	}
	l := w.nodes[p.Leader-1]
	if l.lead == nil || l.lead.Epoch() != p.LeaderEpoch || l.hw != l.LogEnd() {
		return false
	}
	if slices.ContainsFunc(w.nodes, func(n *node) bool {
		return !n.up || slices.Contains(p.Replicas, n.id) != (len(n.log) > 0) && len(l.log) > 0 || len(n.log) > 0 && !slices.Equal(n.log, l.log)
	}) {
		return false
	}
	if !slices.Equal(p.Replicas, w.wanted) {
		w.wrong("the partition ends with the replicas %v and was to have %v", p.Replicas, w.wanted)
	}
	return true
}

// effects must have happened in every run of the tests, beside every step.
var effects = []string{
	"acknowledged", "leaderships", "truncations", "unsynced records lost", "fenced", "unfenced", "ISR grown", "ISR shrunk",
	"ISR refused", "resigned", "proposals lost", "messages into the void", "an earlier life refused", "refused for want of replicas",
	"moves begun", "moves ended", "moves replaced", "moves cancelled", "moves refused", "drains moved the partition", "drains stuck", "logs discarded", "preferred leaders elected", "preferred leaders refused", "in sync without one node",
}

// Replicas in a storm keep their promises, and settle when it is over.
func TestReplicas(t *testing.T) { //nolint:paralleltest // it prints, and takes all processors
	total, first := counts{}, *firstFlag
	var mu sync.Mutex
	next, failures := 0, []*failure{}
	t.Run("seeds", func(t *testing.T) {
		for worker := range min(runtime.GOMAXPROCS(0), *seedsFlag) {
			t.Run(fmt.Sprint(worker), func(t *testing.T) {
				t.Parallel()
				for {
					mu.Lock()
					n := next
					next++
					stop := n >= *seedsFlag || len(failures) >= 5
					mu.Unlock()
					if stop {
						return
					}
					done, fail := runSeed(first+uint64(n), *stepsFlag, sound)
					mu.Lock()
					total.add(done)
					if fail != nil {
						failures = append(failures, fail)
					}
					mu.Unlock()
				}
			})
		}
	})
	printCounts(total, first)
	for _, f := range failures {
		tail := f.told[max(0, len(f.told)-40):]
		if testing.Verbose() && *seedsFlag == 1 {
			tail = f.told
		}
		t.Errorf("seed %d, of which the last is:\n  %s\n%s\nagain: go test ./test/sim/replicas -run %s -first-seed %d -seeds 1 -v",
			f.seed, strings.Join(tail, "\n  "), f.what, t.Name(), f.seed)
	}
	if len(failures) > 0 || *seedsFlag < sliceSeeds || *stepsFlag < leastSteps {
		return
	}
	require.GreaterOrEqual(t, total["steps"], leastSteps**seedsFlag)
	for _, s := range steps() {
		require.NotZero(t, total[s.name], "the step %q never came", s.name)
	}
	for _, k := range effects {
		require.NotZero(t, total[k], "%q never happened", k)
	}
}

func printCounts(total counts, first uint64) {
	fmt.Printf("replicas: seeds %d to %d, %d steps\n", first, first+uint64(*seedsFlag)-1, total["steps"])
	keys := make([]string, 0, len(total))
	for k := range total {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		fmt.Printf("  %-40s %10d\n", k, total[k])
	}
}

// A run that breaks a rule is noticed.
func TestPlantedFaultsAreFound(t *testing.T) {
	t.Parallel()
	for _, f := range []fault{cutsToHW, growsAtOnce, acksUnsynced, believesGhosts, keepsEpoch, endsEarly} {
		t.Run(string(f), func(t *testing.T) {
			t.Parallel()
			for seed := uint64(1); ; seed++ {
				require.LessOrEqual(t, seed, uint64(foundWithin), "nobody noticed")
				if _, fail := runSeed(seed, leastSteps, f); fail != nil {
					require.NotContains(t, fail.what, "panic", "the simulation itself is broken")
					t.Logf("seed %d: %s", seed, fail.what)
					return
				}
			}
		})
	}
}

// The same seed is the same run.
func TestASeedRepeatsItself(t *testing.T) {
	t.Parallel()
	for seed := uint64(100); seed < 103; seed++ {
		a, fa := runSeed(seed, 300, sound)
		b, fb := runSeed(seed, 300, sound)
		require.Nil(t, fa)
		require.Nil(t, fb)
		require.Equal(t, a, b)
	}
}
