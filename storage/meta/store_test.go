package meta

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"gorm.io/gorm/schema"

	"tidewire/cluster/metadata"
	"tidewire/internal/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const day = metadata.Millis(24 * 60 * 60 * 1000)

func yes() *bool { v := true; return &v }

// commands touch every table, with inserts, updates and deletes, and keys of 0.
func commands() []metadata.Command {
	creds := metadata.Credentials{PasswordHash: "h", SCRAMSHA256: []byte{}, SCRAMSHA512: []byte("v")}
	rule := metadata.ACLFields{
		Principal: "User:ü", ResourceType: "topic", ResourceName: "x'\"y", Pattern: "literal", Operation: "read", Permission: "allow", Host: "*",
	}
	id := func(n byte) model.TopicID { return model.TopicID{0: 0xff, 15: n} }
	return []metadata.Command{
		metadata.BootstrapCluster{ClusterID: "c", Name: "n", MetadataVersion: 1, Now: 1},
		metadata.SetSetupToken{Hash: []byte("s")},
		metadata.RegisterBroker{ID: 0, StorageID: "s0", Incarnation: 1<<63 - 1, Now: 5},
		metadata.RegisterBroker{ID: 7, StorageID: "s7", Incarnation: 1, Now: 5},
		metadata.UnfenceBroker{ID: 0, Epoch: 3},
		metadata.CreateTopic{ID: id(1), Name: "t", Assignments: [][]model.BrokerID{{0}, {7}}, Config: map[string]string{"retention.ms": "-1"}},
		metadata.CreateTopic{ID: id(2), Name: "u", Internal: true, Assignments: [][]model.BrokerID{{0, 7}}},
		metadata.CreatePartitions{Name: "t", From: 2, Assignments: [][]model.BrokerID{{0}}},
		metadata.DeleteTopic{Name: "u"},
		metadata.CreateTopic{ID: id(3), Name: "u", Assignments: [][]model.BrokerID{{7}}},
		metadata.AlterTopicConfig{Name: "u", Set: map[string]string{"cleanup.policy": "compact"}},
		metadata.AlterClusterConfig{Set: map[string]string{"segment.ms": "1000"}},
		metadata.CreateUser{Name: "ü", Admin: true, Credentials: creds, Now: 9},
		metadata.CreateUser{Name: "v", Credentials: creds, Now: 9},
		metadata.AlterUser{Name: "v", Admin: yes()},
		metadata.CreateACL{ID: "r1", Rule: rule, Now: 3},
		metadata.CreateSession{ID: "s1", User: "ü", IfEpoch: 13, RefreshHash: []byte("a"), ExpiresAt: day, Now: 1},
		metadata.RotateSession{ID: "s1", CurrentHash: []byte("a"), NextHash: []byte("b"), ExpiresAt: day, Now: 2},
		metadata.CreateSession{ID: "s2", User: "ü", IfEpoch: 13, RefreshHash: []byte("a"), ExpiresAt: 2, Now: 1},
		metadata.CreateAPIToken{ID: "t1", User: "ü", Name: "a", Scopes: []metadata.Scope{}, Now: 1},
		metadata.CreateAPIToken{ID: "t2", User: "v", Name: "b", Scopes: []metadata.Scope{{ResourceType: "topic", ResourceName: "t", Pattern: "literal", Operation: "read"}}, Hash: []byte("h"), ExpiresAt: day, Now: 1},
		metadata.SetQuota{User: "v", Limits: metadata.QuotaLimits{ProduceBytesPerS: new(int64(metadata.MaxQuota)), RequestsPerS: new(int64(1))}},
		metadata.SetQuota{User: metadata.DefaultQuota, Limits: metadata.QuotaLimits{FetchBytesPerS: new(int64(2))}},
		metadata.SetQuota{User: "ü", Limits: metadata.QuotaLimits{FetchBytesPerS: new(int64(3))}},
		metadata.SetQuota{User: "ü", Limits: metadata.QuotaLimits{ProduceBytesPerS: new(int64(4))}},
		metadata.AddSigningKey{KID: "k1", PublicKey: []byte("p"), SealedPrivate: []byte{0, 1}, SignUntil: 10, VerifyUntil: 20, Now: 1},
		metadata.AllocateProducerIDs{Broker: 0, Epoch: 3, Size: 10},
		metadata.RegisterBroker{ID: 0, StorageID: "s0", Incarnation: 2, Now: 6},
		metadata.Prune{Now: 5},
		metadata.DeleteUser{Name: "v"},
		metadata.DeleteQuota{User: "ü"},
		metadata.DeleteACLs{Filter: metadata.ACLFields{Host: "*"}},
		metadata.UnfenceBroker{ID: 7, Epoch: 4},
		metadata.UnfenceBroker{ID: 0, Epoch: 28},
		metadata.AlterReassignments{Moves: []metadata.Reassignment{{Topic: id(1), Partition: 1, Replicas: []model.BrokerID{7, 0}}}, By: "ü", Now: 7},
		metadata.SetBrokerState{ID: 7, State: metadata.BrokerDraining, Principal: "ü", Now: 8},
	}
}

