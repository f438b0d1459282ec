package lanes

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/pressure"
)

// D9, D10: a window times 64 requests. Those that are refused, or leave, do not use them up:
// a flood of them must not hide the latency of the others.
func TestD9D10TimedAreNotUsedUp(t *testing.T) {
	gone, leave := context.WithCancel(context.Background())
	leave()
	for name, ctx := range map[string]context.Context{"refused": context.Background(), "gone": gone} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(c *Config) { c.MaxQueueCount = 0 }, func(t *testing.T, l *Controller) {
				for range 30 {
					holder := take(t, l, "a", 64)
					time.Sleep(20 * time.Millisecond)
					for range 128 {
						if second(l.Acquire(ctx, gate.Request{Flow: "b", Cost: 64})) == nil {
							t.Fatal("admitted")
						}
					}
					holder.Release()
					for range 20 {
						lease := take(t, l, "a", 1)
						time.Sleep(20 * time.Millisecond)
						lease.Release()
					}
					time.Sleep(580 * time.Millisecond)
				}
				l.mu.Lock()
				defer l.mu.Unlock()
				if n := l.law.trend.windows; n < 20 {
					t.Errorf("the averages moved in %d windows of 30", n)
				}
			})
		})
	}
}

// D1: after a cut for critical pressure, too, what began before it tells nothing.
func TestD1CriticalCut(t *testing.T) {
	l := newLaw(lawConfig{algorithm: Gradient, least: 8, start: 64, most: 64, window: time.Second}, func() float64 { return 1 })
	now := int64(0)
	window := func(d time.Duration) {
		for range 60 {
			l.took(held, d, now)
		}
		l.look(l.limit, true)
		now += int64(time.Second)
		l.close(now, l.limit, true, pressure.Normal)
	}
	for range 28 {
		window(5 * time.Second)
	}
	l.pressed(pressure.Critical, now+1)
	for range 10 { // these began before, and were slow for what was wrong then
		window(10 * time.Second)
	}
	for range 3 {
		window(5 * time.Second)
	}
	if l.limit < 32 {
		t.Errorf("limit %d after one critical cut from 64, want 32 or a little more", l.limit)
	}
}

// Another algorithm is not held up by what the one before made of the latency.
func TestAlgorithmChanges(t *testing.T) {
	c := lawConfig{algorithm: Gradient, least: 8, start: 64, most: 1000, window: time.Second}
	l := newLaw(c, func() float64 { return 0.5 })
	now := int64(0)
	window := func(d time.Duration) {
		for range 60 {
			l.took(held, d, now)
		}
		l.look(l.limit, true)
		now += int64(time.Second)
		l.close(now, l.limit, true, pressure.Normal)
	}
	for range 20 {
		window(100 * time.Millisecond)
	}
	for range 10 {
		window(118 * time.Millisecond)
	}
	if !l.trend.raised() || l.trend.high() {
		t.Fatalf("gradient %.2f: the test shows nothing", l.trend.gradient())
	}
	c.algorithm = AIMD
	l.configure(c)
	was := l.limit
	for range 600 {
		window(118 * time.Millisecond)
	}
	if l.limit < was+500 {
		t.Errorf("limit %d after 600 windows without an error, it was %d", l.limit, was)
	}
}

// A fixed limit is in no dip.
func TestFixedEndsADip(t *testing.T) {
	busy(t, true, func(t *testing.T, l *Controller, _ *backend) {
		for !l.Snapshot().Measuring {
			time.Sleep(time.Second)
		}
		before := l.Snapshot().LimitBefore
		reload(t, l, func(c *Config) { c.Algorithm = Fixed })
		if s := l.Snapshot(); s.Measuring || s.LimitBefore != 0 || s.Limit != 64 {
			t.Errorf("measuring %v, before %d, limit %d", s.Measuring, s.LimitBefore, s.Limit)
		}
		reload(t, l, func(c *Config) { c.Algorithm = Gradient })
		if s := l.Snapshot(); s.Measuring || s.Limit != 64 {
			t.Errorf("measuring %v, limit %d, in the dip it was %d before", s.Measuring, s.Limit, before)
		}
	})
}

// A window that is made shorter ends by its new length.
func TestWindowReload(t *testing.T) {
	bubble(t, func(c *Config) { c.Window = time.Hour }, func(t *testing.T, l *Controller) {
		lease := take(t, l, "a", 1)
		l.pressed(pressure.High)
		reload(t, l, func(c *Config) { c.Window = time.Second })
		time.Sleep(1100 * time.Millisecond)
		if n := l.Snapshot().Limit; n != 51 {
			t.Errorf("limit %d after a window of high pressure, want 51", n)
		}
		lease.Release()
		l.Close()
		reload(t, l, func(c *Config) { c.Window = time.Minute })
		time.Sleep(time.Hour) // nothing fires any more
		if n := l.Snapshot().Limit; n > 51 {
			t.Errorf("limit %d: it moves after Close", n)
		}
	})
}

