package pressure

import (
	"fmt"
	"math"
	"path"
	"strings"
	"syscall"
	"testing"
)

func TestCeilingV2(t *testing.T) {
	pod := "/kubepods.slice/kubepods-burstable.slice/pod123.slice"
	t.Run("B1 parent holds the limit", func(t *testing.T) {
		tree := machine.with(files{
			"proc/self/cgroup": "0::" + pod + "/cri-containerd-x.scope\n",
			"sys/fs/cgroup" + pod + "/cri-containerd-x.scope/memory.max":          "max\n",
			"sys/fs/cgroup" + pod + "/memory.max":                                 "536870912\n",
			"sys/fs/cgroup/kubepods.slice/kubepods-burstable.slice/memory.max":    "max\n",
			"sys/fs/cgroup/kubepods.slice/memory.max":                             "max\n",
			"sys/fs/cgroup/kubepods.slice/kubepods-besteffort.slice/memory.max":   "1048576\n", // not ours
			"sys/fs/cgroup" + pod + "/cri-containerd-x.scope/sidecar/memory.max":  "1048576\n", // below us
			"sys/fs/cgroup" + pod + "/cri-containerd-x.scope/memory.high":         "1048576\n", // no ceiling
			"sys/fs/cgroup" + pod + "/cri-containerd-other.scope/memory.max":      "1048576\n",
			"sys/fs/cgroup/kubepods.slice/kubepods-burstable.slice/cgroup.procs":  "",
			"sys/fs/cgroup/kubepods.slice/kubepods-burstable.slice/memory.events": "oom 0\n",
		})
		check(t, ReadCeiling(tree.fs(), noGoLimit), cgroupCeiling(512*mib, pod))
	})
	t.Run("B2 tightest of nested slices", func(t *testing.T) {
		for _, c := range []struct {
			limits [4]string // from the leaf up
			want   Ceiling
		}{
			{[4]string{"max", "max", "1073741824", "max"}, cgroupCeiling(gib, "/user.slice/user-cg.slice")},
			{[4]string{"536870912", "max", "1073741824", "max"}, cgroupCeiling(512*mib, "/user.slice/user-cg.slice/user-cg-cpu.slice/run-r0.scope")},
			{[4]string{"max", "1073741824", "1073741824", "1073741824"}, cgroupCeiling(gib, "/user.slice/user-cg.slice/user-cg-cpu.slice")},
			{[4]string{"max", "max", "max", "max"}, physicalCeiling},
		} {
			tree := machine.with(files{"proc/self/cgroup": "0::/user.slice/user-cg.slice/user-cg-cpu.slice/run-r0.scope\n"})
			dir := "sys/fs/cgroup/user.slice/user-cg.slice/user-cg-cpu.slice/run-r0.scope"
			for _, limit := range c.limits {
				tree[dir+"/memory.max"] = limit + "\n"
				dir = path.Dir(dir)
			}
			check(t, ReadCeiling(tree.fs(), noGoLimit), c.want)
		}
	})
	t.Run("B3 host namespace", func(t *testing.T) {
		tree := machine.with(files{
			"proc/self/cgroup":                    "0::/docker/abc\n",
			"sys/fs/cgroup/docker/abc/memory.max": "536870912\n",
		})
		check(t, ReadCeiling(tree.fs(), noGoLimit), cgroupCeiling(512*mib, "/docker/abc"))
	})
	t.Run("B10 nothing at the v2 root", func(t *testing.T) {
		tree := machine.with(files{
			"proc/self/cgroup":           "0::/\n",
			"proc/self/mountinfo":        "32 31 0:29 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
			"sys/fs/cgroup/cgroup.procs": "1\n",
		})
		first := ReadCeiling(tree.fs(), noGoLimit)
		check(t, first, physicalCeiling, "no memory.max")
		if again := ReadCeiling(tree.fs(), noGoLimit); again != first {
			t.Errorf("second read says %+v, the first %+v: a caller would log it again", again, first)
		}
	})
}

