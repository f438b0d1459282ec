package lanes

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

// The names that reports go by.
func TestSnapshotNames(t *testing.T) {
	bubble(t, func(c *Config) { limited(10)(c); c.MaxQueueCount = 1 }, func(t *testing.T, l *Controller) {
		c := newCrowd(t, l)
		c.ask("a", gate.Request{Flow: "a", Cost: 10})
		c.ask("b", gate.Request{Flow: "b", Cost: 4})
		c.ask("c", gate.Request{Flow: "b", Cost: 4})
		time.Sleep(1500 * time.Millisecond)
		l.Probe(gate.WithFlow(context.Background(), "a", 1), 6)
		text, err := json.Marshal(l.Snapshot())
		if err != nil {
			t.Fatal(err)
		}
		var got map[string]any
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]any{
			"mode": "enforce", "virtual_lanes": true, "probes": "enforce", "algorithm": "fixed", "limit": 10.0, "min_limit": 8.0,
			"initial_limit": 10.0, "max_limit": 1000.0, "measuring": false, "limit_before": 0.0, "inflight": 1.0, "inflight_cost": 10.0,
			"exempt_inflight": 0.0, "queued_count": 1.0, "queued_cost": 4.0, "oldest_wait_s": 1.5, "utilization": 0.0,
			"pressure_severity": "normal", "short_latency_s": 0.0, "long_latency_s": 0.0, "latency_source": "", "gradient": 0.0,
			"lane_count": 2.0, "lane_queued_count": 1.0, "lane_queued_cost": 4.0, "key_missing_total": 0.0, "overflow_total": 0.0,
			"probes_total": 1.0, "probe_skips_total": 1.0, "probe_would_skips_total": 0.0, "probe_errors_total": 0.0,
			"cost_errors_total": 0.0, "admitted_total": 1.0, "queued_total": 1.0, "shed_total": 1.0, "canceled_total": 0.0,
			"would_admit_total": 0.0, "would_queue_total": 0.0, "would_refuse_total": 0.0,
		} {
			if got[name] != want {
				t.Errorf("%s is %v, want %v", name, got[name], want)
			}
			delete(got, name)
		}
		if n := got["sheds_by_reason"].(map[string]any)["tenant_queue_full"]; n != 1.0 {
			t.Errorf("sheds %v", got["sheds_by_reason"])
		}
		lanes := map[string]map[string]any{}
		for _, ln := range got["lane_tenants"].([]any) {
			m := ln.(map[string]any)
			lanes[m["lane"].(string)] = m
		}
		a, b := lanes[l.LaneID("a")], lanes[l.LaneID("b")]
		if a["inflight"] != 1.0 || a["probe_skips"] != 1.0 || b["queued_count"] != 1.0 || b["queued_cost"] != 4.0 || b["inflight"] != 0.0 {
			t.Errorf("a %v, b %v", a, b)
		}
		delete(got, "sheds_by_reason")
		delete(got, "lane_tenants")
		if len(got) > 0 {
			t.Errorf("and %v", got)
		}
		c.releaseAll()
	})
}

// I7: each reason that a controller can refuse for is counted once, and their sum is what
// was refused.
func TestI7EveryReasonIsCounted(t *testing.T) {
	bubble(t, func(c *Config) { limited(10)(c); c.MaxQueueCount = 1 }, func(t *testing.T, l *Controller) {
		c := newCrowd(t, l)
		c.ask("holder", gate.Request{Flow: "a", Cost: 10})
		c.ask("dear", gate.Request{Flow: "a", Cost: 1001})
		c.ask("queued", gate.Request{Flow: "a", Class: gate.Bulk, Cost: 1})
		c.ask("lane full", gate.Request{Flow: "a", Class: gate.Bulk, Cost: 1})
		c.ask("chat", gate.Request{Flow: "a", Class: gate.Interactive, Cost: 1}) // takes its place
		ctx, cancel := context.WithCancel(context.Background())
		c.askIn(ctx, "left", gate.Request{Flow: "b", Cost: 1})
		cancel()
		late, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		c.askIn(late, "late", gate.Request{Flow: "c", Cost: 1})
		time.Sleep(time.Minute)
		for i := range 9 {
			c.ask(string(rune('A'+i)), gate.Request{Flow: string(rune('A' + i)), Cost: 1})
		}
		l.Close()
		time.Sleep(time.Second)
		for name, want := range map[string]gate.Reason{
			"dear": gate.CostExceedsLimit, "queued": gate.Displaced, "lane full": gate.TenantQueueFull, "chat": gate.QueueTimeout,
			"left": gate.Canceled, "late": gate.Deadline, "A": gate.ShuttingDown, "I": gate.QueueFull,
		} {
			c.wantReason(name, want)
			if rej := rejection(t, c.err(name)); rej.Gate != "lanes" || want != gate.Canceled && rej.Advice == "" {
				t.Errorf("%s: %+v", name, rej)
			}
		}
		s := l.Snapshot()
		sum := int64(0)
		for _, n := range s.ShedReasons {
			sum += n
		}
		if sum != s.Sheds || s.Sheds+s.Canceled != int64(len(c.errs)) || s.Canceled != 1 || len(s.ShedReasons) != 7 {
			t.Errorf("%d shed, %d left, %v of %d refusals", s.Sheds, s.Canceled, s.ShedReasons, len(c.errs))
		}
		c.releaseAll()
	})
}

// Admitted counts every lease once, however it was had.
func TestAdmittedCounts(t *testing.T) {
	bubble(t, func(c *Config) { virtual(c); c.InitialLimit = 8 }, func(t *testing.T, l *Controller) {
		c := newCrowd(t, l)
		for range 500 {
			take(t, l, "a", 1).Release()
		}
		var leases []gate.Lease
		for range 8 {
			leases = append(leases, take(t, l, "b", 1))
		}
		c.ask("waits", gate.Request{Flow: "c", Cost: 1})
		leases[0].Release()
		for _, lease := range leases[1:] {
			lease.Release()
		}
		time.Sleep(time.Millisecond)
		c.releaseAll()
		if n := l.Snapshot().Admitted; n != 509 {
			t.Errorf("%d admitted, want 509", n)
		}
	})
}
