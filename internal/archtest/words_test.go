package archtest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// unwanted is text that tracked files must not hold.
type unwanted struct {
	hint    string // in lower case: a file without it is not searched, which is quick
	pattern *regexp.Regexp
	why     string
}

// hosts are registries of packages. Written in two halves, so that this file does
// not hold what it forbids.
var hosts = []string{
	"proxy.golang" + ".org", "sum.golang" + ".org", "registry.npmjs" + ".org", "registry.yarnpkg" + ".com",
	"files.pythonhosted" + ".org", "deb.debian" + ".org", "static.crates" + ".io", "repo.maven" + ".apache.org",
}

// unwantedWords lists what does not belong into the project. checkout is the folder
// that the tree lies in.
func unwantedWords(checkout string) []unwanted {
	list := []unwanted{
		{strings.ToLower(checkout), regexp.MustCompile(regexp.QuoteMeta(checkout) + `(/|\b)`), "names the folder of this checkout"},
		{"/wo" + "rk/", regexp.MustCompile(`(^|[\s"'` + "`" + `(=:])/work/`), "names a folder of one machine"},
		{"issue", regexp.MustCompile(`(?i)\bissue #?[0-9]`), "refers to a ticket by number: say what the matter is"},
		{"issue", regexp.MustCompile(`(?i)\b(first|next|later|previous|earlier) ` + `issues?\b`), "refers to a ticket: say what the matter is"},
		{"session", regexp.MustCompile(`(?i)\b(helper|developer|coding) ` + `sessions?\b`), "speaks of how the project is worked on"},
	}
	for _, h := range hosts {
		list = append(list, unwanted{h, regexp.MustCompile(regexp.QuoteMeta(h)), "names a package registry's host: which one serves a package is the reader's setting"})
	}
	return list
}

// wordComplaints looks for unwanted text in a file's lines. Binary files are left out.
func wordComplaints(name string, content []byte, list []unwanted) []string {
	if bytes.IndexByte(content, 0) >= 0 {
		return nil
	}
	lower := bytes.ToLower(content)
	var search []unwanted
	for _, u := range list {
		if bytes.Contains(lower, []byte(u.hint)) {
			search = append(search, u)
		}
	}
	if len(search) == 0 {
		return nil
	}
	var out []string
	for i, line := range bytes.Split(content, []byte("\n")) {
		for _, u := range search {
			if hit := u.pattern.Find(line); hit != nil {
				out = append(out, fmt.Sprintf("%s:%d: %q %s", name, i+1, bytes.TrimSpace(hit), u.why))
			}
		}
	}
	return out
}

func TestFilesSpeakOfTheProjectOnly(t *testing.T) {
	t.Parallel()
	checkout, err := filepath.Abs(root)
	require.NoError(t, err)
	list := exec.Command("git", "ls-files", "-z")
	list.Dir = root
	names, err := list.Output()
	if err != nil {
		t.Skipf("not a git work tree, so there is no list of tracked files: %v", err)
	}
	words := unwantedWords(checkout)
	checked := 0
	for name := range strings.SplitSeq(strings.TrimSuffix(string(names), "\x00"), "\x00") {
		content, err := os.ReadFile(filepath.Join(root, name))
		if os.IsNotExist(err) || filepath.Base(name) == "go.sum" {
			continue // deleted, but not committed yet; or hashes only
		}
		require.NoError(t, err)
		complain(t, wordComplaints(name, content, words))
		checked++
	}
	require.Greater(t, checked, 20)
}

func TestUnwantedWordsAreFound(t *testing.T) {
	t.Parallel()
	words := unwantedWords("/home/someone/tidewire")
	for text, found := range map[string]bool{
		"GOPROXY=https://" + hosts[0]:         true,
		"cd /home/someone/tidewire/web":       true,
		"see /wo" + "rk/main":                 true,
		"the net" + "/wo" + "rk/layer":        false,
		"as in Issue" + " #12":                true,
		"done in the next" + " issue":         true,
		"by a helper" + " session":            true,
		"each session has a cookie":           false,
		"KAFKA-6361, KIP-101, Redpanda #9820": false,
		"issues are welcome":                  false,
		"\x00 binary, Issue" + " #12":         false,
	} {
		require.Equal(t, found, len(wordComplaints("a.md", []byte(text), words)) > 0, text)
	}
}
