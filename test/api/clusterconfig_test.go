package api

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// setting is the item of that name in an answer with settings.
func setting(t testing.TB, x *answer, name string) object {
	t.Helper()
	for _, it := range decoded(t, x, 200)["items"].([]any) {
		if it.(object)["name"] == name {
			return it.(object)
		}
	}
	require.Fail(t, "no setting "+name, "%s", excerpt(string(x.Body)))
	return nil
}

func TestEveryTopicConfigKeyIsDocumented(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("documented.keys", 1, nil)
	token := a.login2("documented.nobody")
	of := decoded(t, a.get(path+"/config"), 200)["items"].([]any)
	page := decoded(t, a.as(token, "GET", "/v1/topic-configs?limit=1000", nil), 200)
	all := page["items"].([]any)
	require.Len(t, all, len(of))
	require.Nil(t, page["next_page_token"])
	require.Equal(t, int64(len(of)), number(t, page["total"]))
	for i, it := range all {
		require.Equal(t, of[i], it, "an empty topic has the same settings")
		require.NotEmpty(t, it.(object)["doc"])
		require.Equal(t, "topic", it.(object)["scope"])
	}
	names, next := a.names("/v1/topic-configs?prefix=segment.&sort=-name&limit=2", "name")
	require.Equal(t, []string{"segment.ms", "segment.jitter.ms"}, names)
	names, _ = a.names("/v1/topic-configs?prefix=segment.&sort=-name&limit=2&page_token="+next, "name")
	require.Equal(t, []string{"segment.index.bytes", "segment.bytes"}, names)
	require.Equal(t, []any{object{"name": "cleanup.policy", "allowed_values": []any{"delete", "compact"}}},
		decoded(t, a.get("/v1/topic-configs?q=LEANUP&fields=name,allowed_values"), 200)["items"])
	wants(t, a.get("/v1/topic-configs?sort=value"), 422, "invalid-argument")
}

func TestClusterSettingsAreTheDefaultsOfTopics(t *testing.T) {
	t.Parallel()
	a := ownAPI(t)
	const config = "/v1/cluster/config"
	follows, own := a.topic("follows", 1, nil), a.topic("own", 1, object{"max.message.bytes": 5000})
	first := wants(t, a.get(config), 200, "")
	require.Equal(t, "default", setting(t, first, "max.message.bytes")["source"])
	require.Equal(t, "cluster", setting(t, first, "num.partitions")["scope"])

	x := wants(t, a.patch(config, object{"set": object{"max.message.bytes": 1000, "retention.ms": "77", "write.caching": false}}), 200, "")
	require.Equal(t, int64(3), number(t, decoded(t, x, 200)["affected_topics"]), "retention.ms of both, and max.message.bytes of the audit's")
	require.Equal(t, x.Header.Get("ETag"), a.get(config).Header.Get("ETag"))
	for _, c := range []struct{ path, name, value, source string }{
		{config, "max.message.bytes", "1000", "cluster"}, {follows + "/config", "max.message.bytes", "1000", "cluster"},
		{own + "/config", "max.message.bytes", "5000", "topic"}, {own + "/config", "retention.ms", "77", "cluster"},
		{follows + "/config", "segment.ms", "604800000", "default"}, {"/v1/topic-configs", "retention.ms", "77", "cluster"},
	} {
		got := setting(t, a.get(c.path), c.name)
		require.Equal(t, []any{c.value, c.source}, []any{got["value"], got["source"]}, c)
	}
	require.Equal(t, "604800000", setting(t, a.get(follows+"/config"), "retention.ms")["default"])

	large := object{"records": []object{{"value": strings.Repeat("x", 2000)}}}
	require.Eventually(t, func() bool { return a.post(follows+"/records", large).Status == 413 }, 10*time.Second, 10*time.Millisecond,
		"the open log follows")
	wants(t, a.post(own+"/records", large), 200, "")
	wants(t, a.patch(config, object{"unset": []string{"max.message.bytes"}}), 200, "")
	require.Eventually(t, func() bool { return a.post(follows+"/records", large).Status == 200 }, 10*time.Second, 10*time.Millisecond)
	require.Equal(t, "77", setting(t, a.get(config), "retention.ms")["value"], "only the named keys change")

	wants(t, a.patch(config, object{"set": object{"num.partitions": 3, "default.replication.factor": 1}}), 200, "")
	before := wants(t, a.get(config), 200, "")
	a.Restart()
	a.admin = a.Admin()
	require.JSONEq(t, string(before.Body), string(wants(t, a.get(config), 200, "").Body), "it survives a restart")
	made := decoded(t, a.post("/v1/topics", object{"name": "made"}), 201)
	require.Len(t, made["partitions"], 3)
	wants(t, a.patch(config, object{"set": object{"default.replication.factor": 2}}), 200, "")
	x = wants(t, a.post("/v1/topics", object{"name": "too.many"}), 422, "invalid-argument")
	require.Equal(t, []string{"/replication_factor"}, pointers(t, x))
}

