// Command docscheck checks what pkg.go.dev shows of the released modules: every
// package says what it is for, every export is documented, and every way into a
// package has an Example that runs. Run it anywhere in the tree. It prints everything
// that is missing, then fails.
//
// The way into a package is each of its exported functions, and the methods that a
// caller starts with (see entries and opens in check.go). An Example runs if it has an
// Output comment. A function that opens something has one of its own, or one of the
// package calls it; for the others it is enough that any Example calls them.
package main

import (
	"fmt"
	"go/ast"
	"go/build"
	"go/doc"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/headgate-go/headgate/scripts/tools/internal/tree"
)

func main() {
	root, err := tree.Root()
	if err == nil {
		err = run(root)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "docs-check:", err)
		os.Exit(1)
	}
}

func run(root string) error {
	modules, err := tree.Released(root)
	if err != nil {
		return err
	}
	var dirs []string
	all, err := tree.Modules(root)
	if err != nil {
		return err
	}
	err = tree.Walk(root, func(name string) error {
		dir := filepath.ToSlash(filepath.Dir(name))
		if filepath.Ext(name) == ".go" && !slices.Contains(dirs, dir) && inside(all, dir).Released {
			dirs = append(dirs, dir)
		}
		return nil
	})
	if err != nil {
		return err
	}
	missing, examples := 0, 0
	for _, dir := range dirs {
		p, err := load(root, dir, importPath(modules, dir))
		if err != nil {
			return err
		}
		if p == nil {
			continue
		}
		p.check()
		for _, line := range p.missing {
			fmt.Println(line)
		}
		missing += len(p.missing)
		examples += p.examples
	}
	if missing > 0 {
		return fmt.Errorf("%d things are missing (see above)", missing)
	}
	fmt.Printf("docs-check: every export of %d packages is documented, every entry point has an Example; %d Examples run\n", len(dirs), examples)
	return nil
}

// inside is the module that the directory belongs to.
func inside(modules []tree.Module, dir string) (found tree.Module) {
	for _, m := range modules {
		if (dir == m.Dir || strings.HasPrefix(dir, m.Dir+"/")) && len(m.Dir) >= len(found.Dir) {
			found = m
		}
	}
	return found
}

func importPath(modules []tree.Module, dir string) string {
	m := inside(modules, dir)
	return m.Path + strings.TrimPrefix(dir, m.Dir)
}

// A pkg is one package and what it lacks.
type pkg struct {
	root, dir string
	fset      *token.FileSet
	doc       *doc.Package
	internal  bool // nobody outside sees it, so it needs no Examples
	runnable  map[string]bool
	called    map[string]bool // by an Example that runs
	first     map[string]bool // by one of the package
	examples  int
	missing   []string
}

// load reads the package in dir, or returns nil where there are only tests.
func load(root, dir, path string) (*pkg, error) {
	p := &pkg{root: root, dir: dir, fset: token.NewFileSet(), runnable: map[string]bool{}, called: map[string]bool{}}
	p.internal = strings.Contains("/"+path+"/", "/internal/")
	entries, err := os.ReadDir(filepath.Join(root, dir))
	if err != nil {
		return nil, err
	}
	var files []*ast.File
	sources := 0
	for _, entry := range entries {
		name := entry.Name()
		if filepath.Ext(name) != ".go" {
			continue
		}
		if ok, err := build.Default.MatchFile(filepath.Join(root, dir), name); err != nil || !ok {
			continue
		}
		file, err := parser.ParseFile(p.fset, filepath.Join(root, dir, name), nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
		if !strings.HasSuffix(name, "_test.go") {
			sources++
		}
	}
	if sources == 0 {
		return nil, nil
	}
	if p.doc, err = doc.NewFromFiles(p.fset, files, path); err != nil {
		return nil, err
	}
	p.readExamples(files)
	return p, nil
}

// readExamples notes which names have an Example that runs, and what these call,
// directly or through other functions of the tests.
func (p *pkg) readExamples(files []*ast.File) {
	helpers := make(map[string][]ast.Node)
	for _, file := range files {
		if !strings.HasSuffix(p.fset.Position(file.Pos()).Filename, "_test.go") {
			continue
		}
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Body != nil {
				helpers[f.Name.Name] = append(helpers[f.Name.Name], f.Body)
			}
		}
	}
	note := func(name string, all []*doc.Example) {
		for _, e := range all {
			if e.Output != "" || e.EmptyOutput {
				p.examples++
				p.runnable[name] = true
				p.follow(e.Code, helpers)
			}
		}
	}
	note("", p.doc.Examples)
	p.first = maps.Clone(p.called)
	for _, f := range p.doc.Funcs {
		note(f.Name, f.Examples)
	}
	for _, t := range p.doc.Types {
		note(t.Name, t.Examples)
		for _, f := range t.Funcs {
			note(f.Name, f.Examples)
		}
		for _, m := range t.Methods {
			note(t.Name+"."+m.Name, m.Examples)
		}
	}
}

// follow notes what n uses: "pkg.Name" for what is taken from a package, ".Name" for a
// method of any value, since types are not known here.
func (p *pkg) follow(n ast.Node, helpers map[string][]ast.Node) {
	var next []string
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok {
				p.called[x.Name+"."+n.Sel.Name] = true
			}
			p.called["."+n.Sel.Name] = true
			next = append(next, n.Sel.Name)
		case *ast.Ident:
			next = append(next, n.Name)
		}
		return true
	})
	for _, name := range next {
		bodies := helpers[name]
		delete(helpers, name) // each once
		for _, body := range bodies {
			p.follow(body, helpers)
		}
	}
}

func (p *pkg) lack(pos token.Pos, format string, args ...any) {
	at := p.fset.Position(pos)
	name, err := filepath.Rel(p.root, at.Filename)
	if err != nil || !pos.IsValid() {
		p.missing = append(p.missing, p.dir+": "+fmt.Sprintf(format, args...))
		return
	}
	p.missing = append(p.missing, fmt.Sprintf("%s:%d: ", filepath.ToSlash(name), at.Line)+fmt.Sprintf(format, args...))
}
