package cluster_test

import (
	"testing"

	"go.uber.org/goleak"

	"tidewire/cluster/clustertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestANewNodeFoundsAClusterAndComesBackToIt(t *testing.T) {
	dir := t.TempDir()
	c := clustertest.StartIn(t, dir)
	id := c.ClusterID()
	if err := c.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	c = clustertest.StartIn(t, dir)
	if c.ClusterID() != id {
		t.Fatal(c.ClusterID(), id)
	}
	t.Log(c.Image().Cluster(), c.Image().Broker(1))
}
