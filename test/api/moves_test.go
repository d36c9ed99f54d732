package api

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewire/internal/testkit/nodekit"
)

// gossipOf is where others find a node.
func gossipOf(t *testing.T, n *nodekit.Node) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(n.Dir, "endpoints.json"))
	require.NoError(t, err)
	var e struct {
		Gossip string `json:"gossip"`
	}
	require.NoError(t, json.Unmarshal(b, &e))
	return e.Gossip
}

// What one node alone cannot do: a move that is cancelled, a drain, and a broker's removal.
func TestWhatTakesASecondNode(t *testing.T) {
	t.Parallel()
	var key [32]byte
	_, _ = rand.Read(key[:]) // never fails (crypto/rand)
	path := filepath.Join(t.TempDir(), "key")
	require.NoError(t, os.WriteFile(path, []byte(base64.StdEncoding.EncodeToString(key[:])), 0o600))
	member := []string{"--cluster-key-file", path, "--gossip-listen", "127.0.0.1:0", "--peer-listen", "127.0.0.1:0"}
	a := ownAPI(t, append(member, "--node-id", "1")...)
	name := a.topic("moving", 1, nil)
	a.records(name, object{"value": strings.Repeat("x", 100_000)})
	second := nodekit.Start(t, append(member, "--node-id", "2", "--join", gossipOf(t, a.Node))...)
	state := func() string {
		var b struct {
			State    string `json:"state"`
			Replicas int    `json:"replicas"`
		}
		a.as(a.admin, http.MethodGet, "/v1/brokers/2", nil).JSON(t, &b)
		return b.State + " " + strconv.Itoa(b.Replicas)
	}
	require.Eventually(t, func() bool { return state() == "online 1" }, time.Minute, 50*time.Millisecond, "with a replica of the audit log")
	actions := func() []string {
		var b struct {
			Actions []string `json:"actions"`
		}
		a.as(a.admin, http.MethodGet, "/v1/brokers/2", nil).JSON(t, &b)
		return b.Actions
	}
	require.Equal(t, []string{"alter", "drain"}, actions())

	// What the other node has measured is told by this one.
	const measured = "/v1/brokers/2/metrics/history?series=partitions,topics/moving/size_bytes"
	require.Eventually(t, func() bool {
		list := decoded(t, a.get(measured), 200)["series"].([]any)
		require.Len(t, list, 2)
		return slices.ContainsFunc(list[0].(object)["points"].([]any), func(p any) bool { return p.([]any)[1] != nil })
	}, time.Minute, 200*time.Millisecond, "a slot of ten seconds has to end")

	moves := object{"moves": []object{{"topic": "moving", "partition": 0, "replicas": []int{2}}}, "throttle_bytes_per_s": 1000}
	wants(t, a.as(a.admin, http.MethodPost, "/v1/reassignments", moves), 200, "")
	wants(t, a.as(a.admin, http.MethodDelete, "/v1/reassignments/moving/0", nil), 204, "")
	wants(t, a.as(a.admin, http.MethodDelete, "/v1/reassignments/moving/0", nil), 404, "not-found")

	wants(t, a.as(a.admin, http.MethodDelete, "/v1/brokers/2", nil), 409, "conflict")
	wants(t, a.as(a.admin, http.MethodPost, "/v1/brokers/2/drain", nil), 200, "")
	require.Eventually(t, func() bool { return state() == "draining 0" }, time.Minute, 50*time.Millisecond, "the audit log has one replica again")
	require.Equal(t, []string{"alter", "undrain"}, actions())
	second.Stop()
	wants(t, a.get(measured), 503, "leader-unavailable")
	require.Eventually(t, func() bool { return slices.Contains(actions(), "delete") }, time.Minute, 50*time.Millisecond)
	require.Eventually(t, func() bool {
		return a.as(a.admin, http.MethodDelete, "/v1/brokers/2", nil).Status == http.StatusNoContent
	}, time.Minute, 50*time.Millisecond, "once it is known to be gone")
	wants(t, a.as(a.admin, http.MethodGet, "/v1/brokers/2", nil), 404, "unknown-broker")
}
