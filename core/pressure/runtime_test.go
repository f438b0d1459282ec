package pressure

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// The tests of this file run the test binary again, as a process whose runtime has limits of
// its own, and look at what its monitor says.

const childEnv = "PRESSURE_TEST_CHILD"

func TestMain(m *testing.M) {
	if name := os.Getenv(childEnv); name != "" {
		children[name]()
		return
	}
	os.Exit(m.Run())
}

var children = map[string]func(){"healthy": healthyChild, "full": fullChild, "spiral": spiralChild, "held": heldChild}

// result is what a child tells.
type result struct {
	Step       string
	Severities map[string]int // calls of the watcher
	Cycles     uint32         // collections
	MaxRaw     float64        // the highest share of the limit that was held
	Snapshot   Snapshot
}

// child runs a child and returns what it tells, step by step.
func child(t *testing.T, name string, env ...string) map[string]result {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe)
	cmd.Env = append(os.Environ(), append(env, childEnv+"="+name)...)
	out, err := cmd.Output()
	steps := map[string]result{}
	for line := range strings.Lines(string(out)) {
		var r result
		if json.Unmarshal([]byte(line), &r) == nil && r.Step != "" {
			steps[r.Step] = r
		}
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
	return steps
}

func tell(r result) {
	if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
		panic(err)
	}
}

// until waits for a condition; a child that waits too long ends with what it knows.
func until(step string, m *Monitor, done func() bool) {
	pause := time.NewTicker(time.Millisecond)
	defer pause.Stop()
	deadline := time.Now().Add(2 * time.Minute)
	for ; !done(); <-pause.C {
		if time.Now().After(deadline) {
			tell(result{Step: "stuck at " + step, Snapshot: m.Snapshot()})
			panic("stuck at " + step)
		}
	}
}

// container is a cgroup of so many bytes that holds what this process holds from the system.
type container struct{ fs.FS }

func newContainer(limit int64) container {
	return container{FS: files{
		"proc/meminfo":               "MemTotal: 25165824 kB\n",
		"proc/self/cgroup":           "0::/a\n",
		"proc/self/mountinfo":        "34 24 0:29 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
		"sys/fs/cgroup/a/memory.max": fmt.Sprintln(limit),
	}.fs()}
}

func (c container) Open(name string) (fs.File, error) {
	switch name {
	case "sys/fs/cgroup/a/memory.current":
		return files{name: fmt.Sprintln(new(reader).read().held)}.fs().Open(name)
	case "sys/fs/cgroup/a/memory.stat":
		return files{name: "inactive_file 0\nactive_file 0\nslab_reclaimable 0\n"}.fs().Open(name)
	}
	return c.FS.Open(name)
}

const childLimit = int64(256 << 20)

// grow makes so many bytes that stay live.
func grow(bytes int64) [][]byte {
	var held [][]byte
	for n := int64(0); n < bytes; n += 1 << 20 {
		held = append(held, touched(1<<20))
	}
	return held
}

// node is live memory that a collection has to walk through.
type node struct {
	next *node
	_    [48]byte
}

// chains makes so many MiB of nodes that stay live.
func chains(mibs int) []*node {
	held := make([]*node, mibs)
	for i := range held {
		for range 1 << 20 / 64 { // the size class of a node
			held[i] = &node{next: held[i]}
		}
	}
	return held
}

func touched(n int) []byte {
	b := make([]byte, n)
	for i := 0; i < n; i += 4096 {
		b[i] = 1
	}
	return b
}

var sink atomic.Pointer[[]byte]

// litter makes a body and drops the one before.
func litter() {
	b := touched(1 << 20)
	sink.Store(&b)
}

func cycles() uint32 {
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.NumGC
}

func childMonitor(change func(*Config)) *Monitor {
	c := DefaultConfig()
	c.Period, c.CollectInterval = 20*time.Millisecond, time.Second
	change(&c)
	m, err := New(c)
	if err != nil {
		panic(err)
	}
	return m
}

// healthyChild has 24 % of its limit live and makes garbage, for at least 200 samples and
// 5 collections.
func healthyChild() {
	held := grow(childLimit * 24 / 100)
	r := result{Step: "healthy", Severities: map[string]int{}}
	m := childMonitor(func(c *Config) {
		c.Root = newContainer(childLimit)
		c.GCShare.Off = true // this one litters as fast as it can
	})
	var told atomic.Pointer[map[string]int]
	told.Store(&r.Severities)
	m.Watch(func(s Severity, _ Ceiling) { (*told.Load())[s.String()]++ })
	start := cycles()
	until("healthy", m, func() bool {
		for range 20 {
			litter()
		}
		for _, s := range m.Snapshot().Signals {
			if s.Name == "working_set" && s.LimitBytes > 0 {
				r.MaxRaw = max(r.MaxRaw, float64(s.Parts["current"])/float64(s.LimitBytes))
			}
		}
		return m.Snapshot().Samples > 200 && cycles() >= start+5
	})
	m.Close()
	r.Cycles, r.Snapshot = cycles()-start, m.Snapshot()
	tell(r)
	runtime.KeepAlive(held)
}

