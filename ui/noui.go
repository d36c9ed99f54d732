//go:build noui

// Package ui embeds the page that stands in for the browser console: this build leaves
// the console out.
package ui

import (
	"embed"
	"io/fs"
)

//go:embed placeholder
var folders embed.FS

// Files returns the files to serve below /ui/, with index.html at the root.
func Files() (fs.FS, error) { return Placeholder() }

// Built tells whether the binary holds the console.
func Built() bool { return false }

// Placeholder returns what is served in place of the console.
func Placeholder() (fs.FS, error) { return fs.Sub(folders, "placeholder") }
