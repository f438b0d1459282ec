package inflight

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/headgate-go/headgate/core/gate"
)

// open returns a limiter that the test closes.
func open(t testing.TB, set func(*Config)) *Limiter {
	t.Helper()
	c := DefaultConfig()
	c.MaxInflight = 1
	if set != nil {
		set(&c)
	}
	l, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

const llm = "https://llm.example.com/v1|large"

// take acquires a slot of the lane llm that must be there.
func take(t testing.TB, l *Limiter, class gate.Class) gate.Lease {
	t.Helper()
	lease, err := l.Acquire(context.Background(), gate.Request{Lane: llm, Class: class})
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

// crowd is callers that run beside the test.
type crowd struct {
	t  testing.TB
	l  *Limiter
	mu sync.Mutex
	// granted are the names in the order of their grants, leases what they hold.
	granted []string
	leases  map[string]gate.Lease
	errs    map[string]error
}

func newCrowd(t testing.TB, l *Limiter) *crowd {
	return &crowd{t: t, l: l, leases: make(map[string]gate.Lease), errs: make(map[string]error)}
}

// ask lets one caller come; it is in its place when ask returns. In a bubble only.
func (c *crowd) ask(name string, ctx context.Context, r gate.Request) {
	if r.Lane == "" {
		r.Lane = llm
	}
	go func() {
		lease, err := c.l.Acquire(ctx, r)
		c.mu.Lock()
		defer c.mu.Unlock()
		if err != nil {
			c.errs[name] = err
			return
		}
		c.granted = append(c.granted, name)
		c.leases[name] = lease
	}()
	synctest.Wait()
}

func (c *crowd) release(name string) {
	c.mu.Lock()
	lease, ok := c.leases[name]
	delete(c.leases, name)
	c.mu.Unlock()
	if !ok {
		c.t.Fatalf("%s holds nothing", name)
	}
	lease.Release()
	synctest.Wait()
}

// finish releases whatever is granted until nobody is left.
func (c *crowd) finish() {
	for {
		c.mu.Lock()
		var one string
		for name := range c.leases {
			one = name
		}
		c.mu.Unlock()
		if one == "" {
			return
		}
		c.release(one)
	}
}

// order is who was granted so far.
func (c *crowd) order() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.granted)
}

func (c *crowd) wantOrder(want ...string) {
	c.t.Helper()
	if got := c.order(); !slices.Equal(got, want) {
		c.t.Fatalf("granted %v, want %v", got, want)
	}
}

func (c *crowd) err(name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.errs[name]
}

func (c *crowd) wantErr(name string, reason gate.Reason) *gate.Rejection {
	c.t.Helper()
	err := c.err(name)
	var rej *gate.Rejection
	if !errors.As(err, &rej) || rej.Reason != reason {
		c.t.Fatalf("%s: %v, want %s", name, err, reason)
	}
	return rej
}

// state is the snapshot of the lane llm.
func state(t testing.TB, l *Limiter) LaneSnapshot {
	t.Helper()
	for _, s := range l.Snapshot().Lanes {
		if s.Lane == llm {
			return s
		}
	}
	t.Fatal("there is no lane")
	return LaneSnapshot{}
}

// wantIdle fails where anything is left in any lane.
func wantIdle(t testing.TB, l *Limiter) {
	t.Helper()
	for _, s := range l.Snapshot().Lanes {
		if s.Inflight != 0 || s.Queued != 0 || s.InflightByPriority != (ByClass{}) || s.QueuedByPriority != (ByClass{}) {
			t.Errorf("lane %s is left with %d in flight, %d queued", s.Lane, s.Inflight, s.Queued)
		}
	}
}
