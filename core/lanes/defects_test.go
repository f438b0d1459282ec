package lanes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/pressure"
)

// The defects of a gateway of the same kind, by their numbers: none may be here.

// Defect 8: lanes take turns whatever order they were made in; all the room that is free
// is given out in one go; newcomers stand behind those who wait; and a wide head gets its
// room.
func TestDefect8LanesTakeTurns(t *testing.T) {
	bubble(t, limited(8), func(t *testing.T, l *Controller) {
		c := newCrowd(t, l)
		holder := take(t, l, "holder", 8)
		for _, tenant := range []string{"a", "b", "c", "d"} {
			for i := range 4 {
				c.ask(fmt.Sprint(tenant, i), gate.Request{Flow: tenant, Cost: 1})
			}
		}
		c.ask("wide", gate.Request{Flow: "e", Cost: 8})
		holder.Release()
		synctest.Wait()
		if got := fmt.Sprint(c.granted); len(c.granted) != 8 {
			t.Fatalf("of 8 that are free: %s", got)
		}
		turns := map[byte]int{}
		for _, name := range c.granted {
			turns[name[0]]++
		}
		for _, tenant := range "abcd" {
			if turns[byte(tenant)] != 2 {
				t.Errorf("granted %v, want 2 of each", c.granted)
			}
		}
		c.ask("newcomer", gate.Request{Flow: "f", Cost: 1})
		if !c.waits("newcomer") {
			t.Error("a newcomer did not stand behind those who wait")
		}
		for i := 0; i < len(c.granted); i++ {
			c.release(c.granted[i])
		}
		if len(c.granted) != 18 {
			t.Errorf("%d of 18 were granted: %v", len(c.granted), c.granted)
		}
	})
}

// Defect 8, its starvation: a wide head is passed at most twice.
func TestDefect8WideHeadIsServed(t *testing.T) {
	bubble(t, func(c *Config) { limited(8)(c); c.MaxWait = time.Hour }, func(t *testing.T, l *Controller) {
		c := newCrowd(t, l)
		for i := range 8 {
			c.ask(fmt.Sprint("old", i), gate.Request{Flow: "a", Cost: 1})
		}
		c.ask("wide", gate.Request{Flow: "b", Cost: 8})
		for i := range 40 {
			c.ask(fmt.Sprint("new", i), gate.Request{Flow: "c", Cost: 1})
		}
		// 7 go before it, since its turn costs 8 of theirs, and 2 pass; then 8 must end.
		for i := 0; !c.holds("wide"); i++ {
			if i == 20 {
				t.Fatalf("20 leases have ended, and the wide head waits still: %v", c.granted)
			}
			c.release(c.granted[i])
		}
		c.releaseAll()
	})
}

// Defect 9: who waits longer than any lane would stand idle is not killed by eviction,
// and a thousand lanes do not hold a thousand times what one may.
func TestDefect9(t *testing.T) {
	bubble(t, func(c *Config) { limited(1)(c); c.MaxWait, c.MaxLanes = time.Hour, 10 }, func(t *testing.T, l *Controller) {
		c := newCrowd(t, l)
		c.ask("holder", gate.Request{Flow: "a", Cost: 1})
		c.ask("patient", gate.Request{Flow: "b", Cost: 1})
		for i := range 50 {
			time.Sleep(time.Minute)
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			c.askIn(ctx, fmt.Sprint(i), gate.Request{Flow: fmt.Sprint("other", i), Cost: 1})
			time.Sleep(2 * time.Second)
			cancel()
		}
		if !c.waits("patient") {
			t.Errorf("after %v: %v", 50*time.Minute, c.err("patient"))
		}
		c.release("holder")
		if !c.holds("patient") {
			t.Error("the patient one was not granted")
		}
		c.releaseAll()
	})
	bubble(t, func(c *Config) { limited(1)(c); c.MaxWait = time.Hour }, func(t *testing.T, l *Controller) {
		holder := take(t, l, "a", 1)
		for i := range 1000 {
			for range 3 {
				go func() { _, _ = l.Acquire(context.Background(), gate.Request{Flow: fmt.Sprint(i), Cost: 10}) }()
			}
		}
		synctest.Wait()
		s := l.Snapshot()
		if s.QueuedCount > 8*128 || s.QueuedCost > 8*2000 || s.QueuedCount < 1000 || s.LaneQueuedCount != s.QueuedCount {
			t.Errorf("%d wait, at a cost of %d", s.QueuedCount, s.QueuedCost)
		}
		l.Close()
		holder.Release()
		synctest.Wait()
	})
}

