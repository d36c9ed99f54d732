package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the generated part of docs/cli.md")

const (
	cliPage  = "../../docs/cli.md"
	cliBegin = "<!-- what follows is written by: go test ./cmd/tidewire -run TestThePageOfCommands -update -->\n"
)

// reference describes every command and flag in Markdown.
func reference(root *cobra.Command) string {
	var b bytes.Buffer
	describe(&b, root)
	return b.String()
}

func describe(b *bytes.Buffer, c *cobra.Command) {
	for _, sub := range c.Commands() {
		if sub.Hidden || sub.Name() == "help" {
			continue
		}
		if sub.HasParent() && !sub.Parent().HasParent() {
			fmt.Fprintf(b, "\n### %s\n", sub.Name())
		}
		if !sub.HasSubCommands() {
			describeOne(b, sub)
		}
		describe(b, sub)
	}
}

func describeOne(b *bytes.Buffer, c *cobra.Command) {
	fmt.Fprintf(b, "\n`%s`  \n%s.\n", c.UseLine(), strings.TrimSuffix(c.Short, "."))
	if long := strings.TrimSpace(c.Long); long != "" && !strings.Contains(long, "$") {
		fmt.Fprintf(b, "\n```text\n%s\n```\n", long)
	}
	if c.Example != "" {
		fmt.Fprintf(b, "\n```console\n%s\n```\n", strings.TrimRight(c.Example, "\n"))
	}
	if c.Name() == "serve" || c.Name() == "config" || c.Name() == "healthcheck" {
		b.WriteString("\nIts flags are the settings of a node, see [configuration.md](configuration.md).\n")
		return
	}
	first := true
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" || f.Name == "version" || c.InheritedFlags().Lookup(f.Name) != nil || common(f.Name) {
			return
		}
		if first {
			b.WriteString("\n")
			first = false
		}
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		if t := f.Value.Type(); t != "bool" {
			name += " " + strings.TrimSuffix(strings.TrimSuffix(t, "Slice"), "Array")
		}
		text := strings.Join(strings.Fields(f.Usage), " ")
		if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "0" && f.DefValue != "[]" && f.DefValue != "0s" {
			text += " (default: " + f.DefValue + ")"
		}
		fmt.Fprintf(b, "- `%s`: %s\n", name, text)
	})
}

// common are the flags of all commands that call a node.
func common(name string) bool { return name == "server" || name == "token" || name == "context" }

func TestThePageOfCommandsIsWhatTheProgramHas(t *testing.T) {
	t.Parallel()
	a := &app{out: io.Discard, errOut: io.Discard}
	page, err := os.ReadFile(cliPage)
	require.NoError(t, err)
	head, _, ok := strings.Cut(string(page), cliBegin)
	require.True(t, ok, "docs/cli.md has lost the line from which on it is generated")
	want := head + cliBegin + reference(a.root())
	if *update {
		require.NoError(t, os.WriteFile(cliPage, []byte(want), 0o600))
		return
	}
	require.Equal(t, want, string(page), "write it anew with -update")
}

// TestEveryCommandThatCallsANodeTakesJSON holds the promise of the page: what prints a
// table for people prints JSON for programs.
func TestEveryCommandThatCallsANodeTakesJSON(t *testing.T) {
	t.Parallel()
	a := &app{out: io.Discard, errOut: io.Discard}
	others := map[string]bool{"tidewire login": true, "tidewire logout": true, "tidewire ws": true, "tidewire context delete": true, "tidewire cluster keygen": true}
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			visit(sub)
		}
		if c.HasSubCommands() || c.Flag("server") == nil || others[c.CommandPath()] {
			return
		}
		output := c.Flag("output")
		if assert.NotNil(t, output, c.CommandPath()) {
			assert.Contains(t, output.Value.Type(), "json", c.CommandPath())
			assert.Equal(t, "o", output.Shorthand, c.CommandPath())
		}
	}
	visit(a.root())
}