func TestCeilingNamespaces(t *testing.T) {
	const root = "268435456\n"
	t.Run("B4 private namespace", func(t *testing.T) {
		tree := machine.with(files{"proc/self/cgroup": "0::/docker/abc\n", "sys/fs/cgroup/memory.max": root})
		check(t, ReadCeiling(tree.fs(), noGoLimit), cgroupCeiling(256*mib, "/"), "/docker/abc", "root of that mount")

		// A folder that only shares the first part of the name is another cgroup.
		tree["sys/fs/cgroup/docker/memory.max"] = "1048576\n"
		check(t, ReadCeiling(tree.fs(), noGoLimit), cgroupCeiling(256*mib, "/"), "/docker/abc")
	})
	t.Run("B4 path is the root", func(t *testing.T) {
		tree := machine.with(files{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": root})
		check(t, ReadCeiling(tree.fs(), noGoLimit), cgroupCeiling(256*mib, "/"))
	})
	t.Run("B4 path leaves the namespace", func(t *testing.T) {
		for _, own := range []string{"/..", "/../..", "/../../other", "/a/../../b", "/a\x00b", "/a\xffb"} {
			tree := machine.with(files{
				"proc/self/cgroup":           "0::" + own + "\n",
				"sys/fs/cgroup/memory.max":   root,
				"sys/memory.max":             "1048576\n",
				"sys/fs/memory.max":          "1048576\n",
				"sys/fs/b/memory.max":        "1048576\n",
				"sys/fs/cgroup/b/memory.max": "1048576\n",
				"sys/other/memory.max":       "1048576\n",
			})
			check(t, ReadCeiling(tree.fs(), noGoLimit), cgroupCeiling(256*mib, "/"), "root of that mount")
		}
	})
}

func TestCeilingMountRoots(t *testing.T) {
	for _, c := range []struct {
		name, own, mounts string
		more              files
		want              Ceiling
		reason            []string
	}{
		{
			name: "B4 mount shows the own cgroup only", own: "/docker/abc",
			mounts: "32 31 0:29 /docker/abc /sys/fs/cgroup ro shared:1 master:2 - cgroup2 cgroup rw,nsdelegate\n",
			want:   cgroupCeiling(256*mib, "/"),
		}, {
			name: "B4 mount shows a part of the tree", own: "/docker/abc/init",
			mounts: "32 31 0:29 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n",
			more:   files{"sys/fs/cgroup/init/memory.max": "134217728\n"},
			want:   cgroupCeiling(128*mib, "/init"),
		}, {
			name: "B4 mount root is no prefix by parts", own: "/docker/abcdef",
			mounts: "32 31 0:29 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n",
			more:   files{"sys/fs/cgroup/def/memory.max": "1048576\n"},
			want:   cgroupCeiling(256*mib, "/"), reason: []string{"/docker/abcdef"},
		}, {
			name: "B4 mount and path outside of the namespace", own: "/../../x",
			mounts: "32 31 0:29 /../.. /sys/fs/cgroup ro - cgroup2 cgroup rw\n",
			more:   files{"sys/fs/cgroup/x/memory.max": "134217728\n"},
			want:   cgroupCeiling(128*mib, "/x"),
		}, {
			name: "B4 mount outside of the namespace", own: "/",
			mounts: "32 31 0:29 /../.. /sys/fs/cgroup ro - cgroup2 cgroup rw\n",
			want:   cgroupCeiling(256*mib, "/"), reason: []string{"root of that mount"},
		}, {
			name: "B3 the mount that shows most wins", own: "/docker/abc",
			mounts: "32 31 0:29 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n" +
				"33 31 0:29 / /host/sys/fs/cgroup ro - cgroup2 cgroup rw\n",
			more: files{"host/sys/fs/cgroup/docker/abc/memory.max": "268435456\n", "host/sys/fs/cgroup/docker/memory.max": "134217728\n"},
			want: cgroupCeiling(128*mib, "/docker"),
		}, {
			name: "B3 a mount elsewhere with a space in it", own: "/a b",
			mounts: `32 31 0:29 / /my\040cg\134roups rw - cgroup2 none rw` + "\n",
			more:   files{`my cg\roups/a b/memory.max`: "134217728\n"},
			want:   cgroupCeiling(128*mib, "/a b"),
		}, {
			name: "B3 a later mount hides an earlier one", own: "/a",
			mounts: "32 31 0:29 / /mnt rw - cgroup2 none rw\n" +
				"33 31 0:29 / /cg rw - cgroup2 none rw\n" +
				"34 31 0:30 / /mnt rw - tmpfs none rw\n",
			more: files{"mnt/a/memory.max": "1048576\n", "cg/a/memory.max": "134217728\n"},
			want: cgroupCeiling(128*mib, "/a"),
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			tree := machine.with(files{
				"proc/self/cgroup":         "0::" + c.own + "\n",
				"proc/self/mountinfo":      c.mounts,
				"sys/fs/cgroup/memory.max": "268435456\n",
			}).with(c.more)
			check(t, ReadCeiling(tree.fs(), noGoLimit), c.want, c.reason...)
		})
	}
}

// v1 is a machine with limits from the leaf up to the root of the mount.
func v1(limits ...string) files {
	tree := machine.with(files{"proc/self/cgroup": "12:cpu,cpuacct:/other\n5:memory:/docker/abc\n1:name=systemd:/docker/abc\n"})
	for i, dir := range []string{"/docker/abc", "/docker", ""}[:len(limits)] {
		tree["sys/fs/cgroup/memory"+dir+"/memory.limit_in_bytes"] = limits[i] + "\n"
	}
	return tree
}

func TestCeilingV1(t *testing.T) {
	t.Run("B6 no word for unlimited", func(t *testing.T) {
		for _, unlimited := range []string{"9223372036854771712", "9223372036854710272", "9223372036854775807", "9223372036854775808", "18446744073709551615"} {
			check(t, ReadCeiling(v1(unlimited, unlimited, unlimited).fs(), noGoLimit), physicalCeiling)
			// Without physical memory to bound it, either.
			tree := v1(unlimited)
			delete(tree, "proc/meminfo")
			check(t, ReadCeiling(tree.fs(), noGoLimit), Ceiling{}, "/proc/meminfo: file does not exist", "no memory limit is known")
		}
		check(t, ReadCeiling(v1("2147483648").fs(), noGoLimit), cgroupCeiling(2*gib, "/docker/abc"))
		check(t, ReadCeiling(v1("9223372036854771712", "2147483648", "9223372036854771712").fs(), noGoLimit), cgroupCeiling(2*gib, "/docker"))
	})
	t.Run("B6 parent that does not bind its children", func(t *testing.T) {
		tree := v1("2147483648", "1048576", "1048576").with(files{"sys/fs/cgroup/memory/docker/memory.use_hierarchy": "0\n"})
		check(t, ReadCeiling(tree.fs(), noGoLimit), cgroupCeiling(2*gib, "/docker/abc"))
		tree["sys/fs/cgroup/memory/docker/abc/memory.use_hierarchy"] = "0\n" // says nothing about the group itself
		check(t, ReadCeiling(tree.fs(), noGoLimit), cgroupCeiling(2*gib, "/docker/abc"))
		tree["sys/fs/cgroup/memory/docker/memory.use_hierarchy"] = "1\n"
		check(t, ReadCeiling(tree.fs(), noGoLimit), cgroupCeiling(mib, "/docker"))
	})
	t.Run("B1 pod limit out of sight", func(t *testing.T) {
		tree := v1().with(files{
			"proc/self/mountinfo":                        "36 31 0:33 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "2147483648\n",
			"sys/fs/cgroup/memory/memory.stat":           "cache 1\nhierarchical_memory_limit 536870912\nhierarchical_memsw_limit 1\n",
		})
		check(t, ReadCeiling(tree.fs(), noGoLimit), cgroupCeiling(512*mib, ""))
		tree["sys/fs/cgroup/memory/memory.stat"] = "cache 1\nhierarchical_memory_limit 2147483648\n"
		check(t, ReadCeiling(tree.fs(), noGoLimit), cgroupCeiling(2*gib, "/"))
		for _, bad := range []string{"0", "many"} {
			tree["sys/fs/cgroup/memory/memory.stat"] = "hierarchical_memory_limit " + bad + "\n"
			check(t, ReadCeiling(tree.fs(), noGoLimit), cgroupCeiling(2*gib, "/"), "memory.stat", "passed over")
		}
	})
	t.Run("B8 zero on v1", func(t *testing.T) {
		check(t, ReadCeiling(v1("0", "2147483648").fs(), noGoLimit), cgroupCeiling(2*gib, "/docker"), "memory.limit_in_bytes: 0")
	})
}

func TestCeilingHybrid(t *testing.T) {
	t.Run("B11 hybrid", func(t *testing.T) {
		tree := machine.with(files{
			"proc/self/cgroup":    "5:memory:/workload\n4:cpu,cpuacct:/workload\n1:name=systemd:/workload\n0::/workload\n",
			"proc/self/mountinfo": hybridMounts,
			"sys/fs/cgroup/memory/workload/memory.limit_in_bytes":      "1073741824\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes":               "9223372036854771712\n",
			"sys/fs/cgroup/unified/workload/memory.max":                "1048576\n",
			"sys/fs/cgroup/cpu,cpuacct/workload/memory.limit_in_bytes": "1048576\n",
		})
		check(t, ReadCeiling(tree.fs(), noGoLimit), cgroupCeiling(gib, "/workload"))

		// The other hybrid: v1 for systemd only, memory on v2.
		tree["proc/self/cgroup"] = "1:name=systemd:/workload\n0::/workload\n"
		check(t, ReadCeiling(tree.fs(), noGoLimit), cgroupCeiling(mib, "/workload"))

		// Memory is on v1, and no v1 mount is to be seen: nobody knows.
		tree["proc/self/cgroup"] = "5:memory:/workload\n0::/workload\n"
		tree["proc/self/mountinfo"] = "32 31 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
		for name := range tree {
			if strings.HasPrefix(name, "sys/fs/cgroup/memory/") {
				delete(tree, name)
			}
		}
		check(t, ReadCeiling(tree.fs(), noGoLimit), physicalCeiling, "no mount: /sys/fs/cgroup/memory: file does not exist")
	})
}

func TestCeilingBadValues(t *testing.T) {
	tree := files{
		"proc/self/cgroup":             "0::/a/b\n",
		"proc/meminfo":                 "MemTotal:       15666184 kB\n",
		"sys/fs/cgroup/a/b/memory.max": "max\n",
		"sys/fs/cgroup/a/memory.max":   "1099511627776\n",
		"sys/fs/cgroup/memory.max":     "max\n",
	}
	physical := Ceiling{Bytes: 15666184 << 10, Source: SourcePhysical}
	const leaf, parent = "sys/fs/cgroup/a/b/memory.max", "sys/fs/cgroup/a/memory.max"

	t.Run("B7 limit above physical memory", func(t *testing.T) {
		check(t, ReadCeiling(tree.fs(), noGoLimit), physical)
	})
	t.Run("B7 unreadable", func(t *testing.T) {
		root := denied(tree.fs(), leaf, parent)
		check(t, ReadCeiling(root, noGoLimit), physical, "/"+leaf+": permission denied", "/"+parent+": permission denied")
		check(t, ReadCeiling(root, gib), Ceiling{Bytes: gib, Source: SourceGOMEMLIMIT}, "/"+leaf+": permission denied")
		// A level that can be read binds, whatever the others say.
		known := tree.with(files{parent: "1073741824\n"}).fs()
		check(t, ReadCeiling(denied(known, leaf), noGoLimit), cgroupCeiling(gib, "/a"), "/"+leaf+": permission denied")
	})
	t.Run("B7 unreadable folders and kernel files", func(t *testing.T) {
		for _, name := range []string{"proc/self/cgroup", "proc/self/mountinfo"} {
			check(t, ReadCeiling(denied(tree.fs(), name), noGoLimit), physical, "/"+name+": permission denied")
		}
		got := ReadCeiling(denied(tree.fs(), "sys/fs/cgroup/a/b", leaf, parent, "sys/fs/cgroup/memory.max"), noGoLimit)
		check(t, got, physical, "/"+leaf+": permission denied")
		got = ReadCeiling(failFS{FS: tree.fs(), read: map[string]error{leaf: syscall.EOPNOTSUPP}}, noGoLimit)
		check(t, got, physical, "/"+leaf+": "+syscall.EOPNOTSUPP.Error())
	})
	t.Run("B7 garbage", func(t *testing.T) {
		for _, bad := range []string{"garbage", "", "\n", "-1", "+5", "1.5", "1e9", "0x10", "1_000", "12 34", "512M", "99999999999999999999", "maximum", strings.Repeat("9", 1<<20)} {
			root := tree.with(files{leaf: bad}).fs()
			check(t, ReadCeiling(root, noGoLimit), physical, "/"+leaf)
			if r := ReadCeiling(root, noGoLimit).Reason; len(r) > 300 {
				t.Errorf("%.10q: reason has %d bytes", bad, len(r))
			}
		}
	})
	t.Run("B8 zero", func(t *testing.T) {
		root := tree.with(files{leaf: "0\n"}).fs()
		check(t, ReadCeiling(root, noGoLimit), physical, "/"+leaf+": 0", "passed over")
		root = tree.with(files{leaf: "0\n", parent: "1073741824\n"}).fs()
		check(t, ReadCeiling(root, noGoLimit), cgroupCeiling(gib, "/a"), "/"+leaf+": 0")
		for _, limit := range []int64{0, -1, math.MinInt64} {
			check(t, ReadCeiling(tree.fs(), limit), physical, "GOMEMLIMIT: 0 or less")
		}
	})
	t.Run("many bad levels make a short reason", func(t *testing.T) {
		deep := machine.with(nil)
		own := ""
		for i := range 200 {
			own += fmt.Sprintf("/n%d", i)
			deep["sys/fs/cgroup"+own+"/memory.max"] = "0\n"
		}
		deep["proc/self/cgroup"] = "0::" + own + "\n"
		got := ReadCeiling(deep.fs(), noGoLimit)
		check(t, got, physicalCeiling, "/n199/memory.max: 0", "and 196 more")
	})
}

func TestCeilingMalformedMembership(t *testing.T) {
	tree := machine.with(files{
		"sys/fs/cgroup/memory.max":        "1073741824\n",
		"sys/fs/cgroup/a:b/c/memory.max":  "536870912\n",
		"sys/fs/cgroup/colons/memory.max": "1048576\n",
	})
	t.Run("B13 no line is well-formed", func(t *testing.T) {
		for _, content := range []string{
			"", "\n\n", "invalid-line:", "invalid-line:\n", `0\using\colons\/`, "1::/\n", "0:memory:/a:b/c\n", "::/\n", "-1::/\n",
			"0::\n", "0::a:b/c\n", "0:/a:b/c\n", "x::/\n", "0::/" + strings.Repeat("a/", maxPath) + "\n", "99999999999999999999::/\n",
		} {
			tree["proc/self/cgroup"] = content
			check(t, ReadCeiling(tree.fs(), noGoLimit), physicalCeiling, "/proc/self/cgroup names no memory cgroup")
		}
	})
	t.Run("B13 colons, CRLF, no newline at the end", func(t *testing.T) {
		bad := "invalid-line:\n0\\using\\colons\\/\n1::/\n"
		for _, content := range []string{
			"0::/a:b/c\n", "0::/a:b/c", "0::/a:b/c\r\n", "0::/a:b/c/\n", bad + "0::/a:b/c\n", "0::/a:b/c\n" + bad,
			strings.ReplaceAll(bad+"0::/a:b/c\n", "\n", "\r\n"), "0::/a:b/c\n0::/colons\n",
		} {
			tree["proc/self/cgroup"] = content
			check(t, ReadCeiling(tree.fs(), noGoLimit), cgroupCeiling(512*mib, "/a:b/c"))
		}
	})
}
