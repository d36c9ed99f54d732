package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"tidewire/internal/client"

	"github.com/spf13/cobra"
)

func (a *app) topicCommand() *cobra.Command {
	return group("topic", "List, create, change and delete topics",
		a.topicList(), a.topicCreate(), a.topicDescribe(), a.topicDelete(), a.topicDeleteRecords(), a.topicOffsets(), a.topicAccess(),
		group("config", "Read and change a topic's settings", a.topicConfigGet(), a.topicConfigSet(), a.topicConfigUnset(), a.topicConfigKeys()),
		group("partitions", "Change how many partitions a topic has", a.topicGrow()),
	)
}

func topicPath(topic string, more ...string) string {
	return client.Path(append([]string{"v1", "topics", topic}, more...)...)
}

func (a *app) topicList() *cobra.Command {
	var format string
	var narrow listFlags
	var internal bool
	c := &cobra.Command{
		Use: "list", Short: "List topics", Args: cobra.NoArgs,
		RunE: a.calling(func(ctx context.Context, c *client.Client, _ []string) error {
			q := narrow.query()
			if internal {
				q.Set("internal", "true")
			}
			l, err := c.List(ctx, "/v1/topics", q)
			if err != nil {
				return err
			}
			return a.printList(format, l, "name", "partitions", "replication_factor", "health", "records", "size_bytes", "cleanup_policy")
		}),
	}
	formatFlag(c, &format)
	narrow.add(c)
	c.Flags().BoolVar(&internal, "internal", false, "list internal topics too")
	return c
}

// settings reads key=value arguments.
func settings(args []string) (map[string]string, error) {
	out := map[string]string{}
	for _, s := range args {
		k, v, ok := strings.Cut(s, "=")
		if !ok || k == "" {
			return nil, usagef("a setting is key=value, not %q", s)
		}
		out[k] = v
	}
	return out, nil
}

func (a *app) topicCreate() *cobra.Command {
	var format string
	var partitions, factor int
	var config []string
	c := &cobra.Command{
		Use: "create TOPIC", Short: "Create a topic", Args: cobra.ExactArgs(1),
		Example: "  tidewire topic create flights --partitions 6 --config retention.ms=-1",
		RunE: a.calling(func(ctx context.Context, c *client.Client, args []string) error {
			set, err := settings(config)
			if err != nil {
				return err
			}
			in := map[string]any{"name": args[0], "partitions": partitions, "config": set}
			if factor > 0 {
				in["replication_factor"] = factor
			}
			var raw json.RawMessage
			if err := c.Call(ctx, client.Request{Method: http.MethodPost, Path: "/v1/topics", Body: in}, &raw); err != nil {
				return err
			}
			return a.say(format, raw, "Created topic %s with %d partitions", args[0], partitions)
		}),
	}
	formatFlag(c, &format)
	c.Flags().IntVarP(&partitions, "partitions", "p", 1, "number of partitions")
	c.Flags().IntVar(&factor, "replication-factor", 0, "copies of each partition (default: chosen by the cluster)")
	c.Flags().StringArrayVarP(&config, "config", "c", nil, "a setting, key=value; may be repeated")
	return c
}

func (a *app) topicDescribe() *cobra.Command {
	var format string
	c := &cobra.Command{
		Use: "describe TOPIC", Short: "Show a topic and its partitions", Args: cobra.ExactArgs(1),
		RunE: a.calling(func(ctx context.Context, c *client.Client, args []string) error {
			var raw json.RawMessage
			if err := c.Call(ctx, client.Request{Method: http.MethodGet, Path: topicPath(args[0])}, &raw); err != nil {
				return err
			}
			if format == formatJSON {
				return a.printJSON(raw)
			}
			if err := a.printMembers(raw, "name", "id", "replication_factor"); err != nil {
				return err
			}
			parts, err := member(raw, "partitions")
			if err != nil {
				return err
			}
			return a.printTable(parts, "partition", "leader", "leader_epoch",
				"replicas", "isr", "log_start_offset", "last_stable_offset",
				"high_watermark", "log_end_offset", "size_bytes", "segments")
		}),
	}
	formatFlag(c, &format)
	return c
}

var configColumns = []string{"name", "value", "source", "default", "unit"}

// topicConfigKeys lists the settings that topics have, with what they mean.
func (a *app) topicConfigKeys() *cobra.Command {
	var format string
	c := &cobra.Command{
		Use: "keys", Short: "List the settings that topics can have, with their defaults", Args: cobra.NoArgs,
		RunE: a.calling(func(ctx context.Context, c *client.Client, _ []string) error {
			l, err := c.List(ctx, "/v1/topic-configs", nil)
			if err != nil {
				return err
			}
			return a.printList(format, l, "name", "default", "type", "unit", "min", "max", "allowed_values", "doc")
		}),
	}
	formatFlag(c, &format)
	return c
}

