package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// threeNodes starts three processes that form a cluster from gossip alone, after what prepares them.
func threeNodes(t *testing.T, prepare ...func([]*node)) []*node {
	t.Helper()
	key := filepath.Join(t.TempDir(), "key")
	made := runEnv(t, plainEnv(t.TempDir()), strings.NewReader(""), "cluster", "keygen")
	require.Zero(t, made.code, made.err)
	require.NoError(t, os.WriteFile(key, []byte(made.out), 0o600))
	gossip := []string{freeAddress(t), freeAddress(t), freeAddress(t)}
	var nodes []*node
	for i := range gossip {
		nodes = append(nodes, newNode(t, "--node-id", fmt.Sprint(i+1), "--gossip-listen", gossip[i], "--cluster-key-file", key,
			"--bootstrap-expect", "3", "--join", gossip[0], "--join", gossip[1], "--rack", fmt.Sprint("r", i+1)))
	}
	for _, do := range prepare {
		do(nodes)
	}
	for _, n := range nodes {
		n.spawn(t)
	}
	for _, n := range nodes {
		n.awaitReady(t)
	}
	return nodes
}

type clusterView struct {
	ClusterID  string `json:"cluster_id"`
	Controller *int   `json:"controller"`
	Brokers    []struct {
		ID    int    `json:"id"`
		State string `json:"state"`
		Rack  string `json:"rack"`
	} `json:"brokers"`
	Topics  int `json:"topics"`
	Offline int `json:"offline_partitions"`
}

func (v clusterView) states() string {
	var out []string
	for _, b := range v.Brokers {
		out = append(out, fmt.Sprint(b.ID, b.State, b.Rack))
	}
	return strings.Join(out, " ")
}

func TestThreeNodesAreOneCluster(t *testing.T) {
	t.Parallel()
	nodes := threeNodes(t)
	var at []*api
	for _, n := range nodes {
		at = append(at, admin(t, n))
	}
	look := func(i int) (v clusterView) {
		at[i].must(t, "GET", "/v1/cluster", nil, &v)
		return v
	}
	for i := range nodes {
		require.Equal(t, look(0).ClusterID, look(i).ClusterID)
		eventually(t, startLimit, "all see all", func() bool { return look(i).states() == "1onliner1 2onliner2 3onliner3" })
		require.Contains(t, nodes[i].must(t, at[i].token, "", "broker", "list"), "online")
		require.Contains(t, nodes[i].must(t, at[i].token, "", "cluster", "status"), look(0).ClusterID)
	}

	// What one node has made is there at once on another.
	for i := range 9 {
		maker, user := at[i%3], at[(i+1)%3]
		name := fmt.Sprint("made-", i)
		maker.createTopic(t, name, 1, nil)
		user.must(t, "POST", "/v1/topics/"+name+"/records", map[string]any{"records": []any{map[string]any{"value": "x"}}}, nil)
		var list struct {
			Total int `json:"total"`
		}
		at[(i+2)%3].must(t, "GET", "/v1/topics?prefix="+name, nil, &list)
		require.Equal(t, 1, list.Total, "and in the list of the third")
		maker.must(t, "POST", "/v1/users", map[string]any{"username": "user-" + name, "password": "correct horse battery"}, nil)
		fresh := login(t, user.n, "user-"+name, "correct horse battery")
		third := &api{n: nodes[(i+2)%3], http: fresh.http, token: fresh.token}
		require.Equal(t, "forbidden", third.refused(t, "GET", "/v1/users", nil).Code, "the token is good on a third node")
		user.must(t, "POST", "/v1/acls", map[string]any{
			"principal": "User:user-" + name, "resource_type": "topic", "resource_name": name, "pattern": "literal",
			"operation": "describe", "permission": "allow", "host": "*",
		}, nil)
		third.must(t, "GET", "/v1/topics/"+name, nil, nil)
	}
	require.GreaterOrEqual(t, look(2).Topics, 9, "and the internal ones")
	require.Zero(t, look(2).Offline, "partitions that others lead are not offline")
	p := at[0].refused(t, "POST", "/v1/topics", map[string]any{"name": "wide", "replication_factor": 4})
	require.Equal(t, "invalid-argument", p.Code, "no replicas are promised that would not be kept")
}

