package ws

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewire/broker"
	"tidewire/broker/coordinator"
	"tidewire/broker/group"
	"tidewire/cluster/metadata"
	"tidewire/internal/lifecycle"
	"tidewire/internal/model"
)

// seat is a socket that is a member, as its client keeps account of it.
type seat struct {
	*client
	id   string
	next map[Partition]int64 // of what it has
	got  []recordOf
}

// sit subscribes; fields are further ones of the frame.
func (n *node) sit(fields string) *seat {
	n.t.Helper()
	s := &seat{client: n.connect(dialOptions{}), next: map[Partition]int64{}}
	sub, assigned := s.subscribe(fields)
	s.id = sub.All["member_id"].(string)
	s.note(assigned)
	return s
}

func (s *seat) note(f frame) {
	for _, p := range f.Partitions {
		switch name := (Partition{p.Topic, p.Partition}); f.Op {
		case "assigned":
			s.next[name] = p.NextOffset
		case "revoked":
			delete(s.next, name)
		}
	}
	for _, r := range f.Records {
		s.got = append(s.got, r)
		s.next[Partition{r.Topic, r.Partition}] = r.Offset + 1
	}
}

// until follows frames until it has what holds tells.
func (s *seat) until(what string, holds func() bool) {
	s.t.Helper()
	for n := 0; !holds(); n++ {
		require.Less(s.t, n, 1000, what)
		s.note(s.frame())
	}
}

// has tells the partitions, in order.
func (s *seat) has() string {
	var out []string
	for p := range s.next {
		out = append(out, fmt.Sprintf("%s%d", p.Topic, p.Partition))
	}
	sort.Strings(out)
	return strings.Join(out, " ")
}

// values are those of the records so far, and forgets them.
func (s *seat) values() []string {
	var out []string
	for _, r := range s.got {
		out = append(out, fmt.Sprintf("%d:%v", r.Partition, r.Value))
	}
	sort.Strings(out)
	s.got = nil
	return out
}

// offsets are what the group has committed, by partition of one topic.
func (n *node) offsets(groupID string) map[int32]int64 {
	n.t.Helper()
	list, err := n.groups.Offsets(context.Background(), groupID, nil)
	require.NoError(n.t, err)
	out := map[int32]int64{}
	for _, o := range list {
		out[int32(o.Partition)] = int64(o.Next)
	}
	return out
}

func (n *node) members(groupID string) []string {
	n.t.Helper()
	d, err := n.groups.Describe(context.Background(), groupID, nil)
	if model.HasCode(err, model.UnknownGroup) {
		return nil
	}
	require.NoError(n.t, err)
	var out []string
	for _, m := range d.Members {
		out = append(out, m.ID)
	}
	return out
}

// allowGroup lets a user read a group.
func (n *node) allowGroup(user, name string) metadata.ACLFields {
	n.t.Helper()
	f := metadata.ACLFields{
		Principal: "User:" + user, ResourceType: metadata.ResourceGroup, ResourceName: name, Pattern: metadata.PatternLiteral,
		Operation: metadata.OpRead, Permission: metadata.Allow, Host: "*",
	}
	_, _, err := n.auth.Service.CreateACL(context.Background(), f)
	require.NoError(n.t, err)
	return f
}

// drop ends the connection without a close frame.
func (c *client) drop() { require.NoError(c.t, c.ws.NetConn().Close()) }

// leave closes in order and waits for the answer.
func (c *client) leave() {
	c.t.Helper()
	require.NoError(c.t, c.ws.WriteControl(8, []byte{0x03, 0xe8}, time.Now().Add(time.Second)))
	for range c.got {
	}
}

