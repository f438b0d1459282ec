package inflight

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

func reload(t testing.TB, l *Limiter, set func(*Config)) {
	t.Helper()
	c := l.set.Load().clone()
	set(&c)
	if err := l.Reconfigure(c); err != nil {
		t.Fatal(err)
	}
}

// J4, J6: growth is granted at once; a shrink revokes nothing and nothing is granted
// until fewer are in flight.
func TestReloadOfTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, func(c *Config) { c.MaxInflight, c.InteractiveReserve = 2, 0 })
		c, ctx := newCrowd(t, l), context.Background()
		for i := range 5 {
			c.ask(fmt.Sprint(i), ctx, gate.Request{})
		}
		granted := func(want int) {
			t.Helper()
			if got := len(c.order()); got != want {
				t.Fatalf("%d granted, want %d", got, want)
			}
		}
		granted(2)
		reload(t, l, func(c *Config) { c.MaxInflight = 4 })
		synctest.Wait()
		granted(4)
		reload(t, l, func(c *Config) { c.MaxInflight = 1 })
		synctest.Wait()
		if s := state(t, l); s.Inflight != 4 || s.Limit != 1 || s.Queued != 1 {
			t.Fatalf("%d in flight of %d, %d queued", s.Inflight, s.Limit, s.Queued)
		}
		for _, name := range []string{"0", "1", "2"} {
			c.release(name)
			granted(4)
		}
		c.release("3")
		granted(5)
		c.finish()
		wantIdle(t, l)
	})
}

// 0 drains the queue; what is in flight then counts when a limit is set again.
func TestReloadToOffAndBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, nil)
		c, ctx := newCrowd(t, l), context.Background()
		for i := range 4 {
			c.ask(fmt.Sprint(i), ctx, gate.Request{Class: gate.Bulk})
		}
		reload(t, l, func(c *Config) { c.MaxInflight = 0 })
		synctest.Wait()
		c.ask("4", ctx, gate.Request{Class: gate.Bulk})
		if got := len(c.order()); got != 5 {
			t.Fatalf("%d granted, want all 5", got)
		}
		if s := l.Snapshot(); s.Enabled {
			t.Error("a limiter without limits is enabled")
		}
		reload(t, l, func(c *Config) { c.MaxInflight = 3 })
		c.ask("5", ctx, gate.Request{Class: gate.Bulk})
		c.ask("6", ctx, gate.Request{Class: gate.Interactive})
		want := func(later ...string) {
			t.Helper()
			if got := c.order()[5:]; !slices.Equal(got, later) {
				t.Fatalf("granted %v after the limit was set, want %v", got, later)
			}
		}
		for _, name := range []string{"0", "1"} { // 3 are still in flight
			c.release(name)
			want()
		}
		c.release("2")
		want("6") // two bulk calls hold all that bulk may
		c.release("3")
		want("6", "5")
		c.finish()
		wantIdle(t, l)
	})
}

// The same in mode off: what it does not refuse it still counts.
func TestModeOffCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, func(c *Config) { c.Mode = gate.Off })
		c, ctx := newCrowd(t, l), context.Background()
		for i := range 3 {
			c.ask(fmt.Sprint(i), ctx, gate.Request{})
		}
		c.wantOrder("0", "1", "2")
		if s := l.Snapshot(); s.Enabled || s.Lanes[0].Inflight != 3 {
			t.Errorf("%+v", s)
		}
		reload(t, l, func(c *Config) { c.Mode = gate.Enforce })
		c.ask("3", ctx, gate.Request{})
		c.release("0")
		c.release("1")
		c.wantOrder("0", "1", "2")
		c.release("2")
		c.wantOrder("0", "1", "2", "3")
		c.finish()
	})
}

// A waiter's time ends at its arrival plus the new timeout, to the tick, whichever
// way it changes.
func TestReloadOfTheTimeout(t *testing.T) {
	for _, tc := range []struct{ before, after, at, ends time.Duration }{
		{5 * time.Minute, time.Minute, 10 * time.Second, time.Minute},
		{5 * time.Minute, time.Minute, 2 * time.Minute, 2 * time.Minute}, // over already
		{time.Minute, 5 * time.Minute, 59 * time.Second, 5 * time.Minute},
	} {
		t.Run(fmt.Sprint(tc.before, " to ", tc.after, " at ", tc.at), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := open(t, func(c *Config) { c.QueueTimeout = tc.before })
				held := take(t, l, gate.Default)
				defer held.Release()
				c := newCrowd(t, l)
				c.ask("w", context.Background(), gate.Request{})
				time.Sleep(tc.at)
				reload(t, l, func(c *Config) { c.QueueTimeout = tc.after })
				if left := tc.ends - tc.at; left > 0 {
					time.Sleep(left - time.Nanosecond)
					synctest.Wait()
					if err := c.err("w"); err != nil {
						t.Fatalf("%v a moment early", err)
					}
					time.Sleep(time.Nanosecond)
				}
				synctest.Wait()
				c.wantErr("w", gate.QueueTimeout)
			})
		})
	}
}

// J1, J2: what is equal or wrong changes nothing.
func TestReloadOfNothing(t *testing.T) {
	l := open(t, nil)
	before := l.set.Load()
	if err := l.Reconfigure(before.clone()); err != nil || l.set.Load() != before {
		t.Errorf("an equal reload: %v", err)
	}
	bad := before.clone()
	bad.MaxInflight, bad.QueueTimeout = 9, -1
	if err := l.Reconfigure(bad); err == nil || l.set.Load() != before {
		t.Errorf("a wrong reload: %v", err)
	}
}

