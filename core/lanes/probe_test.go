package lanes

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

// asks is a probe below a parent's lease.
func asks(l *Controller, parent gate.Lease, costs ...int64) []bool {
	return l.Probe(parent.In(context.Background(), l), costs...)
}

func wantYes(t *testing.T, got []bool, want ...bool) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// Defect 13: N probes are asked as one set and share what is free, and the parent's own
// lease does not count against its children.
func TestDefect13ProbesAreASet(t *testing.T) {
	l := enforcing(t, limited(20))
	parent := take(t, l, "a", 6)
	wantYes(t, asks(l, parent, 6, 6, 6), true, true, true)                    // 18 of 20
	wantYes(t, asks(l, parent, 6, 6, 6, 6, 2), true, true, true, false, true) // a smaller one fits still
	wantYes(t, asks(l, parent, 20), true)                                     // alone but for its parent
	wantYes(t, asks(l, parent, 21, 1), true, false)                           // above the limit it runs alone
	wantYes(t, asks(l, parent, 1001, 1), false, true)                         // above the maximum never
	other := take(t, l, "b", 10)
	wantYes(t, asks(l, parent, 6, 6), true, false) // 4 are free beside the parent's 6
	wantYes(t, asks(l, parent, 10), true)
	wantYes(t, asks(l, parent, 11), false)
	wantYes(t, asks(l, other, 10, 4, 1), true, true, false)
	for range 3 { // nothing is held
		wantYes(t, asks(l, parent, 10), true)
	}
	if s := l.Snapshot(); s.InflightCost != 16 || s.Inflight != 2 || s.QueuedCount != 0 {
		t.Errorf("%+v", s)
	}
	parent.Release()
	other.Release()
	wantEmpty(t, l)
}

// While anybody waits, a child has what its parent holds and no more: a full lane skips.
func TestProbeWhileOthersWait(t *testing.T) {
	bubble(t, limited(20), func(t *testing.T, l *Controller) {
		c := newCrowd(t, l)
		parent := take(t, l, "a", 6)
		c.ask("wide", gate.Request{Flow: "b", Cost: 20}) // 14 are free, and wide waits for 20
		wantYes(t, asks(l, parent, 6, 6), true, false)
		wantYes(t, asks(l, parent, 3, 3, 1), true, true, false)
		parent.Release()
		synctest.Wait()
		if !c.holds("wide") {
			t.Error("a probe held something")
		}
		c.releaseAll()
	})
}

// A parent without a lease, or whose lease is over, is asked for by its flow, and makes no
// lane.
func TestProbeWithoutALease(t *testing.T) {
	l := enforcing(t, limited(20))
	ctx := gate.WithFlow(context.Background(), "a", 1)
	wantYes(t, l.Probe(ctx, 15, 5, 5), true, true, false)
	if s := l.Snapshot(); s.LaneCount != 0 || s.ProbeSkips != 1 {
		t.Errorf("%d lanes, %d skips", s.LaneCount, s.ProbeSkips)
	}
	parent := take(t, l, "a", 6)
	held := parent.In(ctx, l)
	parent.Release()
	wantYes(t, l.Probe(held, 15, 5, 5), true, true, false)
	if s := l.Snapshot(); s.ProbeSkips != 2 || s.LaneTenants[0] != (LaneSnapshot{Lane: l.LaneID("a"), ProbeSkips: 1}) {
		t.Errorf("%+v", s)
	}
}

// Skips are counted per lane and in total, and so are the targets asked for.
func TestProbeSkipsAreCounted(t *testing.T) {
	l := enforcing(t, limited(10))
	a, b := take(t, l, "a", 5), take(t, l, "b", 5)
	asks(l, a, 5, 5, 5)
	asks(l, b, 6)
	asks(l, b, 0) // a small call costs 6
	s := l.Snapshot()
	skips := map[string]int64{}
	for _, ln := range s.LaneTenants {
		skips[ln.Lane] = ln.ProbeSkips
	}
	if s.ProbeTargets != 5 || s.ProbeSkips != 4 || skips[l.LaneID("a")] != 2 || skips[l.LaneID("b")] != 2 {
		t.Errorf("%d targets, %d skips, %v", s.ProbeTargets, s.ProbeSkips, skips)
	}
	a.Release()
	b.Release()
}

// In shadow mode a probe says yes, and counts what enforce would have skipped: by what the
// parent would hold, also when it waits in the books.
func TestProbeShadow(t *testing.T) {
	l := enforcing(t, func(c *Config) { limited(10)(c); c.Mode = gate.Shadow })
	a := take(t, l, "a", 6)
	wantYes(t, asks(l, a, 6, 4, 1), true, true, true)
	b := take(t, l, "b", 6) // waits in the books
	wantYes(t, asks(l, b, 6, 1), true, true)
	if s := l.Snapshot(); s.ProbeWouldSkips != 2 || s.ProbeSkips != 0 || s.WouldQueue != 1 {
		t.Errorf("%+v", s)
	}
	a.Release()
	wantYes(t, asks(l, b, 6, 4), true, true)
	if s := l.Snapshot(); s.ProbeWouldSkips != 2 {
		t.Errorf("%d would be skipped", s.ProbeWouldSkips)
	}
	b.Release()
	wantEmpty(t, l)
}

