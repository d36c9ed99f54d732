//go:build linux

package faults

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Unable says in one line why this machine cannot run a World; "" where it can.
func Unable() string {
	if os.Geteuid() != 0 {
		return "network namespaces take root"
	}
	for _, c := range []string{"ip", "iptables", "tc"} {
		if _, err := exec.LookPath(c); err != nil {
			return "the command " + c + " is missing (Debian: iproute2, iptables)"
		}
	}
	name := fmt.Sprint("twprobe", os.Getpid())
	if err := command("ip", "netns", "add", name); err != nil {
		return "no network namespace can be made: " + err.Error()
	}
	err := command("ip", "netns", "exec", name, "iptables", "-w", "-A", "INPUT", "-m", "statistic", "--mode", "random", "--probability", "0.5", "-j", "DROP")
	if err = errors.Join(err, command("ip", "netns", "del", name)); err != nil {
		return "packets cannot be dropped by iptables: " + err.Error()
	}
	return ""
}

func command(name string, args ...string) error {
	out, err := exec.CommandContext(context.Background(), name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// network is a bridge and a namespace for each node, numbered from 1.
type network struct {
	number int // of the bridge: twf<number>, 10.213.<number>.0/24
	nodes  int
}

// networks is how many there may be at a time on a machine.
const networks = 250

// bridges is the prefix of their names.
const bridges = "twf"

// newNetwork makes a network under a number that nobody uses.
func newNetwork(nodes int) (*network, error) {
	sweep()
	var err error
	for i := range networks {
		n := &network{number: 1 + (os.Getpid()+i)%networks, nodes: nodes}
		if err = command("ip", "link", "add", n.bridge(), "type", "bridge"); err != nil {
			continue // in use
		}
		if err = n.build(); err != nil {
			return nil, errors.Join(err, n.close())
		}
		return n, nil
	}
	return nil, err
}

// sweep removes what processes have left that are gone.
func sweep() {
	found, _ := filepath.Glob("/sys/class/net/" + bridges + "*/ifalias") // no pattern error
	for _, path := range found {
		b, err := os.ReadFile(path)
		pid, notNumber := strconv.Atoi(strings.TrimSpace(string(b)))
		if err != nil || notNumber != nil || !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			continue
		}
		number, notNumber := strconv.Atoi(strings.TrimPrefix(filepath.Base(filepath.Dir(path)), bridges))
		if notNumber == nil {
			_ = (&network{number: number, nodes: 9}).close() // somebody else may be at it
		}
	}
}

func (n *network) bridge() string            { return fmt.Sprint(bridges, n.number) }
func (n *network) namespace(node int) string { return fmt.Sprint(bridges, n.number, "-", node) }
func (n *network) outer(node int) string     { return fmt.Sprint(bridges, n.number, "v", node) }
func (n *network) address(node int) string   { return fmt.Sprintf("10.213.%d.%d", n.number, node) }
func (n *network) at(node, port int) string {
	return net.JoinHostPort(n.address(node), strconv.Itoa(port))
}
func (n *network) in(node int, c ...string) error {
	return command("ip", append([]string{"netns", "exec", n.namespace(node)}, c...)...)
}

func (n *network) build() error {
	steps := [][]string{
		{"ip", "link", "set", n.bridge(), "alias", strconv.Itoa(os.Getpid())},
		{"ip", "addr", "add", n.address(254) + "/24", "dev", n.bridge()},
		{"ip", "link", "set", n.bridge(), "up"},
	}
	for i := 1; i <= n.nodes; i++ {
		outer, ns := n.outer(i), n.namespace(i)
		steps = append(steps, [][]string{
			{"ip", "netns", "add", ns},
			{"ip", "link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", ns},
			{"ip", "link", "set", outer, "master", n.bridge(), "up"},
			{"ip", "-n", ns, "addr", "add", n.address(i) + "/24", "dev", "eth0"},
			{"ip", "-n", ns, "link", "set", "eth0", "up"},
			{"ip", "-n", ns, "link", "set", "lo", "up"},
		}...)
	}
	for _, s := range steps {
		if err := command(s[0], s[1:]...); err != nil {
			return err
		}
	}
	return nil
}

func (n *network) close() error {
	var errs []error
	for i := 1; i <= n.nodes; i++ {
		_ = command("ip", "link", "del", n.outer(i)) // a namespace ends later than its deletion, and this with it
		if _, err := os.Stat("/var/run/netns/" + n.namespace(i)); err == nil {
			errs = append(errs, command("ip", "netns", "del", n.namespace(i)))
		}
	}
	return errors.Join(append(errs, command("ip", "link", "del", n.bridge()))...)
}

// cut drops what one node sends to another.
func (n *network) cut(from, to int) error {
	return n.in(to, "iptables", "-w", "-A", "INPUT", "-s", n.address(from), "-j", "DROP")
}

// lose drops each packet between a node and the others, in both directions, with a probability.
func (n *network) lose(node int, probability float64) error {
	var errs []error
	for other := 1; other <= n.nodes; other++ {
		if other == node {
			continue
		}
		for _, rule := range [][]string{{"INPUT", "-s"}, {"OUTPUT", "-d"}} {
			errs = append(errs, n.in(node, "iptables", "-w", "-A", rule[0], rule[1], n.address(other),
				"-m", "statistic", "--mode", "random", "--probability", fmt.Sprintf("%.3f", probability), "-j", "DROP"))
		}
	}
	return errors.Join(errs...)
}

// slow bounds what a node sends.
func (n *network) slow(node int, kbit int) error {
	return n.in(node, "tc", "qdisc", "replace", "dev", "eth0", "root", "tbf", "rate", fmt.Sprint(kbit, "kbit"), "burst", "16kb", "latency", "500ms")
}

func (n *network) fast(node int) error {
	return n.in(node, "tc", "qdisc", "del", "dev", "eth0", "root")
}

// heal ends every drop of packets at a node.
func (n *network) heal(node int) error { return n.in(node, "iptables", "-w", "-F") }
