package api

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPartitionsAreListedByWhatIsAskedFor(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	a.topic("parted.a", 3, nil)
	a.topic("parted.b", 12, nil)
	list := func(token, query string) (out []string, next string) {
		page := decoded(t, a.as(token, "GET", "/v1/partitions?prefix=parted.&"+query, nil), 200)
		for _, it := range page["items"].([]any) {
			o := it.(object)
			out = append(out, fmt.Sprintf("%s:%d", o["topic"], number(t, o["partition"])))
		}
		next, _ = page["next_page_token"].(string)
		return out, next
	}
	all, _ := list(a.admin, "")
	require.Len(t, all, 15)
	require.Equal(t, []string{"parted.a:0", "parted.a:1", "parted.a:2", "parted.b:0", "parted.b:1"}, all[:5])
	require.Equal(t, []string{"parted.b:10", "parted.b:11"}, all[13:], "by number, not by its digits")

	var paged []string
	for token := ""; ; {
		query := "limit=4"
		if token != "" {
			query += "&page_token=" + token
		}
		some, next := list(a.admin, query)
		paged = append(paged, some...)
		if token = next; token == "" {
			break
		}
	}
	require.Equal(t, all, paged)

	for query, want := range map[string]int{
		"health=healthy": 15, "health=unhealthy": 0, "health=offline,healthy": 15, "health=under-replicated": 0,
		"broker=1": 15, "broker=2": 0, "q=d.B": 12, "health=healthy&broker=1&q=parted.a": 3,
	} {
		got, _ := list(a.admin, query)
		require.Len(t, got, want, query)
	}
	for _, query := range []string{"health=", "health=ill", "health=healthy,", "broker=", "broker=-1", "broker=x", "broker=9999999999", "sort=partition", "what=x"} {
		wants(t, a.get("/v1/partitions?"+query), 422, "invalid-argument")
	}

	// Who may not describe a topic does not see its partitions, nor their number.
	a.user("parted.reader")
	reader := a.login("parted.reader")
	a.rule("parted.reader", rule{"allow", "literal", "read", "topic", "parted.a"})
	page := decoded(t, a.as(reader, "GET", "/v1/partitions", nil), 200)
	require.Equal(t, int64(3), number(t, page["total"]))
	first := page["items"].([]any)[0].(object)
	require.Equal(t, []any{"read"}, first["actions"])
	require.Equal(t, "parted.a", first["topic"])
	require.Equal(t, int64(1), number(t, first["leader"]))
	require.Equal(t, int64(1), number(t, first["min_insync_replicas"]))
}
