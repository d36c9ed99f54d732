package cluster_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewire/cluster"
	"tidewire/cluster/metadata"
	"tidewire/internal/model"
)

const database = "tidewire.db"

// lines collects log lines of level warn and above.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer // guarded by mu
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func start(t *testing.T, dir string) (*cluster.Cluster, *lines) {
	t.Helper()
	c, log, err := tryStart(t, dir, 1)
	require.NoError(t, err)
	return c, log
}

func tryStart(t *testing.T, dir string, expect int) (*cluster.Cluster, *lines, error) {
	log := &lines{}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	c, err := cluster.Start(ctx, cluster.Config{
		Dir: dir, NodeID: 1, ClusterName: "test", BootstrapExpect: expect, Version: "test",
		Logger: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn})),
		Fatal:  func(err error) { t.Errorf("fatal: %v", err) },
	})
	if err == nil {
		t.Cleanup(func() { _ = c.Stop(context.Background()) })
	}
	return c, log, err
}

func stop(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	require.NoError(t, c.Stop(ctx))
}

func createTopic(t *testing.T, c *cluster.Cluster, n int) {
	t.Helper()
	_, err := c.Propose(t.Context(), metadata.CreateTopic{
		ID: model.TopicID{0: 1, 14: byte(n >> 8), 15: byte(n)}, Name: fmt.Sprintf("topic-%d", n), Assignments: [][]model.BrokerID{{1}},
	})
	require.NoError(t, err)
}

// content is everything but what a restart changes: indexes, brokers, leader epochs.
func content(m *metadata.Image) []string {
	var out []string
	for p := range m.Topics("") {
		out = append(out, fmt.Sprint(p.Name, p.ID, p.Overrides, p.Version, len(p.Partitions)))
	}
	for u := range m.Users("") {
		out = append(out, fmt.Sprint(u.Name, u.CredentialsEpoch, u.PasswordHash))
	}
	return append(out, m.Cluster().ID)
}

func TestADamagedDatabaseIsRebuiltAndNothingIsLost(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(t *testing.T, path, old string){
		"deleted":   func(t *testing.T, path, _ string) { require.NoError(t, os.Remove(path)) },
		"emptied":   func(t *testing.T, path, _ string) { require.NoError(t, os.Truncate(path, 0)) },
		"truncated": func(t *testing.T, path, _ string) { require.NoError(t, os.Truncate(path, 5*4096)) },
		"garbage": func(t *testing.T, path, _ string) {
			require.NoError(t, os.WriteFile(path, bytes.Repeat([]byte{0xa5}, 1<<16), 0o600))
		},
		"a flipped byte": func(t *testing.T, path, _ string) {
			b, err := os.ReadFile(path)
			require.NoError(t, err)
			at := bytes.Index(b, []byte("topic-1"))
			require.Positive(t, at)
			b[at] ^= 1
			require.NoError(t, os.WriteFile(path, b, 0o600))
		},
		"an older copy": func(t *testing.T, path, old string) { copyFile(t, old, path) },
		"another cluster's": func(t *testing.T, path, _ string) {
			dir := t.TempDir()
			c, _ := start(t, dir)
			stop(t, c)
			copyFile(t, filepath.Join(dir, database), path)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			path, old := filepath.Join(dir, database), filepath.Join(dir, "old.db")
			c, log := start(t, dir)
			createTopic(t, c, 1)
			_, err := c.Propose(t.Context(), metadata.CreateUser{Name: "u", Credentials: metadata.Credentials{PasswordHash: "h"}})
			require.NoError(t, err)
			stop(t, c)
			require.Empty(t, log.String())
			copyFile(t, path, old)

			c, log = start(t, dir)
			createTopic(t, c, 2)
			want := content(c.Image())
			stop(t, c)
			require.Empty(t, log.String())

			damage(t, path, old)
			c, log = start(t, dir)
			require.Equal(t, want, content(c.Image()))
			if name != "an older copy" { // that one only lacks the end, which the log has
				require.Equal(t, 1, strings.Count(log.String(), "rebuilt"), log.String())
			}
			createTopic(t, c, 3)
			stop(t, c)
			c, log = start(t, dir)
			require.Empty(t, log.String(), "it was not whole after the rebuild")
			require.NotNil(t, c.Image().Topic("topic-3"))
		})
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	require.NoError(t, err)
	defer in.Close()
	out, err := os.Create(to)
	require.NoError(t, err)
	_, err = io.Copy(out, in)
	require.NoError(t, err)
	require.NoError(t, out.Close())
}

