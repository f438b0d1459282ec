// Package snippet compares the Go blocks of Markdown files with the source that they show.
package snippet

import (
	"fmt"
	"regexp"
	"strings"
)

// A Block is a fenced block that is marked as Go.
type Block struct {
	File string // the Markdown file
	Line int    // of the fence that opens it
	From string // the file that the comment above the block names, or ""
	Code string
}

// String says where the block is.
func (b Block) String() string { return fmt.Sprintf("%s:%d", b.File, b.Line) }

// Program is whether the block is a whole file and not a part of one.
func (b Block) Program() bool {
	for line := range strings.Lines(b.Code) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "//") {
			return strings.HasPrefix(line, "package ")
		}
	}
	return false
}

var (
	open = regexp.MustCompile("^([ \t]*)(```+|~~~+)[ \t]*([A-Za-z0-9_+-]*)")
	from = regexp.MustCompile(`^[ \t]*<!--[ \t]*from[ \t]+(\S+)[ \t]*-->[ \t]*$`)
)

// Blocks are the Go blocks of the Markdown file name with the given text.
func Blocks(name, text string) ([]Block, error) {
	var (
		blocks []Block
		fence  []string // of the open block: indentation, fence, language
		block  Block
		source string
	)
	for i, line := range strings.Split(text, "\n") {
		if fence == nil {
			if fence = open.FindStringSubmatch(line); fence != nil {
				block = Block{File: name, Line: i + 1, From: source}
				source = ""
			} else if m := from.FindStringSubmatch(line); m != nil {
				source = m[1]
			} else if strings.TrimSpace(line) != "" {
				source = ""
			}
			continue
		}
		if end := strings.TrimSpace(line); strings.HasPrefix(end, fence[2]) && strings.Trim(end, fence[2][:1]) == "" {
			if lang := strings.ToLower(fence[3]); lang == "go" || lang == "golang" {
				blocks = append(blocks, block)
			}
			fence = nil
			continue
		}
		block.Code += strings.TrimPrefix(line, fence[1]) + "\n"
	}
	if fence != nil {
		return nil, fmt.Errorf("%s: the block is never closed", block)
	}
	return blocks, nil
}

// Find says whether code is part of source: line by line, in the same order, but for
// the indentation of the whole and what lines that begin with "// ..." leave out. The
// error shows the part that is not there.
func Find(code, source string) error {
	lines := strings.Split(source, "\n")
	for _, part := range parts(code) {
		end := find(part, lines)
		if end < 0 {
			return fmt.Errorf("these lines are not there, or not in this order:\n%s", strings.Join(part, "\n"))
		}
		lines = lines[end:]
	}
	return nil
}

// parts cuts code at its elisions.
func parts(code string) [][]string {
	var all [][]string
	var part []string
	cut := func() {
		for len(part) > 0 && strings.TrimSpace(part[0]) == "" {
			part = part[1:]
		}
		for len(part) > 0 && strings.TrimSpace(part[len(part)-1]) == "" {
			part = part[:len(part)-1]
		}
		if len(part) > 0 {
			all = append(all, dedent(part))
		}
		part = nil
	}
	for _, line := range strings.Split(code, "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "// ...") {
			cut()
			continue
		}
		part = append(part, line)
	}
	cut()
	return all
}

// find is the index behind the first place where part stands in lines, or -1.
func find(part, lines []string) int {
	for i := 0; i+len(part) <= len(lines); i++ {
		if !strings.HasSuffix(lines[i], strings.TrimLeft(part[0], "\t")) {
			continue
		}
		if window := dedent(lines[i : i+len(part)]); equal(part, window) {
			return i + len(part)
		}
	}
	return -1
}

// dedent takes off the tabs that all lines begin with.
func dedent(lines []string) []string {
	tabs := -1
	for _, line := range lines {
		if strings.TrimSpace(line) == "" {
			continue
		}
		if n := len(line) - len(strings.TrimLeft(line, "\t")); tabs < 0 || n < tabs {
			tabs = n
		}
	}
	out := make([]string, len(lines))
	for i, line := range lines {
		if strings.TrimSpace(line) != "" {
			out[i] = line[tabs:]
		}
	}
	return out
}

func equal(a, b []string) bool {
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}
