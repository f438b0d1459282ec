package inflight

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

// clients are callers in a crowd whose calls fail and who try again without end.
type clients struct {
	*crowd
	calls map[string]context.Context
	names []string
}

// begin makes the first attempt of a client's call.
func (c *clients) begin(name string, class gate.Class) {
	c.names = append(c.names, name)
	c.calls[name] = WithCall(gate.WithClass(context.Background(), class))
	c.ask(name, c.calls[name], gate.Request{})
}

// holders are the clients that have a slot.
func (c *clients) holders() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(c.names), func(name string) bool { return !c.leases[name].Live() })
}

// again ends each attempt that runs and makes the next one.
func (c *clients) again() {
	for _, name := range c.holders() {
		c.release(name)
		c.ask(name, c.calls[name], gate.Request{})
	}
}

// answer says how the back end has answered a client that has a slot.
func (c *clients) answer(name string, status int) {
	c.mu.Lock()
	ctx := c.leases[name].In(context.Background(), c.l)
	c.mu.Unlock()
	gate.Observe(ctx, gate.Sample{Status: status, FirstByte: time.Millisecond})
}

// once is a call that is answered and over.
func (c *clients) once(class gate.Class, status int) {
	c.ask("once", context.Background(), gate.Request{Class: class})
	c.answer("once", status)
	c.release("once")
}

// What is said of a lane, told by the clock: who holds slots, who waits, whose client tries
// again, and for whom slots are free. at lets time pass and then wants a verdict.
func TestVerdictsByTheClock(t *testing.T) {
	const step = 10 * time.Second
	for _, tc := range []struct {
		name           string
		limit, reserve int
		slow           time.Duration
		run            func(c *clients, at func(time.Duration, Verdict))
	}{
		{"a full lane with retries is a local queue", 2, 0, time.Hour, func(c *clients, at func(time.Duration, Verdict)) {
			at(0, Idle)
			for _, name := range []string{"a", "b", "c", "d", "e"} {
				c.begin(name, gate.Default)
			}
			for range 5 {
				at(step, Busy)
				c.again()
			}
			at(step-time.Nanosecond, Busy)
			at(time.Nanosecond, LocalQueue)
			for range 12 {
				c.again()
				at(step, LocalQueue)
			}
			if s := state(c.t, c.l); s.Retries < 20 || s.Inflight != 2 || s.Queued != 3 {
				c.t.Errorf("%d retries, %d in flight, %d queued", s.Retries, s.Inflight, s.Queued)
			}
		}},
		{"retries with slots to spare are the back end's doing", 3, 0, time.Hour, func(c *clients, at func(time.Duration, Verdict)) {
			c.begin("a", gate.Bulk)
			for range 2 {
				at(step, Busy)
				c.again()
			}
			at(step, Busy) // two are not enough
			c.again()
			at(0, UpstreamDegraded)
			at(3*step, UpstreamDegraded)
			at(3*step, Busy) // the last minute has none
			for range 27 {
				c.once(gate.Default, 200)
			}
			c.again()
			c.again()
			at(0, Busy)
			c.again() // 3 of 30
			at(0, UpstreamDegraded)
		}},
		{"a slot that is kept free is not free for who waits", 2, 1, time.Hour, func(c *clients, at func(time.Duration, Verdict)) {
			c.begin("a", gate.Bulk)
			c.begin("b", gate.Bulk)
			c.begin("c", gate.Bulk)
			for range 5 {
				at(step, Busy)
				c.again()
			}
			at(step, LocalQueue)
			for range 6 {
				c.answer(c.holders()[0], 503)
				c.again()
				at(step, LocalQueue)
			}
			if s := state(c.t, c.l); s.Inflight != 1 || s.Limit != 2 || !s.Saturated {
				c.t.Errorf("%d of %d in flight, saturated %v", s.Inflight, s.Limit, s.Saturated)
			}
			for range 3 {
				c.once(gate.Interactive, 503) // it has the slot that is kept: none is left
			}
			at(0, LocalQueue)
			c.begin("i", gate.Interactive)
			for range 5 { // for its retries that slot is free; the last minute has some of others
				c.release("i")
				c.ask("i", c.calls["i"], gate.Request{})
			}
			at(0, Both)
			at(7*step, LocalQueue)
		}},
		{"slow waits and a back end that fails are both", 2, 0, 30 * time.Second, func(c *clients, at func(time.Duration, Verdict)) {
			for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
				c.ask(name, context.Background(), gate.Request{})
			}
			at(30*time.Second, Busy)
			at(5*time.Second, LocalQueue) // that is longer than SlowWait
			c.finish()
			at(0, LocalQueue)
			for range 3 {
				c.once(gate.Default, 502)
			}
			at(0, Both)
			at(70*time.Second, LocalQueue) // the failures are older than a minute
			at(4*time.Minute, Idle)        // and the waits older than five
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := open(t, func(c *Config) {
					c.MaxInflight, c.InteractiveReserve, c.SlowWait, c.QueueTimeout = tc.limit, tc.reserve, tc.slow, time.Hour
				})
				defer l.Close()
				l.find(llm)
				c, began := &clients{crowd: newCrowd(t, l), calls: make(map[string]context.Context)}, time.Now()
				tc.run(c, func(d time.Duration, want Verdict) {
					t.Helper()
					time.Sleep(d)
					if got := state(t, l).Verdict; got != want {
						t.Errorf("after %v: %s, want %s", time.Since(began), got, want)
					}
				})
				c.finish()
				wantIdle(t, l)
			})
		})
	}
}
