package pressure

import (
	"fmt"
	"math"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// B29: what the ceiling does while a limit cannot be read does not become the measure of what
// it may do: it falls with GOMEMLIMIT, and does not rise beyond the cgroup's last limit when
// that goes.
func TestB29FallsAndRisesUnread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHost()
		m := w.monitor(t, nil)
		goLimit := func(bytes int64) {
			w.runtime(func(g *goStats) { g.memoryLimit = bytes })
			after(1)
		}
		w.deny("sys/fs/cgroup/app/memory.max", syscall.EMFILE)
		goLimit(100 * mib)
		if c := m.Ceiling(); c.Bytes != 100*mib || c.Source != SourceGOMEMLIMIT {
			t.Errorf("GOMEMLIMIT counts, whatever else is unreadable: %+v", c)
		}
		for range 10 {
			goLimit(math.MaxInt64)
			if c := m.Ceiling(); c.Bytes > gib {
				t.Fatalf("the cgroup's limit of 1 GiB cannot be read, and the ceiling is %+v", c)
			}
		}
		w.app("memory.max", "2147483648\n")
		after(1)
		if c := m.Ceiling(); c.Bytes != 2*gib || c.Reason != "" {
			t.Errorf("readable again: %+v", c)
		}
	})
}

// B29: with no file descriptor left nothing can be read, and the ceiling stays. Where nothing is
// missing that was there before, it is unknown when the last bound goes.
func TestB29NothingCanBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHost()
		m := w.monitor(t, nil)
		for name := range w.files {
			w.deny(name, syscall.EMFILE)
		}
		for range 10 {
			after(1)
			if c := m.Ceiling(); c.Bytes != gib || c.Source != SourceCgroup || c.Reason == "" {
				t.Fatalf("nothing can be read, and the ceiling is %+v", c)
			}
			wantSeverity(t, m, Normal)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		w := newHost()
		w.files = files{}
		w.runtime(func(g *goStats) { g.memoryLimit = gib })
		m := w.monitor(t, nil)
		after(1)
		w.runtime(func(g *goStats) { g.memoryLimit = math.MaxInt64 })
		after(1)
		if c := m.Ceiling(); c.Bytes != 0 || !strings.Contains(c.Reason, "no memory limit is known") {
			t.Errorf("GOMEMLIMIT was the only bound and is gone: %+v", c)
		}
	})
}

// B29: a read that has less to tell than the one before is no worse: the ceiling rises with it.
func TestB29RisesOnABetterRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHost()
		w.write("sys/fs/cgroup/memory.max", "garbage\n") // all the time
		w.write("proc/meminfo", "garbage\n")
		m := w.monitor(t, nil)
		if c := m.Ceiling(); c.Bytes != gib || c.Reason == "" {
			t.Fatalf("%+v", c)
		}
		w.write("proc/meminfo", machine["proc/meminfo"])
		w.app("memory.max", "2147483648\n")
		for range 3 {
			after(1)
			if c := m.Ceiling(); c.Bytes != 2*gib {
				t.Errorf("%+v, want the new limit of 2 GiB", c)
			}
		}
	})
	// Of many troubles only some are told in words, and one more is one more.
	synctest.Test(t, func(t *testing.T) {
		w := newHost()
		own := ""
		for i := range maxNotes + 3 {
			own += fmt.Sprintf("/n%d", i)
			w.write("sys/fs/cgroup"+own+"/memory.max", "garbage\n")
		}
		w.write("sys/fs/cgroup/n0/memory.max", "1073741824\n")
		w.write("proc/self/cgroup", "0::"+own+"\n")
		m := w.monitor(t, nil)
		w.deny("sys/fs/cgroup/n0/memory.max", syscall.EMFILE)
		after(3)
		if c := m.Ceiling(); c.Bytes != gib {
			t.Errorf("%+v, want the last known limit of 1 GiB", c)
		}
	})
}

// A Period that changes all the time does not put off the next sample.
func TestPeriodChangesDoNotStarve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHost()
		config := DefaultConfig()
		m := w.monitor(t, func(c *Config) { config = *c })
		w.full(1000)
		for i := range 100 {
			time.Sleep(100 * time.Millisecond)
			config.Period = time.Second + time.Duration(i%2)*time.Millisecond
			if err := m.Reconfigure(config); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		wantSeverity(t, m, Critical)
		if n := m.Snapshot().Samples; n < 9 || n > 12 {
			t.Errorf("%d samples in 10 s", n)
		}
		// A shorter one counts from the last sample.
		config.Period, config.CollectInterval = time.Minute, time.Minute
		if err := m.Reconfigure(config); err != nil {
			t.Fatal(err)
		}
		after(30)
		before := m.Snapshot().Samples
		config.Period = time.Second
		if err := m.Reconfigure(config); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := m.Snapshot().Samples; n != before+1 {
			t.Errorf("%d samples more, 30 s after the last one, want one at once", n-before)
		}
	})
}

