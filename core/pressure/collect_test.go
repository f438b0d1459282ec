package pressure

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// B21: nothing but the clock is needed to recover: nobody calls the monitor here.
func TestB21RecoversByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHost()
		m := w.monitor(t, nil)
		w.full(1000)
		after(2)
		wantSeverity(t, m, Critical)
		w.full(100)
		after(1)
		wantSeverity(t, m, Normal)
	})
}

// B27: collections are forced rarely, more rarely when they are of no use, and nobody waits
// for them.
func TestB27ForcedCollections(t *testing.T) {
	t.Run("60 s, period 100 ms", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newHost()
			m := w.monitor(t, func(c *Config) { c.Period = 100 * time.Millisecond })
			w.full(1000)
			time.Sleep(60 * time.Second)
			synctest.Wait()
			wantSeverity(t, m, Critical)
			if n := w.collections(); n != 1 {
				t.Errorf("%d collections, want one at once, and the next one 60 s later: it has freed nothing", n)
			}
		})
	})
	t.Run("doubles while it frees less than 5 %", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newHost()
			var mu sync.Mutex // over all of these
			start := time.Now()
			var at []int
			freed := int64(0)
			// collected returns when collections were forced, in seconds, and begins anew.
			collected := func(next int64) (when []int) {
				mu.Lock()
				defer mu.Unlock()
				when, at, start, freed = at, nil, time.Now(), next
				return when
			}
			w.collect = func() {
				mu.Lock()
				defer mu.Unlock()
				at = append(at, int(time.Since(start).Seconds()))
				w.runtime(func(g *goStats) { g.held -= freed })
			}
			w.runtime(func(g *goStats) { g.held = 1000 })
			m := w.monitor(t, nil)
			w.full(1000)
			after(2000)
			// 480 s and no more: a heap that shrinks with no traffic must be found.
			const enough = 51 // of 1000
			if got, want := collected(enough), []int{2, 62, 182, 422, 902, 1382, 1862}; !slices.Equal(got, want) {
				t.Errorf("collections at %v, want %v", got, want)
			}
			after(600)
			if got := collected(0); len(got) < 3 || got[1]-got[0] != 30 || got[2]-got[1] != 30 {
				t.Errorf("useful collections at %v, want every 30 s", got)
			}
			if s := m.Snapshot(); s.Collections < 10 || s.CollectionFreed < 0.05 {
				t.Errorf("%+v", s)
			}
			w.full(100)
			after(600)
			if got := collected(0); len(got) != 0 {
				t.Errorf("collections at %v while normal", got)
			}
		})
	})
	t.Run("shedding does not wait for it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newHost()
			let := make(chan struct{})
			var started, told atomic.Uint32
			var m *Monitor
			w.collect = func() {
				started.Store(uint32(m.Severity()))
				<-let
			}
			m = w.monitor(t, nil)
			m.Watch(func(s Severity, _ Ceiling) { told.Store(uint32(s)) })
			w.full(1000)
			after(2)
			wantSeverity(t, m, Critical)
			if s, w := Severity(started.Load()), Severity(told.Load()); s != Critical || w != Critical {
				t.Errorf("when it started the severity was %v, and watchers knew of %v", s, w)
			}
			// The clock goes on, and there is no second one.
			samples := m.Snapshot().Samples
			after(300)
			if s := m.Snapshot(); s.Samples != samples+300 || s.Collections != 1 || !s.Collecting {
				t.Errorf("%+v, want %d samples", s, samples+300)
			}
			w.full(100)
			after(1)
			wantSeverity(t, m, Normal)
			close(let)
			synctest.Wait()
			if s := m.Snapshot(); s.Collecting {
				t.Errorf("%+v", s)
			}
		})
	})
	t.Run("off", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newHost()
			w.monitor(t, func(c *Config) { c.Collect = false })
			w.full(1000)
			after(100)
			if n := w.collections(); n != 0 {
				t.Errorf("%d collections", n)
			}
		})
	})
}

