package lanes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/pressure"
)

// reload changes the configuration as change says.
func reload(t testing.TB, l *Controller, change func(*Config)) {
	t.Helper()
	c := l.set.Load().Config
	change(&c)
	if err := l.Reconfigure(c); err != nil {
		t.Fatal(err)
	}
}

// J1, J3: an equal configuration changes nothing, however often it comes: no limit, no
// place, no average, no counter.
func TestJ1EqualReload(t *testing.T) {
	bubble(t, func(c *Config) { virtual(c); c.Exempt = []string{"/livez"} }, func(t *testing.T, l *Controller) {
		c := newCrowd(t, l)
		c.ask("a", gate.Request{Flow: "a", Cost: 60})
		c.ask("b", gate.Request{Flow: "b", Cost: 60})
		c.ask("c", gate.Request{Flow: "b", Cost: 1})
		time.Sleep(1500 * time.Millisecond) // in the middle of a window
		before, _ := json.Marshal(l.Snapshot())
		for range 100 {
			reload(t, l, func(*Config) {})
		}
		if after, _ := json.Marshal(l.Snapshot()); string(before) != string(after) {
			t.Errorf("before %s\nafter  %s", before, after)
		}
		c.releaseAll()
	})
}

// J2: what is wrong changes nothing.
func TestJ2FailedReload(t *testing.T) {
	l := enforcing(t, virtual)
	before, _ := json.Marshal(l.Snapshot())
	c := l.set.Load().Config
	c.InitialLimit, c.MaxLimit, c.Window = 100, 200, -1
	if err := l.Reconfigure(c); err == nil || !strings.Contains(err.Error(), "Window") {
		t.Errorf("%v", err)
	}
	if after, _ := json.Marshal(l.Snapshot()); string(before) != string(after) {
		t.Errorf("before %s\nafter  %s", before, after)
	}
}

// J4, J6, J7: limits and bounds change in place: what grew is granted at once, waiters keep
// their places and their time.
func TestJ4Reload(t *testing.T) {
	both(t, limited(3), func(t *testing.T, l *Controller) {
		c := newCrowd(t, l)
		for i := range 6 {
			c.ask(fmt.Sprint(i), gate.Request{Flow: "a", Cost: 1})
		}
		time.Sleep(time.Second)
		reload(t, l, func(c *Config) { c.InitialLimit = 4 })
		synctest.Wait()
		if !c.holds("3") || !c.waits("4") || l.Snapshot().Limit != 4 {
			t.Errorf("granted %v at limit %d", c.granted, l.Snapshot().Limit)
		}
		reload(t, l, func(c *Config) { c.VirtualLanes = !c.VirtualLanes; c.MaxQueueCount = 1 })
		synctest.Wait()
		if !c.waits("4") || !c.waits("5") || l.Snapshot().QueuedCount != 2 {
			t.Error("a waiter was lost")
		}
		reload(t, l, func(c *Config) { c.MaxWait = 2 * time.Second })
		time.Sleep(time.Second)
		synctest.Wait()
		c.wantReason("4", gate.QueueTimeout) // 2 s after it came
		c.releaseAll()
	})
}

// The limit that was learned outlives a reload, within the new bounds.
func TestReloadKeepsWhatWasLearned(t *testing.T) {
	busy(t, true, func(t *testing.T, l *Controller, _ *backend) {
		time.Sleep(4*time.Minute + 500*time.Millisecond) // in the middle of a window
		before := l.Snapshot()
		reload(t, l, func(c *Config) { c.MaxQueueCount, c.MaxLimit = 500, 900 })
		if after := l.Snapshot(); after.Limit != before.Limit || after.LongLatencyS != before.LongLatencyS {
			t.Errorf("limit %d, before %d", after.Limit, before.Limit)
		}
		reload(t, l, func(c *Config) { c.MinLimit, c.InitialLimit, c.MaxLimit = 8, 20, 20 })
		if n := l.Snapshot().Limit; n != 20 {
			t.Errorf("limit %d at a maximum of 20", n)
		}
		reload(t, l, func(c *Config) { c.Algorithm, c.MaxLimit, c.InitialLimit = Fixed, 300, 100 })
		time.Sleep(time.Minute)
		if n := l.Snapshot().Limit; n != 100 {
			t.Errorf("limit %d, fixed at 100", n)
		}
		reload(t, l, func(c *Config) { c.Algorithm = Gradient })
		time.Sleep(time.Minute)
		if n := l.Snapshot().Limit; n == 100 {
			t.Error("the limit does not move again")
		}
	})
}

// Leaving enforce admits everybody who waits; coming back enforces again.
func TestModes(t *testing.T) {
	for _, mode := range []gate.Mode{gate.Shadow, gate.Off} {
		bubble(t, limited(2), func(t *testing.T, l *Controller) {
			c := newCrowd(t, l)
			for i := range 6 {
				c.ask(fmt.Sprint(i), gate.Request{Flow: fmt.Sprint(i), Cost: 1})
			}
			reload(t, l, func(c *Config) { c.Mode = mode })
			synctest.Wait()
			if len(c.granted) != 6 {
				t.Errorf("%v: granted %v", mode, c.granted)
			}
			c.ask("more", gate.Request{Flow: "a", Cost: 500})
			if !c.holds("more") {
				t.Errorf("%v: %v", mode, c.err("more"))
			}
			reload(t, l, func(c *Config) { c.Mode = gate.Enforce })
			c.ask("again", gate.Request{Flow: "a", Cost: 1})
			if !c.waits("again") {
				t.Errorf("after %v nothing is enforced", mode)
			}
			c.releaseAll()
			if !slices.Contains(c.granted, "again") {
				t.Errorf("after %v the room did not come back", mode)
			}
		})
	}
}

