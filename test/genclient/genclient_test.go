// Package genclient tests the OpenAPI document as its users do: a client generated
// from it does the main job against a real node. The client is a module of its own
// in ./client; this test generates it, starts a node and runs the module's own test.
package genclient

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewire/internal/testkit/nodeproc"
)

func TestAGeneratedClientDoesTheMainJob(t *testing.T) {
	t.Parallel()
	node := nodeproc.Start(t, nodeproc.Binary(t))
	for _, args := range [][]string{{"generate", "."}, {"vet", "."}, {"test", "-count=1", "."}} {
		run := exec.Command("go", args...)
		run.Dir = "client"
		run.Env = append(os.Environ(), "TEST_NODE="+node.URL)
		out, err := run.CombinedOutput()
		require.NoError(t, err, "go %v: %s", args, out)
	}
}
