package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tidewire/internal/lifecycle"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// writer keeps what is written, unless it is told to fail.
type writer struct {
	mu      sync.Mutex
	entries []Entry // guarded by mu
	calls   int     // guarded by mu
	fail    error   // guarded by mu
	stall   time.Duration
}

func (w *writer) AppendAudit(_ context.Context, entries []Encoded) error {
	if w.stall > 0 {
		<-time.After(w.stall)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls++
	if w.fail != nil {
		return w.fail
	}
	for _, e := range entries {
		var x Entry
		if err := json.Unmarshal(e.Value, &x); err != nil {
			return err
		}
		w.entries = append(w.entries, x)
	}
	return nil
}

func (w *writer) set(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fail = err
}

func (w *writer) all() []Entry {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]Entry(nil), w.entries...)
}

// running is a log whose Run runs until stop.
func running(w *writer) (l *Log, stop func()) {
	l = NewLog(Config{Writer: w, Node: 7, Logger: slog.New(slog.DiscardHandler), Now: time.Now})
	g := lifecycle.New(context.Background())
	g.Go("audit", l.Run)
	return l, func() { _ = g.Stop(time.Minute) }
}

func made(i int) Entry { return Entry{Action: fmt.Sprint("a", i), Outcome: Success} }

func TestAnEntryIsWrittenWhenRecordReturns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &writer{}
		l, stop := running(w)
		defer stop()
		for i := range 100 {
			l.Record(made(i))
			require.Len(t, w.all(), i+1)
			require.Equal(t, fmt.Sprint("a", i), w.all()[i].Action)
		}
		require.Equal(t, int32(7), w.all()[0].Node)
		require.NotEqual(t, w.all()[0].ID, w.all()[1].ID)
		require.Equal(t, int64(100), l.Counts().Written)
	})
}

// A log that cannot be written slows the first call by its patience, later ones not at all,
// and writes all of them, in order, once it can.
func TestEntriesOutliveAFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &writer{}
		w.set(errors.New("no leader"))
		l, stop := running(w)
		defer stop()
		began := time.Now()
		for i := range 1000 {
			l.Record(made(i))
		}
		require.LessOrEqual(t, time.Since(began), patience)
		require.Equal(t, 1000, l.Counts().Queued)
		w.set(nil)
		time.Sleep(2 * longWait)
		got := w.all()
		require.Len(t, got, 1000)
		for i := range got {
			require.Equal(t, fmt.Sprint("a", i), got[i].Action)
		}
		require.Zero(t, l.Counts().Lost)
	})
}

func TestASlowLogHoldsACallNoLongerThanItsPatience(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &writer{stall: time.Minute}
		l, stop := running(w)
		defer stop()
		began := time.Now()
		l.Record(made(1))
		require.Equal(t, patience, time.Since(began))
		time.Sleep(2 * time.Minute)
		require.Len(t, w.all(), 1)
	})
}

// What the queue has no room for is counted, and told by an entry once there is room.
func TestWhatIsLostIsTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &writer{}
		w.set(errors.New("no leader"))
		l, stop := running(w)
		defer stop()
		const more = 77
		for i := range maxQueued + more {
			l.Record(made(i))
		}
		require.Equal(t, int64(more), l.Counts().Lost)
		w.set(nil)
		time.Sleep(2 * longWait)
		got := w.all()
		require.Len(t, got, maxQueued+1)
		last := got[maxQueued]
		require.Equal(t, "audit-lost", last.Action)
		require.EqualValues(t, more, last.Details["entries"])
	})
}

func TestTheQueueIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	l := NewLog(Config{Writer: &writer{}, Logger: slog.New(slog.DiscardHandler), Now: time.Now})
	big := made(1)
	big.Details = map[string]any{"x": strings.Repeat("x", maxEntry-1000)}
	for range maxQueued {
		l.Note(big)
	}
	require.LessOrEqual(t, l.bytes, maxBytes)
	require.Positive(t, l.Counts().Lost)
}

