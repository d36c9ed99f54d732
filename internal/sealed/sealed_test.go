package sealed_test

import (
	"bytes"
	"io/fs"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewire/internal/fsx"
	"tidewire/internal/sealed"
)

const magic = sealed.Magic("TWTEST\x01")

func TestWhatWasWrittenIsRead(t *testing.T) {
	t.Parallel()
	disk := fsx.NewMem()
	require.NoError(t, disk.MkdirAll("/d"))
	_, err := sealed.Read(disk, "/d/f", magic, 100)
	require.ErrorIs(t, err, fs.ErrNotExist)
	for _, payload := range [][]byte{nil, []byte("x"), bytes.Repeat([]byte("y"), 50)} {
		require.NoError(t, sealed.Write(disk, "/d/f", magic, payload))
		got, err := sealed.Read(disk, "/d/f", magic, 100)
		require.NoError(t, err)
		require.True(t, bytes.Equal(payload, got))
	}
	_, err = sealed.Read(disk, "/d/f", magic, 10)
	require.Error(t, err, "it is larger")
	_, err = sealed.Read(disk, "/d/f", "TWTEST\x02", 100)
	require.ErrorIs(t, err, sealed.ErrDamaged, "of another format")
}

func TestEveryFlippedByteAndEveryCutIsFound(t *testing.T) {
	t.Parallel()
	disk := fsx.NewMem()
	require.NoError(t, disk.MkdirAll("/d"))
	require.NoError(t, sealed.Write(disk, "/d/f", magic, []byte("payload")))
	whole, err := fsx.ReadFile(disk, "/d/f", 100)
	require.NoError(t, err)
	put := func(b []byte) {
		f, err := disk.OpenFile("/d/f", fsx.ReadWrite|fsx.Create|fsx.Trunc)
		require.NoError(t, err)
		_, err = f.WriteAt(b, 0)
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
	for i := range whole {
		flipped := bytes.Clone(whole)
		flipped[i] ^= 4
		put(flipped)
		_, err := sealed.Read(disk, "/d/f", magic, 100)
		require.ErrorIs(t, err, sealed.ErrDamaged, "byte %d", i)
		put(whole[:i])
		_, err = sealed.Read(disk, "/d/f", magic, 100)
		require.ErrorIs(t, err, sealed.ErrDamaged, "cut to %d", i)
	}
}

// A power cut while a file is replaced leaves the old one or the new one.
func TestAPowerCutLeavesTheOldOrTheNewFile(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		disk := fsx.NewCrashMem()
		require.NoError(t, disk.MkdirAll("/d"))
		require.NoError(t, disk.SyncDir("/"))
		require.NoError(t, sealed.Write(disk, "/d/f", magic, []byte("old")))
		broken := fsx.NewInject(disk, fsx.FailNth(int(seed%8)+1, syscall.EIO))
		wrote := sealed.Write(broken, "/d/f", magic, []byte("new"))
		after := disk.Crash(seed)
		got, err := sealed.Read(after, "/d/f", magic, 100)
		require.NoError(t, err, "seed %d", seed)
		require.Contains(t, []string{"old", "new"}, string(got))
		if wrote == nil {
			require.Equal(t, "new", string(got))
		}
	}
}
