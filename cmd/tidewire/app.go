package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"tidewire/internal/buildinfo"
	"tidewire/internal/client"

	"github.com/spf13/cobra"
)

// app is what the commands share: the process's surroundings, which tests replace,
// and the flags of all client commands.
type app struct {
	in           io.Reader
	out, errOut  io.Writer
	getenv       func(string) string
	now          func() time.Time
	storeDir     func() (string, error)
	onTerminal   bool // errOut is one: progress is shown
	readPassword func(prompt string, errOut io.Writer) (string, error)

	server, token, context string // --server, --token, --context

	started bool // a command's own code runs: the command line was in order
}

// usageError is a mistake in the command line that a command's own code found.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

func usagef(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }

// root builds the tree of commands.
func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use: "tidewire", Short: "Tidewire: a replicated log over HTTP", Version: buildinfo.Version,
		SilenceUsage: true, SilenceErrors: true,
		Args: cobra.NoArgs, RunE: needsCommand,
		PersistentPreRun: func(*cobra.Command, []string) { a.started = true },
	}
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.errOut)
	root.AddCommand(a.clientCommands()...)
	root.AddCommand(a.serverCommands()...)
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		if c.Name() == "completion" { // the library's, which takes any argument as a wish for help
			c.RunE = needsCommand
		}
	}
	return root
}

// clientCommands are the commands that call a node, or need none.
func (a *app) clientCommands() []*cobra.Command {
	calling := []*cobra.Command{
		a.loginCommand(), a.logoutCommand(), a.whoamiCommand(), a.topicCommand(), a.produceCommand(), a.consumeCommand(), a.wsCommand(),
		a.userCommand(), a.tokenCommand(), a.aclCommand(), a.quotaCommand(), a.clusterCommand(), a.operationCommand(), a.groupCommand(), a.brokerCommand(), a.reassignmentCommand(), a.electionCommand(), a.benchCommand(), a.contextCommand(),
	}
	for _, c := range calling {
		f := c.PersistentFlags()
		f.StringVar(&a.server, "server", "", "address of a node (TIDEWIRE_SERVER; default: the context's, else "+client.DefaultServer+")")
		f.StringVar(&a.token, "token", "", "access token or API token in place of the context's (TIDEWIRE_TOKEN)")
		f.StringVar(&a.context, "context", "", "a stored context (TIDEWIRE_CONTEXT; default: the current one, see tidewire context)")
		_ = c.RegisterFlagCompletionFunc("context", a.completeContexts) // there is such a flag
	}
	return append(append(calling, a.versionCommand()), unbuiltCommands()...)
}

// run executes one command line and returns the exit code.
func (a *app) run(ctx context.Context, args []string) int {
	root := a.root()
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		fmt.Fprintln(a.errOut, "tidewire: interrupted")
		return 1
	}
	fmt.Fprintln(a.errOut, "tidewire:", err)
	var usage *usageError
	if !a.started || errors.As(err, &usage) {
		fmt.Fprintf(a.errOut, "See: %s --help\n", cmd.CommandPath())
		return 2
	}
	var p *client.Problem
	if errors.As(err, &p) && p.Status == 401 {
		fmt.Fprintln(a.errOut, "Log in with: tidewire login SERVER --username NAME")
	}
	return 1
}

// needsCommand is what a command does that only groups others.
func needsCommand(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("unknown command %q for %q", args[0], cmd.CommandPath())
	}
	_ = cmd.Help()
	return usagef("a command is needed")
}

// group is a command that only holds others.
func group(use, short string, commands ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, RunE: needsCommand}
	c.AddCommand(commands...)
	return c
}

// choice says which context the flags and the environment mean, see docs/cli.md. Flags
// win: with --context or --server the environment's server and context do not count,
// except that of several contexts of the server the environment's is taken.
func (a *app) choice() (client.Choice, error) {
	by := client.Choice{Name: a.context, Server: a.server, Prefer: a.getenv("TIDEWIRE_CONTEXT")}
	if by.Name == "" && by.Server == "" {
		by.Name, by.Server = by.Prefer, a.getenv("TIDEWIRE_SERVER")
	}
	if by.Server == "" {
		return by, nil
	}
	u, err := client.ParseServer(by.Server)
	if err != nil {
		return by, &usageError{err.Error()}
	}
	by.Server = u.String()
	return by, nil
}

// target returns the context that a command works in. One without a name is not stored:
// it is of a server that no context is of.
func (a *app) target() (*client.Store, *client.Context, error) {
	by, err := a.choice()
	if err != nil {
		return nil, nil, err
	}
	store, err := a.store()
	if err != nil {
		return nil, nil, err
	}
	x, err := store.Find(by)
	switch {
	case errors.Is(err, client.ErrOtherServer):
		return nil, nil, &usageError{err.Error()}
	case errors.Is(err, client.ErrNoContext) && by.Name == "":
		return store, &client.Context{Login: client.Login{Server: cmp.Or(by.Server, client.DefaultServer)}}, nil
	}
	return store, x, err
}

// tokenSetting is the token that takes the place of the context's. A context that a flag
// names is used with its own: the environment's token may be for another server.
func (a *app) tokenSetting() string {
	if a.token != "" || a.context != "" {
		return a.token
	}
	return a.getenv("TIDEWIRE_TOKEN")
}

// client returns a client of the context's server with its tokens, or the given one.
func (a *app) client() (*client.Client, error) {
	store, x, err := a.target()
	if err != nil {
		return nil, err
	}
	base, err := client.ParseServer(x.Server)
	if err != nil {
		return nil, err
	}
	if token := a.tokenSetting(); token != "" {
		return client.New(base, client.StaticToken(token)), nil
	}
	tokens, err := store.Tokens(x, a.now)
	if err != nil {
		return nil, err
	}
	return client.New(base, tokens), nil
}

func (a *app) store() (*client.Store, error) {
	dir, err := a.storeDir()
	if err != nil {
		return nil, err
	}
	return client.NewStore(dir), nil
}

// calling makes a command's code out of a function that needs a client.
func (a *app) calling(run func(ctx context.Context, c *client.Client, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		c, err := a.client()
		if err != nil {
			return err
		}
		defer c.Close()
		return run(cmd.Context(), c, args)
	}
}

// passwordOf reads a password from standard input's next line, or asks a person.
func (a *app) passwordOf(fromStdin bool, lines *bufio.Reader, prompt string) (string, error) {
	if !fromStdin {
		return a.readPassword(prompt, a.errOut)
	}
	line, err := lines.ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	if line = strings.TrimRight(line, "\r\n"); line == "" {
		return "", errors.New("standard input has no password")
	}
	return line, nil
}

func (a *app) versionCommand() *cobra.Command {
	var format string
	c := &cobra.Command{
		Use: "version", Short: "Print which build this is", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if format == formatJSON {
				return a.printJSON(map[string]string{"version": buildinfo.Version, "go": buildinfo.GoVersion(), "platform": buildinfo.Platform()})
			}
			_, err := fmt.Fprintf(a.out, "tidewire %s (%s, %s)\n", buildinfo.Version, buildinfo.GoVersion(), buildinfo.Platform())
			return err
		},
	}
	formatFlag(c, &format)
	return c
}

func (a *app) printJSON(v any) error {
	enc := json.NewEncoder(a.out)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}
