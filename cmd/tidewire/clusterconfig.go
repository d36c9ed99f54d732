package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"tidewire/internal/client"

	"github.com/spf13/cobra"
)

const clusterConfigPath = "/v1/cluster/config"

func (a *app) clusterConfig() *cobra.Command {
	return group("config", "Read and change the cluster's settings, and its defaults for topics",
		a.clusterConfigGet(), a.clusterConfigSet(), a.clusterConfigUnset())
}

func (a *app) clusterConfigGet() *cobra.Command {
	var format string
	c := &cobra.Command{
		Use: "get [KEY…]", Short: "Show the cluster's settings",
		RunE: a.calling(func(ctx context.Context, c *client.Client, args []string) error {
			var all client.List
			if err := c.Call(ctx, client.Request{Method: http.MethodGet, Path: clusterConfigPath}, &all); err != nil {
				return err
			}
			if len(args) > 0 {
				some, err := named(all.Items, args)
				if err != nil {
					return err
				}
				all.Items = some
			}
			all.Total = int64(len(all.Items))
			return a.printList(format, &all, append([]string{"scope"}, configColumns...)...)
		}),
	}
	formatFlag(c, &format)
	return c
}

// named are the settings of those names, in their order.
func named(items []json.RawMessage, keys []string) ([]json.RawMessage, error) {
	byName := map[any]json.RawMessage{}
	for _, raw := range items {
		m, err := fields(raw)
		if err != nil {
			return nil, err
		}
		byName[m["name"]] = raw
	}
	out := []json.RawMessage{}
	for _, key := range keys {
		raw, ok := byName[key]
		if !ok {
			return nil, errors.New("no such setting: " + key)
		}
		out = append(out, raw)
	}
	return out, nil
}

func (a *app) clusterConfigSet() *cobra.Command {
	return a.clusterConfigChange(&cobra.Command{
		Use: "set KEY=VALUE…", Short: "Change some of the cluster's settings", Args: cobra.MinimumNArgs(1),
		Long:    "Change some of the cluster's settings. A setting of topics becomes the default of all topics that\ndo not set it themselves. What changes is in force at once.",
		Example: "  tidewire cluster config set retention.ms=86400000 num.partitions=6",
	}, func(args []string) (any, error) {
		set, err := settings(args)
		return map[string]any{"set": set}, err
	})
}

func (a *app) clusterConfigUnset() *cobra.Command {
	return a.clusterConfigChange(&cobra.Command{
		Use: "unset KEY…", Short: "Bring settings of the cluster back to their defaults", Args: cobra.MinimumNArgs(1),
	}, func(args []string) (any, error) { return map[string]any{"unset": args}, nil })
}

// clusterConfigChange completes a command whose arguments make the body of a change.
func (a *app) clusterConfigChange(c *cobra.Command, body func(args []string) (any, error)) *cobra.Command {
	var format string
	var dry bool
	c.RunE = a.calling(func(ctx context.Context, c *client.Client, args []string) error {
		in, err := body(args)
		if err != nil {
			return err
		}
		var raw json.RawMessage
		if err := c.Call(ctx, client.Request{Method: http.MethodPatch, Path: clusterConfigPath, Query: dryRun(dry), Body: in}, &raw); err != nil {
			return err
		}
		m, err := fields(raw)
		if err != nil {
			return err
		}
		text := "Changed settings of the cluster; those in force changed for %v topics"
		if dry {
			text = "Nothing is changed; it would change the settings in force of %v topics"
		}
		return a.say(format, raw, text, m["affected_topics"])
	})
	formatFlag(c, &format)
	dryRunFlag(c, &dry)
	return c
}
