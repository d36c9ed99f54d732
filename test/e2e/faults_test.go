//go:build linux

package e2e

import (
	"context"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewire/test/faults"
)

// Settings of the fault run. Without FAULTS_SECONDS it is a slice of some seconds.
const (
	faultSeconds = "FAULTS_SECONDS"
	faultNodes   = "FAULTS_NODES"
	faultSeed    = "FAULTS_SEED"
	faultKinds   = "FAULTS_ONLY" // names with commas between them; none: all
	faultRate    = "FAULTS_RATE" // requests of producers a second
)

func number(t *testing.T, variable string, otherwise int) int {
	t.Helper()
	s := os.Getenv(variable)
	if s == "" {
		return otherwise
	}
	n, err := strconv.Atoi(s)
	require.NoError(t, err, variable)
	return n
}

// faultFolder is a folder that stays when the test fails.
func faultFolder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "tidewire-faults-")
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("logs and data are in %s", dir)
			return
		}
		require.NoError(t, os.RemoveAll(dir))
	})
	return dir
}

// needsNamespaces skips where no network namespaces can be made.
func needsNamespaces(t *testing.T) {
	t.Helper()
	if why := faults.Unable(); why != "" {
		t.Skip("skipped: " + why)
	}
}

// A cluster under all faults at once: nothing that was acknowledged is lost, nothing is there
// twice that was sent once, nothing is out of order, replicas are equal, and all heals by itself.
func TestAClusterUnderFaultsKeepsItsPromises(t *testing.T) {
	needsNamespaces(t)
	seconds := number(t, faultSeconds, 0)
	if seconds == 0 {
		if testing.Short() {
			t.Skip("skipped: not with -short")
		}
		seconds = 25
	}
	cfg := faults.Config{
		Binary: binary, Dir: faultFolder(t), Nodes: number(t, faultNodes, 3), Time: time.Duration(seconds) * time.Second,
		Seed: uint64(number(t, faultSeed, int(time.Now().Unix()))), Mixed: true, PerS: number(t, faultRate, 500), Log: t.Logf,
	}
	for _, k := range strings.FieldsFunc(os.Getenv(faultKinds), func(r rune) bool { return r == ',' }) {
		cfg.Only = append(cfg.Only, faults.Kind(k))
	}
	t.Logf("%d nodes, %s of faults, seed %d; clocks are set: %t", cfg.Nodes, cfg.Time, cfg.Seed, faults.Injects(binary))
	report, err := faults.Run(context.Background(), cfg)
	require.NoError(t, err)
	t.Log(report)
	require.Empty(t, report.Wrong)
}
