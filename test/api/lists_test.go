package api

import (
	"encoding/json"
	"fmt"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
)

// names reads one page and gives its items' names and the token of the next.
func (a *api) names(path, field string) (names []string, next string) {
	a.t.Helper()
	page := decoded(a.t, a.get(path), 200)
	names = []string{}
	for _, it := range page["items"].([]any) {
		names = append(names, it.(object)[field].(string))
	}
	next, _ = page["next_page_token"].(string)
	if next != "" {
		require.Regexp(a.t, `^[A-Za-z0-9._~-]+$`, next)
	}
	return names, next
}

func TestPagesCoverAList(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	want := []string{}
	for i := range 7 {
		name := fmt.Sprintf("page.%d", i)
		a.topic(name, 1+i%3, nil)
		want = append(want, name)
	}
	for _, sort := range []string{"", "name", "-name", "partitions", "-partitions", "size_bytes", "-records"} {
		seen, token := []string{}, ""
		for range 4 {
			path := "/v1/topics?prefix=page.&limit=2&sort=" + sort
			if sort == "" {
				path = "/v1/topics?prefix=page.&limit=2"
			}
			if token != "" {
				path += "&page_token=" + token
			}
			names, next := a.names(path, "name")
			require.LessOrEqual(t, len(names), 2)
			require.Equal(t, int64(7), number(t, decoded(t, a.get(path), 200)["total"]))
			seen = append(seen, names...)
			if token = next; token == "" {
				break
			}
		}
		require.Empty(t, token)
		require.ElementsMatch(t, want, seen, sort)
		switch sort {
		case "", "name":
			require.Equal(t, want, seen)
		case "-name":
			require.Equal(t, "page.6", seen[0])
		case "partitions":
			require.Equal(t, []string{"page.0", "page.3", "page.6", "page.1", "page.4", "page.2", "page.5"}, seen)
		case "-partitions":
			require.Equal(t, []string{"page.5", "page.2", "page.4", "page.1", "page.6", "page.3", "page.0"}, seen)
		}
	}
}

func TestPagingIsStableWhileTheListChanges(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	for _, n := range []string{"b", "d", "f", "h"} {
		a.topic("stable."+n, 1, nil)
	}
	const path = "/v1/topics?prefix=stable.&limit=2"
	first, token := a.names(path, "name")
	require.Equal(t, []string{"stable.b", "stable.d"}, first)
	a.topic("stable.a", 1, nil) // before the page: not seen
	a.topic("stable.e", 1, nil) // behind it: seen
	wants(t, a.remove("/v1/topics/stable.d"), 204, "")
	wants(t, a.remove("/v1/topics/stable.f"), 204, "")
	second, next := a.names(path+"&page_token="+token, "name")
	require.Equal(t, []string{"stable.e", "stable.h"}, second)
	require.Empty(t, next)
	for _, other := range []string{"/v1/topics?prefix=s&limit=2", "/v1/topics?prefix=stable.&sort=-name", "/v1/topics?prefix=stable.&q=x"} {
		x := wants(t, a.get(other+"&page_token="+token), 422, "invalid-argument")
		require.Equal(t, []string{"query:page_token"}, pointers(t, x))
	}
}

func TestListsFilterAndProject(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	for _, n := range []string{"filter.Alpha", "filter.beta", "filter.gAMMa"} {
		a.topic(n, 1, nil)
	}
	names, _ := a.names("/v1/topics?prefix=filter.&q=AMM", "name")
	require.Equal(t, []string{"filter.gAMMa"}, names)
	names, _ = a.names("/v1/topics?prefix=Filter.", "name")
	require.Empty(t, names)
	names, _ = a.names("/v1/topics?q=filter.b", "name")
	require.Equal(t, []string{"filter.beta"}, names)
	x := a.as(a.admin, "GET", "/v1/topics?prefix=filter.&fields=name,partitions&limit=1", nil)
	document := object{}
	x.JSON(t, &document)
	require.Equal(t, []any{object{"name": "filter.Alpha", "partitions": json.Number("1")}}, document["items"])
}

func TestOtherListsHaveTheSameForm(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	for i := range 3 {
		user := fmt.Sprintf("list.user.%d", i)
		a.user(user)
		a.rule(user, rule{"allow", "literal", "read", "topic", "list.topic"})
	}
	for _, c := range []struct{ path, field string }{
		{"/v1/users?prefix=list.user.", "username"},
		{"/v1/acls?resource_name=list.topic", "principal"},
	} {
		all, next := a.names(c.path, c.field)
		require.Len(t, all, 3)
		require.Empty(t, next)
		first, next := a.names(c.path+"&limit=2", c.field)
		rest, end := a.names(c.path+"&limit=2&page_token="+url.QueryEscape(next), c.field)
		require.Equal(t, all, append(first, rest...))
		require.Empty(t, end)
		down, _ := a.names(c.path+"&sort=-"+c.field, c.field)
		require.Equal(t, []string{all[2], all[1], all[0]}, down)
	}
	hosts, _ := a.names("/v1/brokers?sort=-id", "host")
	require.Len(t, hosts, 1)
	one := decoded(t, a.get("/v1/acls?principal=User:list.user.1&operation=read&permission=allow&host=*&pattern=literal&resource_type=topic"), 200)
	require.Equal(t, int64(1), number(t, one["total"]))
}

func TestTopicItemsTellWhatIsInThem(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("items.topic", 2, object{"retention.ms": "-1", "cleanup.policy": "compact,delete"})
	a.records(path, object{"key": "k", "value": "v"}, object{"key": "l", "value": "v"})
	item := decoded(t, a.get("/v1/topics?prefix=items.topic"), 200)["items"].([]any)[0].(object)
	require.Equal(t, int64(2), number(t, item["records"]))
	require.Positive(t, number(t, item["size_bytes"]))
	require.Equal(t, int64(-1), number(t, item["retention_ms"]))
	require.Equal(t, "compact,delete", item["cleanup_policy"])
	require.Equal(t, "healthy", item["health"])
	require.Equal(t, false, item["internal"])
	require.Nil(t, item["error"])
	require.Equal(t, decoded(t, a.get(path), 200)["id"], item["id"])
	require.Subset(t, item["actions"], []any{"read", "write", "alter", "alter-configs", "delete"})
}
