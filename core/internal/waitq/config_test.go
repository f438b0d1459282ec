package waitq

import (
	"math"
	"testing"
	"testing/synctest"
	"time"
)

// TestConfigRanges: New, Reconfigure and SetLimit panic on what is out of range.
func TestConfigRanges(t *testing.T) {
	good := conf(1)
	bad := func(change func(*Config)) Config {
		c := good
		change(&c)
		return c
	}
	for name, c := range map[string]Config{
		"limit 0":          bad(func(c *Config) { c.Limit = 0 }),
		"limit -1":         bad(func(c *Config) { c.Limit = -1 }),
		"limit too large":  bad(func(c *Config) { c.Limit = MaxLimit + 1 }),
		"timeout":          bad(func(c *Config) { c.Timeout = -1 }),
		"aging step":       bad(func(c *Config) { c.AgingStep = -1 }),
		"waiters":          bad(func(c *Config) { c.MaxWaiters = -1 }),
		"a flow's waiters": bad(func(c *Config) { c.FlowWaiters = -1 }),
		"a flow's cost":    bad(func(c *Config) { c.FlowQueued = -1 }),
		"what waiters own": bad(func(c *Config) { c.MaxHeld = -1 }),
	} {
		t.Run(name, func(t *testing.T) {
			panics := func(f func()) (did bool) {
				defer func() { did = recover() != nil }()
				f()
				return false
			}
			q := New(good)
			if !panics(func() { New(c) }) || !panics(func() { q.Reconfigure(c) }) {
				t.Error("no panic")
			}
			if c.Limit != good.Limit && !panics(func() { q.SetLimit(c.Limit) }) {
				t.Error("no panic in SetLimit")
			}
			var l Lease // and the queue is as it was
			if !q.TryAcquire(&l, 0, 1) || !l.Release(l.Gen()) {
				t.Error("the queue does not work any more")
			}
			wantIdle(t, q)
		})
	}
	New(bad(func(c *Config) { c.Limit = MaxLimit }))
}

// TestLargestLimit: the whole of the largest limit in one lease, and back.
func TestLargestLimit(t *testing.T) {
	bubble(t, conf(MaxLimit), func(t *testing.T, q *Queue) {
		all := ask(q, Request{Cost: MaxLimit})
		var calls []*call
		for range 50 { // each fails by the whole limit
			calls = append(calls, ask(q, Request{Class: 1, Cost: MaxLimit}))
		}
		wantAll(t, Queued, calls...)
		if q.InUse() != MaxLimit || !q.Waiting() {
			t.Errorf("in use %d", q.InUse())
		}
		all.release()
		for i, c := range calls {
			c.wants(t, Granted)
			wantAll(t, Queued, calls[i+1:]...)
			c.release()
		}
	})
}

// TestReconfigure changes all at once, and what grew is granted at once.
func TestReconfigure(t *testing.T) {
	c := conf(2)
	c.ClassLimit[1] = 1
	bubble(t, c, func(t *testing.T, q *Queue) {
		calls := []*call{
			ask(q, Request{Class: 1, Cost: 1}), ask(q, Request{Class: 1, Cost: 1}),
			ask(q, Request{Class: 2, Cost: 1}), ask(q, Request{Class: 2, Cost: 1}),
		}
		wantAll(t, Granted, calls[0], calls[2])
		wantAll(t, Queued, calls[1], calls[3])
		c.ClassLimit[1], c.Limit, c.MaxWaiters, c.MaxHeld = 2, 4, 0, 0
		q.Reconfigure(c)
		synctest.Wait()
		wantAll(t, Granted, calls...)
		ask(q, Request{Cost: 1}).wants(t, Full)
		c.Limit, c.MaxWaiters = 3, 5
		q.Reconfigure(c)
		wait := []*call{ask(q, Request{Cost: 1}), ask(q, Request{Cost: 1}), ask(q, Request{Cost: 1})}
		wantAll(t, Queued, wait...)
		c.MaxWaiters = 1 // those beyond it stay
		q.Reconfigure(c)
		synctest.Wait()
		wantAll(t, Queued, wait...)
		releaseAll(calls...)
		wantAll(t, Granted, wait...)
		releaseAll(wait...)
	})
}

// TestWeights beyond the range of the field count as the largest, and those below
// 1 as 1.
func TestWeights(t *testing.T) {
	q := New(conf(1))
	for weight, want := range map[int]uint16{-5: 1, 0: 1, 1: 1, 1000: 1000, 1 << 16: math.MaxUint16, math.MaxInt32: math.MaxUint16} {
		if w := q.getWaiter(Request{Cost: 1, Weight: weight}); w.weight != want {
			t.Errorf("weight %d is taken as %d", weight, w.weight)
		}
	}
}

// TestShed refuses the waiters of one class alone.
func TestShed(t *testing.T) {
	bubble(t, conf(2), func(t *testing.T, q *Queue) {
		holder := ask(q, Request{Cost: 2})
		var calls [Classes][]*call
		for i := range 9 {
			calls[i%Classes] = append(calls[i%Classes], ask(q, Request{Class: i % Classes, Cost: 1, Held: 1}))
		}
		q.Shed(1)
		synctest.Wait()
		wantAll(t, Shed, calls[1]...)
		wantAll(t, Queued, append(calls[0], calls[2]...)...)
		if s := q.Snapshot(); s.Held != 6 || s.Outcomes[1][Shed] != 3 {
			t.Errorf("%+v", s)
		}
		time.Sleep(time.Minute)
		releaseAll(holder)
	})
}
