package e2e

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// inside prepares a command of an image, with the image as its whole file system, as the
// image's user.
func (s *stage) inside(t *testing.T, env []string, words ...string) *exec.Cmd {
	t.Helper()
	uid, gid, err := ids(s.user)
	require.NoError(t, err)
	c := exec.Command(words[0], words[1:]...)
	c.Dir = "/"
	c.Env = append(append([]string{}, s.env...), env...)
	c.SysProcAttr = &syscall.SysProcAttr{
		Chroot: s.root, Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)},
	}
	return c
}

func TestTheImageIsBuiltAndServes(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("a file system of one's own needs root")
	}
	b := &builder{t: t, context: "../..", stages: map[string]*stage{}}
	image := b.build("../../docker/Dockerfile")
	require.Equal(t, 4, b.ran, "every RUN was executed")
	requireStatic(t, image.place(image.entry[0]))
	require.NotContains(t, image.user, "0:0")

	env := []string{
		"TIDEWIRE_ADMIN_PASSWORD=image test", "TIDEWIRE_HTTP_LISTEN=127.0.0.1:0", "TIDEWIRE_KAFKA_LISTEN=off",
		"TIDEWIRE_GOSSIP_LISTEN=127.0.0.1:0", "TIDEWIRE_PEER_LISTEN=127.0.0.1:0",
	}
	var out bytes.Buffer
	require.Error(t, image.inside(t, env, image.health...).Run(), "not healthy before the start")
	node := image.inside(t, env, append(append([]string{}, image.entry...), image.cmd...)...)
	node.Stdout, node.Stderr = &out, &out
	require.NoError(t, node.Start())
	ended := false
	t.Cleanup(func() {
		if !ended {
			_ = node.Process.Kill()
			_ = node.Wait()
		}
	})
	healthy := false
	for range 600 {
		if healthy = image.inside(t, env, image.health...).Run() == nil; healthy {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if healthy {
		requirePage(t, endpointOf(t, image.place("/var/lib/tidewire"))+"/ui/")
	}
	require.NoError(t, node.Process.Signal(syscall.SIGTERM))
	err := node.Wait()
	ended = true
	require.True(t, healthy, out.String())
	require.NoError(t, err, out.String())
}

// requireStatic looks for a dynamic linker.
func requireStatic(t *testing.T, name string) {
	t.Helper()
	f, err := elf.Open(name)
	require.NoError(t, err)
	defer func() { _ = f.Close() }()
	for _, p := range f.Progs {
		require.NotEqual(t, elf.PT_INTERP, p.Type, "the binary is static")
	}
}

func endpointOf(t *testing.T, data string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(data, "endpoints.json"))
	require.NoError(t, err)
	var e struct {
		HTTP string `json:"http"`
	}
	require.NoError(t, json.Unmarshal(raw, &e))
	return e.HTTP
}

func requirePage(t *testing.T, url string) {
	t.Helper()
	resp, err := http.Get(url)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.Contains(t, string(body), "<html")
	require.Contains(t, string(body), "/assets/", "the console, and not the page that stands in for it")
	http.DefaultClient.CloseIdleConnections()
}

// composed is what a compose file says of its services.
type composed struct {
	Services map[string]struct {
		Build       struct{ Context, Dockerfile string }
		Environment map[string]string
		Ports       []string
		Volumes     []string
	}
	Volumes map[string]any
}

// readCompose reads a compose file of the folder docker and looks that its services are built from
// what is there, and keep their data in the image's volume, each in one of its own.
func readCompose(t *testing.T, name string) (f composed) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("../../docker", name))
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(raw, &f))
	taken := map[string]bool{}
	for _, s := range f.Services {
		require.FileExists(t, filepath.Join("../../docker", s.Build.Context, s.Build.Dockerfile))
		require.Len(t, s.Volumes, 1)
		volume, target, _ := strings.Cut(s.Volumes[0], ":")
		require.Contains(t, f.Volumes, volume)
		require.False(t, taken[volume], "%s is one node's", volume)
		taken[volume] = true
		declared := false
		for _, i := range instructions(t, "../../docker/Dockerfile") {
			declared = declared || i.verb == "VOLUME" && i.rest == target
		}
		require.True(t, declared, "%s is the image's volume", target)
	}
	return f
}

func TestTheComposeFileIsOfThisNode(t *testing.T) {
	t.Parallel()
	f := readCompose(t, "compose.yml")
	require.Len(t, f.Services, 1)
	home := t.TempDir()
	var env []string
	for name := range f.Services["tidewire"].Environment {
		env = append(env, name+"=compose test")
	}
	r := runEnv(t, append(plainEnv(home), env...), strings.NewReader(""), "config", "--data-dir", filepath.Join(home, "data"))
	require.Zero(t, r.code, "a node knows these settings: %s", r.err)
}

