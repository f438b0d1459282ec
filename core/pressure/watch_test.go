package pressure

import (
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHost()
		m := w.monitor(t, nil)
		tell := func(into *[]Severity) func(Severity, Ceiling) {
			return func(s Severity, c Ceiling) {
				if c.Bytes != gib || m.Severity() != s || m.Snapshot().Severity != s { // it may call the monitor
					t.Errorf("told %v, %+v; the monitor is %v", s, c, m.Severity())
				}
				*into = append(*into, s)
			}
		}
		var first, second []Severity
		m.Watch(nil)()
		stop := m.Watch(tell(&first))
		synctest.Wait()
		if !slices.Equal(first, []Severity{Normal}) {
			t.Errorf("told %v at once", first)
		}
		w.full(900)
		after(5)
		stopSecond := m.Watch(tell(&second))
		after(5)
		w.full(1000)
		after(5)
		stop()
		stop()
		w.full(100)
		after(5)
		if want := []Severity{Normal, High, Critical}; !slices.Equal(first, want) {
			t.Errorf("told %v, want %v", first, want)
		}
		if want := []Severity{High, Critical, Normal}; !slices.Equal(second, want) {
			t.Errorf("told %v, want %v", second, want)
		}
		stopSecond()
	})
}

// After stop has returned the function does not run any more.
func TestWatchStopWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHost()
		m := w.monitor(t, nil)
		var running atomic.Bool
		stop := m.Watch(func(Severity, Ceiling) {
			running.Store(true)
			time.Sleep(time.Minute)
			running.Store(false)
		})
		synctest.Wait()
		if !running.Load() {
			t.Fatal("not called")
		}
		stop()
		if running.Load() {
			t.Error("it runs after stop")
		}
		// A sample that is late is not made up for, and the next ones are taken.
		samples := m.Snapshot().Samples
		after(10)
		if n := m.Snapshot().Samples - samples; n < 10 || n > 11 {
			t.Errorf("%d samples in 10 s", n)
		}
	})
}

// A watcher that exits its goroutine, as t.FailNow does, ends its watch, and not the
// sampler.
func TestWatchGoexit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHost()
		m := w.monitor(t, nil)
		calls, told := 0, 0
		stop := m.Watch(func(Severity, Ceiling) {
			calls++
			runtime.Goexit()
		})
		m.Watch(func(Severity, Ceiling) { told++ })
		after(1)
		w.full(1000)
		after(2)
		wantSeverity(t, m, Critical)
		stop()
		if calls != 1 || told != 2 {
			t.Errorf("%d calls of the one that exits, want 1; %d of the other one, want 2", calls, told)
		}
	})
}

// Watchers that come every moment cannot keep samples from being taken.
func TestWakingDoesNotStarve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHost()
		config := DefaultConfig()
		m := w.monitor(t, func(c *Config) { config = *c })
		w.full(1000)
		for range 100 {
			time.Sleep(100 * time.Millisecond)
			m.Watch(func(Severity, Ceiling) {})()
			if err := m.Reconfigure(config); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		wantSeverity(t, m, Critical)
		if n := m.Snapshot().Samples; n != 11 {
			t.Errorf("%d samples, want 11", n)
		}
	})
}