// Processors that come and go (GOMAXPROCS follows a container's limit) do not make a calm
// collector look busy.
func TestGCShareOfChangingProcessors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHost()
		m := w.monitor(t, func(c *Config) { c.LiveHeap.Off = true })
		w.runtime(func(g *goStats) { g.live, g.procs = 7*gib/10, 16 })
		second := func(procs int64) {
			w.runtime(func(g *goStats) {
				g.gcSeconds += 0.2 * float64(g.procs)
				g.procs = procs
			})
			after(1)
		}
		for _, procs := range []int64{16, 16, 16, 16, 1, 1, 1, 1, 1, 16, 16, 16, 2, 16, 2, 16, 2, 2, 2, 2} {
			second(procs)
			wantSeverity(t, m, Normal)
			if s := signalOf(t, m.Snapshot(), gcShare); s.Value != nil && *s.Value > 0.2+1e-9 {
				t.Errorf("with %d processors: %v of the time, want at most 0.2", procs, *s.Value)
			}
		}
		wantValue(t, signalOf(t, m.Snapshot(), gcShare), 0.2)
	})
}

// A counter that has not moved may read a little less, as the difference of two large ones:
// that is no new runtime, whose share would be unknown.
func TestGCWindowRounding(t *testing.T) {
	var w gcWindow
	now := time.Unix(1000, 0)
	for i, seconds := range []float64{5, 6, math.Nextafter(6, 0), math.Nextafter(6, 0), 6} {
		now = now.Add(time.Second)
		share, ok := w.add(now, seconds, 2)
		if want := []float64{0, 1.0 / 2, 1.0 / 4, 1.0 / 6, 0}[i]; ok != (i > 0) || share < 0 || math.Abs(share-want) > 1e-9 {
			t.Errorf("sample %d: %v, %v; want %v", i, share, ok, want)
		}
	}
}

// A limit that cannot be read for a while does not hide what its counter tells meanwhile.
func TestOOMWhileTheLimitIsUnread(t *testing.T) {
	const pod = "sys/fs/cgroup/kubepods.slice/kubepods-burstable.slice/pod123.slice/"
	for _, bad := range []string{"EMFILE", "0\n", "garbage\n"} {
		synctest.Test(t, func(t *testing.T) {
			w := fixture(t, "v2-nested")
			set := func(n int) { w.write(pod+"memory.events.local", fmt.Sprintf("oom %d\noom_kill 0\n", n)) }
			set(3)
			limit := w.files[pod+"memory.max"]
			m := w.monitor(t, nil)
			after(1)
			if w.write(pod+"memory.max", bad); bad == "EMFILE" {
				w.deny(pod+"memory.max", syscall.EMFILE)
			}
			after(1)
			set(4)
			w.write(pod+"memory.max", limit)
			after(1)
			wantSeverity(t, m, Critical)
			if s := m.Snapshot(); s.Signal != "oom" {
				t.Errorf("%q: %s", bad, describe(s))
			}
		})
	}
	// Where the kernel has only the counters of all that is below, they count for a limit alone.
	synctest.Test(t, func(t *testing.T) {
		w := fixture(t, "v2-nested")
		w.remove(pod + "memory.events.local")
		w.write(pod+"memory.max", "garbage\n")
		m := w.monitor(t, nil)
		after(1)
		w.write(pod+"memory.events", "oom 50\noom_kill 40\n")
		after(1)
		wantSeverity(t, m, Normal)
	})
}

// B7, B8: what is there and cannot be used is worth one warning, also where another level of
// the cgroup still counts; what a system does not have is none.
func TestB7Warns(t *testing.T) {
	const app = "sys/fs/cgroup/app/"
	for name, c := range map[string]struct {
		prepare func(w *host)
		want    string
	}{
		"garbage": {
			func(w *host) { w.app("memory.max", "garbage\n") },
			`level=WARN msg="memory pressure signal is not available" signal=working_set reason="/` + app + `memory.max: \"garbage\" is no limit, passed over"`,
		},
		"zero": {
			func(w *host) { w.app("memory.max", "0\n") },
			`level=WARN msg="memory pressure signal is not available" signal=working_set reason="/` + app + `memory.max: 0 or less is no usable limit, passed over"`,
		},
		"zero below a limit": {
			func(w *host) {
				w.app("memory.max", "0\n")
				w.write("sys/fs/cgroup/memory.max", "1073741824\n")
				w.write("sys/fs/cgroup/memory.current", "1048576\n")
			},
			`level=WARN msg="memory pressure signal is not complete" signal=working_set reason="/` + app + `memory.max: 0 or less is no usable limit, passed over"`,
		},
		"no counters": {
			func(w *host) { w.remove(app + "memory.events") },
			`level=INFO msg="memory pressure signal is not available" signal=oom reason="/` + app + `memory.events: file does not exist"`,
		},
		"all is well": {func(*host) {}, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newHost()
			c.prepare(w)
			var log logBuffer
			m := w.monitor(t, func(c *Config) { c.Logger = log.logger() })
			after(100)
			if got := strings.Join(log.lines(), "\n"); got != c.want {
				t.Errorf("%s: logged\n%s\nwant\n%s", name, got, c.want)
			}
			wantSeverity(t, m, Normal)
		})
	}
}