// "with one a member": subscribed has the effective values, assigned comes (maybe empty).
func TestAMemberIsToldItsEffectiveValuesAndItsPartitions(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.topic("t", 2)
		n.produce("t", 1, "a", "b")
		c := n.connect(dialOptions{})
		c.send(`{"op":"subscribe","id":7,"topics":["u","t"],"group":"g"}`)
		f := c.want("subscribed")
		id := f.All["member_id"].(string)
		require.NotEmpty(t, id)
		delete(f.All, "member_id")
		b, err := json.Marshal(f.All)
		require.NoError(t, err)
		require.JSONEq(t, `{"op":"subscribed","id":7,"group":"g","topics":["t","u"],"from":"latest","credit":null,"instance_id":null,"client_id":null,
			"assignor":"range","session_timeout_ms":10000,"auto_offset_reset":"latest","auto_commit":false,"auto_commit_interval_ms":5000,
			"max_records":500,"encoding":"auto","isolation":"read_committed","q":null,"q_in":[],"preview_bytes":null}`, string(b))
		require.Equal(t, []Position{{"t", 0, 0}, {"t", 1, 2}}, c.want("assigned").Partitions)
		require.Equal(t, map[int32]int64{0: 0, 1: 2}, n.offsets("g"), "a first position is stored")

		// "Unknown topics are allowed and picked up when created", from their log start.
		n.topic("u", 1)
		n.produce("u", 0, "first")
		s := &seat{client: c, next: map[Partition]int64{}}
		s.until("the new topic", func() bool { return len(s.got) == 1 })
		require.Equal(t, []string{"0:first"}, s.values())
	})
}

func TestAMemberMaySubscribeByTheQuery(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.topic("t", 1)
		n.produce("t", 0, "a", "b", "c")
		for i, name := range []string{"a/b", "x#y", "p@q", "t:n", "ü", "%2F", "a b+c", strings.Repeat("g", 255)} {
			q := url.Values{
				"topics": {"t"}, "group": {name}, "from": {"earliest"}, "credit": {"2"}, "instance_id": {"i"}, "client_id": {"me"}, "assignor": {"sticky"},
				"session_timeout_ms": {"30000"}, "auto_commit": {"true"}, "auto_commit_interval_ms": {"100"}, "take_over": {"true"},
			}
			c := n.connect(dialOptions{query: q.Encode()})
			f := c.want("subscribed")
			require.Equal(t, name, f.All["group"], i)
			require.Equal(t, "sticky", f.All["assignor"])
			require.Equal(t, "i", f.All["instance_id"])
			require.Equal(t, "me", f.All["client_id"])
			require.Equal(t, "earliest", f.All["auto_offset_reset"])
			require.Equal(t, json.Number("30000"), f.All["session_timeout_ms"])
			require.Equal(t, []Position{{"t", 0, 0}}, c.want("assigned").Partitions)
			require.Equal(t, []string{"0:a", "0:b"}, c.records(2), "no more than granted")
			advance(time.Second)
			require.Equal(t, map[int32]int64{0: 2}, n.offsets(name), "auto_commit commits what was written to the socket")
			c.send(`{"op":"subscribe","id":1,"topics":["t"],"group":"g"}`)
			c.refused("1", model.Conflict)
			d, err := n.groups.Describe(context.Background(), name, nil)
			require.NoError(t, err)
			require.Equal(t, "127.0.0.1", d.Members[0].Host)
			require.Equal(t, root, d.Members[0].User)
			c.leave()
			require.Empty(t, n.members(name), "a clean close leaves the group")
		}
	})
}

// "`commit` gives at least once", "a clean close leaves the group": what was not committed
// comes again.
func TestWhatWasNotCommittedComesAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.topic("t", 1)
		n.produce("t", 0, "a", "b", "c")
		s := n.sit(`"topics":["t"],"group":"g","from":"earliest"`)
		require.Equal(t, []string{"0:a", "0:b", "0:c"}, s.records(3))
		s.send(`{"op":"commit","id":"c1","offsets":[{"topic":"t","partition":0,"next_offset":2,"metadata":"so far"}]}`)
		require.JSONEq(t, `{"op":"committed","id":"c1","offsets":[{"topic":"t","partition":0,"next_offset":2,"metadata":"so far"}]}`, s.client.next())
		s.send(`{"op":"commit","offsets":[{"topic":"t","partition":0,"next_offset":1}]}`)
		require.JSONEq(t, `{"op":"committed","offsets":[{"topic":"t","partition":0,"next_offset":1,"metadata":""}]}`, s.client.next(), "without an id too, and it may go back")
		s.leave()
		require.Empty(t, n.members("g"))
		again := n.sit(`"topics":["t"],"group":"g"`)
		require.Equal(t, []string{"0:b", "0:c"}, again.records(2))
	})
}

