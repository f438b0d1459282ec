package lanes

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/pressure"
)

// K1: ten thousand keys of 64 KiB take what the table may take, and no key is kept that is
// longer than 128 bytes.
func TestK1LongKeys(t *testing.T) {
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	l := enforcing(t, limited(100))
	before := heap()
	long := strings.Repeat("x", 64<<10)
	for i := range 10_000 {
		take(t, l, long+fmt.Sprint(i), 1).Release()
	}
	if n := len(l.lanes.all()); n != 1000 {
		t.Errorf("%d lanes, want MaxLanes", n)
	}
	for _, ln := range l.lanes.all() {
		if len(ln.key) > 128 {
			t.Fatalf("a key of %d bytes is kept", len(ln.key))
		}
	}
	grown := heap() - before
	t.Logf("10,000 keys of 64 KiB: %d KiB more", grown>>10)
	if grown > 1000*(256+128)+256<<10 && !raceEnabled {
		t.Errorf("the heap has grown by %d bytes", grown)
	}
	if l.LaneID(long+"1") == l.LaneID(long+"2") || l.LaneID(long) != l.LaneID(long[:len(long)-1]+"x") {
		t.Error("long keys are not told apart, or not always told the same")
	}
}

// K1, the kind of it: ten thousand keys at once, all of which wait or hold, share the
// overflow lane, and none of them is lost.
func TestK1KeysInUse(t *testing.T) {
	bubble(t, func(c *Config) { limited(3000)(c); c.MaxLimit, c.MaxLanes = 3000, 100 }, func(t *testing.T, l *Controller) {
		var wg sync.WaitGroup
		for i := range 3000 {
			wg.Go(func() {
				lease := take(t, l, fmt.Sprint("bogus-", i), 1)
				time.Sleep(time.Second)
				lease.Release()
			})
		}
		time.Sleep(500 * time.Millisecond)
		s := l.Snapshot()
		if s.LaneCount != 101 || s.Overflowed != 2900 || s.Inflight != 3000 {
			t.Errorf("%d lanes, %d in the overflow, %d in flight", s.LaneCount, s.Overflowed, s.Inflight)
		}
		for _, ln := range s.LaneTenants {
			if ln.Lane == "overflow" && ln.Inflight != 2900 {
				t.Errorf("%+v", ln)
			}
		}
		wg.Wait()
	})
}

// K5: what is refused and what only probes makes no lane, and a full table loses none by
// it. (That a key which nobody has does not come as far as here is a test of the gateway's.)
func TestK5NoLaneForWhatIsRefused(t *testing.T) {
	l := enforcing(t, func(c *Config) { limited(10)(c); c.MaxLanes = 10 })
	before := make(map[string]*lane)
	for i := range 10 {
		tenant := fmt.Sprint("known-", i)
		take(t, l, tenant, 1).Release()
		before[tenant] = l.lanes.peek(tenant)
	}
	for i := range 5000 {
		tenant := fmt.Sprint("fake-", i)
		ctx := gate.WithFlow(context.Background(), tenant, 1)
		reject(t, l, gate.Request{Flow: tenant, Cost: 1001})
		l.Probe(ctx, 6)
		l.NoTarget(ctx, 6)
		l.LaneID(tenant)
		if l.lanes.peek(tenant) != nil {
			t.Fatal("it has a lane")
		}
	}
	if n := l.Snapshot().LaneCount; n != 10 {
		t.Errorf("%d lanes, there were 10", n)
	}
	for tenant, ln := range before {
		if l.lanes.peek(tenant) != ln {
			t.Errorf("%s has lost its lane", tenant)
		}
	}
}

// K6: fifty made-up identities get fifty turns of fifty-one. That is the limit of fairness
// by identity; a weight for whoever is known, or a flow for the group, is the way out.
func TestK6InventedIdentities(t *testing.T) {
	share := func(honest string, weight int, flow func(i int) string) float64 {
		served := 0
		bubble(t, func(c *Config) { limited(10)(c); c.MaxWait = time.Hour }, func(t *testing.T, l *Controller) {
			c := newCrowd(t, l)
			holder := take(t, l, "holder", 10)
			for i := range 50 {
				for j := range 10 {
					c.ask(fmt.Sprint("bad", i, "-", j), gate.Request{Flow: flow(i), Cost: 1})
				}
			}
			for j := range 100 {
				c.ask(fmt.Sprint("good", j), gate.Request{Flow: honest, Cost: 1, Weight: weight})
			}
			holder.Release()
			synctest.Wait()
			for i := 0; i < 100; i++ {
				if strings.HasPrefix(c.granted[i], "good") {
					served++
				}
				c.release(c.granted[i])
			}
			c.releaseAll()
		})
		return float64(served) / 100
	}
	each := func(i int) string { return fmt.Sprint("bad", i) }
	alone := share("good", 1, each)
	weighted := share("good", 50, each)
	grouped := share("good", 1, func(int) string { return "one group" })
	t.Logf("of 100 turns the honest tenant has %.0f, with a weight of 50 %.0f, against one group %.0f", 100*alone, 100*weighted, 100*grouped)
	if alone > 0.05 || weighted < 0.4 || grouped < 0.4 {
		t.Errorf("shares %.2f, %.2f, %.2f", alone, weighted, grouped)
	}
}

