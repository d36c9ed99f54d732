package history

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

const p0, p1 = "t/0", "t/1"

// at makes records of one partition with offsets that count up from the first.
func at(partition string, first int64, values ...string) []Record {
	out := make([]Record, len(values))
	for i, v := range values {
		out[i] = Record{partition, first + int64(i), v}
	}
	return out
}

func send(client, op string, values ...string) Event {
	return Event{Type: Send, Client: client, Op: op, Acks: All, Records: at("", 0, values...)}
}

func sendIn(txn string, e Event) Event { e.Txn = txn; return e }
func weak(e Event) Event               { e.Acks = Leader; return e }
func retried(e Event) Event            { e.Retry = true; return e }
func ack(op string, r ...Record) Event { return Event{Type: Ack, Op: op, Records: r} }
func fail(op string) Event             { return Event{Type: Fail, Op: op} }
func unknown(op string) Event          { return Event{Type: Unknown, Op: op} }
func read(c string, r ...Record) Event { return Event{Type: Read, Client: c, Records: r} }
func readIn(txn string, e Event) Event { e.Txn = txn; return e }
func dirty(e Event) Event              { e.Uncommitted = true; return e }
func assign(c string) Event            { return Event{Type: Assign, Client: c} }
func end(t Type, txn string) Event     { return Event{Type: t, Txn: txn} }
func sparse(e Event) Event             { e.Sparse = true; return e }
func final(p string, r ...Record) Event {
	to := int64(0)
	for _, x := range r {
		to = max(to, x.Offset+1)
	}
	return Event{Type: Final, Partition: p, To: to, Records: r}
}

