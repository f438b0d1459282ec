package pressure

import (
	"io/fs"
	"strings"
	"testing"
)

func parseMembership(t testing.TB, content string) (m membership) {
	t.Helper()
	if err := eachLine(strings.NewReader(content), m.add); err != nil {
		t.Fatal(err)
	}
	return m
}

func parseMounts(t testing.TB, content string) []mount {
	t.Helper()
	var table mountTable
	if err := eachLine(strings.NewReader(content), table.add); err != nil {
		t.Fatal(err)
	}
	return table.mounts
}

func TestMountinfoLines(t *testing.T) {
	v2 := func(root, point string) []mount { return []mount{{root: root, point: point}} }
	for _, c := range []struct {
		content string
		want    []mount
	}{
		{"", nil},
		{hybridMounts, []mount{{false, "/", "sys/fs/cgroup/unified"}, {true, "/", "sys/fs/cgroup/memory"}}},
		{"32 31 0:29 / /cg rw - cgroup2 cgroup2 rw", v2("/", "cg")},                                     // no optional fields
		{"32 31 0:29 / /cg rw shared:1 master:2 propagate_from:3 - cgroup2 none rw\r\n", v2("/", "cg")}, // several
		{"32 31 0:29 / /cg rw -  - cgroup2 none rw\n", nil},                                             // the first "-" ends them
		{"32 31 0:29 / /cg rw - cgroup2  rw\n", v2("/", "cg")},                                          // empty source
		{`32 31 0:29 /a\134x2db /c\040g rw - cgroup2 none rw`, v2(`/a\x2db`, "c g")},
		{"32 31 0:29 /../.. / rw - cgroup2 none rw", v2("/../..", ".")},
		{"32 31 0:29 / /a//b/./c/ rw - cgroup2 none rw", v2("/", "a/b/c")},
		{"32 31 0:29 / /cg rw - cgroup none rw,cpu,cpuacct", nil},
		{"32 31 0:29 / /cg rw - cgroup none rw,name=memory", nil},
		{"32 31 0:29 / /cg rw - cgroup none rw,cpu,memory,freezer", []mount{{true, "/", "cg"}}},
		{"32 31 0:29 / /cg rw - cgroup2 none", nil},
		{"32 31 0:29 / /cg rw cgroup2 none rw x y", nil},
		{"32 31 0:29 / /cg rw a b c - cgroup2 none", nil},
		{"32 31 0:29 / cg rw - cgroup2 none rw", nil},
		{"32 31 0:29 a /cg rw - cgroup2 none rw", nil},
		{"32 31 0:29 /" + strings.Repeat("a", maxPath) + " /cg rw - cgroup2 none rw", nil},
		{"32 31 0:29 / /a/../cg rw - cgroup2 none rw", nil},
		{`32 31 0:29 / /a/\056\056/cg rw - cgroup2 none rw`, nil},
		{`32 31 0:29 / /c\000g rw - cgroup2 none rw`, nil},
		{`32 31 0:29 / /c\377g rw - cgroup2 none rw`, nil},
	} {
		got := parseMounts(t, c.content)
		if len(got) != len(c.want) {
			t.Errorf("%q: got %+v, want %+v", c.content, got, c.want)
			continue
		}
		for i := range got {
			if got[i] != c.want[i] {
				t.Errorf("%q: got %+v, want %+v", c.content, got[i], c.want[i])
			}
		}
	}
}

func TestUnescape(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "a": "a", `\040`: " ", `a\040b\011c\012d\134e`: "a b\tc\nd\\e", `\134040`: `\040`,
		`\`: `\`, `\0`: `\0`, `\04`: `\04`, `\048`: `\048`, `\x2d`: `\x2d`, `\400`: `\400`, `\+12`: `\+12`,
	} {
		if got := unescape(in); got != want {
			t.Errorf("unescape(%q) = %q, want %q", in, got, want)
		}
	}
}

// escape is what the kernel does to a path in mountinfo.
func escape(s string) string {
	return strings.NewReplacer(" ", `\040`, "\t", `\011`, "\n", `\012`, `\`, `\134`).Replace(s)
}

func checkOpenable(t *testing.T, what, p string) {
	t.Helper()
	if !fs.ValidPath(p) || strings.ContainsRune(p, 0) {
		t.Errorf("%s: %q cannot be opened in an fs.FS", what, p)
	}
}

func FuzzMembership(f *testing.F) {
	for _, seed := range []string{
		"", "invalid-line:", `0\using\colons\/`, "1::/", "0::/a:b/c", "0::/a\r\n", "0::/../..", "0::/a/../../b\n", "0::/a\x00b",
		"0::/\xff", "5:memory:/a\n0::/b", "5:cpu,memory,pids:/a//b/./c/\n", "0:memory:/", "0::", "\n\n:::\n", "4294967296:memory:/x",
	} {
		f.Add(seed, "/")
		f.Add(seed, "/a")
		f.Add(seed, "/..")
	}
	f.Fuzz(func(t *testing.T, content, mountRoot string) {
		m := parseMembership(t, content)
		for _, own := range []string{m.v1, m.v2} {
			if own == "" {
				continue
			}
			if own[0] != '/' || len(own) > maxPath || strings.Contains(own, "\n") {
				t.Fatalf("%q: path %q", content, own)
			}
			if !strings.Contains(content, ":"+own) {
				t.Fatalf("%q: path %q is not in there", content, own)
			}
			rest, ok := below(own, mountRoot)
			if !ok {
				continue
			}
			if rest[0] != '/' {
				t.Fatalf("%q below %q: %q", own, mountRoot, rest)
			}
			g := group{mount: "sys/fs/cgroup", path: rest}
			for level := range g.levels() {
				checkOpenable(t, "level", g.dir(level))
				if dir := g.dir(level); dir != g.mount && !strings.HasPrefix(dir, g.mount+"/") {
					t.Fatalf("%q below %q: %q has left the mount", own, mountRoot, dir)
				}
			}
		}
	})
}

func FuzzMountinfo(f *testing.F) {
	f.Add(hybridMounts, "/sys/fs/cgroup")
	f.Add(`32 31 0:29 /../.. /my\040cg\134x rw shared:1 - cgroup2 none rw`+"\r\n", `/a b\c`)
	f.Add("32 31 0:29 / / rw - cgroup none rw,memory\n", "/")
	f.Add(`32 31 0:29 / /c\000g\377\400\04 rw - cgroup2 none rw`, "/a/../b")
	f.Add("- - - - - - - - - -", "/\t\n")
	f.Fuzz(func(t *testing.T, content, dir string) {
		for _, m := range parseMounts(t, content) {
			checkOpenable(t, "mount point", m.point)
			if m.root == "" || m.root[0] != '/' || len(m.root) > maxPath {
				t.Fatalf("%q: root %q", content, m.root)
			}
		}

		// What the kernel has escaped comes back, whatever stands around it.
		if !strings.HasPrefix(dir, "/") || !safe(dir) || len(dir) > maxPath || strings.HasSuffix(content, "\\") {
			return
		}
		line := "32 31 0:29 " + escape(dir) + " " + escape(dir) + " rw shared:1 - cgroup2 none rw\n"
		mounts := parseMounts(t, content+"\n"+line)
		if len(mounts) == 0 {
			t.Fatalf("%q is not found", dir)
		}
		last := mounts[len(mounts)-1]
		if want := (mount{root: dir, point: fsPath(dir)}); last != want {
			t.Fatalf("got %+v, want %+v", last, want)
		}
	})
}
