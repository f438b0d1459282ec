package main

import (
	"os"
	"strings"
	"testing"
)

// The README shows main as it is here, so that what a reader pastes compiles.
func TestReadmeShowsThisProgram(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	_, after, ok := strings.Cut(string(readme), "```go\n")
	snippet, _, closed := strings.Cut(after, "```")
	if !ok || !closed {
		t.Fatal("README.md has no Go block")
	}
	if !strings.Contains(string(source), snippet) {
		t.Errorf("the first Go block of README.md is not part of main.go:\n%s", snippet)
	}
}
