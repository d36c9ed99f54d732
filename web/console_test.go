package web

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

// builtConsole is the form that the console's build has.
func builtConsole() fstest.MapFS {
	return fstest.MapFS{
		"index.html": {Data: []byte(`<html><meta name="tidewire-prefix" content="{{prefix}}"><meta property="csp-nonce" nonce="{{nonce}}">` +
			`<script type="module" nonce="{{nonce}}" src="./assets/index-abc.js"></script><link rel="icon" href="./icon.svg"></html>`)},
		"icon.svg":               {Data: []byte("<svg/>")},
		"assets/index-abc.js":    {Data: []byte("plain")},
		"assets/index-abc.js.gz": {Data: []byte("gz")},
		"assets/index-abc.js.br": {Data: []byte("br")},
	}
}

func getPage(t *testing.T, h http.Handler, path string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, "http://node"+path, nil)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	h.ServeHTTP(w, r)
	return w
}

func TestTheConsoleHasANonceOfItsOwnInEveryAnswer(t *testing.T) {
	t.Parallel()
	h, err := pagesOf("/x/y", builtConsole(), true)
	require.NoError(t, err)
	seen := map[string]bool{}
	for _, path := range []string{"/ui/", "/ui/index.html", "/ui/topics/orders/messages", "/ui/topics/a.b", "/ui/nowhere"} {
		w := getPage(t, h, path)
		require.Equal(t, 200, w.Code, path)
		require.Equal(t, "no-store", w.Header().Get("Cache-Control"), path)
		require.Equal(t, "text/html; charset=utf-8", w.Header().Get("Content-Type"), path)
		page := w.Body.String()
		nonce := regexp.MustCompile(`nonce="([A-Za-z0-9_-]{22})"`).FindStringSubmatch(page)
		require.Len(t, nonce, 2, page)
		require.False(t, seen[nonce[1]], "a nonce came twice")
		seen[nonce[1]] = true
		policy := w.Header().Get("Content-Security-Policy")
		require.Contains(t, policy, "script-src 'self' 'nonce-"+nonce[1]+"'")
		require.NotContains(t, policy, "unsafe")
		require.Contains(t, page, `content="/x/y"`)
		require.Contains(t, page, `src="/x/y/ui/assets/index-abc.js"`, "an asset is named from the root")
		require.Contains(t, page, `href="/x/y/ui/icon.svg"`)
		require.NotContains(t, page, "{{")
	}
}

func TestAssetsOfTheConsoleAreCachedForEverInTheFormThatIsTaken(t *testing.T) {
	t.Parallel()
	h, err := pagesOf("", builtConsole(), true)
	require.NoError(t, err)
	for accept, want := range map[string]string{"": "plain", "gzip": "gz", "gzip, br": "br", "gzip;q=1, br;q=0": "gz", "zstd": "plain"} {
		w := getPage(t, h, "/ui/assets/index-abc.js", "Accept-Encoding", accept)
		require.Equal(t, want, w.Body.String(), accept)
		require.Equal(t, map[string]string{"plain": "", "gz": "gzip", "br": "br"}[want], w.Header().Get("Content-Encoding"), accept)
		require.Equal(t, "public, max-age=31536000, immutable", w.Header().Get("Cache-Control"))
		require.Contains(t, w.Header().Get("Content-Type"), "javascript")
		require.Equal(t, "Accept-Encoding", w.Header().Get("Vary"))
	}
	w := getPage(t, h, "/ui/icon.svg")
	require.Equal(t, "no-cache", w.Header().Get("Cache-Control"), "a name without a hash can change")
	require.Equal(t, "image/svg+xml", w.Header().Get("Content-Type"))
}

func TestAMissingFileOfTheConsoleIsMissing(t *testing.T) {
	t.Parallel()
	h, err := pagesOf("", builtConsole(), true)
	require.NoError(t, err)
	for _, path := range []string{"/ui/assets/old-123.js", "/ui/assets/none", "/ui/robots.txt", "/ui/../secret", "/ui/assets"} {
		w := getPage(t, h, path)
		if path == "/ui/assets" {
			require.Equal(t, 200, w.Code, "a folder is no file: the console says that there is no such page")
			continue
		}
		require.Equal(t, 404, w.Code, path)
		require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"), path)
	}
}
