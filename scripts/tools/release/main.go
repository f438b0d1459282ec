// Command release is what scripts/release-check.sh and the release targets of the
// Makefile are made of. RELEASE.md says when to use which.
//
//	release versions VERSION    write VERSION into every requirement of a module on another
//	release state VERSION       say whether the tree is ready to be tagged VERSION
//	release consumer VERSION    use the modules as VERSION the way their users do
//	release api VERSION         compare the exported interfaces with the last tags
//	release tags VERSION        print the commands that make and push the tags
//
// All but versions look at the last commit and not at the files that lie around it.
package main

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"

	"github.com/headgate-go/headgate/scripts/tools/internal/tree"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	steps := map[string]func(*release) error{
		"versions": (*release).setVersions,
		"state":    (*release).state,
		"consumer": (*release).consumer,
		"api":      (*release).api,
		"tags":     (*release).tags,
	}
	if len(args) != 2 || steps[args[0]] == nil {
		return errors.New("usage: release versions|state|consumer|api|tags VERSION")
	}
	root, err := tree.Root()
	if err != nil {
		return err
	}
	r, err := open(root, args[1])
	if err != nil {
		return err
	}
	defer r.close()
	return steps[args[0]](r)
}

// A release is a tree on its way to a version.
type release struct {
	root    string
	version string
	modules []tree.Module // all of the tree, core first
	tmp     string
}

func open(root, version string) (*release, error) {
	if semver.Canonical(version) != version || version == "" || semver.Build(version) != "" {
		return nil, fmt.Errorf("VERSION is %q and must be like v0.1.0 or v0.2.0-rc.1", version)
	}
	modules, err := tree.Modules(root)
	if err != nil {
		return nil, err
	}
	r := &release{root: root, version: version, modules: modules}
	for _, m := range r.released() {
		if err := module.Check(m.Path, version); err != nil {
			return nil, err // v2 and later want /v2 in the path
		}
	}
	r.tmp, err = os.MkdirTemp("", "headgate-release")
	return r, err
}

func (r *release) close() { _ = os.RemoveAll(r.tmp) }

// released are the modules that get a tag.
func (r *release) released() []tree.Module {
	var out []tree.Module
	for _, m := range r.modules {
		if m.Released {
			out = append(out, m)
		}
	}
	return out
}
