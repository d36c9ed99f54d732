package fsm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tidewire/cluster/metadata"
	"tidewire/internal/model"
	"tidewire/storage/meta"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// parts are a state machine's surroundings, in memory but for SQLite and snapshots.
type parts struct {
	dir   string
	logs  *raft.InmemStore
	snaps *raft.FileSnapshotStore
	log   bytes.Buffer
	fatal []error
}

func newParts(t *testing.T) *parts {
	t.Helper()
	p := &parts{dir: t.TempDir(), logs: raft.NewInmemStore()}
	var err error
	p.snaps, err = raft.NewFileSnapshotStore(p.dir, 3, io.Discard)
	require.NoError(t, err)
	return p
}

func (p *parts) open(t *testing.T) (*FSM, error) {
	t.Helper()
	f, err := Open(Config{
		Path: filepath.Join(p.dir, "m.db"), Snapshots: p.snaps, Logs: p.logs,
		Logger: slog.New(slog.NewTextHandler(&p.log, nil)), Fatal: func(err error) { p.fatal = append(p.fatal, err) },
	})
	if err == nil {
		t.Cleanup(func() { _ = f.Close() })
	}
	return f, err
}

func entry(t *testing.T, index uint64, c metadata.Command) *raft.Log {
	t.Helper()
	b, err := metadata.EncodeCommand(c)
	require.NoError(t, err)
	return &raft.Log{Index: index, Term: 1, Type: raft.LogCommand, Data: b}
}

func user(name string) metadata.Command {
	return metadata.CreateUser{Name: name, Credentials: metadata.Credentials{PasswordHash: "h"}}
}

// entries are a log: a configuration, then the cluster's id and users a, b, c.
func entries(t *testing.T) []*raft.Log {
	return []*raft.Log{
		{Index: 1, Term: 1, Type: raft.LogConfiguration},
		entry(t, 2, metadata.BootstrapCluster{ClusterID: "c", MetadataVersion: 1}),
		entry(t, 3, user("a")), entry(t, 4, user("b")), entry(t, 5, user("c")),
	}
}

func (p *parts) snapshot(t *testing.T, f *FSM, index uint64) string {
	t.Helper()
	s, err := f.Snapshot()
	require.NoError(t, err)
	defer s.Release()
	_, trans := raft.NewInmemTransport("x")
	sink, err := p.snaps.Create(1, index, 1, raft.Configuration{}, 1, trans)
	require.NoError(t, err)
	require.NoError(t, s.Persist(sink))
	return sink.ID()
}

func TestEntriesThatWereAppliedAreSkipped(t *testing.T) {
	t.Parallel()
	p := newParts(t)
	f, err := p.open(t)
	require.NoError(t, err)
	logs := entries(t)
	require.NoError(t, p.logs.StoreLogs(logs))
	answers := f.ApplyBatch(logs[:4])
	require.Equal(t, uint64(3), answers[2].(metadata.Result).Index)
	require.NoError(t, f.Close())

	f, err = p.open(t)
	require.NoError(t, err)
	require.Equal(t, uint64(4), f.Applied())
	before := f.Image()
	f.ApplyBatch(logs[:4]) // the replay; applying user a again would be a refusal with an index of its own
	require.Same(t, before, f.Image())
	answers = f.ApplyBatch(logs[2:])
	require.Nil(t, answers[2].(metadata.Result).Refusal)
	require.Equal(t, 3, f.Image().UserCount())
	require.Equal(t, uint64(5), f.Applied())
	require.Empty(t, p.log.String(), "nothing was rebuilt")
}

func TestARefusalIsAnAnswerAndNoFault(t *testing.T) {
	t.Parallel()
	p := newParts(t)
	f, err := p.open(t)
	require.NoError(t, err)
	logs := append(entries(t), entry(t, 6, user("a")), entry(t, 7, user("d")))
	answers := f.ApplyBatch(logs)
	require.Equal(t, model.UserExists, answers[5].(metadata.Result).Refusal.Code)
	require.Nil(t, answers[6].(metadata.Result).Refusal)
	require.Empty(t, p.fatal)
}

