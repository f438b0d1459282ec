package pressure

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
)

// expect is what a tree reads as. A float64 is a known value, a string an unknown one's reason.
type expect struct {
	ceiling  Ceiling
	readings map[signal]any
	psiScope string
	level    string // of the working set
}

var fixtures = map[string]expect{
	"v2-service": {
		ceiling: Ceiling{Bytes: gib, Source: SourceCgroup, Path: "/system.slice/gateway.service"},
		readings: map[signal]any{
			workingSet: 222298112.0 / 1073741824, memoryHigh: 222298112.0 / 966367641, psiSome: 0.0, psiFull: 0.0, oom: 0.0,
		},
		psiScope: "cgroup", level: "/system.slice/gateway.service",
	},
	"v2-private": {
		ceiling: Ceiling{Bytes: 8 * gib, Source: SourceCgroup, Path: "/"},
		readings: map[signal]any{
			workingSet: 1458401280.0 / 8589934592, memoryHigh: "no memory.high is set", psiSome: 0.12, psiFull: 0.10, oom: 0.0,
		},
		psiScope: "cgroup", level: "/",
	},
	"v2-docker": {
		ceiling: Ceiling{Bytes: 12 * gib, Source: SourceCgroup, Path: "/docker/0123456789ab"},
		readings: map[signal]any{
			workingSet: 1705327016.0 / 12884901888, memoryHigh: "no memory.high is set", psiSome: 0.0, psiFull: 0.0, oom: 0.0,
		},
		psiScope: "cgroup", level: "/docker/0123456789ab",
	},
	"v2-nested": {
		ceiling: Ceiling{Bytes: 512 * mib, Source: SourceCgroup, Path: "/kubepods.slice/kubepods-burstable.slice/pod123.slice"},
		readings: map[signal]any{
			workingSet: 320.0 / 512, memoryHigh: "no memory.high is set", psiSome: 1.25, psiFull: 0.75, oom: 0.0,
		},
		psiScope: "cgroup", level: "/kubepods.slice/kubepods-burstable.slice/pod123.slice",
	},
	"v1": {
		ceiling:  Ceiling{Bytes: 2 * gib, Source: SourceCgroup, Path: "/docker/0123456789ab"},
		readings: map[signal]any{workingSet: 0.25, memoryHigh: "v1 has no memory.high", psiSome: 3.1, psiFull: 2.0, oom: 0.0},
		psiScope: "host", level: "/docker/0123456789ab",
	},
	"v1-private": {
		ceiling: Ceiling{Bytes: 512 * mib, Source: SourceCgroup},
		readings: map[signal]any{
			workingSet: "out of sight", memoryHigh: "v1 has no memory.high", oom: "memory.oom_control: no such counter",
			psiSome: "/proc/pressure/memory: file does not exist", psiFull: "/proc/pressure/memory: file does not exist",
		},
	},
	"hybrid": {
		ceiling:  Ceiling{Bytes: gib, Source: SourceCgroup, Path: "/workload"},
		readings: map[signal]any{workingSet: 0.5, memoryHigh: "v1 has no memory.high", psiSome: 4.0, psiFull: 3.0, oom: 0.0},
		psiScope: "cgroup", level: "/workload",
	},
	"unreadable": {
		ceiling: Ceiling{Bytes: 16384000 << 10, Source: SourcePhysical},
		readings: map[signal]any{
			workingSet: "/sys/fs/cgroup/app/memory.max: permission denied", memoryHigh: "/sys/fs/cgroup/app/memory.high: permission denied",
			oom:     "/sys/fs/cgroup/app/memory.events: permission denied",
			psiSome: "/sys/fs/cgroup/app/memory.pressure: " + syscall.EOPNOTSUPP.Error(),
			psiFull: "/sys/fs/cgroup/app/memory.pressure: " + syscall.EOPNOTSUPP.Error(),
		},
	},
	"absent": {
		readings: map[signal]any{
			workingSet: "/proc/self/cgroup: file does not exist", memoryHigh: "/proc/self/cgroup: file does not exist",
			oom: "/proc/self/cgroup: file does not exist", psiSome: "/proc/pressure/memory: file does not exist",
			psiFull: "/proc/pressure/memory: file does not exist", liveHeap: "no memory limit is known", gcShare: "no memory limit is known",
		},
	},
	"no-controller": {
		ceiling: Ceiling{Bytes: 16384000 << 10, Source: SourcePhysical},
		readings: map[signal]any{
			workingSet: "no memory limit is set", memoryHigh: "no memory.high is set", oom: "/sys/fs/cgroup/memory.events: file does not exist",
			psiSome: "/proc/pressure/memory: file does not exist", psiFull: "/proc/pressure/memory: file does not exist",
		},
	},
}

// Each shape of a machine reads as a value, or unknown for a reason, and says so once.
// B10, B14 and B17 are among them.
func TestFixtures(t *testing.T) {
	found, err := filepath.Glob("testdata/*.tree")
	if err != nil || len(found) != len(fixtures) {
		t.Fatalf("%d trees, %v; the table has %d", len(found), err, len(fixtures))
	}
	for _, name := range slices.Sorted(maps.Keys(fixtures)) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testFixture(t, fixture(t, name), fixtures[name]) })
		})
	}
}

