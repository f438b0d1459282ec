package lanes

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/pressure"
)

// I11: of ten thousand refusals in a second each reason has one line, with what decided
// and without the tenant; the next says how many were left out.
func TestI11LinesOfRefusals(t *testing.T) {
	var out bytes.Buffer
	bubble(t, func(c *Config) {
		limited(1)(c)
		c.MaxQueueCount, c.Logger = 0, slog.New(slog.NewJSONHandler(&out, nil))
	}, func(t *testing.T, l *Controller) {
		holder := take(t, l, "tenant-with-a-name", 1)
		for range 5000 {
			reject(t, l, gate.Request{Flow: "tenant-with-a-name", Cost: 1})
			reject(t, l, gate.Request{Flow: "tenant-with-a-name", Cost: 1001})
		}
		time.Sleep(time.Second)
		reject(t, l, gate.Request{Flow: "tenant-with-a-name", Cost: 1})
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		rejection(t, second(l.Acquire(ctx, gate.Request{Cost: 1}))) // who has left has no line
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if len(lines) != 3 || strings.Contains(out.String(), "tenant-with-a-name") {
			t.Fatalf("%d lines:\n%s", len(lines), out.String())
		}
		var last map[string]any
		if err := json.Unmarshal([]byte(lines[2]), &last); err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]any{
			"gate": "lanes", "reason": "queue_full", "lane": l.LaneID("tenant-with-a-name"), "limit": 1.0, "inflight_cost": 1.0,
			"queued_count": 0.0, "queued_cost": 0.0, "pressure_severity": "normal", "left_out": 4999.0,
		} {
			if last[name] != want {
				t.Errorf("%s is %v, want %v", name, last[name], want)
			}
		}
		reload(t, l, func(c *Config) { c.Logger = nil })
		time.Sleep(2 * time.Second)
		reject(t, l, gate.Request{Flow: "x", Cost: 1})
		if n := strings.Count(out.String(), "\n"); n != 3 {
			t.Errorf("%d lines without a logger", n)
		}
		holder.Release()
	})
}

// A controller goes by the monitor that it was given, until it is closed.
func TestPressureMonitor(t *testing.T) {
	m, err := pressure.New(pressure.DefaultConfig())
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	l := enforcing(t, func(c *Config) { c.Pressure = m })
	take(t, l, "a", 1).Release()
	if s := l.Snapshot(); s.Limit != 64 && m.Severity() == pressure.Normal {
		t.Errorf("limit %d", s.Limit)
	}
	if err := l.Reconfigure(DefaultConfig()); err != nil {
		t.Error(err)
	}
	l.Close()
}