// Anybody can cause entries about refusals: they are limited for each address, so that one
// does not drown the others, changes always pass, and what was left out is told.
func TestAFloodOfRefusalsIsBoundedAndTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &writer{}
		l, stop := running(w)
		defer stop()
		refused := func(host string) { l.Note(Entry{Action: "login", Outcome: Refused, Host: host}) }
		for range 50_000 {
			refused("10.0.0.1")
		}
		refused("10.0.0.2")
		l.Record(made(1))
		synctest.Wait()
		by := map[string]int{}
		for _, e := range w.all() {
			by[e.Host]++
		}
		require.Equal(t, map[string]int{"10.0.0.1": sourceBurst, "10.0.0.2": 1, "": 1}, by)
		require.Equal(t, int64(50_000-sourceBurst), l.Counts().Suppressed)
		time.Sleep(tellEvery + time.Second)
		got := w.all()
		require.Equal(t, "audit-suppressed", got[len(got)-1].Action)
		require.EqualValues(t, 50_000-sourceBurst, got[len(got)-1].Details["entries"])
		refused("10.0.0.1")
		synctest.Wait()
		require.Len(t, w.all(), len(got)+1, "after a rest it is written again")

		for i := range 100_000 { // many addresses share the node's limit
			refused(fmt.Sprint("host", i))
		}
		synctest.Wait()
		require.LessOrEqual(t, len(w.all()), len(got)+1+totalBurst)
	})
}

func TestAStopWritesWhatIsQueuedAndTellsWhatIsNot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &writer{}
		l, stop := running(w)
		l.Note(made(1))
		stop()
		require.Len(t, w.all(), 1)
		l.Record(made(2)) // nobody writes any more: it does not wait
		require.Equal(t, int64(1), l.Counts().Lost)

		w = &writer{}
		w.set(errors.New("no leader"))
		l, stop = running(w)
		l.Note(made(1))
		stop()
		require.Equal(t, int64(1), l.Counts().Lost)
		require.Zero(t, l.Counts().Queued)
	})
}

func TestAnEntryIsOneBoundedLine(t *testing.T) {
	t.Parallel()
	evil := "x\n{\"action\":\"forged\"}\r\u2028\x1b[2J" + strings.Repeat("é", 5000) + "\xff"
	e := Entry{Action: "login", Resource: "user:" + evil, Principal: &evil, RequestID: evil, Host: evil, At: time.UnixMilli(1)}
	b := e.encode()
	require.LessOrEqual(t, len(b), maxEntry)
	for _, c := range b {
		require.GreaterOrEqual(t, c, byte(' '), "no control character")
	}
	require.NotContains(t, string(b), "\u2028")
	var back Entry
	require.NoError(t, json.Unmarshal(b, &back))
	require.LessOrEqual(t, len(back.Resource), maxText)
	require.True(t, strings.HasSuffix(back.Resource, "…"))
	require.Equal(t, "1970-01-01T00:00:00.001Z", back.Time)

	e = Entry{Action: "a", Before: map[string]any{"k": strings.Repeat("v", maxEntry)}}
	require.NoError(t, json.Unmarshal(e.encode(), &back))
	require.Equal(t, map[string]any{"truncated": true}, back.Details)
}

// The form is persisted.
func TestTheFormOfAnEntry(t *testing.T) {
	t.Parallel()
	e := Entry{
		ID: "1-0-1", Principal: new("User:alice"), Action: "update-topic-config", Resource: "topic:t", Outcome: Failed, Code: new("conflict"),
		Status: 409, RequestID: "r", Host: "h", Node: 1, Before: map[string]any{"a": "1"}, After: map[string]any{"a": "2"}, At: time.UnixMilli(1_700_000_000_123),
	}
	require.Equal(t, `{"id":"1-0-1","time":"2023-11-14T22:13:20.123Z","principal":"User:alice","action":"update-topic-config","resource":"topic:t",`+
		`"outcome":"failed","code":"conflict","status":409,"request_id":"r","host":"h","node":1,"before":{"a":"1"},"after":{"a":"2"},"details":null}`, string(e.encode()))
}
