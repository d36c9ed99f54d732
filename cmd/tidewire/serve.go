package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"

	"tidewire/internal/config"
	"tidewire/internal/node"

	"github.com/spf13/cobra"
)

// serverCommands are the commands that run a node or look at its settings.
func (a *app) serverCommands() []*cobra.Command {
	serve := &cobra.Command{
		Use: "serve", Short: "Run a node", Args: cobra.NoArgs,
		Long: "Run a node until SIGTERM or SIGINT. Every setting is a flag, an environment variable TIDEWIRE_… and a key of the YAML file given with --config.",
		RunE: func(c *cobra.Command, _ []string) error { return a.serve(c) },
	}
	show := &cobra.Command{
		Use: "config", Short: "Print the effective settings of a node and where each comes from", Args: cobra.NoArgs,
	}
	asJSON := show.Flags().StringP("output", "o", "table", "table or json")
	show.RunE = func(c *cobra.Command, _ []string) error {
		cfg, err := a.loadConfig(c)
		if err != nil {
			return err
		}
		switch *asJSON {
		case "table":
			return config.Print(a.out, cfg)
		case "json":
			return config.PrintJSON(a.out, cfg)
		}
		return usagef("--output is table or json, not %q", *asJSON)
	}
	config.AddFlags(serve.Flags())
	config.AddFlags(show.Flags())
	return []*cobra.Command{serve, show}
}

// loadConfig reads the settings; a mistake in a flag is one of the command line.
func (a *app) loadConfig(c *cobra.Command) (*config.Config, error) {
	cfg, err := config.Load(c.Flags(), os.Environ())
	var bad *config.Error
	if errors.As(err, &bad) && bad.Source.Kind == config.FromFlag {
		return nil, &usageError{err.Error()}
	}
	return cfg, err
}

// serve runs a node until a signal ends the command's context, or a fault the node.
func (a *app) serve(c *cobra.Command) error {
	cfg, err := a.loadConfig(c)
	if err != nil {
		return err
	}
	widenProcs()
	ctx := c.Context()
	n, err := node.Start(ctx, cfg, newLogger(a, cfg), a.out)
	if err != nil {
		return err
	}
	var fault error
	select {
	case <-ctx.Done():
	case fault = <-n.Failed():
		fault = fmt.Errorf("the node must stop: %w", fault)
	}
	stopCtx, cancel := context.WithTimeout(context.Background(), cfg.ShutdownTimeout)
	defer cancel()
	return errors.Join(fault, n.Stop(stopCtx))
}

// blockingWrites is how many threads of a busy node may wait for the disk at once: those
// that sync logs.
const blockingWrites = 8

// widenProcs gives the scheduler more slots than there are cores. A goroutine that waits
// in a file system call keeps its slot until the runtime notices, so that on few cores a
// few syncs would stall every request. GOMAXPROCS in the environment wins.
func widenProcs() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + blockingWrites)
	}
}

func newLogger(a *app, cfg *config.Config) *slog.Logger {
	o := &slog.HandlerOptions{Level: cfg.LogLevel}
	if cfg.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(a.errOut, o))
	}
	return slog.New(slog.NewTextHandler(a.errOut, o))
}
