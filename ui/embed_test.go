package ui

import (
	"io/fs"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheRootHasAPageInItsOwnLanguageThatLeadsToTheDocumentation(t *testing.T) {
	t.Parallel()
	files, err := Placeholder()
	require.NoError(t, err)
	page, err := fs.ReadFile(files, "index.html")
	require.NoError(t, err)
	require.Contains(t, string(page), `<html lang="en">`)
	require.Contains(t, string(page), `href="../docs"`)
	require.NotContains(t, string(page), "<script", "the page must work under a policy that allows no script")
	_, err = fs.Stat(files, "style.css")
	require.NoError(t, err)
}

func TestFilesAreOfTheConsoleOnlyWhereItWasBuilt(t *testing.T) {
	t.Parallel()
	files, err := Files()
	require.NoError(t, err)
	page, err := fs.ReadFile(files, "index.html")
	require.NoError(t, err)
	if Built() {
		require.Contains(t, string(page), "{{nonce}}")
		require.Contains(t, string(page), "{{prefix}}")
		require.Contains(t, string(page), `src="./assets/`)
		return
	}
	require.Contains(t, string(page), "has not been built into this binary")
}
