package main

import (
	"bufio"
	"fmt"

	"tidewire/internal/client"

	"github.com/spf13/cobra"
)

func (a *app) loginCommand() *cobra.Command {
	var username string
	var fromStdin bool
	c := &cobra.Command{
		Use: "login [SERVER]", Short: "Log in to a node and remember it",
		Long: "Log in to a node and remember it: other commands then use it without --server and --token,\n" +
			"and renew its access token by themselves. Tokens are kept in your configuration directory,\n" +
			"in a file that only you can read.",
		Example: "  tidewire login http://localhost:8080 --username alice --password-stdin < password",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if username == "" {
				return usagef("--username is needed")
			}
			server := a.serverSetting()
			if len(args) > 0 {
				server = args[0]
			}
			if server == "" {
				server = client.DefaultServer
			}
			return a.logIn(cmd, server, username, fromStdin)
		},
	}
	c.Flags().StringVarP(&username, "username", "u", "", "who logs in")
	c.Flags().BoolVar(&fromStdin, "password-stdin", false, "read the password from standard input")
	return c
}

func (a *app) logIn(cmd *cobra.Command, server, username string, fromStdin bool) error {
	base, err := client.ParseServer(server)
	if err != nil {
		return &usageError{err.Error()}
	}
	password, err := a.passwordOf(fromStdin, bufio.NewReader(a.in), "Password: ")
	if err != nil {
		return err
	}
	store, err := a.store()
	if err != nil {
		return err
	}
	login, err := client.LogIn(cmd.Context(), base, username, password, a.now())
	if err != nil {
		return err
	}
	if err := store.Save(cmd.Context(), login); err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.out, "Logged in to %s as %s\n", base, printable(username))
	return err
}
