package main

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"tidewire/internal/client"

	"github.com/spf13/cobra"
)

func (a *app) contextCommand() *cobra.Command {
	return group("context", "Keep several servers and logins apart",
		a.contextList(), a.contextShow(), a.contextUse(), a.contextSet(), a.contextDelete())
}

// contextView is what is told of a context: everything but its secrets.
type contextView struct {
	Name        *string    `json:"name"` // null: the server's context is not stored
	Server      string     `json:"server"`
	Username    *string    `json:"username"`   // null without a login
	Credential  string     `json:"credential"` // login, api-token or none
	AccessUntil *time.Time `json:"access_expires_at"`
	Current     bool       `json:"current"`
}

var contextColumns = []string{"current", "name", "server", "username", "credential"}

func viewContext(x *client.Context, current string) contextView {
	v := contextView{Server: x.Server, Credential: "none", Current: x.Name != "" && x.Name == current}
	if x.Name != "" {
		v.Name = &x.Name
	}
	switch {
	case x.APIToken != "":
		v.Credential = "api-token"
	case x.AccessToken != "":
		until := x.ExpiresAt.UTC().Truncate(time.Millisecond)
		v.Credential, v.Username, v.AccessUntil = "login", &x.Username, &until
	}
	return v
}

func (a *app) contextList() *cobra.Command {
	var format string
	c := &cobra.Command{
		Use: "list", Short: "List contexts", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			store, err := a.store()
			if err != nil {
				return err
			}
			all, current, err := store.Contexts()
			if err != nil {
				return err
			}
			l := &client.List{Items: []json.RawMessage{}, Total: int64(len(all))}
			for i := range all {
				raw, err := json.Marshal(viewContext(&all[i], current))
				if err != nil {
					return err
				}
				l.Items = append(l.Items, raw)
			}
			return a.printList(format, l, contextColumns...)
		},
	}
	formatFlag(c, &format)
	return c
}

// printContext prints one context without its secrets.
func (a *app) printContext(format string, store *client.Store, x *client.Context) error {
	_, current, err := store.Contexts()
	if err != nil {
		return err
	}
	raw, err := json.Marshal(viewContext(x, current))
	if err != nil {
		return err
	}
	if format == formatJSON {
		return a.printJSON(json.RawMessage(raw))
	}
	return a.printMembers(raw, "name", "server", "username", "credential", "access_expires_at", "current")
}

func (a *app) contextShow() *cobra.Command {
	var format string
	c := &cobra.Command{
		Use: "show [NAME]", Short: "Show a context; without NAME the one that commands use now", Args: cobra.MaximumNArgs(1),
		ValidArgsFunction: a.completeContexts,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				a.context = args[0]
			}
			store, x, err := a.target()
			if err != nil {
				return err
			}
			return a.printContext(format, store, x)
		},
	}
	formatFlag(c, &format)
	return c
}

func (a *app) contextUse() *cobra.Command {
	var format string
	c := &cobra.Command{
		Use: "use NAME", Short: "Make a context the current one", Args: cobra.ExactArgs(1),
		ValidArgsFunction: a.completeContexts,
		RunE: func(cmd *cobra.Command, args []string) error {
			store, err := a.store()
			if err != nil {
				return err
			}
			if err := store.Use(cmd.Context(), args[0]); err != nil {
				return err
			}
			x, err := store.Find(client.Choice{Name: args[0]})
			if err != nil {
				return err
			}
			if format == formatJSON {
				return a.printContext(format, store, x)
			}
			return a.say(format, nil, "Now using %s, %s", x.Name, x.Server)
		},
	}
	formatFlag(c, &format)
	return c
}