// K7: a full table of idle lanes makes way for whoever comes, an idle lane that was used
// lately and one in use stay; when all are in use newcomers share one lane and are served.
func TestK7FullTable(t *testing.T) {
	l := enforcing(t, func(c *Config) { limited(200)(c); c.MaxLanes = 100 })
	held := take(t, l, "attacker-0", 1)
	for i := range 100 {
		take(t, l, fmt.Sprint("attacker-", i), 1).Release()
	}
	take(t, l, "honest", 1).Release()
	if l.lanes.peek("honest") == nil || l.lanes.peek("attacker-0") == nil {
		t.Error("the honest tenant has no lane, or one in use was evicted")
	}
	honest := l.lanes.peek("honest")
	for i := range 300 { // its own flood does not reset what is in use
		take(t, l, fmt.Sprint("flood-", i), 1).Release()
		take(t, l, "honest", 1).Release() // and who comes again and again stays
	}
	if l.lanes.peek("honest") != honest || l.lanes.peek("attacker-0") == nil {
		t.Error("a lane that is used was evicted")
	}
	held.Release()
	var leases []gate.Lease
	for i := range 150 {
		leases = append(leases, take(t, l, fmt.Sprint("busy-", i), 1)) // never refused for want of a lane
	}
	if s := l.Snapshot(); s.LaneCount != 101 || s.Overflowed != 50 {
		t.Errorf("%d lanes, %d overflowed", s.LaneCount, s.Overflowed)
	}
	for _, lease := range leases {
		lease.Release()
	}
	take(t, l, "later", 1).Release()
	if l.lanes.peek("later") == nil {
		t.Error("there is room in the table, and a newcomer has no lane of its own")
	}
	wantEmpty(t, l)
}

// K7, the overflow lane is one lane: its bounds are those of a lane, and no tenant can have
// its name.
func TestK7OverflowIsALane(t *testing.T) {
	bubble(t, func(c *Config) { limited(1)(c); c.MaxLanes, c.MaxQueueCount = 1, 2 }, func(t *testing.T, l *Controller) {
		c := newCrowd(t, l)
		holder := take(t, l, "first", 1)
		for i := range 3 {
			c.ask(fmt.Sprint(i), gate.Request{Flow: fmt.Sprint("tenant-", i), Cost: 1})
		}
		c.wantReason("2", gate.TenantQueueFull)
		if got := rejection(t, c.err("2")).Lane; got != "overflow" {
			t.Errorf("lane %q", got)
		}
		if kept(reserved+overflow) == reserved+overflow || l.LaneID(reserved+overflow) == "overflow" {
			t.Error("a tenant can have the name of the overflow lane")
		}
		holder.Release()
		synctest.Wait()
		c.releaseAll()
	})
}

// K10: when the attack is over, nothing is held, and the heap is as before
// within a tenth.
func TestK10NothingIsKept(t *testing.T) {
	bubble(t, func(c *Config) { limited(4)(c); c.MaxQueueCount = 100_000; c.MaxQueueCost = 100_000 }, func(t *testing.T, l *Controller) {
		heap := func() int64 {
			var m runtime.MemStats
			for range 3 {
				runtime.GC()
			}
			runtime.ReadMemStats(&m)
			return int64(m.HeapAlloc)
		}
		attack := func() {
			var wg sync.WaitGroup
			for i := range 5000 {
				wg.Go(func() {
					lease, err := l.Acquire(context.Background(), gate.Request{Flow: fmt.Sprint(i), Cost: 1})
					if err == nil {
						time.Sleep(time.Millisecond)
						lease.Release()
					}
				})
			}
			wg.Wait()
		}
		attack() // once for what is made once
		before := heap()
		attack()
		if grown := heap() - before; grown > before/10 && !raceEnabled {
			t.Errorf("the heap has grown by %d bytes, it was %d", grown, before)
		}
	})
}