func TestPlantedFaultsAreFound(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		events []Event
		want   []Kind
	}{
		"two values at one offset, both acknowledged": {[]Event{
			send("a", "1", "x"), ack("1", at(p0, 0, "x")...), send("b", "2", "y"), ack("2", at(p0, 0, "y")...), final(p0, at(p0, 0, "x")...),
		}, []Kind{InconsistentOffset, Unseen}},
		"an offset that changes its value between reads": {[]Event{
			send("a", "1", "x"), unknown("1"), send("b", "2", "y"), unknown("2"), read("c", at(p0, 0, "x")...), read("d", at(p0, 0, "y")...),
		}, []Kind{InconsistentOffset}},
		"a value elsewhere than told": {[]Event{
			send("a", "1", "x"), ack("1", at(p0, 4, "x")...), read("c", at(p0, 5, "x")...),
		}, []Kind{InconsistentOffset}},
		"a weakly acknowledged value elsewhere than told": {[]Event{
			weak(send("a", "1", "x")), ack("1", at(p0, 4, "x")...), read("c", at(p0, 5, "x")...),
		}, []Kind{InconsistentOffset}},
		"a value at two offsets": {[]Event{
			send("a", "1", "x"), ack("1", at(p0, 0, "x")...), final(p0, at(p0, 0, "x", "x")...),
		}, []Kind{Duplicate}},
		"a value in two partitions": {[]Event{
			send("a", "1", "x"), unknown("1"), final(p0, at(p0, 0, "x")...), final(p1, at(p1, 0, "x")...),
		}, []Kind{Duplicate}},
		"a lost write": {[]Event{
			send("a", "1", "x", "y"), ack("1", at(p0, 0, "x", "y")...), read("c", at(p0, 1, "y")...),
		}, []Kind{Lost}},
		"a write unseen at the end": {[]Event{
			send("a", "1", "x", "y"), ack("1", at(p0, 0, "x", "y")...), final(p0, at(p0, 0, "x")...),
		}, []Kind{Unseen}},
		"a write that was read and vanished": {[]Event{
			weak(send("a", "1", "x", "y")), ack("1", at(p0, 0, "x", "y")...), read("c", at(p0, 0, "x", "y")...), final(p0, at(p0, 0, "x")...),
		}, []Kind{Vanished}},
		"a value from nowhere": {[]Event{read("c", at(p0, 0, "x")...)}, []Kind{Phantom}},
		"a value read before it was sent": {[]Event{
			read("c", at(p0, 0, "x")...), send("a", "1", "x"), ack("1", at(p0, 0, "x")...), assign("c"), read("c", at(p0, 0, "x")...),
		}, []Kind{Phantom}},
		"a failed write that was applied": {[]Event{
			send("a", "1", "x"), fail("1"), read("c", at(p0, 0, "x")...),
		}, []Kind{FailedRead}},
		"one failed record of a request that was applied": {[]Event{
			send("a", "1", "x", "y"), {Type: Fail, Op: "1", Records: at("", 0, "y")}, ack("1", at(p0, 0, "x")...), read("c", at(p0, 0, "x", "y")...),
		}, []Kind{FailedRead}},
		"an aborted read": {[]Event{
			sendIn("T", send("a", "1", "x")), ack("1", at(p0, 0, "x")...), end(Abort, "T"), end(Aborted, "T"), read("c", at(p0, 0, "x")...),
		}, []Kind{AbortedRead}},
		"a read before the abort": {[]Event{
			sendIn("T", send("a", "1", "x")), ack("1", at(p0, 0, "x")...), read("c", at(p0, 0, "x")...), end(Abort, "T"), end(Aborted, "T"),
		}, []Kind{AbortedRead}},
		"a read before the commit": {[]Event{
			sendIn("T", send("a", "1", "x")), ack("1", at(p0, 0, "x")...), read("c", at(p0, 0, "x")...), end(Commit, "T"), end(Committed, "T"),
		}, []Kind{UncommittedRead}},
		"a read of one's own uncommitted write": {[]Event{
			sendIn("T", send("a", "1", "x")), ack("1", at(p0, 0, "x")...), readIn("T", read("a", at(p0, 0, "x")...)), end(Commit, "T"), end(Committed, "T"),
		}, []Kind{OwnUncommitted}},
		"a poll that skips": {[]Event{
			send("a", "1", "x", "y", "z"), ack("1", at(p0, 0, "x", "y", "z")...), read("c", at(p0, 0, "x")...), read("c", at(p0, 2, "z")...), final(p0, at(p0, 0, "x", "y", "z")...),
		}, []Kind{Skipped}},
		"a skip within a poll": {[]Event{
			send("a", "1", "x", "y", "z"), ack("1", at(p0, 0, "x", "y", "z")...), read("c", Record{p0, 0, "x"}, Record{p0, 2, "z"}), final(p0, at(p0, 0, "x", "y", "z")...),
		}, []Kind{Skipped}},
		"a poll that goes back": {[]Event{
			send("a", "1", "x", "y"), ack("1", at(p0, 0, "x", "y")...), read("c", at(p0, 0, "x", "y")...), read("c", at(p0, 1, "y")...),
		}, []Kind{Backward}},
		"sends out of order": {[]Event{
			send("a", "1", "x"), send("a", "2", "y"), ack("1", at(p0, 1, "x")...), ack("2", at(p0, 0, "y")...), final(p0, at(p0, 0, "y", "x")...),
		}, []Kind{Misordered}},
		"a request's records out of order": {[]Event{
			send("a", "1", "x", "y"), unknown("1"), final(p0, at(p0, 0, "y", "x")...),
		}, []Kind{Misordered}},
		"an unknown write behind which an acknowledged one stands, that is before one acknowledged earlier": {[]Event{
			send("a", "1", "x"), ack("1", at(p0, 1, "x")...), send("a", "2", "y"), unknown("2"), send("a", "3", "z"), ack("3", at(p0, 2, "z")...), final(p0, at(p0, 0, "y", "x", "z")...),
		}, []Kind{Misordered}},
		"a gap": {[]Event{
			send("a", "1", "x", "y"), unknown("1"), final(p0, Record{p0, 0, "x"}, Record{p0, 2, "y"}),
		}, []Kind{Gap}},
		"a torn transaction": {[]Event{
			sendIn("T", send("a", "1", "x")), ack("1", at(p0, 0, "x")...), sendIn("T", send("a", "2", "y")), ack("2", at(p1, 0, "y")...),
			end(Commit, "T"), sparse(final(p0, at(p0, 0, "x")...)), sparse(final(p1)),
		}, []Kind{TornTransaction}},
		"a cycle of two": {[]Event{
			sendIn("T", send("a", "1", "x")), ack("1", at(p0, 0, "x")...), sendIn("U", send("b", "2", "y")), ack("2", at(p1, 0, "y")...),
			end(Commit, "T"), end(Commit, "U"), readIn("U", read("b", at(p0, 0, "x")...)), readIn("T", read("a", at(p1, 0, "y")...)),
		}, []Kind{Cycle}},
		"a cycle of three": {[]Event{
			sendIn("T", send("a", "1", "x")), sendIn("U", send("b", "2", "y")), sendIn("V", send("c", "3", "z")),
			end(Commit, "T"), end(Commit, "U"), end(Commit, "V"),
			readIn("U", read("b", at(p0, 0, "x")...)), readIn("V", read("c", at(p0, 1, "y")...)), readIn("T", read("a", at(p0, 2, "z")...)),
		}, []Kind{Cycle}},
		"an answer without its request": {[]Event{ack("9", at(p0, 0, "x")...)}, []Kind{Malformed}},
		"an end without its request":    {[]Event{unknown("9")}, []Kind{Malformed}},
		"a value sent twice":            {[]Event{send("a", "1", "x"), send("a", "2", "x")}, []Kind{Malformed}},
		"a request sent twice":          {[]Event{send("a", "1", "x"), send("a", "1", "y")}, []Kind{Malformed}},
		"committed and aborted":         {[]Event{end(Committed, "T"), end(Aborted, "T")}, []Kind{Malformed}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var kinds []Kind
			found := Check(x.events)
			for _, v := range found {
				kinds = append(kinds, v.Kind)
			}
			require.Equal(t, x.want, kinds, "%v", found)
		})
	}
}

