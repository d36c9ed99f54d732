package groups

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
)

// The slice that every run of the tests does.
const (
	sliceSeeds = 150
	leastSteps = 500
)

var (
	seedsFlag = flag.Int("seeds", sliceSeeds, "how many seeds TestGroups runs")
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

// tally is what a run did.
type tally struct {
	steps      int
	step, done counts
}

func newTally() *tally { return &tally{step: counts{}, done: counts{}} }

func (t *tally) add(o *tally) {
	t.steps += o.steps
	t.step.add(o.step)
	t.done.add(o.done)
}

func (t *tally) print(first uint64, seeds int) {
	fmt.Printf("groups: seeds %d to %d, %d seeds, %d steps\n", first, first+uint64(seeds)-1, seeds, t.steps)
	for _, part := range []struct {
		name string
		c    counts
	}{{"step", t.step}, {"check or effect", t.done}} {
		keys := make([]string, 0, len(part.c))
		for k := range part.c {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		for _, k := range keys {
			fmt.Printf("  %-16s %-48s %10d\n", part.name, k, part.c[k])
		}
	}
}

// failure is what is wrong in one seed.
type failure struct {
	seed uint64
	what string
	told []string
}

// stopped is how a seed ends where something is wrong.
type stopped struct{ what string }

// runSeed runs one seed.
func runSeed(seed uint64, steps int) (out *tally, fail *failure) {
	out = newTally()
	s := newSim(seed, out)
	defer func() {
		if p := recover(); p != nil {
			x, ours := p.(stopped)
			if !ours {
				buf := make([]byte, 16<<10)
				x.what = fmt.Sprintf("panic: %v\n%s", p, buf[:runtime.Stack(buf, false)])
			}
			fail = &failure{seed, x.what, s.told}
		}
	}()
	s.run(steps)
	return out, nil
}

// A group in a storm keeps its promises, and settles when the storm is over.
func TestGroups(t *testing.T) { //nolint:paralleltest // it prints, and takes all processors
	total, first := newTally(), *firstFlag
	var mu sync.Mutex
	next, failures := 0, []*failure{}
	t.Run("seeds", func(t *testing.T) {
		for w := range min(runtime.GOMAXPROCS(0), *seedsFlag) {
			t.Run(fmt.Sprint(w), func(t *testing.T) {
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
					out, fail := runSeed(first+uint64(n), *stepsFlag)
					mu.Lock()
					total.add(out)
					if fail != nil {
						failures = append(failures, fail)
					}
					mu.Unlock()
				}
			})
		}
	})
	total.print(first, *seedsFlag)
	for _, f := range failures {
		tail := f.told[max(0, len(f.told)-40):]
		if testing.Verbose() && *seedsFlag == 1 {
			tail = f.told
		}
		t.Errorf("seed %d, after %d steps, of which the last are:\n  %s\n%s\nagain: go test ./test/sim/groups -run %s -first-seed %d -seeds 1 -v",
			f.seed, len(f.told), strings.Join(tail, "\n  "), f.what, t.Name(), f.seed)
	}
	if len(failures) > 0 || *seedsFlag < sliceSeeds || *stepsFlag < leastSteps {
		return
	}
	require.GreaterOrEqual(t, total.steps, leastSteps**seedsFlag)
	for _, x := range steps() {
		require.NotZero(t, total.step[x.name], "the step %q never came", x.name)
	}
	for _, k := range effects {
		require.NotZero(t, total.done[k], "%q never happened", k)
	}
}

// The same seed is the same run.
func TestASeedRepeatsItself(t *testing.T) {
	t.Parallel()
	for seed := uint64(100); seed < 103; seed++ {
		a, fa := runSeed(seed, 300)
		b, fb := runSeed(seed, 300)
		require.Nil(t, fa)
		require.Nil(t, fb)
		require.Equal(t, a, b)
	}
}
