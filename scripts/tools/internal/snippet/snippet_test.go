package snippet

import (
	"strings"
	"testing"
)

const source = `package p

func f() {
	one := 1
	if one == 1 {
		two(one)
	}

	three()
	four()
}
`

func TestFind(t *testing.T) {
	for _, c := range []struct {
		name, code string
		there      bool
	}{
		{"all of it", source, true},
		{"with the indentation of the file", "\tone := 1\n\tif one == 1 {\n\t\ttwo(one)\n\t}\n", true},
		{"without it", "one := 1\nif one == 1 {\n\ttwo(one)\n}\n", true},
		{"with the middle left out", "one := 1\n// ...\nfour()\n", true},
		{"with words behind the dots", "one := 1\n\t// ... and at the end:\nfour()\n", true},
		{"blank lines around a part", "\none := 1\n\n// ...\n\nthree()\n", true},
		{"a line less", "three()\n}\n", false},
		{"another word", "one := 2\n", false},
		{"the end of a line", ":= 1\n", false},
		{"another indentation inside", "if one == 1 {\ntwo(one)\n}\n", false},
		{"parts in another order", "four()\n// ...\none := 1\n", false},
		{"one line for two parts", "three()\n// ...\nthree()\n", false},
	} {
		if err := Find(c.code, source); (err == nil) != c.there {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestBlocks(t *testing.T) {
	text := strings.ReplaceAll(`
<!-- from a/b.go -->

'''go
one()
'''

<!-- from lost.go -->
Words stand between.

'''go
two()
'''

'''sh
go test
'''

- item

  '''golang title="x"
  three()
  '''

~~~go
'''
~~~

''''text
'''go
not()
'''
''''
`, "'", "`")
	blocks, err := Blocks("x.md", text)
	if err != nil {
		t.Fatal(err)
	}
	want := []Block{
		{"x.md", 4, "a/b.go", "one()\n"},
		{"x.md", 11, "", "two()\n"},
		{"x.md", 21, "", "three()\n"},
		{"x.md", 25, "", "```\n"},
	}
	if len(blocks) != len(want) {
		t.Fatalf("%d blocks, want %d: %v", len(blocks), len(want), blocks)
	}
	for i := range want {
		if blocks[i] != want[i] {
			t.Errorf("block %d is %#v, want %#v", i, blocks[i], want[i])
		}
	}
	if _, err := Blocks("x.md", "```go\none()\n"); err == nil {
		t.Error("a block that is never closed is taken")
	}
}

func TestProgram(t *testing.T) {
	for code, program := range map[string]bool{
		"package main\n":                  true,
		"// A comment.\n\npackage main\n": true,
		"packages := 1\n":                 false,
		"func main() {}\n":                false,
		"":                                false,
	} {
		if got := (Block{Code: code}).Program(); got != program {
			t.Errorf("%q: %v", code, got)
		}
	}
}
