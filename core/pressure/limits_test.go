package pressure

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/fstest"
	"testing/synctest"
)

// B23: recovered at exactly 0 when that is what was configured; what is not ordered is
// refused.
func TestB23ZeroThreshold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHost()
		m := w.monitor(t, func(c *Config) { c.PSI.Recovered = 0 })
		w.app("memory.pressure", "some avg10=40.00\nfull avg10=0.00\n")
		after(2)
		wantSeverity(t, m, High)
		w.app("memory.pressure", "some avg10=0.01\nfull avg10=0.00\n")
		after(1)
		wantSeverity(t, m, High)
		w.app("memory.pressure", "some avg10=0.00\nfull avg10=0.00\n")
		after(1)
		wantSeverity(t, m, Normal)
	})
}

// B29: limits change in place, and the ceiling with them, within one sample.
func TestB29LimitChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHost()
		m := w.monitor(t, nil)
		var mu sync.Mutex
		var told []int64
		stop := m.Watch(func(_ Severity, c Ceiling) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, c.Bytes/mib)
		})
		after(1)
		for _, mibs := range []int64{512, 256, 1024, 1024} {
			w.app("memory.max", fmt.Sprintln(mibs<<20))
			after(1)
			if c := m.Ceiling(); c.Bytes != mibs<<20 || c.Source != SourceCgroup {
				t.Errorf("%d MiB: %+v", mibs, c)
			}
		}
		w.runtime(func(g *goStats) { g.memoryLimit = 100 * mib }) // debug.SetMemoryLimit
		after(1)
		if c := m.Ceiling(); c.Bytes != 100*mib || c.Source != SourceGOMEMLIMIT {
			t.Errorf("%+v", c)
		}
		stop()
		if want := []int64{1024, 512, 256, 1024, 100}; !slices.Equal(told, want) {
			t.Errorf("told %v, want %v", told, want)
		}
		// The same memory under a smaller limit is another ratio.
		w.runtime(func(g *goStats) { g.memoryLimit = math.MaxInt64 })
		w.app("memory.max", fmt.Sprintln(101<<20))
		after(2)
		wantSeverity(t, m, Critical)
	})
}

// B29, and what must not look like a resize: a limit that cannot be read for a while. When all file
// descriptors are in use the ceiling must not jump to the machine's memory.
func TestB29UnreadableForAWhile(t *testing.T) {
	for _, file := range []string{"sys/fs/cgroup/app/memory.max", "proc/self/cgroup"} {
		synctest.Test(t, func(t *testing.T) {
			w := newHost()
			m := w.monitor(t, nil)
			before := m.Ceiling()
			w.deny(file, syscall.EMFILE)
			for range 100 {
				after(1)
				if c := m.Ceiling(); c.Bytes != before.Bytes || c.Source != before.Source || !strings.Contains(c.Reason, "/"+file) {
					t.Fatalf("%s is unreadable, and the ceiling is %+v", file, c)
				}
			}
			wantUnknown(t, signalOf(t, m.Snapshot(), workingSet), "/"+file)
			w.write(file, map[string]string{"sys/fs/cgroup/app/memory.max": "2147483648\n", "proc/self/cgroup": "0::/app\n"}[file])
			after(1)
			if c := m.Ceiling(); c.Reason != "" || c.Bytes < before.Bytes {
				t.Errorf("readable again: %+v", c)
			}
		})
	}
}

// B30: a machine without any of the files: it starts, nothing is shed, the signals say why.
// TestFixtures has more of them.
func TestB30NothingThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHost()
		c := DefaultConfig()
		c.Root = fstest.MapFS{}
		w.runtime(func(g *goStats) { g.ok = false })
		m, err := open(c, w.outside())
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		after(100)
		wantSeverity(t, m, Normal)
		for id := range signals {
			wantUnknown(t, signalOf(t, m.Snapshot(), id), "")
		}
		if s := m.Snapshot(); s.CeilingSource != "unknown" || s.CeilingBytes != 0 || s.CeilingNote == "" {
			t.Errorf("%+v", s)
		}
	})
}

// Where the process is is looked for when it was moved, and now and then, not each time: the
// table of mounts can be long.
func TestPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHost()
		m := w.monitor(t, nil)
		after(maxAge)
		if n := w.opens(mountsFile); n != 1 {
			t.Errorf("the table of mounts was read %d times", n)
		}
		w.write("cg/app/memory.max", "268435456\n")
		w.write(mountsFile, "34 24 0:29 / /cg rw - cgroup2 cgroup2 rw\n")
		after(maxAge + 1)
		if c := m.Ceiling(); c.Bytes != 256*mib {
			t.Errorf("the mount was moved, and the ceiling is %+v", c)
		}
		if n := w.opens(mountsFile); n > 3 {
			t.Errorf("the table of mounts was read %d times", n)
		}
	})
	t.Run("moved to where there is stall information", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newHost()
			w.remove("sys/fs/cgroup/app/memory.pressure")
			w.write("sys/fs/cgroup/other/memory.pressure", "some avg10=7.00\n")
			m := w.monitor(t, nil)
			after(1)
			wantUnknown(t, signalOf(t, m.Snapshot(), psiSome), "file does not exist")
			w.write(membershipFile, "0::/other\n")
			after(1)
			wantValue(t, signalOf(t, m.Snapshot(), psiSome), 7)
		})
	})
}
