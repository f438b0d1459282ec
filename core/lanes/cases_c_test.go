package lanes

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

// both runs f with one shared queue and with lanes: waiters are fair among tenants in
// both.
func both(t *testing.T, change func(*Config), f func(t *testing.T, l *Controller)) {
	t.Helper()
	for _, lanes := range []bool{false, true} {
		t.Run(fmt.Sprintf("virtual lanes %v", lanes), func(t *testing.T) {
			bubble(t, func(c *Config) { change(c); c.VirtualLanes = lanes }, f)
		})
	}
}

// C1: ten tenants with a hundred jobs each share two slots: after any 200 jobs no two are
// more than 2 apart.
func TestC1ManyTenantsTakeTurns(t *testing.T) {
	both(t, func(c *Config) { limited(2)(c); c.MaxQueueCount, c.MaxWait = 1000, time.Hour }, func(t *testing.T, l *Controller) {
		var finished [10]int
		var wg sync.WaitGroup
		var mu sync.Mutex
		jobs := 0
		first := take(t, l, "another", 2) // until all of them wait
		defer wg.Wait()
		defer first.Release()
		defer synctest.Wait()
		for tenant := range 10 {
			for range 100 {
				wg.Go(func() {
					lease := take(t, l, fmt.Sprint(tenant), 1)
					time.Sleep(10 * time.Millisecond)
					lease.Release()
					mu.Lock()
					defer mu.Unlock()
					finished[tenant]++
					if jobs++; jobs == 200 {
						least, most := 1000, 0
						for _, n := range finished {
							least, most = min(least, n), max(most, n)
						}
						if most-least > 2 {
							t.Errorf("after 200 jobs: %v", finished)
						}
					}
				})
			}
		}
	})
}

// C2: a quiet tenant is served within two completions of a noisy one.
func TestC2QuietTenant(t *testing.T) {
	both(t, func(c *Config) { limited(1)(c); c.MaxQueueCount, c.MaxWait = 2000, time.Hour }, func(t *testing.T, l *Controller) {
		c := newCrowd(t, l)
		for i := range 1000 {
			c.ask(fmt.Sprint("noisy", i), gate.Request{Flow: "a", Cost: 1})
		}
		c.ask("quiet", gate.Request{Flow: "b", Cost: 1})
		c.release("noisy0")
		if !c.holds("quiet") {
			c.release(c.granted[len(c.granted)-1])
		}
		if !c.holds("quiet") {
			t.Errorf("granted so far: %v", c.granted)
		}
		l.Close()
		c.releaseAll()
	})
}

// C3: who was idle or light for long earns no credit, and who was busy owes nothing.
func TestC3NoWindUp(t *testing.T) {
	both(t, func(c *Config) { limited(3)(c); c.MaxWait = time.Hour }, func(t *testing.T, l *Controller) {
		var got [2]atomic.Int64
		var wg sync.WaitGroup
		stop := make(chan struct{})
		ask := func(tenant int, every time.Duration) {
			for {
				select {
				case <-stop:
					return
				case <-time.After(every):
				}
				wg.Go(func() {
					lease, err := l.Acquire(context.Background(), gate.Request{Flow: fmt.Sprint(tenant), Cost: 1})
					if err == nil {
						time.Sleep(time.Second)
						lease.Release()
						got[tenant].Add(1)
					}
				})
			}
		}
		go ask(0, 250*time.Millisecond)
		time.Sleep(time.Hour / 60) // the other is idle meanwhile
		first := got[0].Load()
		go ask(1, 250*time.Millisecond)
		time.Sleep(20 * time.Second)
		a, b := got[0].Load()-first, got[1].Load()
		if a < 27 || a > 33 || b < 27 || b > 33 {
			t.Errorf("in 20 s of 3 slots one had %d and the newcomer %d, want 30 each", a, b)
		}
		close(stop)
		l.Close()
		wg.Wait()
	})
}