// "commit errors with id": all or nothing, and the socket stays open.
func TestACommitThatIsRefusedChangesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.topic("t", 2)
		n.topic("other", 1)
		n.topic("secret", 1)
		n.allow(alice, "t")
		n.allowGroup(alice, "g")
		c := n.connect(dialOptions{user: alice})
		c.subscribe(`"topics":["t"],"group":"g","from":"earliest"`)
		at := func(topic string, p int, next string) string {
			return fmt.Sprintf(`{"topic":%q,"partition":%d,"next_offset":%s}`, topic, p, next)
		}
		for offsets, code := range map[string]model.Code{
			at("t", 0, "1") + "," + at("t", 0, "2"):                                                             model.InvalidArgument,
			at("t", 0, "1") + "," + at("t", 2, "1"):                                                             model.UnknownPartition,
			at("t", 0, "1") + "," + at("other", 0, "1"):                                                         model.Forbidden,
			at("t", 0, "1") + "," + at("secret", 0, "1"):                                                        model.Forbidden,
			at("t", 0, "1") + "," + at("none", 0, "1"):                                                          model.Forbidden,
			fmt.Sprintf(`{"topic":"t","partition":0,"next_offset":1,"metadata":%q}`, strings.Repeat("m", 4097)): model.InvalidArgument,
			"": model.InvalidArgument,
		} {
			c.send(`{"op":"commit","id":1,"offsets":[%s]}`, offsets)
			c.refused("1", code)
		}
		require.Equal(t, map[int32]int64{0: 0, 1: 0}, n.offsets("g"))

		mine := n.sit(`"topics":["t"],"group":"h"`)
		mine.send(`{"op":"commit","id":2,"offsets":[%s,%s]}`, at("t", 0, "1"), at("other", 0, "0"))
		f := mine.want("error")
		require.Equal(t, "not-owner", f.Problem.Code)
		require.Equal(t, []any{map[string]any{"topic": "other", "partition": json.Number("0")}}, f.All["problem"].(map[string]any)["partitions"])
		mine.send(`{"op":"commit","offsets":[%s]}`, at("other", 0, "0"))
		mine.fails(model.NotOwner, closeBadFrame)
	})
}

// Offsets at the edges: beyond the end, with as much metadata as there may be, of a topic that
// was deleted and made again.
func TestCommitsAtTheEdges(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.topic("t", 1)
		s := n.sit(`"topics":["t"],"group":"g","from":"earliest"`)
		commit := func(next int64, metadata string) {
			s.send(`{"op":"commit","id":1,"offsets":[{"topic":"t","partition":0,"next_offset":%d,"metadata":%q}]}`, next, metadata)
		}
		commit(1<<53-1, strings.Repeat("m", 4096))
		s.want("committed")
		require.Equal(t, map[int32]int64{0: 1<<53 - 1}, n.offsets("g"))
		commit(1<<53, "")
		s.refused("1", model.InvalidArgument)
		require.Equal(t, map[int32]int64{0: 1<<53 - 1}, n.offsets("g"))
		commit(0, "") // it may go back
		s.want("committed")
		require.Equal(t, map[int32]int64{0: 0}, n.offsets("g"))
		s.send(`{"op":"commit","id":1,"offsets":[{"topic":"t","partition":0,"next_offset":-1}]}`)
		s.refused("1", model.InvalidArgument)
		s.send(`{"op":"commit","id":1,"offsets":[{"topic":"gone","partition":0,"next_offset":0}]}`)
		s.refused("1", model.UnknownTopic)
		require.Equal(t, map[int32]int64{0: 0}, n.offsets("g"))

		commit(5, "")
		s.want("committed")
		require.NoError(t, n.broker.DeleteTopic(context.Background(), n.caller, "t", ""))
		s.until("a revocation", func() bool { return s.has() == "" })
		commit(0, "")
		s.refused("1", model.UnknownTopic)
		n.topic("t", 1)
		s.until("the new topic", func() bool { return s.has() == "t0" })
		require.NotEqual(t, map[int32]int64{0: 5}, n.offsets("g"), "what was committed was of the other topic")
		commit(7, "")
		s.want("committed")
		require.Equal(t, map[int32]int64{0: 7}, n.offsets("g"))
	})
}

