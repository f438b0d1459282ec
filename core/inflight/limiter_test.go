package inflight

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

var _ gate.Gate = (*Limiter)(nil)

func TestOrderIsByClassThenArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, nil)
		held := take(t, l, gate.Default)
		c, ctx := newCrowd(t, l), context.Background()
		c.ask("bulk 1", ctx, gate.Request{Class: gate.Bulk})
		c.ask("default 1", ctx, gate.Request{})
		c.ask("bulk 2", gate.WithClass(ctx, gate.Bulk), gate.Request{})
		c.ask("interactive 1", gate.WithClass(ctx, gate.Interactive), gate.Request{})
		c.ask("default 2", ctx, gate.Request{Class: gate.Class(99)}) // no class: default
		c.ask("interactive 2", ctx, gate.Request{Class: gate.Interactive})
		held.Release()
		synctest.Wait()
		for _, name := range []string{"interactive 1", "interactive 2", "default 1", "default 2", "bulk 1", "bulk 2"} {
			c.release(name)
		}
		c.wantOrder("interactive 1", "interactive 2", "default 1", "default 2", "bulk 1", "bulk 2")
		wantIdle(t, l)
	})
}

func TestFlowsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, nil)
		held := take(t, l, gate.Default)
		c := newCrowd(t, l)
		a, b := gate.WithFlow(context.Background(), "a", 1), gate.WithFlow(context.Background(), "b", 1)
		for i := range 3 {
			c.ask(fmt.Sprint("a", i), a, gate.Request{})
		}
		c.ask("b0", b, gate.Request{})
		held.Release()
		synctest.Wait()
		for _, name := range []string{"a0", "b0", "a1", "a2"} {
			c.release(name)
		}
		c.wantOrder("a0", "b0", "a1", "a2")
	})
}

// E11: the reserve is free for interactive calls, whatever waits.
func TestReserveIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, func(c *Config) { c.MaxInflight, c.InteractiveReserve = 3, 1 })
		c, ctx := newCrowd(t, l), context.Background()
		for i := range 3 {
			c.ask(fmt.Sprint("bulk ", i), ctx, gate.Request{Class: gate.Bulk})
		}
		c.ask("default", ctx, gate.Request{})
		c.wantOrder("bulk 0", "bulk 1")
		c.ask("interactive", ctx, gate.Request{Class: gate.Interactive})
		c.wantOrder("bulk 0", "bulk 1", "interactive")
		c.release("interactive")
		c.wantOrder("bulk 0", "bulk 1", "interactive")
		time.Sleep(10 * time.Minute / 3) // aged by three ranks: the reserve stays closed
		c.wantOrder("bulk 0", "bulk 1", "interactive")
		s := state(t, l)
		if s.Limit != 3 || s.Reserve != 1 || s.Inflight != 2 || s.InflightByPriority != (ByClass{Bulk: 2}) ||
			s.Queued != 2 || s.QueuedByPriority != (ByClass{Default: 1, Bulk: 1}) {
			t.Errorf("snapshot %+v", s)
		}
		c.finish()
		wantIdle(t, l)
	})
}

// The text of a timeout, and that it comes at the tick.
func TestQueueTimeoutAtTheTick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, func(c *Config) { c.MaxInflight = 6 })
		for range 5 {
			defer take(t, l, gate.Bulk).Release()
		}
		defer take(t, l, gate.Interactive).Release()
		c, ctx := newCrowd(t, l), context.Background()
		c.ask("bulk", ctx, gate.Request{Class: gate.Bulk})
		time.Sleep(time.Second)
		for i := range 13 {
			c.ask(fmt.Sprint("interactive ", i), ctx, gate.Request{Class: gate.Interactive})
		}
		time.Sleep(299*time.Second - time.Nanosecond)
		synctest.Wait()
		if err := c.err("bulk"); err != nil {
			t.Fatalf("%v a moment early", err)
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		rej := c.wantErr("bulk", gate.QueueTimeout)
		want := `lane "` + llm + `": queue timeout after 300.0s at position 14 (class bulk, limit 6): ` +
			`raise MaxInflight or QueueTimeout, or reduce concurrent load on this lane`
		if !strings.HasSuffix(rej.Error(), want) || !strings.HasPrefix(rej.Error(), "refused locally by inflight") {
			t.Errorf("error %q, want ... %q", rej, want)
		}
		if !rej.Timeout() || rej.Waited != 300*time.Second || rej.Position != 14 || rej.Lane != llm || rej.Status() != 503 || rej.RetryAfter <= 0 {
			t.Errorf("rejection %+v", rej)
		}
		time.Sleep(time.Second)
		synctest.Wait()
	})
}

