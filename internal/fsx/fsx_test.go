package fsx

import (
	"errors"
	"io/fs"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func write(t *testing.T, fsys FS, name, s string, sync bool) {
	t.Helper()
	f, err := fsys.OpenFile(name, ReadWrite|Create)
	require.NoError(t, err)
	_, err = f.WriteAt([]byte(s), 0)
	require.NoError(t, err)
	if sync {
		require.NoError(t, f.SyncData())
	}
	require.NoError(t, f.Close())
}

func read(t *testing.T, fsys FS, name string) string {
	t.Helper()
	b, err := ReadFile(fsys, name, 1<<20)
	require.NoError(t, err)
	return string(b)
}

// Every form must answer alike, or a test on memory proves nothing about disks.
func TestAllFormsBehaveAlike(t *testing.T) {
	t.Parallel()
	for name, fsys := range map[string]FS{
		"os": OS(), "mem": NewMem(), "crash": NewCrashMem(), "inject": NewInject(NewMem(), nil),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := "/d"
			if name == "os" {
				dir = t.TempDir()
			}
			p := func(s string) string { return filepath.Join(dir, s) }
			require.NoError(t, fsys.MkdirAll(p("a/b")))
			require.NoError(t, fsys.MkdirAll(p("a/b")))
			write(t, fsys, p("a/f"), "hello", true)
			_, err := fsys.OpenFile(p("a/f"), ReadWrite|Create|Exclusive)
			require.ErrorIs(t, err, fs.ErrExist)
			_, err = fsys.OpenFile(p("a/none"), ReadOnly)
			require.ErrorIs(t, err, fs.ErrNotExist)
			_, err = fsys.Stat(p("x/y"))
			require.ErrorIs(t, err, fs.ErrNotExist)
			require.ErrorIs(t, fsys.Remove(p("a")), syscall.ENOTEMPTY)
			require.NoError(t, WriteFile(fsys, p("a/f"), []byte("bye")))
			require.Equal(t, "bye", read(t, fsys, p("a/f")))
			_, err = ReadFile(fsys, p("a/f"), 2)
			require.ErrorIs(t, err, syscall.EFBIG)

			f, err := fsys.OpenFile(p("a/f"), ReadWrite)
			require.NoError(t, err)
			_, err = f.WriteAt([]byte("X"), 5)
			require.NoError(t, err)
			require.NoError(t, f.Truncate(8))
			n, err := f.Size()
			require.NoError(t, err)
			require.EqualValues(t, 8, n)
			require.NoError(t, f.Sync())
			require.NoError(t, f.Close())
			_, err = f.ReadAt(make([]byte, 1), 0)
			require.ErrorIs(t, err, fs.ErrClosed)
			require.Equal(t, "bye\x00\x00X\x00\x00", read(t, fsys, p("a/f")))

			require.NoError(t, fsys.Rename(p("a/f"), p("a/b/g")))
			infos, err := fsys.ReadDir(p("a"))
			require.NoError(t, err)
			require.Len(t, infos, 1)
			require.True(t, infos[0].Dir)
			infos, err = fsys.ReadDir(p("a/b"))
			require.NoError(t, err)
			require.Len(t, infos, 1)
			infos[0].Modified = time.Time{} // the memory keeps none
			require.Equal(t, []Info{{Name: "g", Size: 8}}, infos)
			require.NoError(t, fsys.SyncDir(p("a/b")))
			ok, err := Exists(fsys, p("a/b/g"))
			require.NoError(t, err)
			require.True(t, ok)
			free, err := fsys.FreeSpace(dir)
			require.NoError(t, err)
			require.NotZero(t, free)
			require.NoError(t, RemoveAll(fsys, p("a")))
			require.NoError(t, RemoveAll(fsys, p("a")))
			ok, err = Exists(fsys, p("a"))
			require.NoError(t, err)
			require.False(t, ok)
		})
	}
}

func TestCrashKeepsWhatWasSyncedAndMayLoseTheRest(t *testing.T) {
	t.Parallel()
	m := NewCrashMem()
	require.NoError(t, m.MkdirAll("/d"))
	require.NoError(t, m.SyncDir("/"))
	write(t, m, "/d/kept", "synced", true)
	require.NoError(t, m.SyncDir("/d"))
	write(t, m, "/d/kept", "SYN", false)
	write(t, m, "/d/entry", "data", true) // its directory entry is not synced

	seen := map[string]int{}
	for seed := range uint64(200) {
		c := m.Crash(seed)
		b := read(t, c, "/d/kept")
		require.Len(t, b, 6)
		require.Equal(t, "ced", b[3:])
		seen[b]++
		ok, err := Exists(c, "/d/entry")
		require.NoError(t, err)
		if ok {
			require.Equal(t, "data", read(t, c, "/d/entry"))
			seen["entry"]++
		} else {
			seen["no entry"]++
		}
	}
	for _, k := range []string{"synced", "SYNced", "entry", "no entry"} {
		require.NotZero(t, seen[k], k)
	}
	require.Equal(t, "SYNced", read(t, m, "/d/kept"), "the original goes on")
}

func TestCrashIsRepeatable(t *testing.T) {
	t.Parallel()
	m := NewCrashMem()
	for i := range 20 {
		write(t, m, "/f"+string(rune('a'+i)), "some bytes", false)
	}
	for seed := range uint64(20) {
		a, err := m.Crash(seed).ReadDir("/")
		require.NoError(t, err)
		b, err := m.Crash(seed).ReadDir("/")
		require.NoError(t, err)
		require.Equal(t, a, b)
	}
}

