//go:build linux

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// smallDisk mounts a disk in memory and returns its folder. It takes root.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("skipped: only root may mount a disk of 64 MiB")
	}
	dir := filepath.Join(t.TempDir(), "disk")
	require.NoError(t, os.Mkdir(dir, 0o755))
	if err := syscall.Mount("tidewire-test", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("skipped: this machine does not let root mount: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(dir, syscall.MNT_DETACH)) })
	return dir
}

func freeBytes(t *testing.T, dir string) int64 {
	t.Helper()
	var st syscall.Statfs_t
	require.NoError(t, syscall.Statfs(dir, &st))
	return int64(st.Bavail) * st.Bsize
}

// fillForeign makes a file that is none of the node's and takes all the free room at one
// blow: what the node makes free afterwards is the node's.
func fillForeign(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	require.NoError(t, err)
	defer f.Close()
	for range 100 {
		free := freeBytes(t, filepath.Dir(path))
		if err = syscall.Fallocate(int(f.Fd()), 0, 0, free); err == nil {
			return
		}
	}
	t.Fatal("the disk could not be filled: ", err)
}

// fill produces from several clients until each is refused for want of room, and returns
// how many records were acknowledged for each partition. Every other answer fails the test.
func fill(t *testing.T, a *api, topic string, partitions int) []int64 {
	t.Helper()
	acked := make([]atomic.Int64, partitions)
	value := strings.Repeat("x", 100<<10)
	var wg sync.WaitGroup
	for p := range partitions {
		wg.Add(1)
		go func() {
			defer wg.Done()
			body, err := json.Marshal(map[string]any{"records": []map[string]any{{"partition": p, "value": value}, {"partition": p, "value": value}}})
			if err != nil {
				t.Error(err)
				return
			}
			for {
				status, answer, err := a.try("POST", "/v1/topics/"+topic+"/records?acks=all", body)
				if err == nil && status == 200 {
					acked[p].Add(2)
					continue
				}
				if err != nil || status != 503 || !strings.Contains(string(answer), "storage-full") {
					t.Errorf("status %d, %v: %s", status, err, answer)
				}
				return
			}
		}()
	}
	wg.Wait()
	out := make([]int64, partitions)
	for p := range out {
		out[p] = acked[p].Load()
	}
	return out
}

func highWatermark(t *testing.T, a *api, topic string, p int) int64 {
	t.Helper()
	var page struct {
		HighWatermark int64 `json:"high_watermark"`
		Records       []any `json:"records"`
	}
	a.must(t, "GET", fmt.Sprintf("/v1/topics/%s/partitions/%d/records?offset=earliest&max_records=1", topic, p), nil, &page)
	require.Len(t, page.Records, 1)
	return page.HighWatermark
}

// refusedForRoom asks for what a full disk has no room for.
func refusedForRoom(t *testing.T, a *api, method, path string, body any) {
	t.Helper()
	status, answer, err := a.try(method, path, body)
	require.NoError(t, err)
	require.Equal(t, 503, status, "%s", answer)
	require.Contains(t, string(answer), "storage-full")
	require.Contains(t, string(answer), "not-applied")
}

// New partitions take room too. They are refused before they have taken what deletions need,
// those that come at once and were not refused wait without files, and all of that is over
// when something was deleted: with no restart, and with no delay either.
func TestPartitionsLeaveTheRoomToDeleteThem(t *testing.T) {
	disk := smallDisk(t, "64m")
	n := newNode(t, "--disk-reserve", "8MiB")
	n.dir = filepath.Join(disk, "data")
	n.start(t)
	a := admin(t, n)
	a.must(t, "POST", "/v1/topics", map[string]any{"name": "data"}, nil)
	a.must(t, "POST", "/v1/topics/data/records", map[string]any{"records": []map[string]any{{"value": strings.Repeat("x", 100<<10)}}}, nil)
	create := func(name string, partitions int) int {
		status, answer, err := a.try("POST", "/v1/topics", map[string]any{"name": name, "partitions": partitions})
		if err != nil || status != 201 && !(status == 503 && strings.Contains(string(answer), "storage-full")) {
			t.Errorf("status %d, %v: %s", status, err, answer)
		}
		return status
	}
	var many []string
	var mu sync.Mutex
	for round := range 40 { // several at once: each alone would have room
		var wg sync.WaitGroup
		refused := false
		for k := range 4 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				name := fmt.Sprintf("many-%d-%d", round, k)
				status := create(name, 300)
				mu.Lock()
				defer mu.Unlock()
				if status == 201 {
					many = append(many, name)
				} else {
					refused = true
				}
			}()
		}
		if wg.Wait(); refused {
			break
		}
	}
	require.NotEmpty(t, many)
	require.Equal(t, 503, create("refused", 3000))
	require.Greater(t, freeBytes(t, disk), int64(2<<20))
	fill(t, a, "data", 1)

	n.kill()
	n.start(t)
	a = newAPI(t, n)
	a = admin(t, n)
	require.EqualValues(t, 1, highWatermark(t, a, "data", 0)%2, "the first record, and others two at a time")
	for _, name := range many[1:] {
		a.must(t, "DELETE", "/v1/topics/"+name, nil, nil)
	}
	a.must(t, "POST", "/v1/topics/data/delete-records", map[string]any{"partitions": []map[string]any{{"partition": 0, "before_offset": "high_watermark"}}}, nil)
	deadline := time.Now().Add(40 * time.Second) // the delay of a deletion is a minute
	for topic := range strings.SplitSeq("data "+many[0], " ") {
		for {
			status, answer, err := a.try("POST", "/v1/topics/"+topic+"/records", map[string]any{"records": []map[string]any{{"partition": 0, "value": "after"}}})
			require.NoError(t, err)
			if status == 200 {
				break
			}
			require.True(t, time.Now().Before(deadline), "%s takes no records although there is room: %s", topic, answer)
			time.Sleep(50 * time.Millisecond)
		}
	}
	n.stop(t)
}