// Full, timed out, displaced, closed and the caller's own context are told apart.
func TestReasonsDiffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, func(c *Config) { c.MaxQueue, c.QueueTimeout = 1, time.Minute })
		held := take(t, l, gate.Interactive)
		c, ctx := newCrowd(t, l), context.Background()
		c.ask("displaced", ctx, gate.Request{Class: gate.Bulk})
		c.ask("timed out", ctx, gate.Request{})
		c.ask("full", ctx, gate.Request{})
		c.wantErr("displaced", gate.Displaced)
		c.wantErr("full", gate.QueueFull)
		time.Sleep(time.Minute)
		synctest.Wait()
		c.wantErr("timed out", gate.QueueTimeout)

		leaving, cancel := context.WithCancel(ctx)
		c.ask("left", leaving, gate.Request{})
		cancel()
		synctest.Wait()
		if rej := c.wantErr("left", gate.Canceled); !errors.Is(rej, context.Canceled) {
			t.Errorf("%v does not wrap its cause", rej)
		}
		late, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		c.ask("late", late, gate.Request{})
		time.Sleep(time.Second)
		synctest.Wait()
		if rej := c.wantErr("late", gate.Deadline); !errors.Is(rej, context.DeadlineExceeded) || !rej.Timeout() {
			t.Errorf("%v does not wrap its cause", rej)
		}

		c.ask("closed", ctx, gate.Request{})
		l.Close()
		synctest.Wait()
		c.wantErr("closed", gate.ShuttingDown)
		if _, err := l.Acquire(ctx, gate.Request{Lane: "new"}); !errors.Is(err, gate.ShuttingDown) {
			t.Errorf("a new lane after Close: %v", err)
		}
		s := state(t, l)
		want := map[gate.Reason]int64{gate.Displaced: 1, gate.QueueFull: 1, gate.QueueTimeout: 1, gate.Deadline: 1, gate.ShuttingDown: 1}
		if fmt.Sprint(s.ShedReasons) != fmt.Sprint(want) || s.Sheds != 5 || s.Canceled != 1 || s.Granted != 1 {
			t.Errorf("counted %v, %d in all, %d canceled, %d granted", s.ShedReasons, s.Sheds, s.Canceled, s.Granted)
		}
		held.Release()
		if err := l.Drain(ctx); err != nil {
			t.Error(err)
		}
		wantIdle(t, l)
	})
}

// Trap 25: a context that is done is refused where there is room.
func TestDoneContexts(t *testing.T) {
	l := open(t, nil)
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	expired, cancel := context.WithDeadline(context.Background(), time.Now().Add(-time.Second))
	defer cancel()
	for ctx, want := range map[context.Context]gate.Reason{canceled: gate.Canceled, expired: gate.Deadline} {
		for _, ctx := range []context.Context{ctx, WithCall(ctx)} {
			lease, err := l.Acquire(ctx, gate.Request{Lane: llm})
			if !errors.Is(err, want) || lease.Live() {
				t.Errorf("%v: lease %v, error %v, want %s", ctx.Err(), lease.Live(), err, want)
			}
			err = l.Do(ctx, llm, func(context.Context) error { t.Error("fn runs"); return nil })
			if !errors.Is(err, want) {
				t.Errorf("Do: %v, want %s", err, want)
			}
		}
	}
	wantIdle(t, l)
}

// D13: 10,000 callers, never more than the limit, and all of it back at the end.
func TestNeverMoreThanTheLimit(t *testing.T) {
	const limit = 100
	l := open(t, func(c *Config) { c.MaxInflight, c.MaxQueue, c.InteractiveReserve = limit, 10_000, 10 })
	var now, others, granted atomic.Int64
	var wg sync.WaitGroup
	for i := range 10_000 {
		wg.Go(func() {
			class := classOf(i % 3)
			lease, err := l.Acquire(context.Background(), gate.Request{Lane: llm, Class: class})
			if err != nil {
				t.Error(err)
				return
			}
			granted.Add(1)
			if n := now.Add(1); n > limit {
				t.Errorf("%d in flight", n)
			}
			if class != gate.Interactive {
				if n := others.Add(1); n > limit-10 {
					t.Errorf("%d of the other classes in flight", n)
				}
				others.Add(-1)
			}
			now.Add(-1)
			lease.Release()
			lease.Release()
		})
	}
	wg.Wait()
	if granted.Load() != 10_000 {
		t.Errorf("%d granted", granted.Load())
	}
	wantIdle(t, l)
}

// F2, W10: a lease released twice, by copies, cannot free another's slot.
func TestDoubleRelease(t *testing.T) {
	l := open(t, nil)
	first := take(t, l, gate.Default)
	first.Release()
	second := take(t, l, gate.Default)
	first.Release()
	if s := state(t, l); s.Inflight != 1 {
		t.Errorf("%d in flight, want 1", s.Inflight)
	}
	if first.Live() || !second.Live() {
		t.Errorf("live: %v, %v", first.Live(), second.Live())
	}
	second.Release()
	wantIdle(t, l)
}

// A slot is a slot: it does not grow, and whatever the cost it is one.
func TestASlotIsOne(t *testing.T) {
	l := open(t, func(c *Config) { c.MaxInflight = 2 })
	lease, err := l.Acquire(context.Background(), gate.Request{Lane: llm, Cost: 1000})
	if err != nil {
		t.Fatal(err)
	}
	defer lease.Release()
	if err := lease.Grow(1); !errors.Is(err, gate.CostExceedsLimit) {
		t.Errorf("Grow = %v", err)
	}
	lease.Shrink(1)
	if s := state(t, l); s.Inflight != 1 {
		t.Errorf("%d in flight", s.Inflight)
	}
	lease.Release()
	if err := lease.Grow(1); err != nil {
		t.Errorf("Grow after Release = %v", err)
	}
}

// Must 5: a class scopes everything below it, goroutines included.
func TestClassOfTheContext(t *testing.T) {
	l := open(t, func(c *Config) { c.MaxInflight = 8 })
	ctx := gate.WithClass(context.Background(), gate.Bulk)
	leases := make(chan gate.Lease)
	for range 2 {
		go func() {
			lease, _ := l.Acquire(context.WithValue(ctx, t, 1), gate.Request{Lane: llm})
			leases <- lease
		}()
	}
	a, b := <-leases, <-leases
	inner, err := l.Acquire(gate.WithClass(ctx, gate.Interactive), gate.Request{Lane: llm})
	if err != nil {
		t.Fatal(err)
	}
	if s := state(t, l); s.InflightByPriority != (ByClass{Bulk: 2, Interactive: 1}) {
		t.Errorf("in flight %+v", s.InflightByPriority)
	}
	a.Release()
	b.Release()
	inner.Release()
	wantIdle(t, l)
}
