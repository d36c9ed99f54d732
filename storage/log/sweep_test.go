package log

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tidewire/internal/fsx"
	"tidewire/internal/lifecycle"
	"tidewire/internal/model"
)

// trashed lists the trash folder.
func trashed(t *testing.T, fsys fsx.FS) []string {
	t.Helper()
	entries, err := fsys.ReadDir("/data/trash")
	require.NoError(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name)
	}
	return names
}

func TestAFolderNobodyKnowsIsKeptInTheTrashForADay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mem := fsx.NewMem()
		open := func() (*Store, *lifecycle.Group) {
			g := lifecycle.New(context.Background())
			s, err := OpenStore(StoreOptions{FS: mem, Dir: "/data", Group: g, Now: time.Now})
			require.NoError(t, err)
			return s, g
		}
		s, g := open()
		for p := range 3 {
			_, err := s.Open(model.TopicID{byte(p + 1)}, "t", model.PartitionID(p), Config{})
			require.NoError(t, err)
		}
		require.NoError(t, s.Close())
		require.NoError(t, g.Stop(time.Second))

		s, g = open()
		_, err := s.Open(model.TopicID{1}, "t", 0, Config{})
		require.NoError(t, err)
		require.NoError(t, s.Sweep(func(folder string) bool { return folder == "t-1" }))
		names := trashed(t, mem)
		require.Len(t, names, 1, "neither the open folder nor the expected one goes")
		require.Contains(t, names[0], "t-2."+model.TopicID{3}.String())
		time.Sleep(23 * time.Hour)
		synctest.Wait()
		require.Len(t, trashed(t, mem), 1)
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		require.Empty(t, trashed(t, mem))
		require.NoError(t, s.Close())
		require.NoError(t, g.Stop(time.Second))
	})
}
