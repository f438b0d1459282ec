package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// What enforces a memory limit.
const (
	limitAuto   = "auto"
	limitCgroup = "cgroup"
	limitRlimit = "rlimit"
)

// memoryLimit puts one process at a time under a memory limit: in a cgroup of its
// own where one can be made, else by RLIMIT_DATA. The zero memoryLimit limits nothing.
type memoryLimit struct {
	bytes int64
	how   string // for people
	group string // the cgroup's directory, "" = none
	v1    bool
}

// newMemoryLimit returns a limit of most bytes. by is what shall enforce it; an
// error then means that it cannot. With auto it never fails: when nothing can enforce
// a limit, how says why. Close must be called.
func newMemoryLimit(ctx context.Context, most int64, by string) (*memoryLimit, error) {
	if most == 0 {
		return &memoryLimit{how: "no memory limit"}, nil
	}
	if runtime.GOOS != "linux" {
		if by != limitAuto {
			return nil, fmt.Errorf("-limit-by %s: needs Linux", by)
		}
		return &memoryLimit{how: "no memory limit: that needs Linux"}, nil
	}
	var why error
	if by != limitRlimit {
		m, err := newGroup(ctx, "/", most)
		if err == nil || by == limitCgroup {
			return m, err
		}
		why = err
	}
	m := &memoryLimit{bytes: most, how: "RLIMIT_DATA " + mib(most)}
	if err := m.probe(ctx); err != nil {
		if by == limitRlimit {
			return nil, err
		}
		return &memoryLimit{how: fmt.Sprintf("no memory limit: %v; %v", why, err)}, nil
	}
	if why != nil {
		m.how += fmt.Sprintf(" (%v)", why)
	}
	return m, nil
}

// newGroup makes a cgroup with a limit. root is "/", or stands for it.
func newGroup(ctx context.Context, root string, most int64) (*memoryLimit, error) {
	parent, v1, err := findParent(root)
	if err != nil {
		return nil, err
	}
	m := &memoryLimit{bytes: most, v1: v1}
	if m.group, err = os.MkdirTemp(parent, "headgate-storm-"); err != nil {
		return nil, fmt.Errorf("no cgroup: %w", withoutPath(err))
	}
	limit, swap, swapLimit := "memory.max", "memory.swap.max", int64(0)
	m.how = "cgroup (v2) of " + mib(most)
	if v1 {
		limit, swap, swapLimit = "memory.limit_in_bytes", "memory.memsw.limit_in_bytes", most
		m.how = "cgroup (v1) of " + mib(most)
	}
	err = os.WriteFile(filepath.Join(m.group, limit), strconv.AppendInt(nil, most, 10), 0o644)
	if err == nil {
		// Absent where there is no swap, which is as good.
		_ = os.WriteFile(filepath.Join(m.group, swap), strconv.AppendInt(nil, swapLimit, 10), 0o644)
		err = m.probe(ctx)
	}
	if err != nil {
		m.close()
		return nil, fmt.Errorf("no cgroup: %w", withoutPath(err))
	}
	return m, nil
}

// withoutPath leaves out where the cgroup is, which says nothing to a reader.
func withoutPath(err error) error {
	if p := (*os.PathError)(nil); errors.As(err, &p) {
		return fmt.Errorf("%s %s: %w", p.Op, filepath.Base(p.Path), p.Err)
	}
	return err
}

