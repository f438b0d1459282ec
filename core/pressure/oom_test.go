package pressure

import (
	"fmt"
	"syscall"
	"testing"
	"testing/synctest"
)

// B25, for the counters of the OOM killer: the first value is a baseline, a smaller one a new
// baseline.
func TestB25OOMCounters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHost()
		w.app("memory.events", "low 0\nhigh 0\nmax 9\noom 5\noom_kill 5\noom_group_kill 0\n")
		m := w.monitor(t, nil)
		set := func(oom, killed int) {
			w.app("memory.events", fmt.Sprintf("oom %d\noom_kill %d\n", oom, killed))
			after(1)
		}
		after(3)
		wantSeverity(t, m, Normal)
		set(0, 0)
		wantSeverity(t, m, Normal)
		set(1, 0)
		wantSeverity(t, m, Critical)
		if s := m.Snapshot(); s.Signal != "oom" || *signalOf(t, s, oom).Value != 1 {
			t.Errorf("%+v", s)
		}
		set(1, 0)
		wantSeverity(t, m, Normal)
		set(2, 1)
		after(8)
		wantSeverity(t, m, Critical)
		after(1)
		wantSeverity(t, m, Critical)
		after(1)
		wantSeverity(t, m, Normal)

		// A file that cannot be read for a while, and has more to tell then.
		w.deny("sys/fs/cgroup/app/memory.events", syscall.EIO)
		after(5)
		wantSeverity(t, m, Normal)
		wantUnknown(t, signalOf(t, m.Snapshot(), oom), "memory.events")
		set(2, 2)
		wantSeverity(t, m, Critical)
	})
}

// The counters of the right level: those of the own cgroup, and of a limit above it those
// that are that limit's own.
func TestOOMLevels(t *testing.T) {
	const pod = "sys/fs/cgroup/kubepods.slice/kubepods-burstable.slice/pod123.slice/"
	for name, c := range map[string]struct {
		file, content string
		want          Severity
	}{
		"a neighbour at its own limit": {pod + "memory.events", "oom 9\noom_kill 9\n", Normal},
		"the pod at its limit":         {pod + "memory.events.local", "oom 1\noom_kill 0\n", Critical},
		"the own cgroup":               {pod + "app.scope/memory.events", "oom 0\noom_kill 1\n", Critical},
		"a level without a limit":      {"sys/fs/cgroup/kubepods.slice/kubepods-burstable.slice/memory.events.local", "oom 9\noom_kill 9\n", Normal},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := fixture(t, "v2-nested")
			w.write(c.file, "oom 0\noom_kill 0\n")
			m := w.monitor(t, nil)
			after(1)
			w.write(c.file, c.content)
			after(1)
			if m.Severity() != c.want {
				t.Errorf("%s: %v, want %v", name, m.Severity(), c.want)
			}
		})
	}
	t.Run("kernels before 5.2", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := fixture(t, "v2-nested")
			w.remove(pod + "memory.events.local")
			m := w.monitor(t, nil)
			w.write(pod+"memory.events", "oom 5\noom_kill 4\n")
			after(1)
			wantSeverity(t, m, Critical)
		})
	})
	t.Run("v1", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := fixture(t, "v1")
			m := w.monitor(t, nil)
			w.write("sys/fs/cgroup/memory/docker/0123456789ab/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n")
			after(1)
			wantSeverity(t, m, Critical)
			after(9)
			wantSeverity(t, m, Critical)
			after(1)
			wantSeverity(t, m, Normal)
		})
	})
	t.Run("another cgroup", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newHost()
			m := w.monitor(t, nil)
			after(1)
			w.write("sys/fs/cgroup/other/memory.events", "oom 70\noom_kill 70\n")
			w.write("sys/fs/cgroup/other/memory.max", "536870912\n")
			w.write("proc/self/cgroup", "0::/other\n")
			after(1)
			wantSeverity(t, m, Normal)
			if c := m.Ceiling(); c.Bytes != 512*mib || c.Path != "/other" {
				t.Errorf("the process was moved, and the ceiling is %+v", c)
			}
		})
	})
}
