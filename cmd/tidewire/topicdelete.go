package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"tidewire/internal/client"

	"github.com/spf13/cobra"
)

func (a *app) topicDelete() *cobra.Command {
	var format string
	var dry bool
	c := &cobra.Command{
		Use: "delete TOPIC…", Short: "Delete topics and their records", Args: cobra.MinimumNArgs(1),
		Long: "Delete topics and their records. Of several topics each is tried, and the exit code is 1 when one of\n" +
			"them could not be deleted.",
		RunE: a.calling(func(ctx context.Context, c *client.Client, args []string) error {
			if dry {
				return a.planDeletion(ctx, c, format, args)
			}
			return a.deleteTopics(ctx, c, format, args)
		}),
	}
	formatFlag(c, &format)
	dryRunFlag(c, &dry)
	return c
}

// deletion is what became of one topic, as the interface tells it of several.
type deletion struct {
	Name    string          `json:"name"`
	Problem json.RawMessage `json:"problem"` // null: it is deleted
}

var errNotDeleted = errors.New("not all topics were deleted")

func (a *app) deleteTopics(ctx context.Context, c *client.Client, format string, names []string) error {
	results := []deletion{}
	var failed error
	for _, name := range names {
		err := c.Call(ctx, client.Request{Method: http.MethodDelete, Path: topicPath(name)}, nil)
		var p *client.Problem
		switch {
		case err == nil:
			results = append(results, deletion{name, nil})
			if format == formatTable {
				if err := a.say(format, nil, "Deleted topic %s", name); err != nil {
					return err
				}
			}
		case !errors.As(err, &p) || len(p.Raw) == 0 || len(names) == 1: // no answer: the others would fare alike
			return err
		default:
			results = append(results, deletion{name, p.Raw})
			failed = errNotDeleted
			fmt.Fprintf(a.errOut, "tidewire: topic %s: %v\n", printable(name), p)
		}
	}
	if format == formatJSON {
		failed = errors.Join(failed, a.printJSON(map[string]any{"results": results}))
	}
	return failed
}

// planDeletion tells what would go.
func (a *app) planDeletion(ctx context.Context, c *client.Client, format string, names []string) error {
	plans := &client.List{Items: []json.RawMessage{}, Total: int64(len(names))}
	for _, name := range names {
		var raw json.RawMessage
		if err := c.Call(ctx, client.Request{Method: http.MethodDelete, Path: topicPath(name), Query: dryRun(true)}, &raw); err != nil {
			return err
		}
		plans.Items = append(plans.Items, raw)
	}
	return a.printList(format, plans, "name", "partitions", "records", "size_bytes")
}

func (a *app) topicOffsets() *cobra.Command {
	var format, at string
	c := &cobra.Command{
		Use: "offsets TOPIC", Short: "Show the offset of each partition at a time, or at its ends", Args: cobra.ExactArgs(1),
		Example: "  tidewire topic offsets flights --timestamp earliest\n  tidewire topic offsets flights --timestamp 1760000000000",
		RunE: a.calling(func(ctx context.Context, c *client.Client, args []string) error {
			var raw json.RawMessage
			in := client.Request{Method: http.MethodGet, Path: topicPath(args[0], "offsets"), Query: map[string][]string{"timestamp": {at}}}
			if err := c.Call(ctx, in, &raw); err != nil {
				return err
			}
			if format == formatJSON {
				return a.printJSON(raw)
			}
			items, err := member(raw, "offsets")
			if err != nil {
				return err
			}
			return a.printTable(items, "partition", "offset", "timestamp")
		}),
	}
	formatFlag(c, &format)
	c.Flags().StringVar(&at, "timestamp", "latest", "earliest, latest or milliseconds since 1970")
	return c
}

func (a *app) topicAccess() *cobra.Command {
	var format string
	c := &cobra.Command{
		Use: "access TOPIC", Short: "List the access rules that apply to a topic", Args: cobra.ExactArgs(1),
		RunE: a.calling(func(ctx context.Context, c *client.Client, args []string) error {
			l, err := c.List(ctx, topicPath(args[0], "access"), nil)
			if err != nil {
				return err
			}
			return a.printList(format, l, aclColumns...)
		}),
	}
	formatFlag(c, &format)
	return c
}
