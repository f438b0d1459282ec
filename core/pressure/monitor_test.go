package pressure

import (
	"encoding/json"
	"io/fs"
	"os"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// A bubble ends with a failure when a goroutine is left, so this proves that Close ends
// them all, also a collection that is under way, and that it may be called by several.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHost()
		ended := false
		w.collect = func() {
			time.Sleep(time.Hour)
			ended = true
		}
		c := DefaultConfig()
		c.Root = w
		m, err := open(c, w.outside())
		if err != nil {
			t.Fatal(err)
		}
		w.full(1000)
		after(3)
		wantSeverity(t, m, Critical)
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(m.Close)
		}
		wg.Wait()
		m.Close()
		if !ended {
			t.Error("a collection is left behind")
		}
		if m.Severity() != Normal || !m.Ready() {
			t.Errorf("a closed monitor is %v, ready %v", m.Severity(), m.Ready())
		}
		if s := m.Snapshot(); s.Severity != Normal || s.Collecting || s.CeilingBytes != gib {
			t.Errorf("%+v", s)
		}
		m.Watch(func(Severity, Ceiling) { t.Error("told by a closed monitor") })()
		if err := m.Reconfigure(c); err != nil {
			t.Error(err)
		}
		reads := w.opens("proc/self/cgroup")
		after(10)
		if n := w.opens("proc/self/cgroup"); n != reads {
			t.Error("a closed monitor reads")
		}
	})
}

// Importing the package and refusing a config start nothing and read nothing.
func TestNothingBeforeNew(t *testing.T) {
	before := runtime.NumGoroutine()
	w := newHost()
	c := DefaultConfig()
	c.Root, c.Period = w, 0
	if m, err := open(c, w.outside()); err == nil || m != nil {
		t.Fatalf("%v, %v", m, err)
	}
	if n := runtime.NumGoroutine(); n > before {
		t.Errorf("%d goroutines, before %d", n, before)
	}
	if w.opens("proc/self/cgroup") != 0 {
		t.Error("a refused config has read files")
	}
}

func TestReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHost()
		config := DefaultConfig()
		m := w.monitor(t, func(c *Config) {
			c.NotReadyAfter = 5 * time.Second
			config = *c
		})
		want := func(ready bool) {
			t.Helper()
			if m.Ready() != ready || m.Snapshot().Ready != ready {
				t.Fatalf("ready %v, %v", m.Ready(), describe(m.Snapshot()))
			}
		}
		w.full(900) // high is no reason
		after(20)
		want(true)
		w.full(1000)
		after(2)
		wantSeverity(t, m, Critical)
		after(4)
		want(true)
		time.Sleep(999 * time.Millisecond)
		want(true)
		time.Sleep(time.Millisecond)
		want(false)
		w.full(100)
		after(1)
		want(true)
		w.full(1000)
		after(6) // critical since 4 s
		want(true)
		config.NotReadyAfter = 0
		if err := m.Reconfigure(config); err != nil {
			t.Fatal(err)
		}
		want(false)
	})
}

func TestReconfigure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHost()
		config := DefaultConfig()
		m := w.monitor(t, func(c *Config) { config = *c })
		w.full(900)
		after(2)
		wantSeverity(t, m, High)

		bad := config
		bad.WorkingSet.High = 0.1
		if err := m.Reconfigure(bad); err == nil || !strings.Contains(err.Error(), "WorkingSet.High") {
			t.Fatal(err)
		}
		after(2)
		wantSeverity(t, m, High)

		config.WorkingSet = Thresholds{High: 0.95, Critical: 0.98, Recovered: 0.9}
		if err := m.Reconfigure(config); err != nil {
			t.Fatal(err)
		}
		wantSeverity(t, m, High) // until the next sample
		after(1)
		wantSeverity(t, m, Normal)

		config.Period = 100 * time.Millisecond
		if err := m.Reconfigure(config); err != nil {
			t.Fatal(err)
		}
		samples := m.Snapshot().Samples
		after(1)
		if n := m.Snapshot().Samples - samples; n != 10 {
			t.Errorf("%d samples in a second, want 10", n)
		}
		w.full(1024)
		after(1)
		wantSeverity(t, m, Critical)
		config.WorkingSet.Off = true
		if err := m.Reconfigure(config); err != nil {
			t.Fatal(err)
		}
		after(1)
		wantSeverity(t, m, Normal)
		s := signalOf(t, m.Snapshot(), workingSet)
		wantUnknown(t, s, "off")
		if s.High != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// What is off is not said to be missing.
func TestOffIsNotMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHost()
		w.deny("sys/fs/cgroup/app/memory.pressure", syscall.EACCES)
		w.deny("sys/fs/cgroup/app/memory.max", syscall.EACCES)
		var log logBuffer
		w.monitor(t, func(c *Config) { c.Logger, c.PSI.Off, c.WorkingSet.Off = log.logger(), true, true })
		after(5)
		if lines := log.lines(); len(lines) != 0 {
			t.Errorf("logged %q", lines)
		}
		if n := w.opens("sys/fs/cgroup/app/memory.pressure"); n != 0 {
			t.Errorf("%d reads of what is off", n)
		}
	})
}

