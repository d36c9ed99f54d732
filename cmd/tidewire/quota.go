package main

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"

	"tidewire/internal/client"

	"github.com/spf13/cobra"
)

func (a *app) quotaCommand() *cobra.Command {
	return group("quota", "List, set and delete what users may do per second on each node", a.quotaList(), a.quotaSet(), a.quotaDelete())
}

var quotaColumns = []string{"username", "produce_bytes_per_s", "fetch_bytes_per_s", "requests_per_s"}

// allUsers is the name of the quota of all users that have none of their own.
const allUsers = "*"

// quotaOf is the address of the quota of the user that the command line names.
func quotaOf(args []string, general bool) (string, error) {
	switch {
	case general && len(args) == 0:
		return "/v1/quotas/" + url.PathEscape(allUsers), nil
	case !general && len(args) == 1:
		return "/v1/quotas/" + url.PathEscape(args[0]), nil
	}
	return "", usagef("name one user, or --default for all that have no quota of their own")
}

func (a *app) quotaList() *cobra.Command {
	var format string
	c := &cobra.Command{
		Use: "list", Short: "List the quotas that are set; the user * stands for all others", Args: cobra.NoArgs,
		RunE: a.calling(func(ctx context.Context, c *client.Client, _ []string) error {
			l, err := c.List(ctx, "/v1/quotas", nil)
			if err != nil {
				return err
			}
			return a.printList(format, l, quotaColumns...)
		}),
	}
	formatFlag(c, &format)
	return c
}

func (a *app) quotaSet() *cobra.Command {
	var format string
	var general bool
	limits := map[string]*int64{}
	c := &cobra.Command{
		Use: "set {USER | --default}", Short: "Set a quota; limits that are not named are those of --default", Args: cobra.MaximumNArgs(1),
		Example: "  tidewire quota set alice --produce-bytes 1048576 --requests 100\n  tidewire quota set --default --fetch-bytes 10485760",
	}
	c.RunE = a.calling(func(ctx context.Context, cl *client.Client, args []string) error {
		path, err := quotaOf(args, general)
		if err != nil {
			return err
		}
		in := map[string]any{}
		for flag, member := range quotaFlags {
			if c.Flags().Changed(flag) {
				in[member] = *limits[flag]
			}
		}
		if len(in) == 0 {
			return usagef("name a limit: --produce-bytes, --fetch-bytes or --requests")
		}
		var raw json.RawMessage
		if err := cl.Call(ctx, client.Request{Method: http.MethodPut, Path: path, Body: in}, &raw); err != nil {
			return err
		}
		if format == formatJSON {
			return a.printJSON(raw)
		}
		return a.printTable([]json.RawMessage{raw}, quotaColumns...)
	})
	f := c.Flags()
	limits["produce-bytes"] = f.Int64("produce-bytes", 0, "bytes of keys, values and headers produced per second")
	limits["fetch-bytes"] = f.Int64("fetch-bytes", 0, "bytes of keys, values and headers read per second")
	limits["requests"] = f.Int64("requests", 0, "requests per second")
	f.BoolVar(&general, "default", false, "for all users that have no quota of their own")
	formatFlag(c, &format)
	return c
}

// quotaFlags are the members of a quota by their flags.
var quotaFlags = map[string]string{
	"produce-bytes": "produce_bytes_per_s", "fetch-bytes": "fetch_bytes_per_s", "requests": "requests_per_s",
}

func (a *app) quotaDelete() *cobra.Command {
	var general bool
	var format string
	c := &cobra.Command{
		Use: "delete {USER | --default}", Short: "Delete a quota", Args: cobra.MaximumNArgs(1),
		RunE: a.calling(func(ctx context.Context, c *client.Client, args []string) error {
			path, err := quotaOf(args, general)
			if err != nil {
				return err
			}
			return c.Call(ctx, client.Request{Method: http.MethodDelete, Path: path}, nil)
		}),
	}
	c.Flags().BoolVar(&general, "default", false, "the one for all users that have none of their own")
	formatFlag(c, &format)
	return c
}
