package api

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewire/api/problem"
	"tidewire/api/recordjson"
	"tidewire/api/rest"
	"tidewire/broker"
	"tidewire/internal/model"
	"tidewire/storage/record"
)

func TestAPageHas100ItemsUnlessAskedForMore(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	for i := range 101 {
		a.rule(fmt.Sprint("hundred.", i), rule{"allow", "literal", "read", "topic", "hundred.topic"})
	}
	page := decoded(t, a.get("/v1/acls?resource_name=hundred.topic"), 200)
	require.Len(t, page["items"], 100)
	require.Equal(t, int64(101), number(t, page["total"]))
	require.Len(t, decoded(t, a.get("/v1/acls?resource_name=hundred.topic&page_token="+page["next_page_token"].(string)), 200)["items"], 1)
	page = decoded(t, a.get("/v1/acls?resource_name=hundred.topic&limit=1000"), 200)
	require.Len(t, page["items"], 101)
	require.Nil(t, page["next_page_token"])
}

// TestTopicsAreNeverCreatedByUse uses a topic that is not there at every door that names one.
func TestTopicsAreNeverCreatedByUse(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	const path = "/v1/topics/never.there"
	for _, media := range []string{"application/json", ndjson, "text/plain"} {
		for _, acks := range []string{"all", "leader", "none"} {
			x := a.do("POST", path+"/records?acks="+acks, []byte(`{"records":[{"value":1}]}`), headers{"Content-Type": media})
			wants(t, x, 404, "unknown-topic")
		}
	}
	wants(t, a.batches(path+"/partitions/0/records", batch(t, record.None, "v")), 404, "unknown-topic")
	wants(t, a.once("k", path+"/records", `{"records":[{"value":1}]}`, nil), 404, "unknown-topic")
	for _, use := range []string{"/partitions/0/records?offset=0", "/partitions/0/records?offset=latest&wait_ms=1", "/records", "/records?from=latest", "/partitions/0/records/0", "/offsets?timestamp=latest", "/config", ""} {
		wants(t, a.get(path+use), 404, "unknown-topic")
	}
	wants(t, a.patch(path, object{"partitions": 3}), 404, "unknown-topic")
	wants(t, a.patch(path+"/config", object{"set": object{"retention.ms": 1}}), 404, "unknown-topic")
	_, status := a.socket("?topics=never.there", http.Header{"Authorization": {"Bearer " + a.admin}})
	require.Equal(t, 404, status)
	require.Empty(t, decoded(t, a.get("/v1/topics?internal=true&prefix=never."), 200)["items"])
}

func TestATopicTellsOfItsPartitionsAndTheirReplicas(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	made := decoded(t, a.post("/v1/topics", object{"name": "shape.topic"}), 201)
	require.Len(t, made["partitions"], 1, "one partition unless asked for more")
	require.Equal(t, num(1), made["replication_factor"], "three where there are as many nodes, else one")
	require.Regexp(t, `^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`, made["id"])
	a.records("/v1/topics/shape.topic", object{"value": "a"}, object{"value": "b"})
	got := decoded(t, a.get("/v1/topics/shape.topic"), 200)
	require.Equal(t, false, got["internal"])
	part := got["partitions"].([]any)[0].(object)
	for member, want := range map[string]any{
		"partition": num(0), "leader": num(1), "replicas": []any{num(1)}, "isr": []any{num(1)}, "log_start_offset": num(0),
		"high_watermark": num(2), "last_stable_offset": num(2), "log_end_offset": num(2), "segments": num(1),
	} {
		require.Equal(t, want, part[member], member)
	}
	require.Positive(t, number(t, part["size_bytes"]))
	require.GreaterOrEqual(t, number(t, part["leader_epoch"]), int64(0))
	states := part["replica_states"].([]any)
	require.Len(t, states, 1)
	state := states[0].(object)
	require.Equal(t, []any{num(1), num(2), num(0)}, []any{state["broker"], state["log_end_offset"], state["lag"]})
	require.Contains(t, state, "last_caught_up_ms")
}

