// Package tsclient tests the OpenAPI document as those do who write TypeScript: the types
// that openapi-typescript makes of it compile under tsc --strict, and a program made with
// them does the main job against a real node. The versions are pinned in ./client; this
// test runs in a copy of it, so that nothing is left there.
package tsclient

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewire/internal/testkit/nodeproc"
	"tidewire/openapi"
)

func TestGeneratedTypesDoTheMainJob(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"package.json", "package-lock.json", "tsconfig.json", "main.ts"} {
		b, err := os.ReadFile(filepath.Join("client", name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), b, 0o600))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "openapi.json"), openapi.JSON(), 0o600))
	node := nodeproc.Start(t, nodeproc.Binary(t))
	for _, args := range [][]string{{"ci", "--no-audit", "--no-fund"}, {"run", "generate"}, {"run", "compile"}, {"test"}} {
		run := exec.Command("npm", args...)
		run.Dir = dir
		run.Env = append(os.Environ(), "TEST_NODE="+node.URL, "NO_UPDATE_NOTIFIER=1")
		out, err := run.CombinedOutput()
		require.NoError(t, err, "npm %v: %s", args, out)
	}
}
