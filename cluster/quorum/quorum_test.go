package quorum

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/hashicorp/raft-wal/fs"
	"github.com/hashicorp/raft-wal/types"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tidewire/cluster/fsm"
	"tidewire/cluster/metadata"
	"tidewire/internal/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTheIdentityFileIsTheGoldenOne(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, found, err := LoadIdentity(dir)
	require.NoError(t, err)
	require.False(t, found)
	id := Identity{StorageID: "s-1", ClusterID: "c-1"}
	require.NoError(t, SaveIdentity(dir, Identity{StorageID: "s-1"}))
	require.NoError(t, SaveIdentity(dir, id))
	b, err := os.ReadFile(filepath.Join(dir, "identity"))
	require.NoError(t, err)
	require.Equal(t, "tidewire-identity 1\nstorage-id s-1\ncluster-id c-1\ncrc32c 1ed4a1b3\n", string(b))
	got, found, err := LoadIdentity(dir)
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, id, got)
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, files, 1, "a temporary file was left")
}

func TestADamagedIdentityIsRefused(t *testing.T) {
	t.Parallel()
	good := Identity{StorageID: "s-1", ClusterID: "c-1"}.encode()
	for i := range good {
		bad := append([]byte{}, good...)
		bad[i] ^= 1
		_, err := decodeIdentity(bad)
		require.ErrorIs(t, err, ErrIdentity, "byte %d", i)
		_, err = decodeIdentity(good[:i])
		require.ErrorIs(t, err, ErrIdentity, "cut at %d", i)
	}
	_, err := decodeIdentity(append(good, '\n'))
	require.ErrorIs(t, err, ErrIdentity)
}

func FuzzDecodeIdentity(f *testing.F) {
	f.Add(Identity{StorageID: "s-1", ClusterID: "c-1"}.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if id, err := decodeIdentity(b); err == nil {
			require.Equal(t, b, id.encode())
		}
	})
}

// brokenStable fails on large values, brokenLog on everything once told to.
type brokenStable struct {
	raft.StableStore
	from uint64 // the values that cannot be stored
}

type brokenLog struct {
	raft.LogStore
	broken *atomic.Bool
}

var errDisk = errors.New("input/output error")

func (s brokenStable) SetUint64(k []byte, v uint64) error {
	if v >= s.from {
		return errDisk
	}
	return s.StableStore.SetUint64(k, v)
}

func (s brokenLog) StoreLogs(l []*raft.Log) error {
	if s.broken.Load() {
		return errDisk
	}
	return s.LogStore.StoreLogs(l)
}

// node is a quorum over a state machine whose stores can be broken.
type node struct {
	q         *Quorum
	stores    *Stores
	fsm       *fsm.FSM
	logBroken atomic.Bool
	fatal     chan error
}

// startNode runs one whose term cannot become failTerm.
func startNode(t *testing.T, failTerm uint64) *node {
	t.Helper()
	return startNodeOn(t, failTerm, fs.New())
}

func startNodeOn(t *testing.T, failTerm uint64, files types.VFS) *node {
	t.Helper()
	dir := t.TempDir()
	n := &node{fatal: make(chan error, 8)}
	fatal := func(err error) { n.fatal <- err }
	logger := NewLogger(slog.New(slog.DiscardHandler))
	var err error
	n.stores, err = openStores(dir, logger, fatal, nil, files)
	require.NoError(t, err)
	logs, stable := n.stores.Logs.(*logStore), n.stores.stable.(*stableStore)
	logs.LogStore = brokenLog{logs.LogStore, &n.logBroken}
	stable.StableStore = brokenStable{stable.StableStore, failTerm}
	n.fsm, err = fsm.Open(fsm.Config{
		Path: filepath.Join(dir, "m.db"), Snapshots: n.stores.Snapshots, Logs: n.stores.Logs, Logger: slog.New(slog.DiscardHandler), Fatal: fatal,
	})
	require.NoError(t, err)
	n.q, err = Start(Options{StorageID: "s-1", Stores: n.stores, Machine: n.fsm, Logger: logger, Found: true})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		require.NoError(t, n.q.Stop(ctx))
		require.NoError(t, n.fsm.Close())
		require.NoError(t, n.stores.Close())
	})
	return n
}

func command(t *testing.T, c metadata.Command) []byte {
	t.Helper()
	b, err := metadata.EncodeCommand(c)
	require.NoError(t, err)
	return b
}

