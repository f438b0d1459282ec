package main

import (
	"archive/zip"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const prefix = "example.com/h/"

// repository makes a tree of three released modules and an example, commits it, and
// returns its root.
func repository(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	mod := func(dir string, siblings ...string) string {
		text := "module " + prefix + dir + "\n\ngo 1.25.0\n"
		for _, s := range siblings {
			up := strings.Repeat("../", strings.Count(dir, "/")+1)
			text += fmt.Sprintf("\nrequire %s%s v0.0.0\n\nreplace %[1]s%[2]s => %[3]s%[2]s\n", prefix, s, up)
		}
		return text
	}
	write(t, root, map[string]string{
		"go.work":             "go 1.25.0\n\nuse (\n\t./adapters/b\n\t./clientwrap\n\t./core\n\t./examples\n)\n",
		"LICENSE":             "licensed\n",
		"core/go.mod":         mod("core"),
		"core/core.go":        "package core\n",
		"adapters/b/go.mod":   mod("adapters/b", "core"),
		"adapters/b/b.go":     "package b\n\nimport _ \"" + prefix + "core\"\n",
		"clientwrap/go.mod":   mod("clientwrap", "core"),
		"clientwrap/c.go":     "package clientwrap\n",
		"examples/go.mod":     mod("examples", "core", "adapters/b"),
		"examples/sub/go.mod": mod("examples/sub", "core"),
	})
	git(t, root, "init", "-q")
	commit(t, root)
	return root
}

func write(t *testing.T, root string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func git(t *testing.T, root string, args ...string) {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-c", "user.name=t", "-c", "user.email=t@example.com"}, args...)...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
}

func commit(t *testing.T, root string) {
	t.Helper()
	git(t, root, "add", "-A")
	git(t, root, "commit", "-q", "--allow-empty", "-m", "one")
}

func opened(t *testing.T, root, version string) *release {
	t.Helper()
	r, err := open(root, version)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.close)
	return r
}

func TestVersionMustBeOne(t *testing.T) {
	root := repository(t)
	for _, v := range []string{"", "0.1.0", "v0.1", "v1", "latest", "v0.1.0+meta", "v2.0.0"} {
		if r, err := open(root, v); err == nil {
			r.close()
			t.Errorf("%q is taken", v)
		}
	}
}

// A tree is ready for its tags when all siblings name the version, and not before.
func TestReadyForTags(t *testing.T) {
	root := repository(t)
	r := opened(t, root, "v0.1.0")
	if err := r.state(); err != nil {
		t.Errorf("a rehearsal fails: %v", err)
	}
	if err := r.tags(); err == nil {
		t.Error("tags are offered although siblings are required at v0.0.0")
	}
	if err := r.setVersions(); err != nil {
		t.Fatal(err)
	}
	r = opened(t, root, "v0.1.0")
	if err := r.tags(); err == nil || !strings.Contains(err.Error(), "not clean") {
		t.Errorf("what is not committed is offered: %v", err)
	}
	commit(t, root)
	if err := r.tags(); err != nil {
		t.Errorf("the release commit: %v", err)
	}
	git(t, root, "tag", "core/v0.1.0")
	if err := r.state(); err != nil {
		t.Errorf("the commit that is tagged: %v", err)
	}
	commit(t, root)
	if err := r.state(); err == nil || !strings.Contains(err.Error(), "core/v0.1.0 is tagged already") {
		t.Errorf("a version that is taken: %v", err)
	}
}

func TestWhatMakesATreeUnfit(t *testing.T) {
	for name, c := range map[string]struct{ file, old, new, want string }{
		"two versions":     {"clientwrap/go.mod", "v0.0.0", "v0.0.1", "more than one version"},
		"no replace":       {"clientwrap/go.mod", "replace", "// replace", "without a replace"},
		"needs an example": {"clientwrap/go.mod", "go 1.25.0\n", "go 1.25.0\n\nrequire " + prefix + "examples v0.0.0\n", "never tagged"},
		"untracked":        {"new.txt", "", "x", "not clean"},
	} {
		t.Run(name, func(t *testing.T) {
			root := repository(t)
			old, _ := os.ReadFile(filepath.Join(root, c.file))
			write(t, root, map[string]string{c.file: strings.Replace(string(old), c.old, c.new, 1)})
			if name != "untracked" {
				commit(t, root)
			}
			if err := opened(t, root, "v0.1.0").state(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v", err)
			}
		})
	}
}

// What a user gets is what git tracks, of this module alone, with the license, and with
// siblings at the version; the tree itself is not changed.
func TestProxyServesTheCommit(t *testing.T) {
	root := repository(t)
	write(t, root, map[string]string{"adapters/b/untracked.go": "package b\n"})
	before, _ := os.ReadFile(filepath.Join(root, "adapters/b/go.mod"))
	dir, err := opened(t, root, "v0.1.0").proxy()
	if err != nil {
		t.Fatal(err)
	}
	if after, _ := os.ReadFile(filepath.Join(root, "adapters/b/go.mod")); string(after) != string(before) {
		t.Error("the tree's go.mod was changed")
	}
	for _, never := range []string{"examples", "examples/sub"} {
		if _, err := os.Stat(filepath.Join(dir, prefix+never)); err == nil {
			t.Errorf("%s is published", never)
		}
	}
	mod, err := os.ReadFile(filepath.Join(dir, prefix+"adapters/b/@v/v0.1.0.mod"))
	if err != nil || !strings.Contains(string(mod), "require "+prefix+"core v0.1.0\n") {
		t.Errorf("go.mod, %v:\n%s", err, mod)
	}
	z, err := zip.OpenReader(filepath.Join(dir, prefix+"adapters/b/@v/v0.1.0.zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	var names []string
	for _, f := range z.File {
		names = append(names, strings.TrimPrefix(f.Name, prefix+"adapters/b@v0.1.0/"))
	}
	slices.Sort(names)
	if got := strings.Join(names, " "); got != "LICENSE b.go go.mod" {
		t.Errorf("the zip has %s", got)
	}
}

func TestBaseIsTheLastTagBefore(t *testing.T) {
	root := repository(t)
	r := opened(t, root, "v0.3.0")
	git(t, root, "tag", "core/v0.2.0")
	git(t, root, "tag", "core/v0.10.0")    // after the version
	git(t, root, "tag", "core/v0.2.0-rc1") // before v0.2.0
	git(t, root, "tag", "core/v0.3.0")     // the version itself
	git(t, root, "tag", "core/vendor")
	git(t, root, "checkout", "-q", "-b", "side")
	commit(t, root)
	git(t, root, "tag", "core/v0.2.5") // on another branch
	git(t, root, "checkout", "-q", "-")
	for _, m := range r.released() {
		want := ""
		if m.Dir == "core" {
			want = "v0.2.0"
		}
		if got, err := r.base(m); got != want || err != nil {
			t.Errorf("%s: %q, %v, want %q", m.Dir, got, err, want)
		}
	}
}

func TestWhichVersionsMayBreak(t *testing.T) {
	for _, c := range []struct {
		from, to string
		may      bool
	}{
		{"v0.1.0", "v0.2.0", true}, {"v0.1.0", "v0.1.1", false}, {"v0.9.0", "v1.0.0", true}, {"v1.0.0", "v1.1.0", false}, {"v1.9.0", "v2.0.0", true},
	} {
		if mayBreak(c.from, c.to) != c.may {
			t.Errorf("%s to %s", c.from, c.to)
		}
	}
}
