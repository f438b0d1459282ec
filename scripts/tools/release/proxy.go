package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"

	"github.com/headgate-go/headgate/scripts/tools/internal/tree"
)

// proxy lays out every released module of the last commit as the files that a module
// proxy serves, and returns their directory. The requirements on siblings name the
// version already, whatever they name in the commit; all else is the commit's.
func (r *release) proxy() (string, error) {
	src, err := r.export("HEAD", "src")
	if err != nil {
		return "", err
	}
	copied, err := open(src, r.version)
	if err != nil {
		return "", err
	}
	defer copied.close()
	if _, err := copied.writeVersions(); err != nil {
		return "", err
	}
	committed, err := r.git("show", "-s", "--format=%cI", "HEAD")
	if err != nil {
		return "", err
	}
	at, err := time.Parse(time.RFC3339, committed)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(r.tmp, "proxy")
	for _, m := range copied.released() {
		if err := publish(dir, src, m, r.version, at.UTC()); err != nil {
			return "", fmt.Errorf("%s: %w", m.Dir, err)
		}
	}
	return dir, nil
}

// publish writes the four files of one version.
func publish(proxy, src string, m tree.Module, version string, at time.Time) error {
	path, err := module.EscapePath(m.Path)
	if err != nil {
		return err
	}
	dir := filepath.Join(proxy, filepath.FromSlash(path), "@v")
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	from := filepath.Join(src, filepath.FromSlash(m.Dir))
	// Go puts the license of the repository into the zip of a module that has none.
	if _, err := os.Stat(filepath.Join(from, "LICENSE")); os.IsNotExist(err) {
		if err := os.Link(filepath.Join(src, "LICENSE"), filepath.Join(from, "LICENSE")); err != nil {
			return err
		}
	}
	info, err := json.Marshal(struct {
		Version string
		Time    time.Time
	}{version, at})
	if err != nil {
		return err
	}
	mod, err := os.ReadFile(filepath.Join(from, "go.mod"))
	if err != nil {
		return err
	}
	out, err := os.Create(filepath.Join(dir, version+".zip"))
	if err != nil {
		return err
	}
	err = zip.CreateFromDir(out, module.Version{Path: m.Path, Version: version}, from)
	if closed := out.Close(); err == nil {
		err = closed
	}
	for name, data := range map[string][]byte{"list": []byte(version + "\n"), version + ".info": info, version + ".mod": mod} {
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), data, 0o600)
		}
	}
	return err
}
