package pressure

import (
	"errors"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"
	"time"
)

// one is a tree with one file of a cgroup.
func one(name, content string) fs.FS { return files{name: content}.fs() }

func FuzzMemoryStat(f *testing.F) {
	for _, seed := range []string{
		"", "anon 1\nfile 2\ninactive_file 3\nactive_file 4\nslab_reclaimable 5\n", "inactive_file 1\nactive_file", "inactive_file -1\nactive_file 1\n",
		"inactive_file 18446744073709551615\nactive_file 18446744073709551615\nslab_reclaimable 18446744073709551615\n",
		"total_inactive_file 1\ntotal_active_file 2\ninactive_file 7\nactive_file 7\r\n", "inactive_file 1\ninactive_file 2\nactive_file 3\n",
		"inactive_file  1\nactive_file\t1\n", "\x00\n\xff 1\n",
	} {
		f.Add(seed, int64(100), false)
		f.Add(seed, int64(0), true)
	}
	f.Fuzz(func(t *testing.T, content string, current int64, v1 bool) {
		if current < 0 || current >= noLimit {
			t.Skip("no file reads as that")
		}
		s, err := readStat(one("s", content), "s", v1)
		if err != nil && !errors.Is(err, errTooLong) {
			t.Fatal(err)
		}
		for _, v := range []int64{s.inactiveFile, s.activeFile, s.slab} {
			if v < -1 || v >= noLimit {
				t.Fatalf("%+v", s)
			}
		}
		used, p, raw := workingSetOf(current, s)
		if used < 0 || used > current || raw != "" && used != current || p.current != current {
			t.Fatalf("%d of %d: %+v, %q", used, current, p, raw)
		}
		if raw == "" && used+p.inactiveFile+p.activeFile+p.slab != current {
			t.Fatalf("%d of %d: %+v do not add up", used, current, p)
		}
	})
}

func FuzzMemoryEvents(f *testing.F) {
	for _, seed := range []string{
		"", "low 0\nhigh 0\nmax 5\noom 1\noom_kill 2\noom_group_kill 0\n", "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n", "oom", "oom \noom_kill -1\n",
		"oom 18446744073709551615\n", "oom_kill 1\r\n", "oom 1\noom 2\n",
	} {
		f.Add(seed, "oom 1\noom_kill 1\n")
		f.Add("oom 1\noom_kill 1\n", seed)
	}
	f.Fuzz(func(t *testing.T, first, second string) {
		var w oomWatch
		for _, list := range [][]oomFile{{{name: "e", oom: true, killed: true}}, {{name: "e", killed: true}}, {{name: "x", before: "e", oom: true}}} {
			w = oomWatch{}
			if r, killed := w.read(one("e", first), list); killed || r.value != 0 || r.grade != calm() || !r.known && r.reason == "" {
				t.Fatalf("the first read says %+v, %v", r, killed)
			}
			if r, killed := w.read(one("e", first), list); killed || r.value != 0 {
				t.Fatalf("the same read says %+v, %v", r, killed)
			}
			r, killed := w.read(one("e", second), list)
			if r.value < 0 || killed && r.value == 0 || (r.grade.severity == Critical) != (r.value > 0) {
				t.Fatalf("the next read says %+v, %v", r, killed)
			}
		}
	})
}

func FuzzPSI(f *testing.F) {
	for _, seed := range []string{
		"", "some avg10=0.00 avg60=0.00 avg300=0.00 total=1736583\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=1677369\n", "some avg10=0x1p-2\n",
		"some avg10=1_0\n", "some avg10=100\nfull avg10=1e2\n", "some avg10=NaN\n", "full avg10=-0\n", "some avg10=\n", "some\n", "some avg10=1 avg10=2\n",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, content string) {
		p, ok := parsePSI(content)
		for _, v := range []float64{p.some, p.full} {
			if v != -1 && !(v >= 0 && v <= 100) {
				t.Fatalf("%+v", p)
			}
		}
		if ok != (p.some >= 0 || p.full >= 0) {
			t.Fatalf("%+v, %v", p, ok)
		}
		if ok && !strings.Contains(content, "avg10=") {
			t.Fatalf("%+v made up", p)
		}
	})
}