// The compose file of a cluster makes one: its settings run three nodes here, with addresses of this
// machine in the place of the containers'.
func TestTheComposeFileOfAClusterMakesOne(t *testing.T) {
	t.Parallel()
	f := readCompose(t, "compose.cluster.yml")
	require.Len(t, f.Services, 3)
	key := strings.TrimSpace(runEnv(t, plainEnv(t.TempDir()), nil, "cluster", "keygen").out)
	here := map[string]string{}
	for name, s := range f.Services {
		_, port, ok := strings.Cut(s.Environment["TIDEWIRE_GOSSIP_LISTEN"], ":")
		require.True(t, ok)
		here[name+":"+port] = freeAddress(t)
	}
	var nodes []*node
	at := map[string]bool{}
	for name, s := range f.Services {
		n := newNode(t)
		require.Len(t, s.Ports, 1)
		outside, inside, _ := strings.Cut(strings.TrimPrefix(s.Ports[0], "127.0.0.1:"), ":")
		require.Equal(t, "8080", inside)
		require.Equal(t, "127.0.0.1:"+outside, s.Environment["TIDEWIRE_HTTP_ADVERTISE"], "clients are told where they reach it")
		require.False(t, at[outside])
		at[outside] = true
		n.args = nil
		for variable, value := range s.Environment {
			switch variable {
			case "TIDEWIRE_ADMIN_PASSWORD":
				require.True(t, strings.HasPrefix(value, "${"+variable+":?"), value)
				value = "correct horse battery"
			case "TIDEWIRE_CLUSTER_KEY":
				require.True(t, strings.HasPrefix(value, "${"+variable+":?"), value)
				value = key
			case "TIDEWIRE_JOIN":
				var join []string
				for _, a := range strings.Split(value, ",") {
					require.Contains(t, here, a, "it is a service of the file, at its port of gossip")
					join = append(join, here[a])
				}
				value = strings.Join(join, ",")
			case "TIDEWIRE_GOSSIP_LISTEN":
				_, port, _ := strings.Cut(value, ":")
				n.args = append(n.args, "--gossip-listen", here[name+":"+port]) // in the place of newNode's
				continue
			case "TIDEWIRE_PEER_LISTEN":
				require.True(t, strings.HasPrefix(value, "0.0.0.0:"), value)
				continue
			}
			n.env = append(n.env, variable+"="+value)
		}
		n.spawn(t)
		nodes = append(nodes, n)
	}
	for _, n := range nodes {
		n.awaitReady(t)
		a := login(t, n, "admin", "correct horse battery")
		var v clusterView
		eventually(t, startLimit, "all see all", func() bool {
			v = clusterView{}
			a.must(t, "GET", "/v1/cluster", nil, &v)
			return v.states() == "1online 2online 3online"
		})
	}
}

func TestTheServiceUnitStartsANode(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("../../scripts/systemd/tidewire.service")
	require.NoError(t, err)
	var words []string
	for line := range strings.Lines(string(raw)) {
		if command, ok := strings.CutPrefix(strings.TrimSpace(line), "ExecStart="); ok {
			words = strings.Fields(command)
		}
	}
	require.Equal(t, []string{"/usr/local/bin/tidewire", "serve"}, words[:2])
	file := filepath.Join(t.TempDir(), "config.yaml")
	require.NoError(t, os.WriteFile(file, []byte("http-listen: 127.0.0.1:8080\n"), 0o600))
	args := []string{"config"}
	for _, w := range words[2:] {
		args = append(args, strings.ReplaceAll(w, "/etc/tidewire/config.yaml", file))
	}
	r := runEnv(t, plainEnv(t.TempDir()), strings.NewReader(""), args...)
	require.Zero(t, r.code, "a node takes these flags: %s", r.err)

	verify, err := exec.LookPath("systemd-analyze")
	if err != nil {
		return // the rest is for a machine with systemd
	}
	unit := filepath.Join(t.TempDir(), "tidewire.service")
	require.NoError(t, os.WriteFile(unit, bytes.ReplaceAll(raw, []byte("/usr/local/bin/tidewire"), []byte(binary)), 0o600))
	out, err := exec.Command(verify, "verify", unit).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

func TestAReleaseIsStaticNamedAndRepeatable(t *testing.T) {
	t.Parallel()
	target := runtime.GOOS + "/" + runtime.GOARCH
	build := func() (sums string, folder string) {
		root := t.TempDir()
		b := &builder{t: t, context: "../..", ignored: []string{".git", ".cache", "bin", "data", "dist", "ui/node_modules", "test"}}
		b.copyTree("../..", root, true, "")
		c := exec.Command(filepath.Join(root, "scripts/release"), target)
		c.Env = append(os.Environ(), "VERSION=v0.0.0-test")
		out, err := c.CombinedOutput()
		require.NoError(t, err, "%s", out)
		raw, err := os.ReadFile(filepath.Join(root, "dist/SHA256SUMS"))
		require.NoError(t, err)
		return string(raw), filepath.Join(root, "dist")
	}
	first, dist := build()
	name := fmt.Sprintf("tidewire-v0.0.0-test-%s-%s", runtime.GOOS, runtime.GOARCH)
	archive, err := os.ReadFile(filepath.Join(dist, name+".tar.gz"))
	require.NoError(t, err)
	require.Equal(t, fmt.Sprintf("%x  %s.tar.gz\n", sha256.Sum256(archive), name), first)
	out, err := exec.Command("tar", "-C", dist, "-xzf", filepath.Join(dist, name+".tar.gz")).CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, f := range []string{"LICENSE", "README.md", "CHANGELOG.md", "tidewire.service"} {
		require.FileExists(t, filepath.Join(dist, name, f))
	}
	requireStatic(t, filepath.Join(dist, name, "tidewire"))
	version, err := exec.Command(filepath.Join(dist, name, "tidewire"), "--version").Output()
	require.NoError(t, err)
	require.Contains(t, string(version), "v0.0.0-test")
	released, err := os.ReadFile(filepath.Join(dist, name, "tidewire"))
	require.NoError(t, err)
	require.NotContains(t, string(released), "FAULT_CLOCK", "nobody sets a released node's clock")

	second, _ := build()
	require.Equal(t, first, second, "the same sources give the same bytes")
}
