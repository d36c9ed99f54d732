package check

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tidewire/internal/fsx"
	"tidewire/internal/testkit/racing"
	"tidewire/storage/record"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestWhatTheStoreWritesHasNoDamage(t *testing.T) {
	t.Parallel()
	early, killed, late := history(t)
	for name, f := range map[string]files{"early": early, "killed": killed, "late": late} {
		for _, deep := range []bool{false, true} {
			for _, known := range []int{interval, 0} {
				found, sum := run(t, f.fs(t, "", nil), func(o *Options) { o.Deep, o.IndexInterval = deep, known })
				assert.Empty(t, damages(found), "%s deep=%v interval=%d", name, deep, known)
				assert.EqualValues(t, 3, sum.Logs)
				assert.Greater(t, sum.Segments, int64(9))
				assert.Greater(t, sum.Records, sum.Batches/2)
				assert.Equal(t, name != "killed", sum.CleanStop)
			}
		}
	}
}

// A tail that a kill tore, above the recovery point, is a note, as the next start cuts it.
func TestATornTailIsNoDamageAboveTheRecoveryPointAlone(t *testing.T) {
	t.Parallel()
	_, killed, late := history(t)
	for _, deep := range []bool{false, true} {
		name := newest(killed, "/data/topics/events-0/", logSuffix)
		b := killed[name]
		found, _ := run(t, killed.fs(t, name, b[:len(b)-3]), func(o *Options) { o.Deep = deep })
		require.Empty(t, damages(found))
		require.True(t, slices.ContainsFunc(found, func(f Finding) bool { return f.Severity == Note && "/data/"+f.File == name }))
		name = newest(late, "/data/topics/events-0/", logSuffix)
		b = late[name]
		found, _ = run(t, late.fs(t, name, b[:len(b)-3]), func(o *Options) { o.Deep = deep })
		require.NotEmpty(t, damages(found))
	}
}

func newest(f files, dir, suffix string) (out string) {
	for name := range f {
		if strings.HasPrefix(name, dir) && strings.HasSuffix(name, suffix) && name > out {
			out = name
		}
	}
	return out
}

// kindOf is the suffix of a segment's file, or the name of another.
func kindOf(name string) string {
	if _, suffix, ok := parseName(path.Base(name)); ok {
		return suffix
	}
	return path.Base(name)
}

var kinds = []string{logSuffix, indexSuffix, timeIndexSuffix, txnIndexSuffix, snapshotSuffix, epochFile, metadataFile, compactedFile,
	recoveryPointFile, replicationFile, logStartFile, cleanerFile, cleanStopFile}

// excused are the changes of a cleanly stopped folder that cannot be told, as
// docs/formats.md lists them.
func excused(f files, name, how string, pos int) bool {
	switch kindOf(name) {
	case logSuffix:
		if !strings.Contains(name, "table-0") || how == "deleted" {
			return false
		}
		at := 0
		for b := f[name]; len(b) > 0; {
			h, err := record.ParseHeader(b)
			if err != nil {
				return false
			}
			if rel := pos - at; how == "flipped" && rel >= 0 && rel < h.Size() {
				return rel < 8 || rel >= 12 && rel < 16
			}
			if how == "cut" && pos == at {
				return true
			}
			b, at = b[h.Size():], at+h.Size()
		}
	case snapshotSuffix:
		dir, _ := path.Split(name)
		return how == "deleted" && name != newest(f, dir, snapshotSuffix)
	case epochFile: // the first offset of an epoch, within a gap
		line := f[name][bytes.LastIndexByte(f[name][:pos], '\n')+1 : pos]
		return how == "flipped" && strings.Contains(name, "table-0") && bytes.ContainsRune(line, ' ')
	case cleanerFile:
		return how == "deleted" || how == "older"
	case cleanStopFile, compactedFile:
		return how == "deleted"
	}
	return false
}

