package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

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

// mostDeletions is how many topics one request names (max_topics_per_deletion of /v1/info).
const mostDeletions = 1000

var errNotDeleted = errors.New("not all topics were deleted")

func (a *app) deleteTopics(ctx context.Context, c *client.Client, format string, names []string) error {
	if len(names) == 1 {
		if err := c.Call(ctx, client.Request{Method: http.MethodDelete, Path: topicPath(names[0])}, nil); err != nil {
			return err
		}
		if format == formatJSON {
			return a.printJSON(map[string]any{"results": []any{map[string]any{"name": names[0], "problem": nil}}})
		}
		return a.say(format, nil, "Deleted topic %s", names[0])
	}
	results, failed := a.deleteMany(ctx, c, names, false)
	if format == formatJSON {
		return errors.Join(failed, a.printJSON(map[string]any{"results": results}))
	}
	for _, raw := range results {
		if m, err := fields(raw); err == nil && m["problem"] == nil {
			if err := a.say(format, nil, "Deleted topic %s", printable(fmt.Sprint(m["name"]))); err != nil {
				return err
			}
		}
	}
	return failed
}

// deleteMany asks for topics in as few requests as there can be, and names those on standard
// error that are not deleted. What was done before an error is in the results.
func (a *app) deleteMany(ctx context.Context, c *client.Client, names []string, dry bool) (results []json.RawMessage, err error) {
	var failed error
	results = []json.RawMessage{}
	for part := range slices.Chunk(names, mostDeletions) {
		var out struct {
			Results []json.RawMessage `json:"results"`
		}
		in := client.Request{Method: http.MethodPost, Path: "/v1/topics/delete", Query: dryRun(dry), Body: map[string]any{"names": part}}
		if err := c.Call(ctx, in, &out); err != nil {
			return results, err
		}
		for _, raw := range out.Results {
			var r struct {
				Name    string          `json:"name"`
				Problem *client.Problem `json:"problem"`
			}
			if err := json.Unmarshal(raw, &r); err != nil {
				return results, err
			}
			if r.Problem != nil {
				failed = errNotDeleted
				fmt.Fprintf(a.errOut, "tidewire: topic %s: %v\n", printable(r.Name), r.Problem)
			}
			results = append(results, raw)
		}
	}
	return results, failed
}

// planDeletion tells what would go.
func (a *app) planDeletion(ctx context.Context, c *client.Client, format string, names []string) error {
	plans := &client.List{Items: []json.RawMessage{}, Total: int64(len(names))}
	var failed error
	if len(names) == 1 {
		var raw json.RawMessage
		if err := c.Call(ctx, client.Request{Method: http.MethodDelete, Path: topicPath(names[0]), Query: dryRun(true)}, &raw); err != nil {
			return err
		}
		plans.Items = append(plans.Items, raw)
	} else {
		plans.Items, failed = a.deleteMany(ctx, c, names, true)
	}
	return errors.Join(failed, a.printList(format, plans, "name", "partitions", "records", "size_bytes"))
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