func (a *app) contextSet() *cobra.Command {
	var format string
	c := &cobra.Command{
		Use: "set NAME", Short: "Make or change a context: its server and, with --token, its API token", Args: cobra.ExactArgs(1),
		Long: "Make or change a context: its server (--server) and, with --token, an API token that it is used\n" +
			"with. To store a login use tidewire login --context NAME. Another server than before drops the\n" +
			"login to the old one. The first context becomes the current one.",
		Example:           "  tidewire context set ci --server https://tidewire.example.com --token \"$TOKEN\"",
		ValidArgsFunction: a.completeContexts,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := client.CheckContextName(args[0]); err != nil {
				return &usageError{err.Error()}
			}
			if a.context != "" {
				return usagef("the context is NAME; --context is not needed")
			}
			store, err := a.store()
			if err != nil {
				return err
			}
			want := client.Context{Name: args[0], APIToken: a.token}
			if want.Server, err = a.serverToSet(store, want.Name); err != nil {
				return err
			}
			made, err := store.Set(cmd.Context(), want)
			if err != nil {
				return err
			}
			if format == formatJSON {
				return a.printContext(format, store, made)
			}
			return a.say(format, nil, "Context %s is for %s", made.Name, made.Server)
		},
	}
	formatFlag(c, &format)
	return c
}

// serverToSet is the server of --server or, where the context is there, its own.
func (a *app) serverToSet(store *client.Store, name string) (string, error) {
	if a.server == "" {
		x, err := store.Find(client.Choice{Name: name})
		switch {
		case errors.Is(err, client.ErrNoContext):
			return "", usagef("--server is needed for a new context")
		case err != nil:
			return "", err
		}
		return x.Server, nil
	}
	u, err := client.ParseServer(a.server)
	if err != nil {
		return "", &usageError{err.Error()}
	}
	return u.String(), nil
}

func (a *app) contextDelete() *cobra.Command {
	return &cobra.Command{
		Use: "delete NAME…", Short: "Forget contexts with their logins and tokens", Args: cobra.MinimumNArgs(1),
		Long: "Forget contexts with their logins and tokens. At the server a login goes on until its tokens end;\n" +
			"tidewire logout ends it there too.",
		ValidArgsFunction: a.completeContexts,
		RunE: func(cmd *cobra.Command, args []string) error {
			store, err := a.store()
			if err != nil {
				return err
			}
			if err := store.Delete(cmd.Context(), args); err != nil {
				return err
			}
			for _, name := range args {
				if err := a.say(formatTable, nil, "Deleted context %s", name); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// completeContexts tells shells the names of contexts.
func (a *app) completeContexts(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	names := []string{}
	if store, err := a.store(); err == nil {
		all, _, err := store.Contexts()
		for i := range all {
			names = append(names, all[i].Name)
		}
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func (a *app) logoutCommand() *cobra.Command {
	return &cobra.Command{
		Use: "logout", Short: "End a login and forget its tokens", Args: cobra.NoArgs,
		Long: "End the login of the context at the server, so that its tokens are dead, and forget them. The context\n" +
			"stays. Of an API token only what is stored here goes; tidewire token delete ends it.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if a.token != "" {
				return usagef("it ends the context's login; --token does not go with it")
			}
			return a.logOut(cmd.Context())
		},
	}
}

func (a *app) logOut(ctx context.Context) error {
	store, x, err := a.target()
	switch {
	case err != nil:
		return err
	case x.Name == "" || x.AccessToken == "" && x.APIToken == "":
		return errors.New("not logged in to " + x.Server)
	case x.APIToken != "":
		err = store.Forget(ctx, x.Name)
	default:
		var session *client.Session
		if session, err = client.NewSession(store, *x, a.now); err == nil {
			err = session.LogOut(ctx)
		}
	}
	if err != nil {
		return err
	}
	return a.say(formatTable, nil, "Logged out of %s", x.Server)
}

func (a *app) whoamiCommand() *cobra.Command {
	var format string
	c := &cobra.Command{
		Use: "whoami", Short: "Show whom the server takes you for", Args: cobra.NoArgs,
		RunE: a.calling(func(ctx context.Context, c *client.Client, _ []string) error {
			return a.show(ctx, c, format, "/v1/auth/me", "username", "admin", "expires_at")
		}),
	}
	formatFlag(c, &format)
	return c
}
