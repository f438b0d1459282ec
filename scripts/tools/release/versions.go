package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"

	"github.com/headgate-go/headgate/scripts/tools/internal/tree"
)

// A sibling is a requirement of one module of the tree on another.
type sibling struct {
	from     tree.Module
	to       tree.Module
	version  string
	replaced bool // by a directory, so that the tree builds before the tags are there
}

func (r *release) siblings() []sibling {
	var all []sibling
	for _, m := range r.modules {
		for _, req := range m.File.Require {
			for _, to := range r.modules {
				if to.Path != req.Mod.Path {
					continue
				}
				replaced := slices.ContainsFunc(m.File.Replace, func(rep *modfile.Replace) bool {
					return rep.Old.Path == to.Path && rep.New.Version == ""
				})
				all = append(all, sibling{m, to, req.Mod.Version, replaced})
			}
		}
	}
	return all
}

// setVersions writes the version into the go.mod files of the tree.
func (r *release) setVersions() error {
	changed, err := r.writeVersions()
	if err == nil {
		fmt.Printf("versions: %d go.mod files changed, siblings are required at %s\n", changed, r.version)
	}
	return err
}

// writeVersions changes nothing but the versions. The replace lines stay: Go ignores them
// in a module that is required.
func (r *release) writeVersions() (changed int, err error) {
	for _, m := range r.modules {
		for _, s := range r.siblings() {
			if s.from.Dir == m.Dir {
				if err := m.File.AddRequire(s.to.Path, r.version); err != nil {
					return changed, err
				}
			}
		}
		n, err := writeMod(r.root, m)
		if err != nil {
			return changed, err
		}
		changed += n
	}
	return changed, nil
}

// writeMod writes the go.mod of m below root, if it changes anything.
func writeMod(root string, m tree.Module) (changed int, err error) {
	data, err := m.File.Format()
	if err != nil {
		return 0, err
	}
	name := filepath.Join(root, filepath.FromSlash(m.Dir), "go.mod")
	old, err := os.ReadFile(name)
	if err != nil || string(old) == string(data) {
		return 0, err
	}
	return 1, os.WriteFile(name, data, 0o600) // it exists: its mode stays
}

// state checks what must be so before a tag: nothing uncommitted, the version free, one
// version in every requirement on a sibling, and none of them on what gets no tag.
func (r *release) state() error {
	var wrong []string
	if dirty, err := r.git("status", "--porcelain"); err != nil {
		return err
	} else if dirty != "" {
		wrong = append(wrong, "the tree is not clean:\n"+dirty)
	}
	head, err := r.git("rev-parse", "HEAD")
	if err != nil {
		return err
	}
	for _, m := range r.released() {
		at, err := r.git("rev-parse", "--verify", "--quiet", "refs/tags/"+m.Tag(r.version)+"^{commit}")
		if err == nil && at != head {
			wrong = append(wrong, fmt.Sprintf("%s is tagged already, on another commit", m.Tag(r.version)))
		}
	}
	versions := make(map[string]bool)
	for _, s := range r.siblings() {
		versions[s.version] = true
		if !s.replaced {
			wrong = append(wrong, fmt.Sprintf("%s/go.mod requires %s without a replace line to its directory", s.from.Dir, s.to.Path))
		}
		if s.from.Released && !s.to.Released {
			wrong = append(wrong, fmt.Sprintf("%s/go.mod requires %s, which is never tagged", s.from.Dir, s.to.Path))
		}
	}
	if len(versions) > 1 {
		wrong = append(wrong, "siblings are required at more than one version:")
		for _, s := range r.siblings() {
			wrong = append(wrong, fmt.Sprintf("  %s/go.mod: %s %s", s.from.Dir, s.to.Path, s.version))
		}
	}
	if len(wrong) > 0 {
		return errors.New(strings.Join(wrong, "\n"))
	}
	names := make([]string, 0, len(r.modules))
	for _, m := range r.released() {
		names = append(names, m.Dir)
	}
	fmt.Printf("state: %s is clean; to tag: %s\n", head[:12], strings.Join(names, " "))
	if !r.ready() {
		fmt.Printf("state: a rehearsal, siblings are not required at %s yet (make release-versions VERSION=%s)\n", r.version, r.version)
	}
	return nil
}

// ready is whether every requirement on a sibling names the version.
func (r *release) ready() bool {
	return !slices.ContainsFunc(r.siblings(), func(s sibling) bool { return s.version != r.version })
}

// tags prints what makes and pushes the tags, core's first. It refuses what is not ready.
func (r *release) tags() error {
	if !r.ready() {
		return fmt.Errorf("siblings are not required at %s: make release-versions VERSION=%s, commit, make release-check", r.version, r.version)
	}
	if err := r.state(); err != nil {
		return err
	}
	push := "git push origin"
	for _, m := range r.released() {
		fmt.Printf("git tag -a %s -m %s\n", m.Tag(r.version), m.Tag(r.version))
		push += " " + m.Tag(r.version)
	}
	fmt.Println(push)
	return nil
}
