package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"tidewire/internal/client"

	"github.com/spf13/cobra"
)

const reassignmentsPath = "/v1/reassignments"

func (a *app) reassignmentCommand() *cobra.Command {
	return group("reassignment", "Move partitions between brokers",
		a.listCommand("list", "List the partitions that move, and how far they are", reassignmentsPath,
			"topic", "partition", "from", "to", "isr", "progress", "principal", "since"),
		a.reassignmentCreate(), a.rebalance(), a.reassignmentCancel())
}

// throttleFlag adds --throttle; its value is a number of bytes per second.
func throttleFlag(c *cobra.Command) {
	c.Flags().Int64("throttle", 0, "bytes per second that a node sends, and takes, for moves from now on; 0: no limit (default: as it is)")
}

// throttled adds what --throttle says to a body, where it was given.
func throttled(c *cobra.Command, body map[string]any) map[string]any {
	if c.Flags().Changed("throttle") {
		n, _ := c.Flags().GetInt64("throttle") // it is there
		body["throttle_bytes_per_s"] = n
	}
	return body
}

var errNotAll = errors.New("not all partitions were taken")

// printResults shows what became of partitions; those that were refused are named on standard
// error.
func (a *app) printResults(format string, raw json.RawMessage, list string, columns ...string) error {
	items, err := member(raw, list)
	if err != nil {
		return err
	}
	var failed error
	for _, item := range items {
		var r struct {
			Topic     string          `json:"topic"`
			Partition int             `json:"partition"`
			Problem   *client.Problem `json:"problem"`
		}
		if err := json.Unmarshal(item, &r); err != nil {
			return err
		}
		if r.Problem != nil {
			failed = errNotAll
			fmt.Fprintf(a.errOut, "tidewire: partition %d of %s: %v\n", r.Partition, printable(r.Topic), r.Problem)
		}
	}
	if format == formatJSON {
		return errors.Join(failed, a.printJSON(raw))
	}
	return errors.Join(failed, a.printTable(items, columns...))
}

var resultColumns = []string{"topic", "partition", "leader", "replicas", "adding", "removing"}

// parsePartition reads TOPIC/PARTITION.
func parsePartition(s string) (topic string, partition int, err error) {
	at := strings.LastIndexByte(s, '/')
	if at > 0 {
		partition, err = strconv.Atoi(s[at+1:])
	}
	if at <= 0 || err != nil || partition < 0 {
		return "", 0, usagef("%q is not TOPIC/PARTITION, such as flights/0", s)
	}
	return s[:at], partition, nil
}

// parseMove reads TOPIC/PARTITION=BROKER,BROKER….
func parseMove(s string) (map[string]any, error) {
	left, right, ok := strings.Cut(s, "=")
	if !ok {
		return nil, usagef("%q is not TOPIC/PARTITION=BROKERS, such as flights/0=1,2,3", s)
	}
	topic, partition, err := parsePartition(left)
	if err != nil {
		return nil, err
	}
	replicas := []int{}
	for one := range strings.SplitSeq(right, ",") {
		id, err := strconv.Atoi(one)
		if err != nil {
			return nil, usagef("%q in %q is not the number of a broker", one, s)
		}
		replicas = append(replicas, id)
	}
	return map[string]any{"topic": topic, "partition": partition, "replicas": replicas}, nil
}

func (a *app) reassignmentCreate() *cobra.Command {
	var format string
	var dry bool
	c := &cobra.Command{
		Use: "create [TOPIC/PARTITION=BROKER,…]…", Short: "Move partitions to other brokers, the preferred leader first",
		Long: "Move partitions to other brokers. A partition keeps its old replicas until all of the new ones are in\n" +
			"sync. Without partitions only the throttle is changed.",
		Example: "  tidewire reassignment create flights/0=1,2,4 flights/1=4,1,2 --throttle 52428800",
	}
	c.RunE = a.calling(func(ctx context.Context, cl *client.Client, args []string) error {
		moves := []any{}
		for _, s := range args {
			m, err := parseMove(s)
			if err != nil {
				return err
			}
			moves = append(moves, m)
		}
		var raw json.RawMessage
		in := client.Request{Method: http.MethodPost, Path: reassignmentsPath, Query: dryRun(dry), Body: throttled(c, map[string]any{"moves": moves})}
		if err := cl.Call(ctx, in, &raw); err != nil {
			return err
		}
		return a.printResults(format, raw, "results", resultColumns...)
	})
	formatFlag(c, &format)
	dryRunFlag(c, &dry)
	throttleFlag(c)
	return c
}

func (a *app) rebalance() *cobra.Command {
	var format string
	var dry bool
	c := &cobra.Command{
		Use: "rebalance", Short: "Even out replicas and leaders over the brokers", Args: cobra.NoArgs,
		Long: "Even out replicas and preferred leaders over the brokers that are online and not draining, with as few\n" +
			"copies as that needs. --dry-run shows the plan.",
	}
	c.RunE = a.calling(func(ctx context.Context, cl *client.Client, _ []string) error {
		var raw json.RawMessage
		in := client.Request{Method: http.MethodPost, Path: reassignmentsPath + "/rebalance", Query: dryRun(dry), Body: throttled(c, map[string]any{})}
		if err := cl.Call(ctx, in, &raw); err != nil {
			return err
		}
		return a.printResults(format, raw, "moves", planColumns...)
	})
	formatFlag(c, &format)
	dryRunFlag(c, &dry)
	throttleFlag(c)
	return c
}

