package pressure

import (
	"io/fs"
	"math"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
)

// B14: page cache is not memory in use, however full the cgroup is with it.
func TestB14PageCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := fixture(t, "v2-private")
		m := w.monitor(t, nil)
		after(60)
		wantSeverity(t, m, Normal)
		s := signalOf(t, m.Snapshot(), workingSet)
		if raw := float64(s.Parts["current"]) / float64(s.LimitBytes); raw < 0.998 || *s.Value > 0.20 {
			t.Errorf("raw %v, working set %v; want 0.998 and at most 0.20", raw, *s.Value)
		}
	})
	// tmpfs is in "file" too, and counts: it is on none of the lists of files.
	used, _, raw := workingSetOf(8574074880, memoryStat{inactiveFile: 1000, activeFile: 2000, slab: 0})
	if used != 8574074880-3000 || raw != "" {
		t.Errorf("with the rest of file on tmpfs: %d, %q", used, raw)
	}
}

// B14: the page cache is no use of memory.high either: a process that reads large files is
// there all day.
func TestB14PageCacheAtMemoryHigh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHost()
		w.full(900)
		w.app("memory.high", "943718400\n") // 900 MiB: reached
		w.app("memory.stat", "inactive_file 524288000\nactive_file 209715200\nslab_reclaimable 0\n")
		m := w.monitor(t, nil)
		after(5)
		wantSeverity(t, m, Normal)
		wantValue(t, signalOf(t, m.Snapshot(), memoryHigh), 200.0/900)
		w.app("memory.stat", "inactive_file 10485760\nactive_file 0\nslab_reclaimable 0\n")
		after(2)
		wantSeverity(t, m, Critical)
		wantValue(t, signalOf(t, m.Snapshot(), memoryHigh), 890.0/900)
	})
}

// B15: two files that do not agree, or one that is missing or empty: all of the memory
// counts; nothing is negative or wraps around.
func TestB15TornRead(t *testing.T) {
	const current = 100 << 20
	for _, c := range []struct {
		name string
		stat memoryStat
		want int64
		raw  bool
	}{
		{"file larger than current", memoryStat{120 << 20, 0, 0}, current, true},
		{"only together larger", memoryStat{40 << 20, 40 << 20, 21 << 20}, current, true},
		{"together exactly current", memoryStat{40 << 20, 40 << 20, 20 << 20}, 0, false},
		{"no slab", memoryStat{40 << 20, 40 << 20, -1}, 20 << 20, false},
		{"no active_file", memoryStat{40 << 20, -1, 0}, current, true},
		{"nothing", memoryStat{-1, -1, -1}, current, true},
		{"as large as can be", memoryStat{noLimit - 1, noLimit - 1, noLimit - 1}, current, true},
	} {
		if got, p, raw := workingSetOf(current, c.stat); got != c.want || (raw != "") != c.raw || p.current != current {
			t.Errorf("%s: %d, %+v, %q; want %d", c.name, got, p, raw, c.want)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		w := newHost()
		m := w.monitor(t, nil)
		w.full(100)
		for _, stat := range []string{"", "inactive_file 125829120\nactive_file 0\n", "inactive_file x\nactive_file 0\n"} {
			w.app("memory.stat", stat)
			after(1)
			s := signalOf(t, m.Snapshot(), workingSet)
			wantValue(t, s, 100.0/1024)
			if s.Reason == "" || len(s.Parts) != 1 {
				t.Errorf("%q: %+v", stat, s)
			}
		}
		w.remove("sys/fs/cgroup/app/memory.stat")
		after(1)
		wantValue(t, signalOf(t, m.Snapshot(), workingSet), 100.0/1024)
	})
}

// B17: active_file is not in use either. The parts are reported, so that other definitions
// can be worked out.
func TestB17ActiveFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := fixture(t, "v2-docker").monitor(t, nil)
		s := signalOf(t, m.Snapshot(), workingSet)
		wantValue(t, s, 1705327016.0/12884901888)
		kubelet := float64(s.Parts["current"]-s.Parts["inactive_file"]) / float64(s.LimitBytes)
		if math.Round(kubelet*1000) != 296 {
			t.Errorf("less inactive_file only: %v, want 0.296", kubelet)
		}
		if file := s.Parts["inactive_file"] + s.Parts["active_file"]; math.Round(float64(s.Parts["current"]-file)/float64(s.LimitBytes)*1000) != 146 {
			t.Errorf("less file: %+v", s.Parts)
		}
	})
}

