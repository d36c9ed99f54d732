package trash

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tidewire/internal/fsx"
	"tidewire/internal/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// What is in the folder, put there now or by an earlier run, goes after its delay; what
// nobody knew stays for a day.
func TestEntriesAreDeletedAfterTheirDelay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mem := fsx.NewMem()
		tr := New(mem, "/trash", time.Minute, slog.New(slog.DiscardHandler))
		stray := tr.Name("old-0", model.TopicID{1}, time.Now(), StraySuffix)
		later := tr.Name("events-0", model.TopicID{2}, time.Now(), "")
		for _, dir := range []string{"left", stray, later} {
			require.NoError(t, mem.MkdirAll("/trash/"+dir+"/inner"))
		}
		stop, ended := make(chan struct{}), make(chan struct{})
		require.NoError(t, tr.Load(time.Now()))
		go func() { defer close(ended); tr.Loop(t.Context(), stop, time.Now) }()
		names := func() (out []string) {
			infos, err := mem.ReadDir("/trash")
			require.NoError(t, err)
			for _, i := range infos {
				out = append(out, i.Name)
			}
			return out
		}
		time.Sleep(59 * time.Second)
		synctest.Wait()
		require.Len(t, names(), 3)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Equal(t, []string{stray}, names())
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		require.Empty(t, names())
		close(stop)
		<-ended
	})
}

// When room is needed the delay ends at once, but for what nobody knew.
func TestEntriesAreDeletedAtOnceWhereRoomIsNeeded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mem := fsx.NewMem()
		log := slog.New(slog.DiscardHandler)
		tr := New(mem, "/trash", time.Minute, log)
		stray := tr.Name("old-0", model.TopicID{1}, time.Now(), StraySuffix)
		for _, dir := range []string{stray, "left", "other"} {
			require.NoError(t, mem.MkdirAll("/trash/"+dir))
		}
		require.NoError(t, fsx.WriteFile(mem, "/segment", []byte("x")))
		bin := NewBin(mem, log)
		bin.Add(segment{"/segment"}, time.Now().Add(time.Minute))
		require.NoError(t, tr.Load(time.Now()))
		stop, ended := make(chan struct{}), make(chan struct{}, 2)
		go func() { tr.Loop(t.Context(), stop, time.Now); ended <- struct{}{} }()
		go func() { bin.Loop(t.Context(), stop, time.Now); ended <- struct{}{} }()
		synctest.Wait()
		there := func(name string) bool {
			_, err := mem.Stat(name)
			return err == nil
		}
		require.True(t, there("/trash/left") && there("/segment"))
		tr.DeleteNow(time.Now())
		bin.DeleteNow(time.Now())
		synctest.Wait()
		require.False(t, there("/trash/left") || there("/trash/other") || there("/segment"))
		time.Sleep(23 * time.Hour)
		synctest.Wait()
		require.True(t, there("/trash/"+stray))
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		require.False(t, there("/trash/"+stray))
		close(stop)
		<-ended
		<-ended
	})
}

// segment is one file that waits.
type segment []string

func (s segment) Close() error    { return nil }
func (s segment) Files() []string { return s }
