package lanes

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

// W1, W2: what costs more than the limit waits until it is alone, is charged the whole
// limit, and keeps others out until it ends; then all who fit are granted.
func TestW2AboveTheLimitAlone(t *testing.T) {
	both(t, func(c *Config) { limited(10)(c); c.MaxWait = time.Hour }, func(t *testing.T, l *Controller) {
		c := newCrowd(t, l)
		c.ask("small", gate.Request{Flow: "a", Cost: 1})
		c.ask("huge", gate.Request{Flow: "b", Cost: 500})
		if !c.waits("huge") {
			t.Fatal("it does not run alone")
		}
		c.release("small")
		if s := l.Snapshot(); !c.holds("huge") || s.InflightCost != 10 {
			t.Errorf("in flight %d of 10", s.InflightCost)
		}
		for i := range 10 {
			c.ask(fmt.Sprint(i), gate.Request{Flow: fmt.Sprint(i), Cost: 1})
		}
		if len(c.granted) != 2 {
			t.Errorf("granted beside it: %v", c.granted)
		}
		c.release("huge")
		if len(c.granted) != 12 {
			t.Errorf("granted after it: %v", c.granted)
		}
		c.releaseAll()
	})
}

// W2: a limit that falls below what is in use revokes nothing and grants nothing, and a
// waiter above it is not stranded.
func TestW2ShrunkenLimit(t *testing.T) {
	bubble(t, func(c *Config) { limited(100)(c); c.MaxWait = time.Hour }, func(t *testing.T, l *Controller) {
		c := newCrowd(t, l)
		c.ask("a", gate.Request{Flow: "a", Cost: 60})
		c.ask("b", gate.Request{Flow: "b", Cost: 60})
		cfg := l.set.Load().Config
		cfg.InitialLimit = 20
		if err := l.Reconfigure(cfg); err != nil {
			t.Fatal(err)
		}
		c.ask("c", gate.Request{Flow: "c", Cost: 1})
		if !c.holds("a") || !c.waits("b") || !c.waits("c") {
			t.Error("a shrink revoked or granted something")
		}
		c.release("a")
		if !c.holds("b") {
			t.Error("who costs more than the new limit is stranded")
		}
		c.release("b")
		c.release("c")
	})
}

// W4, W10: cancellation wins over room, and no cost is lost when it comes with a grant.
func TestW4CancellationWins(t *testing.T) {
	bubble(t, limited(1), func(t *testing.T, l *Controller) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if rej := rejection(t, second(l.Acquire(ctx, gate.Request{Cost: 1}))); rej.Reason != gate.Canceled {
			t.Errorf("%v", rej)
		}
		for range 200 {
			holder := take(t, l, "a", 1)
			ctx, cancel := context.WithCancel(context.Background())
			var wg sync.WaitGroup
			wg.Go(func() {
				if lease, err := l.Acquire(ctx, gate.Request{Flow: "b", Cost: 1}); err == nil {
					lease.Release()
				}
			})
			synctest.Wait()
			wg.Go(cancel)
			wg.Go(holder.Release)
			wg.Wait()
		}
		take(t, l, "a", 1).Release()
	})
}

// W10: a lease that is released twice, from anywhere, frees no other's.
func TestW10DoubleRelease(t *testing.T) {
	l := enforcing(t, limited(3))
	var old []gate.Lease
	for range 200 {
		lease := take(t, l, "a", 1)
		lease.Release()
		old = append(old, lease)
	}
	a, b := take(t, l, "a", 1), take(t, l, "b", 1)
	for _, lease := range old {
		lease.Release()
		lease.Shrink(1)
		if lease.Live() || lease.Waited() != 0 || lease.Grow(100) != nil {
			t.Fatal("a lease that is over lives")
		}
		gate.Observe(lease.In(context.Background(), l), gate.Sample{FirstByte: time.Hour, Status: 200})
	}
	if s := l.Snapshot(); s.Inflight != 2 || s.InflightCost != 2 {
		t.Errorf("%d in flight, %d cost", s.Inflight, s.InflightCost)
	}
	a.Release()
	b.Release()
	wantEmpty(t, l)
}

// W11: in a lane that is full its own newest of a lower class gives way; in a full whole
// the newest of the tenant that fills it. One tenant can never fill it against others.
func TestW11FullLanes(t *testing.T) {
	bubble(t, func(c *Config) { limited(1)(c); c.MaxQueueCount = 2; c.MaxWait = time.Hour }, func(t *testing.T, l *Controller) {
		c := newCrowd(t, l)
		c.ask("holder", gate.Request{Flow: "h", Cost: 1})
		c.ask("bulk1", gate.Request{Flow: "a", Class: gate.Bulk, Cost: 1})
		c.ask("bulk2", gate.Request{Flow: "a", Class: gate.Bulk, Cost: 1})
		c.ask("other", gate.Request{Flow: "b", Class: gate.Bulk, Cost: 1})
		c.ask("chat", gate.Request{Flow: "a", Class: gate.Interactive, Cost: 1})
		c.wantReason("bulk2", gate.Displaced)
		c.ask("bulk3", gate.Request{Flow: "a", Class: gate.Bulk, Cost: 1})
		c.wantReason("bulk3", gate.TenantQueueFull)
		if !c.waits("other") || !c.waits("chat") {
			t.Error("another lane paid for it")
		}
		for i := range 20 { // the whole holds 16
			for j := range 2 {
				c.ask(fmt.Sprint("x", i, "-", j), gate.Request{Flow: fmt.Sprint("x", i), Class: gate.Bulk, Cost: 1})
			}
		}
		if s := l.Snapshot(); s.QueuedCount != 16 {
			t.Errorf("%d wait, want 16", s.QueuedCount)
		}
		for i := range 20 {
			if name := fmt.Sprint("x", i, "-0"); i < 13 && !c.waits(name) {
				t.Errorf("%s: %v: a tenant with one waiter was kept out by some with two", name, c.err(name))
			}
		}
		c.releaseAll()
	})
}

