package e2e

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A token that the command line has made serves it as TIDEWIRE_TOKEN, also after a kill.
func TestATokenMadeByCommandIsUsedByCommand(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	admin := login(t, n, "admin", "tidewire").token
	must := func(token string, args ...string) string { return n.must(t, token, "", args...) }
	must(admin, "topic", "create", "t")
	must(admin, "topic", "create", "other")
	token := strings.TrimSpace(must(admin, "token", "create", "ci", "--expires", "1h", "--scope", "topic:t:read", "--scope", "topic:t:write"))
	require.NotContains(t, token, "\n", "the token alone is on standard output")
	require.Zero(t, n.cli(t, token, `{"value":"x"}`+"\n", "produce", "t").code)
	n.restart(t, false)
	require.Contains(t, must(token, "consume", "t", "--from", "earliest", "-o", "value"), "x")
	require.Equal(t, 1, n.cli(t, token, `{"value":"x"}`+"\n", "produce", "other").code)
	admin = login(t, n, "admin", "tidewire").token
	listed := parse[list](t, must(admin, "token", "list", "--user", "admin", "-o", "json"))
	require.Equal(t, 1, listed.Total)
	id := names(listed, "id")[0].(string)
	must(admin, "token", "delete", id)
	require.Equal(t, 1, n.cli(t, token, "", "consume", "t", "--from", "earliest").code)
}
