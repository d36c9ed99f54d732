package datadir

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tidewire/internal/lifecycle"
)

// holderVariable makes the test binary a process that holds a data folder.
const holderVariable = "DATADIR_TEST_HOLD"

func TestMain(m *testing.M) {
	if path := os.Getenv(holderVariable); path != "" {
		os.Exit(hold(path))
	}
	goleak.VerifyTestMain(m)
}

// hold opens the folder, says so, and ends cleanly when its standard input ends.
func hold(path string) int {
	d, err := Open(path)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	if err := d.Publish(Endpoints{HTTP: "http://127.0.0.1:1", PID: os.Getpid()}); err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("held")
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return 1
	}
	if err := d.Close(); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

type process struct {
	cmd  *exec.Cmd
	in   io.Closer
	line string // the first it wrote
}

func startHolder(t *testing.T, path string) *process {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), holderVariable+"="+path)
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	return &process{cmd: cmd, in: in, line: strings.TrimSpace(line)}
}

func mustOpen(t *testing.T, path string) *Dir {
	t.Helper()
	d, err := Open(path)
	require.NoError(t, err)
	return d
}

func TestOpenMakesTheFolderForItsUserAlone(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a", "data")
	d := mustOpen(t, path)
	require.Equal(t, path, d.Path())
	require.Equal(t, filepath.Join(path, "topics"), d.Topics())
	require.Equal(t, filepath.Join(path, "meta"), d.Meta())
	for _, p := range []string{path, d.Topics(), d.Meta()} {
		info, err := os.Stat(p)
		require.NoError(t, err)
		require.Equal(t, fs.ModeDir|0o700, info.Mode(), p)
	}
	require.NoError(t, d.Close())
	again := mustOpen(t, path)
	require.NoError(t, again.Close())
}

func TestOpenKeepsWhatIsThere(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	segment := filepath.Join(path, TopicsName, "t-0", "00000000000000000000.log")
	require.NoError(t, os.MkdirAll(filepath.Dir(segment), 0o755))
	require.NoError(t, os.WriteFile(segment, []byte("records"), 0o600))
	require.NoError(t, mustOpen(t, path).Close())
	b, err := os.ReadFile(segment)
	require.NoError(t, err)
	require.Equal(t, "records", string(b))
}

func TestPathMayHoldSpacesAndOtherScripts(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), " Daten ü 数据 '\"%s")
	p := startHolder(t, path)
	require.Equal(t, "held", p.line)
	_, err := Open(path)
	require.ErrorContains(t, err, path)
	require.FileExists(t, filepath.Join(path, EndpointsName))
}

func TestSecondProcessIsRefusedNamingTheFirst(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	d := mustOpen(t, path)
	second := startHolder(t, path)
	require.Equal(t, fmt.Sprintf("the data folder is in use by process %d (lock file %s)", os.Getpid(), filepath.Join(path, LockName)), second.line)
	require.Error(t, second.cmd.Wait())
	require.NoError(t, d.Close())

	third := startHolder(t, path)
	require.Equal(t, "held", third.line)
	_, err := Open(path)
	var held *HeldError
	require.True(t, errors.As(err, &held))
	require.Equal(t, third.cmd.Process.Pid, held.PID)
	require.NotContains(t, err.Error(), "\n")
	require.FileExists(t, filepath.Join(path, EndpointsName), "a refused process leaves the holder's file")
	require.NoError(t, third.in.Close())
	require.NoError(t, third.cmd.Wait())
	require.NoFileExists(t, filepath.Join(path, EndpointsName), "a clean stop removes it")
}

func TestOpenTwiceInOneProcessIsRefused(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	d := mustOpen(t, path)
	_, err := Open(path)
	var held *HeldError
	require.True(t, errors.As(err, &held))
	require.Equal(t, os.Getpid(), held.PID)
	require.NoError(t, d.Close())
}

func TestLockOfAKilledProcessIsTakenOver(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	dead := startHolder(t, path)
	require.Equal(t, "held", dead.line)
	require.NoError(t, dead.cmd.Process.Kill())
	require.Error(t, dead.cmd.Wait())
	require.Equal(t, strconv.Itoa(dead.cmd.Process.Pid)+"\n", readFile(t, filepath.Join(path, LockName)))
	require.FileExists(t, filepath.Join(path, EndpointsName))

	d := mustOpen(t, path)
	require.Equal(t, strconv.Itoa(os.Getpid())+"\n", readFile(t, filepath.Join(path, LockName)))
	_, err := ReadEndpoints(path)
	require.ErrorIs(t, err, fs.ErrNotExist, "the killed process's addresses are gone")
	require.NoError(t, d.Close())
	require.Empty(t, readFile(t, filepath.Join(path, LockName)))
}

