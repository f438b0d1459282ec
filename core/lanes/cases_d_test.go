package lanes

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/pressure"
)

// What is no work of the back end moves nothing: beside it the limit finds the same
// capacity (D9, D10, and defect 12 of the probes).
func TestD9D10NotFooled(t *testing.T) {
	disturbances := map[string]func(l *Controller){
		"health checks": func(l *Controller) {
			lease, err := l.Acquire(context.Background(), gate.Request{Path: "/healthz"})
			if err == nil {
				lease.Release()
			}
		},
		"callers that cancel": func(l *Controller) {
			ctx, cancel := context.WithCancel(context.Background())
			lease, err := l.Acquire(ctx, gate.Request{Flow: "impatient", Cost: 1})
			time.Sleep(10 * time.Millisecond)
			cancel()
			if err == nil {
				gate.Observe(lease.In(ctx, l), gate.Sample{Err: context.Canceled})
				lease.Release()
			}
		},
		"callers that leave without a word": func(l *Controller) {
			ctx, cancel := context.WithCancel(context.Background())
			lease, err := l.Acquire(ctx, gate.Request{Flow: "impatient", Cost: 1})
			time.Sleep(10 * time.Millisecond)
			cancel()
			if err == nil {
				lease.Release()
			}
		},
		"refusals here": func(l *Controller) {
			if _, err := l.Acquire(context.Background(), gate.Request{Flow: "dear", Cost: 1001}); err == nil {
				panic("admitted")
			}
		},
		"refusals of a gate behind this one": func(l *Controller) {
			ctx := context.Background()
			lease, err := l.Acquire(ctx, gate.Request{Flow: "refused", Cost: 1})
			if err == nil {
				gate.Observe(lease.In(ctx, l), gate.Sample{Err: &gate.Rejection{Reason: gate.QueueFull}})
				lease.Release()
			}
		},
		"requests that the back end does not take": func(l *Controller) {
			ctx := context.Background()
			lease, err := l.Acquire(ctx, gate.Request{Flow: "wrong", Cost: 1})
			if err == nil {
				gate.Observe(lease.In(ctx, l), gate.Sample{FirstByte: time.Millisecond, Status: 400})
				lease.Release()
			}
		},
		"probes": func(l *Controller) { l.Probe(gate.WithFlow(context.Background(), "busy", 1), 1, 1, 1) },
	}
	for name, disturb := range disturbances {
		t.Run(name, func(t *testing.T) {
			if raceEnabled && name != "probes" && name != "callers that cancel" {
				t.Skip("the race detector has seen the others elsewhere, and makes this one slow")
			}
			notFooled(t, disturb)
		})
	}
}

func notFooled(t *testing.T, disturb func(l *Controller)) {
	bubble(t, func(c *Config) { virtual(c); c.Exempt = []string{"/healthz"} }, func(t *testing.T, l *Controller) {
		b := newBackend(40, 500*time.Millisecond)
		var wg sync.WaitGroup
		stop := make(chan struct{})
		callers(t, l, 100, &wg, stop, func(context.Context) { b.serve() })
		for range 3 {
			wg.Go(func() {
				for {
					select {
					case <-stop:
						return
					case <-time.After(20 * time.Millisecond):
						disturb(l)
					}
				}
			})
		}
		time.Sleep(3 * time.Minute)
		got := meanLimit(l, 90)
		s := l.Snapshot()
		t.Logf("mean limit %.0f, capacity 40, usual latency %.2fs", got, s.LongLatencyS)
		// Some of the disturbances have a unit or two of the limit themselves.
		if got < 30 || got > 56 || s.LongLatencyS < 0.4 || s.LongLatencyS > 0.65 {
			t.Errorf("mean limit %.0f of 40, usual latency %.2fs of 0.5s", got, s.LongLatencyS)
		}
		close(stop)
		wg.Wait()
	})
}

// D1: what began before a cut, under another limit, tells nothing.
func TestD1SamplesFromBeforeACut(t *testing.T) {
	l := newLaw(lawConfig{algorithm: Gradient, least: 8, start: 64, most: 1000, window: time.Second}, func() float64 { return 0 })
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
		window(20 * time.Millisecond)
	}
	for !l.dipping {
		window(20 * time.Millisecond)
	}
	long := l.trend.long
	for range 50 { // of before the dip, and end in it
		l.took(held, 200*time.Millisecond, now+int64(100*time.Millisecond))
	}
	for range 12 {
		window(20 * time.Millisecond)
	}
	if l.trend.long > 1.01*long || l.trend.short > 1.01*long {
		t.Errorf("the usual latency is %.3fs, it was %.3fs", l.trend.long, long)
	}
}