// A partition that moves: revoked follows its last record, commits are accepted until
// released, and only then does the next owner get it, from the committed offset.
func TestARevokedPartitionMovesWhenItIsReleased(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.topic("t", 2)
		n.produce("t", 0, "a0", "a1")
		n.produce("t", 1, "b0", "b1")
		one := n.sit(`"topics":["t"],"group":"g","from":"earliest"`)
		require.Equal(t, "t0 t1", one.has())
		one.until("all records", func() bool { return len(one.got) == 4 })

		two := n.sit(`"topics":["t"],"group":"g","from":"earliest"`)
		require.Empty(t, two.has(), "assigned may be empty")
		one.until("a revocation", func() bool { return len(one.next) == 1 })
		moved := int32(1)
		if one.has() == "t1" {
			moved = 0
		}
		n.produce("t", moved, "late")
		one.silent(time.Second)
		two.silent(time.Second)
		one.send(`{"op":"commit","id":1,"offsets":[{"topic":"t","partition":%d,"next_offset":1}]}`, moved)
		require.Equal(t, "committed", one.frame().Op)
		one.send(`{"op":"released","id":2,"partitions":[{"topic":"t","partition":%d}]}`, moved)
		require.JSONEq(t, fmt.Sprintf(`{"op":"released","id":2,"partitions":[{"topic":"t","partition":%d}]}`, moved), one.client.next())
		two.until("its records", func() bool { return len(two.got) == 2 })
		require.Equal(t, int64(1), two.got[0].Offset, "from the committed offset")
		require.Equal(t, int64(2), two.got[1].Offset)

		one.send(`{"op":"commit","id":3,"offsets":[{"topic":"t","partition":%d,"next_offset":2}]}`, moved)
		one.refused("3", model.NotOwner)
		for _, op := range []string{"pause", "resume"} {
			one.send(`{"op":%q,"id":4,"partitions":[{"topic":"t","partition":%d}]}`, op, moved)
			one.refused("4", model.NotOwner)
		}
		one.send(`{"op":"seek","id":5,"partitions":[{"topic":"t","partition":%d,"next_offset":0}]}`, moved)
		one.refused("5", model.NotOwner)
	})
}

// "or 5 s": who says nothing loses the partition then.
func TestARevokedPartitionMovesAfterFiveSecondsAnyhow(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.topic("t", 2)
		one := n.sit(`"topics":["t"],"group":"g"`)
		two := n.sit(`"topics":["t"],"group":"g"`)
		one.until("a revocation", func() bool { return len(one.next) == 1 })
		began := time.Now()
		two.until("a partition", func() bool { return len(two.next) == 1 })
		require.InDelta(t, 5, time.Since(began).Seconds(), 0.5)
	})
}

// With auto_commit nothing is left to be done of what was written: it moves at once.
func TestAutoCommitReleasesAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.topic("t", 2)
		n.produce("t", 0, "a")
		n.produce("t", 1, "b")
		one := n.sit(`"topics":["t"],"group":"g","from":"earliest","auto_commit":true,"auto_commit_interval_ms":3600000`)
		one.until("the records", func() bool { return len(one.got) == 2 })
		require.Equal(t, map[int32]int64{0: 0, 1: 0}, n.offsets("g"))
		began := time.Now()
		two := n.sit(`"topics":["t"],"group":"g"`)
		two.until("a partition", func() bool { return len(two.next) == 1 })
		require.Less(t, time.Since(began), time.Second)
		for p, next := range two.next {
			require.Equal(t, int64(1), next, p)
		}
		one.until("a revocation", func() bool { return len(one.next) == 1 })
		one.leave()
		require.Equal(t, map[int32]int64{0: 1, 1: 1}, n.offsets("g"), "a clean close commits what was written")
	})
}

