package main

import (
	"bufio"
	"cmp"
	"errors"

	"tidewire/internal/client"

	"github.com/spf13/cobra"
)

func (a *app) loginCommand() *cobra.Command {
	var username string
	var fromStdin bool
	c := &cobra.Command{
		Use: "login [SERVER]", Short: "Log in to a node and remember it",
		Long: "Log in to a node and remember it in a context, which becomes the current one: other commands then\n" +
			"use it without --server and --token, and renew its access token by themselves. Without --context it\n" +
			"is the context of that server, or a new one with the server's address as its name. Without SERVER\n" +
			"it is the context's server. Contexts are kept in your configuration directory, in a file that only\n" +
			"you can read.",
		Example: "  tidewire login http://localhost:8080 --username alice --password-stdin < password\n" +
			"  tidewire login https://tidewire.example.com -u alice --context prod",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case username == "":
				return usagef("--username is needed")
			case a.token != "":
				return usagef("a login asks for a password; store a token with: tidewire context set NAME --token TOKEN")
			case a.context != "" && client.CheckContextName(a.context) != nil:
				return &usageError{client.CheckContextName(a.context).Error()}
			case len(args) > 0:
				a.server = args[0]
			}
			return a.logIn(cmd, username, fromStdin)
		},
	}
	c.Flags().StringVarP(&username, "username", "u", "", "who logs in")
	c.Flags().BoolVar(&fromStdin, "password-stdin", false, "read the password from standard input")
	return c
}

// loginTarget is the server to log in to, and the context to put the login into. Here
// --context may name one that is not there yet, or one of another server.
func (a *app) loginTarget(store *client.Store) (server string, into client.Choice, _ error) {
	by, err := a.choice()
	if err != nil {
		return "", by, err
	}
	into = client.Choice{Name: by.Name, Prefer: by.Prefer}
	if into.Name != "" && client.CheckContextName(into.Name) != nil {
		return "", into, client.CheckContextName(into.Name)
	}
	if by.Server != "" {
		return by.Server, into, nil
	}
	x, err := store.Find(by)
	switch {
	case err == nil:
		into.Name = x.Name
		return x.Server, into, nil
	case errors.Is(err, client.ErrNoContext):
		return cmp.Or(a.getenv("TIDEWIRE_SERVER"), client.DefaultServer), into, nil
	}
	return "", into, err
}

func (a *app) logIn(cmd *cobra.Command, username string, fromStdin bool) error {
	store, err := a.store()
	if err != nil {
		return err
	}
	server, into, err := a.loginTarget(store)
	if err != nil {
		return err
	}
	base, err := client.ParseServer(server)
	if err != nil {
		return &usageError{err.Error()}
	}
	password, err := a.passwordOf(fromStdin, bufio.NewReader(a.in), "Password: ")
	if err != nil {
		return err
	}
	login, err := client.LogIn(cmd.Context(), base, username, password, a.now())
	if err != nil {
		return err
	}
	name, err := store.Save(cmd.Context(), into, login)
	if err != nil {
		return err
	}
	return a.say(formatTable, nil, "Logged in to %s as %s (context %s)", base, printable(username), name)
}
