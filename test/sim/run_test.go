package sim

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// The slice that every run of the tests does.
const (
	sliceSeeds = 150
	leastSteps = 500
)

var (
	seedsFlag = flag.Int("seeds", sliceSeeds, "how many seeds TestModel and TestCrash run")
	firstFlag = flag.Uint64("first-seed", 1, "the first of them")
	stepsFlag = flag.Int("steps", leastSteps, "steps of each seed")
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// counts is how often each thing of a kind happened.
type counts map[string]int

func (c counts) add(o counts) {
	for k, n := range o {
		c[k] += n
	}
}

// tally is what a run did.
type tally struct {
	seeds, steps      int
	step, fault, done counts
}

func newTally() *tally { return &tally{step: counts{}, fault: counts{}, done: counts{}} }

func (t *tally) add(o *tally) {
	t.seeds, t.steps = t.seeds+o.seeds, t.steps+o.steps
	t.step.add(o.step)
	t.fault.add(o.fault)
	t.done.add(o.done)
}

func (t *tally) print(name string, first uint64) {
	fmt.Printf("%s: seeds %d to %d, %d seeds, %d steps\n", name, first, first+uint64(t.seeds)-1, t.seeds, t.steps)
	for _, part := range []struct {
		name string
		c    counts
	}{{"step", t.step}, {"fault", t.fault}, {"check or effect", t.done}} {
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
	seed    uint64
	what    string
	history []string
}

// judge stops a seed where something is wrong.
type judge struct{ what []string }

type stopped struct{}

func (j *judge) Helper() {}
func (j *judge) Errorf(format string, args ...any) {
	j.what = append(j.what, fmt.Sprintf(format, args...))
}
func (j *judge) FailNow() { panic(stopped{}) }

// runSeed runs one seed in a bubble of its own.
func runSeed(t *testing.T, seed uint64, steps int, cuts bool) (out *tally, fail *failure) {
	out = newTally()
	synctest.Test(t, func(*testing.T) {
		s := newSim(seed, cuts, out, func(d time.Duration) { time.Sleep(d) })
		defer func() {
			if p := recover(); p != nil {
				what := strings.Join(s.j.what, "\n")
				if _, ours := p.(stopped); !ours {
					buf := make([]byte, 16<<10)
					what += fmt.Sprintf("\npanic: %v\n%s", p, buf[:runtime.Stack(buf, false)])
				}
				fail = &failure{seed, what + s.dump(), s.told}
			}
			s.quit()
		}()
		s.run(steps)
	})
	return out, fail
}

// runSeeds runs seeds on all processors and prints what came up.
func runSeeds(t *testing.T, name string, cuts bool) {
	total, first := newTally(), *firstFlag
	var mu sync.Mutex
	next, failures := 0, []*failure{}
	workers := min(runtime.GOMAXPROCS(0), *seedsFlag)
	t.Run("seeds", func(t *testing.T) {
		for w := range workers {
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
					out, fail := runSeed(t, first+uint64(n), *stepsFlag, cuts)
					mu.Lock()
					out.seeds = 1
					total.add(out)
					if fail != nil {
						failures = append(failures, fail)
					}
					mu.Unlock()
				}
			})
		}
	})
	total.print(name, first)
	for _, f := range failures {
		tail := f.history[max(0, len(f.history)-40):]
		if testing.Verbose() && *seedsFlag == 1 {
			tail = f.history
		}
		t.Errorf("seed %d, after %d steps, of which the last are:\n  %s\n%s\nagain: go test ./test/sim -run %s -first-seed %d -seeds 1 -v",
			f.seed, len(f.history), strings.Join(tail, "\n  "), f.what, t.Name(), f.seed)
	}
	if len(failures) > 0 || *seedsFlag < sliceSeeds || *stepsFlag < leastSteps {
		return
	}
	require.GreaterOrEqual(t, total.steps, leastSteps**seedsFlag)
	for _, k := range stepNames(cuts) {
		require.NotZero(t, total.step[k], "the step %q never came", k)
	}
	for _, k := range faultNames(cuts) {
		require.NotZero(t, total.fault[k], "the fault %q never came", k)
	}
	for _, k := range doneNames(cuts) {
		require.NotZero(t, total.done[k], "%q never happened", k)
	}
}

// A log that does all it can do, over clean stops, kills and failing operations, is what a
// plain list of batches says.
func TestModel(t *testing.T) { //nolint:paralleltest // it prints, and takes all processors
	runSeeds(t, "model", false)
}

// With power cut at any operation besides, what was acknowledged survives, in order and
// without a hole, and the next start never fails.
func TestCrash(t *testing.T) { //nolint:paralleltest // as above
	runSeeds(t, "crash", true)
}

// The same seed is the same run.
func TestASeedRepeatsItself(t *testing.T) {
	t.Parallel()
	if os.Getenv("SIM_ONLY") != "" {
		t.Skip()
	}
	for seed := uint64(100); seed < 103; seed++ {
		a, fa := runSeed(t, seed, 200, true)
		b, fb := runSeed(t, seed, 200, true)
		require.Nil(t, fa)
		require.Nil(t, fb)
		require.Equal(t, a, b)
	}
}
