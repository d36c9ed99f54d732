package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// troubleView is what the API tells of a cluster's trouble.
type troubleView struct {
	Controller *int `json:"controller"`
	Quorum     struct {
		Available bool  `json:"available"`
		Voters    []int `json:"voters"`
		Online    []int `json:"online"`
		Majority  int   `json:"majority"`
	} `json:"quorum"`
	Brokers []struct {
		ID        int    `json:"id"`
		State     string `json:"state"`
		Role      string `json:"role"`
		OutOfSync int    `json:"out_of_sync"`
		DiskFree  *int64 `json:"disk_free_bytes"`
		Disk      *int64 `json:"disk_bytes"`
	} `json:"brokers"`
	Offline int `json:"offline_partitions"`
	Under   int `json:"under_replicated_partitions"`
	TooFew  int `json:"under_min_isr_partitions"`
}

// line is the cluster in one line: of each node the state and the replicas out of sync, then the
// partitions that are offline, under-replicated, and under min ISR.
func (v troubleView) line() string {
	var nodes []string
	for _, b := range v.Brokers {
		nodes = append(nodes, fmt.Sprint(b.State, b.OutOfSync))
	}
	return fmt.Sprintf("%s %d/%d/%d %t", strings.Join(nodes, " "), v.Offline, v.Under, v.TooFew, v.Quorum.Available)
}

func (a *api) trouble() (v troubleView, err error) {
	status, b, err := a.try("GET", "/v1/cluster", nil)
	if err != nil || status != 200 {
		return v, fmt.Errorf("status %d: %w", status, err)
	}
	return v, json.Unmarshal(b, &v)
}

// listed are the partitions of a health, as topic:partition with the replicas out of sync.
func (a *api) listed(query string) string {
	var page struct {
		Items []struct {
			Topic     string `json:"topic"`
			Partition int    `json:"partition"`
			OutOfSync []int  `json:"out_of_sync"`
		} `json:"items"`
	}
	status, b, err := a.try("GET", "/v1/partitions?prefix=placed&"+query, nil)
	if err != nil || status != 200 || json.Unmarshal(b, &page) != nil {
		return fmt.Sprintf("status %d: %v", status, err)
	}
	var out []string
	for _, it := range page.Items {
		slices.Sort(it.OutOfSync)
		out = append(out, fmt.Sprintf("%s:%d%v", it.Topic, it.Partition, it.OutOfSync))
	}
	return strings.Join(out, " ")
}

// states are the replica states of a partition, in words.
func (a *api) states(topic string) string {
	var v struct {
		Partitions []struct {
			States []struct {
				Broker int    `json:"broker"`
				InSync bool   `json:"in_sync"`
				End    *int64 `json:"log_end_offset"`
				Lag    *int64 `json:"lag"`
			} `json:"replica_states"`
		} `json:"partitions"`
	}
	status, b, err := a.try("GET", "/v1/topics/"+topic, nil)
	if err != nil || status != 200 || json.Unmarshal(b, &v) != nil || len(v.Partitions) == 0 {
		return fmt.Sprintf("status %d: %v", status, err)
	}
	number := func(n *int64) string {
		if n == nil {
			return "-"
		}
		return fmt.Sprint(*n)
	}
	var out []string
	for _, s := range v.Partitions[0].States {
		out = append(out, fmt.Sprintf("%d %t end %s lag %s", s.Broker, s.InSync, number(s.End), number(s.Lag)))
	}
	return strings.Join(out, ", ")
}

// TestEveryNodeTellsWhatIsWrongWithTheCluster kills one node of three, then a second, and lets
// them come back. What is said has to be so without a quorum too.
func TestEveryNodeTellsWhatIsWrongWithTheCluster(t *testing.T) {
	t.Parallel()
	nodes := threeNodes(t)
	r := replicate(t, nodes, "placed.strict", 3)
	left := r.at[0]
	write := func(topic string, n int) {
		t.Helper()
		for i := range n {
			left.must(t, "POST", "/v1/topics/"+topic+"/records?acks=leader", map[string]any{"records": []any{map[string]any{"partition": 0, "value": i}}}, nil)
		}
	}
	says := func(want string, ask func() string) {
		t.Helper()
		got := ""
		eventually(t, startLimit, want, func() bool { got = ask(); return got == want })
	}
	line := func(a *api) func() string {
		return func() string {
			v, err := a.trouble()
			if err != nil {
				return err.Error()
			}
			return v.line()
		}
	}
	// The internal topics are there with one replica, or three; only their state counts here.
	eventually(t, startLimit, "all is well, and all vote", func() bool {
		v, err := left.trouble()
		return err == nil && v.line() == "online0 online0 online0 0/0/0 true" && len(v.Quorum.Voters) == 3 && len(v.Quorum.Online) == 3 && v.Quorum.Majority == 2
	})
	v, err := left.trouble()
	require.NoError(t, err)
	for _, b := range v.Brokers {
		require.Equal(t, v.Controller != nil && *v.Controller == b.ID, b.Role == "controller", b.Role)
		require.NotNil(t, b.DiskFree)
		require.Greater(t, *b.Disk, *b.DiskFree)
	}
	write("placed.strict", 5)
	says("placed.strict:0[] placed.strict:1[] placed.strict:2[]", func() string { return left.listed("health=healthy") })
	eventually(t, startLimit, "all replicas have all records", func() bool {
		return strings.Count(r.at[2].states("placed.strict"), "true end 5 lag 0") == 3
	})

	nodes[2].kill()
	says("placed.strict:0[3] placed.strict:1[3] placed.strict:2[3]", func() string { return left.listed("health=under-min-isr") })
	says("placed.strict:0[3] placed.strict:1[3] placed.strict:2[3]", func() string { return r.at[1].listed("health=unhealthy&broker=3") })
	says("", func() string { return left.listed("health=offline,under-replicated") })
	eventually(t, startLimit, "the node is offline, the quorum is not", func() bool {
		v, err := left.trouble()
		return err == nil && len(v.Brokers) == 3 && v.Brokers[2].State == "offline" && v.Brokers[2].DiskFree == nil && v.Brokers[2].OutOfSync >= 3 &&
			v.TooFew >= 3 && v.Quorum.Available && len(v.Quorum.Online) == 2
	})
	eventually(t, startLimit, "its replica lags", func() bool {
		states := left.states("placed.strict")
		return strings.Count(states, "true end 5 lag 0") == 2 && strings.Contains(states, "3 false end")
	})

	nodes[1].kill()
	eventually(t, startLimit, "the quorum is lost", func() bool {
		v, err := left.trouble()
		return err == nil && v.Controller == nil && !v.Quorum.Available && len(v.Quorum.Voters) == 3 && len(v.Quorum.Online) == 1 &&
			v.Brokers[0].State == "online" && v.Brokers[1].State == "offline" && v.Brokers[2].State == "offline"
	})
	require.Contains(t, left.listed("health=unhealthy&broker=2"), "placed.strict:0[2 3]")

	nodes[1].start(t)
	nodes[2].start(t)
	for i := range 2 {
		r.at[i+1] = admin(t, nodes[i+1])
	}
	for _, a := range r.at {
		says("online0 online0 online0 0/0/0 true", line(a))
	}
}