// In shadow mode everything is admitted, the books are kept, and the limit moves by what
// is seen.
func TestShadow(t *testing.T) {
	bubble(t, func(c *Config) {
		limited(2)(c)
		c.Mode, c.MaxQueueCount, c.MaxWait = gate.Shadow, 1, time.Second
	}, func(t *testing.T, l *Controller) {
		var leases []gate.Lease
		for range 4 {
			leases = append(leases, take(t, l, "a", 1))
		}
		leases = append(leases, take(t, l, "b", 1001))
		s := l.Snapshot()
		if s.WouldAdmit != 2 || s.WouldQueue != 1 || s.WouldRefuse != 2 || s.InflightCost != 2 || s.QueuedCount != 1 || s.Sheds != 0 {
			t.Errorf("%+v", s)
		}
		time.Sleep(2 * time.Second) // who waits in the books leaves them in its time
		if s := l.Snapshot(); s.QueuedCount != 0 {
			t.Errorf("%d wait", s.QueuedCount)
		}
		for _, lease := range leases {
			if lease.Waited() != 0 || lease.Grow(1000) != nil {
				t.Error("shadow mode held something up")
			}
			lease.Release()
			lease.Release()
		}
	})
	bubble(t, func(c *Config) { c.Mode = gate.Shadow }, func(t *testing.T, l *Controller) {
		b := newBackend(20, 100*time.Millisecond)
		for range 300 {
			for range 60 {
				go func() {
					lease := take(t, l, "a", 1)
					b.serve()
					lease.Release()
				}()
			}
			time.Sleep(time.Second)
		}
		time.Sleep(time.Minute)
		if s := l.Snapshot(); s.LongLatencyS == 0 {
			t.Errorf("no latency is known: %+v", s)
		}
	})
}

// Close refuses those who wait and those who come, in every mode; what is out stays good.
func TestClose(t *testing.T) {
	for _, mode := range []gate.Mode{gate.Off, gate.Shadow, gate.Enforce} {
		bubble(t, func(c *Config) { limited(1)(c); c.Mode = mode }, func(t *testing.T, l *Controller) {
			c := newCrowd(t, l)
			c.ask("a", gate.Request{Cost: 1})
			c.ask("b", gate.Request{Cost: 1})
			l.Close()
			l.Close()
			synctest.Wait()
			if mode == gate.Enforce {
				c.wantReason("b", gate.ShuttingDown)
			}
			for _, r := range []gate.Request{{Cost: 1}, {Flow: "x", Bytes: 1}} {
				if err := second(l.Acquire(context.Background(), r)); !errors.Is(err, gate.ShuttingDown) {
					t.Errorf("%v: %v", mode, err)
				}
			}
			if err := l.Reconfigure(l.set.Load().Config); err != nil {
				t.Error(err)
			}
			if mode != gate.Off {
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				if err := l.Drain(ctx); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%v: a lease is out, and Drain says %v", mode, err)
				}
				cancel()
			}
			c.releaseAll()
			if err := l.Drain(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
}

// The timer is set while something is in flight or the limit is on its way back, and no
// longer.
func TestTimerRests(t *testing.T) {
	bubble(t, nil, func(t *testing.T, l *Controller) {
		set := func() bool {
			l.mu.Lock()
			defer l.mu.Unlock()
			return l.timerSet
		}
		if set() {
			t.Error("it is set before anything came")
		}
		lease := take(t, l, "a", 1)
		time.Sleep(time.Minute)
		if !set() {
			t.Error("it is not set while something is in flight")
		}
		lease.Release()
		time.Sleep(5 * time.Second)
		if set() {
			t.Error("it is set though nothing happens")
		}
		l.pressed(pressure.Critical)
		l.pressed(pressure.Normal)
		time.Sleep(20 * time.Second)
		if n := l.Snapshot().Limit; !set() || n < 48 || n > 53 {
			t.Errorf("set %v, limit %d on its way back from 32", set(), n)
		}
		time.Sleep(time.Minute)
		if n := l.Snapshot().Limit; set() || n != 64 {
			t.Errorf("set %v, limit %d", set(), n)
		}
	})
}

// Critical pressure halves the limit at once, once per window, whoever asks how often.
func TestCriticalOncePerWindow(t *testing.T) {
	bubble(t, func(c *Config) { c.InitialLimit, c.MinLimit = 800, 1 }, func(t *testing.T, l *Controller) {
		for window := range 5 {
			for range 100 {
				l.pressed(pressure.Critical)
				take(t, l, "a", 1).Release()
				time.Sleep(9 * time.Millisecond)
			}
			want := int64(800 / math.Exp2(float64(window+1)))
			if n := l.Snapshot().Limit; n < want/2 || n > want {
				t.Errorf("window %d: limit %d, want %d", window, n, want)
			}
			time.Sleep(100 * time.Millisecond)
		}
	})
}
