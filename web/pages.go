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
	docs string
	ui   http.Handler // below /ui/
	// prefix is the path prefix, which the front has cut from requests.
	prefix string
}

func pages(prefix string) (http.Handler, error) {
	tree, err := ui.Files()
	if err != nil {
		return nil, err
	}
	return pagesOf(prefix, tree, ui.Built())
}

// pagesOf serves the tree as the console, or, unless it was built, as the placeholder.
func pagesOf(prefix string, tree fs.FS, built bool) (http.Handler, error) {
	docs, err := docsFiles.ReadFile("docs/index.html")
	if err != nil {
		return nil, err
	}
	p := &pageHandler{docs: string(docs), prefix: prefix}
	if !built {
		p.ui = &placeholder{files: http.StripPrefix("/ui/", http.FileServerFS(tree)), tree: tree}
		return p, nil
	}
	p.ui, err = newConsole(prefix, tree)
	return p, err
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
		p.ui.ServeHTTP(w, r)
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

// placeholder serves the page that stands in for the console.
type placeholder struct {
	files http.Handler
	tree  fs.FS
}

// ServeHTTP serves a file. A path without a file name is a page of the console and gets
// the index; a missing file is a 404.
func (p *placeholder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name, ok := consoleFile(w, r, p.tree)
	if !ok {
		return
	}
	if name == "" {
		page := strings.TrimPrefix(r.URL.Path, "/ui/") + ".html"
		r = r.Clone(r.Context())
		r.URL.Path, r.URL.RawPath = "/ui/", ""
		if !strings.Contains(page, "/") && exists(p.tree, page) {
			r.URL.Path += page
		}
	}
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'")
	p.files.ServeHTTP(w, r)
}

// consoleFile returns the name of the file that is asked for, "" where it is a page of
// the console (a deep link). What is missing it answers with 404 and is not ok.
func consoleFile(w http.ResponseWriter, r *http.Request, tree fs.FS) (name string, ok bool) {
	name = strings.TrimPrefix(r.URL.Path, "/ui/")
	if name == "" || name == "index.html" {
		return "", true
	}
	if strings.HasPrefix(name, "topics/") || strings.HasPrefix(name, "users/") {
		return "", true // names in these paths may have dots, slashes, anything
	}
	if !fs.ValidPath(name) {
		pageProblem(w, r, model.Errorf(model.NotFound, "there is no page %s", r.URL.Path))
		return "", false
	}
	if info, err := fs.Stat(tree, name); err == nil && !info.IsDir() {
		return name, true
	}
	if last := name[strings.LastIndexByte(name, '/')+1:]; strings.Contains(last, ".") || strings.HasPrefix(name, "assets/") {
		pageProblem(w, r, model.Errorf(model.NotFound, "there is no file %s", r.URL.Path))
		return "", false
	}
	return "", true
}

func pageProblem(w http.ResponseWriter, r *http.Request, err error) {
	(&front{}).problem(w, r, err)
}

func exists(tree fs.FS, name string) bool {
	_, err := fs.Stat(tree, name)
	return err == nil
}
