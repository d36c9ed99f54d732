package web

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"tidewire/ui"
)

func TestPages(t *testing.T) {
	t.Parallel()
	tree, err := ui.Placeholder()
	if err != nil {
		t.Fatal(err)
	}
	h, err := pagesOf("/x/y", tree, false)
	if err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string]struct {
		method, path   string
		status         int
		location, body string
	}{
		"the root leads to the console":            {"GET", "/", 302, "/x/y/ui/", ""},
		"the console's address without a slash":    {"GET", "/ui", 301, "/x/y/ui/", ""},
		"the console":                              {"GET", "/ui/", 200, "", "<h1>Tidewire</h1>"},
		"a deep link is the console":               {"GET", "/ui/topics/orders", 200, "", "<h1>Tidewire</h1>"},
		"a missing file is missing":                {"GET", "/ui/assets/none.js", 404, "", "not-found"},
		"a path that climbs out is no page":        {"GET", "/ui/../secret", 404, "", "not-found"},
		"the setup page has a form":                {"GET", "/ui/setup", 200, "", `<form id="setup">`},
		"the setup page's script":                  {"GET", "/ui/setup.js", 200, "", "../v1/setup"},
		"the documentation":                        {"GET", "/docs", 200, "", "Find an endpoint"},
		"the documentation's address with a slash": {"GET", "/docs/", 301, "/x/y/docs", ""},
		"a page cannot be posted to":               {"POST", "/ui/", 405, "", "method-not-allowed"},
		"a page has a HEAD":                        {"HEAD", "/docs", 200, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(row.method, "http://node"+row.path, nil))
			if w.Code != row.status || w.Header().Get("Location") != row.location || !strings.Contains(w.Body.String(), row.body) {
				t.Errorf("status %d, location %q, body %.200s", w.Code, w.Header().Get("Location"), w.Body.String())
			}
			if row.status == http.StatusOK && w.Header().Get("Content-Security-Policy") == "" {
				t.Error("the page has no content security policy")
			}
		})
	}
}