// Without lanes the parent's lease covers its targets: every probe says yes.
func TestProbeWithoutLanes(t *testing.T) {
	l := enforcing(t, func(c *Config) { limited(4)(c); c.VirtualLanes = false })
	parent := take(t, l, "a", 4)
	wantYes(t, asks(l, parent, 1000, 1000), true, true)
	if s := l.Snapshot(); s.ProbeTargets != 0 || s.ProbeSkips != 0 || s.Probes != "off" {
		t.Errorf("%+v", s)
	}
	parent.Release()
}

// After Close a parent that was admitted may still do what it was admitted for.
func TestProbeAfterClose(t *testing.T) {
	l := enforcing(t, limited(20))
	parent := take(t, l, "a", 6)
	l.Close()
	wantYes(t, asks(l, parent, 6, 1), true, false)
	parent.Release()
}

// A lease that grew or shrank covers what it holds then.
func TestProbeAfterGrowth(t *testing.T) {
	l := enforcing(t, limited(20))
	parent, other := take(t, l, "a", 6), take(t, l, "b", 10)
	if err := parent.Grow(4); err != nil {
		t.Fatal(err)
	}
	wantYes(t, asks(l, parent, 10, 1), true, false)
	parent.Shrink(8)
	other.Release()
	wantYes(t, asks(l, parent, 20, 1), true, false)
	parent.Release()
	wantEmpty(t, l)
}

// A probe allocates its answer and nothing else.
func TestProbeAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates by itself")
	}
	l := enforcing(t, limited(20))
	parent := take(t, l, "a", 6)
	defer parent.Release()
	ctx := parent.In(context.Background(), l)
	if n := testing.AllocsPerRun(100, func() { l.Probe(ctx, 6, 6, 6) }); n > 2 {
		t.Errorf("%v allocations", n)
	}
}

// A fan-out that is left without a target is refused as others are: when to come back is
// measured, the refusal is counted and has a line, and nobody's name is in it.
func TestNoTarget(t *testing.T) {
	const tenant = "tenant-with-a-name"
	var out bytes.Buffer
	bubble(t, func(c *Config) {
		limited(10)(c)
		c.Logger = slog.New(slog.NewJSONHandler(&out, nil))
	}, func(t *testing.T, l *Controller) {
		for range 20 { // what is here stays for 15 s
			lease := take(t, l, "b", 9)
			time.Sleep(15 * time.Second)
			lease.Release()
		}
		parent, other := take(t, l, tenant, 1), take(t, l, "b", 9)
		ctx := gate.WithClass(parent.In(context.Background(), l), gate.Interactive)
		wantYes(t, l.Probe(ctx, 7, 6), false, false)
		rej := l.NoTarget(ctx, 7, 6)
		if rej.Reason != gate.NoTarget || rej.Status() != 503 || rej.Gate != "lanes" || rej.Lane != l.LaneID(tenant) ||
			rej.Class != gate.Interactive || rej.Limit != 10 || rej.Unit != unit {
			t.Errorf("%+v", rej)
		}
		if rej.RetryAfter < 10*time.Second || rej.RetryAfter > 60*time.Second {
			t.Errorf("retry after %v, where what is here stays for 15 s", rej.RetryAfter)
		}
		if s := l.Snapshot(); s.Sheds != 1 || s.ShedReasons[gate.NoTarget] != 1 || s.ProbeSkips != 2 || s.InflightCost != 10 {
			t.Errorf("%+v", s)
		}
		var line map[string]any
		if err := json.Unmarshal(out.Bytes(), &line); err != nil {
			t.Fatalf("%v: %s", err, out.String())
		}
		if line["reason"] != "no_target" || line["inflight_cost"] != 10.0 || line["retry_after_s"] != rej.RetryAfter.Seconds() {
			t.Errorf("%v", line)
		}
		for _, f := range []gate.Format{gate.Problem, gate.OpenAI, gate.Anthropic} {
			if body, _ := rej.Render(f); strings.Contains(string(body)+out.String(), tenant) {
				t.Errorf("the tenant is in %s or %s", body, out.String())
			}
		}
		parent.Release()
		other.Release()
	})
}

// The lane of a refusal without a lease is that of the flow, and there is none without
// lanes. The dearer the cheapest target, and the more waits, the later.
func TestNoTargetWithoutALease(t *testing.T) {
	ctx := gate.WithFlow(context.Background(), "a", 1)
	for _, lanes := range []bool{false, true} {
		bubble(t, func(c *Config) { limited(10)(c); c.VirtualLanes = lanes }, func(t *testing.T, l *Controller) {
			rej := l.NoTarget(ctx)
			if want := map[bool]string{true: l.LaneID("a")}[lanes]; rej.Lane != want || rej.RetryAfterSeconds() == "" {
				t.Errorf("lane %q, want %q; Retry-After %q", rej.Lane, want, rej.RetryAfterSeconds())
			}
			for range 20 {
				lease := take(t, l, "b", 10)
				time.Sleep(4 * time.Second)
				lease.Release()
			}
			least := func(costs ...int64) time.Duration { // without jitter, which only adds
				d := time.Hour
				for range 200 {
					d = min(d, l.NoTarget(ctx, costs...).RetryAfter)
				}
				return d
			}
			small, large := least(1, 500), least(400, 500)
			if small >= large {
				t.Errorf("after %v for a cost of 1, after %v for one of 400", small, large)
			}
			if got := l.Snapshot(); got.LaneCount > 1 {
				t.Errorf("a refusal made a lane: %+v", got.LaneTenants)
			}
		})
	}
}
