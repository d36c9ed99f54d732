package archtest

import (
	"fmt"
	"go/ast"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Limits. Functions, parameters, interfaces and packages are counted without
// tests, whose tables may be long; files with them. Generated code is not counted.
const (
	maxFunctionLines    = 70
	maxFileLines        = 800
	maxPackageLines     = 6000
	maxInterfaceMethods = 12
	maxParameters       = 5
)

// allowance is an exception to a limit: what has it, how much it has, and why. It
// may only shrink.
type allowance struct {
	what string // as in the complaint: "function storage/log.Open", "file web/ws.go"
	size int
	why  string
}

// allowances are the exceptions there are.
var allowances = []allowance{
	{"package broker", 6905, "calls for partitions that other nodes lead came to its façade; the guards of calls, compaction and retention are to become packages of their own"},
}

// measure is the size of one thing against its limit.
type measure struct {
	what        string
	size, limit int
	unit        string
}

func measures(t *tree) []measure {
	var out []measure
	packageLines := map[string]int{}
	for _, f := range t.files {
		if f.generated {
			continue
		}
		out = append(out, measure{"file " + f.name, f.lines, maxFileLines, "lines"})
		if f.test {
			continue
		}
		packageLines[f.pkg] += f.lines
		ast.Inspect(f.ast, func(n ast.Node) bool {
			out = append(out, t.measureNode(f, n)...)
			return true
		})
	}
	for _, pkg := range slices.Sorted(maps.Keys(packageLines)) {
		out = append(out, measure{"package " + pkg, packageLines[pkg], maxPackageLines, "lines"})
	}
	return out
}

func (t *tree) measureNode(f *file, n ast.Node) []measure {
	switch n := n.(type) {
	case *ast.FuncDecl:
		name := f.pkg + "." + receiver(n) + n.Name.Name
		lines := t.fset.Position(n.End()).Line - t.fset.Position(n.Pos()).Line + 1
		return []measure{
			{"function " + name, lines, maxFunctionLines, "lines"},
			{"parameters of " + name, n.Type.Params.NumFields(), maxParameters, "parameters"},
		}
	case *ast.TypeSpec:
		if i, ok := n.Type.(*ast.InterfaceType); ok {
			return []measure{{"interface " + f.pkg + "." + n.Name.Name, i.Methods.NumFields(), maxInterfaceMethods, "methods"}}
		}
	}
	return nil
}

// receiver gives "Type." for a method.
func receiver(fn *ast.FuncDecl) string {
	if fn.Recv == nil || len(fn.Recv.List) == 0 {
		return ""
	}
	x := fn.Recv.List[0].Type
	for {
		switch y := x.(type) {
		case *ast.StarExpr:
			x = y.X
		case *ast.IndexExpr:
			x = y.X
		case *ast.IndexListExpr:
			x = y.X
		case *ast.Ident:
			return y.Name + "."
		default:
			return ""
		}
	}
}

// sizeComplaints compares with the limits, and the exceptions with what there is.
func sizeComplaints(t *tree, exceptions []allowance) []string {
	allowed := map[string]allowance{}
	for _, a := range exceptions {
		allowed[a.what] = a
	}
	var out []string
	for _, m := range measures(t) {
		a, excepted := allowed[m.what]
		delete(allowed, m.what)
		switch {
		case excepted && a.why == "":
			out = append(out, fmt.Sprintf("%s: the exception gives no reason", m.what))
		case excepted && m.size <= m.limit:
			out = append(out, fmt.Sprintf("%s has %d %s: take the exception out", m.what, m.size, m.unit))
		case excepted && m.size < a.size:
			out = append(out, fmt.Sprintf("%s has shrunk: lower the exception to %d", m.what, m.size))
		case excepted && m.size > a.size:
			out = append(out, fmt.Sprintf("%s has %d %s, more than the exception's %d", m.what, m.size, m.unit, a.size))
		case !excepted && m.size > m.limit:
			out = append(out, fmt.Sprintf("%s has %d %s, at most %d", m.what, m.size, m.unit, m.limit))
		}
	}
	for _, what := range slices.Sorted(maps.Keys(allowed)) {
		out = append(out, fmt.Sprintf("%s does not exist: take the exception out", what))
	}
	return out
}

func TestNothingIsTooLarge(t *testing.T) {
	t.Parallel()
	complain(t, sizeComplaints(project(t), allowances))
}

func TestWhatIsTooLargeIsFound(t *testing.T) {
	t.Parallel()
	long := func(n int) string { return strings.Repeat("\n", n) }
	methods := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "M%d()\n", i)
		}
		return b.String()
	}
	for name, x := range map[string]struct {
		source string
		want   string
	}{
		"function at the limit":  {"package p\nfunc f() {" + long(maxFunctionLines-1) + "}\n", ""},
		"function":               {"package p\nfunc f() {" + long(maxFunctionLines) + "}\n", "function p.f has 71 lines"},
		"method":                 {"package p\nfunc (t *T[K]) f() {" + long(maxFunctionLines) + "}\n", "function p.T.f has"},
		"file at the limit":      {"package p" + long(maxFileLines), ""},
		"file":                   {"package p" + long(maxFileLines+1), "file p/a.go has 801 lines"},
		"parameters":             {"package p\nfunc f(a, b, c int, d, e, f string) {}\n", "parameters of p.f has 6"},
		"parameters at limit":    {"package p\nfunc (T) f(a, b, c int, d, e string) {}\n", ""},
		"interface":              {"package p\ntype I interface {\n" + methods(13) + "}\n", "interface p.I has 13 methods"},
		"interface at the limit": {"package p\ntype I interface {\n" + methods(12) + "}\n", ""},
		"generated":              {"// Code generated by x. DO NOT EDIT.\npackage p" + long(maxFileLines+1), ""},
	} {
		got := sizeComplaints(sampleTree(t, map[string]string{"p/a.go": x.source}), nil)
		if x.want == "" {
			require.Empty(t, got, name)
			continue
		}
		require.Len(t, got, 1, name)
		require.Contains(t, got[0], x.want, name)
	}
	files := map[string]string{}
	for i := range 8 {
		files[fmt.Sprintf("p/%d.go", i)] = "package p" + long(maxFileLines)
	}
	got := sizeComplaints(sampleTree(t, files), nil)
	require.Equal(t, []string{"package p has 6400 lines, at most 6000"}, got)
}

func TestExceptionsMayOnlyShrink(t *testing.T) {
	t.Parallel()
	tr := sampleTree(t, map[string]string{"p/a.go": "package p" + strings.Repeat("\n", 900)})
	short := sampleTree(t, map[string]string{"p/a.go": "package p\n"})
	with := func(size int) []allowance { return []allowance{{"file p/a.go", size, "for the test"}} }
	require.Empty(t, sizeComplaints(tr, with(900)))
	require.Len(t, sizeComplaints(tr, with(899)), 1, "it has grown")
	require.Len(t, sizeComplaints(tr, with(901)), 1, "it has shrunk")
	require.Len(t, sizeComplaints(short, with(900)), 1, "it is not needed")
	require.Len(t, sizeComplaints(tr, []allowance{{"file p/a.go", 900, ""}}), 1, "it has no reason")
	require.Len(t, sizeComplaints(short, []allowance{{"file p/b.go", 900, "for the test"}}), 1, "there is no such thing")
}
