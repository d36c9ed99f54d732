package api

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewire/api/route"
)

// number reads a JSON number that is whole.
func number(t testing.TB, v any) int64 {
	t.Helper()
	n, err := v.(json.Number).Int64()
	require.NoError(t, err)
	return n
}

// refused is a request that is wrong in one point.
type refused struct {
	method, path string
	body         any
	status       int
	code         string
	pointer      string // "" for none, and for the whole body
}

// check makes the requests and returns once all are answered.
func check(t *testing.T, a *api, rows map[string]refused) {
	t.Helper()
	t.Run("rows", func(t *testing.T) {
		for name, r := range rows {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				r.check(t, a.with(t))
			})
		}
	})
}

func (r refused) check(t *testing.T, a *api) {
	t.Helper()
	x := wants(t, a.as(a.admin, r.method, r.path, r.body), r.status, r.code)
	if r.method != "HEAD" {
		require.Equal(t, r.pointer, strings.Join(pointers(t, x), " "), "%s", x.Body)
	}
}

// depth nests arrays.
func depth(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }

func TestBadRecordsAreRefused(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("bad.records", 2, object{"max.message.bytes": 1000})
	compact := a.topic("bad.compact", 1, object{"cleanup.policy": "compact"})
	before := a.logEnd(path, 0) + a.logEnd(path, 1)
	check(t, a, map[string]refused{
		"empty body":                    {"POST", path + "/records", "", 400, "malformed-body", ""},
		"white space":                   {"POST", path + "/records", " \n", 400, "malformed-body", ""},
		"truncated":                     {"POST", path + "/records", `{"records":[{"value":"x"}`, 400, "malformed-body", ""},
		"not JSON":                      {"POST", path + "/records", `records`, 400, "malformed-body", ""},
		"invalid UTF-8":                 {"POST", path + "/records", "{\"records\":[{\"value\":\"\xff\"}]}", 400, "malformed-body", ""},
		"something behind":              {"POST", path + "/records", `{"records":[{"value":"x"}]}{}`, 400, "malformed-body", ""},
		"a byte order mark":             {"POST", path + "/records", "\ufeff" + `{"records":[{"value":"x"}]}`, 400, "malformed-body", ""},
		"a control character":           {"POST", path + "/records", "{\"records\":[{\"value\":\"\n\"}]}", 400, "malformed-body", ""},
		"no records":                    {"POST", path + "/records", `{}`, 422, "invalid-argument", "/records"},
		"an empty list":                 {"POST", path + "/records", `{"records":[]}`, 422, "invalid-argument", "/records"},
		"null for the list":             {"POST", path + "/records", `{"records":null}`, 422, "invalid-argument", "/records"},
		"a list for the body":           {"POST", path + "/records", `[]`, 422, "invalid-argument", ""},
		"null for the body":             {"POST", path + "/records", `null`, 422, "invalid-argument", ""},
		"a string for a record":         {"POST", path + "/records", `{"records":["x"]}`, 422, "invalid-argument", "/records/0"},
		"an unknown member":             {"POST", path + "/records", `{"records":[{"val":1}]}`, 422, "invalid-argument", "/records/0/val"},
		"an unknown member outside":     {"POST", path + "/records", `{"records":[{"value":1}],"acks":"all"}`, 422, "invalid-argument", "/acks"},
		"a name in other case":          {"POST", path + "/records", `{"records":[{"Value":1}]}`, 422, "invalid-argument", "/records/0/Value"},
		"a member twice":                {"POST", path + "/records", `{"records":[{"value":1,"value":2}]}`, 422, "invalid-argument", "/records/0/value"},
		"records twice":                 {"POST", path + "/records", `{"records":[{"value":1}],"records":[{"value":2}]}`, 422, "invalid-argument", "/records"},
		"nested 513":                    {"POST", path + "/records", `{"records":[{"value":` + depth(510) + `}]}`, 422, "invalid-argument", "/records/0"},
		"a lone surrogate":              {"POST", path + "/records", `{"records":[{"value":"\ud800"}]}`, 422, "invalid-argument", "/records/0/value"},
		"a lone low surrogate":          {"POST", path + "/records", `{"records":[{"key":"a\udc00b"}]}`, 422, "invalid-argument", "/records/0/key"},
		"a lone surrogate in a header":  {"POST", path + "/records", `{"records":[{"value":1,"headers":[{"name":"n","value":"\ud800x"}]}]}`, 422, "invalid-argument", "/records/0/headers/0/value"},
		"partition -1":                  {"POST", path + "/records", `{"records":[{"value":1,"partition":-1}]}`, 422, "invalid-argument", "/records/0/partition"},
		"partition 1.5":                 {"POST", path + "/records", `{"records":[{"value":1,"partition":1.5}]}`, 422, "invalid-argument", "/records/0/partition"},
		"a string for the partition":    {"POST", path + "/records", `{"records":[{"value":1,"partition":"0"}]}`, 422, "invalid-argument", "/records/0/partition"},
		"partition n":                   {"POST", path + "/records", `{"records":[{"value":1,"partition":2}]}`, 404, "unknown-partition", ""},
		"partition -1 in the path":      {"POST", path + "/partitions/-1/records", `{"records":[{"value":1}]}`, 422, "invalid-argument", "path:partition"},
		"a word for the partition":      {"POST", path + "/partitions/x/records", `{"records":[{"value":1}]}`, 422, "invalid-argument", "path:partition"},
		"partition n in the path":       {"POST", path + "/partitions/2/records", `{"records":[{"value":1}]}`, 404, "unknown-partition", ""},
		"another partition than path's": {"POST", path + "/partitions/0/records", `{"records":[{"value":1,"partition":1}]}`, 422, "invalid-argument", "/records/0/partition"},
		"a negative timestamp":          {"POST", path + "/records", `{"records":[{"value":1,"timestamp":-1}]}`, 422, "invalid-timestamp", "/records/0/timestamp"},
		"a timestamp far ahead":         {"POST", path + "/records", `{"records":[{"value":1},{"value":1,"timestamp":99999999999999}]}`, 422, "invalid-timestamp", "/records/1/timestamp"},
		"a timestamp beyond 64 bits":    {"POST", path + "/records", `{"records":[{"value":1,"timestamp":9223372036854775808}]}`, 422, "invalid-timestamp", "/records/0/timestamp"},
		"a fraction for the timestamp":  {"POST", path + "/records", `{"records":[{"value":1,"timestamp":1.0}]}`, 422, "invalid-argument", "/records/0/timestamp"},
		"an unknown encoding":           {"POST", path + "/records", `{"records":[{"value":"x","value_encoding":"hex"}]}`, 422, "invalid-argument", "/records/0/value_encoding"},
		"bad base64":                    {"POST", path + "/records", `{"records":[{"value":"x","value_encoding":"base64"}]}`, 422, "invalid-argument", "/records/0/value"},
		"a number as text":              {"POST", path + "/records", `{"records":[{"value":1,"value_encoding":"text"}]}`, 422, "invalid-argument", "/records/0/value"},
		"a header without name":         {"POST", path + "/records", `{"records":[{"value":1,"headers":[{"value":"x"}]}]}`, 422, "invalid-argument", "/records/0/headers/0/name"},
		"an unknown member of a header": {"POST", path + "/records", `{"records":[{"value":1,"headers":[{"name":"x","v":1}]}]}`, 422, "invalid-argument", "/records/0/headers/0/v"},
		"a word for acks":               {"POST", path + "/records?acks=most", `{"records":[{"value":1}]}`, 422, "invalid-argument", "query:acks"},
		"acks=2":                        {"POST", path + "/records?acks=2", `{"records":[{"value":1}]}`, 422, "invalid-argument", "query:acks"},
		"timeout_ms=0":                  {"POST", path + "/records?timeout_ms=0", `{"records":[{"value":1}]}`, 422, "invalid-argument", "query:timeout_ms"},
		"an unknown parameter":          {"POST", path + "/records?ack=all", `{"records":[{"value":1}]}`, 422, "invalid-argument", "query:ack"},
		"a parameter twice":             {"POST", path + "/records?acks=all&acks=all", `{"records":[{"value":1}]}`, 422, "invalid-argument", "query:acks"},
		"a raw body's parameter":        {"POST", path + "/records?key=k", `{"records":[{"value":1}]}`, 422, "invalid-argument", "query:key"},
		"one record too large":          {"POST", path + "/records", `{"records":[{"value":1},{"value":"` + strings.Repeat("x", 1000) + `"}]}`, 413, "record-too-large", "/records/1"},
		"a bad topic name":              {"POST", "/v1/topics/bad$%23!/records", `{"records":[{"value":1}]}`, 422, "invalid-argument", "path:topic"},
		"no key in a compacted topic":   {"POST", compact + "/records", `{"records":[{"key":"k"},{"value":1}]}`, 422, "invalid-argument", "/records/1/key"},
		"null key in a compacted topic": {"POST", compact + "/records", `{"records":[{"key":null,"value":1}]}`, 422, "invalid-argument", "/records/0/key"},
		"a syntax fault behind others":  {"POST", path + "/records", `{"records":[{"val":1}]`, 400, "malformed-body", ""},
	})
	require.Equal(t, before, a.logEnd(path, 0)+a.logEnd(path, 1), "nothing was applied")
	require.Zero(t, a.logEnd(compact, 0))
}