// TestTheSettingsOfTopicsAreKafkas has the names from Kafka's documentation of topic configs;
// what is about tiered storage has no place here.
func TestTheSettingsOfTopicsAreKafkas(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	kafkas := []string{
		"cleanup.policy", "compression.gzip.level", "compression.lz4.level", "compression.type", "compression.zstd.level", "delete.retention.ms",
		"file.delete.delay.ms", "flush.messages", "flush.ms", "follower.replication.throttled.replicas", "index.interval.bytes",
		"leader.replication.throttled.replicas", "max.compaction.lag.ms", "max.message.bytes", "message.timestamp.after.max.ms",
		"message.timestamp.before.max.ms", "message.timestamp.type", "min.cleanable.dirty.ratio", "min.compaction.lag.ms", "min.insync.replicas",
		"preallocate", "retention.bytes", "retention.ms", "segment.bytes", "segment.index.bytes", "segment.jitter.ms", "segment.ms",
		"unclean.leader.election.enable",
	}
	names, _ := a.names("/v1/topic-configs?limit=1000", "name")
	require.Subset(t, names, kafkas)
	for _, it := range decoded(t, a.get("/v1/topic-configs?limit=1000"), 200)["items"].([]any) {
		for _, member := range []string{"value", "default"} {
			require.IsType(t, "", it.(object)[member], "values are strings")
		}
	}
	for _, item := range []object{{"name": "max.message.bytes", "default": "1048588", "unit": "bytes"}, {"name": "retention.ms", "default": "604800000", "unit": "ms"}} {
		got := setting(t, a.get("/v1/topic-configs"), item["name"].(string))
		for member, want := range item {
			require.Equal(t, want, got[member], member)
		}
	}
}

func TestAUserIsNoAdministratorUnlessMadeOne(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	create := func(body object) object {
		return decoded(t, a.post("/v1/users", with(body, "password", userPassword)), 201)
	}
	plain := create(object{"username": "flags.plain"})
	require.Equal(t, []any{false, false}, []any{plain["admin"], plain["disabled"]})
	require.NotContains(t, plain, "password")
	require.Equal(t, true, create(object{"username": "flags.admin", "admin": true})["admin"])
	const path = "/v1/users/flags.plain"
	both := decoded(t, a.patch(path, object{"admin": true, "disabled": true}), 200)
	require.Equal(t, []any{true, true}, []any{both["admin"], both["disabled"]})
	one := decoded(t, a.patch(path, object{"admin": false}), 200)
	require.Equal(t, []any{false, true}, []any{one["admin"], one["disabled"]}, "only the named member changes")
	require.Equal(t, one["etag"], decoded(t, a.patch(path, object{}), 200)["etag"])
}

func TestEveryKindOfRuleIsTaken(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	operations := []string{
		"read", "write", "create", "delete", "alter", "describe", "describe-configs", "alter-configs", "cluster-action", "idempotent-write", "all",
	}
	for _, resource := range []string{"topic", "group", "transactional-id", "cluster"} {
		name := "kinds"
		if resource == "cluster" {
			name = "kafka-cluster"
		}
		for _, op := range operations {
			for _, permission := range []string{"allow", "deny"} {
				body := object{
					"principal": "User:kinds", "resource_type": resource, "resource_name": name, "pattern": "literal", "operation": op, "permission": permission, "host": "*",
				}
				made := decoded(t, a.post("/v1/acls", body), 201)
				for member, want := range body {
					require.Equal(t, want, made[member], member)
				}
				require.Equal(t, made, decoded(t, a.post("/v1/acls", body), 200), "an existing rule")
			}
		}
	}
	prefixed := object{"principal": "User:kinds", "resource_type": "topic", "resource_name": "kinds", "pattern": "prefixed", "operation": "read", "permission": "allow", "host": "10.0.0.1"}
	wants(t, a.post("/v1/acls", prefixed), 201, "")
	plain := decoded(t, a.post("/v1/acls", object{"principal": "User:kinds2", "resource_type": "topic", "resource_name": "kinds", "operation": "read", "permission": "allow"}), 201)
	require.Equal(t, []any{"literal", "*"}, []any{plain["pattern"], plain["host"]}, "unless another is given")
}

func TestRulesAreDeletedByAnExactFilter(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	for _, name := range []string{"exact.a", "exact.ab", "exact."} {
		a.rule("exact.user", rule{"allow", "literal", "read", "topic", name})
		a.rule("exact.user", rule{"allow", "prefixed", "read", "topic", name})
		a.rule("exact.user", rule{"deny", "literal", "write", "topic", name})
	}
	a.rule("exact.user2", rule{"allow", "literal", "read", "topic", "exact.a"})
	gone := func(filter string, want int) {
		t.Helper()
		require.Len(t, decoded(t, a.remove("/v1/acls?"+filter), 200)["deleted"], want, filter)
	}
	gone("principal=User:exact", 0)
	gone("resource_name=exact.a&pattern=prefixed", 1)
	gone("principal=User:exact.user&resource_name=exact.a&operation=read", 1)
	gone("principal=User:exact.user&permission=deny", 3)
	gone("principal=User:exact.user&operation=all", 0)
	gone("principal=User:exact.user&host=10.0.0.1", 0)
	gone("principal=User:exact.user", 4)
	require.Equal(t, int64(1), number(t, decoded(t, a.get("/v1/acls?principal=User:exact.user2"), 200)["total"]))
}