func TestWhatIsAllowedIsNotReported(t *testing.T) {
	t.Parallel()
	for name, events := range map[string][]Event{
		"nothing": nil,
		"a weak acknowledgement that was lost, its offset given again": {
			weak(send("a", "1", "x")), ack("1", at(p0, 0, "x")...), send("b", "2", "y"), ack("2", at(p0, 0, "y")...), final(p0, at(p0, 0, "y")...),
		},
		"an unknown write, there or not": {
			send("a", "1", "x"), unknown("1"), send("a", "2", "y"), unknown("2"), final(p0, at(p0, 0, "y")...),
		},
		"an unknown write that was overtaken": {
			send("a", "1", "x"), unknown("1"), send("a", "2", "y"), ack("2", at(p0, 0, "y")...), final(p0, at(p0, 0, "y", "x")...),
		},
		"a request that never ended": {send("a", "1", "x")},
		"a retry that is there twice": {
			retried(send("a", "1", "x")), ack("1", at(p0, 1, "x")...), final(p0, at(p0, 0, "x", "x")...),
		},
		"repeats and skips around a rebalance": {
			send("a", "1", "x", "y", "z"), ack("1", at(p0, 0, "x", "y", "z")...), read("c", at(p0, 0, "x", "y")...),
			assign("c"), read("c", at(p0, 0, "x")...), assign("c"), read("c", at(p0, 2, "z")...),
		},
		"two readers at different places": {
			send("a", "1", "x", "y"), ack("1", at(p0, 0, "x", "y")...), read("c", at(p0, 0, "x", "y")...), read("d", at(p0, 0, "x")...),
		},
		"two producers in either order": {
			send("a", "1", "x"), send("b", "2", "y"), ack("1", at(p0, 1, "x")...), ack("2", at(p0, 0, "y")...), final(p0, at(p0, 0, "y", "x")...),
		},
		"interleaved transactions, an aborted one passed over": {
			sendIn("T", send("a", "1", "x1")), ack("1", at(p0, 0, "x1")...), sendIn("U", send("b", "2", "y1")), ack("2", at(p0, 1, "y1")...),
			sendIn("T", send("a", "3", "x2")), ack("3", at(p0, 2, "x2")...), end(Commit, "T"), end(Committed, "T"), end(Abort, "U"), end(Aborted, "U"),
			read("c", Record{p0, 0, "x1"}, Record{p0, 2, "x2"}), sparse(final(p0, Record{p0, 0, "x1"}, Record{p0, 2, "x2"})),
		},
		"an uncommitted reader of an aborted transaction": {
			sendIn("T", send("a", "1", "x")), ack("1", at(p0, 0, "x")...), dirty(read("c", at(p0, 0, "x")...)), end(Abort, "T"), end(Aborted, "T"), sparse(final(p0)),
		},
		"a transaction that reads another's": {
			sendIn("T", send("a", "1", "x")), end(Commit, "T"), end(Committed, "T"), readIn("U", read("b", at(p0, 0, "x")...)), sendIn("U", send("b", "2", "y")),
		},
		"a transaction of unknown end, all there": {
			sendIn("T", send("a", "1", "x", "y")), ack("1", at(p0, 0, "x", "y")...), end(Commit, "T"), final(p0, at(p0, 0, "x", "y")...),
		},
		"records that retention took": {
			send("a", "1", "x", "y"), ack("1", at(p0, 0, "x", "y")...), read("c", at(p0, 0, "x")...),
			{Type: Final, Partition: p0, From: 1, To: 2, Records: at(p0, 1, "y")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Empty(t, Check(events))
		})
	}
}

