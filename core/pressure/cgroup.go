package pressure

import (
	"cmp"
	"errors"
	"io/fs"
	"iter"
	"path"
	"slices"
	"strings"
)

const (
	membershipFile = "proc/self/cgroup"
	mountsFile     = "proc/self/mountinfo"

	// Where the hierarchies are by convention, for when mountinfo names none.
	defaultMountV1 = "sys/fs/cgroup/memory"
	defaultMountV2 = "sys/fs/cgroup"
)

// group is the memory cgroup of this process: a directory in a mounted hierarchy.
type group struct {
	v1    bool
	mount string // the mount point, as an fs.FS path
	path  string // below the mount: "/" or "/a/b", clean
}

// dir returns the fs.FS path of one level of the group.
func (g group) dir(level string) string { return path.Join(g.mount, level) }

// levels yields the group's path and those of its ancestors, up to "/".
func (g group) levels() iter.Seq[string] {
	return func(yield func(string) bool) {
		for p := g.path; yield(p) && p != "/"; {
			p = path.Dir(p)
		}
	}
}

// findGroup finds the memory cgroup of the process that sees root as its "/". False, with a
// note, when there is none to be seen.
func findGroup(root fs.FS, n *notes) (group, bool) {
	m, sure := readMembership(root, n)
	p := m.groups(root, sure, n)
	return p.memory, p.hasMemory
}

// readMembership is sure of what it returns when the file could be read, or is not there.
func readMembership(root fs.FS, n *notes) (m membership, sure bool) {
	err := readLines(root, membershipFile, m.add)
	if err != nil {
		n.addf("cgroup: %w", err)
	}
	return m, err == nil && m.seen || errors.Is(err, fs.ErrNotExist)
}

// groups are where a process is in the hierarchies of cgroups.
type groups struct {
	memory, unified       group // the one that has the memory controller, and the one in the v2 hierarchy
	hasMemory, hasUnified bool
	// sure says that a group which is not there is not only out of sight because files
	// could not be read.
	sure bool
}

// groups finds the groups of m. Only the memory cgroup gets notes.
func (m membership) groups(root fs.FS, sure bool, n *notes) groups {
	g := groups{sure: sure}
	if m.v1 == "" && m.v2 == "" {
		if len(n.said) == 0 {
			n.addf("cgroup: /%s names no memory cgroup", membershipFile)
		}
		return g
	}
	var t mountTable
	switch err := readLines(root, mountsFile, t.add); {
	case errors.Is(err, fs.ErrNotExist): // the mounts are where they are by convention
	case err != nil:
		n.addf("cgroup: %w", err)
		g.sure = false
	default:
		g.sure = sure && t.seen
	}
	// A controller lives in one hierarchy only: listed on v1, it has no files on v2.
	if m.v1 == "" {
		g.memory, g.hasMemory = locate(root, m.v2, t.of(false), n)
		g.unified, g.hasUnified = g.memory, g.hasMemory
		return g
	}
	g.memory, g.hasMemory = locate(root, m.v1, t.of(true), n)
	if m.v2 != "" {
		var unsaid notes
		g.unified, g.hasUnified = locate(root, m.v2, t.of(false), &unsaid)
	}
	return g
}

// of returns the mounts of one hierarchy, those first that show the most ancestors:
// whose root is the shortest. There is always one.
func (t mountTable) of(v1 bool) []mount {
	var mounts []mount
	for _, m := range t.mounts {
		if m.v1 == v1 {
			mounts = append(mounts, m)
		}
	}
	if len(mounts) == 0 {
		point := defaultMountV2
		if v1 {
			point = defaultMountV1
		}
		mounts = []mount{{v1: v1, root: "/", point: point}}
	}
	slices.SortStableFunc(mounts, func(a, b mount) int { return cmp.Compare(len(a.root), len(b.root)) })
	return mounts
}

// locate finds the cgroup own below the mounts, which are all of its hierarchy.
func locate(root fs.FS, own string, mounts []mount, n *notes) (group, bool) {
	var unreadable *group
	for _, m := range mounts {
		rest, ok := below(own, m.root)
		if !ok {
			continue
		}
		g := group{v1: m.v1, mount: m.point, path: rest}
		_, err := fs.Stat(root, g.dir(rest))
		if err == nil {
			return g, true
		}
		if !errors.Is(err, fs.ErrNotExist) && unreadable == nil {
			unreadable = &g
		}
	}
	if unreadable != nil {
		return *unreadable, true // reading it will tell why it cannot be read
	}

	// The path belongs to another namespace than the mount. In a container the root of the mount
	// is then most likely its own cgroup, and otherwise one of its ancestors.
	var err error
	for _, m := range mounts {
		if _, err = fs.Stat(root, m.point); err == nil {
			n.addf("cgroup: no telling where %.200q is below /%s, the root of that mount is taken", own, m.point)
			return group{v1: m.v1, mount: m.point, path: "/"}, true
		}
	}
	n.addf("cgroup: no mount: %w", fileError(mounts[0].point, err))
	return group{}, false
}

// below returns where the cgroup own lies below a mount that shows the hierarchy from
// mountRoot on, as a clean absolute path. Both are as the kernel prints them: relative to the
// same cgroup namespace, and so with leading ".." where they lie outside of it. False when own
// lies elsewhere, when the rest would climb out of the mount, or when no fs.FS can open it.
func below(own, mountRoot string) (string, bool) {
	rest, ok := strings.CutPrefix(own, strings.TrimRight(mountRoot, "/"))
	if !ok || rest != "" && rest[0] != '/' || !safe(rest) {
		return "", false
	}
	return path.Clean("/" + rest), true
}

// safe reports whether an absolute path stays where it is put and can be opened.
func safe(p string) bool {
	if strings.IndexByte(p, 0) >= 0 || slices.Contains(strings.Split(p, "/"), "..") {
		return false
	}
	return fs.ValidPath(fsPath(p))
}

// fsPath turns an absolute path into one of an fs.FS.
func fsPath(p string) string {
	if p = path.Clean("/" + p); p == "/" {
		return "."
	}
	return p[1:]
}