func TestAFailedAppendStopsTheNodeAndIsNotTriedAgain(t *testing.T) {
	t.Parallel()
	n := startNode(t, 1<<63)
	require.NoError(t, n.q.WaitLeader(t.Context()))
	n.logBroken.Store(true)
	cmd := command(t, metadata.BootstrapCluster{ClusterID: "c", MetadataVersion: 1})
	_, err := n.q.Apply(t.Context(), cmd)
	require.True(t, model.HasCode(err, model.CommitUnknown), "%v", err)
	require.ErrorIs(t, <-n.fatal, errDisk)
	n.logBroken.Store(false) // the disk seems well again; it must not be trusted
	_, err = n.q.Apply(t.Context(), cmd)
	require.Error(t, err)
	require.ErrorIs(t, n.stores.Logs.StoreLogs([]*raft.Log{{Index: 99}}), errDisk)
	require.Empty(t, n.fatal, "told once")
	require.Empty(t, n.fsm.Image().Cluster().ID)
	require.True(t, model.HasCode(n.q.Barrier(t.Context()), model.QuorumUnavailable))
}

func TestAFailedTermWriteStopsTheNodeWithoutAPanic(t *testing.T) {
	t.Parallel()
	n := startNode(t, 2) // bootstrapping writes 1, the first election 2
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	select {
	case err := <-n.fatal:
		require.ErrorIs(t, err, errDisk)
	case <-ctx.Done():
		t.Fatal("nobody was told")
	}
	require.Error(t, n.q.WaitLeader(ctx))
	require.NoError(t, ctx.Err(), "waiting for a leader must end with raft")
}

func TestSnapshotsCarryTheStateOverARestartWithoutTheDatabase(t *testing.T) {
	t.Parallel()
	n := startNode(t, 1<<63)
	require.NoError(t, n.q.WaitLeader(t.Context()))
	_, err := n.q.Apply(t.Context(), command(t, metadata.BootstrapCluster{ClusterID: "c", MetadataVersion: 1}))
	require.NoError(t, err)
	require.NoError(t, n.q.raft.Snapshot().Error())
	_, err = n.q.Apply(t.Context(), command(t, metadata.CreateUser{Name: "u", Credentials: metadata.Credentials{PasswordHash: "h"}}))
	require.NoError(t, err)

	again, err := fsm.Open(fsm.Config{
		Path: filepath.Join(t.TempDir(), "new.db"), ClusterID: "c", Snapshots: n.stores.Snapshots, Logs: n.stores.Logs,
		Logger: slog.New(slog.DiscardHandler), Fatal: func(error) {},
	})
	require.NoError(t, err)
	defer again.Close()
	require.Equal(t, "c", again.Image().Cluster().ID)
	require.Nil(t, again.Image().User("u"), "that is in the log, which raft replays")
}

// A founding that was killed between raft's term and the first entry of its log is begun anew, and
// nothing else is.
func TestAFoundingThatWasCutShortIsBegunAnew(t *testing.T) {
	t.Parallel()
	for what, x := range map[string]struct {
		values map[string]uint64
		has    bool
	}{
		"nothing":                  {nil, false},
		"the term of a founding":   {map[string]uint64{"CurrentTerm": 1}, false},
		"the term of others":       {map[string]uint64{"CurrentTerm": 2}, true},
		"a vote":                   {map[string]uint64{"CurrentTerm": 1, "LastVoteTerm": 1}, true},
		"a founding that is whole": {map[string]uint64{"CurrentTerm": 1}, true},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			open := func() *Stores {
				s, err := OpenStores(dir, NewLogger(slog.New(slog.DiscardHandler)), func(err error) { t.Error(err) }, nil)
				require.NoError(t, err)
				return s
			}
			s := open()
			for k, v := range x.values {
				require.NoError(t, s.stable.SetUint64([]byte(k), v))
			}
			if what == "a founding that is whole" {
				require.NoError(t, s.Logs.StoreLog(&raft.Log{Index: 1, Term: 1, Type: raft.LogNoop}))
			}
			require.NoError(t, s.Close())
			s = open()
			defer func() { require.NoError(t, s.Close()) }()
			has, err := s.HasState()
			require.NoError(t, err)
			require.Equal(t, x.has, has)
			raftHas, err := raft.HasExistingState(s.Logs, s.stable, s.Snapshots)
			require.NoError(t, err)
			require.Equal(t, x.has, raftHas, "so that it can be founded")
		})
	}
}
