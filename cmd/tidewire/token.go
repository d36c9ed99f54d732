package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"tidewire/internal/client"

	"github.com/spf13/cobra"
)

func (a *app) tokenCommand() *cobra.Command {
	return group("token", "List, create and delete API tokens", a.tokenList(), a.tokenCreate(), a.tokenDelete())
}

// tokensPath is where the tokens of a user are; without a name those of one's own account.
func tokensPath(ctx context.Context, c *client.Client, user string) (string, error) {
	if user == "" {
		var me struct {
			Username string `json:"username"`
		}
		if err := c.Call(ctx, client.Request{Method: http.MethodGet, Path: "/v1/auth/me"}, &me); err != nil {
			return "", err
		}
		user = me.Username
	}
	return userPath(user, "tokens"), nil
}

func userFlag(c *cobra.Command, user *string) {
	c.Flags().StringVar(user, "user", "", "whose tokens; without, your own")
}

func (a *app) tokenList() *cobra.Command {
	var format, user string
	c := &cobra.Command{
		Use: "list", Short: "List API tokens", Args: cobra.NoArgs,
		RunE: a.calling(func(ctx context.Context, c *client.Client, _ []string) error {
			path, err := tokensPath(ctx, c, user)
			if err != nil {
				return err
			}
			l, err := c.List(ctx, path, nil)
			if err != nil {
				return err
			}
			return a.printList(format, l, "id", "name", "created_at", "expires_at", "last_used_at")
		}),
	}
	formatFlag(c, &format)
	userFlag(c, &user)
	return c
}

func (a *app) tokenCreate() *cobra.Command {
	var format, user, expires string
	var scopes []string
	c := &cobra.Command{
		Use: "create NAME", Short: "Create an API token and print it", Args: cobra.ExactArgs(1),
		Long: "Create an API token and print it, which is the only time it is told. Use it as TIDEWIRE_TOKEN,\n" +
			"with --token, or in the header Authorization: Bearer.",
		Example: "  tidewire token create ci --expires 90d --scope topic:flights:read --scope 'topic:logs.*:write'",
		RunE: a.calling(func(ctx context.Context, c *client.Client, args []string) error {
			in := map[string]any{"name": args[0]}
			seconds, err := lifetime(expires)
			if err != nil {
				return err
			}
			if seconds > 0 {
				in["expires_in_s"] = seconds
			}
			if len(scopes) > 0 {
				if in["scopes"], err = parseScopes(scopes); err != nil {
					return err
				}
			}
			path, err := tokensPath(ctx, c, user)
			if err != nil {
				return err
			}
			var raw json.RawMessage
			if err := c.Call(ctx, client.Request{Method: http.MethodPost, Path: path, Body: in}, &raw); err != nil {
				return err
			}
			return a.printToken(format, raw)
		}),
	}
	formatFlag(c, &format)
	userFlag(c, &user)
	c.Flags().StringVar(&expires, "expires", "90d", "how long it lives, such as 90d, 12h or 30m, or never")
	c.Flags().StringArrayVar(&scopes, "scope", nil, "narrow it to TYPE:NAME:OPERATION, such as topic:flights:read; a NAME that ends in * is a prefix;\nmay be repeated; without, it has all of the user's rights")
	return c
}

// printToken gives programs the whole answer, and people the token alone on standard
// output, so that it can be caught in a variable.
func (a *app) printToken(format string, raw json.RawMessage) error {
	if format == formatJSON {
		return a.printJSON(raw)
	}
	var made struct {
		ID    string `json:"id"`
		Token string `json:"token"`
	}
	if err := json.Unmarshal(raw, &made); err != nil {
		return err
	}
	fmt.Fprintf(a.errOut, "Created token %s. It is told only now:\n", printable(made.ID))
	_, err := fmt.Fprintln(a.out, printable(made.Token))
	return err
}

// lifetime reads how long a token lives, in seconds; 0 is without end.
func lifetime(s string) (int64, error) {
	if s == "never" {
		return 0, nil
	}
	wrong := usagef("--expires is a time such as 90d, 12h or 30m, or never, not %q", s)
	if days, ok := strings.CutSuffix(s, "d"); ok {
		n, err := strconv.ParseInt(days, 10, 64)
		if err != nil || n < 1 || n > math.MaxInt64/86400 {
			return 0, wrong
		}
		return n * 86400, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < time.Second {
		return 0, wrong
	}
	return int64(d / time.Second), nil
}

// parseScopes reads TYPE:NAME:OPERATION; the name may have colons.
func parseScopes(list []string) ([]map[string]string, error) {
	out := make([]map[string]string, len(list))
	for i, s := range list {
		kind, rest, ok := strings.Cut(s, ":")
		at := strings.LastIndexByte(rest, ':')
		if !ok || kind == "" || at < 1 || at == len(rest)-1 {
			return nil, usagef("--scope is TYPE:NAME:OPERATION, such as topic:flights:read, not %q", s)
		}
		name, pattern := rest[:at], "literal"
		if prefix, isPrefix := strings.CutSuffix(name, "*"); isPrefix && prefix != "" {
			name, pattern = prefix, "prefixed"
		}
		out[i] = map[string]string{"resource_type": kind, "resource_name": name, "pattern": pattern, "operation": rest[at+1:]}
	}
	return out, nil
}

func (a *app) tokenDelete() *cobra.Command {
	var format, user string
	c := &cobra.Command{
		Use: "delete ID", Short: "Delete an API token, which is dead from then on", Args: cobra.ExactArgs(1),
		RunE: a.calling(func(ctx context.Context, c *client.Client, args []string) error {
			path, err := tokensPath(ctx, c, user)
			if err != nil {
				return err
			}
			path += client.Path(args[0])
			if err := c.Call(ctx, client.Request{Method: http.MethodDelete, Path: path}, nil); err != nil {
				return err
			}
			return a.say(format, nil, "Deleted token %s", printable(args[0]))
		}),
	}
	formatFlag(c, &format)
	userFlag(c, &user)
	return c
}