func TestTheClusterIsToldAtAGlance(t *testing.T) {
	t.Parallel()
	a := ownAPI(t, "--rack", "r1")
	a.topic("glance.a", 3, nil)
	a.topic("glance.b", 2, nil)
	got := decoded(t, a.get("/v1/cluster"), 200)
	require.NotEmpty(t, got["cluster_id"])
	require.Equal(t, num(1), got["controller"])
	for member, want := range map[string]int64{
		"topics": 3, "partitions": 6, "offline_partitions": 0, "under_replicated_partitions": 0, "under_min_isr_partitions": 0,
	} {
		require.Equal(t, want, number(t, got[member]), "%s, with the audit's", member)
	}
	require.Len(t, got["brokers"], 1)
	b := got["brokers"].([]any)[0].(object)
	require.Equal(t, []any{num(1), "r1", "online", num(6), num(6)}, []any{b["id"], b["rack"], b["state"], b["leaders"], b["replicas"]})
	require.Positive(t, number(t, b["disk_free_bytes"]))
	one := decoded(t, a.get("/v1/brokers/1"), 200)
	require.Equal(t, b["version"], one["version"])
	require.Equal(t, one["host"], decoded(t, a.get("/v1/brokers"), 200)["items"].([]any)[0].(object)["host"])
}

func TestInfoTellsVersionTimeLimitsAndFeatures(t *testing.T) {
	t.Parallel()
	a := ownAPI(t, "--http-inflight-bytes", "100MiB")
	got := decoded(t, a.as(a.login2("curious"), "GET", "/v1/info", nil), 200)
	require.NotEmpty(t, got["version"])
	at, err := time.Parse(time.RFC3339, got["server_time"].(string))
	require.NoError(t, err)
	require.WithinDuration(t, time.Now(), at, time.Minute)
	require.Equal(t, object{
		"max_request_bytes": num(64 << 20), "max_records_per_request": num(1_000_000), "max_fetch_records": num(10_000), "max_fetch_bytes": num(64 << 20),
		"max_wait_ms": num(60_000), "max_partitions": num(10_000), "max_json_depth": num(512), "max_topics_per_deletion": num(1000),
		"max_inflight_bytes": num(100 << 20), "max_websockets": num(10_000),
	}, got["limits"])
	require.Contains(t, got["features"], "rest-produce-lines")
}

// TestASilentStreamGivesSignsOfLife waits for those of both forms: a comment of SSE, a line of
// progress in NDJSON.
func TestASilentStreamGivesSignsOfLife(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("silent", 1, nil)
	for _, media := range streamTypes {
		t.Run(media, func(t *testing.T) {
			t.Parallel()
			a := a.with(t)
			began := time.Now()
			s := a.follow(a.admin, media, path+"/records?follow=true")
			sign := ""
			for sign == "" {
				sign = s.line()
			}
			require.Less(t, time.Since(began), 30*time.Second, "every 15 s")
			if media == streamTypes[0] {
				require.True(t, strings.HasPrefix(sign, `{"progress":{"cursor":"`), sign)
				return
			}
			require.Equal(t, ":", sign)
		})
	}
}

func TestATypeThatProduceRefusesComesWithAHint(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("hints", 1, nil)
	for _, given := range []string{"", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"} {
		x := wants(t, a.do("POST", path+"/records", []byte("a=b"), headers{"Content-Type": given}), 415, "unsupported-media-type")
		detail := decoded(t, x, 415)["detail"].(string)
		require.Contains(t, detail, "application/json", "%q", given)
	}
}

