package archtest

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "tidewire"

// tree is the module's Go source, parsed. Nested modules are not part of it.
type tree struct {
	fset  *token.FileSet
	files []*file
}

// file is one parsed source file.
type file struct {
	name      string // path from the module's root
	pkg       string // folder of the file, which is the package's path below the module
	test      bool
	generated bool
	lines     int
	ast       *ast.File
}

func loadTree(root fs.FS) (*tree, error) {
	t := &tree{fset: token.NewFileSet()}
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return skipFolder(root, name)
		}
		if path.Ext(name) != ".go" {
			return nil
		}
		source, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		return t.add(name, source)
	})
	return t, err
}

func skipFolder(root fs.FS, name string) error {
	base := path.Base(name)
	if name == "." {
		return nil
	}
	if strings.HasPrefix(base, ".") || slices.Contains([]string{"testdata", "node_modules", "bin", "dist", "data"}, base) {
		return fs.SkipDir
	}
	if _, err := fs.Stat(root, path.Join(name, "go.mod")); err == nil {
		return fs.SkipDir // a module of its own, with rules of its own
	}
	return nil
}

func (t *tree) add(name string, source []byte) error {
	parsed, err := parser.ParseFile(t.fset, name, source, parser.ParseComments)
	if err != nil {
		return err
	}
	t.files = append(t.files, &file{
		name:      name,
		pkg:       path.Dir(name),
		test:      strings.HasSuffix(name, "_test.go"),
		generated: ast.IsGenerated(parsed),
		lines:     bytes.Count(source, []byte("\n")),
		ast:       parsed,
	})
	return nil
}

// packages lists the folders that hold Go files.
func (t *tree) packages() []string {
	var out []string
	for _, f := range t.files {
		if !slices.Contains(out, f.pkg) {
			out = append(out, f.pkg)
		}
	}
	return out
}

// imports lists what a file imports.
func (f *file) imports() []string {
	out := make([]string, 0, len(f.ast.Imports))
	for _, spec := range f.ast.Imports {
		if p, err := strconv.Unquote(spec.Path.Value); err == nil {
			out = append(out, p)
		}
	}
	return out
}

// qualifier returns the import path that an identifier stands for in the file, ""
// when it is no package.
func (f *file) qualifier(x ast.Expr) string {
	id, ok := x.(*ast.Ident)
	if !ok || id.Obj != nil { // an object: a local name that hides the package
		return ""
	}
	for _, spec := range f.ast.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue
		}
		name := path.Base(p)
		if majorVersion.MatchString(name) {
			name = path.Base(path.Dir(p))
		}
		if spec.Name != nil {
			name = spec.Name.Name
		}
		if name == id.Name {
			return p
		}
	}
	return ""
}

// majorVersion is a last element of import paths that is not the package's name.
var majorVersion = regexp.MustCompile(`^v[0-9]+$`)

// within tells whether a package is one of the listed ones or lies below one.
func within(pkg string, list ...string) bool {
	for _, p := range list {
		if pkg == p || strings.HasPrefix(pkg, p+"/") {
			return true
		}
	}
	return false
}

const root = "../.."

var loaded = sync.OnceValues(func() (*tree, error) { return loadTree(os.DirFS(root)) })

// project returns the module's tree; it is parsed once.
func project(t *testing.T) *tree {
	t.Helper()
	tr, err := loaded()
	require.NoError(t, err)
	require.NotEmpty(t, tr.files)
	return tr
}

// complain fails the test with one line per complaint.
func complain(t *testing.T, complaints []string) {
	t.Helper()
	for _, c := range complaints {
		t.Error(c)
	}
}
