package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"

	"tidewire/internal/client"

	"github.com/spf13/cobra"
)

// listFlags narrow and sort a list as the interface's parameters of these names do.
type listFlags struct{ prefix, q, sort string }

func (l *listFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&l.prefix, "prefix", "", "only those whose name begins so")
	c.Flags().StringVar(&l.q, "q", "", "only those whose name contains this")
	c.Flags().StringVar(&l.sort, "sort", "", "by what to sort, such as name, or -name for downwards")
}

func (l *listFlags) query() url.Values {
	q := url.Values{}
	for name, v := range map[string]string{"prefix": l.prefix, "q": l.q, "sort": l.sort} {
		if v != "" {
			q.Set(name, v)
		}
	}
	return q
}

// listCommand is a command that lists resources and takes no arguments.
func (a *app) listCommand(use, short, path string, members ...string) *cobra.Command {
	var format string
	var narrow listFlags
	c := &cobra.Command{
		Use: use, Short: short, Args: cobra.NoArgs,
		RunE: a.calling(func(ctx context.Context, c *client.Client, _ []string) error {
			l, err := c.List(ctx, path, narrow.query())
			if err != nil {
				return err
			}
			return a.printList(format, l, members...)
		}),
	}
	formatFlag(c, &format)
	narrow.add(c)
	return c
}

// show gets one resource and prints it, for people some of its members.
func (a *app) show(ctx context.Context, c *client.Client, format, path string, members ...string) error {
	var raw json.RawMessage
	if err := c.Call(ctx, client.Request{Method: http.MethodGet, Path: path}, &raw); err != nil {
		return err
	}
	if format == formatJSON {
		return a.printJSON(raw)
	}
	return a.printMembers(raw, members...)
}

func dryRunFlag(c *cobra.Command, dry *bool) {
	c.Flags().BoolVar(dry, "dry-run", false, "change nothing, print what would be done")
}

// dryRun is the query of a request that may be one.
func dryRun(dry bool) url.Values {
	if dry {
		return url.Values{"dry_run": {"true"}}
	}
	return nil
}

// printPlan prints the answer to a dry run: people see its members that are no lists.
func (a *app) printPlan(format string, raw json.RawMessage) error {
	if format == formatJSON {
		return a.printJSON(raw)
	}
	m, err := fields(raw)
	if err != nil {
		return err
	}
	names := []string{}
	for _, name := range keysInOrder(raw) {
		if _, isList := m[name].([]any); !isList {
			names = append(names, name)
		}
	}
	return a.printMembers(raw, names...)
}

// keysInOrder are the names of an object's members as they stand in it.
func keysInOrder(raw json.RawMessage) []string {
	d := json.NewDecoder(bytes.NewReader(raw))
	var out []string
	if _, err := d.Token(); err != nil {
		return nil
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return out
		}
		var v json.RawMessage
		if d.Decode(&v) != nil {
			return out
		}
		if s, ok := name.(string); ok {
			out = append(out, s)
		}
	}
	return out
}