func TestClusterSettingsHaveATagAndAPlan(t *testing.T) {
	t.Parallel()
	a := ownAPI(t)
	const config = "/v1/cluster/config"
	a.topic("planned", 1, nil)
	old := wants(t, a.get(config), 200, "").Header.Get("ETag")
	require.Nil(t, decoded(t, a.get(config), 200)["affected_topics"])
	plan := wants(t, a.patch(config+"?dry_run=true", object{"set": object{"segment.ms": 5}}), 200, "")
	require.Equal(t, "5", setting(t, plan, "segment.ms")["value"])
	require.Equal(t, int64(2), number(t, decoded(t, plan, 200)["affected_topics"]), "with the audit's")
	require.Equal(t, old, plan.Header.Get("ETag"))
	require.Equal(t, "default", setting(t, a.get(config), "segment.ms")["source"], "a plan changes nothing")
	wants(t, a.do("PATCH", config+"?dry_run=true", object{"set": object{}}, headers{"If-Match": `"x"`}), 412, "etag-mismatch")
	changed := wants(t, a.do("PATCH", config, object{"set": object{"segment.ms": 5}}, headers{"If-Match": old}), 200, "")
	now := changed.Header.Get("ETag")
	require.NotEqual(t, old, now)
	wants(t, a.do("PATCH", config, object{"set": object{"segment.ms": 6}}, headers{"If-Match": old}), 412, "etag-mismatch")
	again := wants(t, a.do("PATCH", config, object{"set": object{"segment.ms": "5"}}, headers{"If-Match": now}), 200, "")
	require.Equal(t, now, again.Header.Get("ETag"), "a change to the same state writes nothing")
	require.Equal(t, int64(0), number(t, decoded(t, again, 200)["affected_topics"]))
}

func TestClusterSettingsRefuseBadInput(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	nobody := a.login2("cluster.config.nobody")
	for name, c := range map[string]struct {
		body    any
		status  int
		pointer string
	}{
		"empty":           {"", 400, ""},
		"cut":             {`{"set":`, 400, ""},
		"unknown field":   {`{"sets":{}}`, 422, "/sets"},
		"unknown key":     {object{"set": object{"no.such.key": 1}}, 422, "/set/no.such.key"},
		"unknown unset":   {object{"unset": []string{"no.such.key"}}, 422, "/unset/0"},
		"a topic's alone": {object{"set": object{"follower.replication.throttled.replicas": "*"}}, 422, "/set/follower.replication.throttled.replicas"},
		"out of range":    {object{"set": object{"segment.bytes": 1}}, 422, "/set/segment.bytes"},
		"own, too low":    {object{"set": object{"num.partitions": 0}}, 422, "/set/num.partitions"},
		"own, no number":  {object{"set": object{"log.cleaner.backoff.ms": "often"}}, 422, "/set/log.cleaner.backoff.ms"},
		"no value":        {`{"set":{"retention.ms":null}}`, 422, "/set/retention.ms"},
		"an object":       {`{"set":{"retention.ms":{}}}`, 422, "/set/retention.ms"},
		"both":            {object{"set": object{"retention.ms": 1}, "unset": []string{"retention.ms"}}, 422, "/unset/0"},
		"not allowed":     {object{"set": object{"cleanup.policy": "shred"}}, 422, "/set/cleanup.policy"},
	} {
		for _, token := range []string{a.admin, nobody} { // the request alone shows it: before rights
			x := a.as(token, "PATCH", "/v1/cluster/config", c.body)
			wants(t, x, c.status, "")
			if c.pointer != "" {
				require.Equal(t, []string{c.pointer}, pointers(t, x), name)
			}
		}
	}
	wants(t, a.patch("/v1/cluster/config?dry_run=maybe", object{}), 422, "invalid-argument")
	wants(t, a.as(nobody, "PATCH", "/v1/cluster/config", object{}), 403, "forbidden")
	wants(t, a.as(nobody, "GET", "/v1/cluster/config", nil), 403, "forbidden")
	require.Empty(t, setting(t, a.get("/v1/cluster/config"), "num.partitions")["allowed_values"])
}
