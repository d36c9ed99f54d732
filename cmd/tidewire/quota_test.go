package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewire/internal/testkit/nodekit"
)

// TestQuotaCommands sets, lists and deletes quotas of a real node.
func TestQuotaCommands(t *testing.T) {
	t.Parallel()
	n := nodekit.Start(t)
	sh := newShell(t, nil)
	sh.env["TIDEWIRE_SERVER"], sh.env["TIDEWIRE_TOKEN"] = n.URL, n.Admin()
	n.Must(201, nodekit.Request{Method: "POST", Path: "/v1/users", Token: n.Admin(), Body: map[string]string{"username": "a/b", "password": "long enough"}})

	require.Contains(t, sh.ok("", "quota", "set", "a/b", "--produce-bytes", "1000", "--requests", "5"), "a/b")
	sh.ok("", "quota", "set", "--default", "--fetch-bytes", "2000")
	require.JSONEq(t, `{"username":"a/b","produce_bytes_per_s":1000,"requests_per_s":5,"fetch_bytes_per_s":null}`,
		project(t, sh.ok("", "quota", "set", "a/b", "--produce-bytes", "1000", "--requests", "5", "-o", "json")))
	lines := strings.Split(strings.TrimSpace(sh.ok("", "quota", "list")), "\n")
	require.Len(t, lines, 3)
	require.Equal(t, []string{"*", "2000"}, []string{strings.Fields(lines[1])[0], strings.Fields(lines[1])[2]})
	sh.ok("", "quota", "delete", "a/b")
	sh.ok("", "quota", "delete", "--default")
	require.Len(t, strings.Split(strings.TrimSpace(sh.ok("", "quota", "list")), "\n"), 1)

	for args, want := range map[string]int{
		"quota delete a/b": 1, "quota set nobody --requests 1": 1, "quota set a/b --requests 0": 1,
		"quota set": 2, "quota set a/b": 2, "quota set a/b --default --requests 1": 2, "quota delete": 2, "quota set a/b --requests many": 2, "quota": 2,
	} {
		code, _, errOut := sh.run("", strings.Fields(args)...)
		require.Equal(t, want, code, "%s: %s", args, errOut)
		require.NotEmpty(t, errOut, args)
	}
}

// project leaves the limits of a quota.
func project(t *testing.T, raw string) string {
	t.Helper()
	m, err := fields([]byte(raw))
	require.NoError(t, err)
	for _, k := range []string{"effective", "actions", "etag"} {
		delete(m, k)
	}
	b, err := json.Marshal(m)
	require.NoError(t, err)
	return string(b)
}
