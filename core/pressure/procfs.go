package pressure

import (
	"slices"
	"strconv"
	"strings"
)

// maxPath is the kernel's PATH_MAX: it prints no longer one. It also bounds the levels of a group.
const maxPath = 4096

// membership is what /proc/self/cgroup says about memory: the path of the cgroup in the v1
// hierarchy that has the memory controller, and in the v2 hierarchy; "" = not listed. The
// paths are as the kernel prints them: they start with "/" and may hold "..".
type membership struct {
	v1, v2 string
	seen   bool // there was a well-formed line
}

// add takes one line, hierarchy-ID ":" controllers ":" path. The path may hold colons. A
// malformed line is passed over, and so is a second one for the same hierarchy. It always
// returns true.
func (m *membership) add(line string) bool {
	id, rest, ok1 := strings.Cut(line, ":")
	controllers, path, ok2 := strings.Cut(rest, ":")
	hierarchy, err := strconv.ParseUint(id, 10, 31)
	if !ok1 || !ok2 || err != nil || !strings.HasPrefix(path, "/") || len(path) > maxPath {
		return true
	}
	m.seen = true
	// Hierarchy 0 is v2 and has no list of controllers; the others are v1 and have one.
	switch {
	case hierarchy == 0 && controllers == "" && m.v2 == "":
		m.v2 = path
	case hierarchy != 0 && m.v1 == "" && slices.Contains(strings.Split(controllers, ","), "memory"):
		m.v1 = path
	}
	return true
}

// mount is a mounted cgroup hierarchy: v2, or the v1 one with the memory controller.
type mount struct {
	v1    bool
	root  string // the directory of the hierarchy that is mounted: "/...", may hold ".."
	point string // where, as an fs.FS path
}

// mountTable is what /proc/self/mountinfo says about memory cgroups.
type mountTable struct {
	mounts []mount
	seen   bool // there was a well-formed line
}

// add takes one line: ID, parent, device, root, mount point, options, any number of optional
// fields, "-", type, source, options of the file system. A malformed line is passed over. It
// always returns true.
func (t *mountTable) add(line string) bool {
	f := strings.Split(line, " ")
	if len(f) < 10 {
		return true
	}
	end := slices.Index(f[6:], "-")
	if end < 0 || len(f) < 6+end+4 {
		return true
	}
	root, point := unescape(f[3]), unescape(f[4])
	if !strings.HasPrefix(point, "/") || !safe(point) {
		return true
	}
	point = fsPath(point)
	t.seen = true
	// Whatever is mounted later at the same place hides what was there.
	t.mounts = slices.DeleteFunc(t.mounts, func(m mount) bool { return m.point == point })

	kind, options := f[6+end+1], strings.Split(f[6+end+3], ",")
	v1 := kind == "cgroup" && slices.Contains(options, "memory")
	if (v1 || kind == "cgroup2") && strings.HasPrefix(root, "/") && len(root) <= maxPath {
		t.mounts = append(t.mounts, mount{v1: v1, root: root, point: point})
	}
	return true
}

// unescape undoes the kernel's \ooo for space, tab, newline and backslash. Anything else that
// starts with a backslash stays as it is.
func unescape(s string) string {
	if strings.IndexByte(s, '\\') < 0 {
		return s
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+4 <= len(s) {
			if c, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b = append(b, byte(c))
				i += 3
				continue
			}
		}
		b = append(b, s[i])
	}
	return string(b)
}
