//go:build linux

package faults

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// What is synced outlives a power cut, and nothing else does.
func TestAPowerCutTakesWhatWasNotSynced(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := CutsPower(t.Context(), dir); err != nil {
		t.Skipf("skipped: this machine cannot take the power of a disk: %v", err)
	}
	d, err := newDisk(filepath.Join(dir, "disk"), 64, false)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.close()) })
	synced, lost := filepath.Join(d.dir, "synced"), filepath.Join(d.dir, "lost")
	f, err := os.Create(synced)
	require.NoError(t, err)
	_, err = f.WriteString("kept")
	require.NoError(t, err)
	require.NoError(t, f.Sync())
	_, err = f.WriteString(" and not kept")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(lost, []byte("never synced"), 0o644))
	require.NoError(t, d.cut())
	_, err = f.WriteString("too late")
	require.Error(t, err)
	_ = f.Close() // its disk is gone
	require.NoError(t, d.again(t.Context()))
	b, err := os.ReadFile(synced)
	require.NoError(t, err)
	require.Equal(t, "kept", string(b))
	_, err = os.Stat(lost)
	require.ErrorIs(t, err, os.ErrNotExist)
}