func copyTree(t *testing.T, from, to string) {
	t.Helper()
	require.NoError(t, os.RemoveAll(to))
	require.NoError(t, os.CopyFS(to, os.DirFS(from)))
}

// A copy of the folder of a running node is what a kill leaves.
func TestAKilledNodeComesBackWithEverythingAcknowledged(t *testing.T) {
	t.Parallel()
	dir, killed := t.TempDir(), filepath.Join(t.TempDir(), "killed")
	c, _ := start(t, dir)
	for n := range 20 {
		createTopic(t, c, n)
	}
	copyTree(t, dir, killed)
	want := content(c.Image())
	stop(t, c)
	again, _ := start(t, killed)
	require.Equal(t, want, content(again.Image()))
}

func TestAFolderWhosePartsDoNotBelongTogetherIsRefused(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		damage func(t *testing.T, dir, other string)
		want   error
	}{
		"log gone":      {func(t *testing.T, dir, _ string) { require.NoError(t, os.RemoveAll(filepath.Join(dir, "raft"))) }, cluster.ErrLogMissing},
		"identity gone": {func(t *testing.T, dir, _ string) { require.NoError(t, os.Remove(filepath.Join(dir, "identity"))) }, cluster.ErrIdentityMissing},
		"another node's log": {func(t *testing.T, dir, other string) {
			copyTree(t, filepath.Join(other, "raft"), filepath.Join(dir, "raft"))
		}, cluster.ErrForeignLog},
		"identity of another cluster": {func(t *testing.T, dir, other string) {
			mine, err := cluster.ReadIdentityForTest(dir)
			require.NoError(t, err)
			theirs, err := cluster.ReadIdentityForTest(other)
			require.NoError(t, err)
			mine.ClusterID = theirs.ClusterID
			require.NoError(t, cluster.WriteIdentityForTest(dir, mine))
		}, cluster.ErrForeignCluster},
		"damaged identity": {func(t *testing.T, dir, _ string) {
			require.NoError(t, os.Truncate(filepath.Join(dir, "identity"), 60))
		}, cluster.ErrIdentity},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, other := t.TempDir(), t.TempDir()
			for _, d := range []string{dir, other} {
				c, _ := start(t, d)
				createTopic(t, c, 1)
				stop(t, c)
			}
			row.damage(t, dir, other)
			_, _, err := tryStart(t, dir, 1)
			require.ErrorIs(t, err, row.want)
			require.NotContains(t, err.Error(), "\n", "one clear line")
		})
	}
}

func TestALogThatEndsBeforeWhatWasAppliedIsRefused(t *testing.T) {
	t.Parallel()
	dir, kept := t.TempDir(), filepath.Join(t.TempDir(), "kept")
	c, _ := start(t, dir)
	stop(t, c)
	copyTree(t, dir, kept)
	c, _ = start(t, dir)
	createTopic(t, c, 1)
	stop(t, c)
	copyTree(t, filepath.Join(kept, "raft"), filepath.Join(dir, "raft"))
	_, _, err := tryStart(t, dir, 1)
	require.ErrorIs(t, err, cluster.ErrLogBehind)
}

func TestANodeThatMayNotFoundAClusterDoesNot(t *testing.T) {
	t.Parallel()
	for _, expect := range []int{0, 3} {
		dir := t.TempDir()
		_, _, err := tryStart(t, dir, expect)
		require.ErrorIs(t, err, cluster.ErrNoCluster)
		c, _, err := tryStart(t, dir, 1)
		require.NoError(t, err)
		stop(t, c)
		c, _, err = tryStart(t, dir, expect)
		require.NoError(t, err, "it belongs to a cluster by now")
		stop(t, c)
	}
}

func TestAStartThatIsCancelledEndsClean(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := cluster.Start(ctx, cluster.Config{Dir: t.TempDir(), NodeID: 1, BootstrapExpect: 1})
	require.True(t, errors.Is(err, context.Canceled), "%v", err)
}