// Defect 10: in shadow mode lanes have their books, probes say so and are counted, and the
// snapshot tells which of it is in force.
func TestDefect10ShadowLanes(t *testing.T) {
	for _, c := range []struct {
		mode    gate.Mode
		lanes   bool
		probes  string
		virtual bool
	}{
		{gate.Off, true, "off", false}, {gate.Shadow, false, "off", false}, {gate.Shadow, true, "shadow", true},
		{gate.Enforce, false, "off", false}, {gate.Enforce, true, "enforce", true},
	} {
		l := enforcing(t, func(cfg *Config) { limited(8)(cfg); cfg.Mode, cfg.VirtualLanes = c.mode, c.lanes })
		ctx := context.Background()
		lease, _ := l.Acquire(ctx, gate.Request{Flow: "a", Cost: 4})
		other, _ := l.Acquire(ctx, gate.Request{Flow: "b", Cost: 4})
		ctx = lease.In(ctx, l)
		yes := l.Probe(ctx, 4, 4)
		s := l.Snapshot()
		if s.Probes != c.probes || s.VirtualLanes != c.virtual {
			t.Errorf("%v, lanes %v: probes %q, virtual_lanes %v", c.mode, c.lanes, s.Probes, s.VirtualLanes)
		}
		skips, would := int64(0), int64(0)
		switch c.probes {
		case "enforce":
			skips = 1
		case "shadow":
			would = 1
		}
		if yes[0] != true || yes[1] != (skips == 0) || s.ProbeSkips != skips || s.ProbeWouldSkips != would {
			t.Errorf("%v, lanes %v: %v, %d skips, %d would be", c.mode, c.lanes, yes, s.ProbeSkips, s.ProbeWouldSkips)
		}
		lease.Release()
		other.Release()
		wantEmpty(t, l)
	}
}

// broken is a context that panics when it is asked for anything.
type broken struct{ context.Context }

func (broken) Value(any) any { panic("broken") }

// Defect 11: a probe works on purpose, and one that goes wrong inside says yes and is
// counted.
func TestDefect11ProbeFailsOpen(t *testing.T) {
	l := enforcing(t, limited(4))
	defer take(t, l, "a", 4).Release()
	if yes := l.Probe(broken{context.Background()}, 1, 1); !yes[0] || !yes[1] {
		t.Errorf("%v, want yes", yes)
	}
	if s := l.Snapshot(); s.ProbeErrors != 1 || s.ProbeSkips != 0 || s.ProbeTargets != 0 {
		t.Errorf("%+v", s)
	}
	if yes := l.Probe(context.Background(), 1); yes[0] {
		t.Error("there is no room, and the answer is yes")
	}
	if yes := l.Probe(context.Background()); len(yes) != 0 {
		t.Errorf("%v for nothing", yes)
	}
}

// Defect 12: probes are no samples, complete nothing, and use nothing. (That the limit is
// not moved by them is a part of TestD9D10NotFooled.)
func TestDefect12ProbesAreNoSamples(t *testing.T) {
	bubble(t, virtual, func(t *testing.T, l *Controller) {
		lease := take(t, l, "a", 6)
		ctx := lease.In(context.Background(), l)
		for range 1000 {
			l.Probe(ctx, 6, 6, 6)
		}
		l.mu.Lock()
		seen, samples := l.law.seen, l.law.trend.n
		l.mu.Unlock()
		if seen != (window{}) || samples != 0 {
			t.Errorf("a window saw %+v, %d samples", seen, samples)
		}
		if s := l.Snapshot(); s.InflightCost != 6 || s.Inflight != 1 || s.Admitted != 1 {
			t.Errorf("%+v", s)
		}
		lease.Release()
	})
}

// Defect 14: bytes are charged once, and the price does not depend on their shape.
func TestDefect14Price(t *testing.T) {
	if got := Price(Features{Bytes: 192<<10 + 1, Messages: 1, Stream: true}); got != 1+13+1+1+1 {
		t.Errorf("192 KiB cost %d", got)
	}
	l := enforcing(t, nil)
	lease, err := l.Acquire(context.Background(), gate.Request{Bytes: 300 << 10}) // was oversized by default
	if err != nil {
		t.Fatal(err)
	}
	if n := l.Snapshot().InflightCost; n != 24 {
		t.Errorf("300 KiB cost %d", n)
	}
	lease.Release()
}