// run applies the commands in batches of a size and checks after each batch that the
// file, opened anew, holds the image.
func run(t *testing.T, path string, cmds []metadata.Command, size int) *metadata.Image {
	t.Helper()
	s, err := Create(path, metadata.Empty(), 0)
	require.NoError(t, err)
	img := metadata.Empty()
	for from := 0; from < len(cmds); from += size {
		b := metadata.NewBatch(img)
		to := min(from+size, len(cmds))
		for i, c := range cmds[from:to] {
			require.Nil(t, b.Apply(uint64(from+i+1), c).Refusal, "%s", c.Kind())
		}
		next, d := b.Commit()
		require.NoError(t, s.Apply(img, next, d, uint64(to)))
		img = next
		require.NoError(t, s.Close())
		var got *metadata.Image
		var applied uint64
		s, got, applied, err = Open(path, img.Cluster().ID)
		require.NoError(t, err, "after %s", cmds[to-1].Kind())
		require.Equal(t, uint64(to), applied)
		require.True(t, bytes.Equal(metadata.Encode(img), metadata.Encode(got)), "after %s", cmds[to-1].Kind())
	}
	require.NoError(t, s.Close())
	return img
}

func TestWhatIsAppliedIsReadBack(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1, 4, 100} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			t.Parallel()
			run(t, filepath.Join(t.TempDir(), "a b%20?c.db"), commands(), size)
		})
	}
}

func TestReplaceWritesAWholeImage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	img := run(t, filepath.Join(dir, "a.db"), commands(), 100)
	other := run(t, filepath.Join(dir, "b.db"), commands()[:9], 100)
	s, err := Create(filepath.Join(dir, "c.db"), other, 9)
	require.NoError(t, err)
	require.NoError(t, s.Replace(img, 77))
	require.NoError(t, s.Close())
	s, got, applied, err := Open(filepath.Join(dir, "c.db"), "c")
	require.NoError(t, err)
	defer s.Close()
	require.Equal(t, uint64(77), applied)
	require.True(t, bytes.Equal(metadata.Encode(img), metadata.Encode(got)))
}

func TestAManyPartitionTopicFitsInOneBatch(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "m.db")
	parts := make([][]model.BrokerID, 5000)
	for i := range parts {
		parts[i] = []model.BrokerID{0}
	}
	run(t, path, append(commands()[:5], metadata.CreateTopic{ID: model.TopicID{1}, Name: "wide", Assignments: parts}), 3)
}

func TestAFileThatCannotBeTrustedIsUnusable(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(t *testing.T, path string){
		"missing":   func(t *testing.T, path string) { require.NoError(t, os.Remove(path)) },
		"empty":     func(t *testing.T, path string) { require.NoError(t, os.Truncate(path, 0)) },
		"truncated": func(t *testing.T, path string) { require.NoError(t, os.Truncate(path, 3*4096)) },
		"garbage": func(t *testing.T, path string) {
			require.NoError(t, os.WriteFile(path, bytes.Repeat([]byte("garbage!"), 4096), 0o600))
		},
		"a changed value": func(t *testing.T, path string) { exec(t, path, "UPDATE users SET admin = 0") },
		"a missing row":   func(t *testing.T, path string) { exec(t, path, "DELETE FROM partitions WHERE partition = 2") },
		"an added row": func(t *testing.T, path string) {
			exec(t, path, "INSERT INTO acls SELECT 'x','User:x','topic','*','literal','all','allow','*',1,1")
		},
		"another format":  func(t *testing.T, path string) { exec(t, path, "UPDATE state SET format_version = 1") },
		"another cluster": func(t *testing.T, path string) { exec(t, path, "UPDATE state SET cluster_id = 'd'") },
		"no state":        func(t *testing.T, path string) { exec(t, path, "DELETE FROM state") },
		"no table":        func(t *testing.T, path string) { exec(t, path, "DROP TABLE sessions") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "m.db")
			img := run(t, path, commands(), 100)
			damage(t, path)
			_, _, _, err := Open(path, "c")
			require.ErrorIs(t, err, ErrUnusable)
			s, err := Create(path, img, 99)
			require.NoError(t, err)
			require.NoError(t, s.Close())
			s, _, applied, err := Open(path, "c")
			require.NoError(t, err)
			require.Equal(t, uint64(99), applied)
			require.NoError(t, s.Close())
		})
	}
}

func exec(t *testing.T, path, sql string) {
	t.Helper()
	s, err := open(path)
	require.NoError(t, err)
	require.NoError(t, s.db.Exec(sql).Error)
	require.NoError(t, s.Close())
}

