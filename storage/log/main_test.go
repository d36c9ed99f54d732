package log

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tidewire/internal/fsx"
	"tidewire/internal/lifecycle"
	"tidewire/internal/model"
	"tidewire/storage/record"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const allOffsets = model.Offset(math.MaxInt64)

var testID = model.TopicID{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}

// tb is what testing.TB and rapid.T have in common.
type tb interface {
	Helper()
	Errorf(format string, args ...any)
	Fatal(args ...any)
	FailNow()
}

// harness is a store over a file system, which tests stop, cut the power of, and
// start again.
type harness struct {
	t     tb
	fs    fsx.FS
	group *lifecycle.Group
	store *Store
	opts  StoreOptions
}

func newHarness(t tb, fsys fsx.FS, dir string) *harness {
	t.Helper()
	h := &harness{t: t, fs: fsys, opts: StoreOptions{FS: fsys, Dir: dir, CheckpointInterval: time.Hour}}
	h.start()
	return h
}

func (h *harness) start() {
	h.t.Helper()
	h.group = lifecycle.New(context.Background())
	h.opts.Group = h.group
	h.opts.FS = h.fs
	s, err := OpenStore(h.opts)
	require.NoError(h.t, err)
	h.store = s
}

// stop ends the store cleanly.
func (h *harness) stop() error {
	err := h.store.Close()
	require.NoError(h.t, h.group.Stop(10*time.Second))
	return err
}

// kill ends the store as kill -9 does: its goroutines stop, nothing is written.
func (h *harness) kill() {
	h.store.mu.Lock()
	h.store.closing = true
	close(h.store.stop)
	h.store.mu.Unlock()
	h.store.sched.Close()
	h.store.loopDone.Wait()
	for _, l := range h.store.openLogs() {
		_ = l.closeFiles()
	}
	require.NoError(h.t, h.group.Stop(10*time.Second))
}

func (h *harness) open(cfg Config) *Log {
	h.t.Helper()
	l, err := h.store.Open(testID, "events", 0, cfg)
	require.NoError(h.t, err)
	return l
}

// batch makes one batch of records with the given timestamps and values v<i>.
func batch(t tb, codec record.Codec, ts ...int64) []byte {
	t.Helper()
	b := record.NewBuilder(1024)
	for i, x := range ts {
		b.Add(x, []byte(fmt.Sprint("k", i)), []byte(fmt.Sprint("v", x)), nil)
	}
	out, err := b.Finish(codec)
	require.NoError(t, err)
	return out
}

// sized makes a batch of one record of about n bytes.
func sized(t tb, n int, ts int64) []byte {
	t.Helper()
	b := record.NewBuilder(n + 128)
	b.Add(ts, nil, make([]byte, n), nil)
	out, err := b.Finish(record.None)
	require.NoError(t, err)
	return out
}

type rec struct {
	off model.Offset
	ts  int64
	val string
}

// scan reads records from an offset to the log end, checking every CRC.
func scan(t tb, l *Log, from model.Offset, maxBytes int) []rec {
	t.Helper()
	var out []rec
	d := record.NewDecompressor(1 << 20)
	var it record.Iterator
	for from < l.LogEnd() {
		data, err := l.Read(nil, from, allOffsets, maxBytes)
		require.NoError(t, err)
		if len(data) == 0 && l.Compacted() {
			return out // a gap reaches to the end
		}
		require.NotEmpty(t, data)
		for len(data) > 0 {
			b, rest, err := record.ParseBatch(data)
			require.NoError(t, err)
			require.NoError(t, b.VerifyCRC())
			require.NoError(t, b.Records(d, &it))
			for it.Next() {
				if r := it.Record(); r.Offset >= from {
					out = append(out, rec{r.Offset, r.Timestamp, string(r.Value)})
				}
			}
			require.NoError(t, it.Err())
			from = b.Header.NextOffset()
			data = rest
		}
	}
	return out
}

// waitStable waits until the log is synced up to its end.
func waitStable(t tb, l *Log) {
	t.Helper()
	ch := make(chan struct{}, 1)
	old := l.callbacks.Load()
	l.SetCallbacks(nil, func() {
		select {
		case ch <- struct{}{}:
		default:
		}
	}, nil)
	defer l.callbacks.Store(old)
	l.RequestSync()
	for l.StableEnd() < l.LogEnd() {
		require.NoError(t, l.Failed())
		select {
		case <-ch:
		case <-time.After(10 * time.Second):
			t.Fatal("no sync within 10 s")
		}
	}
}

type lifecycleGroup = lifecycle.Group

func newGroup() *lifecycleGroup { return lifecycle.New(context.Background()) }

type ctxT = context.Context