func TestNestingOf512IsTaken(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("bad.depth", 1, nil)
	wants(t, a.post(path+"/records", `{"records":[{"value":`+depth(509)+`}]}`), 200, "")
}

func TestTooManyRecordsAreRefused(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("bad.many", 1, nil)
	body := `{"records":[{}` + strings.Repeat(",{}", 1_000_000) + "]}"
	wants(t, a.post(path+"/records", body), 413, "request-too-large")
	require.Zero(t, a.logEnd(path, 0))
}

func TestBadReadsAreRefused(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("bad.reads", 1, nil)
	a.records(path, object{"value": "x"})
	one := path + "/partitions/0/records"
	check(t, a, map[string]refused{
		"neither offset nor timestamp": {"GET", one, nil, 422, "invalid-argument", "query:offset"},
		"offset and timestamp":         {"GET", one + "?offset=0&timestamp=0", nil, 422, "invalid-argument", "query:offset"},
		"offset -1":                    {"GET", one + "?offset=-1", nil, 422, "invalid-argument", "query:offset"},
		"a word for the offset":        {"GET", one + "?offset=first", nil, 422, "invalid-argument", "query:offset"},
		"an empty offset":              {"GET", one + "?offset=", nil, 422, "invalid-argument", "query:offset"},
		"an offset beyond 64 bits":     {"GET", one + "?offset=9223372036854775808", nil, 422, "invalid-argument", "query:offset"},
		"beyond the log end":           {"GET", one + "?offset=2", nil, 416, "offset-out-of-range", ""},
		"timestamp -1":                 {"GET", one + "?timestamp=-1", nil, 422, "invalid-argument", "query:timestamp"},
		"max_records 0":                {"GET", one + "?offset=0&max_records=0", nil, 422, "invalid-argument", "query:max_records"},
		"max_records 10001":            {"GET", one + "?offset=0&max_records=10001", nil, 422, "invalid-argument", "query:max_records"},
		"max_bytes 0":                  {"GET", one + "?offset=0&max_bytes=0", nil, 422, "invalid-argument", "query:max_bytes"},
		"max_bytes 64 MiB + 1":         {"GET", one + "?offset=0&max_bytes=67108865", nil, 422, "invalid-argument", "query:max_bytes"},
		"min_bytes 0":                  {"GET", one + "?offset=0&min_bytes=0", nil, 422, "invalid-argument", "query:min_bytes"},
		"wait_ms -1":                   {"GET", one + "?offset=0&wait_ms=-1", nil, 422, "invalid-argument", "query:wait_ms"},
		"wait_ms 60001":                {"GET", one + "?offset=0&wait_ms=60001", nil, 422, "invalid-argument", "query:wait_ms"},
		"a word for wait_ms":           {"GET", one + "?offset=0&wait_ms=1s", nil, 422, "invalid-argument", "query:wait_ms"},
		"isolation":                    {"GET", one + "?offset=0&isolation=serializable", nil, 422, "invalid-argument", "query:isolation"},
		"encoding":                     {"GET", one + "?offset=0&encoding=hex", nil, 422, "invalid-argument", "query:encoding"},
		"key_encoding":                 {"GET", one + "?offset=0&key_encoding=null", nil, 422, "invalid-argument", "query:key_encoding"},
		"partition -1":                 {"GET", path + "/partitions/-1/records?offset=0", nil, 422, "invalid-argument", "path:partition"},
		"partition n":                  {"GET", path + "/partitions/1/records?offset=0", nil, 404, "unknown-partition", ""},
		"partition 2^31":               {"GET", path + "/partitions/2147483648/records?offset=0", nil, 422, "invalid-argument", "path:partition"},
		"one record at -1":             {"GET", one + "/-1", nil, 422, "invalid-argument", "path:offset"},
		"one record at a word":         {"GET", one + "/latest", nil, 422, "invalid-argument", "path:offset"},
		"one record beyond 64 bits":    {"GET", one + "/9223372036854775808", nil, 422, "invalid-argument", "path:offset"},
		"one record beyond the end":    {"GET", one + "/2", nil, 416, "offset-out-of-range", ""},
		"one record at the log end":    {"GET", one + "/1", nil, 404, "not-found", ""},
		"one record, partition n":      {"GET", path + "/partitions/1/records/0", nil, 404, "unknown-partition", ""},
		"one record's encoding":        {"GET", one + "/0?encoding=hex", nil, 422, "invalid-argument", "query:encoding"},
		"one record and max_records":   {"GET", one + "/0?max_records=1", nil, 422, "invalid-argument", "query:max_records"},
		"a bad escape in the query":    {"GET", one + "?offset=%zz", nil, 422, "invalid-argument", "query:"},
		"an unknown parameter":         {"GET", one + "?offset=0&max=1", nil, 422, "invalid-argument", "query:max"},
		"offsets without timestamp":    {"GET", path + "/offsets", nil, 422, "invalid-argument", "query:timestamp"},
		"offsets at -1":                {"GET", path + "/offsets?timestamp=-1", nil, 422, "invalid-argument", "query:timestamp"},
		"offsets at a word":            {"GET", path + "/offsets?timestamp=now", nil, 422, "invalid-argument", "query:timestamp"},
		"limit 0":                      {"GET", "/v1/topics?limit=0", nil, 422, "invalid-argument", "query:limit"},
		"limit 1001":                   {"GET", "/v1/topics?limit=1001", nil, 422, "invalid-argument", "query:limit"},
		"a word for limit":             {"GET", "/v1/users?limit=all", nil, 422, "invalid-argument", "query:limit"},
		"sort":                         {"GET", "/v1/topics?sort=age", nil, 422, "invalid-argument", "query:sort"},
		"sort by nothing":              {"GET", "/v1/topics?sort=-", nil, 422, "invalid-argument", "query:sort"},
		"fields":                       {"GET", "/v1/topics?fields=name,age", nil, 422, "invalid-argument", "query:fields"},
		"page_token":                   {"GET", "/v1/topics?page_token=x", nil, 422, "invalid-argument", "query:page_token"},
		"internal":                     {"GET", "/v1/topics?internal=1", nil, 422, "invalid-argument", "query:internal"},
		"a rule's pattern":             {"GET", "/v1/acls?pattern=any", nil, 422, "invalid-argument", "query:pattern"},
		"a word for the broker":        {"GET", "/v1/brokers/first", nil, 422, "invalid-argument", "path:broker"},
		"HEAD":                         {"HEAD", one + "?offset=-1", nil, 422, "invalid-argument", ""},
	})
}

