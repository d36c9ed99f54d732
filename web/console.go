package web

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"html"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"

	"tidewire/internal/model"
)

// console serves the built console: index.html for each of its pages, with a nonce of
// its own in every answer, and the assets, which are named by their contents.
type console struct {
	tree  fs.FS
	index string // with {{nonce}} where the nonce belongs
}

// newConsole reads the index and sets the path prefix in it. Assets are named from the
// root of the server, since a relative name would mean another file below a deep link.
func newConsole(prefix string, tree fs.FS) (*console, error) {
	index, err := fs.ReadFile(tree, "index.html")
	if err != nil {
		return nil, fmt.Errorf("the console has no index: %w", err)
	}
	prefix = html.EscapeString(prefix)
	page := strings.NewReplacer(`"./`, `"`+prefix+`/ui/`, "{{prefix}}", prefix).Replace(string(index))
	return &console{tree: tree, index: page}, nil
}

// ServeHTTP serves a file of the console, or the console itself for a deep link.
func (c *console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name, ok := consoleFile(w, r, c.tree)
	switch {
	case !ok:
	case name == "":
		c.servePage(w)
	default:
		c.serveFile(w, r, name)
	}
}

// servePage writes the index. Its policy allows nothing that the node does not serve:
// scripts and styles are the console's files or carry the nonce, and no page frames it.
func (c *console) servePage(w http.ResponseWriter) {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	nonce := base64.RawURLEncoding.EncodeToString(b[:])
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self' 'nonce-"+nonce+"'; style-src 'self' 'nonce-"+nonce+
		"'; connect-src 'self'; img-src 'self' data:; font-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'")
	_, _ = w.Write([]byte(strings.ReplaceAll(c.index, "{{nonce}}", nonce))) // the client may be gone
}

// serveFile serves a file in the smallest form that the client takes. Files below assets/
// have a hash of their contents in their name and never change.
func (c *console) serveFile(w http.ResponseWriter, r *http.Request, name string) {
	stored, coding := name, ""
	for _, form := range []struct{ coding, suffix string }{{"br", ".br"}, {"gzip", ".gz"}} {
		if exists(c.tree, name+form.suffix) && takes(r.Header.Values("Accept-Encoding"), form.coding) {
			stored, coding = name+form.suffix, form.coding
			break
		}
	}
	content, err := fs.ReadFile(c.tree, stored)
	if err != nil {
		pageProblem(w, r, model.Errorf(model.NotFound, "there is no file %s", r.URL.Path))
		return
	}
	h := w.Header()
	kind := mime.TypeByExtension(path.Ext(name))
	if kind == "" {
		kind = http.DetectContentType(content[:min(len(content), 512)])
	}
	h.Set("Content-Type", kind)
	h.Set("Vary", "Accept-Encoding")
	h.Set("Cache-Control", "no-cache")
	if strings.HasPrefix(name, "assets/") {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	if coding != "" {
		h.Set("Content-Encoding", coding)
	}
	h.Set("Content-Length", strconv.Itoa(len(content)))
	if r.Method != http.MethodHead {
		_, _ = bytes.NewReader(content).WriteTo(w) // the client may be gone
	}
}

// takes tells whether a client takes a content coding: named, and not with weight 0
// (RFC 9110 §12.5.3).
func takes(accept []string, coding string) bool {
	for part := range strings.SplitSeq(strings.Join(accept, ","), ",") {
		name, params, _ := strings.Cut(part, ";")
		if !strings.EqualFold(strings.TrimSpace(name), coding) {
			continue
		}
		weight := strings.TrimPrefix(strings.ReplaceAll(params, " ", ""), "q=")
		q, err := strconv.ParseFloat(weight, 64)
		return params == "" || err != nil || q > 0
	}
	return false
}