// K12: nothing that a client sends moves it to another lane, class or price: the gate
// reads no header, and path and content type are not the tenant.
func TestK12NothingOfTheClientsIsRead(t *testing.T) {
	l := enforcing(t, limited(100))
	lease, err := l.Acquire(context.Background(), gate.Request{Path: "/victim", Route: "victim", ContentType: "victim", Method: "victim", Bytes: 1})
	if err != nil {
		t.Fatal(err)
	}
	if s := l.Snapshot(); len(s.LaneTenants) != 1 || s.LaneTenants[0].Lane != "anonymous" || s.KeyMissing != 1 || s.InflightCost != 6 {
		t.Errorf("%+v", s)
	}
	lease.Release()
}

// H12: callers without a tenant share one lane, and are counted.
func TestH12AnonymousLane(t *testing.T) {
	l := enforcing(t, limited(100))
	var leases []gate.Lease
	for range 10 {
		leases = append(leases, take(t, l, "", 1))
	}
	s := l.Snapshot()
	if s.LaneCount != 1 || s.KeyMissing != 10 || s.LaneTenants[0] != (LaneSnapshot{Lane: "anonymous", Inflight: 10}) {
		t.Errorf("%+v", s)
	}
	for _, lease := range leases {
		lease.Release()
	}
}

// K16: a thousand health checks at once, as many as the cap are let in.
func TestK16TheCapOfExemptPaths(t *testing.T) {
	l := enforcing(t, func(c *Config) { limited(1)(c); c.Exempt = []string{"/livez"} })
	defer take(t, l, "a", 1).Release()
	var in, refused atomic.Int64
	var wg sync.WaitGroup
	end := make(chan struct{})
	for range 1000 {
		wg.Go(func() {
			lease, err := l.Acquire(context.Background(), gate.Request{Path: "/livez"})
			if err == nil {
				in.Add(1)
				<-end
			} else {
				refused.Add(1)
			}
			lease.Release()
		})
	}
	for in.Load()+refused.Load() < 1000 {
		runtime.Gosched()
	}
	if in.Load() != 256 || l.Snapshot().ExemptInflight != 256 {
		t.Errorf("%d are in, %d refused: want 256 and the rest", in.Load(), refused.Load())
	}
	close(end)
	wg.Wait()
}

// K16: exempt paths are served under critical pressure and with a full queue, as many as
// MaxExempt at once, and cost nothing.
func TestK16ExemptPaths(t *testing.T) {
	for _, mode := range []gate.Mode{gate.Enforce, gate.Shadow} {
		l := enforcing(t, func(c *Config) {
			limited(1)(c)
			c.Mode, c.Exempt, c.MaxExempt, c.MaxQueueCount = mode, []string{"/livez"}, 3, 0
		})
		l.pressed(pressure.Critical)
		holder := take(t, l, "a", 1)
		live := gate.Request{Path: "/livez", Flow: "a", Cost: 1000}
		var leases []gate.Lease
		for range 3 {
			lease, err := l.Acquire(context.Background(), live)
			if err != nil {
				t.Fatal(err)
			}
			leases = append(leases, lease)
		}
		if s := l.Snapshot(); s.ExemptInflight != 3 || s.InflightCost != 1 || s.LaneTenants[0].Inflight != 1 {
			t.Errorf("%v: %+v", mode, s)
		}
		lease, err := l.Acquire(context.Background(), live)
		if mode == gate.Shadow {
			if err != nil || l.Snapshot().WouldRefuse != 1 {
				t.Errorf("shadow: %v, %+v", err, l.Snapshot())
			}
			leases = append(leases, lease)
		} else if rej := rejection(t, err); rej.Reason != gate.QueueFull || rej.Limit != 3 || rej.Unit != "exempt requests" {
			t.Errorf("%v", rej)
		}
		if err := second(l.Acquire(context.Background(), gate.Request{Path: "/livez/", Cost: 1})); mode == gate.Enforce && err == nil {
			t.Error("a path that is only like an exempt one was exempt")
		}
		if leases[0].Grow(5) != nil {
			t.Error("an exempt lease holds no cost")
		}
		leases[0].Shrink(5)
		gate.Observe(leases[0].In(context.Background(), l), gate.Sample{FirstByte: 1, Status: 200})
		for _, lease := range append(leases, holder) {
			lease.Release()
			lease.Release()
		}
		l.Close()
		if err := second(l.Acquire(context.Background(), live)); !errors.Is(err, gate.ShuttingDown) {
			t.Errorf("after Close: %v", err)
		}
	}
}