// An old copy of the database beside a newer write-ahead log gives a file of two points
// in time, which SQLite's own check may well accept.
func TestAnOldFileBesideANewWriteAheadLogIsNeverTakenForWhole(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "m.db")
	cmds := commands()
	old := run(t, path, cmds[:16], 100)
	copyFile(t, path, filepath.Join(dir, "old.db"))

	s, img, _, err := Open(path, "c")
	require.NoError(t, err)
	apply := func(from, to int) {
		b := metadata.NewBatch(img)
		for i, c := range cmds[from:to] {
			b.Apply(uint64(from+i+1), c)
		}
		next, d := b.Commit()
		require.NoError(t, s.Apply(img, next, d, uint64(to)))
		img = next
	}
	apply(16, 22)
	require.NoError(t, s.db.Exec("PRAGMA wal_checkpoint(RESTART)").Error)
	apply(22, 24) // the log holds only this
	mixed := filepath.Join(dir, "mixed.db")
	copyFile(t, filepath.Join(dir, "old.db"), mixed)
	copyFile(t, path+"-wal", mixed+"-wal")
	require.NoError(t, s.Close())

	s, got, _, err := Open(mixed, "c")
	if err != nil {
		require.ErrorIs(t, err, ErrUnusable)
		return
	}
	defer s.Close()
	require.True(t, bytes.Equal(metadata.Encode(old), metadata.Encode(got)), "a mixed file was taken for whole")
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

func TestAFailedWriteLeavesTheFileAtTheBatchBefore(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "m.db")
	img := run(t, path, commands()[:8], 100)
	s, _, _, err := Open(path, "c")
	require.NoError(t, err)
	require.NoError(t, s.db.Exec("DROP TABLE signing_keys").Error) // makes the batch fail after other writes
	next, d, _ := metadata.Apply(img, 9, commands()[12])
	d.SigningKeys = map[string]metadata.Change{"k": metadata.Deleted}
	require.Error(t, s.Apply(img, next, d, 9))
	var users int64
	require.NoError(t, s.db.Model(&userRow{}).Count(&users).Error)
	require.Zero(t, users)
	require.NoError(t, s.Close())
}

func TestNoRowUsesGormsAutomaticFields(t *testing.T) {
	t.Parallel()
	for _, row := range []any{
		&stateRow{}, &clusterRow{}, &brokerRow{}, &topicRow{}, &partitionRow{}, &userRow{}, &aclRow{}, &sessionRow{}, &tokenRow{}, &keyRow{},
	} {
		s, err := schema.Parse(row, &sync.Map{}, schema.NamingStrategy{})
		require.NoError(t, err)
		for _, f := range s.Fields {
			require.Zero(t, f.AutoCreateTime, "%s.%s", s.Name, f.Name)
			require.Zero(t, f.AutoUpdateTime, "%s.%s", s.Name, f.Name)
			require.False(t, f.AutoIncrement, "%s.%s", s.Name, f.Name)
			require.False(t, f.HasDefaultValue, "%s.%s", s.Name, f.Name)
		}
		require.Empty(t, s.QueryClauses)
		require.Empty(t, s.DeleteClauses)
	}
}

// A write that the disk has no room for changes nothing, says so, and may be tried again.
func TestAFullDiskRefusesAWriteThatCanBeTriedAgain(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "m.db")
	img, _, _ := metadata.Apply(metadata.Empty(), 1, metadata.BootstrapCluster{ClusterID: "c", MetadataVersion: 1})
	s, err := Create(path, img, 1)
	require.NoError(t, err)
	room := func(pages int) { require.NoError(t, s.db.Exec(fmt.Sprint("PRAGMA max_page_count=", pages)).Error) }
	room(1) // which means: no more than there are
	next, applied := img, uint64(1)
	for err == nil {
		var d metadata.Delta
		var res metadata.Result
		img = next
		next, d, res = metadata.Apply(img, applied+1, metadata.CreateUser{Name: fmt.Sprint("u", applied), Credentials: metadata.Credentials{PasswordHash: strings.Repeat("h", 900)}})
		require.Nil(t, res.Refusal)
		if err = s.Apply(img, next, d, applied+1); err == nil {
			applied++
			continue
		}
		require.ErrorIs(t, err, ErrFull)
		require.ErrorIs(t, s.Apply(img, next, d, applied+1), ErrFull)
		room(1 << 20)
		require.NoError(t, s.Apply(img, next, d, applied+1))
		require.NoError(t, s.Replace(next, applied+1))
	}
	require.NoError(t, s.Close())
	s, again, at, err := Open(path, "c")
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	require.Equal(t, applied+1, at)
	require.Equal(t, metadata.Encode(next), metadata.Encode(again))
}