// A correct log, in which one acknowledged record is changed, taken out or moved.
func TestAnyDamageToAnAcknowledgedRecordIsFound(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var events []Event
		var log []Record
		for i := range rapid.IntRange(2, 40).Draw(t, "records") {
			v := string(rune('A' + i))
			events = append(events, send("a", v, v), ack(v, Record{p0, int64(i), v}))
			log = append(log, Record{p0, int64(i), v})
		}
		require.Empty(t, Check(append(events, final(p0, log...))))
		hit := rapid.IntRange(0, len(log)-1).Draw(t, "hit")
		damaged := append([]Record{}, log...)
		switch rapid.IntRange(0, 2).Draw(t, "damage") {
		case 0:
			damaged[hit].Value = "other"
		case 1:
			damaged = append(damaged[:hit], damaged[hit+1:]...)
		case 2:
			other := (hit + 1) % len(log)
			damaged[hit].Value, damaged[other].Value = damaged[other].Value, damaged[hit].Value
		}
		require.NotEmpty(t, Check(append(events, final(p0, damaged...))))
	})
}

func TestAHistoryIsJSONLines(t *testing.T) {
	t.Parallel()
	var r Recorder
	r.Add(send("a", "1", "x"))
	r.Add(ack("1", at(p0, 7, "x")...))
	r.Add(sparse(final(p0, at(p0, 7, "x")...)))
	var b bytes.Buffer
	require.NoError(t, Write(&b, r.Events()))
	require.Equal(t, `{"type":"send","client":"a","op":"1","records":[{"partition":"","offset":0,"value":"x"}],"acks":"all"}`, strings.Split(b.String(), "\n")[0])
	back, err := Parse(&b)
	require.NoError(t, err)
	require.Equal(t, r.Events(), back)
	for _, bad := range []string{`{"type":"guess"}`, `{"type":"ack","offset":1}`, `{"type":`, `[]`} {
		_, err := Parse(strings.NewReader(bad))
		require.Error(t, err, bad)
	}
}
