package main

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"

	"tidewire/internal/client"

	"github.com/spf13/cobra"
)

func (a *app) userCommand() *cobra.Command {
	return group("user", "List, create, change and delete users",
		a.userList(), a.userCreate(), a.userDescribe(), a.userSetPassword(), a.userUpdate(),
		a.userSwitch("disable", "Keep a user out", true), a.userSwitch("enable", "Let a disabled user in again", false), a.userDelete())
}

func userPath(name string, more ...string) string {
	return client.Path(append([]string{"v1", "users", name}, more...)...)
}

func (a *app) userList() *cobra.Command {
	return a.listCommand("list", "List users", "/v1/users", "username", "admin", "disabled")
}

func (a *app) userCreate() *cobra.Command {
	var format string
	var admin, fromStdin bool
	c := &cobra.Command{
		Use: "create USERNAME", Short: "Create a user", Args: cobra.ExactArgs(1),
		RunE: a.calling(func(ctx context.Context, c *client.Client, args []string) error {
			password, err := a.passwordOf(fromStdin, bufio.NewReader(a.in), "Password of the new user: ")
			if err != nil {
				return err
			}
			in := map[string]any{"username": args[0], "password": password, "admin": admin}
			var raw json.RawMessage
			if err := c.Call(ctx, client.Request{Method: http.MethodPost, Path: "/v1/users", Body: in}, &raw); err != nil {
				return err
			}
			return a.say(format, raw, "Created user %s", args[0])
		}),
	}
	formatFlag(c, &format)
	c.Flags().BoolVar(&admin, "admin", false, "the user may do everything")
	c.Flags().BoolVar(&fromStdin, "password-stdin", false, "read the password from standard input")
	return c
}

func (a *app) userDescribe() *cobra.Command {
	var format string
	c := &cobra.Command{
		Use: "describe USERNAME", Short: "Show a user", Args: cobra.ExactArgs(1),
		RunE: a.calling(func(ctx context.Context, c *client.Client, args []string) error {
			return a.show(ctx, c, format, userPath(args[0]), "username", "admin", "disabled")
		}),
	}
	formatFlag(c, &format)
	return c
}

func (a *app) userSetPassword() *cobra.Command {
	var format string
	var fromStdin, own bool
	c := &cobra.Command{
		Use: "set-password USERNAME", Short: "Change a user's password", Args: cobra.ExactArgs(1),
		Long: "Change a user's password. For your own account the present password is needed too (--current);\n" +
			"with --password-stdin it is the second line of standard input.",
		RunE: a.calling(func(ctx context.Context, c *client.Client, args []string) error {
			lines := bufio.NewReader(a.in)
			password, err := a.passwordOf(fromStdin, lines, "New password: ")
			if err != nil {
				return err
			}
			in := map[string]string{"password": password}
			if own {
				if in["current_password"], err = a.passwordOf(fromStdin, lines, "Present password: "); err != nil {
					return err
				}
			}
			if err := c.Call(ctx, client.Request{Method: http.MethodPost, Path: userPath(args[0], "set-password"), Body: in}, nil); err != nil {
				return err
			}
			return a.say(format, nil, "Changed the password of %s", args[0])
		}),
	}
	formatFlag(c, &format)
	c.Flags().BoolVar(&fromStdin, "password-stdin", false, "read the password from standard input")
	c.Flags().BoolVar(&own, "current", false, "give the present password too, as one's own account needs")
	return c
}

func (a *app) userSwitch(use, short string, disabled bool) *cobra.Command {
	var format string
	c := &cobra.Command{
		Use: use + " USERNAME", Short: short, Args: cobra.ExactArgs(1),
		RunE: a.calling(func(ctx context.Context, c *client.Client, args []string) error {
			return a.patchUser(ctx, c, format, args[0], map[string]bool{"disabled": disabled})
		}),
	}
	formatFlag(c, &format)
	return c
}

func (a *app) userUpdate() *cobra.Command {
	var format string
	var admin, disabled bool
	c := &cobra.Command{
		Use: "update USERNAME", Short: "Make a user an administrator or not, keep it out or let it in", Args: cobra.ExactArgs(1),
		Example: "  tidewire user update alice --admin=false",
	}
	c.RunE = a.calling(func(ctx context.Context, cl *client.Client, args []string) error {
		in := map[string]bool{}
		if c.Flags().Changed("admin") {
			in["admin"] = admin
		}
		if c.Flags().Changed("disabled") {
			in["disabled"] = disabled
		}
		if len(in) == 0 {
			return usagef("--admin or --disabled is needed")
		}
		return a.patchUser(ctx, cl, format, args[0], in)
	})
	formatFlag(c, &format)
	c.Flags().BoolVar(&admin, "admin", false, "the user may do everything, or no longer (--admin=false)")
	c.Flags().BoolVar(&disabled, "disabled", false, "the user is kept out, or no longer (--disabled=false)")
	return c
}

func (a *app) patchUser(ctx context.Context, c *client.Client, format, name string, in map[string]bool) error {
	var raw json.RawMessage
	if err := c.Call(ctx, client.Request{Method: http.MethodPatch, Path: userPath(name), Body: in}, &raw); err != nil {
		return err
	}
	if format == formatJSON {
		return a.printJSON(raw)
	}
	return a.printMembers(raw, "username", "admin", "disabled")
}

func (a *app) userDelete() *cobra.Command {
	var format string
	var dry bool
	c := &cobra.Command{
		Use: "delete USERNAME", Short: "Delete a user", Args: cobra.ExactArgs(1),
		RunE: a.calling(func(ctx context.Context, c *client.Client, args []string) error {
			var raw json.RawMessage
			in := client.Request{Method: http.MethodDelete, Path: userPath(args[0]), Query: dryRun(dry)}
			if err := c.Call(ctx, in, &raw); err != nil {
				return err
			}
			if dry {
				return a.printPlan(format, raw)
			}
			return a.say(format, nil, "Deleted user %s", args[0])
		}),
	}
	formatFlag(c, &format)
	dryRunFlag(c, &dry)
	return c
}