// C5: 64 lanes that each ask for a quarter of the limit get the limit, not sixteen times
// as much.
func TestC5LanesDoNotMultiplyTheLimit(t *testing.T) {
	bubble(t, limited(16), func(t *testing.T, l *Controller) {
		c := newCrowd(t, l)
		for i := range 64 {
			c.ask(fmt.Sprint(i), gate.Request{Flow: fmt.Sprint(i), Cost: 4})
			if s := l.Snapshot(); s.InflightCost > 16 {
				t.Fatalf("in flight: %d of 16", s.InflightCost)
			}
		}
		if len(c.granted) != 4 {
			t.Errorf("granted: %v", c.granted)
		}
		c.releaseAll()
		if len(c.granted) != 64 {
			t.Errorf("%d of 64 were granted in the end", len(c.granted))
		}
	})
}

// C6: a lane with a lease is never evicted; a newcomer beyond the table shares the overflow
// lane, and a release never hits another lane of the same key.
func TestC6LanesWithLeasesStay(t *testing.T) {
	bubble(t, func(c *Config) { limited(10)(c); c.MaxLanes = 2 }, func(t *testing.T, l *Controller) {
		a, b := take(t, l, "a", 1), take(t, l, "b", 1)
		time.Sleep(time.Hour)
		third := take(t, l, "c", 1)
		s := l.Snapshot()
		if s.LaneCount != 3 || s.Overflowed != 1 || l.lanes.peek("a") == nil || l.lanes.peek("c") != nil {
			t.Errorf("%+v", s)
		}
		a.Release()
		again := take(t, l, "c", 1) // a's place is free now
		if l.lanes.peek("a") != nil || l.lanes.peek("c") == nil {
			t.Error("the idle lane did not make way")
		}
		a.Release() // stale
		for _, lease := range []gate.Lease{b, third, again} {
			lease.Release()
		}
	})
}

// C7: a hundred goroutines that use a key first at the same time get one lane.
func TestC7LaneCreationRace(t *testing.T) {
	l := enforcing(t, limited(1000))
	for round := range 100 {
		key := fmt.Sprint("tenant-", round)
		var wg sync.WaitGroup
		leases := make([]gate.Lease, 100)
		for i := range leases {
			wg.Go(func() { leases[i] = take(t, l, key, 1) })
		}
		wg.Wait()
		if n := l.lanes.peek(key).refs.Load() + l.records.serve(l.lanes.peek(key)); n != 100 {
			t.Fatalf("round %d: the lane counts %d", round, n)
		}
		for _, lease := range leases {
			wg.Go(lease.Release)
		}
		wg.Wait()
	}
	if n := len(l.lanes.all()); n != 100 {
		t.Errorf("%d lanes, want 100", n)
	}
	wantEmpty(t, l)
}

// C9: a waiter is refused when its time is over, though nobody else comes.
func TestC9ExpiresWithoutArrivals(t *testing.T) {
	both(t, limited(1), func(t *testing.T, l *Controller) {
		c := newCrowd(t, l)
		holder := take(t, l, "a", 1)
		begin := time.Now()
		c.ask("b", gate.Request{Flow: "b", Cost: 1})
		time.Sleep(time.Minute)
		c.wantReason("b", gate.QueueTimeout)
		if d := c.at["b"].Sub(begin); d != 5*time.Second {
			t.Errorf("refused after %v", d)
		}
		holder.Release()
	})
}

