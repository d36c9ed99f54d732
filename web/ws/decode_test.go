package ws

import (
	"encoding/json"
	"fmt"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"tidewire/api/recordjson"
	"tidewire/broker"
	"tidewire/internal/model"
)

func TestFramesOfEveryOpDecode(t *testing.T) {
	t.Parallel()
	next, credit := int64(9), int64(0)
	for text, want := range map[string]any{
		`{"op":"unsubscribe"}`:                                                     unsubscribeCmd{},
		` { "op" : "unsubscribe" } `:                                               unsubscribeCmd{},
		`{"op":"credit","records":1}`:                                              creditCmd{1},
		`{"op":"auth","access_token":"x.y"}`:                                       authCmd{"x.y"},
		`{"op":"pause","partitions":[{"topic":"t","partition":2}]}`:                pauseCmd{[]Partition{{"t", 2}}, true},
		`{"op":"resume","partitions":[]}`:                                          pauseCmd{[]Partition{}, false},
		`{"partitions":[{"partition":2,"topic":"t","next_offset":0}],"op":"seek"}`: seekCmd{[]Position{{"t", 2, 0}}},
		`{"op":"subscribe","topics":["t"]}`: &subscription{
			topics: []string{"t"}, from: broker.Position{Kind: broker.Latest}, fromText: "latest", maxRecords: 500, wanted: &noMembership,
		},
		`{"op":"subscribe","partitions":[{"topic":"t","partition":0,"next_offset":9},{"topic":"t","partition":1}],"from":12,"credit":0,
			"max_records":10000,"encoding":"text","isolation":"read_uncommitted","topics":null,"group":null}`: &subscription{
			partitions: []start{{Partition{"t", 0}, &next}, {Partition{"t", 1}, nil}}, starts: map[Partition]*int64{{"t", 0}: &next, {"t", 1}: nil},
			from: broker.Position{Kind: broker.AtTime, Value: 12}, fromText: "12", fromGiven: true, credit: &credit, maxRecords: 10_000,
			encoding: recordjson.Text, isolation: broker.ReadUncommitted, wanted: &noMembership,
		},
	} {
		f := decodeFrame([]byte(text))
		require.NoError(t, f.err, text)
		require.Equal(t, want, f.cmd, text)
		require.Nil(t, f.id)
	}
}