func TestBadChangesAreRefused(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("bad.changes", 2, nil)
	a.user("bad.user")
	rule := func(field string, v any) object {
		return with(object{"principal": "User:u", "resource_type": "topic", "resource_name": "t", "pattern": "literal",
			"operation": "read", "permission": "allow", "host": "*"}, field, v)
	}
	check(t, a, map[string]refused{
		"a topic's name is a number": {"POST", "/v1/topics", `{"name":1}`, 422, "invalid-argument", "/name"},
		"0 partitions":               {"POST", "/v1/topics", `{"name":"n","partitions":0}`, 422, "invalid-argument", "/partitions"},
		"10001 partitions":           {"POST", "/v1/topics", `{"name":"n","partitions":10001}`, 422, "invalid-argument", "/partitions"},
		"2.5 partitions":             {"POST", "/v1/topics", `{"name":"n","partitions":2.5}`, 422, "invalid-argument", "/partitions"},
		"replication factor 0":       {"POST", "/v1/topics", `{"name":"n","replication_factor":0}`, 422, "invalid-argument", "/replication_factor"},
		"replication factor 2":       {"POST", "/v1/topics", `{"name":"n","replication_factor":2}`, 422, "invalid-argument", "/replication_factor"},
		"an unknown config":          {"POST", "/v1/topics", `{"name":"n","config":{"retention/ms":"1"}}`, 422, "invalid-argument", "/config/retention~1ms"},
		"a config out of range":      {"POST", "/v1/topics", `{"name":"n","config":{"retention.ms":-2}}`, 422, "invalid-argument", "/config/retention.ms"},
		"null for a config":          {"POST", "/v1/topics", `{"name":"n","config":{"retention.ms":null}}`, 422, "invalid-argument", "/config/retention.ms"},
		"a list for a config":        {"POST", "/v1/topics", `{"name":"n","config":{"cleanup.policy":["delete"]}}`, 422, "invalid-argument", "/config/cleanup.policy"},
		"a config twice":             {"POST", "/v1/topics", `{"name":"n","config":{"retention.ms":1,"retention.ms":2}}`, 422, "invalid-argument", "/config/retention.ms"},
		"min.insync.replicas of 2":   {"POST", "/v1/topics", `{"name":"n","config":{"min.insync.replicas":2}}`, 422, "invalid-argument", "/config/min.insync.replicas"},
		"fewer partitions":           {"PATCH", path, `{"partitions":1}`, 422, "invalid-argument", "/partitions"},
		"no partitions":              {"PATCH", path, `{}`, 422, "invalid-argument", "/partitions"},
		"set an unknown config":      {"PATCH", path + "/config", `{"set":{"retention":1}}`, 422, "invalid-argument", "/set/retention"},
		"unset an unknown config":    {"PATCH", path + "/config", `{"unset":["retention.ms","retention"]}`, 422, "invalid-argument", "/unset/1"},
		"set and unset":              {"PATCH", path + "/config", `{"set":{"retention.ms":1},"unset":["retention.ms"]}`, 422, "invalid-argument", "/unset/0"},
		"a string for unset":         {"PATCH", path + "/config", `{"unset":"retention.ms"}`, 422, "invalid-argument", "/unset"},
		"delete no records":          {"POST", path + "/delete-records", `{"partitions":[]}`, 422, "invalid-argument", "/partitions"},
		"delete of no partition":     {"POST", path + "/delete-records", `{"partitions":[{"before_offset":1}]}`, 422, "invalid-argument", "/partitions/0/partition"},
		"delete of partition -1":     {"POST", path + "/delete-records", `{"partitions":[{"partition":-1,"before_offset":1}]}`, 422, "invalid-argument", "/partitions/0/partition"},
		"delete of partition 2":      {"POST", path + "/delete-records", `{"partitions":[{"partition":2,"before_offset":0}]}`, 404, "unknown-partition", ""},
		"delete a partition twice":   {"POST", path + "/delete-records", `{"partitions":[{"partition":1,"before_offset":0},{"partition":1,"before_offset":0}]}`, 422, "invalid-argument", "/partitions/1/partition"},
		"delete up to nowhere":       {"POST", path + "/delete-records", `{"partitions":[{"partition":0}]}`, 422, "invalid-argument", "/partitions/0/before_offset"},
		"delete up to null":          {"POST", path + "/delete-records", `{"partitions":[{"partition":0,"before_offset":null}]}`, 422, "invalid-argument", "/partitions/0/before_offset"},
		"delete up to -1":            {"POST", path + "/delete-records", `{"partitions":[{"partition":0,"before_offset":-1}]}`, 422, "invalid-argument", "/partitions/0/before_offset"},
		"delete up to 1.5":           {"POST", path + "/delete-records", `{"partitions":[{"partition":0,"before_offset":1.5}]}`, 422, "invalid-argument", "/partitions/0/before_offset"},
		"delete up to the latest":    {"POST", path + "/delete-records", `{"partitions":[{"partition":0,"before_offset":"latest"}]}`, 422, "invalid-argument", "/partitions/0/before_offset"},
		"delete up to true":          {"POST", path + "/delete-records", `{"partitions":[{"partition":0,"before_offset":true}]}`, 422, "invalid-argument", "/partitions/0/before_offset"},
		"delete up to a huge number": {"POST", path + "/delete-records", `{"partitions":[{"partition":0,"before_offset":9223372036854775808}]}`, 422, "invalid-argument", "/partitions/0/before_offset"},
		"delete beyond the end":      {"POST", path + "/delete-records", `{"partitions":[{"partition":0,"before_offset":9223372036854775807}]}`, 416, "offset-out-of-range", ""},
		"delete with dry_run=1":      {"POST", path + "/delete-records?dry_run=1", `{"partitions":[{"partition":0,"before_offset":0}]}`, 422, "invalid-argument", "query:dry_run"},
		"dry_run=yes":                {"DELETE", path + "?dry_run=yes", nil, 422, "invalid-argument", "query:dry_run"},
		"dry_run in the body":        {"PATCH", path, `{"partitions":3,"dry_run":true}`, 422, "invalid-argument", "/dry_run"},
		"a user without password":    {"POST", "/v1/users", `{"username":"n"}`, 422, "invalid-argument", "/password"},
		"a user who is everyone":     {"POST", "/v1/users", object{"username": "*", "password": userPassword}, 422, "invalid-argument", "/username"},
		"a short password":           {"POST", "/v1/users", `{"username":"n","password":"short"}`, 422, "invalid-argument", "/password"},
		"a string for admin":         {"PATCH", "/v1/users/bad.user", `{"admin":"true"}`, 422, "invalid-argument", "/admin"},
		"an unknown member":          {"PATCH", "/v1/users/bad.user", `{"a/b~c":1}`, 422, "invalid-argument", "/a~1b~0c"},
		"a lone surrogate":           {"POST", "/v1/users", `{"username":"\ud800","password":"` + userPassword + `"}`, 422, "invalid-argument", ""},
		"a user that is there":       {"POST", "/v1/users", object{"username": "bad.user", "password": userPassword}, 409, "user-exists", ""},
		"a topic that is there":      {"POST", "/v1/topics", `{"name":"bad.changes"}`, 409, "topic-exists", ""},
		"a principal":                {"POST", "/v1/acls", rule("principal", "u"), 422, "invalid-argument", "/principal"},
		"a resource type":            {"POST", "/v1/acls", rule("resource_type", "queue"), 422, "invalid-argument", "/resource_type"},
		"a pattern":                  {"POST", "/v1/acls", rule("pattern", "regex"), 422, "invalid-argument", "/pattern"},
		"an operation":               {"POST", "/v1/acls", rule("operation", "Read"), 422, "invalid-argument", "/operation"},
		"a permission":               {"POST", "/v1/acls", rule("permission", "maybe"), 422, "invalid-argument", "/permission"},
		"no permission":              {"POST", "/v1/acls", rule("permission", nil), 422, "invalid-argument", "/permission"},
		"a rule's own pattern field": {"POST", "/v1/acls", rule("pattern_type", "literal"), 422, "invalid-argument", "/pattern_type"},
		"delete every rule":          {"DELETE", "/v1/acls", nil, 422, "invalid-argument", "query:principal"},
		"delete by an empty field":   {"DELETE", "/v1/acls?principal=", nil, 422, "invalid-argument", "query:principal"},
	})
	wants(t, a.get("/v1/topics/n"), 404, "unknown-topic")
}

