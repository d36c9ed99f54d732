// Package ui embeds the browser console into the binary. Until the console has
// been built into ui/dist, the files are a placeholder page that says so and
// leads to the API's documentation.
package ui

import (
	"embed"
	"io/fs"
)

//go:embed placeholder
var placeholder embed.FS

// Files returns the files to serve below /ui/, with index.html at the root. They
// need no script, and no style from elsewhere, so the strictest content security
// policy that allows 'self' for styles and images serves them.
func Files() (fs.FS, error) { return fs.Sub(placeholder, "placeholder") }
