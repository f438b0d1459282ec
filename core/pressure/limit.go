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

// bound is the limit of one level; bytes is noLimit where it has none, or where it could not be
// read, for which err says why.
type bound struct {
	level string
	bytes int64
	err   error
}

// bounds returns the limits that bind the group, from its own level up to the root of the
// mount, and the limit of a level out of sight, noLimit = none. What cannot be read is
// noted and the other levels count: they bind as they are.
func (g group) bounds(root fs.FS, n *notes) (levels []bound, hidden int64) {
	file := "memory.max"
	if g.v1 {
		file = "memory.limit_in_bytes"
	}
	hidden = noLimit
	seen := false
	for p := range g.levels() {
		if g.v1 && p != g.path && !hierarchical(root, g.dir(p)) {
			break
		}
		b := bound{level: p, bytes: noLimit}
		switch v, err := readLimit(root, path.Join(g.dir(p), file)); {
		case errors.Is(err, fs.ErrNotExist):
			// The controller is not enabled here, or this is the root of the hierarchy.
		case err != nil:
			seen = true
			b.err = err
			n.addf("cgroup: %w", err)
		default:
			seen = true
			b.bytes = v
		}
		levels = append(levels, b)
	}
	if g.v1 {
		hidden = g.hierarchicalLimit(root, n)
	}
	if !seen {
		n.addf("cgroup: no %s from /%s up to /%s", file, g.dir(g.path), g.mount)
	}
	return levels, hidden
}

// tightest returns the smallest of the limits and the level that holds it, the innermost of
// equal ones; "" for the one out of sight; noLimit when there is none.
func tightest(levels []bound, hidden int64) (bytes int64, level string) {
	bytes = noLimit
	for _, b := range levels {
		if b.bytes < bytes {
			bytes, level = b.bytes, b.level
		}
	}
	if hidden < bytes {
		return hidden, ""
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
