package main

import (
	"context"
	"net/http"

	"tidewire/internal/client"

	"github.com/spf13/cobra"
)

func (a *app) operationCommand() *cobra.Command {
	return group("operation", "Look at long work of the node, and cancel it",
		a.listCommand("list", "List operations", "/v1/operations", "id", "kind", "state", "principal", "created_at", "ended_at"),
		a.operationGet(), a.operationCancel())
}

func operationPath(id string) string { return client.Path("v1", "operations", id) }

func (a *app) operationGet() *cobra.Command {
	var format string
	c := &cobra.Command{
		Use: "get ID", Short: "Show an operation and its progress", Args: cobra.ExactArgs(1),
		RunE: a.calling(func(ctx context.Context, c *client.Client, args []string) error {
			return a.show(ctx, c, format, operationPath(args[0]), "id", "kind", "state", "resource", "principal", "progress", "eta_ms",
				"created_at", "ended_at", "error")
		}),
	}
	formatFlag(c, &format)
	return c
}

func (a *app) operationCancel() *cobra.Command {
	var format string
	c := &cobra.Command{
		Use: "cancel ID", Short: "Cancel an operation; what it has done stays done", Args: cobra.ExactArgs(1),
		RunE: a.calling(func(ctx context.Context, c *client.Client, args []string) error {
			if err := c.Call(ctx, client.Request{Method: http.MethodDelete, Path: operationPath(args[0])}, nil); err != nil {
				return err
			}
			return a.say(format, nil, "Cancelled operation %s", args[0])
		}),
	}
	formatFlag(c, &format)
	return c
}