func (a *app) topicConfigUnset() *cobra.Command {
	var format string
	c := &cobra.Command{
		Use: "unset TOPIC KEY…", Short: "Bring settings of a topic back to their defaults", Args: cobra.MinimumNArgs(2),
		RunE: a.calling(func(ctx context.Context, c *client.Client, args []string) error {
			return a.changeConfig(ctx, c, args[0], configChange{map[string]string{}, args[1:], format})
		}),
	}
	formatFlag(c, &format)
	return c
}

// configChange is the body of a change of settings, and how its answer is printed.
type configChange struct {
	Set    map[string]string `json:"set"`
	Unset  []string          `json:"unset"`
	format string
}

func (a *app) changeConfig(ctx context.Context, c *client.Client, topic string, change configChange) error {
	var raw json.RawMessage
	if err := c.Call(ctx, client.Request{Method: http.MethodPatch, Path: topicPath(topic, "config"), Body: change}, &raw); err != nil {
		return err
	}
	return a.say(change.format, raw, "Changed settings of topic %s", topic)
}

func (a *app) topicConfigGet() *cobra.Command {
	var format string
	c := &cobra.Command{
		Use: "get TOPIC [KEY…]", Short: "Show a topic's settings", Args: cobra.MinimumNArgs(1),
		RunE: a.calling(func(ctx context.Context, c *client.Client, args []string) error {
			l, err := configOf(ctx, c, args[0], args[1:])
			if err != nil {
				return err
			}
			return a.printList(format, l, configColumns...)
		}),
	}
	formatFlag(c, &format)
	return c
}

// configOf reads the settings of a topic, all or those named.
func configOf(ctx context.Context, c *client.Client, topic string, keys []string) (*client.List, error) {
	var all client.List
	if err := c.Call(ctx, client.Request{Method: http.MethodGet, Path: topicPath(topic, "config")}, &all); err != nil {
		return nil, err
	}
	if len(keys) == 0 {
		all.Total = int64(len(all.Items))
		return &all, nil
	}
	some := client.List{Items: []json.RawMessage{}}
	for _, key := range keys {
		found := false
		for _, raw := range all.Items {
			if m, err := fields(raw); err == nil && m["name"] == key {
				some.Items, found = append(some.Items, raw), true
			}
		}
		if !found {
			return nil, errors.New("no such setting: " + key)
		}
	}
	some.Total = int64(len(some.Items))
	return &some, nil
}

func (a *app) topicConfigSet() *cobra.Command {
	var format string
	var unset []string
	c := &cobra.Command{
		Use: "set TOPIC [KEY=VALUE…]", Short: "Change some of a topic's settings", Args: cobra.MinimumNArgs(1),
		Example: "  tidewire topic config set flights retention.ms=-1 --unset segment.bytes",
		RunE: a.calling(func(ctx context.Context, c *client.Client, args []string) error {
			set, err := settings(args[1:])
			if err != nil {
				return err
			}
			if len(set)+len(unset) == 0 {
				return usagef("KEY=VALUE or --unset is needed")
			}
			if unset == nil {
				unset = []string{}
			}
			return a.changeConfig(ctx, c, args[0], configChange{set, unset, format})
		}),
	}
	formatFlag(c, &format)
	c.Flags().StringArrayVar(&unset, "unset", nil, "go back to the default of this setting; may be repeated")
	return c
}

func (a *app) topicGrow() *cobra.Command {
	var format string
	var dry bool
	c := &cobra.Command{
		Use: "grow TOPIC COUNT", Short: "Give a topic more partitions", Args: cobra.ExactArgs(2),
		Long: "Give a topic more partitions. COUNT is the new number of all. Records stay where they are, and\n" +
			"keys may go to other partitions from then on.",
		RunE: a.calling(func(ctx context.Context, c *client.Client, args []string) error {
			n, err := strconv.Atoi(args[1])
			if err != nil {
				return usagef("COUNT is a number, not %q", args[1])
			}
			var raw json.RawMessage
			in := client.Request{Method: http.MethodPatch, Path: topicPath(args[0]), Query: dryRun(dry), Body: map[string]int{"partitions": n}}
			if err := c.Call(ctx, in, &raw); err != nil {
				return err
			}
			if dry {
				return a.printPlan(format, raw)
			}
			return a.say(format, raw, "Topic %s has %d partitions", args[0], n)
		}),
	}
	formatFlag(c, &format)
	dryRunFlag(c, &dry)
	return c
}
