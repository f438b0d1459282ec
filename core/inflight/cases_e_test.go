package inflight

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

// Aging at the exact tick: after 59.999 s a bulk call still stands behind one of class
// default that has just come, after 60 s before it; after 119.999 s and 120 s the same
// with an interactive one. The class that is reported stays (E5).
func TestE5AgingAtTheTick(t *testing.T) {
	for _, tc := range []struct {
		waits time.Duration
		fresh gate.Class
		first string
	}{
		{60*time.Second - time.Nanosecond, gate.Default, "fresh"},
		{60 * time.Second, gate.Default, "bulk"},
		{60 * time.Second, gate.Interactive, "fresh"},
		{120*time.Second - time.Nanosecond, gate.Interactive, "fresh"},
		{120 * time.Second, gate.Interactive, "bulk"},
	} {
		t.Run(fmt.Sprint(tc.waits, " ", tc.fresh), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := open(t, nil)
				defer l.Close()
				held := take(t, l, gate.Default)
				c, ctx := newCrowd(t, l), context.Background()
				c.ask("bulk", ctx, gate.Request{Class: gate.Bulk})
				time.Sleep(tc.waits)
				c.ask("fresh", ctx, gate.Request{Class: tc.fresh})
				if s := state(t, l); s.QueuedByPriority.Bulk != 1 {
					t.Errorf("queued %+v", s.QueuedByPriority)
				}
				held.Release()
				synctest.Wait()
				c.wantOrder(tc.first)
				if s := state(t, l); tc.first == "bulk" && s.InflightByPriority != (ByClass{Bulk: 1}) {
					t.Errorf("in flight %+v", s.InflightByPriority)
				}
				c.finish()
				wantIdle(t, l)
			})
		})
	}
}

// E4: interactive calls never stop coming, one always waits. A bulk call is served with the
// first grant after it has aged past both classes; of those behind it each with the fourth
// grant after the one before, neither sooner nor later.
func TestE4EndlessInteractive(t *testing.T) {
	const service, step, calls = 10 * time.Millisecond, 100 * time.Millisecond, 4
	synctest.Test(t, func(t *testing.T) {
		l := open(t, func(c *Config) { c.AgingStep = step })
		defer l.Close()
		c, ctx := newCrowd(t, l), context.Background()
		c.ask("0", ctx, gate.Request{Class: gate.Interactive})
		for i := range calls {
			c.ask(fmt.Sprint("bulk ", i), ctx, gate.Request{Class: gate.Bulk})
		}
		began := time.Now()
		var served []time.Duration
		for n, last := 0, "0"; len(served) < calls && n < 1000; n++ {
			c.ask(fmt.Sprint(n+1), ctx, gate.Request{Class: gate.Interactive})
			time.Sleep(service)
			c.release(last)
			order := c.order()
			last = order[len(order)-1]
			if strings.HasPrefix(last, "bulk") {
				served = append(served, time.Since(began))
			}
		}
		want := []time.Duration{2 * step, 2*step + 4*service, 2*step + 8*service, 2*step + 12*service}
		if !slices.Equal(served, want) {
			t.Errorf("bulk calls have waited %v, want %v", served, want)
		}
		c.finish()
		wantIdle(t, l)
	})
}

// E6: without aging the order is by class, then by arrival, however long one waits;
// one that leaves from the middle leaves the others in their order.
func TestE6WithoutAging(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, func(c *Config) { c.AgingStep, c.QueueTimeout = 0, 10*time.Hour })
		defer l.Close()
		held := take(t, l, gate.Default)
		c, ctx := newCrowd(t, l), context.Background()
		leaving, cancel := context.WithCancel(ctx)
		for i, name := range []string{"b1", "d1", "b2", "d2", "leaves", "b3", "d3"} {
			in := ctx
			if name == "leaves" {
				in = leaving
			}
			class := map[byte]gate.Class{'b': gate.Bulk, 'd': gate.Default, 'l': gate.Default}[name[0]]
			c.ask(name, in, gate.Request{Class: class})
			time.Sleep(time.Duration(i) * 10 * time.Minute)
		}
		c.ask("i1", ctx, gate.Request{Class: gate.Interactive})
		cancel()
		held.Release()
		synctest.Wait()
		want := []string{"i1", "d1", "d2", "d3", "b1", "b2", "b3"}
		for _, name := range want {
			c.release(name)
		}
		c.wantOrder(want...)
	})
}