func TestWhatIsWrongInAFrameIsPointedAt(t *testing.T) {
	t.Parallel()
	for text, pointer := range map[string]string{
		`{}`:                 "/op",
		`{"op":null}`:        "/op",
		`{"op":5}`:           "/op",
		`{"op":"Subscribe"}`: "/op",
		`{"op":"produce"}`:   "/op",
		`{"op":"unsubscribe","op":"unsubscribe"}`:                                   "/op",
		`{"op":"unsubscribe","a/b~c":1}`:                                            "/a~1b~0c",
		`{"op":"unsubscribe","id":true}`:                                            "/id",
		`{"op":"unsubscribe","id":[1]}`:                                             "/id",
		`{"op":"unsubscribe","id":1,"id":1}`:                                        "/id",
		`{"op":"credit"}`:                                                           "/records",
		`{"op":"credit","records":null}`:                                            "/records",
		`{"op":"credit","records":0}`:                                               "/records",
		`{"op":"credit","records":"1"}`:                                             "/records",
		`{"op":"credit","records":1.5}`:                                             "/records",
		`{"op":"credit","records":1e2}`:                                             "/records",
		`{"op":"credit","records":9007199254740992}`:                                "/records",
		`{"op":"auth","access_token":1}`:                                            "/access_token",
		`{"op":"auth","token":"x"}`:                                                 "/token",
		`{"op":"pause","partitions":{}}`:                                            "/partitions",
		`{"op":"pause","partitions":[1]}`:                                           "/partitions/0",
		`{"op":"pause","partitions":[null]}`:                                        "/partitions/0",
		`{"op":"pause","partitions":[{"topic":"t"}]}`:                               "/partitions/0/partition",
		`{"op":"pause","partitions":[{"topic":"t","partition":-1}]}`:                "/partitions/0/partition",
		`{"op":"pause","partitions":[{"topic":"t","partition":2147483648}]}`:        "/partitions/0/partition",
		`{"op":"pause","partitions":[{"topic":"","partition":0}]}`:                  "/partitions/0/topic",
		`{"op":"pause","partitions":[{"topic":"t","partition":0,"next_offset":0}]}`: "/partitions/0/next_offset",
		`{"op":"pause","partitions":[{"topic":"t","partition":0},{"topic":"t","topic":"t","partition":0}]}`: "/partitions/1/topic",
		`{"op":"seek","partitions":[{"topic":"t","partition":0}]}`:                                          "/partitions/0/next_offset",
		`{"op":"seek","partitions":[{"topic":"t","partition":0,"next_offset":-1}]}`:                         "/partitions/0/next_offset",
		`{"op":"subscribe"}`:                                    "/topics",
		`{"op":"subscribe","topics":[]}`:                        "/topics",
		`{"op":"subscribe","topics":"t"}`:                       "/topics",
		`{"op":"subscribe","topics":["t",1]}`:                   "/topics/1",
		`{"op":"subscribe","topics":["t","t"]}`:                 "/topics/1",
		`{"op":"subscribe","topic":"t"}`:                        "/topic",
		`{"op":"subscribe","topics":["t"],"from":-1}`:           "/from",
		`{"op":"subscribe","topics":["t"],"from":1.5}`:          "/from",
		`{"op":"subscribe","topics":["t"],"from":"soon"}`:       "/from",
		`{"op":"subscribe","topics":["t"],"from":true}`:         "/from",
		`{"op":"subscribe","topics":["t"],"credit":-1}`:         "/credit",
		`{"op":"subscribe","topics":["t"],"max_records":0}`:     "/max_records",
		`{"op":"subscribe","topics":["t"],"max_records":10001}`: "/max_records",
		`{"op":"subscribe","topics":["t"],"encoding":"utf-8"}`:  "/encoding",
		`{"op":"subscribe","topics":["t"],"isolation":"none"}`:  "/isolation",
		`{"op":"subscribe","topics":["t"],"from":"none"}`:       "/from",
		`{"op":"subscribe","group":"g"}`:                        "/topics",
		`{"op":"subscribe","topics":["t"],"group":""}`:          "/group",
		`{"op":"subscribe","topics":["t"],"group":".."}`:        "/group",
		`{"op":"subscribe","topics":["t"],"group":"a\u0000b"}`:  "/group",
		`{"op":"subscribe","topics":["t"],"group":5}`:           "/group",
		`{"op":"subscribe","topics":["a/b"],"group":"g"}`:       "/topics/0",
		`{"op":"subscribe","topics":["t","t"],"group":"g"}`:     "/topics/1",
		`{"op":"subscribe","topics":["t"],"auto_commit":true}`:  "/auto_commit",
		`{"op":"subscribe","topics":["t"],"member_id":"m"}`:     "/member_id",

		`{"op":"subscribe","topics":["t"],"group":"g","assignor":"best"}`:                            "/assignor",
		`{"op":"subscribe","topics":["t"],"group":"g","session_timeout_ms":999}`:                     "/session_timeout_ms",
		`{"op":"subscribe","topics":["t"],"group":"g","session_timeout_ms":1800001}`:                 "/session_timeout_ms",
		`{"op":"subscribe","topics":["t"],"group":"g","auto_commit":1}`:                              "/auto_commit",
		`{"op":"subscribe","topics":["t"],"group":"g","auto_commit_interval_ms":99}`:                 "/auto_commit_interval_ms",
		`{"op":"subscribe","topics":["t"],"group":"g","auto_offset_reset":"1700000000000"}`:          "/auto_offset_reset",
		`{"op":"subscribe","topics":["t"],"group":"g","auto_offset_reset":"latest","from":"latest"}`: "/auto_offset_reset",
		`{"op":"subscribe","topics":["t"],"group":"g","partitions":[{"topic":"t","partition":0}]}`:   "/partitions",
		`{"op":"subscribe","topics":["t"],"group":"g","instance_id":"."}`:                            "/instance_id",
		`{"op":"subscribe","topics":["t"],"group":"g","member_id":"m","take_over":true}`:             "/take_over",
		`{"op":"commit"}`: "/offsets",
		`{"op":"commit","offsets":[{"topic":"t","partition":0}]}`:                                                  "/offsets/0/next_offset",
		`{"op":"commit","offsets":[{"topic":"t","partition":0,"next_offset":-1}]}`:                                 "/offsets/0/next_offset",
		`{"op":"commit","offsets":[{"topic":"t","partition":0,"next_offset":1,"metadata":1}]}`:                     "/offsets/0/metadata",
		`{"op":"commit","offsets":[5]}`:                                                                            "/offsets/0",
		`{"op":"commit","cursor":"x"}`:                                                                             "/cursor",
		`{"op":"released"}`:                                                                                        "/partitions",
		`{"op":"released","partitions":[{"topic":"t","partition":0,"next_offset":1}]}`:                             "/partitions/0/next_offset",
		`{"op":"subscribe","topics":["t"],"partitions":[{"topic":"t","partition":0},{"topic":"t","partition":0}]}`: "/partitions/1",
	} {
		f := decodeFrame([]byte(text))
		require.Error(t, f.err, text)
		e := model.AsError(f.err)
		require.Equal(t, model.InvalidArgument, e.Code, text)
		require.Len(t, e.Fields, 1, text)
		require.Equal(t, pointer, e.Fields[0].Pointer, "%s: %s", text, e.Detail)
	}
}