func TestMalformedBodiesOfEveryJSONRoute(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	for _, r := range routes() {
		if r.Body != route.JSON {
			continue
		}
		t.Run(r.ID, func(t *testing.T) {
			t.Parallel()
			a := a.with(t)
			path := rows[r.ID].path("any.thing")
			send := func(body any) *answer { return a.as(a.admin, r.Method, path, body) }
			for _, body := range []string{"", "  ", "{", `{"a":`, `{"a":1,}`, `{'a':1}`, `{"a":1} 2`, "{\"\xff\":1}", "[1,2", "nul"} {
				wants(t, send(body), 400, "malformed-body")
			}
			wants(t, a.Do(request{Method: r.Method, Path: path, Token: a.admin, Body: "", Header: map[string]string{"Content-Type": ""}}), 400, "malformed-body")
			for _, body := range []string{"[]", "1", `"x"`, "null", "true"} {
				wants(t, send(body), 422, "invalid-argument")
			}
			x := wants(t, send(`{"no_such_member":1}`), 422, "invalid-argument")
			require.Contains(t, pointers(t, x), "/no_such_member")
			x = wants(t, send(`{"no_such_member":1,"no_such_member":2}`), 422, "invalid-argument")
			require.Equal(t, []string{"/no_such_member"}, pointers(t, x))
			wants(t, send(depth(513)), 422, "invalid-argument")
			x = wants(t, a.as(a.admin, r.Method, path+"?no_such=1", "{}"), 422, "invalid-argument")
			require.Equal(t, []string{"query:no_such"}, pointers(t, x))
			for _, ct := range []string{"text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin1", "json"} {
				wants(t, a.Do(request{Method: r.Method, Path: path, Token: a.admin, Body: "{}", Header: map[string]string{"Content-Type": ct}}), 415, "unsupported-media-type")
			}
			big := `{"x":"` + strings.Repeat("x", 1<<20) + `"}`
			wants(t, a.Do(request{Method: r.Method, Path: path, Token: a.admin, Body: big, Chunked: true}), 413, "request-too-large")
		})
	}
}

// TestAContentLengthThatIsTooLargeIsRefusedUnread sends no body at all.
func TestAContentLengthThatIsTooLargeIsRefusedUnread(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	for _, r := range routes() {
		if r.Method == http.MethodGet {
			continue
		}
		limit := r.MaxBody
		if limit == 0 {
			limit = 1 << 20
		}
		c, err := net.Dial("tcp", strings.TrimPrefix(a.URL, "http://"))
		require.NoError(t, err)
		_, err = fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n",
			r.Method, concrete(r.Path), a.admin, limit+1)
		require.NoError(t, err)
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		require.NoError(t, err)
		require.Equal(t, 413, res.StatusCode, "%s %s", r.Method, r.Path)
		require.NoError(t, res.Body.Close())
		require.NoError(t, c.Close())
	}
}

func TestAChunkedProduceBodyHasALimit(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("bad.chunked", 1, nil)
	body := make([]byte, 64<<20+1)
	x := a.Do(request{Method: "POST", Path: path + "/records", Token: a.admin, Body: body, Chunked: true})
	wants(t, x, 413, "request-too-large")
}