// A disk that records, and then others, have filled: records are refused early, all else
// works, and once there is room the node takes records again without a restart.
func TestAFullDiskRefusesRecordsAndNothingElse(t *testing.T) {
	for _, x := range []struct {
		size  string
		flags []string
	}{{"64m", []string{"--disk-reserve", "8MiB"}}, {"512m", nil}} {
		t.Run(x.size, func(t *testing.T) {
			disk := smallDisk(t, x.size)
			n := newNode(t, x.flags...)
			n.dir = filepath.Join(disk, "data")
			n.start(t)
			a := admin(t, n)
			const partitions = 4
			config := map[string]any{"segment.bytes": 1 << 20, "file.delete.delay.ms": 0}
			for _, topic := range []string{"full", "other"} {
				a.must(t, "POST", "/v1/topics", map[string]any{"name": topic, "partitions": partitions, "config": config}, nil)
			}
			acked := fill(t, a, "full", partitions)
			require.Positive(t, freeBytes(t, disk), "refused before the disk was full")
			require.NotContains(t, n.proc.err.String(), "append refused: disk full", "refused early, not by a failed write")

			foreign := filepath.Join(disk, "foreign")
			fillForeign(t, foreign)
			check := func() {
				t.Helper()
				for p := range partitions {
					require.Equal(t, acked[p], highWatermark(t, a, "full", p), "acknowledged and readable")
				}
				a = admin(t, n) // a session is metadata too
				refusedForRoom(t, a, "POST", "/v1/topics", map[string]any{"name": "more"})
				refusedForRoom(t, a, "PATCH", "/v1/topics/other", map[string]any{"partitions": partitions + 1})
				a.must(t, "PATCH", "/v1/topics/full/config", map[string]any{"set": map[string]any{"retention.ms": -1}}, nil)
				refusedForRoom(t, a, "POST", "/v1/topics/full/records", map[string]any{"records": []map[string]any{{"value": "v"}}})
			}
			check()
			info, err := os.Stat(filepath.Join(n.dir, "ballast"))
			require.NoError(t, err)
			require.Zero(t, info.Size(), "the ballast was given up")
			n.kill()
			n.start(t) // on the full disk
			a = newAPI(t, n)
			a = admin(t, n)
			check()

			a.must(t, "DELETE", "/v1/topics/other", nil, nil)
			var deletions []map[string]any
			for p := range partitions {
				deletions = append(deletions, map[string]any{"partition": p, "before_offset": "high_watermark"})
			}
			a.must(t, "POST", "/v1/topics/full/delete-records", map[string]any{"partitions": deletions}, nil)
			require.NoError(t, os.Remove(foreign))
			body := map[string]any{"records": []map[string]any{{"partition": 0, "value": "after"}}}
			deadline := time.Now().Add(20 * time.Second)
			for {
				status, answer, err := a.try("POST", "/v1/topics/full/records", body)
				require.NoError(t, err)
				if status == 200 {
					break
				}
				require.True(t, time.Now().Before(deadline), "no records taken although there is room: %s", answer)
				time.Sleep(50 * time.Millisecond)
			}
			for {
				if info, err = os.Stat(filepath.Join(n.dir, "ballast")); err == nil && info.Size() > 0 {
					break
				}
				require.True(t, time.Now().Before(deadline), "the ballast came not back")
				time.Sleep(50 * time.Millisecond)
			}
			n.stop(t)
		})
	}
}