// D12, D13: exactly as much is in flight as may be, however many come at once: of 10,000
// as many as the limit says hold a lease together, and never one more.
func TestD12D13NeverOverTheLimit(t *testing.T) {
	const callers = 10_000
	for _, n := range []int64{1, 100} {
		bubble(t, func(c *Config) {
			limited(int(n))(c)
			c.MaxQueueCount, c.MaxQueueCost, c.MaxWait = 100_000, 100_000, time.Hour
		}, func(t *testing.T, l *Controller) {
			var inUse, most atomic.Int64
			var wg sync.WaitGroup
			for i := range callers {
				wg.Go(func() {
					lease, err := l.Acquire(context.Background(), gate.Request{Flow: fmt.Sprint(i % 50), Cost: 1})
					if err != nil {
						t.Error(err)
						return
					}
					now := inUse.Add(1)
					for last := most.Load(); now > last && !most.CompareAndSwap(last, now); last = most.Load() {
					}
					time.Sleep(time.Millisecond) // in a bubble: until all who may be in are in
					inUse.Add(-1)
					lease.Release()
				})
			}
			wg.Wait()
			if most.Load() != n {
				t.Errorf("%d in flight, the limit is %d", most.Load(), n)
			}
			if got := l.Snapshot().Admitted; got != callers {
				t.Errorf("%d admitted, want %d: the first of each counts too", got, callers)
			}
		})
	}
}

// D15: a grant that races with the end of the wait is not lost, in a hundred thousand
// races: the capacity is what it was, and everybody has the one answer or the other. It is
// the same whether the bound of the wait ends it or the caller.
func TestD15TimeoutsRaceWithGrants(t *testing.T) {
	const wait = 10 * time.Millisecond
	t.Run("the wait is over", func(t *testing.T) {
		bubble(t, func(c *Config) { limited(1)(c); c.MaxWait = wait }, func(t *testing.T, l *Controller) {
			late := raceGrants(t, l, 100_000, wait, func() (context.Context, func() bool) {
				return context.Background(), func() bool { return true }
			})
			if s := l.Snapshot(); s.ShedReasons[gate.QueueTimeout] != late {
				t.Errorf("%d late, and the books say %+v", late, s)
			}
		})
	})
	t.Run("the caller leaves", func(t *testing.T) {
		bubble(t, limited(1), func(t *testing.T, l *Controller) {
			late := raceGrants(t, l, 50_000, wait, func() (context.Context, func() bool) {
				ctx, cancel := context.WithCancel(context.Background())
				return ctx, time.AfterFunc(wait, cancel).Stop
			})
			if s := l.Snapshot(); s.Canceled != late || s.Sheds != 0 {
				t.Errorf("%d have left, and the books say %+v", late, s)
			}
		})
	})
}

// raceGrants has waiters whose time is over after wait, just when there is room, and
// returns how many got none. caller returns a waiter's context and what stops its clock.
func raceGrants(t *testing.T, l *Controller, races int, wait time.Duration, caller func() (context.Context, func() bool)) (late int64) {
	granted := 0
	begin, done := make(chan struct{}), make(chan bool)
	defer close(begin)
	go func() {
		for range begin {
			ctx, stop := caller()
			lease, err := l.Acquire(ctx, gate.Request{Flow: "b", Cost: 1})
			stop()
			lease.Release()
			done <- err == nil
		}
	}()
	for i := range races {
		holder := take(t, l, "a", 1)
		begin <- struct{}{}
		time.Sleep(wait + time.Duration(i%3-1)*time.Nanosecond)
		holder.Release()
		if <-done {
			granted++
		} else {
			late++
		}
		if s := l.Snapshot(); i%100 == 0 && (s.InflightCost != 0 || s.QueuedCount != 0) {
			t.Fatalf("after %d races: %+v", i+1, s)
		}
	}
	if granted < races/4 || late < int64(races/4) {
		t.Errorf("%d were granted and %d too late: that was no race", granted, late)
	}
	take(t, l, "c", 1).Release()
	if s := l.Snapshot(); s.Admitted != int64(races+granted+1) {
		t.Errorf("%d granted, and the books say %+v", granted, s)
	}
	return late
}