func testFixture(t *testing.T, w *host, want expect) {
	t.Helper()
	var log logBuffer
	m := w.monitor(t, func(c *Config) { c.Logger = log.logger() })
	after(1)
	s := m.Snapshot()
	got := m.Ceiling()
	got.Reason = ""
	if got != want.ceiling {
		t.Errorf("ceiling %+v, want %+v", got, want.ceiling)
	}
	for id, x := range want.readings {
		switch x := x.(type) {
		case float64:
			wantValue(t, signalOf(t, s, id), x)
		case string:
			wantUnknown(t, signalOf(t, s, id), x)
		}
	}
	if x := signalOf(t, s, psiSome); x.Scope != want.psiScope {
		t.Errorf("scope of PSI %q, want %q", x.Scope, want.psiScope)
	}
	if x := signalOf(t, s, workingSet); x.Path != want.level {
		t.Errorf("the working set is of %q, want %q", x.Path, want.level)
	}
	if _, unlike := want.readings[liveHeap]; !unlike {
		wantValue(t, signalOf(t, s, liveHeap), float64(10*mib)/float64(want.ceiling.Bytes))
	}

	after(200)
	wantSeverity(t, m, Normal)
	said := map[string]bool{}
	for _, line := range log.lines() {
		if said[line] || !strings.Contains(line, "is not available") {
			t.Errorf("logged %q", line)
		}
		said[line] = true
	}
	if len(said) > int(signals) {
		t.Errorf("%d lines: %v", len(said), said)
	}
	for id := range signals {
		if x := signalOf(t, m.Snapshot(), id); (x.Value == nil) != (x.State == "unknown") || x.Value == nil && x.Reason == "" {
			t.Errorf("neither a value nor a reason: %+v", x)
		}
	}
}

// B7, B30: whatever one file of any tree comes to hold, no request is shed for it,
// nothing crashes, what does not need the file reads as before, and it is told once.
func TestOneBadFile(t *testing.T) {
	bad := map[string]string{
		"empty": "", "garbage": "garbage", "text": "some words\nand more of them\n", "negative": "-1\n", "NUL": "\x00\x00\x00", "CRLF": "\r\n",
		"huge":  "999999999999999999999999999\n",
		"psi":   "some avg10=NaN\nfull avg10=-1\n",
		"psi2":  "some avg10=1e308\nfull avg10=+Inf\n",
		"stat":  "inactive_file -5\nactive_file x\nslab_reclaimable\noom -1\noom_kill y\n",
		"stat2": "inactive_file 9223372036854775807\nactive_file 9223372036854775807\nslab_reclaimable 9223372036854775807\n",
		"long":  strings.Repeat("x", 1<<17),
	}
	for _, name := range slices.Sorted(maps.Keys(fixtures)) {
		for _, file := range slices.Sorted(maps.Keys(fixture(t, name).files)) {
			for _, kind := range append(slices.Sorted(maps.Keys(bad)), "gone", "EACCES", "EIO", "EMFILE") {
				synctest.Test(t, func(t *testing.T) {
					testOneBadFile(t, fmt.Sprintf("%s: %s: %s", name, file, kind), name, file, kind, bad)
				})
			}
		}
	}
}

func testOneBadFile(t *testing.T, what, name, file, kind string, bad map[string]string) {
	t.Helper()
	w := fixture(t, name)
	var log logBuffer
	m := w.monitor(t, func(c *Config) { c.Logger = log.logger() })
	after(2)
	before := m.Snapshot()
	errnos := map[string]error{"EACCES": syscall.EACCES, "EIO": syscall.EIO, "EMFILE": syscall.EMFILE}
	switch {
	case kind == "gone":
		w.remove(file)
	case errnos[kind] != nil:
		w.deny(file, errnos[kind])
	default:
		w.write(file, bad[kind])
	}
	after(12)
	if strings.HasPrefix(file, "proc/") {
		after(maxAge)
	}
	// A cgroup without stall information, or with some that makes no sense, has the machine's (B19).
	machines := kind == "gone" && strings.HasPrefix(file, "proc/self/") || filepath.Base(file) == "memory.pressure" && errnos[kind] == nil
	// And one without memory.stat, or with one that makes no sense, is taken whole (B15).
	whole := filepath.Base(file) == "memory.stat" && errnos[kind] == nil && signalOf(t, m.Snapshot(), workingSet).Reason != ""
	machines = machines && signalOf(t, m.Snapshot(), psiSome).Scope == "host"
	if m.Severity() != Normal && !whole && !machines {
		t.Errorf("%s: %v", what, describe(m.Snapshot()))
	}
	for id := range signals {
		was, is := signalOf(t, before, id), signalOf(t, m.Snapshot(), id)
		switch {
		case is.Value == nil && is.Reason == "":
			t.Errorf("%s: %v is unknown for no reason", what, id)
		case strings.HasPrefix(file, "sys/") && was.Value != nil && is.Value == nil && !mayMiss(file, id):
			t.Errorf("%s: %v is unknown: %s", what, id, is.Reason)
		}
	}
	if n := len(log.lines()); n > int(signals) {
		t.Errorf("%s: %d lines", what, n)
	}
}

// mayMiss reports whether a signal needs a file of a cgroup.
func mayMiss(file string, id signal) bool {
	base := filepath.Base(file)
	switch id {
	case workingSet:
		return base == "memory.stat" || base == "memory.max" || base == "memory.limit_in_bytes" || base == "memory.current" ||
			base == "memory.usage_in_bytes"
	case memoryHigh:
		return base == "memory.stat" || base == "memory.high" || base == "memory.current"
	case psiSome, psiFull:
		return base == "memory.pressure"
	case oom:
		return base == "memory.events" || base == "memory.oom_control" || base == "memory.events.local"
	}
	return false
}
