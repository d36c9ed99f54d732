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

// serverCommands are the commands that run a node, or look at its settings or files.
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
	return []*cobra.Command{serve, show, a.checkCommand(), a.healthcheckCommand()}
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
	defer runtime.KeepAlive(tuneRuntime())
	ctx := c.Context()
	logger := newLogger(a, cfg)
	n, err := node.Start(ctx, cfg, logger, a.out)
	switch {
	case ctx.Err() != nil && errors.Is(err, context.Canceled): // told to stop while it started
		logger.Info("the node has stopped before it was ready", "why", err)
		return nil
	case err != nil:
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

// moreProcs is how many scheduler slots a node has beyond its cores.
const moreProcs = 4

// heapFloor keeps the collector from running for every few megabytes of a small heap.
const heapFloor = 64 << 20

// tuneRuntime sets the Go runtime for a server that waits for disks. GOMAXPROCS and GOGC
// in the environment win.
//
// A goroutine in a file system call keeps its scheduler slot until the runtime notices:
// on two cores a few syncs can stall the requests, so there are more slots than cores.
// The ballast is never touched and takes no memory; it makes the collector's goal at
// least twice its size, where a small heap would be collected hundreds of times a second.
func tuneRuntime() (ballast []byte) {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + moreProcs)
	}
	if os.Getenv("GOGC") == "" {
		ballast = make([]byte, heapFloor)
	}
	return ballast
}

func newLogger(a *app, cfg *config.Config) *slog.Logger {
	o := &slog.HandlerOptions{Level: cfg.LogLevel}
	if cfg.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(a.errOut, o))
	}
	return slog.New(slog.NewTextHandler(a.errOut, o))
}