// TestA429StandsBehindWhatIsKnownOfTheRequestsForm and before all else.
func TestA429StandsBehindWhatIsKnownOfTheRequestsForm(t *testing.T) {
	t.Parallel()
	a, _ := clockedAPI(t)
	a.user("first.in.line")
	token := a.login("first.in.line")
	a.quota("first.in.line", 0, 0, 1)
	wants(t, a.as(token, "GET", "/v1/auth/me", nil), 200, "")
	const records = "/v1/topics/none/records"
	for name, c := range map[string]struct {
		q      request
		status int
	}{
		"404 of a route before 429": {request{Method: "GET", Path: "/v1/nothing", Token: token}, 404},
		"405 before 429":            {request{Method: "PUT", Path: "/v1/topics", Token: token}, 405},
		"401 before 429":            {request{Method: "GET", Path: "/v1/topics", Token: token + "x"}, 401},
		"415 before 429":            {request{Method: "POST", Path: "/v1/topics", Token: token, Body: "x", Header: headers{"Content-Type": "text/plain"}}, 415},
		"406 before 429":            {request{Method: "GET", Path: "/v1/topics", Token: token, Header: headers{"Accept": "image/png"}}, 406},
		"429 before 501":            {request{Method: "GET", Path: "/v1/groups", Token: token}, 429},
		"429 before 501 of a part":  {request{Method: "POST", Path: records, Token: token, Body: "{", Header: headers{"Tidewire-Transaction": "t"}}, 429},
		"429 before 400":            {request{Method: "POST", Path: records, Token: token, Body: "{"}, 429},
		"429 before 422":            {request{Method: "GET", Path: "/v1/topics?limit=0", Token: token}, 429},
		"429 before 413 of chunks":  {request{Method: "POST", Path: "/v1/topics", Token: token, Body: strings.Repeat(" ", 1<<20+1), Chunked: true}, 429},
		"429 before 403":            {request{Method: "GET", Path: "/v1/users", Token: token}, 429},
		"429 before 404":            {request{Method: "GET", Path: "/v1/topics/none", Token: token}, 429},
	} {
		require.Equal(t, c.status, a.Do(c.q).Status, name)
	}
}

func TestRecordsThatFailedWithDifferentCodesAreToldOneByOne(t *testing.T) {
	t.Parallel()
	full := func(o model.Outcome) error { return model.Errorf(model.StorageFull, "the disk is full").WithOutcome(o) }
	timeout := model.Errorf(model.Timeout, "too late")
	results := func(errs ...error) (out []broker.RecordResult) {
		for _, err := range errs {
			out = append(out, broker.RecordResult{Err: err})
		}
		return out
	}
	require.NoError(t, rest.CommonFailure(results(full(model.NotApplied), timeout)), "they are told at their places")
	one := model.AsError(rest.CommonFailure(results(full(model.NotApplied), full(model.NotApplied))))
	require.Equal(t, model.StorageFull, one.Code)
	require.Equal(t, model.NotApplied, one.EffectiveOutcome())
	one = model.AsError(rest.CommonFailure(results(full(model.NotApplied), full(model.Unknown))))
	require.Equal(t, model.Unknown, one.EffectiveOutcome(), "the careful one speaks for all")

	b, status, err := rest.AppendResults(nil, &recordjson.Results{}, results(full(model.NotApplied), timeout), problem.Occurrence{Write: true})
	require.NoError(t, err)
	require.Equal(t, 207, status)
	x := &answer{Status: status, Header: http.Header{}, Body: append(append([]byte(`{"results":`), b...), '}')}
	var got []any
	for _, r := range decoded(t, x, 207)["results"].([]any) {
		require.Len(t, r, 1)
		p := r.(object)["problem"].(object)
		got = append(got, p["code"], p["outcome"])
	}
	require.Equal(t, []any{"storage-full", "not-applied", "timeout", "unknown"}, got)
}

// TestARepeatOfWhatWasStoredInPartStoresTheRest takes one of two partitions back to where it
// was before the request, as a crash may that lost what was not synced.
func TestARepeatOfWhatWasStoredInPartStoresTheRest(t *testing.T) {
	t.Parallel()
	a := ownAPI(t)
	path := a.topic("part", 2, nil)
	kept, stored := t.TempDir(), filepath.Join("topics", "part-0")
	restarted := func(meanwhile func()) {
		a.Stop()
		meanwhile()
		a.Resume()
		a.admin = a.Admin()
	}
	restarted(func() { require.NoError(t, os.CopyFS(kept, os.DirFS(a.Dir))) })
	body := `{"records":[{"value":"a","partition":0},{"value":"b","partition":1},{"value":"c","partition":0}]}`
	first := a.once("k", path+"/records", body, nil)
	decoded(t, first, 200)
	restarted(func() {
		require.NoError(t, os.RemoveAll(filepath.Join(kept, stored)))
		require.NoError(t, os.Rename(filepath.Join(a.Dir, stored), filepath.Join(kept, stored)))
		entries, err := os.ReadDir(kept)
		require.NoError(t, err)
		for _, e := range entries {
			if e.Name() != "meta" { // the metadata lose nothing
				require.NoError(t, os.RemoveAll(filepath.Join(a.Dir, e.Name())))
				require.NoError(t, os.Rename(filepath.Join(kept, e.Name()), filepath.Join(a.Dir, e.Name())))
			}
		}
	})
	require.Equal(t, []int64{2, 0}, a.ends(path, 2))
	second := a.once("k", path+"/records", body, nil)
	results := decoded(t, second, 200)["results"].([]any)
	require.Equal(t, "partial", replayed(second))
	require.Equal(t, decoded(t, first, 200)["results"].([]any)[0], results[0])
	require.Equal(t, []int64{2, 1}, a.ends(path, 2))
	third := a.once("k", path+"/records", body, nil)
	require.Equal(t, "true", replayed(third))
	require.Equal(t, results, decoded(t, third, 200)["results"])
}

