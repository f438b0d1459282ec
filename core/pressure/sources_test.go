package pressure

import (
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"testing"
	"testing/fstest"
)

func TestCeilingNothingThere(t *testing.T) {
	t.Run("B30 no files at all", func(t *testing.T) {
		for _, root := range []fs.FS{
			fstest.MapFS{},
			files{"etc/hostname": "x\n"}.fs(),
			files{"proc/self/cgroup/x": "", "proc/self/mountinfo/x": "", "proc/meminfo/x": ""}.fs(), // directories in their places
		} {
			check(t, ReadCeiling(root, noGoLimit), Ceiling{}, "cgroup: /proc/self/cgroup", "physical memory: /proc/meminfo", "no memory limit is known")
			check(t, ReadCeiling(root, gib), Ceiling{Bytes: gib, Source: SourceGOMEMLIMIT}, "cgroup: /proc/self/cgroup", "physical memory: /proc/meminfo")
		}
	})
	t.Run("B30 WSL and Kata: no memory controller", func(t *testing.T) {
		tree := machine.with(files{"proc/self/cgroup": "1:cpu:/\n0::/\n", "proc/self/mountinfo": hybridMounts, "sys/fs/cgroup/cpu/tasks": ""})
		check(t, ReadCeiling(tree.fs(), noGoLimit), physicalCeiling, "no mount: /sys/fs/cgroup/unified: file does not exist")
		tree["sys/fs/cgroup/unified/cgroup.procs"] = ""
		check(t, ReadCeiling(tree.fs(), noGoLimit), physicalCeiling, "no memory.max")
	})
	t.Run("B30 bad meminfo", func(t *testing.T) {
		for _, content := range []string{"", "MemFree: 1 kB\n", "MemTotal:\n", "MemTotal: 0 kB\n", "MemTotal: 5\n", "MemTotal: -5 kB\n", "MemTotal: 9007199254740992 kB\n", "MemTotal: x kB\n"} {
			check(t, ReadCeiling(files{"proc/meminfo": content}.fs(), noGoLimit), Ceiling{}, "physical memory: /proc/meminfo: ")
		}
	})
}

func TestCeilingSources(t *testing.T) {
	tree := machine.with(files{"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.max": "1073741824\n"})
	gomem := func(bytes int64) Ceiling { return Ceiling{Bytes: bytes, Source: SourceGOMEMLIMIT} }
	check(t, ReadCeiling(tree.fs(), gib-1), gomem(gib-1))
	check(t, ReadCeiling(tree.fs(), gib), cgroupCeiling(gib, "/a")) // equal: the harder bound is named
	check(t, ReadCeiling(tree.fs(), 2*gib), cgroupCeiling(gib, "/a"))
	check(t, ReadCeiling(tree.fs(), 1), gomem(1))

	tree["sys/fs/cgroup/a/memory.max"] = "25769803776\n" // physical memory to the byte
	check(t, ReadCeiling(tree.fs(), noGoLimit), cgroupCeiling(machineBytes, "/a"))
	tree["sys/fs/cgroup/a/memory.max"] = "max\n"
	check(t, ReadCeiling(tree.fs(), machineBytes), gomem(machineBytes))
	check(t, ReadCeiling(tree.fs(), machineBytes+1), physicalCeiling)
}

// On a real file system, with a limit that changes between two calls.
func TestCeilingOnDisk(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) {
		t.Helper()
		name = filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("proc/self/cgroup", "0::/a b/c\n")
	write("proc/self/mountinfo", `32 31 0:29 / /my\040cgroups rw - cgroup2 cgroup2 rw`+"\n")
	write("proc/meminfo", machine["proc/meminfo"])
	write("my cgroups/a b/c/memory.max", "max\n")
	write("my cgroups/a b/memory.max", "1073741824\n")
	check(t, ReadCeiling(os.DirFS(dir), noGoLimit), cgroupCeiling(gib, "/a b"))
	write("my cgroups/a b/memory.max", "536870912\n")
	check(t, ReadCeiling(os.DirFS(dir), noGoLimit), cgroupCeiling(512*mib, "/a b"))
}

func TestCurrentCeiling(t *testing.T) {
	old := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(old)

	debug.SetMemoryLimit(math.MaxInt64)
	machine := CurrentCeiling()
	t.Logf("%+v", machine)
	known := machine.Bytes > 0
	if machine.Bytes < 0 || known != (machine.Source != "") || !known && machine.Reason == "" {
		t.Errorf("neither a value nor a reason: %+v", machine)
	}
	switch runtime.GOOS {
	case "linux", "darwin", "windows":
		if !known {
			t.Errorf("%s: physical memory is unknown: %+v", runtime.GOOS, machine)
		}
	}
	if got := debug.SetMemoryLimit(-1); got != math.MaxInt64 {
		t.Errorf("reading has set the runtime's limit to %d", got)
	}

	low := int64(64) << 20
	debug.SetMemoryLimit(low)
	if got := CurrentCeiling(); (!known || machine.Bytes > low) && (got.Bytes != low || got.Source != SourceGOMEMLIMIT) {
		t.Errorf("with GOMEMLIMIT %d: %+v", low, got)
	}
}