func TestAClusterGoesOnWithoutItsController(t *testing.T) {
	t.Parallel()
	nodes := threeNodes(t)
	var v clusterView
	a := admin(t, nodes[0])
	eventually(t, startLimit, "there is a controller, and all vote", func() bool {
		a.must(t, "GET", "/v1/cluster", nil, &v)
		return v.Controller != nil && strings.Count(nodes[0].proc.err.String()+nodes[1].proc.err.String()+nodes[2].proc.err.String(), "gets a vote") >= 2
	})
	gone := *v.Controller - 1
	left := admin(t, nodes[(gone+1)%3])
	nodes[gone].kill()
	eventually(t, startLimit, "changes are made again", func() bool {
		status, _, err := left.try("POST", "/v1/topics", map[string]any{"name": "after"})
		return err == nil && (status == 201 || status == 409)
	})
	eventually(t, startLimit, "the one that is gone is offline", func() bool {
		left.must(t, "GET", "/v1/cluster", nil, &v)
		return v.Brokers[gone].State == "offline"
	})
	nodes[gone].start(t)
	back := admin(t, nodes[gone])
	back.must(t, "GET", "/v1/topics/after", nil, nil)
	eventually(t, startLimit, "it is back", func() bool {
		left.must(t, "GET", "/v1/cluster", nil, &v)
		return v.Brokers[gone].State == "online"
	})
}

// A node that waits for others answers at once: that it lives, and what it waits for.
func TestANodeThatWaitsForItsClusterSaysSo(t *testing.T) {
	t.Parallel()
	key := filepath.Join(t.TempDir(), "key")
	made := runEnv(t, plainEnv(t.TempDir()), strings.NewReader(""), "cluster", "keygen")
	require.Zero(t, made.code, made.err)
	require.NoError(t, os.WriteFile(key, []byte(made.out), 0o600))
	address := freeAddress(t)
	n := newNode(t, "--cluster-key-file", key, "--gossip-listen", "127.0.0.1:0", "--bootstrap-expect", "3", "--join", freeAddress(t), "--http-listen", address)
	n.spawn(t)
	ask := func(path string) (int, string) {
		resp, err := http.Get("http://" + address + path)
		if err != nil {
			return 0, err.Error()
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, string(b)
	}
	eventually(t, startLimit, "it says what it waits for", func() bool {
		code, body := ask("/readyz")
		return code == http.StatusServiceUnavailable && strings.Contains(body, "the node is starting: it waits for 2 more nodes")
	})
	code, _ := ask("/healthz")
	require.Equal(t, http.StatusOK, code)
	code, body := ask("/v1/topics")
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Contains(t, body, "leader-unavailable")
	n.stop(t)
}

// What one node has answered that it has made is there at any other node at once, and a topic that
// was deleted is not: in many rounds, several at a time, so that nodes are behind each other.
func TestNoNodeIsBehindWhatAnotherHasAnswered(t *testing.T) {
	t.Parallel()
	nodes := threeNodes(t)
	const makers, topics, users = 4, 40, 8
	token := admin(t, nodes[0]).token
	at := func(i int) *api {
		a := newAPI(t, nodes[i%3])
		a.token = token
		return a
	}
	record := []byte(`{"records":[{"value":"x"}]}`)
	var group sync.WaitGroup
	wrong := make(chan string, makers*(topics+users))
	for m := range makers {
		here, there, third := at(m), at(m+1), at(m+2)
		group.Go(func() {
			call := func(a *api, want int, method, path string, body any) bool {
				status, answer, err := a.try(method, path, body)
				if err != nil || status != want {
					wrong <- fmt.Sprintf("maker %d: %s %s: %d instead of %d, %v: %s", m, method, path, status, want, err, answer)
				}
				return err == nil && status == want
			}
			for i := range topics {
				here, there, third = there, third, here
				name := fmt.Sprint("t-", m, "-", i)
				ok := call(here, 201, "POST", "/v1/topics", map[string]any{"name": name}) &&
					call(there, 200, "POST", "/v1/topics/"+name+"/records", record) &&
					call(third, 200, "POST", "/v1/topics/"+name+"/partitions/0/records", record) &&
					call(third, 204, "DELETE", "/v1/topics/"+name, nil) &&
					call(here, 404, "POST", "/v1/topics/"+name+"/records", record)
				if !ok {
					return
				}
			}
			for i := range users {
				here, there, third = there, third, here
				who := map[string]any{"username": fmt.Sprint("u-", m, "-", i), "password": "correct horse battery"}
				if !call(here, 201, "POST", "/v1/users", who) {
					return
				}
				status, answer, err := (&api{n: there.n, http: there.http}).try("POST", "/v1/auth/login", who)
				var got struct {
					Token string `json:"access_token"`
				}
				if err != nil || status != 200 || json.Unmarshal(answer, &got) != nil {
					wrong <- fmt.Sprintf("maker %d: the login of user %d: %d, %v: %s", m, i, status, err, answer)
					return
				}
				if own := (&api{n: third.n, http: third.http, token: got.Token}); !call(own, 200, "GET", "/v1/auth/me", nil) {
					return
				}
			}
		})
	}
	group.Wait()
	close(wrong)
	for w := range wrong {
		t.Error(w)
	}
}