// Used and limit are of the same level, and of the levels that have a limit the one counts
// that is nearest to it.
func TestLevels(t *testing.T) {
	const pod = "sys/fs/cgroup/kubepods.slice/kubepods-burstable.slice/pod123.slice/"
	synctest.Test(t, func(t *testing.T) {
		w := fixture(t, "v2-nested")
		m := w.monitor(t, nil)
		// The container gets a limit that is tighter than the pod's; it is the ceiling, but the pod is
		// fuller.
		w.write(pod+"app.scope/memory.max", "209715200\n")
		after(1)
		if c := m.Ceiling(); c.Bytes != 200*mib {
			t.Errorf("%+v", c)
		}
		s := signalOf(t, m.Snapshot(), workingSet)
		wantValue(t, s, 320.0/512)
		if !strings.HasSuffix(s.Path, "/pod123.slice") || s.LimitBytes != 512*mib || s.UsedBytes != 320*mib {
			t.Errorf("%+v", s)
		}
		w.write(pod+"app.scope/memory.current", "199229440\n") // 190 MiB
		w.write(pod+"app.scope/memory.high", "199229440\n")
		w.write(pod+"memory.high", "805306368\n")
		after(2)
		wantSeverity(t, m, Critical)
		s = signalOf(t, m.Snapshot(), workingSet)
		wantValue(t, s, 190.0/200)
		if s := signalOf(t, m.Snapshot(), memoryHigh); !strings.HasSuffix(s.Path, "/app.scope") || *s.Value != 1 {
			t.Errorf("%+v", s)
		}
		// A level that cannot be read leaves the others.
		w.deny(pod+"memory.current", syscall.EIO)
		w.write(pod+"app.scope/memory.current", "20971520\n")
		after(1)
		s = signalOf(t, m.Snapshot(), workingSet)
		wantValue(t, s, 0.25) // kubepods.slice
		if !strings.Contains(s.Reason, "pod123.slice/memory.current") {
			t.Errorf("%+v", s)
		}
	})
	t.Run("B7 a limit above physical memory is that", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newHost()
			w.app("memory.max", "1099511627776\n")
			w.full(23 << 10)
			m := w.monitor(t, nil)
			after(1)
			wantValue(t, signalOf(t, m.Snapshot(), workingSet), 23.0/24)
		})
	})
	t.Run("a limit of 0 is none", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newHost()
			w.app("memory.max", "0\n")
			w.app("memory.high", "0\n")
			m := w.monitor(t, nil)
			after(2)
			wantSeverity(t, m, Normal)
			wantUnknown(t, signalOf(t, m.Snapshot(), workingSet), "memory.max: 0 or less")
			wantUnknown(t, signalOf(t, m.Snapshot(), memoryHigh), "memory.high: 0 or less")
		})
	})
}

// Go's own garbage is no pressure where GOMEMLIMIT is not above the limit.
func TestGarbage(t *testing.T) {
	g := goStats{ok: true, memoryLimit: 900, live: 200, objects: 700, free: 100}
	for _, c := range []struct {
		name        string
		change      func(*goStats)
		used, limit int64
		want        int64
	}{
		{"GOMEMLIMIT below the limit", nil, 950, 1000, 600},
		{"GOMEMLIMIT at the limit", nil, 950, 900, 600},
		{"GOMEMLIMIT above the limit", nil, 950, 899, 0},
		{"no GOMEMLIMIT", func(g *goStats) { g.memoryLimit = math.MaxInt64 }, 950, 1000, 0},
		{"more live than objects", func(g *goStats) { g.live = 800 }, 950, 1000, 100},
		{"more than is used", nil, 599, 1000, 0},
		{"all that is used", nil, 600, 1000, 600},
		{"nothing is known", func(g *goStats) { g.ok = false }, 950, 1000, 0},
	} {
		x := g
		if c.change != nil {
			c.change(&x)
		}
		if got := x.collectable(c.used, c.limit); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		w := newHost()
		w.full(1000)
		w.app("memory.high", "1048576000\n")
		w.runtime(func(g *goStats) { g.memoryLimit, g.live, g.objects, g.free = gib, 240*mib, 900*mib, 40*mib })
		m := w.monitor(t, nil)
		after(5)
		wantSeverity(t, m, Critical) // memory.high is below GOMEMLIMIT: the kernel is in the way before the collector is
		if s := m.Snapshot(); s.Signal != "memory_high" || signalOf(t, s, workingSet).State != "normal" {
			t.Errorf("%s", describe(s))
		}
		w.runtime(func(g *goStats) { g.memoryLimit = 900 * mib })
		after(1)
		wantSeverity(t, m, Normal)
		s := signalOf(t, m.Snapshot(), workingSet)
		if s.Parts["garbage"] != 700*mib || s.UsedBytes != 300*mib {
			t.Errorf("%+v", s)
		}
	})
}

// A heap that fills between two reads of a sample is garbage all the same: where many want
// the processors the sampler may stand still in between.
func TestGarbageThatComesMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHost()
		w.full(1000)
		heap := func(objects int64) {
			w.runtime(func(g *goStats) { g.memoryLimit, g.live, g.objects = gib, 100*mib, objects*mib })
		}
		heap(100)
		m := w.monitor(t, func(c *Config) {
			c.Root = onOpen{w, "sys/fs/cgroup/app/memory.current", func() { heap(900) }}
		})
		for range 10 {
			heap(100) // just collected
			after(1)
			wantSeverity(t, m, Normal)
		}
	})
}

// onOpen calls do before it opens one name.
type onOpen struct {
	fs.FS
	name string
	do   func()
}

func (o onOpen) Open(name string) (fs.File, error) {
	if name == o.name {
		o.do()
	}
	return o.FS.Open(name)
}