// B7, B10: one line for a signal that is missing, whether it comes and goes or stays away.
func TestB10MissingIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHost()
		var log logBuffer
		m := w.monitor(t, func(c *Config) { c.Logger = log.logger() })
		for i := range 50 {
			w.deny("sys/fs/cgroup/app/memory.current", []error{syscall.EIO, syscall.EACCES}[i%2])
			after(2)
			w.full(100)
			after(2)
		}
		const want = `level=WARN msg="memory pressure signal is not available" signal=working_set ` +
			`reason="/sys/fs/cgroup/app/memory.current: input/output error"`
		if lines := log.lines(); len(lines) != 1 || lines[0] != want {
			t.Errorf("logged %q, want %q", lines, want)
		}
		wantSeverity(t, m, Normal)
	})
}

// A signal that turned the severity critical and is not known any more does not keep it
// there: shedding for ever on nothing is worse.
func TestUnknownDoesNotKeepUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHost()
		var log logBuffer
		m := w.monitor(t, func(c *Config) { c.Logger = log.logger() })
		w.full(1000)
		after(2)
		wantSeverity(t, m, Critical)
		log.lines()
		w.deny("sys/fs/cgroup/app/memory.current", syscall.EIO)
		after(1)
		wantSeverity(t, m, Normal)
		if lines := log.lines(); len(lines) != 2 || !strings.Contains(strings.Join(lines, ""), "unknown=") {
			t.Errorf("logged %q", lines)
		}
	})
}

// The names of the snapshot's fields are a promise to dashboards.
func TestSnapshotJSON(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHost()
		m := w.monitor(t, nil)
		w.full(1000)
		after(4)
		raw, err := json.Marshal(m.Snapshot())
		if err != nil {
			t.Fatal(err)
		}
		const head = `{"severity":"critical","signal":"working_set","since_s":2,"ready":true,"ceiling_bytes":1073741824,` +
			`"ceiling_source":"cgroup","ceiling_path":"/app","signals":[{"name":"live_heap","state":"normal","value":0.009765625,` +
			`"used_bytes":10485760,"limit_bytes":1073741824,"scope":"process","high":0.85,"critical":0.92,"recovered":0.75},` +
			`{"name":"working_set","state":"critical","value":0.9765625,"used_bytes":1048576000,"limit_bytes":1073741824,` +
			`"parts":{"current":1048576000},"scope":"cgroup","path":"/app","high":0.85,"critical":0.92,"recovered":0.75},` +
			`{"name":"memory_high","state":"unknown","value":null,"reason":"no memory.high is set on the cgroup or above it",`
		const tail = `],"samples_total":5,"sample_age_s":0,"forced_collections_total":1,"forced_collection_running":false,` +
			`"forced_collection_freed":0}`
		if s := string(raw); !strings.HasPrefix(s, head) || !strings.HasSuffix(s, tail) {
			t.Errorf("got\n%s\nwant\n%s ... %s", s, head, tail)
		}
		for _, name := range regexp.MustCompile(`"([^"]+)":`).FindAllStringSubmatch(string(raw), -1) {
			if !regexp.MustCompile(`^[a-z]+(_[a-z]+)*$`).MatchString(name[1]) {
				t.Errorf("%q is not in snake_case", name[1])
			}
		}
		var back Snapshot
		if err := json.Unmarshal(raw, &back); err != nil || back.Severity != Critical {
			t.Errorf("%+v, %v", back.Severity, err)
		}
	})
}

// Everything at once, for the race detector.
func TestConcurrentUse(t *testing.T) {
	w := newHost()
	c := DefaultConfig()
	c.Root, c.Period, c.CollectInterval = w, 10*time.Millisecond, 10*time.Millisecond
	m, err := open(c, w.outside())
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for k := range 200 {
				w.full(int64(100 + 900*(k/50%2)))
				_, _, _ = m.Severity(), m.Ceiling(), m.Ready()
				stop := m.Watch(func(Severity, Ceiling) { m.Snapshot() })
				if err := m.Reconfigure(c); err != nil {
					t.Error(err)
				}
				_ = m.Snapshot().Severity.String()
				runtime.Gosched()
				stop()
				if i == 0 && k == 150 {
					m.Close()
				}
			}
		})
	}
	wg.Wait()
	m.Close()
}

// This machine, whatever it is: values or reasons, and nothing is shed.
func TestThisMachine(t *testing.T) {
	c := DefaultConfig()
	c.Period = 10 * time.Millisecond
	c.PSI.Off, c.GCShare.Off = true, true // neighbours and other tests may well be busy
	m, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	runtime.GC()
	waitFor(t, func() bool { return m.Snapshot().Samples > 20 })
	s := m.Snapshot()
	t.Log(describe(s))
	for _, x := range s.Signals {
		if (x.Value == nil) != (x.State == "unknown") || x.Value == nil && x.Reason == "" {
			t.Errorf("neither a value nor a reason: %+v", x)
		}
	}
	// Reading may fail in any way here, but for the runtime's own numbers.
	if x := signalOf(t, s, liveHeap); s.CeilingBytes > 0 && (x.Value == nil || *x.Value <= 0) {
		t.Errorf("%+v", x)
	}
	if runtime.GOOS == "linux" {
		if _, err := fs.Stat(os.DirFS("/"), "proc/meminfo"); err == nil && s.CeilingBytes == 0 {
			t.Errorf("no ceiling: %+v", s)
		}
	}
}

// waitFor waits for a condition that comes about in real time.
func waitFor(t *testing.T, done func() bool) {
	t.Helper()
	pause := time.NewTicker(time.Millisecond)
	defer pause.Stop()
	deadline := time.Now().Add(2 * time.Minute)
	for ; !done(); <-pause.C {
		if time.Now().After(deadline) {
			t.Fatal("still waiting")
		}
	}
}
