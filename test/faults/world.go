//go:build linux

package faults

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Ports of every node, each at its own address.
const (
	httpPort   = 8080
	gossipPort = 7946
	peerPort   = 7947
)

// largeDisk is the size of a disk whose power can be cut, in MiB; what is not written takes no room.
const largeDisk = 8192

// Password is the administrator's, whose name is admin.
const Password = "the administrator's password"

// Setup is what a World is made of.
type Setup struct {
	Binary string // of tidewire
	Dir    string // for data folders and logs; it must exist
	Nodes  int
	// SmallDisk gives the last node a disk of so many MiB in memory; 0: none has one.
	SmallDisk int
	// PowerCuts gives every node a disk in a file, whose power can be cut.
	PowerCuts bool
	Args      []string // of every node's serve, beyond what the World gives
}

// World is a cluster of real processes. Its methods, but for Close, may be called by several
// goroutines, each for another node.
type World struct {
	setup Setup
	net   *network
	nodes []*Node // from 1; 0 is nil
	key   string

	injects bool         // the binary lets its clock be set
	powered atomic.Int64 // when the power failed last, Unix nanoseconds
}

// Node is a data folder and the process that runs on it, if one does.
type Node struct {
	ID  int
	Dir string
	URL string

	w    *World
	log  *os.File
	disk *disk // nil: it has none of its own

	mu       sync.Mutex
	cmd      *exec.Cmd     // guarded by mu: the process that was started last
	ended    chan struct{} // guarded by mu: closed when it has ended
	disabled time.Time     // guarded by mu: until when it may be behind, by a fault
}