// "A cut one waits for the session timeout, and a new socket may resume with member_id."
func TestACutMemberWaitsForItsSessionAndMayGoOn(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.topic("t", 1)
		n.produce("t", 0, "a", "b")
		one := n.sit(`"topics":["t"],"group":"g","from":"earliest","session_timeout_ms":6000,"client_id":"me"`)
		require.Equal(t, []string{"0:a", "0:b"}, one.records(2))
		one.send(`{"op":"commit","offsets":[{"topic":"t","partition":0,"next_offset":1}]}`)
		one.want("committed")
		one.drop()
		advance(3 * time.Second)
		require.Equal(t, []string{one.id}, n.members("g"))

		two := n.sit(`"group":"g","member_id":"` + one.id + `"`)
		require.Equal(t, one.id, two.id)
		require.Equal(t, []string{"0:b"}, two.records(1), "from the committed offset")
		two.drop()
		advance(7 * time.Second)
		require.Empty(t, n.members("g"))

		c := n.connect(dialOptions{})
		c.send(`{"op":"subscribe","id":1,"topics":["t"],"group":"g","member_id":%q}`, one.id)
		c.refused("1", model.MemberExpired)
		c.send(`{"op":"subscribe","id":2,"topics":["t"],"group":"g","member_id":"m-never"}`)
		c.refused("2", model.UnknownMember)
		c.send(`{"op":"subscribe","topics":["t"],"group":"g","member_id":%q}`, one.id)
		c.fails(model.MemberExpired, closeFenced)
		_, resp, err := n.handshake(dialOptions{query: "group=g&member_id=m-never"})
		require.Error(t, err)
		require.Equal(t, http.StatusNotFound, resp.StatusCode)
	})
}

func TestAResumedMemberKeepsWhatItJoinedWith(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.topic("t", 1)
		one := n.sit(`"topics":["t"],"group":"g","from":1000,"session_timeout_ms":6000,"instance_id":"i"`)
		c := n.connect(dialOptions{})
		for field, value := range map[string]string{
			"topics": `["u"]`, "session_timeout_ms": "7000", "from": `"earliest"`, "auto_offset_reset": `"none"`, "instance_id": `"j"`, "assignor": `"sticky"`, "client_id": `"x"`,
		} {
			c.send(`{"op":"subscribe","id":1,"group":"g","member_id":%q,%q:%s}`, one.id, field, value)
			p := c.refused("1", model.InvalidArgument)
			want := "/" + field
			if field == "from" {
				want = "/auto_offset_reset"
			}
			require.Equal(t, want, p.Errors[0].Pointer)
		}
		require.Equal(t, []string{one.id}, n.members("g"), "what is refused ends nothing")
		c.send(`{"op":"subscribe","id":2,"group":"g","member_id":%q,"from":1000,"topics":["t"]}`, one.id)
		f := c.want("subscribed")
		require.Equal(t, "1000", f.All["auto_offset_reset"])
		require.Equal(t, "i", f.All["instance_id"])
		one.fails(model.Fenced, closeFenced)
	})
}

// 409 fenced: the instance was taken over.
func TestAnInstanceIsTakenOver(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.topic("t", 1)
		one := n.sit(`"topics":["t"],"group":"g","instance_id":"i"`)
		c := n.connect(dialOptions{})
		c.send(`{"op":"subscribe","id":1,"topics":["t"],"group":"g","instance_id":"i"}`)
		c.refused("1", model.Conflict)
		c.send(`{"op":"subscribe","id":1,"topics":["t"],"group":"g","assignor":"sticky"}`)
		c.refused("1", model.Conflict)
		require.Equal(t, []string{one.id}, n.members("g"))
		two := n.sit(`"topics":["t"],"group":"g","instance_id":"i","take_over":true`)
		one.fails(model.Fenced, closeFenced)
		require.Equal(t, "t0", two.has())
		require.Equal(t, []string{two.id}, n.members("g"))
	})
}

