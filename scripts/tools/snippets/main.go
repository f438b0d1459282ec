// Command snippets checks that the Go blocks of every Markdown file compile: each is
// a whole program, which it builds, or part of a file of the tree, which the comment
// above the block names:
//
//	<!-- from examples/quickstart/main.go -->
//
// Run it anywhere in the tree. It prints every block that does not hold, then fails.
package main

import (
	"errors"
	"fmt"
	"go/build"
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/headgate-go/headgate/scripts/tools/internal/snippet"
	"github.com/headgate-go/headgate/scripts/tools/internal/tree"
)

func main() {
	root, err := tree.Root()
	if err == nil {
		err = run(root)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "snippets:", err)
		os.Exit(1)
	}
}

func run(root string) error {
	blocks, files, err := all(root)
	if err != nil {
		return err
	}
	bad := 0
	for _, b := range blocks {
		if err := check(root, b); err != nil {
			bad++
			fmt.Printf("%s: %v\n", b, err)
		}
	}
	if bad > 0 {
		return fmt.Errorf("%d of %d Go blocks do not hold (see above)", bad, len(blocks))
	}
	fmt.Printf("snippets: %d Go blocks in %d Markdown files compile or stand in a file that does\n", len(blocks), files)
	return nil
}

// all reads the blocks of every Markdown file.
func all(root string) (blocks []snippet.Block, files int, err error) {
	err = tree.Walk(root, func(name string) error {
		if filepath.Ext(name) != ".md" {
			return nil
		}
		files++
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
		if err != nil {
			return err
		}
		found, err := snippet.Blocks(name, string(text))
		blocks = append(blocks, found...)
		return err
	})
	if err == nil && files == 0 {
		err = errors.New("no Markdown file found")
	}
	return blocks, files, err
}

func check(root string, b snippet.Block) error {
	switch {
	case b.From != "":
		source, err := read(root, b.From)
		if err != nil {
			return err
		}
		if err := snippet.Find(b.Code, source); err != nil {
			return fmt.Errorf("is not part of %s: %w", b.From, err)
		}
		return nil
	case b.Program():
		return compile(root, b.Code)
	}
	return errors.New("is neither a whole program nor does a comment above it name its file: <!-- from FILE -->")
}

// read returns a source file that the builds of the tree compile.
func read(root, name string) (string, error) {
	if !filepath.IsLocal(filepath.FromSlash(name)) || filepath.Ext(name) != ".go" {
		return "", fmt.Errorf("%q does not name a Go file of the tree", name)
	}
	for _, part := range strings.Split(name, "/") {
		if part == "testdata" || strings.HasPrefix(part, ".") || strings.HasPrefix(part, "_") {
			return "", fmt.Errorf("%s is not compiled", name)
		}
	}
	path := filepath.Join(root, filepath.FromSlash(name))
	data, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	if ok, err := build.Default.MatchFile(filepath.Split(path)); err != nil || !ok {
		return "", fmt.Errorf("%s is not compiled on this system (%v)", name, err)
	}
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return string(data), nil
		}
		if dir == root || dir == filepath.Dir(dir) {
			return "", fmt.Errorf("%s is in no module", name)
		}
	}
}

// compile builds a program against the modules of go.work.
func compile(root, code string) error {
	switch formatted, err := format.Source([]byte(code)); {
	case err != nil:
		return fmt.Errorf("does not compile: %w", err)
	case string(formatted) != code:
		return errors.New("is not formatted as gofmt does it")
	}
	dir, err := os.MkdirTemp("", "snippet")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "main.go")
	if err := os.WriteFile(file, []byte(code), 0o600); err != nil {
		return err
	}
	// vet compiles too, and unlike build takes a file that is no program.
	cmd := exec.Command("go", "vet", file)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "GOWORK="+filepath.Join(root, "go.work"))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("does not compile: %w\n%s", err, strings.TrimSpace(string(out)))
	}
	return nil
}