// NewWorld makes the network and the folders; nothing runs yet.
func NewWorld(s Setup) (*World, error) {
	if why := Unable(); why != "" {
		return nil, errors.New(why)
	}
	var key [32]byte
	_, _ = rand.Read(key[:]) // never fails (crypto/rand)
	w := &World{setup: s, nodes: make([]*Node, s.Nodes+1), key: filepath.Join(s.Dir, "cluster.key"), injects: Injects(s.Binary)}
	if err := os.WriteFile(w.key, []byte(base64.StdEncoding.EncodeToString(key[:])), 0o600); err != nil {
		return nil, err
	}
	var err error
	if w.net, err = newNetwork(s.Nodes); err != nil {
		return nil, err
	}
	for i := 1; i <= s.Nodes; i++ {
		n := &Node{ID: i, Dir: filepath.Join(s.Dir, fmt.Sprint("node-", i)), URL: "http://" + w.net.at(i, httpPort), w: w}
		w.nodes[i] = n
		if n.log, err = os.Create(n.Dir + ".log"); err == nil {
			err = n.SetClock(0)
		}
		if err != nil {
			return nil, errors.Join(err, w.Close())
		}
	}
	if err := w.disks(); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

// disks gives nodes disks of their own.
func (w *World) disks() error {
	for _, n := range w.Nodes() {
		size := largeDisk
		switch {
		case n.ID == w.setup.Nodes && w.setup.SmallDisk > 0:
			size = w.setup.SmallDisk
		case !w.setup.PowerCuts:
			continue
		}
		d, err := newDisk(filepath.Join(w.setup.Dir, fmt.Sprint("disk-", n.ID)), size, !w.setup.PowerCuts)
		if d != nil {
			n.disk, n.Dir = d, filepath.Join(d.dir, "data")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Close kills what runs and takes everything down but the folders.
func (w *World) Close() error {
	var errs []error
	for _, n := range w.nodes[1:] {
		if n == nil {
			continue
		}
		n.Kill()
		if n.log != nil {
			errs = append(errs, n.log.Close())
		}
		if n.disk != nil {
			errs = append(errs, n.disk.close())
		}
	}
	return errors.Join(append(errs, w.net.close())...)
}

// Node is one of the nodes, numbered from 1 as their ids are.
func (w *World) Node(id int) *Node { return w.nodes[id] }

// Nodes are all of them.
func (w *World) Nodes() []*Node { return w.nodes[1:] }

// Start starts every node and waits until all are ready.
func (w *World) Start(ctx context.Context) error {
	for _, n := range w.Nodes() {
		if err := n.Spawn(); err != nil {
			return err
		}
	}
	for _, n := range w.Nodes() {
		if err := n.AwaitReady(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (n *Node) args() []string {
	at := n.w.net.at
	return append([]string{
		"netns", "exec", n.w.net.namespace(n.ID), n.w.setup.Binary, "serve", "--node-id", fmt.Sprint(n.ID), "--data-dir", n.Dir,
		"--http-listen", at(n.ID, httpPort), "--kafka-listen", "off", "--gossip-listen", at(n.ID, gossipPort), "--peer-listen", at(n.ID, peerPort),
		"--cluster-key-file", n.w.key, "--bootstrap-expect", fmt.Sprint(n.w.setup.Nodes), "--join", at(1, gossipPort), "--join", at(2, gossipPort),
		"--rack", fmt.Sprint("r", n.ID), "--disk-reserve", "16MiB", "--metrics-public",
	}, n.w.setup.Args...)
}

// clockVariable names the file with the offset of a node's wall clock. Only a binary that was built
// with the tag faultinject knows it; others do not start with it.
const clockVariable = "TIDEWIRE_FAULT_CLOCK_OFFSET_FILE"

// Injects tells whether a binary lets its wall clock be set.
func Injects(binary string) bool {
	c := exec.CommandContext(context.Background(), binary, "config")
	c.Env = []string{clockVariable + "=" + os.DevNull}
	return c.Run() == nil
}

func (n *Node) clock() string { return filepath.Join(n.w.setup.Dir, fmt.Sprint("clock-", n.ID)) }

// SetClock sets the node's wall clock off, whether it runs or not. The binary must be one that
// Injects.
func (n *Node) SetClock(off time.Duration) error {
	next := n.clock() + ".next"
	if err := os.WriteFile(next, []byte(off.String()), 0o644); err != nil {
		return err
	}
	return os.Rename(next, n.clock())
}

// Spawn starts the process and does not wait for it.
func (n *Node) Spawn() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.runningLocked() {
		return fmt.Errorf("node %d runs already", n.ID)
	}
	// ip replaces itself by the node, so that the process is the node's.
	c := exec.CommandContext(context.Background(), "ip", n.args()...)
	c.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + n.w.setup.Dir, "LANG=C.UTF-8", "TIDEWIRE_ADMIN_PASSWORD=" + Password}
	if n.w.injects {
		c.Env = append(c.Env, clockVariable+"="+n.clock())
	}
	c.Stdout, c.Stderr = n.log, n.log
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	n.cmd, n.ended = c, ended
	go func() {
		defer close(ended)
		_ = c.Wait() // the state says how it ended
	}()
	return nil
}

func (n *Node) runningLocked() bool {
	if n.cmd == nil {
		return false
	}
	select {
	case <-n.ended:
		return false
	default:
		return true
	}
}

// Running tells whether the process runs.
func (n *Node) Running() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.runningLocked()
}

// Start starts the process and waits until it is ready.
func (n *Node) Start(ctx context.Context) error {
	if err := n.Spawn(); err != nil {
		return err
	}
	return n.AwaitReady(ctx)
}

// readyTime is how long a node may take.
const readyTime = 60 * time.Second

// AwaitReady waits until the node says that it is ready.
func (n *Node) AwaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTime)
	defer cancel()
	c := http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	for {
		if !n.Running() {
			return fmt.Errorf("node %d has ended before it was ready: %s", n.ID, n.Tail())
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, n.URL+"/readyz", nil)
		if err != nil {
			return err
		}
		if resp, err := c.Do(req); err == nil {
			_ = resp.Body.Close() // the status is all
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		if !pause(ctx, 50*time.Millisecond) {
			return fmt.Errorf("node %d is not ready after %s: %s", n.ID, readyTime, n.Tail())
		}
	}
}

// Tail is the end of what the node has logged.
func (n *Node) Tail() string {
	b, err := os.ReadFile(n.log.Name())
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(lines[max(0, len(lines)-15):], "\n")
}

// Log is everything that it has logged.
func (n *Node) Log() string {
	b, err := os.ReadFile(n.log.Name())
	if err != nil {
		return err.Error()
	}
	return string(b)
}

func (n *Node) signal(s syscall.Signal) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.runningLocked() {
		_ = n.cmd.Process.Signal(s) // it may have ended
	}
}

// Kill ends the process with SIGKILL.
func (n *Node) Kill() {
	n.signal(syscall.SIGKILL)
	n.mu.Lock()
	ended := n.ended
	n.mu.Unlock()
	if ended != nil {
		<-ended
	}
}

// Pause and Resume stop the process and have it go on.
func (n *Node) Pause()  { n.signal(syscall.SIGSTOP) }
func (n *Node) Resume() { n.signal(syscall.SIGCONT) }

// stopTime is how long a node may take to stop.
const stopTime = 45 * time.Second

// Stop asks the process to end, as a service manager does; it has to end with status 0.
func (n *Node) Stop() error {
	n.mu.Lock()
	cmd, ended := n.cmd, n.ended
	n.mu.Unlock()
	if cmd == nil {
		return nil
	}
	n.signal(syscall.SIGTERM)
	select {
	case <-ended:
	case <-time.After(stopTime):
		n.signal(syscall.SIGQUIT) // prints where it hangs
		<-ended
		return fmt.Errorf("node %d did not stop within %s: %s", n.ID, stopTime, n.Tail())
	}
	if code := cmd.ProcessState.ExitCode(); code != 0 {
		return fmt.Errorf("node %d ended with status %d: %s", n.ID, code, n.Tail())
	}
	return nil
}

// passing tells that an error may be over when it is tried again: the node says so, or its disk has
// just failed it, and it will start anew.
func (w *World) passing(a *Answer) bool {
	p := a.Problem()
	return a.Err != nil || p.Retryable || p.Code == "storage-error" && time.Since(time.Unix(0, w.powered.Load())) < requestTime
}

// impair notes that the node may be behind for so long.
func (n *Node) impair(d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if until := time.Now().Add(d); until.After(n.disabled) {
		n.disabled = until
	}
}

func (n *Node) impaired() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return time.Now().Before(n.disabled)
}

// Cut drops what one node sends to another, until Heal of the latter.
func (w *World) Cut(from, to int) error { return w.net.cut(from, to) }

// Isolate cuts a node off from all others, in both directions, until Rejoin.
func (w *World) Isolate(id int) error {
	var errs []error
	for _, o := range w.Nodes() {
		if o.ID != id {
			errs = append(errs, w.net.cut(id, o.ID), w.net.cut(o.ID, id))
		}
	}
	return errors.Join(errs...)
}

// Heal ends everything that drops packets, on all nodes.
func (w *World) Heal() error {
	var errs []error
	for _, o := range w.Nodes() {
		errs = append(errs, w.net.heal(o.ID))
	}
	return errors.Join(errs...)
}

// pause waits, and reports whether the context goes on.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