func TestRenameIsKeptOrLostAsAWhole(t *testing.T) {
	t.Parallel()
	m := NewCrashMem()
	require.NoError(t, m.MkdirAll("/a"))
	require.NoError(t, m.MkdirAll("/b"))
	write(t, m, "/a/f", "x", true)
	require.NoError(t, m.SyncDir("/"))
	require.NoError(t, m.SyncDir("/a"))
	require.NoError(t, m.Rename("/a/f", "/b/f"))
	for seed := range uint64(50) {
		c := m.Crash(seed)
		inA, _ := Exists(c, "/a/f")
		inB, _ := Exists(c, "/b/f")
		require.NotEqual(t, inA, inB)
	}
	require.NoError(t, m.SyncDir("/b"))
	for seed := range uint64(50) {
		require.Equal(t, "x", read(t, m.Crash(seed), "/b/f"))
	}
}

func TestFullMemoryWritesWhatFits(t *testing.T) {
	t.Parallel()
	m := NewMem()
	write(t, m, "/f", "12345", false)
	m.SetCapacity(8)
	f, err := m.OpenFile("/f", ReadWrite)
	require.NoError(t, err)
	n, err := f.WriteAt([]byte("abcdef"), 5)
	require.True(t, IsNoSpace(err))
	require.Equal(t, 3, n)
	require.NoError(t, f.Truncate(0))
	_, err = f.WriteAt([]byte("abcdef"), 0)
	require.NoError(t, err)
}

func TestInjectFailsTheChosenOperation(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	in := NewInject(NewMem(), FailNth(2, boom))
	require.NoError(t, in.MkdirAll("/d"))
	_, err := in.OpenFile("/d/f", ReadWrite|Create)
	require.ErrorIs(t, err, boom)
	f, err := in.OpenFile("/d/f", ReadWrite|Create)
	require.NoError(t, err)
	in.SetHook(func(op Op) *Fault {
		if op.Kind == OpWrite {
			return &Fault{Err: syscall.ENOSPC, Short: 2}
		}
		return nil
	})
	n, err := f.WriteAt([]byte("abc"), 0)
	require.True(t, IsNoSpace(err))
	require.Equal(t, 2, n)
	size, err := f.Size()
	require.NoError(t, err)
	require.EqualValues(t, 2, size)
	in.SetHook(FailIf(func(op Op) bool { return op.Kind == OpSync }, syscall.EIO))
	require.ErrorIs(t, f.SyncData(), syscall.EIO)
	require.ErrorIs(t, f.Sync(), syscall.EIO)
}

// What a failed sync has lost is seen by reads and gone after a power cut, whatever was
// synced since; writing it again helps.
func TestALostSyncIsNotMadeGoodByTheNext(t *testing.T) {
	t.Parallel()
	m := NewCrashMem()
	in := NewInject(m, nil)
	write(t, in, "/f", "kept", true)
	require.NoError(t, in.SyncDir("/"))
	f, err := in.OpenFile("/f", ReadWrite)
	require.NoError(t, err)
	_, err = f.WriteAt([]byte("LOST"), 0)
	require.NoError(t, err)
	in.SetHook(func(op Op) *Fault { return &Fault{Err: syscall.EIO, Lost: true} })
	require.ErrorIs(t, f.SyncData(), syscall.EIO)
	in.SetHook(nil)
	require.NoError(t, f.SyncData())
	require.Equal(t, "LOST", read(t, in, "/f"))
	for seed := range uint64(8) {
		require.Equal(t, "kept", read(t, m.Crash(seed), "/f"))
	}
	_, err = f.WriteAt([]byte("LO"), 0)
	require.NoError(t, err)
	require.NoError(t, f.SyncData())
	require.Equal(t, "LOpt", read(t, m.Crash(1), "/f"))
}

// A clone has what is unsynced, and loses it to a power cut as the original would.
func TestACloneKeepsWhatIsUnsynced(t *testing.T) {
	t.Parallel()
	m := NewCrashMem()
	require.NoError(t, m.MkdirAll("/d"))
	require.NoError(t, m.SyncDir("/"))
	write(t, m, "/d/a", "synced", true)
	require.NoError(t, m.SyncDir("/d"))
	write(t, m, "/d/a", "CHANGE", false)
	write(t, m, "/d/b", "new", false)
	c := m.Clone()
	write(t, m, "/d/a", "later!", false)
	require.Equal(t, "CHANGE", read(t, c, "/d/a"))
	require.Equal(t, "new", read(t, c, "/d/b"))
	lost, kept := false, false
	for seed := range uint64(40) {
		x := c.Crash(seed)
		ok, err := Exists(x, "/d/b")
		require.NoError(t, err)
		a := read(t, x, "/d/a")
		require.NotEqual(t, "later!", a)
		lost, kept = lost || !ok && a == "synced", kept || ok && a == "CHANGE"
	}
	require.True(t, lost && kept)
	require.NoError(t, c.SyncDir("/d"))
	f, err := c.OpenFile("/d/a", ReadWrite)
	require.NoError(t, err)
	require.NoError(t, f.Sync())
	require.Equal(t, "CHANGE", read(t, c.Crash(3), "/d/a"))
}