// Defect 15: what can never be served is told so at once, without a time to come back.
func TestDefect15CanNeverBeServed(t *testing.T) {
	for _, lanes := range []bool{false, true} {
		l := enforcing(t, func(c *Config) { limited(64)(c); c.MaxLimit, c.VirtualLanes = 100, lanes })
		rej := reject(t, l, gate.Request{Flow: "a", Cost: 101})
		if rej.Reason != gate.CostExceedsLimit || rej.Status() != 413 || rej.RetryAfterSeconds() != "" || rej.Limit != 100 {
			t.Errorf("%v: status %d, Retry-After %q", rej, rej.Status(), rej.RetryAfterSeconds())
		}
		take(t, l, "a", 100).Release() // above the limit, and alone
	}
}

// Defect 16: no tenant's key is in a snapshot or an error.
func TestDefect16NoTenantOutside(t *testing.T) {
	const secret = "tenant-with-a-name"
	l := enforcing(t, func(c *Config) { limited(1)(c); c.MaxQueueCount = 0 })
	lease := take(t, l, secret, 1)
	defer lease.Release()
	ctx := gate.WithFlow(context.Background(), secret, 1)
	rejections := []error{
		second(l.Acquire(ctx, gate.Request{Cost: 1})), second(l.Acquire(ctx, gate.Request{Cost: 1001})),
		second(l.Acquire(context.Background(), gate.Request{Lane: secret, Cost: 1})), lease.Grow(1),
		l.NoTarget(ctx, 6),
	}
	snapshot, err := json.Marshal(l.Snapshot())
	if err != nil {
		t.Fatal(err)
	}
	texts := []string{string(snapshot), fmt.Sprintf("%+v", l.Snapshot())}
	for _, err := range rejections {
		rej := rejection(t, err)
		texts = append(texts, err.Error(), fmt.Sprintf("%+v", rej))
		for _, f := range []gate.Format{gate.Problem, gate.OpenAI, gate.Anthropic} {
			body, _ := rej.Render(f)
			texts = append(texts, string(body))
		}
		if rej.Lane != l.LaneID(secret) {
			t.Errorf("lane %q, want %q", rej.Lane, l.LaneID(secret))
		}
	}
	for _, text := range texts {
		if strings.Contains(text, secret) {
			t.Errorf("the tenant is in %s", text)
		}
	}
	if other := enforcing(t, virtual); other.LaneID(secret) == l.LaneID(secret) {
		t.Error("two processes give the same id: it can be guessed")
	}
	if !strings.Contains(texts[0], l.LaneID(secret)) {
		t.Errorf("the lane is not in %s", texts[0])
	}
}

// watched is a context that knows who waits for its end.
type watched struct {
	context.Context
	asked, listeners int
}

func (w *watched) Done() <-chan struct{} { w.asked++; return w.Context.Done() }

func (w *watched) AfterFunc(f func()) func() bool {
	w.listeners++
	return context.AfterFunc(w.Context, f)
}

