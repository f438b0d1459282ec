package main

import (
	"go/ast"
	"go/doc"
	"go/token"
	"strings"
)

// entries are the methods that a caller starts with: an Example of their package calls them.
var entries = map[string]bool{"Acquire": true, "Do": true, "Probe": true, "Reconfigure": true, "Shutdown": true, "Snapshot": true}

func (p *pkg) check() {
	if want := "Package " + p.doc.Name + " "; !strings.HasPrefix(p.doc.Doc, want) && p.doc.Name != "main" {
		p.lack(token.NoPos, "the package comment does not begin with %q", want)
	}
	for _, v := range append(p.doc.Consts, p.doc.Vars...) {
		p.values(v)
	}
	for _, f := range p.doc.Funcs {
		p.function(f)
	}
	for _, t := range p.doc.Types {
		p.comment(t.Decl.Pos(), "type "+t.Name, t.Name, t.Doc)
		for _, v := range append(t.Consts, t.Vars...) {
			p.values(v)
		}
		for _, f := range t.Funcs {
			p.function(f)
		}
		for _, m := range t.Methods {
			if m.Level > 0 {
				continue // of an embedded type, documented there
			}
			name := t.Name + "." + m.Name
			p.comment(m.Decl.Pos(), "method "+name, m.Name, m.Doc)
			if entries[m.Name] && !p.internal && !p.testing() && !p.runnable[name] && !p.called["."+m.Name] {
				p.lack(m.Decl.Pos(), "method %s is called in no Example that runs", name)
			}
		}
		p.members(t)
	}
}

func (p *pkg) function(f *doc.Func) {
	p.comment(f.Decl.Pos(), "func "+f.Name, f.Name, f.Doc)
	switch {
	case p.internal || p.testing() || p.runnable[f.Name]:
	case p.first[p.doc.Name+"."+f.Name]:
	case !opens(f.Name) && p.called[p.doc.Name+"."+f.Name]:
	case opens(f.Name):
		p.lack(f.Decl.Pos(), "func %s has no Example that runs", f.Name)
	default:
		p.lack(f.Decl.Pos(), "func %s has no Example that runs, and none calls it", f.Name)
	}
}

// opens is whether a function is a way into its package, so that an Example has to
// stand beside it.
func opens(name string) bool {
	switch name {
	case "Open", "WithConfig", "Middleware", "Attach", "Acquire", "Release", "Refuse", "Context", "SetClass", "Handler":
		return true
	}
	return name == "New" || strings.HasPrefix(name, "New") && ast.IsExported(strings.TrimPrefix(name, "New"))
}

// testing is whether the package is for tests: one that takes a test. Its Examples are
// the tests of those who use it.
func (p *pkg) testing() bool {
	for _, f := range p.doc.Funcs {
		if forTests(f.Decl) {
			return true
		}
	}
	return false
}

// forTests is whether a function takes a test, which no Example has.
func forTests(f *ast.FuncDecl) bool {
	for _, field := range f.Type.Params.List {
		typ := field.Type
		if star, ok := typ.(*ast.StarExpr); ok {
			typ = star.X
		}
		if sel, ok := typ.(*ast.SelectorExpr); ok {
			if x, ok := sel.X.(*ast.Ident); ok && x.Name == "testing" {
				return true
			}
		}
	}
	return false
}

// comment wants a text that begins with the name, as Go's doc comments do.
func (p *pkg) comment(pos token.Pos, what, name, text string) {
	if strings.TrimSpace(text) == "" {
		p.lack(pos, "%s has no comment", what)
		return
	}
	rest := text
	for _, article := range []string{"A ", "An ", "The "} {
		rest = strings.TrimPrefix(rest, article)
	}
	if i := word(rest, name); i != 0 {
		p.lack(pos, "the comment of %s does not begin with %q", what, name)
	}
}

// word is where name stands in text as a word, or -1.
func word(text, name string) int {
	for at := 0; ; {
		i := strings.Index(text[at:], name)
		if i < 0 {
			return -1
		}
		begin, end := at+i, at+i+len(name)
		if (begin == 0 || !isLetter(text[begin-1])) && (end == len(text) || !isLetter(text[end])) {
			return begin
		}
		at = end
	}
}

func isLetter(b byte) bool { return b == '_' || '0' <= b && b <= '9' || 'a' <= b|0x20 && b|0x20 <= 'z' }

// values wants a comment on each constant and variable: its own, behind it, or that of
// the group it stands in.
func (p *pkg) values(v *doc.Value) {
	if v.Doc != "" {
		return
	}
	covered := false
	for _, spec := range v.Decl.Specs {
		spec, ok := spec.(*ast.ValueSpec)
		if !ok {
			continue
		}
		covered = spec.Doc != nil || spec.Comment != nil || covered && p.follows(v.Decl.Specs, spec)
		for _, name := range spec.Names {
			if name.IsExported() && !covered {
				p.lack(name.Pos(), "%s %s has no comment", v.Decl.Tok, name.Name)
			}
		}
	}
}

// follows is whether spec stands on the line below another one: a comment above a run
// of lines is about all of them.
func (p *pkg) follows(specs []ast.Spec, spec ast.Spec) bool {
	line := p.fset.Position(spec.Pos()).Line
	for _, other := range specs {
		if p.fset.Position(other.End()).Line == line-1 {
			return true
		}
	}
	return false
}

// members wants a comment on each exported field of a struct and method of an
// interface: its own, behind it, above the run of lines it stands in, or that of the
// type, if that names it. Internal packages go without.
func (p *pkg) members(t *doc.Type) {
	if p.internal {
		return
	}
	for _, spec := range t.Decl.Specs {
		spec, ok := spec.(*ast.TypeSpec)
		if !ok || spec.Name.Name != t.Name {
			continue
		}
		switch typ := spec.Type.(type) {
		case *ast.StructType:
			p.fields(t.Name, t.Doc, typ.Fields.List)
		case *ast.InterfaceType:
			p.fields(t.Name, t.Doc, typ.Methods.List)
		}
	}
}

func (p *pkg) fields(owner, comment string, list []*ast.Field) {
	covered, last := false, -1
	for _, field := range list {
		own := field.Doc != nil || field.Comment != nil
		covered = own || covered && p.fset.Position(field.Pos()).Line == last+1
		last = p.fset.Position(field.End()).Line
		for _, name := range field.Names {
			if name.IsExported() && !covered && word(comment, name.Name) < 0 {
				p.lack(name.Pos(), "%s.%s has no comment", owner, name.Name)
			}
		}
		if inner, ok := field.Type.(*ast.StructType); ok && len(field.Names) > 0 && field.Names[0].IsExported() {
			p.fields(owner+"."+field.Names[0].Name, field.Doc.Text(), inner.Fields.List)
		}
	}
}
