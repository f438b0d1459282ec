package pressure

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// noLimit is what an unlimited level counts as, and the least number of bytes that is taken for one.
// v1 prints the largest page count in bytes: 2^63 less one page of 4 KiB to 2 MiB, or 2^64-1.
const noLimit = int64(1) << 62

// limit returns the smallest limit from the group up to the root of its mount, and the level
// that holds it, the innermost of equal ones; noLimit when there is none. What cannot be
// read is noted and the other levels count: they bind as they are.
func (g group) limit(root fs.FS, n *notes) (bytes int64, level string) {
	file := "memory.max"
	if g.v1 {
		file = "memory.limit_in_bytes"
	}
	bytes, seen := noLimit, false
	for p := range g.levels() {
		if g.v1 && p != g.path && !hierarchical(root, g.dir(p)) {
			break
		}
		v, err := readLimit(root, path.Join(g.dir(p), file))
		if errors.Is(err, fs.ErrNotExist) {
			continue // the controller is not enabled here, or this is the root of the hierarchy
		}
		seen = true
		if err != nil {
			n.addf("cgroup: %w", err)
		} else if v < bytes {
			bytes, level = v, p
		}
	}
	if g.v1 {
		if v := g.hierarchicalLimit(root, n); v < bytes {
			return v, ""
		}
	}
	if !seen {
		n.addf("cgroup: no %s from /%s up to /%s", file, g.dir(g.path), g.mount)
	}
	return bytes, level
}

// hierarchical reports whether a v1 cgroup's limit binds its children. Kernels from 5.11 on
// know nothing else; a missing or unreadable file is taken for that.
func hierarchical(root fs.FS, dir string) bool {
	v, err := readValue(root, path.Join(dir, "memory.use_hierarchy"))
	return err != nil || v != "0"
}

// hierarchicalLimit returns what the kernel itself calls the limit of a v1 cgroup and its
// ancestors: in a container that sees its own cgroup only, this is the one trace of the pod's.
func (g group) hierarchicalLimit(root fs.FS, n *notes) int64 {
	name := path.Join(g.dir(g.path), "memory.stat")
	limit := noLimit
	err := readLines(root, name, func(line string) bool {
		value, ok := strings.CutPrefix(line, "hierarchical_memory_limit ")
		if !ok {
			return true
		}
		v, err := parseLimit(value)
		if err != nil {
			n.addf("cgroup: %w", fileError(name, err))
			return false
		}
		limit = v
		return false
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		n.addf("cgroup: %w", err)
	}
	return limit
}

// readLimit reads a file with one limit: bytes, > 0; noLimit when it says that there is none.
func readLimit(root fs.FS, name string) (int64, error) {
	s, err := readValue(root, name)
	if err != nil {
		return 0, err
	}
	v, err := parseLimit(s)
	return v, fileError(name, err)
}

func parseLimit(s string) (int64, error) {
	if s == "max" {
		return noLimit, nil
	}
	v, err := strconv.ParseUint(s, 10, 64)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%.40q is no limit, passed over", s)
	case v == 0:
		return 0, errZeroLimit
	case v >= uint64(noLimit):
		return noLimit, nil
	}
	return int64(v), nil
}
