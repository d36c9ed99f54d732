package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"tidewire/internal/datadir"
	"tidewire/internal/fsx"
	"tidewire/internal/lifecycle"
	"tidewire/internal/model"
	"tidewire/storage/log"
	"tidewire/storage/record"

	"github.com/stretchr/testify/require"
)

// stoppedFolder is a data folder with one log of some segments, cleanly stopped.
func stoppedFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	d, err := datadir.Open(dir)
	require.NoError(t, err)
	g := lifecycle.New(context.Background())
	s, err := log.OpenStore(log.StoreOptions{FS: fsx.OS(), Dir: dir, Group: g})
	require.NoError(t, err)
	l, err := s.Open(model.TopicID{1}, "events", 0, log.Config{SegmentBytes: 1000, IndexIntervalBytes: 100})
	require.NoError(t, err)
	for i := range int64(60) {
		b := record.NewBuilder(128)
		b.Add(1000+i, []byte("key"), []byte("value\n"), nil)
		out, err := b.Finish(record.None)
		require.NoError(t, err)
		_, err = l.Append(out, 0, 0)
		require.NoError(t, err)
	}
	require.NoError(t, s.Close())
	require.NoError(t, g.Stop(10*time.Second))
	require.NoError(t, d.Close())
	return dir
}

func TestCheckTellsDamageRepairsIndexesAndDumps(t *testing.T) {
	t.Parallel()
	sh := newShell(t, nil)
	dir := stoppedFolder(t)
	part := filepath.Join(dir, "topics", "events-0")
	first := filepath.Join(part, "00000000000000000000")
	require.Contains(t, sh.ok("", "check", dir), "1 logs, ")
	require.Contains(t, sh.ok("", "check", "--deep", part), "60 records, ")
	require.Contains(t, sh.ok("", "check", "--deep", first+".log"), " 0 damaged")

	require.NoError(t, os.Truncate(first+".index", 0))
	code, out, errOut := sh.run("", "check", "--index-interval", "100", dir)
	require.Equal(t, 1, code)
	require.Contains(t, out, "damage: topics/events-0/00000000000000000000.index byte 0 offset ")
	require.Equal(t, "tidewire: there is damage: 1 findings\n", errOut)
	var report struct {
		Findings []struct{ Severity, File string }
		Summary  struct{ Damage, Records int }
	}
	code, out, _ = sh.run("", "check", "--index-interval", "100", "-o", "json", dir)
	require.Equal(t, 1, code)
	require.NoError(t, json.Unmarshal([]byte(out), &report))
	require.Equal(t, 1, report.Summary.Damage)
	require.Equal(t, 60, report.Summary.Records)
	require.Equal(t, "damage", report.Findings[0].Severity)
	require.Contains(t, sh.ok("", "check", "--index-interval", "100", "--repair-indexes", dir), "repaired: topics/events-0/00000000000000000000.index")
	sh.ok("", "check", "--index-interval", "100", "--deep", dir)

	out = sh.ok("", "check", "--dump", "--deep", first+".log")
	require.Contains(t, out, "00000000000000000000.log batch position=0 base_offset=0 ")
	require.Contains(t, out, `record offset=0 timestamp=1000 key="key" value="value\n"`)
	require.Contains(t, sh.ok("", "check", "--dump", "-o", "json", first+".timeindex"), `"kind":"entry"`)
}

func TestCheckRefusesAFolderInUseAndWhatIsNone(t *testing.T) {
	t.Parallel()
	sh := newShell(t, nil)
	dir := stoppedFolder(t)
	for _, args := range [][]string{{"check"}, {"check", t.TempDir()}, {"check", dir + "/none"}, {"check", dir + "/node.lock"}, {"check", "--dump", "--repair-indexes", dir}, {"check", "--index-interval", "-1", dir}, {"check", "-o", "yaml", dir}} {
		code, _, errOut := sh.run("", args...)
		require.Equal(t, 2, code, "%v: %s", args, errOut)
	}
	d, err := datadir.Open(dir)
	require.NoError(t, err)
	defer d.Close()
	for _, name := range []string{dir, filepath.Join(dir, "topics", "events-0")} {
		code, out, errOut := sh.run("", "check", name)
		require.Equal(t, 1, code)
		require.Empty(t, out)
		require.Contains(t, errOut, "in use by process")
	}
}
