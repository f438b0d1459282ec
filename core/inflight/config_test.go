package inflight

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

func ptr[T any](v T) *T { return &v }

// E10, E12, J2, J11: every field at its borders; the error names the field.
func TestConfigBorders(t *testing.T) {
	for _, tc := range []struct {
		name  string
		set   func(*Config)
		field string // "" = valid
	}{
		{"defaults", func(*Config) {}, ""},
		{"mode unset", func(c *Config) { c.Mode = 0 }, "Mode"},
		{"mode shadow", func(c *Config) { c.Mode = gate.Shadow }, ""},
		{"max 0 is off", func(c *Config) { c.MaxInflight = 0 }, ""},
		{"max 1", func(c *Config) { c.MaxInflight = 1 }, ""},
		{"max -1", func(c *Config) { c.MaxInflight = -1 }, "MaxInflight"},
		{"max most", func(c *Config) { c.MaxInflight = most }, ""},
		{"max above most", func(c *Config) { c.MaxInflight = most + 1 }, "MaxInflight"},
		{"max absurd", func(c *Config) { c.MaxInflight = math.MaxInt }, "MaxInflight"},
		{"reserve 0", func(c *Config) { c.InteractiveReserve = 0 }, ""},
		{"reserve above max is clamped", func(c *Config) { c.MaxInflight, c.InteractiveReserve = 2, 99 }, ""},
		{"reserve -1", func(c *Config) { c.InteractiveReserve = -1 }, "InteractiveReserve"},
		{"queue 0", func(c *Config) { c.MaxQueue = 0 }, ""},
		{"queue -1", func(c *Config) { c.MaxQueue = -1 }, "MaxQueue"},
		{"timeout 0", func(c *Config) { c.QueueTimeout = 0 }, ""},
		{"timeout longest", func(c *Config) { c.QueueTimeout = math.MaxInt64 }, ""},
		{"timeout negative", func(c *Config) { c.QueueTimeout = -1 }, "QueueTimeout"},
		{"aging 0", func(c *Config) { c.AgingStep = 0 }, ""},
		{"aging negative", func(c *Config) { c.AgingStep = -time.Second }, "AgingStep"},
		{"slow 0", func(c *Config) { c.SlowWait = 0 }, "SlowWait"},
		{"lanes 0", func(c *Config) { c.MaxLanes = 0 }, "MaxLanes"},
		{"lanes most", func(c *Config) { c.MaxLanes = most }, ""},
		{"override", func(c *Config) { c.Lanes = map[string]Override{"a": {MaxInflight: ptr(3)}} }, ""},
		{"override off", func(c *Config) { c.Lanes = map[string]Override{"a": {MaxInflight: ptr(0)}} }, ""},
		{"override bad", func(c *Config) { c.Lanes = map[string]Override{"a": {MaxQueue: ptr(-3)}} }, `Lanes["a"].MaxQueue`},
		{"override bad time", func(c *Config) { c.Lanes = map[string]Override{"a": {AgingStep: ptr(-time.Second)}} }, `Lanes["a"].AgingStep`},
		{"override without key", func(c *Config) { c.Lanes = map[string]Override{"": {}} }, `Lanes[""]`},
		{"override of a long key", func(c *Config) { c.Lanes = map[string]Override{strings.Repeat("k", maxKey+1): {}} }, "Lanes["},
		{"override of a key that is no text", func(c *Config) { c.Lanes = map[string]Override{"\xff": {}} }, "Lanes["},
		{"more overrides than lanes", func(c *Config) { c.MaxLanes, c.Lanes = 1, map[string]Override{"a": {}, "b": {}} }, "Lanes"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := DefaultConfig()
			tc.set(&c)
			l, err := New(c)
			if tc.field == "" {
				if err != nil {
					t.Fatalf("New: %v", err)
				}
				l.Close()
				return
			}
			if err == nil || !strings.HasPrefix(err.Error(), "inflight: "+tc.field+" is ") && !strings.HasPrefix(err.Error(), "inflight: "+tc.field) {
				t.Fatalf("error %v does not name %s", err, tc.field)
			}
			if len(err.Error()) > 300 {
				t.Errorf("the error repeats %d bytes", len(err.Error()))
			}
		})
	}
}

func TestOverridesInherit(t *testing.T) {
	c := DefaultConfig()
	c.MaxInflight = 6
	got := c.lane(Override{MaxQueue: ptr(5)})
	want := laneConfig{maxInflight: 6, reserve: 1, maxQueue: 5, queueTimeout: 300 * time.Second, agingStep: time.Minute}
	if got != want {
		t.Errorf("lane = %+v, want %+v", got, want)
	}
}

// E9, W5 of the earlier limiter: the reserve always leaves the others one slot.
func TestEffectiveReserve(t *testing.T) {
	for _, tc := range []struct{ limit, reserve, want int }{
		{0, 1, 0}, {1, 1, 0}, {2, 99, 1}, {6, 1, 1}, {6, 0, 0}, {6, 5, 5}, {6, 6, 5},
	} {
		if got := (laneConfig{maxInflight: tc.limit, reserve: tc.reserve}).effectiveReserve(); got != tc.want {
			t.Errorf("limit %d reserve %d: %d, want %d", tc.limit, tc.reserve, got, tc.want)
		}
	}
}

// The limiter keeps its own copy of what it was given.
func TestConfigIsCopied(t *testing.T) {
	c := DefaultConfig()
	n := 3
	c.Lanes = map[string]Override{"a": {MaxInflight: &n}}
	l, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	n = 7
	c.Lanes["b"] = Override{MaxInflight: ptr(9)}
	for key, want := range map[string]int{"a": 3, "b": 0} {
		if got := l.find(key).set.Load().maxInflight; got != want {
			t.Errorf("lane %s has limit %d, want %d", key, got, want)
		}
	}
}