func TestALocalFaultStopsTheMachineForGood(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(f *FSM) *raft.Log{
		"unknown kind": func(*FSM) *raft.Log { return &raft.Log{Index: 6, Data: append([]byte{1, 0, 3}, `new{}`...)} },
		"malformed":    func(*FSM) *raft.Log { return &raft.Log{Index: 6, Data: []byte("x")} },
		"database": func(f *FSM) *raft.Log {
			_ = f.store.Close()
			return entry(t, 6, user("x"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newParts(t)
			f, err := p.open(t)
			require.NoError(t, err)
			f.ApplyBatch(entries(t))
			before := f.Image()
			published := 0
			f.Subscribe(func(_, _ *metadata.Image, _ metadata.Delta) { published++ })
			answers := f.ApplyBatch([]*raft.Log{fault(f), entry(t, 7, user("d"))})
			require.ErrorIs(t, answers[0].(error), errStopped)
			require.ErrorIs(t, f.ApplyBatch([]*raft.Log{entry(t, 8, user("e"))})[0].(error), errStopped)
			require.Same(t, before, f.Image())
			require.Zero(t, published)
			require.Len(t, p.fatal, 1)
			require.ErrorIs(t, f.WaitApplied(t.Context(), 8), errStopped)
			_, err = f.Snapshot()
			require.ErrorIs(t, err, errStopped)
		})
	}
}

func TestADatabaseBelowTheNewestSnapshotIsRebuilt(t *testing.T) {
	t.Parallel()
	p := newParts(t)
	f, err := p.open(t)
	require.NoError(t, err)
	logs := entries(t)
	require.NoError(t, p.logs.StoreLogs(logs))
	f.ApplyBatch(logs[:3])
	require.NoError(t, f.Close())
	old, err := os.ReadFile(filepath.Join(p.dir, "m.db"))
	require.NoError(t, err)
	f, err = p.open(t)
	require.NoError(t, err)
	f.ApplyBatch(logs)
	want := metadata.Encode(f.Image())
	p.snapshot(t, f, 5)
	require.NoError(t, f.Close())
	require.NoError(t, os.WriteFile(filepath.Join(p.dir, "m.db"), old, 0o600))

	p.log.Reset()
	f, err = p.open(t)
	require.NoError(t, err)
	require.True(t, bytes.Equal(want, metadata.Encode(f.Image())))
	require.Equal(t, uint64(5), f.Applied())
	require.Equal(t, 1, bytes.Count(p.log.Bytes(), []byte("\n")), p.log.String())
	require.Contains(t, p.log.String(), "below the newest snapshot")
}

func TestASnapshotTakenBehindRaftsOwnEntriesDoesNotCauseARebuild(t *testing.T) {
	t.Parallel()
	p := newParts(t)
	f, err := p.open(t)
	require.NoError(t, err)
	logs := append(entries(t), &raft.Log{Index: 6, Term: 1, Type: raft.LogBarrier}, &raft.Log{Index: 7, Term: 2, Type: raft.LogNoop})
	require.NoError(t, p.logs.StoreLogs(logs))
	f.ApplyBatch(logs[:5])
	p.snapshot(t, f, 7)
	require.NoError(t, f.Close())
	_, err = p.open(t)
	require.NoError(t, err)
	require.Empty(t, p.log.String())
}

func TestADamagedNewestSnapshotIsMadeUpForByAnOlderOneAndTheLog(t *testing.T) {
	t.Parallel()
	p := newParts(t)
	f, err := p.open(t)
	require.NoError(t, err)
	logs := entries(t)
	require.NoError(t, p.logs.StoreLogs(logs))
	f.ApplyBatch(logs[:3])
	p.snapshot(t, f, 3)
	f.ApplyBatch(logs[3:])
	id := p.snapshot(t, f, 5)
	want := metadata.Encode(f.Image())
	require.NoError(t, f.Close())
	require.NoError(t, os.Truncate(filepath.Join(p.dir, "snapshots", id, "state.bin"), 20))
	require.NoError(t, os.Remove(filepath.Join(p.dir, "m.db")))

	f, err = p.open(t)
	require.NoError(t, err)
	require.True(t, bytes.Equal(want, metadata.Encode(f.Image())))
	require.Equal(t, uint64(5), f.Applied())

	require.NoError(t, f.Close())
	require.NoError(t, os.Remove(filepath.Join(p.dir, "m.db")))
	require.NoError(t, p.logs.DeleteRange(1, 4))
	_, err = p.open(t)
	require.ErrorIs(t, err, ErrLogGap, "with those entries gone it must not go on")
}

func TestALogThatBeginsAfterNothingIsRefused(t *testing.T) {
	t.Parallel()
	p := newParts(t)
	require.NoError(t, p.logs.StoreLogs(entries(t)[2:]))
	_, err := p.open(t)
	require.ErrorIs(t, err, ErrLogGap)
}

func TestARestoredSnapshotIsPublishedAsADelta(t *testing.T) {
	t.Parallel()
	p, other := newParts(t), newParts(t)
	far, err := other.open(t)
	require.NoError(t, err)
	far.ApplyBatch(entries(t))
	f, err := p.open(t)
	require.NoError(t, err)
	f.ApplyBatch(append(entries(t)[:2], entry(t, 3, user("z"))))
	var got metadata.Delta
	f.Subscribe(func(_, _ *metadata.Image, d metadata.Delta) { got = d })
	require.NoError(t, f.Restore(io.NopCloser(bytes.NewReader(metadata.Encode(far.Image())))))
	require.Equal(t, map[string]metadata.Change{
		"a": metadata.Created, "b": metadata.Created, "c": metadata.Created, "z": metadata.Deleted,
	}, got.Users)
	require.True(t, bytes.Equal(metadata.Encode(far.Image()), metadata.Encode(f.Image())))
	require.NoError(t, f.WaitApplied(t.Context(), 5))
	require.ErrorIs(t, f.Restore(io.NopCloser(bytes.NewReader([]byte("x")))), metadata.ErrImageForm)
}

func TestWaitAppliedEndsWithItsContext(t *testing.T) {
	t.Parallel()
	p := newParts(t)
	f, err := p.open(t)
	require.NoError(t, err)
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	require.ErrorIs(t, f.WaitApplied(ctx, 1), cause)
}

// A disk without room is waited for, and what was to be written is written then; a node that stops
// meanwhile leaves it to its next start.
func TestAFullDiskIsWaitedFor(t *testing.T) {
	t.Parallel()
	p := newParts(t)
	f, err := p.open(t)
	require.NoError(t, err)
	tries := 0
	require.NoError(t, f.write(func() error {
		if tries++; tries <= 3 {
			require.Equal(t, tries > 1, f.WaitsForRoom())
			return fmt.Errorf("write: %w", meta.ErrFull)
		}
		return nil
	}))
	require.Equal(t, 4, tries)
	require.False(t, f.WaitsForRoom())
	require.Contains(t, p.log.String(), "the disk has room again")

	broken := errors.New("broken")
	require.ErrorIs(t, f.write(func() error { return broken }), broken)

	f.Closing()
	err = f.write(func() error { return meta.ErrFull })
	require.ErrorIs(t, err, errClosing)
	f.stop(err)
	require.Empty(t, p.fatal, "that a node stops is no fault")
	f.stop(broken)
	require.Equal(t, []error{broken}, p.fatal)
}