// A client that shows no sign of life does not keep its partitions, though its connection stands.
func TestASilentClientLosesItsSession(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.topic("t", 1)
		mute := n.connect(dialOptions{lazy: true})
		mute.ws.SetPingHandler(func(string) error { return nil })
		readers := lifecycle.New(context.Background())
		readers.Go("client", func(context.Context) { mute.pump() })
		t.Cleanup(func() { require.NoError(t, readers.Stop(5*time.Second)) })
		mute.send(`{"op":"subscribe","topics":["t"],"group":"g","session_timeout_ms":3000,"instance_id":"a"}`)
		mute.want("subscribed")
		mute.want("assigned")
		idle := n.sit(`"topics":["t"],"group":"g","session_timeout_ms":3000,"instance_id":"b"`)
		advance(3 * time.Second)
		require.Len(t, n.members("g"), 2)
		require.Empty(t, idle.has())
		idle.until("the partition", func() bool { return len(idle.next) == 1 })
		mute.fails(model.MemberExpired, closeFenced)
		advance(time.Hour / 10)
		require.Equal(t, []string{idle.id}, n.members("g"), "an idle member lives on")
	})
}

func TestCreditPauseSeekAndSearchWorkForMembers(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.topic("t", 1)
		n.produce("t", 0, "apple", "pear", "apricot", "plum")
		s := n.sit(`"topics":["t"],"group":"g","from":"earliest","credit":1,"q":"ap","q_in":["value"],"preview_bytes":3,"auto_commit":true`)
		require.Equal(t, []string{"0:app"}, s.records(1))
		s.silent(time.Second)
		s.send(`{"op":"pause","id":1,"partitions":[{"topic":"t","partition":0}]}`)
		s.want("paused")
		s.send(`{"op":"credit","id":2,"records":10}`)
		s.want("credited")
		s.silent(time.Second)
		s.send(`{"op":"resume","id":3,"partitions":[{"topic":"t","partition":0}]}`)
		s.want("resumed")
		require.Equal(t, []string{"0:apr"}, s.records(1))
		advance(6 * time.Second)
		require.Equal(t, map[int32]int64{0: 4}, n.offsets("g"), "what was passed over is read too")
		s.send(`{"op":"seek","id":4,"partitions":[{"topic":"t","partition":0,"next_offset":9}]}`)
		s.refused("4", model.OffsetOutOfRange)
		s.send(`{"op":"seek","id":5,"partitions":[{"topic":"t","partition":0,"next_offset":2}]}`)
		s.want("sought")
		require.Equal(t, []string{"0:apr"}, s.records(1))
		advance(6 * time.Second)
		require.Equal(t, map[int32]int64{0: 4}, n.offsets("g"), "auto-commit never goes back")
		s.send(`{"op":"unsubscribe","id":6}`)
		s.want("unsubscribed")
		require.Empty(t, n.members("g"))
		s.send(`{"op":"commit","id":7,"offsets":[{"topic":"t","partition":0,"next_offset":2}]}`)
		s.refused("7", model.Conflict)
		s.subscribe(`"topics":["t"]`)
		for _, op := range []string{`"commit","offsets":[{"topic":"t","partition":0,"next_offset":2}]`, `"released","partitions":[]`} {
			s.send(`{"op":%s,"id":8}`, op)
			s.refused("8", model.Conflict)
		}
	})
}

// "`none` with nothing committed → 416", and nobody is left in the group.
func TestWithNoneTheGroupNeedsOffsets(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.topic("t", 1)
		n.produce("t", 0, "a", "b")
		c := n.connect(dialOptions{})
		for _, policy := range []string{`"auto_offset_reset":"none"`, `"from":"none"`} {
			c.send(`{"op":"subscribe","id":1,"topics":["t"],"group":"g",%s}`, policy)
			c.refused("1", model.OffsetOutOfRange)
			require.Empty(t, n.members("g"))
		}
		_, err := n.groups.PutOffsets(context.Background(), "g", []group.CommitOffset{{Name: group.Name{Topic: "t"}, Next: 1, Epoch: model.NoEpoch}})
		require.NoError(t, err)
		s := n.sit(`"topics":["t"],"group":"g","auto_offset_reset":"none"`)
		require.Equal(t, []string{"0:b"}, s.records(1))
	})
}

// Where retention or a deletion overtakes a member it goes on as auto_offset_reset says, and
// is told from where.
func TestAPositionOutOfRangeIsSetByThePolicy(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.topic("t", 1)
		n.produce("t", 0, "a", "b", "c")
		s := n.sit(`"topics":["t"],"group":"g","from":"earliest","credit":1`)
		require.Equal(t, []string{"0:a"}, s.records(1))
		_, err := n.broker.DeleteRecords(t.Context(), n.caller, "t", []broker.RecordDeletion{{Partition: 0, Before: 2}}, false)
		require.NoError(t, err)
		s.send(`{"op":"credit","records":5}`)
		require.Equal(t, []Position{{"t", 0, 2}}, s.want("assigned").Partitions)
		require.Equal(t, []string{"0:c"}, s.records(1))
	})
}