// D16: who waits does not spin, and a wait of 0 is none.
func TestD16NoSpinning(t *testing.T) {
	bubble(t, limited(1), func(t *testing.T, l *Controller) {
		c := newCrowd(t, l)
		holder := take(t, l, "a", 1)
		for i := range 50 {
			c.ask(fmt.Sprint(i), gate.Request{Flow: "b", Cost: 1})
		}
		time.Sleep(2 * time.Second) // in a bubble time stands still while anybody runs
		holder.Release()
		synctest.Wait()
		c.releaseAll()
		if len(c.granted) != 50 {
			t.Errorf("%d were granted", len(c.granted))
		}
	})
	l := enforcing(t, func(c *Config) { limited(1)(c); c.MaxWait = 0 })
	holder := take(t, l, "a", 1)
	if err := second(l.Acquire(context.Background(), gate.Request{Cost: 1})); !errors.Is(err, gate.QueueTimeout) {
		t.Errorf("%v", err)
	}
	holder.Release()
}

// Defect of the reports #10111: two slow turns and then nothing. The next request is
// admitted at once, and the limit is back without anybody to complete anything; critical
// pressure still wins.
func TestIdleRecovery(t *testing.T) {
	bubble(t, virtual, func(t *testing.T, l *Controller) {
		l.pressed(pressure.Critical)
		time.Sleep(10 * time.Second)
		if n := l.Snapshot().Limit; n != 8 {
			t.Fatalf("limit %d after ten critical windows", n)
		}
		l.pressed(pressure.Normal)
		lease := take(t, l, "a", 63) // above the limit: alone
		time.Sleep(40 * time.Second)
		lease.Release()
		time.Sleep(2 * time.Minute)
		if n := l.Snapshot().Limit; n != 64 {
			t.Errorf("limit %d, want 64 again", n)
		}
		l.pressed(pressure.Critical)
		if n := l.Snapshot().Limit; n != 32 {
			t.Errorf("limit %d under critical pressure, want 32 at once", n)
		}
	})
}

// Streams that nobody reports on are no samples where Stream says what they are.
func TestStreamsAreNoSamples(t *testing.T) {
	for _, known := range []bool{false, true} {
		bubble(t, func(c *Config) {
			if known {
				c.Stream = func(_ context.Context, r gate.Request) bool {
					if r.Route == "panic" {
						panic("as users do")
					}
					return r.Route == "/stream"
				}
			}
		}, func(t *testing.T, l *Controller) {
			for range 200 {
				for _, route := range []string{"/stream", "panic"} {
					lease, _ := l.Acquire(context.Background(), gate.Request{Route: route, Cost: 1})
					time.Sleep(time.Second)
					if route == "/stream" {
						time.Sleep(9 * time.Second)
					}
					lease.Release()
				}
			}
			long := float64(l.Snapshot().LongLatencyS)
			if known && (long < 0.9 || long > 1.1) || !known && long < 2 {
				t.Errorf("streams known: %v: usual latency %.2fs", known, long)
			}
		})
	}
}

// AIMD goes by errors, and by nothing else.
func TestAIMD(t *testing.T) {
	bubble(t, func(c *Config) { c.Algorithm = AIMD }, func(t *testing.T, l *Controller) {
		b := newBackend(40, 500*time.Millisecond)
		var wg sync.WaitGroup
		stop := make(chan struct{})
		var status atomic.Int64
		status.Store(200)
		callers(t, l, 200, &wg, stop, func(ctx context.Context) {
			gate.Observe(ctx, gate.Sample{FirstByte: b.serve(), Status: int(status.Load())})
		})
		time.Sleep(60 * time.Second)
		grown := l.Snapshot().Limit
		if grown < 110 {
			t.Errorf("limit %d after a minute without errors", grown)
		}
		status.Store(503)
		time.Sleep(30 * time.Second)
		if n := l.Snapshot().Limit; n > grown/4 {
			t.Errorf("limit %d after half a minute of errors, it was %d", n, grown)
		}
		close(stop)
		wg.Wait()
		synctest.Wait()
	})
}