// B28 with numbers that are made up: the collector takes more than 40 % of the time for 3 s while the
// live heap is near the limit. See TestB28Spiral for a real one.
func TestB28Share(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHost()
		m := w.monitor(t, func(c *Config) { c.LiveHeap.Off = true })
		second := func(share, live float64) {
			w.runtime(func(g *goStats) {
				g.gcSeconds += share * float64(g.procs)
				g.live = int64(live * float64(gib))
			})
			after(1)
		}
		for range 10 {
			second(0.9, 0.59) // much garbage in a small heap
		}
		wantSeverity(t, m, Normal)
		if s := signalOf(t, m.Snapshot(), gcShare); s.State != "normal" || s.Reason == "" || math.Abs(*s.Value-0.9) > 1e-6 {
			t.Errorf("%+v", s)
		}
		for range 10 {
			second(0, 0.61)
		}
		wantSeverity(t, m, Normal)
		for range 4 {
			second(0.45, 0.61)
		}
		wantSeverity(t, m, Critical)
		if s := m.Snapshot(); s.Signal != "gc_share" {
			t.Errorf("by %q", s.Signal)
		}
		second(0.05, 0.3) // freed: it does not count any more
		wantSeverity(t, m, Normal)
	})
	t.Run("one long collection is no spiral", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newHost()
			m := w.monitor(t, func(c *Config) { c.LiveHeap.Off = true })
			w.runtime(func(g *goStats) { g.live = 7 * gib / 10 })
			for range 20 {
				w.runtime(func(g *goStats) { g.gcSeconds += 0.7 * float64(g.procs) })
				after(1)
				wantSeverity(t, m, Normal)
				after(9)
				wantSeverity(t, m, Normal)
			}
		})
	})
	t.Run("long collections one after the other are one", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newHost()
			m := w.monitor(t, func(c *Config) { c.LiveHeap.Off = true })
			w.runtime(func(g *goStats) { g.live = 7 * gib / 10 })
			for range 5 { // the runtime counts at their ends only
				after(1)
				w.runtime(func(g *goStats) { g.gcSeconds += 1.8 * float64(g.procs) })
				after(1)
			}
			wantSeverity(t, m, Critical)
		})
	})
}

// B30: the signal falls when the load does. The live heap is known after a collection
// only, so one is forced, with no traffic at all.
func TestB30LiveHeapFalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHost()
		var live atomic.Int64
		live.Store(1000 << 20)
		w.collect = func() { w.runtime(func(g *goStats) { g.live = live.Load() }) }
		m := w.monitor(t, nil)
		w.runtime(func(g *goStats) { g.live = live.Load() })
		after(2)
		wantSeverity(t, m, Critical)
		live.Store(100 << 20) // freed, and nobody allocates
		after(62)
		wantSeverity(t, m, Normal)
	})
}

// A share of the CPU time from counters that move at the end of collections only.
func TestGCWindow(t *testing.T) {
	var w gcWindow
	now := time.Unix(1000, 0)
	for i, c := range []struct {
		wait    time.Duration
		seconds float64
		want    float64
		ok      bool
	}{
		{0, 5, 0, false},
		{0, 5, 0, false}, // no time has passed
		{time.Second, 6, 1.0 / 4, true},
		{time.Second, 6, 1.0 / 8, true},
		{time.Second, 8, 3.0 / 12, true},
		{time.Second, 8, 2.0 / 12, true}, // the first second has left the window
		{time.Second, 1000, 1, true},     // never more than all
		{time.Second, 3, 0, false},       // another runtime
		{2 * time.Second, 7, 4.0 / 8, true},
	} {
		now = now.Add(c.wait)
		if got, ok := w.add(now, c.seconds, 4); math.Abs(got-c.want) > 1e-9 || ok != c.ok {
			t.Errorf("sample %d: %v, %v; want %v, %v", i, got, ok, c.want, c.ok)
		}
	}
	if _, ok := w.add(now.Add(time.Second), 8, 0); ok {
		t.Error("a share of no processors")
	}
}

// pacer checks pace against a plain list of when collections were started.
func TestPaceModel(t *testing.T) {
	c := DefaultConfig()
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 9))
		var p pace
		now := time.Unix(1000, 0)
		interval := c.CollectInterval
		var last, end time.Time // of the last one
		for range 200 {
			now = now.Add(time.Duration(r.IntN(20_000)) * time.Millisecond)
			if p.running && !now.Before(end) {
				freed := r.Float64() * 0.2
				p.done(freed)
				if interval *= 2; freed >= 0.05 {
					interval = c.CollectInterval
				}
				interval = min(interval, 16*c.CollectInterval)
			}
			s := Severity(r.IntN(8))
			s = map[bool]Severity{true: Normal, false: min(s, Critical)}[s > 5]
			running := !end.IsZero() && now.Before(end)
			want := s != Normal && !running && !p.running && (last.IsZero() || now.Sub(last) >= interval)
			if s == Normal {
				interval = c.CollectInterval
			}
			if got := p.due(now, s, &c); got != want {
				t.Fatalf("seed %d: due %v, want %v, %v after the last one, interval %v", seed, got, want, now.Sub(last), interval)
			}
			if want {
				p.start(now)
				last, end = now, now.Add(time.Duration(r.IntN(60_000))*time.Millisecond)
			}
		}
	}
	c.Collect = false
	if new(pace).due(time.Unix(0, 0), Critical, &c) {
		t.Error("due though it is off")
	}
}