func TestTheTopicsOfAMemberComeAndGo(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.topic("t", 1)
		n.topic("u", 1)
		s := n.sit(`"topics":["t","u"],"group":"g","from":"earliest"`)
		require.Equal(t, "t0 u0", s.has())
		require.NoError(t, n.broker.DeleteTopic(context.Background(), n.caller, "u", ""))
		s.until("a revocation", func() bool { return s.has() == "t0" })
		n.topic("u", 2)
		s.until("the new topic", func() bool { return s.has() == "t0 u0 u1" })
		n.produce("u", 1, "x")
		require.Equal(t, []string{"1:x"}, s.records(1))
	})
}

// Streams end within a second when the right goes, with 4403, and the member leaves.
func TestAMemberWhoseRightGoesEnds(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.topic("t", 1)
		ofTopic := n.allow(alice, "t")
		ofGroup := n.allowGroup(alice, "g")
		for i, rule := range []metadata.ACLFields{ofTopic, ofGroup} {
			c := n.connect(dialOptions{user: alice})
			c.subscribe(`"topics":["t"],"group":"g"`)
			began := time.Now()
			_, err := n.auth.Service.DeleteACLs(t.Context(), rule)
			require.NoError(t, err)
			c.fails(model.Forbidden, closeNotAllowed)
			require.Less(t, time.Since(began), time.Second, i)
			require.Empty(t, n.members("g"))
			c = n.connect(dialOptions{user: alice})
			c.send(`{"op":"subscribe","id":1,"topics":["t"],"group":"g"}`)
			c.refused("1", model.Forbidden)
			_, _, err = n.auth.Service.CreateACL(context.Background(), rule)
			require.NoError(t, err)
		}
	})
}

func TestAMemberOutlivesTheNodesStop(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.topic("t", 1)
		n.produce("t", 0, "a")
		s := n.sit(`"topics":["t"],"group":"g","from":"earliest","auto_commit":true,"auto_commit_interval_ms":3600000`)
		require.Equal(t, []string{"0:a"}, s.records(1))
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		require.NoError(t, n.handler.Shutdown(ctx))
		require.Equal(t, "node-stopping", s.want("end").Reason)
		s.closed(closeGoingAway)
		require.Equal(t, []string{s.id}, n.members("g"), "it goes on with member_id elsewhere")
		require.Equal(t, map[int32]int64{0: 1}, n.offsets("g"))
	})
}

// The first socket's poll over HTTP, as another call of the member, ends the socket.
func TestAPollTakesTheMemberFromTheSocket(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.topic("t", 1)
		s := n.sit(`"topics":["t"],"group":"g"`)
		_, err := n.groups.Poll(context.Background(), &coordinator.PollRequest{Group: "g", Member: s.id, Caller: n.caller, MaxRecords: 1, MaxBytes: 1, MinBytes: 1}, nil)
		require.NoError(t, err)
		s.fails(model.Fenced, closeFenced)
		require.Equal(t, []string{s.id}, n.members("g"))
	})
}

// A client that takes a long frame slowly but steadily shows that it is there.
func TestAMemberThatTakesALongFrameSlowlyLivesOn(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.topic("t", 1)
		part := strings.Repeat("x", 60<<10)
		n.produce("t", 0, part, part, part, part)
		c := n.connect(dialOptions{lazy: true})
		c.send(`{"op":"subscribe","topics":["t"],"group":"g","from":"earliest","session_timeout_ms":3000}`)
		some := make([]byte, 32<<10)
		for taken := 0; taken < 200<<10; taken += len(some) {
			_, err := io.ReadFull(c.ws.NetConn(), some)
			require.NoError(t, err)
			advance(800 * time.Millisecond)
		}
		require.Len(t, n.members("g"), 1)
		c.drop()
		advance(4 * time.Second)
		require.Empty(t, n.members("g"))
	})
}
