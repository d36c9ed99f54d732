package main

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"

	"tidewire/internal/client"

	"github.com/spf13/cobra"
)

// clusterKeyBytes is the length of the key that a cluster's nodes share.
const clusterKeyBytes = 32

func (a *app) clusterCommand() *cobra.Command {
	return group("cluster", "Look at the cluster, make its key", a.clusterStatus(), a.clusterConfig(), a.clusterKeygen())
}

func (a *app) clusterStatus() *cobra.Command {
	var format string
	c := &cobra.Command{
		Use: "status", Short: "Show the cluster and its brokers", Args: cobra.NoArgs,
		RunE: a.calling(func(ctx context.Context, c *client.Client, _ []string) error {
			var raw json.RawMessage
			if err := c.Call(ctx, client.Request{Method: http.MethodGet, Path: "/v1/cluster"}, &raw); err != nil {
				return err
			}
			if format == formatJSON {
				return a.printJSON(raw)
			}
			err := a.printMembers(raw, "cluster_id", "name", "controller", "version",
				"topics", "partitions", "offline_partitions",
				"under_replicated_partitions", "under_min_isr_partitions")
			if err != nil {
				return err
			}
			brokers, err := member(raw, "brokers")
			if err != nil {
				return err
			}
			return a.printTable(brokers, brokerColumns...)
		}),
	}
	formatFlag(c, &format)
	return c
}

func (a *app) clusterKeygen() *cobra.Command {
	return &cobra.Command{
		Use: "keygen", Short: "Print a new cluster key, for --cluster-key-file", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			key := make([]byte, clusterKeyBytes)
			if _, err := rand.Read(key); err != nil {
				return err
			}
			_, err := fmt.Fprintln(a.out, base64.StdEncoding.EncodeToString(key))
			return err
		},
	}
}
