package pressure

import (
	"fmt"
	"io/fs"
	"os"
	"runtime/debug"
	"slices"
	"strings"
)

// Source says where a ceiling came from.
type Source string

// The sources of a ceiling. SourceOverride is for a ceiling that the user has set; nothing
// in this package reads one.
const (
	SourceGOMEMLIMIT Source = "gomemlimit"
	SourceCgroup     Source = "cgroup"
	SourcePhysical   Source = "physical"
	SourceOverride   Source = "override"
)

// Ceiling is the memory this process may use. Ceilings can be compared with ==.
type Ceiling struct {
	// Bytes is the tightest known bound; 0 = nothing is known. It is never negative.
	Bytes int64

	// Source says which bound that is; "" when Bytes is 0. Of equal bounds the cgroup is
	// named first, then GOMEMLIMIT, then physical memory.
	Source Source

	// Path is the cgroup that holds the limit, as seen below the mount: "/" is the root of
	// the mount. Of equal limits the innermost is named. It is "" when Source is not
	// SourceCgroup, and when the limit belongs to a v1 cgroup out of sight, of which only
	// memory.stat tells.
	Path string

	// Reason tells what could not be read, was passed over or was guessed, in plain English,
	// for a log; "" when there is nothing to tell. It stands beside a known value, too.
	Reason string
}

// ReadCeiling reads what bounds a process that sees root as its "/" and whose GOMEMLIMIT is
// memoryLimit bytes (math.MaxInt64 = none). It is stateless: every call reads anew.
//
// It never fails: with nothing to go by it returns Bytes 0 and a Reason.
func ReadCeiling(root fs.FS, memoryLimit int64) Ceiling {
	return readCeiling(root, memoryLimit, memTotal)
}

// CurrentCeiling is ReadCeiling for this process: on the real file system and with the Go
// runtime's memory limit. On macOS and Windows, which have no /proc, it asks the system for
// the size of physical memory.
func CurrentCeiling() Ceiling {
	return readCeiling(os.DirFS("/"), debug.SetMemoryLimit(-1), machineMemory)
}

func readCeiling(root fs.FS, memoryLimit int64, physical func(fs.FS) (int64, error)) Ceiling {
	var n notes
	var levels []bound
	hidden := noLimit
	if g, ok := findGroup(root, &n); ok {
		levels, hidden = g.bounds(root, &n)
	}
	return ceiling(levels, hidden, memoryLimit, readPhysical(root, physical, &n), &n)
}

// readPhysical returns the physical memory, noLimit with a note when it is unknown.
func readPhysical(root fs.FS, physical func(fs.FS) (int64, error), n *notes) int64 {
	bytes, err := physical(root)
	if err != nil {
		n.addf("physical memory: %w", err)
		return noLimit
	}
	return bytes
}

// ceiling returns the tightest of the bounds, with what n has to tell.
func ceiling(levels []bound, hidden, memoryLimit, physical int64, n *notes) Ceiling {
	best := Ceiling{Bytes: noLimit}
	if bytes, path := tightest(levels, hidden); bytes < best.Bytes {
		best = Ceiling{Bytes: bytes, Source: SourceCgroup, Path: path}
	}
	if memoryLimit <= 0 {
		n.addf("GOMEMLIMIT: %w", errZeroLimit)
	} else if memoryLimit < best.Bytes {
		best = Ceiling{Bytes: memoryLimit, Source: SourceGOMEMLIMIT}
	}
	if physical < best.Bytes {
		best = Ceiling{Bytes: physical, Source: SourcePhysical}
	}
	if best.Source == "" {
		best.Bytes = 0
		n.addf("no memory limit is known")
	}
	best.Reason = n.String()
	return best
}

// notes collects what Ceiling.Reason has to tell. Only the first few are kept in words: a deep
// tree of unreadable files must not make a long log line.
type notes struct {
	said []string
	more int
}

const maxNotes = 4

func (n *notes) addf(format string, args ...any) {
	if len(n.said) == maxNotes {
		n.more++
		return
	}
	n.said = append(n.said, fmt.Errorf(format, args...).Error())
}

// within reports whether n tells nothing that other does not.
func (n *notes) within(other *notes) bool {
	for _, s := range n.said {
		if !slices.Contains(other.said, s) {
			return false
		}
	}
	return n.more <= other.more
}

func (n *notes) String() string {
	s := strings.Join(n.said, "; ")
	if n.more > 0 {
		s += fmt.Sprintf("; and %d more", n.more)
	}
	return s
}