// Overrides and SetLimit: the latter wins, outlives a reload, and can be undone.
func TestLimitsOfOneLane(t *testing.T) {
	l := open(t, func(c *Config) { c.MaxInflight, c.Lanes = 5, map[string]Override{llm: {MaxInflight: ptr(3)}} })
	limits := func(want, wantOther int) {
		t.Helper()
		if got := l.find(llm).set.Load().maxInflight; got != want {
			t.Errorf("limit %d, want %d", got, want)
		}
		if got := l.find("x").set.Load().maxInflight; got != wantOther {
			t.Errorf("limit of another lane %d, want %d", got, wantOther)
		}
	}
	limits(3, 5)
	if err := l.SetLimit(llm, 2); err != nil {
		t.Fatal(err)
	}
	limits(2, 5)
	reload(t, l, func(c *Config) { c.MaxInflight, c.Lanes[llm] = 7, Override{MaxInflight: ptr(4)} })
	limits(2, 7)
	if err := l.SetLimit(llm, Inherit); err != nil {
		t.Fatal(err)
	}
	limits(4, 7)
	for _, n := range []int{-2, most + 1} {
		if err := l.SetLimit(llm, n); err == nil {
			t.Errorf("SetLimit(%d) is no error", n)
		}
	}
	limits(4, 7)
	for i := range l.set.Load().MaxLanes {
		if err := l.SetLimit(fmt.Sprint(i), 1); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.SetLimit("one more", 1); err == nil {
		t.Error("limits for more lanes than may be")
	}
	if err := l.SetLimit("7", 2); err != nil {
		t.Error(err)
	}
}

// Must 2: thousands wait, the limits change all the time, and no slot is lost or
// made.
func TestReloadWhileThousandsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const callers = 5000
		l := open(t, func(c *Config) { c.MaxInflight, c.MaxQueue, c.QueueTimeout = 8, callers, time.Hour })
		rnd := rand.New(rand.NewPCG(1, 2))
		var inflight, refused, done atomic.Int64
		var wg sync.WaitGroup
		for i := range callers {
			hold := time.Duration(rnd.Int64N(int64(time.Second)))
			wg.Go(func() {
				ctx := context.Background()
				if i%10 == 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, 20*hold)
					defer cancel()
				}
				lease, err := l.Acquire(ctx, gate.Request{Lane: llm, Class: classOf(i % 3), Flow: fmt.Sprint(i % 7)})
				if err != nil {
					refused.Add(1)
					return
				}
				inflight.Add(1)
				time.Sleep(hold)
				inflight.Add(-1)
				lease.Release()
				done.Add(1)
			})
		}
		for range 400 {
			limit := 1 + rnd.IntN(40)
			before := inflight.Load()
			reload(t, l, func(c *Config) {
				c.MaxInflight, c.InteractiveReserve = limit, rnd.IntN(4)
				c.QueueTimeout = time.Duration(30+rnd.IntN(100)) * time.Second
			})
			synctest.Wait()
			if now := inflight.Load(); now > max(before, int64(limit)) {
				t.Fatalf("%d in flight after a reload from %d to a limit of %d", now, before, limit)
			}
			if s := state(t, l); int64(s.Inflight) != inflight.Load() {
				t.Fatalf("the snapshot has %d in flight, %d are", s.Inflight, inflight.Load())
			}
			time.Sleep(100 * time.Millisecond)
		}
		wg.Wait()
		wantIdle(t, l)
		if done.Load()+refused.Load() != callers || done.Load() == 0 || refused.Load() == 0 {
			t.Errorf("%d done, %d refused of %d", done.Load(), refused.Load(), callers)
		}
		// All of the capacity is there.
		reload(t, l, func(c *Config) { c.MaxInflight, c.InteractiveReserve, c.MaxQueue = 5, 0, 0 })
		for range 5 {
			defer take(t, l, gate.Bulk).Release()
		}
		if _, err := l.Acquire(context.Background(), gate.Request{Lane: llm}); !errors.Is(err, gate.QueueFull) && !errors.Is(err, gate.QueueTimeout) {
			t.Errorf("a sixth: %v", err)
		}
	})
}

// What the shadow books say is what Enforce would have done; nobody waits.
func TestShadow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, func(c *Config) { c.Mode, c.MaxInflight, c.MaxQueue = gate.Shadow, 2, 1 })
		c, ctx := newCrowd(t, l), context.Background()
		for i := range 5 {
			c.ask(fmt.Sprint(i), ctx, gate.Request{Class: gate.Interactive})
		}
		c.wantOrder("0", "1", "2", "3", "4")
		s := state(t, l)
		if s.WouldAdmit != 2 || s.WouldQueue != 1 || s.WouldRefuse != 2 || s.Sheds != 0 {
			t.Errorf("%d admitted, %d queued, %d refused, %d shed", s.WouldAdmit, s.WouldQueue, s.WouldRefuse, s.Sheds)
		}
		c.finish()
		wantIdle(t, l)
		reload(t, l, func(c *Config) { c.Mode = gate.Enforce })
		for i := 5; i < 8; i++ {
			c.ask(fmt.Sprint(i), ctx, gate.Request{Class: gate.Interactive})
		}
		c.wantOrder("0", "1", "2", "3", "4", "5", "6")
		reload(t, l, func(c *Config) { c.Mode = gate.Shadow })
		synctest.Wait()
		c.wantOrder("0", "1", "2", "3", "4", "5", "6", "7")
		c.finish()
		wantIdle(t, l)
	})
}
