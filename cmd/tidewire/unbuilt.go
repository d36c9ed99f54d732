package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

// unbuiltCommands are documented commands whose part of the server is not built yet. They
// are there so that who looks for them is told.
func unbuiltCommands() []*cobra.Command {
	var out []*cobra.Command
	for _, u := range []struct{ name, what string }{
		{"transaction", "transactions"}, {"backup", "backups"},
	} {
		out = append(out, &cobra.Command{
			Use: u.name, Short: "Not built yet: " + u.what,
			Args: cobra.ArbitraryArgs, FParseErrWhitelist: cobra.FParseErrWhitelist{UnknownFlags: true},
			RunE: func(*cobra.Command, []string) error {
				return fmt.Errorf("%s: this version has no %s yet (not-implemented)", u.name, u.what)
			},
		})
	}
	return out
}
