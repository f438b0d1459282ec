package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const fence = "```"

// A tree holds if every Go block compiles or is part of a file that does.
func TestBlocksOfATree(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"a program", fence + "go\npackage main\n\nfunc main() {}\n" + fence, ""},
		{"a program with a sibling", fence + "go\npackage main\n\nimport \"example.com/m\"\n\nfunc main() { m.F() }\n" + fence, ""},
		{"a part", "<!-- from m/m.go -->\n" + fence + "go\nfunc F() {}\n" + fence, ""},
		{"another language", fence + "sh\nfunc F(\n" + fence, ""},
		{"a part of nothing", fence + "go\nfunc F() {}\n" + fence, "neither a whole program nor"},
		{"a part that is not there", "<!-- from m/m.go -->\n" + fence + "go\nfunc G() {}\n" + fence, "is not part of m/m.go"},
		{"a file that is not there", "<!-- from m/n.go -->\n" + fence + "go\nfunc F() {}\n" + fence, "no such file"},
		{"a file that nothing compiles", "<!-- from m/testdata/x.go -->\n" + fence + "go\nfunc F() {}\n" + fence, "not compiled"},
		{"a file that is left out", "<!-- from m/ignored.go -->\n" + fence + "go\nfunc F() {}\n" + fence, "not compiled on this system"},
		{"a file outside", "<!-- from ../m/m.go -->\n" + fence + "go\nfunc F() {}\n" + fence, "does not name a Go file"},
		{"a program that does not compile", fence + "go\npackage main\n\nfunc main() { x() }\n" + fence, "does not compile"},
		{"a program in no form", fence + "go\npackage main\nfunc main() {}\n" + fence, "not formatted"},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			for name, text := range map[string]string{
				"go.work":         "go 1.25.0\n\nuse ./m\n",
				"m/go.mod":        "module example.com/m\n\ngo 1.25.0\n",
				"m/m.go":          "package m\n\n// F does nothing.\nfunc F() {}\n",
				"m/ignored.go":    "//go:build ignore\n\npackage m\n\nfunc F() {}\n",
				"m/testdata/x.go": "package x\n\nfunc F() {}\n",
				"doc/x.md":        c.text + "\n",
			} {
				path := filepath.Join(root, filepath.FromSlash(name))
				if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			blocks, files, err := all(root)
			if err != nil || files != 1 {
				t.Fatal(files, err)
			}
			if c.name == "another language" {
				if len(blocks) != 0 {
					t.Error("a block of another language is looked at")
				}
				return
			}
			if len(blocks) != 1 {
				t.Fatalf("%d blocks", len(blocks))
			}
			err = check(root, blocks[0])
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}