// C10: the caller's own deadline counts, and one that is too near is refused at once.
func TestC10OwnDeadline(t *testing.T) {
	bubble(t, func(c *Config) { limited(1)(c); c.MaxWait = time.Minute }, func(t *testing.T, l *Controller) {
		c := newCrowd(t, l)
		holder := take(t, l, "a", 1)
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		begin := time.Now()
		c.askIn(ctx, "b", gate.Request{Flow: "b", Cost: 1})
		time.Sleep(time.Minute)
		c.wantReason("b", gate.Deadline)
		if d := c.at["b"].Sub(begin); d != 2*time.Second {
			t.Errorf("refused after %v", d)
		}
		holder.Release()
		for range 20 { // from now on the typical hold is known
			c.ask("x", gate.Request{Cost: 1})
			c.ask("y", gate.Request{Cost: 1})
			time.Sleep(10 * time.Second)
			c.release("x")
			time.Sleep(10 * time.Second)
			c.release("y")
			delete(c.at, "x")
		}
		c.ask("x", gate.Request{Cost: 1})
		ctx, cancel = context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		begin = time.Now()
		c.askIn(ctx, "late", gate.Request{Flow: "b", Cost: 1})
		c.wantReason("late", gate.Deadline)
		if d := c.at["late"].Sub(begin); d != 0 {
			t.Errorf("refused after %v, want at once: it could not finish", d)
		}
		c.release("x")
	})
}

// C11: under overload nothing starts whose deadline has passed, and of the answers most
// are in time.
func TestC11OverloadServesTheLiving(t *testing.T) {
	// The queue knows a hold to half an octave, and takes the lower edge: here, 100.66 ms.
	const service = 101 * time.Millisecond
	bubble(t, func(c *Config) { limited(1)(c); c.MaxQueueCount, c.MaxWait = 1000, time.Hour }, func(t *testing.T, l *Controller) {
		inTime, dead := 0, 0
		var mu sync.Mutex
		var wg sync.WaitGroup
		for range 20 * 60 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				lease, err := l.Acquire(ctx, gate.Request{Flow: "a", Cost: 1})
				if err != nil {
					return
				}
				defer lease.Release()
				late := ctx.Err() != nil
				time.Sleep(service)
				mu.Lock()
				defer mu.Unlock()
				if late {
					dead++
				}
				if ctx.Err() == nil {
					inTime++
				}
			})
			time.Sleep(50 * time.Millisecond)
		}
		wg.Wait()
		t.Logf("%.1f answers a second in time, of 10", float64(inTime)/60)
		if dead > 0 || inTime < 8*60 {
			t.Errorf("%d began after their deadline, %d of 600 were in time", dead, inTime)
		}
	})
}

// C12: who leaves is out of the queue at once, and is no shed.
func TestC12AbandonedWaiters(t *testing.T) {
	both(t, limited(1), func(t *testing.T, l *Controller) {
		c := newCrowd(t, l)
		holder := take(t, l, "a", 1)
		ctx, cancel := context.WithCancel(context.Background())
		for i := range 10 {
			c.askIn(ctx, fmt.Sprint(i), gate.Request{Flow: "b", Cost: 1})
		}
		cancel()
		synctest.Wait()
		if s := l.Snapshot(); s.QueuedCount != 0 || s.Canceled != 10 || s.Sheds != 0 {
			t.Errorf("%d wait, %d left, %d were shed", s.QueuedCount, s.Canceled, s.Sheds)
		}
		holder.Release()
		if len(c.granted) != 0 {
			t.Errorf("%v were started", c.granted)
		}
	})
}

// C14: Retry-After goes by how long things are held.
func TestC14RetryAfterFollowsTheHold(t *testing.T) {
	bubble(t, func(c *Config) { limited(1)(c); c.MaxWait = 2 * time.Second }, func(t *testing.T, l *Controller) {
		for range 20 {
			lease := take(t, l, "a", 1)
			time.Sleep(15 * time.Second)
			lease.Release()
		}
		holder := take(t, l, "a", 1)
		rej := reject(t, l, gate.Request{Flow: "b", Cost: 1})
		if rej.Reason != gate.QueueTimeout || rej.RetryAfter < 10*time.Second {
			t.Errorf("%s, retry after %v, want at least 10s", rej.Reason, rej.RetryAfter)
		}
		holder.Release()
	})
}
