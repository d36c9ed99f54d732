package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"tidewire/internal/config"
	"tidewire/internal/datadir"

	"github.com/spf13/cobra"
)

// healthTimeout bounds a look at a node; an orchestrator asks again soon.
const healthTimeout = 4 * time.Second

// healthcheckCommand is for images and service managers that have no HTTP client.
func (a *app) healthcheckCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "healthcheck", Short: "Ask the node on this machine whether it is ready", Args: cobra.NoArgs,
		Long: "Ask the node that runs on this machine in --data-dir whether it is ready (GET /readyz), with the settings\n" +
			"that serve has. Exit code 0: it is; 1: it is not, or none runs.",
	}
	config.AddFlags(c.Flags())
	c.RunE = func(c *cobra.Command, _ []string) error {
		cfg, err := a.loadConfig(c)
		if err != nil {
			return err
		}
		e, err := datadir.ReadEndpoints(cfg.DataDir)
		if err != nil {
			return fmt.Errorf("no node runs in %s: %w", cfg.DataDir, err)
		}
		text, err := ready(c.Context(), e.HTTP)
		if err == nil {
			_, err = fmt.Fprintln(a.out, text)
		}
		return err
	}
	return c
}

// ready is what a ready node says of itself. base is one of this machine's own addresses
// and nothing is sent there, so that a certificate for the node's public name will do.
func ready(ctx context.Context, base string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(base, "/")+"/readyz", nil)
	if err != nil {
		return "", err
	}
	t := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // see above
	defer t.CloseIdleConnections()
	resp, err := (&http.Client{Transport: t}).Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }() // it has been read
	body, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return "", err
	}
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: %s", resp.Status, strings.TrimSpace(string(body)))
	}
	return strings.TrimSpace(string(body)), nil
}
