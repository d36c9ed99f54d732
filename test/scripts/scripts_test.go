// Package scripts tests the shell scripts that the Makefile calls.
package scripts

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// tools are programs that the scripts themselves need.
var tools = []string{"sh", "sed", "sort", "head", "printf", "dirname", "id", "cat"}

// machine makes a folder for PATH with the tools and the given programs: name to
// what they print.
func machine(t *testing.T, programs map[string]string) string {
	t.Helper()
	folder := t.TempDir()
	for _, tool := range tools {
		real, err := exec.LookPath(tool)
		require.NoError(t, err)
		require.NoError(t, os.Symlink(real, filepath.Join(folder, tool)))
	}
	for name, prints := range programs {
		body := "#!/bin/sh\necho \"$*\" >>\"$(dirname \"$0\")/calls\"\necho '" + prints + "'\n"
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(body), 0o755))
	}
	return folder
}

func run(t *testing.T, path, script string) (output string, ok bool) {
	t.Helper()
	cmd := exec.Command("/bin/sh", script)
	cmd.Env = []string{"PATH=" + path}
	out, err := cmd.CombinedOutput()
	return string(out), err == nil
}

func TestPreflightNamesWhatIsMissingInOneLine(t *testing.T) {
	t.Parallel()
	whole := func() map[string]string {
		return map[string]string{"go": "go1.26.1", "node": "v20.19.0", "gcc": "", "make": "", "git": "", "curl": ""}
	}
	for name, x := range map[string]struct {
		change func(m map[string]string)
		want   string // "" when nothing is missing
	}{
		"all there":         {func(map[string]string) {}, ""},
		"much newer":        {func(m map[string]string) { m["go"], m["node"] = "go1.100", "v100.0.1" }, ""},
		"a release to come": {func(m map[string]string) { m["go"] = "go1.27rc1 X:x" }, ""},
		"old Node":          {func(m map[string]string) { m["node"] = "v20.9.1" }, "Node >= 20.19 (found 20.9.1)"},
		"old Go":            {func(m map[string]string) { m["go"] = "go1.9" }, "Go >= 1.26 (found 1.9)"},
		"several":           {func(m map[string]string) { delete(m, "go"); delete(m, "gcc") }, "Go >= 1.26 (none found), gcc"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			programs := whole()
			x.change(programs)
			output, ok := run(t, machine(t, programs), "../../scripts/preflight")
			require.Equal(t, x.want == "", ok, output)
			if x.want != "" {
				require.Equal(t, "missing to build Tidewire: "+x.want+"\n", output)
			}
		})
	}
}

// layOut copies the installing script beside a list of packages.
func layOut(t *testing.T, list string) string {
	t.Helper()
	script, err := os.ReadFile("../../scripts/install-test-packages")
	require.NoError(t, err)
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "install-test-packages"), script, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "test-packages"), []byte(list), 0o644))
	return filepath.Join(folder, "install-test-packages")
}

func TestOnlyMissingTestPackagesAreInstalled(t *testing.T) {
	t.Parallel()
	script := layOut(t, "# a comment\n\nsed sed-package needed\nno-such-command first-package why\nfile:/no/such/file second-package why\nfile:/ third-package why\n")

	asRoot := machine(t, map[string]string{"apt-get": ""})
	require.NoError(t, os.Remove(filepath.Join(asRoot, "id")))
	require.NoError(t, os.WriteFile(filepath.Join(asRoot, "id"), []byte("#!/bin/sh\necho 0\n"), 0o755))
	output, ok := run(t, asRoot, script)
	require.True(t, ok, output)
	calls, err := os.ReadFile(filepath.Join(asRoot, "calls"))
	require.NoError(t, err)
	require.Equal(t, "update\ninstall -y --no-install-recommends first-package second-package\n", string(calls))

	asUser := machine(t, nil)
	require.NoError(t, os.Remove(filepath.Join(asUser, "id")))
	require.NoError(t, os.WriteFile(filepath.Join(asUser, "id"), []byte("#!/bin/sh\necho 1000\n"), 0o755))
	output, ok = run(t, asUser, script)
	require.False(t, ok)
	require.Equal(t, 1, strings.Count(output, "\n"), output)
	require.Contains(t, output, "apt-get install -y --no-install-recommends first-package second-package")
}

func TestNothingIsInstalledWhenAllIsThere(t *testing.T) {
	t.Parallel()
	output, ok := run(t, machine(t, nil), layOut(t, "sed sed-package needed\n"))
	require.True(t, ok)
	require.Empty(t, output)
}