// fullChild has 97 % of its limit live.
func fullChild() {
	m := childMonitor(func(c *Config) {
		c.Root = newContainer(childLimit)
		c.GCShare.Off = true
	})
	held := grow(childLimit * 97 / 100)
	until("full", m, func() bool { return m.Severity() == Critical })
	tell(result{Step: "full", Snapshot: m.Snapshot()})
	runtime.KeepAlive(held)
}

// Go's own garbage is no pressure, with a real runtime that collects only when it comes
// near GOMEMLIMIT.
func TestRealGarbage(t *testing.T) {
	for _, share := range []int{90, 100} {
		t.Run(fmt.Sprintf("GOMEMLIMIT at %d %% of the limit", share), func(t *testing.T) {
			env := []string{"GOGC=off", fmt.Sprintf("GOMEMLIMIT=%d", childLimit*int64(share)/100)}
			r, ok := child(t, "healthy", env...)["healthy"]
			if !ok {
				t.Fatal("no result")
			}
			if len(r.Severities) != 1 || r.Severities["normal"] != 1 {
				t.Errorf("a healthy process was %v\n%s", r.Severities, describe(r.Snapshot))
			}
			// The test is one only if the memory did fill up with garbage.
			if r.MaxRaw < 0.85*float64(share)/100 || r.Cycles < 5 {
				t.Errorf("at most %v of the limit was held, with %d collections", r.MaxRaw, r.Cycles)
			}
			full := child(t, "full", env...)["full"]
			if full.Snapshot.Severity != Critical {
				t.Errorf("a full process: %s", describe(full.Snapshot))
			}
		})
	}
}

// spiralChild holds 60 MiB of a GOMEMLIMIT of 64 MiB under load, then frees 30 MiB, and
// stops the load.
func spiralChild() {
	m := childMonitor(func(c *Config) {
		c.Root = newContainer(1 << 30)
		c.LiveHeap.Off = true // so that it is the collector's share that tells
		c.Period = 200 * time.Millisecond
	})
	held := chains(60)
	var stop atomic.Bool
	ended := make(chan struct{})
	for range 4 {
		go func() {
			for !stop.Load() {
				litter()
			}
			ended <- struct{}{}
		}()
	}
	until("spiral", m, func() bool { return m.Severity() == Critical })
	tell(result{Step: "spiral", Snapshot: m.Snapshot()})

	stop.Store(true)
	for range 4 {
		<-ended
	}
	clear(held[:30])
	until("recovered", m, func() bool { return m.Severity() == Normal })
	tell(result{Step: "recovered", Snapshot: m.Snapshot()})
	m.Close()
	runtime.KeepAlive(held)
}

// heldChild holds 60 MiB of a GOMEMLIMIT of 64 MiB, then frees 30 MiB. There is no load, so
// no collection but those that the monitor forces.
func heldChild() {
	m := childMonitor(func(c *Config) {
		c.Root = newContainer(1 << 30)
		c.GCShare.Off = true
	})
	held := grow(60 << 20)
	runtime.GC()
	until("held", m, func() bool { return m.Severity() == Critical })
	tell(result{Step: "held", Snapshot: m.Snapshot()})
	// The next collection must not be one that has begun already.
	before := m.Snapshot().Collections
	until("first collection", m, func() bool { s := m.Snapshot(); return s.Collections > before && !s.Collecting })
	held = append([][]byte(nil), held[:30]...)
	until("recovered", m, func() bool { return m.Severity() == Normal })
	tell(result{Step: "recovered", Snapshot: m.Snapshot()})
	m.Close()
	runtime.KeepAlive(held)
}

// B28: near GOMEMLIMIT the runtime collects without end, which the live heap alone need not
// show. What is freed is noticed, with no traffic.
func TestB28Spiral(t *testing.T) {
	env := []string{"GOGC=100", "GOMEMLIMIT=64MiB"}
	t.Run("under load", func(t *testing.T) {
		steps := child(t, "spiral", env...)
		s := steps["spiral"].Snapshot
		if s.Severity != Critical || s.Signal != "gc_share" {
			t.Errorf("in the spiral: %s", describe(s))
		}
		if s := steps["recovered"].Snapshot; s.Severity != Normal || s.Samples == 0 {
			t.Errorf("after it: %s", describe(s))
		}
	})
	t.Run("without load", func(t *testing.T) {
		steps := child(t, "held", env...)
		s := steps["held"].Snapshot
		if s.Severity != Critical || s.Signal != "live_heap" {
			t.Errorf("with 60 MiB held: %s", describe(s))
		}
		if s := steps["recovered"].Snapshot; s.Severity != Normal || s.Samples == 0 || s.Collections == 0 {
			t.Errorf("after 30 MiB were freed: %s", describe(s))
		}
	})
}
