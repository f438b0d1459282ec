package headgate_test

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
)

// Packages are named by their path below the module; "" is the root package.
// One word stands for a package and everything below its directory.

// mayImport lists all that a package at the bottom may import of the module.
var mayImport = map[string][]string{
	"gate":             nil,
	"gatehttp":         {"gate"},
	"internal/near":    nil,
	"internal/shedlog": {"gate"},
	"internal/waitq":   {"gate"},
	"pressure":         {"gate"},
}

// beside are the packages that stand side by side: none may come to another,
// not by way of a third package either.
var beside = []string{"admission", "lanes", "inflight"}

// above are the packages that stand on all others, and so below none but each
// other. gatetest is for tests, but imports what it tests.
var above = []string{"", "monitor", "gatetest"}

// edge is one import.
type edge struct {
	from, to string // packages of the module; to is a full path when outside
	outside  bool
	test     bool // in a _test.go file
	file     string
}

// unit returns the package that the rules know pkg under.
func unit(pkg string) string {
	known := append(slices.Collect(maps.Keys(mayImport)), beside...)
	for _, u := range append(known, "monitor", "gatetest") {
		if pkg == u || strings.HasPrefix(pkg, u+"/") {
			return u
		}
	}
	return pkg
}

// imports returns every import in the module at the root of fsys, whatever its
// build constraints, and the packages that have Go files.
func imports(fsys fs.FS) (edges []edge, pkgs map[string]bool, err error) {
	module, err := modulePath(fsys)
	if err != nil {
		return nil, nil, err
	}
	pkgs = map[string]bool{}
	err = fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return skipDir(fsys, name)
		}
		if !strings.HasSuffix(name, ".go") || strings.HasPrefix(d.Name(), ".") || strings.HasPrefix(d.Name(), "_") {
			return nil
		}
		src, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, src, parser.ImportsOnly)
		if err != nil {
			return err
		}
		pkg := strings.TrimPrefix(path.Dir("/"+name), "/")
		pkgs[pkg] = true
		for _, spec := range file.Imports {
			to, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			e := edge{from: pkg, to: to, test: strings.HasSuffix(name, "_test.go"), file: name}
			if in, ok := strings.CutPrefix(to+"/", module+"/"); ok {
				e.to = strings.TrimSuffix(in, "/")
			} else {
				e.outside = true
			}
			edges = append(edges, e)
		}
		return nil
	})
	return edges, pkgs, err
}

// skipDir skips what the go command skips: other modules and hidden directories.
func skipDir(fsys fs.FS, dir string) error {
	base := path.Base(dir)
	if dir == "." {
		return nil
	}
	if _, err := fs.Stat(fsys, dir+"/go.mod"); err == nil || base[0] == '.' || base[0] == '_' || base == "testdata" || base == "vendor" {
		return fs.SkipDir
	}
	return nil
}

func modulePath(fsys fs.FS) (string, error) {
	mod, err := fs.ReadFile(fsys, "go.mod")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(mod)) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == "module" {
			return f[1], nil
		}
	}
	return "", fmt.Errorf("go.mod names no module")
}

// broken returns what edges break, one line each.
func broken(edges []edge) []string {
	var bad []string
	next := map[string][]string{} // what each package imports outside tests
	for _, e := range edges {
		if why := e.broken(); why != "" {
			bad = append(bad, fmt.Sprintf("%s imports %q: %s", e.file, e.to, why))
		}
		if !e.outside && !e.test {
			next[e.from] = append(next[e.from], e.to)
		}
	}
	for from := range next {
		for _, to := range reach(from, next) {
			a, b := unit(from), unit(to)
			if a != b && slices.Contains(beside, a) && slices.Contains(beside, b) {
				bad = append(bad, fmt.Sprintf("%s comes to %s: %s stand beside each other", from, to, strings.Join(beside, ", ")))
			}
		}
	}
	slices.Sort(bad)
	return bad
}

// broken returns the rule that e breaks by itself, or "".
func (e edge) broken() string {
	if e.outside {
		// The go command keeps first elements without a dot for the standard library.
		first, _, _ := strings.Cut(e.to, "/")
		if strings.Contains(first, ".") || e.to == "C" {
			return "only the standard library and this module may be imported"
		}
		return ""
	}
	from, to := unit(e.from), unit(e.to)
	if from == to {
		return ""
	}
	if to == "gatetest" {
		if !e.test {
			return "gatetest is for tests"
		}
		return ""
	}
	if may, ok := mayImport[from]; ok && !slices.Contains(may, to) {
		return fmt.Sprintf("%s may import %q of this module and nothing else", from, may)
	}
	if slices.Contains(above, to) && !slices.Contains(above, from) {
		return fmt.Sprintf("%q stands above %s", to, from)
	}
	if slices.Contains(beside, from) && slices.Contains(beside, to) {
		return strings.Join(beside, ", ") + " never import one another"
	}
	return ""
}

