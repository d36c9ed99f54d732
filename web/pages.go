package web

import (
	"crypto/rand"
	"embed"
	"encoding/base64"
	"io/fs"
	"net/http"
	"strings"

	"tidewire/internal/model"
	"tidewire/ui"
)

//go:embed docs/index.html
var docsFiles embed.FS

// isPage tells what people look at from what programs call.
func isPage(path string) bool {
	return path == "/" || path == "/docs" || path == "/docs/" || path == "/ui" || strings.HasPrefix(path, "/ui/")
}

// pageHandler serves what people look at.
type pageHandler struct {
	docs  string
	files http.Handler
	tree  fs.FS
	// prefix is the path prefix, which the front has cut from requests.
	prefix string
}

func pages(prefix string) (http.Handler, error) {
	docs, err := docsFiles.ReadFile("docs/index.html")
	if err != nil {
		return nil, err
	}
	tree, err := ui.Files()
	if err != nil {
		return nil, err
	}
	return &pageHandler{docs: string(docs), files: http.StripPrefix("/ui/", http.FileServerFS(tree)), tree: tree, prefix: prefix}, nil
}

// ServeHTTP serves the console's files below /ui/, its index for deep links, the API's
// documentation, and sends browsers from / to /ui/.
func (p *pageHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		pageProblem(w, r, model.Errorf(model.MethodNotAllowed, "%s does not have the method %s", r.URL.Path, r.Method))
		return
	}
	switch r.URL.Path {
	case "/":
		w.Header().Set("Location", p.prefix+"/ui/")
		w.WriteHeader(http.StatusFound)
	case "/ui":
		w.Header().Set("Location", p.prefix+"/ui/")
		w.WriteHeader(http.StatusMovedPermanently)
	case "/docs/":
		w.Header().Set("Location", p.prefix+"/docs")
		w.WriteHeader(http.StatusMovedPermanently)
	case "/docs":
		p.serveDocs(w)
	default:
		p.serveUI(w, r)
	}
}

func (p *pageHandler) serveDocs(w http.ResponseWriter) {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	nonce := base64.StdEncoding.EncodeToString(b[:])
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; connect-src 'self'; img-src 'self' data:; style-src 'nonce-"+nonce+
		"'; script-src 'nonce-"+nonce+"'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	_, _ = w.Write([]byte(strings.ReplaceAll(p.docs, "{{nonce}}", nonce))) // the client may be gone
}

// serveUI serves a file of the console. A path without a file name is a page of the
// console and gets its index; a missing file is a 404.
func (p *pageHandler) serveUI(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, "/ui/")
	if name != "" && !fs.ValidPath(name) {
		pageProblem(w, r, model.Errorf(model.NotFound, "there is no page %s", r.URL.Path))
		return
	}
	if name != "" && !exists(p.tree, name) {
		if last := name[strings.LastIndexByte(name, '/')+1:]; strings.Contains(last, ".") {
			pageProblem(w, r, model.Errorf(model.NotFound, "there is no file %s", r.URL.Path))
			return
		}
		r = r.Clone(r.Context())
		r.URL.Path, r.URL.RawPath = "/ui/", ""
		if page := name + ".html"; !strings.Contains(name, "/") && exists(p.tree, page) {
			r.URL.Path += page
		}
	}
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'")
	p.files.ServeHTTP(w, r)
}

func pageProblem(w http.ResponseWriter, r *http.Request, err error) {
	(&front{}).problem(w, r, err)
}

func exists(tree fs.FS, name string) bool {
	_, err := fs.Stat(tree, name)
	return err == nil
}