// A holder that has not written its pid, or wrote nonsense, is refused all the same.
func TestHolderWithoutPidIsRefused(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "x", "-5", "99999999999999999999"} {
		path := t.TempDir()
		d := mustOpen(t, path)
		require.NoError(t, os.WriteFile(filepath.Join(path, LockName), []byte(text), 0o600))
		_, err := Open(path)
		require.EqualError(t, err, "the data folder is in use by another process (lock file "+filepath.Join(path, LockName)+")")
		require.NoError(t, d.Close())
	}
}

func TestSomethingElseInPlaceOfAFolderIsRefused(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "data")
	require.NoError(t, os.WriteFile(file, []byte("mine"), 0o600))
	_, err := Open(file)
	require.ErrorIs(t, err, ErrNotFolder)
	require.EqualError(t, err, file+" is not a folder")
	require.Equal(t, "mine", readFile(t, file))
	_, err = Open(filepath.Join(file, "below"))
	require.ErrorIs(t, err, syscall.ENOTDIR)

	path := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(path, MetaName), nil, 0o600))
	_, err = Open(path)
	require.EqualError(t, err, filepath.Join(path, MetaName)+" is not a folder")
	require.NoError(t, os.Remove(filepath.Join(path, MetaName)))
	require.NoError(t, mustOpen(t, path).Close(), "the failed start has let go of the lock")

	_, err = Open("")
	require.ErrorIs(t, err, errNoPath)
}

func TestFolderThatMayNotBeWrittenIsRefusedInOneLine(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	require.NoError(t, os.Chmod(parent, 0o555))
	t.Cleanup(func() { require.NoError(t, os.Chmod(parent, 0o755)) })
	for _, path := range []string{parent, filepath.Join(parent, "data")} {
		err := asNobody(t, func() error { _, err := Open(path); return err })
		require.ErrorIs(t, err, fs.ErrPermission)
		require.ErrorContains(t, err, path)
		require.NotContains(t, err.Error(), "\n")
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(b)
}

func TestEndpointsAreReadBack(t *testing.T) {
	t.Parallel()
	d := mustOpen(t, t.TempDir())
	e := Endpoints{
		HTTP: "http://127.0.0.1:41234/mq", Kafka: "127.0.0.1:9092", PID: os.Getpid(), NodeID: 7, Version: "1.2.3",
		StartedAt: time.Date(2026, 1, 31, 12, 0, 0, 5e6, time.UTC),
	}
	require.NoError(t, d.Publish(e))
	got, err := ReadEndpoints(d.Path())
	require.NoError(t, err)
	require.Equal(t, e, got)
	require.JSONEq(t, fmt.Sprintf(`{"http":"http://127.0.0.1:41234/mq","kafka":"127.0.0.1:9092","gossip":null,"peer":null,
		"pid":%d,"node_id":7,"version":"1.2.3","started_at":"2026-01-31T12:00:00.005Z"}`, os.Getpid()),
		readFile(t, filepath.Join(d.Path(), EndpointsName)))

	e.Gossip, e.Peer, e.Kafka = "g:1", "p:2", ""
	require.NoError(t, d.Publish(e))
	got, err = ReadEndpoints(d.Path())
	require.NoError(t, err)
	require.Equal(t, e, got)
	entries, err := os.ReadDir(d.Path())
	require.NoError(t, err)
	require.Len(t, entries, 4, "nothing is left over: topics, meta, lock, endpoints")

	require.NoError(t, d.Close())
	_, err = ReadEndpoints(d.Path())
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestFailedPublishLeavesTheOldEndpoints(t *testing.T) {
	t.Parallel()
	d := mustOpen(t, t.TempDir())
	require.NoError(t, d.Publish(Endpoints{HTTP: "http://a"}))
	tmp := filepath.Join(d.Path(), EndpointsName+".tmp")
	require.NoError(t, os.Mkdir(tmp, 0o700))
	require.Error(t, d.Publish(Endpoints{HTTP: "http://b"}))
	got, err := ReadEndpoints(d.Path())
	require.NoError(t, err)
	require.Equal(t, "http://a", got.HTTP)
	require.NoError(t, d.Close())
}

func TestDamagedEndpointsAreAnError(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "{", `{"http":1}`, `{"started_at":"today"}`} {
		path := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(path, EndpointsName), []byte(text), 0o600))
		_, err := ReadEndpoints(path)
		require.ErrorContains(t, err, EndpointsName)
	}
}

// asNobody runs fn with the file access of an ordinary user, where the tests run as
// root, whom no mode stops. Its thread stays locked and so ends with the goroutine:
// one without rights must not be given back.
func asNobody(t *testing.T, fn func() error) error {
	t.Helper()
	if os.Geteuid() != 0 {
		return fn()
	}
	result := make(chan error, 1)
	g := lifecycle.New(t.Context())
	g.Go("nobody", func(context.Context) {
		runtime.LockOSThread()
		if err := syscall.Setfsuid(65534); err != nil {
			result <- fmt.Errorf("give up the rights of root: %w", err)
			return
		}
		result <- fn()
	})
	err := <-result
	require.NoError(t, g.Stop(time.Minute))
	return err
}