// reach returns the packages that from comes to by next, from itself not.
func reach(from string, next map[string][]string) []string {
	seen := map[string]bool{from: true}
	queue := []string{from}
	for i := 0; i < len(queue); i++ {
		for _, to := range next[queue[i]] {
			if !seen[to] {
				seen[to] = true
				queue = append(queue, to)
			}
		}
	}
	return queue[1:]
}

// The packages import one another in one direction only.
func TestImportDirection(t *testing.T) {
	edges, pkgs, err := imports(os.DirFS("."))
	if err != nil {
		t.Fatal(err)
	}
	if !pkgs["gate"] {
		t.Fatalf("found the packages %v: this is not the module's root", slices.Collect(maps.Keys(pkgs)))
	}
	for _, b := range broken(edges) {
		t.Error(b)
	}
}

// tree returns a module with a file for each "path: import import ...".
func tree(files ...string) fs.FS {
	fsys := fstest.MapFS{"go.mod": {Data: []byte("module m.example/core\n\ngo 1.25.0\n")}}
	for _, f := range files {
		name, list, _ := strings.Cut(f, ":")
		src := "package p\n"
		for _, to := range strings.Fields(list) {
			src += "import _ " + strconv.Quote(strings.Replace(to, "~", "m.example/core", 1)) + "\n"
		}
		fsys[name] = &fstest.MapFile{Data: []byte(src)}
	}
	return fsys
}

func TestImportDirectionCatches(t *testing.T) {
	for _, c := range []struct {
		files string // separated by ;
		want  string // "" = nothing is wrong
	}{
		{"gate/a.go: context net/netip; gate/a_test.go: ~/gate testing", ""},
		{"internal/waitq/a.go: ~/gate; pressure/a.go: ~/gate ~/pressure/cgroup; pressure/cgroup/b.go: os", ""},
		{"admission/a.go: ~/gate ~/internal/waitq ~/pressure; lanes/a.go: ~/pressure ~/internal/clock; internal/clock/a.go: time", ""},
		{"headgate.go: ~/admission ~/lanes ~/inflight; monitor/a.go: ~ ~/lanes; gatetest/a.go: ~ ~/gate testing", ""},
		{"admission/a_test.go: ~/gatetest ~/admission", ""},
		{"gatehttp/a.go: ~/gate net/http", ""},
		{"testdata/a.go: github.com/x/y; _old/a.go: ~/lanes x.org/z; other/go.mod: ; other/a.go: x.org/z", ""},

		{"gate/a.go: ~/pressure", `gate/a.go imports "pressure": gate may import`},
		{"gate/a.go: ~", "gate may import"},
		{"gate/a_test.go: ~/lanes", "gate may import"},
		{"gate/deep/a.go: ~/internal/waitq", "gate may import"},
		{"gatehttp/a.go: ~/admission", "gatehttp may import"},
		{"internal/waitq/a.go: ~/pressure", "internal/waitq may import"},
		{"internal/waitq/a.go: ~/internal/clock", "internal/waitq may import"},
		{"pressure/a_windows.go: ~/internal/waitq", "pressure may import"},
		{"admission/a.go: ~/lanes", "never import one another"},
		{"lanes/a.go: ~/inflight", "never import one another"},
		{"inflight/deep/a_test.go: ~/admission/deep", "never import one another"},
		{"lanes/a.go: ~/internal/x; internal/x/a.go: ~/internal/y; internal/y/a.go: ~/admission", "lanes comes to admission"},
		{"lanes/a.go: ~", "stands above lanes"},
		{"inflight/a.go: ~/monitor", "stands above inflight"},
		{"internal/x/a.go: ~/monitor", "stands above internal/x"},
		{"lanes/a.go: ~/gatetest", "gatetest is for tests"},
		{"headgate.go: ~/gatetest", "gatetest is for tests"},
		{"lanes/a.go: github.com/x/y", "only the standard library"},
		{"gate/a_test.go: github.com/stretchr/testify/require", "only the standard library"},
		{"headgate.go: m.example/adapters/nethttp", "only the standard library"},
		{"headgate.go: m.example/corecopy", "only the standard library"},
		{"pressure/a.go: golang.org/x/sys/unix", "only the standard library"},
		{"pressure/a.go: C", "only the standard library"},
	} {
		var files []string
		for f := range strings.SplitSeq(c.files, ";") {
			files = append(files, strings.TrimSpace(f))
		}
		edges, _, err := imports(tree(files...))
		if err != nil {
			t.Errorf("%s: %v", c.files, err)
			continue
		}
		got := strings.Join(broken(edges), "\n")
		if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s\n got %q\nwant %q", c.files, got, c.want)
		}
	}
	if _, _, err := imports(fstest.MapFS{}); err == nil {
		t.Error("no error where there is no module")
	}
	if _, _, err := imports(fstest.MapFS{"go.mod": {Data: []byte("module m\n")}, "a.go": {Data: []byte("pack")}}); err == nil {
		t.Error("no error for a file that does not parse")
	}
}
