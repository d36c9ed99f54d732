package api

import (
	"go/ast"
	"go/build/constraint"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// clause is one thing that the contract says of the interface, in words of its own, and the
// tests that fail when it does not hold.
type clause struct {
	section string
	says    string
	tests   []string
}

// contract is all that it says but for transactions, the verbs of the cluster and the Kafka port.
var contract = slices.Concat(conventions, badInputs, endpoints, recordsContract, groupsContract, sockets, groupSockets)

// found is where a test function was seen.
type found struct {
	file    string
	skipped string // why it does not run unless asked to; "" where it runs
}

// testsOfModule finds the test functions of all packages.
func testsOfModule(t *testing.T) map[string]found {
	t.Helper()
	root := filepath.Join("..", "..")
	out := map[string]found{}
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := e.Name()
		if e.IsDir() {
			if name == "node_modules" || name == "testdata" || strings.HasPrefix(name, ".") && name != ".." {
				return filepath.SkipDir
			}
			_, err := os.Stat(filepath.Join(path, "go.mod"))
			if err == nil && path != root { // a module of its own, which go test ./... passes over
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, "_test.go") {
			return nil
		}
		return addTests(out, path)
	})
	require.NoError(t, err)
	return out
}

func addTests(out map[string]found, path string) error {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	excluded := ""
	for _, group := range file.Comments {
		for _, c := range group.List {
			if !constraint.IsGoBuild(c.Text) || c.Pos() > file.Package {
				continue
			}
			expr, err := constraint.Parse(c.Text)
			if err != nil {
				return err
			}
			if !expr.Eval(func(tag string) bool { return tag == runtime.GOOS || tag == runtime.GOARCH || tag == "unix" }) {
				excluded = "its file is for " + expr.String()
			}
		}
	}
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Recv != nil || f.Body == nil || !strings.HasPrefix(f.Name.Name, "Test") && !strings.HasPrefix(f.Name.Name, "Fuzz") {
			continue
		}
		why := excluded
		if why == "" {
			why = skips(f.Body)
		}
		out[f.Name.Name] = found{path, why}
	}
	return nil
}

// skips tells why a test does not run unless somebody asks for it: it skips itself without a
// condition, or by one of the environment or a flag.
func skips(body *ast.BlockStmt) string {
	for _, s := range body.List {
		if calls(s, "Skip", "Skipf", "SkipNow") {
			if _, conditional := s.(*ast.IfStmt); !conditional {
				return "it is skipped"
			}
			if calls(s, "Getenv", "LookupEnv") || mentions(s, "Flag") {
				return "it is skipped unless asked for"
			}
		}
		if _, nested := s.(*ast.ExprStmt); !nested && calls(s, "Binary") { // nodeproc.Binary skips without a built one
			return "it needs a binary that was built before"
		}
	}
	return ""
}

func calls(n ast.Node, names ...string) bool {
	yes := false
	ast.Inspect(n, func(n ast.Node) bool {
		if _, inner := n.(*ast.FuncLit); inner {
			return false // a case of a test may be left out
		}
		c, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		if s, ok := c.Fun.(*ast.SelectorExpr); ok && slices.Contains(names, s.Sel.Name) {
			yes = true
		}
		return true
	})
	return yes
}

func mentions(n ast.Node, part string) bool {
	yes := false
	ast.Inspect(n, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && strings.Contains(id.Name, part) {
			yes = true
		}
		return true
	})
	return yes
}

func TestEveryClauseOfTheContractHasATest(t *testing.T) {
	t.Parallel()
	tests := testsOfModule(t)
	require.Greater(t, len(tests), 500, "the module is read")
	seen := map[string]bool{}
	for _, c := range contract {
		what := c.section + ": " + c.says
		require.False(t, seen[what], "%s: is there twice", what)
		seen[what] = true
		require.NotEmpty(t, c.tests, "%s: has no test", what)
		for i, name := range c.tests {
			f, ok := tests[name]
			require.True(t, ok, "%s: there is no %s", what, name)
			require.Empty(t, f.skipped, "%s: %s in %s", what, name, f.file)
			require.NotContains(t, c.tests[:i], name, what)
		}
	}
}

// TestSkippedTestsAreSeen has what the table must not name.
func TestSkippedTestsAreSeen(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(folder, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	all := map[string]found{}
	require.NoError(t, addTests(all, write("a_test.go", `package a
func TestRuns(t *testing.T) { if slow(t) { t.Skip("too slow here") } }
func TestCases(t *testing.T) { t.Run("x", func(t *testing.T) { t.Skip("not this one") }) }
func TestNever(t *testing.T) { t.Skip("later") }
func TestAsked(t *testing.T) { if os.Getenv("X") == "" { t.Skip("set X") } }
func TestBinary(t *testing.T) { n := nodeproc.Start(t, nodeproc.Binary(t)); n.Stop() }
func helper(t *testing.T) { t.Skip() }
`)))
	require.NoError(t, addTests(all, write("b_test.go", "//go:build soak\n\npackage a\nfunc TestTagged(t *testing.T) {}\n")))
	require.NoError(t, addTests(all, write("c_test.go", "//go:build "+runtime.GOOS+"\n\npackage a\nfunc TestHere(t *testing.T) {}\n")))
	require.Len(t, all, 7)
	for name, f := range all {
		runs := slices.Contains([]string{"TestRuns", "TestCases", "TestHere"}, name)
		require.Equal(t, runs, f.skipped == "", "%s: %s", name, f.skipped)
	}
}