// TestEveryReadOfRecordsHasTheSameRanges compares fetch with the read over all partitions.
func TestEveryReadOfRecordsHasTheSameRanges(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("ranges", 1, nil)
	a.records(path, object{"value": "v"})
	for _, read := range []string{"/partitions/0/records?offset=0&", "/records?"} {
		for query, status := range map[string]int{
			"max_records=1": 200, "max_records=10000": 200, "max_records=0": 422, "max_records=10001": 422, "max_records=-1": 422, "max_records=1e3": 422,
			"max_bytes=1": 200, "max_bytes=67108864": 200, "max_bytes=0": 422, "max_bytes=67108865": 422,
			"isolation=read_committed": 200, "isolation=read_uncommitted": 200, "isolation=": 422,
			"encoding=auto": 200, "encoding=json": 200, "encoding=text": 200, "encoding=base64": 200, "encoding=": 422,
			"key_encoding=auto&header_encoding=auto": 200, "key_encoding=text&header_encoding=base64": 200, "header_encoding=x": 422,
		} {
			require.Equal(t, status, a.get(path+read+query).Status, "%s%s", read, query)
		}
	}
	page := decoded(t, a.get(path+"/partitions/0/records?offset=0"), 200)
	require.ElementsMatch(t, []string{"records", "next_offset", "high_watermark", "last_stable_offset", "log_start_offset"}, keysOf(page))
	require.ElementsMatch(t, []string{"topic", "partition", "offset", "timestamp", "timestamp_type", "key", "key_encoding", "value", "value_encoding", "headers"},
		keysOf(page["records"].([]any)[0].(object)))
}

func keysOf(o object) (out []string) {
	for k := range o {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// TestAFetchHas500RecordsUnlessAskedForMore and a page over all partitions 100.
func TestAFetchHas500RecordsUnlessAskedForMore(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("five.hundred", 1, nil)
	records := make([]object, 501)
	for i := range records {
		records[i] = object{"value": "v"}
	}
	a.records(path, records...)
	require.Len(t, decoded(t, a.get(path+"/partitions/0/records?offset=0"), 200)["records"], 500)
	require.Len(t, a.browse(path, "").Records, 100)
	large := make([]object, 30)
	for i := range large {
		large[i] = object{"value": strings.Repeat("x", 100_000)}
	}
	path = a.topic("one.mebibyte", 1, nil)
	a.records(path, large[:8]...)
	a.records(path, large[8:16]...)
	require.Len(t, decoded(t, a.get(path+"/partitions/0/records?offset=0"), 200)["records"], (1<<20)/100_000, "1 MiB of them")
}

// TestTheAuditLogIsAListLikeOthers sorts, narrows and projects it.
func TestTheAuditLogIsAListLikeOthers(t *testing.T) {
	t.Parallel()
	a := ownAPI(t)
	for i := range 12 {
		a.user(fmt.Sprintf("audited.%02d", i))
	}
	down, up := a.entries("limit=5"), a.entries("limit=5&sort=time")
	require.Greater(t, len(up), 12)
	slices.Reverse(down)
	require.Equal(t, down, up, "the other way round, page by page")
	require.Equal(t, a.entries("limit=4"), a.entries("limit=4&sort=-time"))
	require.Len(t, a.entries("prefix=user:audited.0"), 10)
	require.Len(t, a.entries("prefix=user:audited.0&sort=time&limit=3"), 10)
	require.Empty(t, a.entries("prefix=audited"))
	for _, it := range a.entries("fields=time,resource") {
		require.Len(t, it, 2)
	}
	mid, err := time.Parse(time.RFC3339Nano, up[6]["time"].(string))
	require.NoError(t, err)
	since := fmt.Sprint(mid.UnixMilli())
	from, to := a.entries("sort=time&limit=3&from="+since), a.entries("sort=time&limit=3&to="+since)
	require.Equal(t, up, append(to, from...))
	first := decoded(t, a.get("/v1/audit?limit=1"), 200)["next_page_token"].(string)
	wants(t, a.get("/v1/audit?limit=1&sort=time&page_token="+first), 422, "invalid-argument")
}