func TestTheIDIsKnownWhateverElseIsWrong(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`{"id":"x"}`, `{"op":"nope","id":"x"}`, `{"op":"credit","records":"a","id":"x"}`, `{"op":"credit","op":"credit","id":"x"}`,
		`{"op":"commit","id":"x"}`, `{"id":"x","op":"subscribe","topics":["t"],"group":"."}`, `{"id":"x","nope":{"a":[{}]},"op":"unsubscribe"}`,
	} {
		f := decodeFrame([]byte(text))
		require.Error(t, f.err, text)
		require.Equal(t, `"x"`, string(f.id), text)
	}
	long := fmt.Sprintf(`{"op":"unsubscribe","id":"%0*d"}`, maxIDBytes, 1)
	f := decodeFrame([]byte(long))
	require.True(t, model.HasCode(f.err, model.InvalidArgument))
	require.Nil(t, f.id, "an id that is not one cannot be repeated")
}

func TestTheQuerysMistakesArePointedAt(t *testing.T) {
	t.Parallel()
	for query, pointer := range map[string]string{
		"from=earliest":            "query:topics",
		"topics=":                  "query:topics/0",
		"topics=t,":                "query:topics/1",
		"topics=t,t":               "query:topics/1",
		"topic=t":                  "query:topic",
		"topics=t&from=x":          "query:from",
		"topics=t&from=1&from=2":   "query:from",
		"topics=t&credit=x":        "query:credit",
		"topics=t&credit=%201":     "query:credit",
		"topics=t&max_records=1.0": "query:max_records",
		"topics=t&partitions=0":    "query:partitions",
		"topics=t&partitions=[{}]": "query:partitions/0/topic",
		"topics=t&partitions=[":    "query:partitions",
		"topics=t&encoding=null":   "query:encoding",
		"topics=t&encoding=%ff":    "query:encoding",
		"topics=%zz":               "query:",
	} {
		s, err := parseQuery(query)
		require.Error(t, err, query)
		require.Nil(t, s, query)
		e := model.AsError(err)
		require.Equal(t, model.InvalidArgument, e.Code, query)
		require.Equal(t, pointer, e.Fields[0].Pointer, "%s: %s", query, e.Detail)
	}
	s, err := parseQuery("")
	require.NoError(t, err)
	require.Nil(t, s, "without parameters a frame subscribes")
}

func FuzzDecodeFrame(f *testing.F) {
	for _, s := range []string{
		`{"op":"subscribe","id":1,"topics":["t"],"partitions":[{"topic":"t","partition":0,"next_offset":9}],"from":"earliest","credit":5}`,
		`{"op":"seek","partitions":[{"topic":"t","partition":0,"next_offset":9}]}`, `{"op":"pause","partitions":[{}]}`,
		`{"op":"auth","access_token":"x"}`, `{"id":"x","id":"x"}`, `[`, "{\"a\\u0000\":\"\xff\"}", `{"id":1e999,"op":"credit","records":-0}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		x := decodeFrame(b)
		if (x.err == nil) == (x.cmd == nil) && x.err == nil {
			t.Fatal("neither a command nor an error")
		}
		if x.id != nil {
			back := encodeFrame(AnswerFrame{"x", x.id})
			if !json.Valid(back) {
				t.Fatalf("the id %q does not come back as JSON: %s", x.id, back)
			}
		}
		if x.err != nil {
			for _, e := range model.AsError(x.err).Fields {
				if !utf8.ValidString(e.Pointer) || !utf8.ValidString(e.Detail) {
					t.Fatalf("not UTF-8: %q %q", e.Pointer, e.Detail)
				}
			}
		}
	})
}