var planColumns = []string{"topic", "partition", "from", "to"}

func (a *app) reassignmentCancel() *cobra.Command {
	var format string
	c := &cobra.Command{
		Use: "cancel TOPIC/PARTITION", Short: "Take a move back: the partition has its old replicas again", Args: cobra.ExactArgs(1),
		RunE: a.calling(func(ctx context.Context, c *client.Client, args []string) error {
			topic, partition, err := parsePartition(args[0])
			if err != nil {
				return err
			}
			path := client.Path("v1", "reassignments", topic, strconv.Itoa(partition))
			if err := c.Call(ctx, client.Request{Method: http.MethodDelete, Path: path}, nil); err != nil {
				return err
			}
			return a.say(format, nil, "Cancelled the move of partition %d of %s", partition, printable(topic))
		}),
	}
	formatFlag(c, &format)
	return c
}

func (a *app) electionCommand() *cobra.Command {
	return group("election", "Elect leaders by hand",
		a.election("preferred", "Have partitions led by their preferred leader, all of them unless some are named"),
		a.election("unclean", "Give partitions without a leader any replica that is online; records may be lost"))
}

func (a *app) election(kind, short string) *cobra.Command {
	var format string
	c := &cobra.Command{
		Use: kind + " [TOPIC/PARTITION]…", Short: short,
		RunE: a.calling(func(ctx context.Context, c *client.Client, args []string) error {
			body := map[string]any{"type": kind}
			if len(args) > 0 {
				list := []any{}
				for _, s := range args {
					topic, partition, err := parsePartition(s)
					if err != nil {
						return err
					}
					list = append(list, map[string]any{"topic": topic, "partition": partition})
				}
				body["partitions"] = list
			}
			var raw json.RawMessage
			if err := c.Call(ctx, client.Request{Method: http.MethodPost, Path: "/v1/elections", Body: body}, &raw); err != nil {
				return err
			}
			return a.printResults(format, raw, "results", resultColumns...)
		}),
	}
	if kind == "unclean" {
		c.Use, c.Args = kind+" TOPIC/PARTITION…", cobra.MinimumNArgs(1)
	}
	formatFlag(c, &format)
	return c
}

func brokerPath(id string, more ...string) string {
	return client.Path(append([]string{"v1", "brokers", id}, more...)...)
}

// brokerDrain is drain or undrain.
func (a *app) brokerDrain(verb, short string) *cobra.Command {
	var format string
	var dry bool
	c := &cobra.Command{
		Use: verb + " ID", Short: short, Args: cobra.ExactArgs(1),
		RunE: a.calling(func(ctx context.Context, c *client.Client, args []string) error {
			var raw json.RawMessage
			in := client.Request{Method: http.MethodPost, Path: brokerPath(args[0], verb), Query: dryRun(dry)}
			if err := c.Call(ctx, in, &raw); err != nil {
				return err
			}
			if format == formatJSON {
				return a.printJSON(raw)
			}
			var v struct {
				Plan json.RawMessage `json:"plan"`
			}
			if err := json.Unmarshal(raw, &v); err != nil {
				return err
			}
			return a.printResults(format, v.Plan, "moves", planColumns...)
		}),
	}
	formatFlag(c, &format)
	dryRunFlag(c, &dry)
	return c
}

func (a *app) brokerRemove() *cobra.Command {
	var format string
	c := &cobra.Command{
		Use: "remove ID", Short: "Forget a broker that is stopped and holds nothing", Args: cobra.ExactArgs(1),
		RunE: a.calling(func(ctx context.Context, c *client.Client, args []string) error {
			if err := c.Call(ctx, client.Request{Method: http.MethodDelete, Path: brokerPath(args[0])}, nil); err != nil {
				return err
			}
			return a.say(format, nil, "Removed broker %s", printable(args[0]))
		}),
	}
	formatFlag(c, &format)
	return c
}

var errNotSafe = errors.New("the broker cannot be stopped without harm")

func (a *app) brokerCanStop() *cobra.Command {
	var format string
	c := &cobra.Command{
		Use: "can-stop ID", Short: "Tell whether a broker can be stopped without harm", Args: cobra.ExactArgs(1),
		Long: "Tell whether a broker can be stopped without harm, and why not. The exit code is 0 when it can.",
		RunE: a.calling(func(ctx context.Context, c *client.Client, args []string) error {
			var raw json.RawMessage
			if err := c.Call(ctx, client.Request{Method: http.MethodGet, Path: brokerPath(args[0], "can-stop")}, &raw); err != nil {
				return err
			}
			var v struct {
				Safe    bool     `json:"safe"`
				Reasons []string `json:"reasons"`
			}
			if err := json.Unmarshal(raw, &v); err != nil {
				return err
			}
			var unsafe error
			if !v.Safe {
				unsafe = errNotSafe
			}
			if format == formatJSON {
				return errors.Join(unsafe, a.printJSON(raw))
			}
			for _, r := range v.Reasons {
				fmt.Fprintln(a.errOut, "tidewire: "+printable(r))
			}
			if v.Safe {
				return a.say(format, raw, "Broker %s can be stopped", printable(args[0]))
			}
			return unsafe
		}),
	}
	formatFlag(c, &format)
	return c
}
