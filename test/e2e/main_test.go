// Package e2e tests Tidewire from outside: real processes of the real binary, real
// files, loopback sockets on ports that the system picks, and the contract of the API.
package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

// binary is the tidewire binary under test: TIDEWIRE_BIN, or one that TestMain builds.
var binary string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	folder, err := os.MkdirTemp("", "tidewire-e2e-")
	if err == nil {
		defer os.RemoveAll(folder)
		binary, err = findBinary(folder)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func findBinary(folder string) (string, error) {
	if path := os.Getenv("TIDEWIRE_BIN"); path != "" {
		return filepath.Abs(path)
	}
	path := filepath.Join(folder, "tidewire")
	build := exec.Command("go", "build", "-buildvcs=false", "-o", path, "tidewire/cmd/tidewire")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the binary: %w\n%s", err, out)
	}
	return path, nil
}