// findParent returns the directory of the cgroup under which one with a memory limit
// can be made, and whether it is of version 1: this process's own, or, in version 2,
// where a cgroup with processes passes no controller on, the nearest above it that does.
func findParent(root string) (dir string, v1 bool, err error) {
	membership, err := os.ReadFile(filepath.Join(root, "proc", "self", "cgroup"))
	if err != nil {
		return "", false, fmt.Errorf("no cgroup: %w", err)
	}
	var v2 string
	for l := range strings.Lines(string(membership)) {
		parts := strings.SplitN(strings.TrimSpace(l), ":", 3)
		switch {
		case len(parts) < 3:
		case parts[0] == "0" && parts[1] == "":
			v2 = parts[2]
		case slices.Contains(strings.Split(parts[1], ","), "memory"):
			return own(filepath.Join(root, "sys", "fs", "cgroup", "memory"), parts[2]), true, nil
		}
	}
	mount := filepath.Join(root, "sys", "fs", "cgroup")
	for dir = own(mount, v2); ; dir = filepath.Dir(dir) {
		passed, err := os.ReadFile(filepath.Join(dir, "cgroup.subtree_control"))
		if err == nil && bytes.Contains(passed, []byte("memory")) {
			return dir, false, nil
		}
		if dir == mount {
			return "", false, errors.New("no cgroup: none that passes on the memory controller")
		}
	}
}

// own is the directory of a cgroup. In a container the path may be the host's; the
// mount is then the container's own cgroup.
func own(mount, path string) string {
	dir := filepath.Join(mount, filepath.Clean("/"+path))
	if _, err := os.Stat(dir); err != nil {
		return mount
	}
	return dir
}

// wrap returns the command that runs argv under the limit. It is entered before argv
// starts, and so holds, and is seen, from its first instruction on. The process keeps
// its id.
func (m *memoryLimit) wrap(argv ...string) []string {
	switch {
	case m.group != "":
		return append([]string{"/bin/sh", "-c", `echo $$ >"$0" && exec "$@"`, filepath.Join(m.group, "cgroup.procs")}, argv...)
	case m.bytes > 0:
		return append([]string{"/bin/sh", "-c", `ulimit -d "$0" && exec "$@"`, strconv.FormatInt(m.bytes>>10, 10)}, argv...)
	}
	return argv
}

// probe tries the limit on a command that does nothing.
func (m *memoryLimit) probe(ctx context.Context) error {
	argv := m.wrap("/bin/sh", "-c", ":")
	if out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("cannot enter it: %w: %.200s", err, bytes.TrimSpace(out))
	}
	return nil
}

// groupCounts are a cgroup's own counts.
type groupCounts struct {
	kills int64 // processes that the kernel has killed in it for want of memory
	peak  int64 // the most memory in bytes that it has had, the kernel's included; 0 = unknown
}

// counts reads the counts of the cgroup, nil when there is none. What the kernel does
// not tell is 0. The times that the limit was hit are not among them: there are kernels
// whose memory.failcnt stays 0.
func (m *memoryLimit) counts() *groupCounts {
	if m.group == "" {
		return nil
	}
	peak := "memory.peak" // there from Linux 5.19 on
	if m.v1 {
		peak = "memory.max_usage_in_bytes"
	}
	return &groupCounts{kills: m.kills(), peak: m.number(peak, "")}
}

// kills returns how many processes the kernel has killed for want of memory in the
// cgroup.
func (m *memoryLimit) kills() int64 {
	if m.v1 {
		return m.number("memory.oom_control", "oom_kill ")
	}
	return m.number("memory.events", "oom_kill ")
}

// number reads the number behind a prefix of a line in a file of the cgroup, 0 when there
// is none.
func (m *memoryLimit) number(file, prefix string) int64 {
	if m.group == "" {
		return 0
	}
	text, err := os.ReadFile(filepath.Join(m.group, file))
	if err != nil {
		return 0
	}
	for l := range strings.Lines(string(text)) {
		if n, ok := strings.CutPrefix(l, prefix); ok {
			v, _ := strconv.ParseInt(strings.TrimSpace(n), 10, 64) // 0 is what there is to say
			return v
		}
	}
	return 0
}

// close removes the cgroup, which must have no process left.
func (m *memoryLimit) close() {
	if m.group == "" {
		return
	}
	// A process that has just ended may be counted for a moment longer.
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for range 50 {
		if err := os.Remove(m.group); err == nil || errors.Is(err, os.ErrNotExist) {
			return
		}
		<-tick.C
	}
}
