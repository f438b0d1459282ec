package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/mod/semver"

	"github.com/headgate-go/headgate/scripts/tools/internal/tree"
)

// What compares: see golang.org/x/exp/apidiff for what counts as incompatible.
const apidiff = "golang.org/x/exp/cmd/apidiff@v0.0.0-20261113113407-e3970619a1a4"

// api compares every released module of the last commit with its last tag. An
// incompatible change must be written down in docs/api-changes/VERSION.md, in the words
// of apidiff, and the version must be one that may have it.
func (r *release) api() error {
	bases := make(map[string]string) // module -> version of its last tag
	for _, m := range r.released() {
		base, err := r.base(m)
		if err != nil {
			return err
		}
		if base != "" {
			bases[m.Dir] = base
		}
	}
	if len(bases) == 0 {
		fmt.Println("api: nothing is tagged yet, so there is nothing to compare with")
		return nil
	}
	bin := filepath.Join(r.tmp, "bin")
	if _, err := command(r.tmp, []string{"GOBIN=" + bin, "GOWORK=off"}, "go", "install", apidiff); err != nil {
		return err
	}
	src, err := r.export("HEAD", "new")
	if err != nil {
		return err
	}
	notes := "docs/api-changes/" + r.version + ".md"
	written, err := os.ReadFile(filepath.Join(src, filepath.FromSlash(notes)))
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	exports := make(map[string]string) // commit -> directory
	var unwritten, early []string
	for _, m := range r.released() {
		base, ok := bases[m.Dir]
		if !ok {
			fmt.Printf("api: %s is new\n", m.Dir)
			continue
		}
		commit, err := r.git("rev-parse", m.Tag(base)+"^{commit}")
		if err != nil {
			return err
		}
		if exports[commit] == "" {
			if exports[commit], err = r.export(commit, "old-"+commit); err != nil {
				return err
			}
		}
		broken, added, err := r.compare(filepath.Join(bin, "apidiff"), m, exports[commit], src)
		if err != nil {
			return err
		}
		fmt.Printf("api: %s since %s: %d incompatible changes, %d others\n", m.Dir, base, len(broken), added)
		for _, change := range broken {
			line := "- " + m.Dir + ": " + change
			if !contains(string(written), line) {
				unwritten = append(unwritten, line)
			}
			if !mayBreak(base, r.version) {
				early = append(early, line)
			}
		}
	}
	switch {
	case len(unwritten) > 0:
		return fmt.Errorf("incompatible changes that %s does not have; undo them, or put these lines there and say what to write instead:\n%s",
			notes, strings.Join(unwritten, "\n"))
	case len(early) > 0:
		return fmt.Errorf("incompatible changes, which %s may not have: before v1 the minor version must rise, from v1 on the major:\n%s",
			r.version, strings.Join(early, "\n"))
	}
	return nil
}

// base is the version of the last tag of m before this one, among the ancestors of the
// last commit; "" where there is none.
func (r *release) base(m tree.Module) (base string, err error) {
	list, err := r.git("tag", "--merged", "HEAD", "--list", m.Dir+"/v*")
	for _, tag := range strings.Fields(list) {
		version := strings.TrimPrefix(tag, m.Dir+"/")
		if semver.IsValid(version) && semver.Compare(version, r.version) < 0 && (base == "" || semver.Compare(version, base) > 0) {
			base = version
		}
	}
	return base, err
}

// compare returns what is incompatible between the module in two trees, and the number of
// changes that are not.
func (r *release) compare(apidiff string, m tree.Module, before, after string) (broken []string, added int, err error) {
	var files []string
	for i, src := range []string{before, after} {
		file := filepath.Join(r.tmp, fmt.Sprintf("%s-%d.api", strings.ReplaceAll(m.Dir, "/", "-"), i))
		dir := filepath.Join(src, filepath.FromSlash(m.Dir))
		// apidiff says on its way which internal packages it passes over.
		if _, err := command(dir, []string{"GOWORK=off"}, apidiff, "-m", "-w", file, m.Path); err != nil {
			return nil, 0, err
		}
		files = append(files, file)
	}
	out, err := command(r.tmp, nil, apidiff, "-m", files[0], files[1])
	if err != nil {
		return nil, 0, err
	}
	incompatible, known := false, false
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		switch change, ok := strings.CutPrefix(line, "- "); {
		case line == "Incompatible changes:":
			incompatible, known = true, true
		case line == "Compatible changes:":
			incompatible, known = false, true
		case ok && incompatible:
			broken = append(broken, change)
		case ok:
			added++
		}
	}
	if out != "" && !known {
		return nil, 0, errors.New("apidiff prints what is not understood:\n" + out)
	}
	return broken, added, nil
}

// contains is whether text has the line.
func contains(text, line string) bool {
	for l := range strings.Lines(text) {
		if strings.TrimSpace(l) == line {
			return true
		}
	}
	return false
}

// mayBreak is whether the step between two versions is one that may break users.
func mayBreak(from, to string) bool {
	if semver.Major(from) == "v0" && semver.Major(to) == "v0" {
		return semver.MajorMinor(from) != semver.MajorMinor(to)
	}
	return semver.Major(from) != semver.Major(to)
}
