package inflight

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/headgate-go/headgate/core/gate"
)

// J1: with 5 in flight, a reload of the same is nothing and one to 3 lets nobody in until
// fewer than 3 are left.
func TestJ1ReloadInPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, func(c *Config) { c.MaxInflight, c.InteractiveReserve = 5, 0 })
		defer l.Close()
		c, ctx := newCrowd(t, l), context.Background()
		for i := range 5 {
			c.ask(fmt.Sprint(i), ctx, gate.Request{})
		}
		lane := l.find(llm)
		reload(t, l, func(*Config) {})
		c.ask("w", ctx, gate.Request{})
		if s := state(t, l); s.Inflight != 5 || s.Queued != 1 || s.Granted != 5 || l.find(llm) != lane {
			t.Errorf("%+v", s)
		}
		reload(t, l, func(c *Config) { c.MaxInflight = 3 })
		for i := range 3 {
			if len(c.order()) != 5 {
				t.Fatalf("%d were let in with %d in flight and a limit of 3", len(c.order())-5, 5-i)
			}
			c.release(fmt.Sprint(i))
		}
		c.wantOrder("0", "1", "2", "3", "4", "w")
		c.finish()
		wantIdle(t, l)
	})
}

// J2: one wrong field among many right ones: the error names it and nothing changes, in
// lanes neither.
func TestJ2AllOrNothing(t *testing.T) {
	l := open(t, func(c *Config) { c.MaxInflight = 2 })
	take(t, l, gate.Default).Release()
	before := l.set.Load().clone()
	for field, set := range map[string]func(*Config){
		"QueueTimeout": func(c *Config) { c.QueueTimeout = -1 },
		"Mode":         func(c *Config) { c.Mode = 9 },
		`Lanes["a"].MaxInflight`: func(c *Config) {
			c.Lanes = map[string]Override{llm: {MaxInflight: ptr(1)}, "a": {MaxInflight: ptr(-1)}}
		},
	} {
		c := before.clone()
		c.MaxInflight, c.MaxQueue, c.InteractiveReserve = 9, 9, 9
		set(&c)
		if err := l.Reconfigure(c); err == nil || !strings.HasPrefix(err.Error(), "inflight: "+field+" is ") {
			t.Errorf("%v, want an error that names %s", err, field)
		}
		if got := l.set.Load(); got.MaxInflight != before.MaxInflight || got.MaxQueue != before.MaxQueue {
			t.Errorf("%s: the settings have changed", field)
		}
		if s := state(t, l); s.Limit != 2 || s.Reserve != 1 {
			t.Errorf("%s: the lane has limit %d and reserve %d", field, s.Limit, s.Reserve)
		}
	}
}

// J4: a reload that lets a waiter in shows in the snapshot.
func TestJ4ReloadIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, func(c *Config) { c.MaxInflight, c.InteractiveReserve = 3, 0 })
		defer l.Close()
		c := newCrowd(t, l)
		for i := range 4 {
			c.ask(fmt.Sprint(i), context.Background(), gate.Request{})
		}
		reload(t, l, func(c *Config) { c.MaxInflight = 4 })
		synctest.Wait()
		if s := state(t, l); s.Limit != 4 || s.Inflight != 4 || s.Queued != 0 {
			t.Errorf("%+v", s)
		}
		c.finish()
	})
}

// J7: a reload keeps the queue, its order and its ages.
func TestJ7ReloadKeepsTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, nil)
		defer l.Close()
		held := take(t, l, gate.Default)
		c, ctx := newCrowd(t, l), context.Background()
		c.ask("bulk", ctx, gate.Request{Class: gate.Bulk})
		for i := range 4 {
			time.Sleep(10 * time.Second)
			c.ask(fmt.Sprint(i), ctx, gate.Request{})
		}
		for range 100 {
			reload(t, l, func(c *Config) { c.MaxQueue++; c.AgingStep += time.Nanosecond })
		}
		reload(t, l, func(c *Config) { c.AgingStep = 40 * time.Second })
		synctest.Wait()
		if s := state(t, l); s.Limit != 1 || s.Queued != 5 || s.OldestWaitS != 40 {
			t.Errorf("%+v", s)
		}
		held.Release()
		synctest.Wait()
		for _, name := range []string{"bulk", "0", "1", "2", "3"} { // bulk has aged by one step
			c.release(name)
		}
		c.wantOrder("bulk", "0", "1", "2", "3")
	})
}

// J9: an old configuration is gone once it is replaced, however long a call lasts.
func TestJ9OldConfigurationsAreGone(t *testing.T) {
	l := open(t, func(c *Config) { c.Lanes = map[string]Override{llm: {MaxInflight: ptr(2)}} })
	stream := take(t, l, gate.Default)
	defer stream.Release()
	var old []weak.Pointer[Config]
	for i := range 60 {
		old = append(old, weak.Make(l.set.Load()))
		reload(t, l, func(c *Config) { c.MaxQueue = 10 + i })
	}
	runtime.GC()
	left := 0
	for _, p := range old {
		if p.Value() != nil {
			left++
		}
	}
	if left > 1 {
		t.Errorf("%d of 60 old configurations are still in memory", left)
	}
	if !stream.Live() {
		t.Error("a reload has cut a call")
	}
}

// J11, E12: what 0 does, field by field: the table in Config's comments. Below 0 is an
// error, as TestConfigBorders shows.
func TestJ11Zeros(t *testing.T) {
	ctx := context.Background()
	for name, tc := range map[string]struct {
		set  func(*Config)
		want error // of a second call in a lane of one slot; nil = admitted
	}{
		"MaxInflight":  {func(c *Config) { c.MaxInflight = 0 }, nil},
		"override":     {func(c *Config) { c.Lanes = map[string]Override{llm: {MaxInflight: ptr(0)}} }, nil},
		"QueueTimeout": {func(c *Config) { c.QueueTimeout = 0 }, gate.QueueTimeout},
		"MaxQueue":     {func(c *Config) { c.MaxQueue = 0 }, gate.QueueFull},
		"override's MaxQueue": {func(c *Config) {
			c.Lanes = map[string]Override{llm: {MaxQueue: ptr(0)}}
		}, gate.QueueFull},
		"override's QueueTimeout": {func(c *Config) {
			c.Lanes = map[string]Override{llm: {QueueTimeout: ptr(time.Duration(0))}}
		}, gate.QueueTimeout},
	} {
		l := open(t, tc.set)
		held := take(t, l, gate.Default)
		lease, err := l.Acquire(ctx, gate.Request{Lane: llm})
		if (err == nil) != (tc.want == nil) || tc.want != nil && !errors.Is(err, tc.want) {
			t.Errorf("%s 0: %v, want %v", name, err, tc.want)
		}
		lease.Release()
		held.Release()
		wantIdle(t, l)
	}
	if _, err := New(Config{}); err == nil || !strings.Contains(err.Error(), "Mode") || !strings.Contains(err.Error(), "DefaultConfig") {
		t.Errorf("the zero Config: %v", err)
	}
}
