package group

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewire/broker/group/assign"
	"tidewire/broker/group/cursor"
	"tidewire/internal/model"
)

func benchWorld(partitions int32) (*Group, Env) {
	v := topics{"orders": {ID: model.TopicID{1}, Name: "orders", Partitions: partitions}}
	g := New("g", DefaultSettings())
	env := Env{Mono: time.Hour, WallMs: 1_700_000_000_000, Topics: v}
	g.Load(env)
	return g, env
}

func benchJoin(tb testing.TB, g *Group, env Env, i int) {
	_, _, err := g.Join(env, JoinRequest{Assignor: assign.Sticky, Member: Member{ID: fmt.Sprintf("m%05d", i), Topics: []string{"orders"}, SessionTimeout: 10 * time.Second, Reset: Earliest}})
	require.NoError(tb, err)
}

// BenchmarkJoins is members joining one after the other, 1 ms apart, until a group has a
// thousand.
func BenchmarkJoins(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		g, env := benchWorld(2000)
		for i := range 1000 {
			env.Mono += time.Millisecond
			benchJoin(b, g, env, i)
		}
		env.Mono += time.Second
		g.Tick(env)
	}
}

// BenchmarkPoll is a poll of a member with 2,000 partitions, with its cursor, to the next
// cursor's text.
func BenchmarkPoll(b *testing.B) {
	g, env := benchWorld(2000)
	benchJoin(b, g, env, 1)
	for p := range 2000 {
		g.Apply(Offset{Topic: "orders", TopicID: model.TopicID{1}, Partition: model.PartitionID(p), Next: model.Offset(1_000_000 + p)})
	}
	var text string
	b.ReportAllocs()
	for b.Loop() {
		var c *cursor.Cursor
		if text != "" {
			var err error
			c, err = cursor.Parse(text)
			require.NoError(b, err)
		}
		_, res, err := g.Poll(env, PollRequest{Member: "m00001", Cursor: c})
		require.NoError(b, err)
		a, err := g.Answer(env, "m00001", 0)
		require.NoError(b, err)
		text = MakeCursor("m00001", a, res, nil).String()
	}
}

// BenchmarkCommit is a commit of ten partitions.
func BenchmarkCommit(b *testing.B) {
	g, env := benchWorld(10)
	benchJoin(b, g, env, 1)
	req := CommitRequest{Member: "m00001"}
	for p := range 10 {
		req.Offsets = append(req.Offsets, CommitOffset{Name: Name{"orders", model.PartitionID(p)}, Next: 5})
	}
	b.ReportAllocs()
	for b.Loop() {
		_, _, err := g.Commit(env, req)
		require.NoError(b, err)
	}
}