// Defect 17: who is admitted at once leaves neither a listener nor a timer behind, though
// there is a deadline and a bound of the wait. Who waits has both, or this test sees
// nothing.
func TestDefect17NoStrayTimer(t *testing.T) {
	for _, mode := range []gate.Mode{gate.Enforce, gate.Shadow} {
		both(t, func(c *Config) { limited(4)(c); c.Mode = mode }, func(t *testing.T, l *Controller) {
			timer := func() bool {
				q := reflect.ValueOf(l.q).Elem()
				return !q.FieldByName("timer").IsNil() || q.FieldByName("armed").Bool() || l.timer != nil
			}
			deadline, cancel := context.WithTimeout(context.Background(), 24*time.Hour)
			defer cancel()
			ctx := &watched{Context: deadline}
			var leases []gate.Lease
			for i := range 4 {
				lease, err := l.Acquire(ctx, gate.Request{Flow: fmt.Sprint(i), Cost: 1})
				if err != nil {
					t.Fatal(err)
				}
				leases = append(leases, lease)
			}
			if ctx.asked+ctx.listeners > 0 || timer() {
				t.Errorf("%d asked for the end of the context, %d listen to it; a timer is set: %v", ctx.asked, ctx.listeners, timer())
			}
			time.Sleep(time.Hour)
			for _, lease := range leases {
				if !lease.Live() {
					t.Error("a lease has ended by itself")
				}
			}
			if mode == gate.Enforce {
				c := newCrowd(t, l)
				c.askIn(ctx, "waits", gate.Request{Flow: "a", Cost: 1})
				if ctx.asked+ctx.listeners == 0 || !timer() {
					t.Error("somebody waits, and no listener or timer is seen")
				}
				leases[0].Release()
				synctest.Wait()
				c.release("waits")
			}
			for _, lease := range leases {
				lease.Release()
			}
		})
		if raceEnabled {
			continue // it allocates by itself
		}
		// A timer or listener of anybody's would take memory. In the first of these nobody is
		// timed, in the other everybody, until a window has timed 64.
		for _, change := range []func(*Config){limited(4), virtual} {
			l := enforcing(t, func(c *Config) { change(c); c.Mode = mode })
			ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
			n := testing.AllocsPerRun(50, func() {
				if lease, err := l.Acquire(ctx, gate.Request{Cost: 1}); err == nil {
					lease.Release()
				}
			})
			cancel()
			if n != 0 {
				t.Errorf("%v: %v allocations for a request with a deadline", mode, n)
			}
		}
	}
}

// Defect 18: pressure is seen without arrivals, while anything is in flight.
func TestDefect18PressureWithoutArrivals(t *testing.T) {
	bubble(t, nil, func(t *testing.T, l *Controller) {
		lease := take(t, l, "a", 1)
		l.pressed(pressure.High)
		time.Sleep(1100 * time.Millisecond)
		if n := l.Snapshot().Limit; n != 51 {
			t.Errorf("limit %d after a window of high pressure, want 51", n)
		}
		l.pressed(pressure.Normal)
		lease.Release()
	})
}

// Defect 19: what waits is bounded by its number and its cost, not by a few MiB of bodies.
func TestDefect19BigBodiesWait(t *testing.T) {
	bubble(t, func(c *Config) { limited(64)(c); c.MaxQueueCost = 100_000 }, func(t *testing.T, l *Controller) {
		c := newCrowd(t, l)
		holder := take(t, l, "holder", 64)
		for i := range 128 {
			c.ask(fmt.Sprint(i), gate.Request{Flow: "a", Bytes: 1 << 20, Buffered: 1 << 20})
		}
		if s := l.Snapshot(); s.QueuedCount != 128 {
			t.Errorf("%d wait, want 128; refused: %v", s.QueuedCount, c.errs)
		}
		l.Close()
		holder.Release()
		synctest.Wait()
	})
}

// A cost function replaces the formula; what goes wrong in it costs the default price and
// is counted.
func TestCostFunction(t *testing.T) {
	var answer func() (int64, error)
	l := enforcing(t, func(c *Config) {
		c.Cost = func(context.Context, gate.Request) (int64, error) { return answer() }
	})
	for _, c := range []struct {
		name   string
		answer func() (int64, error)
		want   int64
		errors int64
	}{
		{"a price", func() (int64, error) { return 40, nil }, 40, 0},
		{"an error", func() (int64, error) { return 40, errors.New("no") }, 6, 1},
		{"a panic", func() (int64, error) { panic("no") }, 6, 2},
		{"nothing", func() (int64, error) { return 0, nil }, 6, 3},
		{"less than nothing", func() (int64, error) { return -5, nil }, 6, 4},
	} {
		answer = c.answer
		lease, err := l.Acquire(context.Background(), gate.Request{Bytes: 100})
		if err != nil {
			t.Fatal(err)
		}
		if s := l.Snapshot(); s.InflightCost != c.want || s.CostErrors != c.errors {
			t.Errorf("%s: costs %d, %d errors; want %d, %d", c.name, s.InflightCost, s.CostErrors, c.want, c.errors)
		}
		lease.Release()
	}
	answer = func() (int64, error) { panic("nobody asks") }
	take(t, l, "a", 3).Release()
	if s := l.Snapshot(); s.CostErrors != 4 {
		t.Error("a request that names its cost was priced")
	}
}