// W12: a lease grows into free room ahead of those who wait, or fails at once.
func TestW12Growth(t *testing.T) {
	bubble(t, limited(10), func(t *testing.T, l *Controller) {
		c := newCrowd(t, l)
		a := take(t, l, "a", 4)
		c.ask("b", gate.Request{Flow: "b", Cost: 8})
		if err := a.Grow(5); err != nil {
			t.Error(err)
		}
		rej := rejection(t, a.Grow(2))
		if rej.Reason != gate.QueueFull || rej.RetryAfter < time.Second || rej.Lane != l.LaneID("a") {
			t.Errorf("%v", rej)
		}
		if n := l.Snapshot().InflightCost; n != 9 {
			t.Errorf("holds %d", n)
		}
		a.Shrink(8)
		synctest.Wait()
		if !c.holds("b") {
			t.Error("what was given back was not given on")
		}
		a.Release()
		c.release("b")
	})
}

// W10 under everything at once: cancelled callers, timeouts, panics, Goexit, double
// releases, growth, reloads of mode, limits and lanes, probes and snapshots.
func TestW10Stress(t *testing.T) {
	rounds := 400
	if testing.Short() {
		rounds = 50
	}
	l := enforcing(t, func(c *Config) {
		c.VirtualLanes, c.MaxLanes, c.Window = true, 5, 10*time.Millisecond
		c.MaxWait, c.MaxQueueCount, c.Exempt = 5*time.Millisecond, 4, []string{"/livez"}
	})
	var wg sync.WaitGroup
	for g := range 32 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(g)))
			for range rounds {
				done := make(chan struct{})
				go func() {
					defer close(done)
					defer func() { _ = recover() }()
					stress(l, r)
				}()
				<-done
			}
		})
	}
	stop := make(chan struct{})
	var reloads sync.WaitGroup
	reloads.Go(func() { reloadForEver(t, l, stop) })
	wg.Wait()
	close(stop)
	reloads.Wait()
	wantEmpty(t, l)
	t.Logf("%+v", l.Snapshot().ShedReasons)
	l.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := l.Drain(ctx); err != nil {
		t.Error(err)
	}
}

func reloadForEver(t *testing.T, l *Controller, stop <-chan struct{}) {
	r := rand.New(rand.NewPCG(2, 2))
	for c := l.set.Load().Config; ; {
		select {
		case <-stop:
			return
		case <-time.After(time.Millisecond):
		}
		c.Mode = []gate.Mode{gate.Enforce, gate.Enforce, gate.Enforce, gate.Shadow, gate.Off}[r.IntN(5)]
		c.VirtualLanes = r.IntN(3) > 0
		c.MaxLimit = 20 + r.IntN(100)
		c.InitialLimit = c.MinLimit + r.IntN(12)
		c.Algorithm = Algorithm(1 + r.IntN(3))
		if err := l.Reconfigure(c); err != nil {
			t.Error(err)
		}
		_ = l.Snapshot()
	}
}

// stress is one request that does something odd.
func stress(l *Controller, r *rand.Rand) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(r.IntN(3000))*time.Microsecond+time.Microsecond)
	defer cancel()
	q := gate.Request{
		Flow: fmt.Sprint(r.IntN(12)), Class: gate.Class(r.IntN(4)), Weight: r.IntN(5), Cost: int64(r.IntN(30)) - 2,
		Path: []string{"", "/livez"}[r.IntN(2)], Bytes: int64(r.IntN(1 << 18)),
	}
	lease, err := l.Acquire(ctx, q)
	defer lease.Release()
	if err != nil {
		return
	}
	ctx = lease.In(ctx, l)
	switch r.IntN(8) {
	case 0:
		panic("handler")
	case 1:
		go lease.Release()
	case 2:
		_ = lease.Grow(int64(r.IntN(10)))
	case 3:
		lease.Shrink(int64(r.IntN(10)))
	case 4:
		l.Probe(ctx, 1, 6, 30)
	case 5:
		gate.Observe(ctx, gate.Sample{FirstByte: time.Duration(r.IntN(int(time.Millisecond))), Status: 200 + 100*r.IntN(4)})
	case 6:
		time.Sleep(time.Duration(r.IntN(500)) * time.Microsecond)
	case 7:
		cancel()
	}
}
