package archtest

import (
	"fmt"
	"go/ast"
	"go/token"
	"testing"

	"github.com/stretchr/testify/require"
)

// bareGoAllowed are the places where a go statement may stand: the one that gives
// goroutines an owner, and client programs, which end with their process.
var bareGoAllowed = []string{"internal/lifecycle", "cmd/tidewire", "internal/client", "test"}

// pureCores take now as an argument, so that they can be stepped under a simulated
// clock and applied to the same effect on every node.
var pureCores = []string{"cluster/metadata", "cluster/founding", "cluster/controller", "broker/browse", "internal/history", "broker/quota", "broker/group", "broker/txn/core", "storage/record", "storage/ingest", "storage/compact", "storage/epochs", "storage/producer", "storage/retention"}

// sleepAllowed is where a test may sleep: it watches real processes.
var sleepAllowed = []string{"test/e2e"}

// callComplaints looks for the banned statements and calls.
func callComplaints(t *tree) []string {
	var out []string
	for _, f := range t.files {
		if f.generated {
			continue
		}
		bubbles := syntheticTime(f)
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if why := banned(f, n, bubbles); why != "" {
				out = append(out, fmt.Sprintf("%s: %s", t.fset.Position(n.Pos()), why))
			}
			return true
		})
	}
	return out
}

// span is a range of positions in a file.
type span struct{ from, to token.Pos }

// syntheticTime returns where a file's code runs under the fake clock of synctest:
// sleeping there takes no time.
func syntheticTime(f *file) []span {
	var out []span
	ast.Inspect(f.ast, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok && f.isFunction(call.Fun, "testing/synctest", "Test") {
			out = append(out, span{call.Pos(), call.End()})
		}
		return true
	})
	return out
}

// isFunction tells whether an expression names one of a package's functions.
func (f *file) isFunction(x ast.Expr, pkg string, names ...string) bool {
	s, ok := x.(*ast.SelectorExpr)
	if !ok || f.qualifier(s.X) != pkg {
		return false
	}
	for _, n := range names {
		if s.Sel.Name == n {
			return true
		}
	}
	return false
}

func banned(f *file, n ast.Node, bubbles []span) string {
	switch n := n.(type) {
	case *ast.GoStmt:
		if !f.test && !within(f.pkg, bareGoAllowed...) {
			return "a bare go statement: start it with lifecycle.Group.Go, so that it has an owner, a name and an end"
		}
	case *ast.FuncDecl:
		if n.Recv == nil && n.Name.Name == "init" {
			return "an init function: state that hides from the reader; build it in the composition root"
		}
	case *ast.SelectorExpr:
		return bannedName(f, n, bubbles)
	case *ast.BinaryExpr:
		if !f.test && (n.Op == token.EQL || n.Op == token.NEQ) && (errorText(n.X) || errorText(n.Y)) {
			return comparesText
		}
	case *ast.SwitchStmt:
		if !f.test && n.Tag != nil && errorText(n.Tag) {
			return comparesText
		}
	case *ast.CallExpr:
		if !f.test && f.isFunction(n.Fun, "strings", "Contains", "HasPrefix", "HasSuffix", "EqualFold", "Index", "Compare") && anyErrorText(n.Args) {
			return comparesText
		}
	}
	return ""
}

const comparesText = "an error told by its text: match with errors.Is or errors.As"

func bannedName(f *file, n *ast.SelectorExpr, bubbles []span) string {
	switch {
	case !f.test && within(f.pkg, pureCores...) && f.isFunction(n, "time", "Now", "Since", "Until"):
		return "a pure core that reads the clock: take now as an argument"
	case !f.test && within(f.pkg, pureCores...) && (f.qualifier(n.X) == "math/rand" || f.qualifier(n.X) == "math/rand/v2" || f.qualifier(n.X) == "crypto/rand"):
		return "a pure core that rolls dice: take random choices as arguments"
	case f.test && !within(f.pkg, sleepAllowed...) && f.isFunction(n, "time", "Sleep") && !inside(n, bubbles):
		return "a test that sleeps: wait for a channel or a condition, or run it under synctest"
	}
	return ""
}

func inside(n ast.Node, spans []span) bool {
	for _, s := range spans {
		if s.from <= n.Pos() && n.End() <= s.to {
			return true
		}
	}
	return false
}

// errorText recognises a call x.Error() without arguments.
func errorText(x ast.Expr) bool {
	call, ok := x.(*ast.CallExpr)
	if !ok || len(call.Args) > 0 {
		return false
	}
	s, ok := call.Fun.(*ast.SelectorExpr)
	return ok && s.Sel.Name == "Error"
}

func anyErrorText(list []ast.Expr) bool {
	for _, x := range list {
		if errorText(x) {
			return true
		}
	}
	return false
}

func TestNoBannedCalls(t *testing.T) {
	t.Parallel()
	complain(t, callComplaints(project(t)))
}

func TestBannedCallsAreFound(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		file, source string
		found        bool
	}{
		"go":                            {"broker/a.go", `package p; func f() { go f() }`, true},
		"go in its owner":               {"internal/lifecycle/a.go", `package p; func f() { go f() }`, false},
		"go in a test":                  {"broker/a_test.go", `package p; func f() { go f() }`, false},
		"init":                          {"broker/a.go", `package p; func init() {}`, true},
		"a method named init":           {"broker/a.go", `package p; func (T) init() {}`, false},
		"clock in a core":               {"cluster/metadata/a.go", `package p; import "time"; var x = time.Now()`, true},
		"clock in a core by value":      {"cluster/metadata/a.go", `package p; import "time"; var x = time.Now`, true},
		"clock in a core, other name":   {"cluster/metadata/a.go", `package p; import clock "time"; var x = clock.Since`, true},
		"clock elsewhere":               {"broker/a.go", `package p; import "time"; var x = time.Now()`, false},
		"a field that hides the clock":  {"cluster/metadata/a.go", `package p; import _ "time"; func f(time T) { time.Now() }`, false},
		"dice in a core":                {"cluster/metadata/a.go", `package p; import "math/rand/v2"; var x = rand.Int()`, true},
		"dice in a core, named":         {"cluster/metadata/a.go", `package p; import rand "math/rand/v2"; var x = rand.Int()`, true},
		"sleep in a test":               {"broker/a_test.go", `package p; import "time"; func f() { time.Sleep(1) }`, true},
		"sleep under a fake clock":      {"broker/a_test.go", `package p; import ("time"; "testing/synctest"); func f() { synctest.Test(t, func() { time.Sleep(1) }) }`, false},
		"sleep beside real processes":   {"test/e2e/a_test.go", `package p; import "time"; func f() { time.Sleep(1) }`, false},
		"text compared":                 {"broker/a.go", `package p; var x = err.Error() == "x"`, true},
		"text compared the other way":   {"broker/a.go", `package p; var x = "x" != f().Error()`, true},
		"text searched":                 {"broker/a.go", `package p; import "strings"; var x = strings.Contains(err.Error(), "x")`, true},
		"text switched on":              {"broker/a.go", `package p; func f() { switch err.Error() { case "x": } }`, true},
		"text wrapped":                  {"broker/a.go", `package p; var x = "x: " + err.Error()`, false},
		"text that people read, tested": {"broker/a_test.go", `package p; import "strings"; var x = strings.Contains(err.Error(), "x")`, false},
	} {
		got := callComplaints(sampleTree(t, map[string]string{x.file: x.source}))
		require.Equal(t, x.found, len(got) == 1, "%s: %v", name, got)
		require.LessOrEqual(t, len(got), 1, name)
	}
}