// E9: without a reserve one class may have every slot. The default is a reserve of 1,
// which the snapshot shows, as it shows what a reserve above the limit comes to (E10).
func TestE9ReserveIsShown(t *testing.T) {
	for _, tc := range []struct{ limit, reserve, bulk, shown int }{
		{4, 0, 4, 0}, {4, DefaultConfig().InteractiveReserve, 3, 1}, {4, 4, 1, 3}, {4, 99, 1, 3}, {1, 1, 1, 0},
	} {
		l := open(t, func(c *Config) { c.MaxInflight, c.InteractiveReserve, c.MaxQueue = tc.limit, tc.reserve, 0 })
		n := 0
		for range tc.limit + 1 {
			if lease, err := l.Acquire(context.Background(), gate.Request{Lane: llm, Class: gate.Bulk}); err == nil {
				defer lease.Release()
				n++
			}
		}
		if s := state(t, l); n != tc.bulk || s.Reserve != tc.shown {
			t.Errorf("limit %d, reserve %d: bulk has %d slots and the reserve shown is %d, want %d and %d",
				tc.limit, tc.reserve, n, s.Reserve, tc.bulk, tc.shown)
		}
	}
}

// E14: calls that call through the same lane again, all at once, do not wait for each
// other where Do gives them their slot.
func TestE14NestedCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const outer = 4
		l := open(t, func(c *Config) { c.MaxInflight, c.InteractiveReserve = outer, 0 })
		defer l.Close()
		began := time.Now()
		errs := make(chan error, outer)
		for range outer {
			go func() {
				errs <- l.Do(context.Background(), llm, func(ctx context.Context) error {
					time.Sleep(time.Second) // now all have their slots
					return l.Do(ctx, llm, func(ctx context.Context) error {
						lease, err := l.Acquire(ctx, gate.Request{Lane: llm})
						lease.Release()
						return err
					})
				})
			}()
		}
		for range outer {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
		if took := time.Since(began); took != time.Second {
			t.Errorf("they have waited %v for each other", took-time.Second)
		}
		// Without Do there is the bound of the wait.
		lease := take(t, l, gate.Default)
		reload(t, l, func(c *Config) { c.MaxInflight, c.QueueTimeout = 1, time.Minute })
		c := newCrowd(t, l)
		c.ask("nested", context.Background(), gate.Request{})
		time.Sleep(time.Minute)
		synctest.Wait()
		c.wantErr("nested", gate.QueueTimeout)
		lease.Release()
		wantIdle(t, l)
	})
}

// E15: class goes first, then flows take turns: many urgent calls of one flow go before
// a plain one of another, but not before an urgent one of another.
func TestE15ClassThenFlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, nil)
		defer l.Close()
		held := take(t, l, gate.Default)
		c := newCrowd(t, l)
		a, b := gate.WithFlow(context.Background(), "a", 1), gate.WithFlow(context.Background(), "b", 1)
		for _, name := range []string{"a1", "a2", "a3"} {
			c.ask(name, a, gate.Request{Class: gate.Interactive})
		}
		c.ask("b plain", b, gate.Request{})
		c.ask("b urgent", b, gate.Request{Class: gate.Interactive})
		held.Release()
		synctest.Wait()
		want := []string{"a1", "b urgent", "a2", "a3", "b plain"}
		for _, name := range want {
			c.release(name)
		}
		c.wantOrder(want...)
	})
}

// E17: a full second stage is felt in the first: what it refuses gives the slot of the
// first back at once, and no more wait in it than its own bound allows.
func TestE17TwoStages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := open(t, func(c *Config) { c.MaxInflight, c.InteractiveReserve = 8, 0 })
		two := open(t, func(c *Config) { c.MaxInflight, c.InteractiveReserve, c.MaxQueue = 2, 0, 3 })
		defer one.Close()
		defer two.Close()
		done := make(chan error, 20)
		for range 20 {
			go func() {
				done <- one.Do(context.Background(), "stage", func(ctx context.Context) error {
					return two.Do(ctx, llm, func(context.Context) error { time.Sleep(time.Second); return nil })
				})
			}()
		}
		synctest.Wait()
		if s := state(t, two); s.Inflight != 2 || s.Queued != 3 {
			t.Errorf("%d in flight and %d queued in the second stage", s.Inflight, s.Queued)
		}
		if s := one.Snapshot().Lanes[0]; s.Inflight != 5 || s.Queued != 0 {
			t.Errorf("%d in flight and %d queued in the first stage", s.Inflight, s.Queued)
		}
		for range 20 {
			<-done
		}
		wantIdle(t, one)
		wantIdle(t, two)
	})
}