func FuzzOneValue(f *testing.F) {
	for _, seed := range []string{"", "max\n", "0\n", "1\n", "-1", "9223372036854771712\n", "18446744073709551615\n", "1 2", "0x10", " 7 \n", "٣", "1e3", "+1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, content string) {
		limit, err := readLimit(one("v", content), "v")
		if (err == nil) != (limit > 0) || limit > noLimit {
			t.Fatalf("limit %d, %v", limit, err)
		}
		if err != nil && len(err.Error()) > 300 {
			t.Fatalf("an error of %d bytes", len(err.Error()))
		}
		count, err := readCount(one("v", content), "v")
		if count < 0 || count >= noLimit || err != nil && (count != 0 || len(err.Error()) > 300) {
			t.Fatalf("count %d, %v", count, err)
		}
		if err == nil && limit != count && count != 0 {
			t.Fatalf("a limit of %d and a count of %d", limit, count)
		}
	})
}

func FuzzMeminfo(f *testing.F) {
	for _, seed := range []string{"", "MemTotal:       25165824 kB\n", "MemTotal: 0 kB", "MemFree: 1 kB\nMemTotal: 9007199254740991 kB\r\n", "MemTotal: 1\n", "MemTotal: 1 kB kB\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, content string) {
		bytes, err := memTotal(one(meminfoFile, content))
		if (err == nil) != (bytes > 0) || bytes%1024 != 0 {
			t.Fatalf("%d, %v", bytes, err)
		}
	})
}

// FuzzTree puts the same odd words into every file that a sample reads, so that they meet.
func FuzzTree(f *testing.F) {
	for _, seed := range []string{
		"", "max", "0", "0::/a\n", "5:memory:/a\n0::/a\n", "1 1 0:1 / /sys/fs/cgroup rw - cgroup2 c rw\n",
		"1 1 0:1 / /sys/fs/cgroup/memory rw - cgroup c rw,memory\n", "some avg10=99\n", "inactive_file 1\nactive_file 1\n", "oom 3\noom_kill 3\n", "MemTotal: 1 kB\n",
	} {
		f.Add(seed, "0::/a\n", "1\n", "1\n")
		f.Add("4096\n", seed, "5000\n", "1\n")
		f.Add("4096\n", "0::/a\n", seed, seed)
	}
	f.Fuzz(func(t *testing.T, limit, membership, usage, stat string) {
		tree := fstest.MapFS{}
		put := func(name, content string) { tree[name] = &fstest.MapFile{Data: []byte(content)} }
		put(membershipFile, membership)
		put(meminfoFile, "MemTotal: 1024 kB\n")
		for _, dir := range []string{"sys/fs/cgroup/", "sys/fs/cgroup/a/", "sys/fs/cgroup/memory/", "sys/fs/cgroup/memory/a/"} {
			for _, name := range []string{"memory.max", "memory.high", "memory.limit_in_bytes"} {
				put(dir+name, limit)
			}
			put(dir+"memory.current", usage)
			put(dir+"memory.usage_in_bytes", usage)
			for _, name := range []string{"memory.stat", "memory.events", "memory.events.local", "memory.oom_control", "memory.pressure"} {
				put(dir+name, stat)
			}
		}
		c := DefaultConfig()
		s := sampler{physical: memTotal, runtime: func() goStats { return goStats{ok: true, memoryLimit: 4096, live: 1, objects: 2, procs: 1} }}
		now := time.Unix(1000, 0)
		for range 3 {
			now = now.Add(time.Second)
			x := s.take(now, tree, &c)
			if x.killed {
				t.Fatal("a kill out of nowhere")
			}
			for id := range signals {
				r := &x.readings[id]
				if !r.known && (r.reason == "" || r.grade != calm()) || r.known && !(r.value >= 0) || r.used < 0 || r.limit < 0 {
					t.Fatalf("%v: %+v", id, r)
				}
				if r.grade.severity > Normal && (!r.known || !r.counts) {
					t.Fatalf("%v raises the severity: %+v", id, r)
				}
			}
		}
	})
}
