//go:build !noui

// Package ui embeds the browser console into the binary. `make ui` builds it into
// ui/dist, which is not committed; where it was not built, and with the build tag noui,
// the files are a placeholder page that says so and leads to the API's documentation.
package ui

import (
	"embed"
	"io/fs"
)

// The pattern names the folders placeholder and dist, of which the second need not be
// there: a pattern of its own for it would fail the build until the console is built.
//
//go:embed all:[pd][li][as][ct]*
var folders embed.FS

// Files returns the files to serve below /ui/, with index.html at the root: the built
// console, or else the placeholder (Built tells which).
//
// The console's index.html has {{nonce}} where the nonce of its content security policy
// belongs, {{prefix}} for the path prefix, and names its assets as ./assets/…, which are
// hashed and lie beside their compressed forms (.gz, .br).
func Files() (fs.FS, error) {
	if Built() {
		return fs.Sub(folders, "dist")
	}
	return Placeholder()
}

// Built tells whether the binary holds the console.
func Built() bool {
	_, err := fs.Stat(folders, "dist/index.html")
	return err == nil
}

// Placeholder returns what is served in place of a console that was not built. Its pages
// need no script, and no style from elsewhere, but for the setup's, so the strictest
// content security policy that allows 'self' for scripts, styles and images serves them.
func Placeholder() (fs.FS, error) { return fs.Sub(folders, "placeholder") }
