// Package tree knows where things are in this repository: its root, its modules,
// and which of them are released.
package tree

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
)

// A Module is one go.mod of the repository.
type Module struct {
	Dir      string // below the root, with slashes: adapters/gin
	Path     string // as its go.mod names it
	Released bool   // gets a tag: go.work lists it, and it is no example
	File     *modfile.File
}

// Tag is the name of the tag that releases m at version.
func (m Module) Tag(version string) string { return m.Dir + "/" + version }

// Root is the directory above the working directory that holds go.work.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("no go.work here or above")
		}
		dir = up
	}
}

// Modules finds every module below root, core first, since the others need it.
func Modules(root string) ([]Module, error) {
	listed, err := listed(root)
	if err != nil {
		return nil, err
	}
	var modules []Module
	err = Walk(root, func(name string) error {
		if filepath.Base(name) != "go.mod" {
			return nil
		}
		data, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
		if err != nil {
			return err
		}
		file, err := modfile.Parse(name, data, nil)
		if err != nil {
			return err
		}
		if file.Module == nil {
			return fmt.Errorf("%s has no module line", name)
		}
		dir := strings.TrimSuffix(name, "/go.mod")
		example := dir == "examples" || strings.HasPrefix(dir, "examples/")
		modules = append(modules, Module{
			Dir: dir, Path: file.Module.Mod.Path, Released: listed[dir] && !example, File: file,
		})
		return nil
	})
	slices.SortStableFunc(modules, func(a, b Module) int {
		switch {
		case (a.Dir == "core") == (b.Dir == "core"):
			return strings.Compare(a.Dir, b.Dir)
		case a.Dir == "core":
			return -1
		}
		return 1
	})
	return modules, err
}

// Released finds the modules below root that get tags.
func Released(root string) ([]Module, error) {
	all, err := Modules(root)
	return slices.DeleteFunc(all, func(m Module) bool { return !m.Released }), err
}

// Of is the module of which path names a package, or false.
func Of(modules []Module, path string) (found Module, ok bool) {
	for _, m := range modules {
		if (path == m.Path || strings.HasPrefix(path, m.Path+"/")) && len(m.Path) > len(found.Path) {
			found, ok = m, true
		}
	}
	return found, ok
}

// Walk calls f with the name of every file below root, with slashes, in the order of
// the names. It leaves out what the go command leaves out: testdata, and what begins
// with a dot or an underscore.
func Walk(root string, f func(name string) error) error {
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		hidden := strings.HasPrefix(entry.Name(), ".") || strings.HasPrefix(entry.Name(), "_")
		if entry.IsDir() {
			if hidden || entry.Name() == "testdata" {
				return filepath.SkipDir
			}
			return nil
		}
		if hidden {
			return nil
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		return f(filepath.ToSlash(name))
	})
}

// listed is the set of directories in go.work.
func listed(root string) (map[string]bool, error) {
	data, err := os.ReadFile(filepath.Join(root, "go.work"))
	if err != nil {
		return nil, err
	}
	work, err := modfile.ParseWork("go.work", data, nil)
	if err != nil {
		return nil, err
	}
	dirs := make(map[string]bool)
	for _, use := range work.Use {
		dirs[strings.TrimPrefix(filepath.ToSlash(filepath.Clean(use.Path)), "./")] = true
	}
	return dirs, nil
}