// Pressure of a time in which no window ends is over when there are windows again.
func TestPressureWhileOffOrFixed(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"off": func(c *Config) { c.Mode = gate.Off }, "fixed": func(c *Config) { c.Algorithm = Fixed },
	} {
		for _, severity := range []pressure.Severity{pressure.High, pressure.Critical} {
			t.Run(name+" "+severity.String(), func(t *testing.T) {
				bubble(t, change, func(t *testing.T, l *Controller) {
					for range 5 {
						l.pressed(severity)
						l.pressed(pressure.Normal)
						time.Sleep(time.Hour)
					}
					reload(t, l, func(c *Config) { c.Mode, c.Algorithm = gate.Enforce, Gradient })
					lease := take(t, l, "a", 1)
					time.Sleep(1100 * time.Millisecond)
					if n := l.Snapshot().Limit; n != 64 {
						t.Errorf("limit %d after a calm window, want 64", n)
					}
					lease.Release()
				})
			})
		}
	}
}

// The limit comes back beside a stream of minutes too, in which nothing is completed.
func TestRecoveryBesideAStream(t *testing.T) {
	bubble(t, virtual, func(t *testing.T, l *Controller) {
		lease := take(t, l, "a", 1)
		l.pressed(pressure.Critical)
		l.pressed(pressure.Normal)
		time.Sleep(time.Minute)
		if n := l.Snapshot().Limit; n != 64 {
			t.Errorf("limit %d with 1 of it in use, want 64 again", n)
		}
		lease.Release()
	})
}

// A parent that runs alone can do what it was admitted for when the limit has grown since
// and others wait; no longer when it has given some of it back.
func TestProbeOfAParentAlone(t *testing.T) {
	bubble(t, func(c *Config) { limited(64)(c); c.MaxWait = time.Hour }, func(t *testing.T, l *Controller) {
		c := newCrowd(t, l)
		parent := take(t, l, "a", 100)
		c.ask("b", gate.Request{Flow: "b", Cost: 60})
		wantYes(t, asks(l, parent, 100, 1), true, false)
		reload(t, l, func(c *Config) { c.InitialLimit = 70 })
		wantYes(t, asks(l, parent, 100, 1), true, false)
		parent.Shrink(10)
		synctest.Wait()
		wantYes(t, asks(l, parent, 100, 54), false, true)
		parent.Release()
		synctest.Wait()
		c.releaseAll()
		again := take(t, l, "a", 10) // the record that was alone remembers nothing
		other := take(t, l, "b", 60)
		wantYes(t, asks(l, again, 11), false)
		again.Release()
		other.Release()
	})
}

// What a parent that was charged the whole limit may have is the limit, also after it has
// grown: what is free then is a part of that, and counts once. So it is in the books of
// shadow mode.
func TestProbeOfAParentAloneIsNotTwice(t *testing.T) {
	l := enforcing(t, limited(20))
	parent := take(t, l, "a", 100)
	reload(t, l, func(c *Config) { c.InitialLimit = 50 })
	wantYes(t, asks(l, parent, 100), true)
	wantYes(t, asks(l, parent, 30, 20, 1), true, true, false)
	parent.Release()
	reload(t, l, func(c *Config) { c.Mode, c.InitialLimit = gate.Shadow, 20 })
	first, waits := take(t, l, "a", 1), take(t, l, "b", 100) // in the books
	asks(l, waits, 20, 1, 1)
	if s := l.Snapshot(); s.WouldQueue != 1 || s.ProbeWouldSkips != 2 {
		t.Errorf("%d would wait, %d targets would be skipped, want 1 and 2", s.WouldQueue, s.ProbeWouldSkips)
	}
	first.Release()
	waits.Release()
	wantEmpty(t, l)
}

// How full the limit is is seen where first bytes are reported too, and not only at the
// moment at which a window ends.
func TestObservedUse(t *testing.T) {
	bubble(t, virtual, func(t *testing.T, l *Controller) {
		for range 60 { // a queue at the beginning of each window, and nothing at its end
			var wg sync.WaitGroup
			for range 100 {
				wg.Go(func() {
					lease := take(t, l, "a", 1)
					time.Sleep(300 * time.Millisecond)
					gate.Observe(lease.In(context.Background(), l), gate.Sample{FirstByte: 100 * time.Millisecond, Status: 200})
					lease.Release()
				})
			}
			time.Sleep(time.Second)
			wg.Wait()
		}
		if n := l.Snapshot().Limit; n < 80 {
			t.Errorf("limit %d after 60 windows in which 36 waited, want 80", n)
		}
	})
}
