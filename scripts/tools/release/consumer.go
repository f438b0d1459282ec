package main

import (
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-go/headgate/scripts/tools/internal/tree"
)

// A consumer makes modules outside of the tree that know the released ones only from a
// proxy.
type consumer struct {
	*release
	env  []string
	sums []byte // what the tree knows of the checksums of others
}

// consumer publishes the modules to a proxy of files and is then their user: it gets
// each of them into an empty module of its own, builds every package, runs its Examples,
// and runs the programs that the Markdown files show.
func (r *release) consumer() error {
	proxy, err := r.proxy()
	if err != nil {
		return err
	}
	c := &consumer{release: r}
	if c.env, err = environment(proxy, filepath.Join(r.tmp, "modcache")); err != nil {
		return err
	}
	if c.sums, err = sums(filepath.Join(r.tmp, "src"), r.modules); err != nil {
		return err
	}
	for _, m := range r.released() {
		if err := c.timed(m.Dir, func() error { return c.use(m) }); err != nil {
			return err
		}
	}
	if err := c.timed("all of them together", func() error { return c.use(r.released()...) }); err != nil {
		return err
	}
	return c.runPrograms()
}

// sums joins the go.sum files of the tree. Go verifies with them what it gets, and has to
// ask a checksum database only for the rest, if there is any.
func sums(src string, modules []tree.Module) ([]byte, error) {
	var all []byte
	for _, m := range modules {
		data, err := os.ReadFile(filepath.Join(src, filepath.FromSlash(m.Dir), "go.sum"))
		if err != nil && !os.IsNotExist(err) {
			return nil, err
		}
		all = append(all, data...)
	}
	return all, nil
}

// environment is that of somebody who has never heard of the tree: no workspace, no
// replace, a cache of his own. What is not ours comes from the cache of this machine, and
// what that lacks from where GOPROXY says. Only ours has no checksums to look up.
func environment(proxy, cache string) ([]string, error) {
	known, err := command(".", nil, "go", "env", "GOMODCACHE")
	if err != nil {
		return nil, err
	}
	upstream, err := command(".", nil, "go", "env", "GOPROXY")
	if err != nil {
		return nil, err
	}
	ours := "github.com/headgate-go"
	return []string{
		"GOWORK=off",
		// trimpath lets the build cache serve the next run, whose directories have other names.
		"GOFLAGS=-mod=mod -trimpath -modcacherw -buildvcs=false",
		"GOMODCACHE=" + cache,
		"GOPROXY=" + fileURL(proxy) + "," + fileURL(filepath.Join(known, "cache", "download")) + "," + upstream,
		"GONOPROXY=none",
		"GONOSUMDB=" + ours,
	}, nil
}

func fileURL(dir string) string {
	dir = filepath.ToSlash(dir)
	if !strings.HasPrefix(dir, "/") {
		dir = "/" + dir
	}
	return "file://" + dir
}

func (c *consumer) timed(what string, f func() error) error {
	start := time.Now()
	if err := f(); err != nil {
		return fmt.Errorf("consumer of %s: %w", what, err)
	}
	fmt.Printf("consumer: %s (%.1fs)\n", what, time.Since(start).Seconds())
	return nil
}

// module makes an empty module that requires the given ones, got as users get them.
func (c *consumer) module(modules []tree.Module) (dir string, err error) {
	if dir, err = os.MkdirTemp(c.tmp, "consumer"); err != nil {
		return "", err
	}
	if _, err := command(dir, c.env, "go", "mod", "init", "example.com/consumer"); err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(dir, "go.sum"), c.sums, 0o600); err != nil {
		return "", err
	}
	for _, m := range modules {
		if _, err := command(dir, c.env, "go", "get", m.Path+"@"+c.version); err != nil {
			return "", err
		}
	}
	return dir, nil
}

// use builds every package of the modules in an empty one, and runs their Examples.
func (c *consumer) use(modules ...tree.Module) error {
	dir, err := c.module(modules)
	if err != nil {
		return err
	}
	var patterns []string
	for _, m := range modules {
		patterns = append(patterns, m.Path+"/...")
	}
	list, err := command(dir, c.env, "go", append([]string{"list", "-f", `{{if ne .Name "main"}}{{.ImportPath}}{{end}}`}, patterns...)...)
	if err != nil {
		return err
	}
	text := "package main\n\nimport (\n"
	for _, path := range strings.Fields(list) {
		if !strings.Contains(path+"/", "/internal/") {
			text += "\t_ " + strconv.Quote(path) + "\n"
		}
	}
	text += ")\n\nfunc main() {}\n"
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(text), 0o600); err != nil {
		return err
	}
	if _, err := command(dir, c.env, "go", "run", "."); err != nil {
		return err
	}
	if err := c.checkVersions(dir); err != nil || len(modules) > 1 {
		return err
	}
	_, err = command(dir, c.env, "go", append([]string{"test", "-vet=off", "-run=^Example", "-timeout=5m"}, patterns...)...)
	return err
}

// checkVersions wants every module of ours that dir uses at the version, from the proxy.
func (c *consumer) checkVersions(dir string) error {
	list, err := command(dir, c.env, "go", "list", "-deps", "-f",
		"{{with .Module}}{{.Path}} {{.Version}} {{with .Replace}}replaced{{end}}{{end}}", ".")
	if err != nil {
		return err
	}
	ours := 0
	for line := range strings.Lines(list) {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		m, ok := tree.Of(c.modules, fields[0])
		if !ok {
			continue
		}
		ours++
		if !m.Released || len(fields) != 2 || fields[1] != c.version {
			return fmt.Errorf("gets %s", strings.TrimSpace(line))
		}
	}
	if ours == 0 {
		return errors.New("gets none of the modules")
	}
	return nil
}

// requires are the released modules that a program imports from; ok is false where it
// imports what no user can: an example's package, or one that is internal.
func (c *consumer) requires(name, code string) (modules []tree.Module, ok bool, err error) {
	file, err := parser.ParseFile(token.NewFileSet(), name, code, parser.ImportsOnly)
	if err != nil || file.Name.Name != "main" {
		return nil, false, err
	}
	for _, spec := range file.Imports {
		path, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return nil, false, err
		}
		m, ours := tree.Of(c.modules, path)
		if !ours {
			continue
		}
		if !m.Released || strings.Contains(path+"/", "/internal/") {
			return nil, false, nil
		}
		if !slices.ContainsFunc(modules, func(o tree.Module) bool { return o.Dir == m.Dir }) {
			modules = append(modules, m)
		}
	}
	return modules, len(modules) > 0, nil
}
