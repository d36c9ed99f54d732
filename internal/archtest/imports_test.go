package archtest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

// importComplaints checks every file against the two tables.
func importComplaints(t *tree, rules []row, fences []fence) []string {
	var out []string
	for _, f := range t.files {
		r, ok := ruleOf(f.pkg, rules)
		if !ok {
			out = append(out, fmt.Sprintf("%s: the package %s has no row in the table of imports", f.name, f.pkg))
			continue
		}
		for _, p := range f.imports() {
			if inner, ok := strings.CutPrefix(p, module+"/"); ok && !f.test && !mayImport(r, f.pkg, inner) {
				out = append(out, fmt.Sprintf("%s: %s may not import %s: %s", f.name, f.pkg, inner, r.why))
			}
			for _, fence := range fences {
				if within(p, fence.library) && !fence.open(f) {
					out = append(out, fmt.Sprintf("%s: %s may not import %s: %s", f.name, f.pkg, p, fence.why))
				}
			}
		}
	}
	return out
}

// ruleOf finds the row of a package: its own, or the nearest one above that covers
// what is below it.
func ruleOf(pkg string, rules []row) (row, bool) {
	best, found := row{}, false
	for _, r := range rules {
		covers := r.pkg == pkg || r.below && within(pkg, r.pkg)
		if covers && len(r.pkg) >= len(best.pkg) {
			best, found = r, true
		}
	}
	return best, found
}

func mayImport(r row, pkg, inner string) bool {
	return r.anything || inner == pkg || slices.Contains(r.may, inner) ||
		slices.ContainsFunc(r.may, func(m string) bool {
			below, ok := strings.CutSuffix(m, "/...")
			return ok && within(inner, below)
		})
}

func (x fence) open(f *file) bool {
	return f.test && x.tests || within(f.pkg, x.packages...)
}

// presenceComplaints keeps the tables honest: what they list must exist, except
// what is pending, which must not.
func presenceComplaints(t *tree, rules []row, fences []fence, pending []string) []string {
	var out []string
	existing := t.packages()
	exists := func(pkg string) bool {
		return slices.ContainsFunc(existing, func(p string) bool { return within(p, pkg) })
	}
	check := func(pkg, where string) {
		if !exists(pkg) && !slices.Contains(pending, pkg) {
			out = append(out, fmt.Sprintf("%s lists %s, which does not exist", where, pkg))
		}
	}
	for _, r := range rules {
		check(r.pkg, "the table of imports")
	}
	for _, f := range fences {
		for _, pkg := range f.packages {
			check(pkg, "the fence around "+f.library)
		}
	}
	for _, pkg := range pending {
		if slices.Contains(existing, pkg) {
			out = append(out, fmt.Sprintf("%s exists: take it out of the list of pending packages", pkg))
		}
	}
	return out
}

func TestImportsGoDownwards(t *testing.T) {
	t.Parallel()
	complain(t, importComplaints(project(t), table, fenced))
}

func TestTheTablesListWhatExists(t *testing.T) {
	t.Parallel()
	complain(t, presenceComplaints(project(t), table, fenced, pending))
}

func sampleTree(t *testing.T, files map[string]string) *tree {
	t.Helper()
	m := fstest.MapFS{}
	for name, source := range files {
		m[name] = &fstest.MapFile{Data: []byte(source)}
	}
	tr, err := loadTree(m)
	require.NoError(t, err)
	return tr
}

func TestImportsThatTheTableDeniesAreFound(t *testing.T) {
	t.Parallel()
	rules := []row{{pkg: "low", why: "it is low"}, {pkg: "high", below: true, may: []string{"low", "mid/..."}, why: "it is high"}}
	fences := []fence{{library: "example.org/lib", packages: []string{"high"}, tests: true, why: "one place only"}}
	for name, x := range map[string]struct {
		files map[string]string
		want  string
	}{
		"downwards":          {map[string]string{"high/a.go": `package high; import _ "tidewire/low"`}, ""},
		"below a wildcard":   {map[string]string{"high/a.go": `package high; import _ "tidewire/mid/x"`}, ""},
		"a package below":    {map[string]string{"high/sub/a.go": `package sub; import _ "tidewire/low"`}, ""},
		"upwards":            {map[string]string{"low/a.go": `package low; import _ "tidewire/high"`}, "it is low"},
		"upwards in a test":  {map[string]string{"low/a_test.go": `package low; import _ "tidewire/high"`}, ""},
		"fenced":             {map[string]string{"low/a.go": `package low; import _ "example.org/lib/v2"`}, "one place only"},
		"fenced, allowed":    {map[string]string{"high/a.go": `package high; import _ "example.org/lib"`}, ""},
		"fenced, in a test":  {map[string]string{"low/a_test.go": `package low; import _ "example.org/lib"`}, ""},
		"no row":             {map[string]string{"new/a.go": `package new`}, "has no row"},
		"another module":     {map[string]string{"new/go.mod": "module x", "new/a.go": `package new`}, ""},
		"similar name":       {map[string]string{"low/a.go": `package low; import _ "example.org/library"`}, ""},
		"low has none below": {map[string]string{"low/sub/a.go": `package sub`}, "has no row"},
	} {
		got := importComplaints(sampleTree(t, x.files), rules, fences)
		if x.want == "" {
			require.Empty(t, got, name)
			continue
		}
		require.Len(t, got, 1, name)
		require.Contains(t, got[0], x.want, name)
	}
}

func TestTablesThatDoNotFitTheTreeAreFound(t *testing.T) {
	t.Parallel()
	tr := sampleTree(t, map[string]string{"here/a.go": "package here"})
	require.Empty(t, presenceComplaints(tr, []row{{pkg: "here"}, {pkg: "later"}}, nil, []string{"later"}))
	require.Len(t, presenceComplaints(tr, []row{{pkg: "gone"}}, nil, nil), 1)
	require.Len(t, presenceComplaints(tr, nil, []fence{{packages: []string{"gone"}}}, nil), 1)
	require.Len(t, presenceComplaints(tr, []row{{pkg: "here"}}, nil, []string{"here"}), 1)
}
