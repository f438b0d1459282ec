package lanes

import (
	"context"
	"fmt"
	"strconv"
	"sync"
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

// C1: ten tenants with a hundred jobs each share two slots: after 200 jobs no two are more
// than 2 apart.
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

// C3: three slots serve 3 a second. One tenant asks for 2 a second and the other for 1, or
// for none; then both ask for 2. From the first seconds on each gets 1.5: who was light or
// idle for long has saved no credit, and who was busy owes nothing.
func TestC3NoWindUp(t *testing.T) {
	for name, before := range map[string]struct {
		light time.Duration // between requests of the light tenant, 0 = none
		lasts time.Duration
	}{
		"light for 20 s": {time.Second, 20 * time.Second},
		"idle for 20 s":  {0, 20 * time.Second},
		"light for 1 h":  {time.Second, time.Hour},
		"idle for 1 h":   {0, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			both(t, func(c *Config) { limited(3)(c); c.MaxWait = time.Hour }, func(t *testing.T, l *Controller) {
				noWindUp(t, l, before.light, before.lasts)
			})
		})
	}
}

func noWindUp(t *testing.T, l *Controller, light, lasts time.Duration) {
	var mu sync.Mutex
	var grants [2][]time.Time
	var wg sync.WaitGroup
	ask := func(tenant int, every, during time.Duration) {
		if every == 0 {
			return
		}
		wg.Go(func() {
			for range during / every {
				wg.Go(func() {
					lease, err := l.Acquire(context.Background(), gate.Request{Flow: fmt.Sprint(tenant), Cost: 1})
					if err != nil {
						return // at the end
					}
					mu.Lock()
					grants[tenant] = append(grants[tenant], time.Now())
					mu.Unlock()
					time.Sleep(time.Second)
					lease.Release()
				})
				time.Sleep(every)
			}
		})
	}
	ask(0, time.Second/2, lasts)
	ask(1, light, lasts)
	time.Sleep(lasts)
	if s := l.Snapshot(); s.QueuedCount > 1 {
		t.Fatalf("%d wait before there are too many", s.QueuedCount)
	}
	begin := time.Now()
	const second = 20 * time.Second
	ask(0, time.Second/2, second)
	ask(1, time.Second/2, second)
	time.Sleep(second)
	count := func(tenant int, from, to time.Duration) (n int) {
		mu.Lock()
		defer mu.Unlock()
		for _, at := range grants[tenant] {
			if d := at.Sub(begin); d > from && d <= to {
				n++
			}
		}
		return n
	}
	for tenant := range 2 {
		if n := count(tenant, 0, second); n < 27 || n > 33 {
			t.Errorf("tenant %d got %d in 20 s, want 30 and a tenth more or less", tenant, n)
		}
		for from := time.Duration(0); from+4*time.Second <= second; from += time.Second {
			if n := count(tenant, from, from+4*time.Second); n < 5 || n > 7 { // 6, and one at an edge
				t.Errorf("tenant %d got %d in the 4 s from %v on, want 6", tenant, n, from)
			}
		}
	}
	l.Close()
	wg.Wait()
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

// C6: a lane with a lease is never evicted, however long nobody has used it; a newcomer
// beyond the table shares the overflow lane; and a release, or one too many, never takes
// from a lane of the same key that came later.
func TestC6LanesWithLeasesStay(t *testing.T) {
	for _, ready := range []bool{false, true} {
		t.Run(fmt.Sprintf("ready record %v", ready), func(t *testing.T) {
			bubble(t, func(c *Config) { limited(100)(c); c.MaxLanes = 2 }, func(t *testing.T, l *Controller) {
				lanesStay(t, l, ready)
			})
		})
	}
}

// lanesStay looks at a lane, b's, that makes way and comes again. ready says whether its
// lease is in a ready record or in one of the pool: these count differently.
func lanesStay(t *testing.T, l *Controller, ready bool) {
	inflight := func(tenant string) int64 {
		for _, ln := range l.Snapshot().LaneTenants {
			if ln.Lane == l.LaneID(tenant) || ln.Lane == tenant {
				return ln.Inflight
			}
		}
		return 0
	}
	var a, b gate.Lease
	for tries := 0; ; tries++ { // the first has the record that is near, which then is out
		if ready {
			b = take(t, l, "b", 1)
			a = take(t, l, "a", 1)
		} else {
			a = take(t, l, "a", 1)
			b = take(t, l, "b", 1)
		}
		if h, _ := b.Holder(); h.(*lease).pooled != ready {
			break
		}
		if tries == 100 { // the stack may have moved once
			t.Fatal("b's lease is in the other kind of record")
		}
		a.Release()
		b.Release()
	}
	laneA, laneB := l.lanes.peek("a"), l.lanes.peek("b")
	time.Sleep(2 * time.Hour)
	for range 100 {
		c := take(t, l, "c", 1)
		if s := l.Snapshot(); s.LaneCount != 3 || inflight("overflow") != 1 || inflight("a") != 1 || inflight("b") != 1 {
			t.Fatalf("%+v", s)
		}
		c.Release()
	}
	if l.lanes.peek("a") != laneA || l.lanes.peek("b") != laneB || l.lanes.peek("c") != nil {
		t.Fatal("a lane with a lease was evicted")
	}
	late := take(t, l, "c", 1) // in the overflow lane
	b.Release()
	b.Release()
	c := take(t, l, "c", 1) // has b's place now
	if l.lanes.peek("b") != nil || l.lanes.peek("c") == nil || inflight("c") != 1 || inflight("overflow") != 1 {
		t.Fatalf("the idle lane did not make way: %+v", l.Snapshot())
	}
	late.Release()
	if inflight("c") != 1 || inflight("overflow") != 0 {
		t.Errorf("a lease of the overflow lane ended in the lane that its tenant has now: %+v", l.Snapshot())
	}
	c.Release()
	again := take(t, l, "b", 1) // the same key, another lane
	if now := l.lanes.peek("b"); now == nil || now == laneB {
		t.Fatal("b has no lane, or its old one")
	}
	for range 3 {
		b.Release() // of the lane before
	}
	if inflight("b") != 1 || !again.Live() {
		t.Errorf("a stale release took from the new lane: %+v", l.Snapshot())
	}
	if n := laneB.refs.Load(); n >= 0 {
		t.Errorf("the evicted lane counts %d", n)
	}
	again.Release()
	a.Release()
	if inflight("a") != 0 || inflight("b") != 0 {
		t.Errorf("%+v", l.Snapshot())
	}
}

// C7: a hundred goroutines that use a key first at the same time get one lane, and all of
// them are counted there; a thousand times.
func TestC7LaneCreationRace(t *testing.T) {
	l := enforcing(t, limited(1000))
	for round := range 1000 {
		key := fmt.Sprint("tenant-", round)
		var wg sync.WaitGroup
		start := make(chan struct{})
		leases := make([]gate.Lease, 100)
		for i := range leases {
			wg.Go(func() {
				<-start
				leases[i] = take(t, l, key, 1)
			})
		}
		close(start)
		wg.Wait()
		ln := l.lanes.peek(key)
		if n := ln.refs.Load() + l.records.serve(ln); n != 100 {
			t.Fatalf("round %d: the lane counts %d", round, n)
		}
		for _, lease := range leases {
			if got := laneOfLease(lease); got != ln {
				t.Fatalf("round %d: there are two lanes of one key", round)
			}
			wg.Go(lease.Release)
		}
		wg.Wait()
	}
	if n := len(l.lanes.all()); n != 1000 {
		t.Errorf("%d lanes, want 1000", n)
	}
	wantEmpty(t, l)
}

// C9: a waiter is refused when its time is over, though nobody else comes.
func TestC9ExpiresWithoutArrivals(t *testing.T) {
	both(t, func(c *Config) { limited(1)(c); c.MaxWait = 15 * time.Second }, func(t *testing.T, l *Controller) {
		c := newCrowd(t, l)
		holder := take(t, l, "a", 1)
		begin := time.Now()
		c.ask("b", gate.Request{Flow: "b", Cost: 1})
		time.Sleep(time.Minute)
		c.wantReason("b", gate.QueueTimeout)
		if d := c.at["b"].Sub(begin); d != 15*time.Second {
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
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		begin := time.Now()
		c.askIn(ctx, "b", gate.Request{Flow: "b", Cost: 1})
		time.Sleep(time.Minute)
		c.wantReason("b", gate.Deadline)
		if d := c.at["b"].Sub(begin); d != 5*time.Second {
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

// C14: streams are held for 15 s and the wait is 2 s. Whenever the client of the report
// comes, it is told to come back when there is room: its first retry is let in.
func TestC14RetryAfterFollowsTheHold(t *testing.T) {
	const hold = 15 * time.Second
	both(t, func(c *Config) { limited(1)(c); c.MaxWait = 2 * time.Second }, func(t *testing.T, l *Controller) {
		for range 20 {
			lease := take(t, l, "a", 1)
			time.Sleep(hold)
			lease.Release()
		}
		for come := time.Duration(0); come < hold-2*time.Second; come += hold / 100 {
			stream := take(t, l, "a", 1)
			end := time.AfterFunc(hold, stream.Release)
			time.Sleep(come)
			rej := reject(t, l, gate.Request{Flow: "b", Cost: 1})
			if rej.Reason != gate.QueueTimeout || rej.RetryAfter < 10*time.Second {
				t.Errorf("%s, retry after %v, want at least 10s", rej.Reason, rej.RetryAfter)
			}
			secs, err := strconv.Atoi(rej.RetryAfterSeconds())
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Duration(secs) * time.Second)
			lease, err := l.Acquire(context.Background(), gate.Request{Flow: "b", Cost: 1})
			if err != nil {
				t.Errorf("who came %v after a stream had begun, and again after %d s: %v", come, secs, err)
			}
			lease.Release()
			time.Sleep(hold)
			end.Stop()
		}
	})
}
