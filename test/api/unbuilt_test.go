package api

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestUnbuiltRoutesAnswer501(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	token := a.login2("unbuilt.user")
	for _, r := range routes() {
		if r.Built() {
			continue
		}
		t.Run(r.Method+" "+r.Path, func(t *testing.T) {
			t.Parallel()
			a := a.with(t)
			for _, token := range []string{token, a.admin} { // before rights, which are not known yet
				x := wants(t, a.as(token, r.Method, concrete(r.Path), nil), 501, "not-implemented")
				checkNotApplied(t, r.Method, x)
				if r.Method == http.MethodGet && !r.Stream {
					wants(t, a.as(token, "HEAD", concrete(r.Path), nil), 501, "")
				}
			}
			x := a.Do(request{Method: r.Method, Path: concrete(r.Path) + "?what=ever", Token: token,
				Header: map[string]string{"Accept": "text/event-stream", "Content-Type": "application/x-ndjson"}})
			wants(t, x, 501, "not-implemented")
		})
	}
}

func checkNotApplied(t *testing.T, method string, x *answer) {
	t.Helper()
	var p object
	x.JSON(t, &p)
	require.Equal(t, false, p["retryable"])
	if method != http.MethodGet {
		require.Equal(t, "not-applied", p["outcome"])
	}
}

// login2 makes a user and logs in.
func (a *api) login2(name string) string {
	a.t.Helper()
	a.user(name)
	return a.login(name)
}

func TestUnbuiltPartsOfProduceAnswer501AndStoreNothing(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("unbuilt.produce", 1, nil)
	body := `{"records":[{"value":"x"}]}`
	t.Run("rows", func(t *testing.T) {
		for _, c := range []struct{ name, query, pointer, header, value string }{
			{"Tidewire-Transaction", "", "header:Tidewire-Transaction", "Tidewire-Transaction", "t"},
		} {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				a := a.with(t)
				for _, p := range []string{path + "/records", path + "/partitions/0/records"} {
					q := request{Method: "POST", Path: p + c.query, Token: a.admin, Body: body, Header: map[string]string{}}
					if c.header != "" {
						q.Header[c.header] = c.value
					}
					x := wants(t, a.Do(q), 501, "not-implemented")
					checkNotApplied(t, "POST", x)
					require.Equal(t, []string{c.pointer}, pointers(t, x))
				}
			})
		}
	})
	require.Zero(t, a.logEnd(path, 0))
}

// logEnd is a partition's log end offset.
func (a *api) logEnd(path string, partition int) int64 {
	a.t.Helper()
	parts := decoded(a.t, a.get(path), 200)["partitions"].([]any)
	return number(a.t, parts[partition].(object)["log_end_offset"])
}
