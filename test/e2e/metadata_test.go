package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// tables are the files of the SQLite database, by name.
func (n *node) tables(t *testing.T) map[string][]byte {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(n.dir, "meta", "tidewire.db*"))
	require.NoError(t, err)
	out := map[string][]byte{}
	for _, path := range paths {
		out[filepath.Base(path)], err = os.ReadFile(path)
		require.NoError(t, err)
	}
	require.NotEmpty(t, out["tidewire.db"])
	return out
}

func (n *node) removeTables(t *testing.T) {
	t.Helper()
	for name := range n.tables(t) {
		require.NoError(t, os.Remove(filepath.Join(n.dir, "meta", name)))
	}
}

func (n *node) writeTables(t *testing.T, files map[string][]byte) {
	t.Helper()
	for name, content := range files {
		require.NoError(t, os.WriteFile(filepath.Join(n.dir, "meta", name), content, 0o600))
	}
}

// state is the metadata as the API shows it, in a form that can be compared.
func (a *api) state(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	read := func(path string) []map[string]any {
		var list struct {
			Items []map[string]any `json:"items"`
			Total int              `json:"total"`
		}
		a.must(t, "GET", path, nil, &list)
		require.Len(t, list.Items, list.Total, path)
		return list.Items
	}
	text := func(v any) string {
		b, err := json.Marshal(v)
		require.NoError(t, err)
		return string(b)
	}
	out["users"] = text(read("/v1/users?limit=1000"))
	out["acls"] = text(read("/v1/acls?limit=1000"))
	for _, topic := range read("/v1/topics?limit=1000") {
		name := topic["name"].(string)
		out["topic "+name] = fmt.Sprint(topic["id"], topic["partitions"], topic["replication_factor"], topic["etag"])
		out["config of "+name] = text(read("/v1/topics/" + name + "/config"))
	}
	var cluster map[string]any
	a.must(t, "GET", "/v1/cluster", nil, &cluster)
	out["cluster"] = fmt.Sprint(cluster["cluster_id"])
	var keys map[string]any
	a.must(t, "GET", "/.well-known/jwks.json", nil, &keys)
	out["keys"] = text(keys)
	return out
}

// change adds something of every kind.
func change(t *testing.T, a *api, round int) {
	t.Helper()
	user, topic := fmt.Sprintf("user-%d", round), fmt.Sprintf("topic-%d", round)
	a.must(t, "POST", "/v1/users", map[string]any{"username": user, "password": "password-of-" + user}, nil)
	if round > 0 {
		a.must(t, "PATCH", fmt.Sprintf("/v1/users/user-%d", round-1), map[string]any{"disabled": true}, nil)
	}
	a.createTopic(t, topic, 1+round, map[string]any{"retention.ms": 1_000_000 + round})
	a.must(t, "PATCH", "/v1/topics/"+topic+"/config", map[string]any{"set": map[string]any{"segment.bytes": 100_000 + round}, "unset": []string{}}, nil)
	a.createTopic(t, "gone", 1, nil)
	a.must(t, "DELETE", "/v1/topics/gone", nil, nil)
	a.must(t, "POST", "/v1/acls", map[string]any{"principal": "User:" + user, "resource_type": "topic", "resource_name": topic, "pattern": "literal",
		"operation": "read", "permission": "allow", "host": "*"}, nil)
	a.must(t, "POST", "/v1/topics/"+topic+"/records", []byte(`{"records":[{"value":"of `+topic+`"}]}`), nil)
}

// SQLite holds what can be derived: whatever becomes of its files between two starts,
// nothing of the metadata is lost.
func TestDamagedTablesLoseNoMetadata(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	a := admin(t, n)
	change(t, a, 0)
	n.stop(t)
	older := n.tables(t)
	n.start(t)
	round := 0
	for _, x := range []struct {
		name   string
		damage func(now map[string][]byte)
	}{
		{"deleted", func(map[string][]byte) { n.removeTables(t) }},
		{"emptied", func(now map[string][]byte) {
			n.removeTables(t)
			n.writeTables(t, map[string][]byte{"tidewire.db": {}})
		}},
		{"cut in half", func(now map[string][]byte) {
			n.removeTables(t)
			n.writeTables(t, map[string][]byte{"tidewire.db": now["tidewire.db"][:len(now["tidewire.db"])/2]})
		}},
		{"overwritten with other bytes", func(now map[string][]byte) {
			n.removeTables(t)
			n.writeTables(t, map[string][]byte{"tidewire.db": []byte(strings.Repeat("not a database ", 1000))})
		}},
		{"damaged inside", func(now map[string][]byte) {
			db := append([]byte{}, now["tidewire.db"]...)
			for at := 4096; at+64 < len(db); at += 4096 {
				copy(db[at:], strings.Repeat("x", 64))
			}
			n.removeTables(t)
			n.writeTables(t, map[string][]byte{"tidewire.db": db})
		}},
		{"an older copy", func(map[string][]byte) {
			n.removeTables(t)
			n.writeTables(t, older)
		}},
		{"an older copy under a newer write-ahead log", func(now map[string][]byte) {
			n.writeTables(t, map[string][]byte{"tidewire.db": older["tidewire.db"]})
		}},
		{"without its write-ahead log", func(now map[string][]byte) {
			n.removeTables(t)
			n.writeTables(t, map[string][]byte{"tidewire.db": now["tidewire.db"]})
		}},
	} {
		for _, clean := range []bool{true, false} {
			round++
			change(t, a, round)
			before := a.state(t)
			if clean {
				n.stop(t)
			} else {
				n.kill()
			}
			x.damage(n.tables(t))
			n.start(t)
			t.Run(fmt.Sprintf("%s, clean stop %t", x.name, clean), func(t *testing.T) {
				require.Equal(t, before, a.state(t), "with a token from before")
				login(t, n, fmt.Sprintf("user-%d", round), fmt.Sprintf("password-of-user-%d", round))
				topic := fmt.Sprintf("topic-%d", round)
				var found []rec
				for p := range 1 + round {
					found = append(found, a.readPartition(t, topic, p, 100)...)
				}
				require.Len(t, found, 1)
				require.Equal(t, "of "+topic, string(found[0].Value))
			})
		}
	}
}
