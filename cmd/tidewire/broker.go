package main

import (
	"context"

	"tidewire/internal/client"

	"github.com/spf13/cobra"
)

func (a *app) brokerCommand() *cobra.Command {
	return group("broker", "Look at the cluster's nodes, drain and remove them", a.brokerList(), a.brokerDescribe(),
		a.brokerDrain("drain", "Move everything that a broker holds to others"), a.brokerDrain("undrain", "End the draining of a broker"),
		a.brokerCanStop(), a.brokerRemove())
}

var brokerColumns = []string{"id", "host", "rack", "state", "role", "leaders", "replicas", "version", "disk_free_bytes", "clock_offset_ms"}

func (a *app) brokerList() *cobra.Command {
	return a.listCommand("list", "List brokers", "/v1/brokers", brokerColumns...)
}

func (a *app) brokerDescribe() *cobra.Command {
	var format string
	c := &cobra.Command{
		Use: "describe ID", Short: "Show a broker", Args: cobra.ExactArgs(1),
		RunE: a.calling(func(ctx context.Context, c *client.Client, args []string) error {
			return a.show(ctx, c, format, client.Path("v1", "brokers", args[0]), brokerColumns...)
		}),
	}
	formatFlag(c, &format)
	return c
}