func TestADeepCheckAfterACleanStopFindsEveryChange(t *testing.T) {
	t.Parallel()
	racing.SkipSequential(t)
	early, _, late := history(t)
	rng := rand.New(rand.NewPCG(7, 8))
	names := map[string][]string{}
	for name, b := range late {
		if k := kindOf(name); len(b) > 0 && slices.Contains(kinds, k) {
			names[k] = append(names[k], name)
		}
	}
	type tally struct{ done, found, excused int }
	tallies := map[string]*tally{}
	try := func(name, how string, contents []byte, pos int) {
		k := kindOf(name) + " " + how
		if tallies[k] == nil {
			tallies[k] = &tally{}
		}
		tallies[k].done++
		found, _ := run(t, late.fs(t, name, contents), nil)
		switch {
		case len(damages(found)) > 0:
			tallies[k].found++
		case excused(late, name, how, pos):
			tallies[k].excused++
		default:
			assert.Fail(t, "not found", "%s %s at %d", name, how, pos)
		}
	}
	for _, kind := range kinds {
		require.NotEmpty(t, names[kind], "no file of kind %s", kind)
		slices.Sort(names[kind])
		for range 100 {
			name := names[kind][rng.IntN(len(names[kind]))]
			b := slices.Clone(late[name])
			pos := rng.IntN(len(b))
			b[pos] ^= 1 << rng.IntN(8)
			try(name, "flipped", b, pos)
		}
		for _, name := range names[kind] {
			try(name, "deleted", nil, 0)
			for range 4 {
				n := rng.IntN(len(late[name]))
				if entry := map[string]int{indexSuffix: 8, timeIndexSuffix: 12, txnIndexSuffix: 34}[kind]; entry > 0 {
					n -= n % entry
				}
				try(name, "cut", append([]byte{}, late[name][:n]...), n)
			}
			if old, ok := early[name]; ok && string(old) != string(late[name]) {
				try(name, "older", old, 0)
			}
		}
	}
	try(newest(late, "/data/topics/events-0/", snapshotSuffix), "older", older(late, snapshotSuffix), 0)
	for _, kind := range kinds {
		for _, how := range []string{"flipped", "cut", "deleted", "older"} {
			c := tallies[kind+" "+how]
			if c == nil {
				require.Contains(t, []string{metadataFile, compactedFile, cleanerFile}, kind, "%s was never %s", kind, how) // these were written once
				continue
			}
			t.Logf("%-24s %-8s %4d done, %4d found, %3d excused", kind, how, c.done, c.found, c.excused)
			require.Positive(t, c.found+c.excused)
		}
	}
}

// older gives the contents of the newest file but one.
func older(f files, suffix string) []byte {
	last := newest(f, "/data/topics/events-0/", suffix)
	rest := files{}
	for name, b := range f {
		if name != last {
			rest[name] = b
		}
	}
	return rest[newest(rest, "/data/topics/events-0/", suffix)]
}

func TestRepairedIndexesAreAsTheyWere(t *testing.T) {
	t.Parallel()
	racing.SkipSequential(t)
	_, _, late := history(t)
	n := 0
	for name, b := range late {
		kind := kindOf(name)
		if kind != indexSuffix && kind != timeIndexSuffix && kind != txnIndexSuffix || len(b) == 0 || strings.Contains(name, "table-0") && kind == txnIndexSuffix {
			continue
		}
		for what, contents := range map[string][]byte{"gone": nil, "empty": {}, "odd": b[:len(b)-1]} {
			fsys := late.fs(t, name, contents)
			found, sum := run(t, fsys, func(o *Options) { o.RepairIndexes = true })
			require.EqualValues(t, 1, sum.Repaired, "%s %s: %v", name, what, found)
			got, err := fsx.ReadFile(fsys, name, 1<<20)
			require.NoError(t, err)
			require.Equal(t, b, got, "%s %s", name, what)
			again, _ := run(t, fsys, nil)
			require.Empty(t, damages(again), "%s %s", name, what)
			for other, was := range late {
				if kindOf(other) == logSuffix {
					now, err := fsx.ReadFile(fsys, other, 1<<24)
					require.NoError(t, err)
					require.Equal(t, was, now)
				}
			}
			n++
		}
	}
	require.Greater(t, n, 30)
}

func TestACheckChangesNothing(t *testing.T) {
	t.Parallel()
	_, killed, late := history(t)
	for _, f := range []files{killed, late} {
		fsys := f.fs(t, "", nil)
		inject := fsx.NewInject(fsys, nil)
		run(t, inject, nil)
		require.NoError(t, Dump(Options{FS: inject, Path: dataDir, Deep: true}, func(*Item) error { return nil }))
		require.Equal(t, f, load(t, fsys))
	}
}

func TestDumpShowsBatchesRecordsAndEntries(t *testing.T) {
	t.Parallel()
	_, _, late := history(t)
	fsys := late.fs(t, "", nil)
	seen := map[string]int{}
	var records int64
	require.NoError(t, Dump(Options{FS: fsys, Path: dataDir, Deep: true}, func(x *Item) error {
		seen[kindOf(x.File)+" "+x.Kind]++
		if x.Kind == "record" {
			records++
		}
		require.NotEmpty(t, x.String())
		return nil
	}))
	_, sum := run(t, fsys, nil)
	require.Equal(t, sum.Records, records)
	require.EqualValues(t, sum.Batches, seen[logSuffix+" batch"])
	for _, k := range []string{indexSuffix + " entry", timeIndexSuffix + " entry", txnIndexSuffix + " entry", snapshotSuffix + " producer", epochFile + " line", recoveryPointFile + " line"} {
		require.Positive(t, seen[k], k)
	}
	require.ErrorIs(t, Dump(Options{FS: fsys, Path: "/data/topics"}, nil), ErrNothing)
	for b, want := range map[string]string{"text": "[key text]", "\xff": "[key_base64 /w==]", strings.Repeat("é", 200): fmt.Sprint("[key ", strings.Repeat("é", 128), " key_bytes 400]")} {
		require.Equal(t, want, fmt.Sprint(shown(nil, "key", []byte(b))))
	}
}
