package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const good = `// Package p does one thing.
package p

// Limit is how many.
const Limit = 1

// What there is.
const (
	A = iota
	B
)

// A Thing is a thing; its Name is one.
type Thing struct {
	Name string
	// Both are counted.
	One int
	Two int
	Three int // behind the line
	hidden int
}

// New makes one.
func New() *Thing { return nil }

// Snapshot tells.
func (*Thing) Snapshot() {}

// Help helps.
func Help() {}
`

const goodTest = `package p_test

import "p"

func Example() {
	helper()
	// Output:
}

func helper() { p.Help(); new(p.Thing).Snapshot() }

func ExampleNew() {
	p.New()
	// Output:
}
`

// Each edit takes away one thing that is wanted, and is told of as that thing alone.
func TestWhatIsMissing(t *testing.T) {
	for _, c := range []struct{ old, new, want string }{
		{"", "", ""},
		{"// Package p does one thing.\n", "", "package comment"},
		{"// Package p does", "// P does", "package comment"},
		{"// Limit is how many.\n", "", "const Limit has no comment"},
		{"// What there is.\n", "", "const A has no comment;const B has no comment"},
		{"// New makes", "// Newly makes", `func New does not begin with "New"`},
		{"// New makes one.\n", "", "func New has no comment"},
		{"// Snapshot tells.\n", "", "method Thing.Snapshot has no comment"},
		{"its Name is", "its name is", "Thing.Name has no comment"},
		{"\t// Both are counted.\n", "", "Thing.One has no comment;Thing.Two has no comment"},
		{" // behind the line", "", ""},
		{"\tOne int\n", "\tOne int\n\n", "Thing.Two has no comment"},
		{"func ExampleNew() {\n\tp.New()\n\t// Output:\n}\n", "", "func New has no Example that runs"},
		{"\tp.New()\n\t// Output:\n", "\tp.New()\n", "func New has no Example that runs"},
		{"func ExampleNew() {\n\tp.New()", "func Example_new() {\n\tp.New()", ""},
		{"func ExampleNew() {\n\tp.New()", "func ExampleHelp() {\n\tp.New()", "func New has no Example that runs"},
		{"p.Help(); ", "", "func Help has no Example that runs, and none calls it"},
		{"new(p.Thing).Snapshot()", "", "method Thing.Snapshot is called in no Example that runs"},
		{"func Help() {}", "func Help(t *testing.T) {}", ""},
	} {
		missing := missing(t, strings.Replace(good, c.old, c.new, 1), strings.Replace(goodTest, c.old, c.new, 1))
		if c.want == "" && len(missing) > 0 || c.want != "" && len(missing) != strings.Count(c.want, ";")+1 {
			t.Errorf("without %q is missing: %q", c.old, missing)
			continue
		}
		for i, want := range strings.Split(c.want, ";") {
			if want != "" && !strings.Contains(missing[i], want) {
				t.Errorf("without %q is missing %q, want %q", c.old, missing[i], want)
			}
		}
	}
}

func missing(t *testing.T, source, test string) []string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"p.go": source, "p_test.go": test} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p, err := load(dir, ".", "p")
	if err != nil {
		t.Fatal(err)
	}
	p.check()
	slices.Sort(p.missing)
	return p.missing
}
