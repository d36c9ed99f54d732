// Package clustertest gives tests of other packages a real one-node cluster in a
// temporary folder.
package clustertest

import (
	"context"
	"testing"
	"time"

	"tidewire/cluster"
)

// Start runs a cluster of one node, broker 1, that ends with the test. Its files are in
// a folder of their own; a fault that would stop the node fails the test.
func Start(t testing.TB) *cluster.Cluster {
	t.Helper()
	return StartIn(t, t.TempDir())
}

// StartIn runs it on a folder, so that a test can stop it and start it again.
func StartIn(t testing.TB, dir string) *cluster.Cluster {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	c, err := cluster.Start(ctx, cluster.Config{
		Dir: dir, NodeID: 1, Host: "localhost", HTTPAddr: "localhost:8080", Version: "test", ClusterName: "test",
		BootstrapExpect: 1,
		Fatal:           func(err error) { t.Errorf("the metadata of the node failed: %v", err) },
	})
	if err != nil {
		t.Fatalf("start the cluster: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := c.Stop(ctx); err != nil {
			t.Errorf("stop the cluster: %v", err)
		}
	})
	return c
}