// fillWholly takes all room of a disk, the ballast's too, as a program does that never stops writing.
func fillWholly(t *testing.T, n *node, disk string) (remove func()) {
	t.Helper()
	var files []string
	eventually(t, startLimit, "the ballast is given up and the room it took is gone", func() bool {
		info, err := os.Stat(filepath.Join(n.dir, "ballast"))
		if freeBytes(t, disk) > 0 {
			files = append(files, filepath.Join(disk, fmt.Sprint("foreign-", len(files))))
			fillForeign(t, files[len(files)-1])
			return false
		}
		return err == nil && info.Size() == 0
	})
	return func() {
		t.Helper()
		for _, f := range files {
			require.NoError(t, os.Remove(f))
		}
	}
}

// A node of three on a disk that others have filled to the last byte goes on with what it has. What
// the cluster decides meanwhile is in force there as soon as there is room, without a restart; and
// a start on that disk waits for room, and says so.
func TestANodeWithoutAnyRoomWaitsForIt(t *testing.T) {
	disk := smallDisk(t, "64m")
	nodes := threeNodes(t, func(nodes []*node) {
		nodes[2].dir = filepath.Join(disk, "data")
		nodes[2].args = append(nodes[2].args, "--disk-reserve", "8MiB")
	})
	first, n := admin(t, nodes[0]), nodes[2]
	third := admin(t, n)
	third.createTopic(t, "flights", 3, nil)
	third.must(t, "POST", "/v1/topics/flights/records?acks=all", map[string]any{"records": []any{map[string]any{"value": "x", "partition": 0}}}, nil)

	made := 0
	change := func(rounds int) {
		t.Helper()
		for range rounds {
			made++
			name := fmt.Sprint("made-", made)
			eventually(t, startLimit, "the other nodes make changes", func() bool {
				status, _, err := first.try("POST", "/v1/acls", map[string]any{
					"principal": "User:" + name + strings.Repeat("-", 200), "resource_type": "topic", "resource_name": name, "pattern": "literal",
					"operation": "describe", "permission": "allow", "host": "*",
				})
				return err == nil && status == 201
			})
		}
	}
	caughtUp := func(a *api) {
		t.Helper()
		eventually(t, startLimit, "all changes are in force", func() bool {
			var list struct {
				Total int `json:"total"`
			}
			status, answer, err := a.try("GET", "/v1/acls?limit=1", nil)
			return err == nil && status == 200 && json.Unmarshal(answer, &list) == nil && list.Total == made
		})
	}

	remove := fillWholly(t, n, disk)
	change(200)
	eventually(t, startLimit, "the node says that changes wait", func() bool {
		return strings.Contains(n.proc.err.String(), "changes of metadata wait for room")
	})
	var page struct {
		Records []any `json:"records"`
	}
	third.must(t, "GET", "/v1/topics/flights/partitions/0/records?offset=0", nil, &page)
	require.Len(t, page.Records, 1, "what is there is read")
	require.True(t, n.proc.running())
	remove()
	caughtUp(third)
	require.Contains(t, n.proc.err.String(), "changes of metadata are in force on this node")

	remove = fillWholly(t, n, disk)
	n.kill()
	eventually(t, startLimit, "a topic that is made meanwhile has as many replicas as ever", func() bool {
		var topic struct {
			ReplicationFactor int `json:"replication_factor"`
		}
		status, answer, err := first.try("POST", "/v1/topics", map[string]any{"name": fmt.Sprint("meanwhile-", time.Now().UnixNano())})
		if err != nil || status != 201 {
			return false
		}
		require.NoError(t, json.Unmarshal(answer, &topic))
		require.Equal(t, 3, topic.ReplicationFactor)
		var v clusterView
		first.must(t, "GET", "/v1/cluster", nil, &v)
		return v.Brokers[2].State == "offline"
	})
	change(20)
	n.spawn(t)
	eventually(t, startLimit, "the start says what it waits for", func() bool {
		require.True(t, n.proc.running(), n.proc.err.String())
		return strings.Contains(n.proc.err.String(), "changes of metadata wait for room")
	})
	remove()
	n.awaitReady(t)
	caughtUp(admin(t, n))
	eventually(t, startLimit, "it is in sync", func() bool {
		var v struct {
			UnderReplicated int `json:"under_replicated_partitions"`
		}
		first.must(t, "GET", "/v1/cluster", nil, &v)
		return v.UnderReplicated == 0
	})
	n.stop(t)
}
