package lanes

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

// enforcing is a controller that enforces, as change leaves its defaults.
func enforcing(t testing.TB, change func(*Config)) *Controller {
	t.Helper()
	c := DefaultConfig()
	c.Mode = gate.Enforce
	if change != nil {
		change(&c)
	}
	l, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

func virtual(c *Config) { c.VirtualLanes = true }

// limited is a fixed limit with lanes.
func limited(n int) func(*Config) {
	return func(c *Config) {
		c.VirtualLanes, c.Algorithm = true, Fixed
		c.MinLimit, c.InitialLimit = min(n, c.MinLimit), n
	}
}

// bubble runs f in virtual time on a controller, which must be empty afterwards.
func bubble(t *testing.T, change func(*Config), f func(t *testing.T, l *Controller)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := enforcing(t, change)
		defer l.Close()
		f(t, l)
		synctest.Wait()
		wantEmpty(t, l)
	})
}

// wantEmpty is W10: nothing is in flight, nothing waits, no lane is in use.
func wantEmpty(t testing.TB, l *Controller) {
	t.Helper()
	s := l.Snapshot()
	if s.Inflight != 0 || s.InflightCost != 0 || s.ExemptInflight != 0 || s.QueuedCount != 0 || s.QueuedCost != 0 ||
		s.LaneQueuedCount != 0 || s.LaneQueuedCost != 0 || s.OldestWaitS != 0 {
		t.Errorf("not empty: %+v", s)
	}
	for _, ln := range l.lanes.all() {
		if n := ln.refs.Load() + l.records.serve(ln); n != 0 {
			t.Errorf("lane %s counts %d requests", l.id(ln.key), n)
		}
	}
}

// take acquires what must be there.
func take(t testing.TB, l *Controller, tenant string, cost int64) gate.Lease {
	t.Helper()
	lease, err := l.Acquire(context.Background(), gate.Request{Flow: tenant, Cost: cost})
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

// reject acquires what must be refused.
func reject(t testing.TB, l *Controller, r gate.Request) *gate.Rejection {
	t.Helper()
	return rejection(t, second(l.Acquire(context.Background(), r)))
}

// laneOfLease is the lane in which a lease is counted.
func laneOfLease(l gate.Lease) *lane {
	h, _ := l.Holder()
	return h.(*lease).lane.Load()
}

func second(_ gate.Lease, err error) error { return err }

func rejection(t testing.TB, err error) *gate.Rejection {
	t.Helper()
	var rej *gate.Rejection
	if !errors.As(err, &rej) {
		t.Fatalf("%v is no rejection", err)
	}
	return rej
}

// crowd is callers that run beside the test, in a bubble.
type crowd struct {
	t  testing.TB
	l  *Controller
	mu sync.Mutex
	// granted are the names in the order of their grants, leases what they hold.
	granted []string
	at      map[string]time.Time
	leases  map[string]gate.Lease
	errs    map[string]error
}

func newCrowd(t testing.TB, l *Controller) *crowd {
	return &crowd{t: t, l: l, at: make(map[string]time.Time), leases: make(map[string]gate.Lease), errs: make(map[string]error)}
}

// ask lets one caller come; it is in its place when ask returns.
func (c *crowd) ask(name string, r gate.Request) { c.askIn(context.Background(), name, r) }

func (c *crowd) askIn(ctx context.Context, name string, r gate.Request) {
	go func() {
		lease, err := c.l.Acquire(ctx, r)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.at[name] = time.Now()
		if err != nil {
			c.errs[name] = err
			return
		}
		c.granted = append(c.granted, name)
		c.leases[name] = lease
	}()
	synctest.Wait()
}

// release ends one caller's lease and lets those run who got its room.
func (c *crowd) release(name string) {
	c.mu.Lock()
	lease, ok := c.leases[name]
	delete(c.leases, name)
	c.mu.Unlock()
	if !ok {
		c.t.Fatalf("%s holds nothing; granted %v, errors %v", name, c.granted, c.errs)
	}
	lease.Release()
	synctest.Wait()
}

// releaseAll ends leases until nobody holds one.
func (c *crowd) releaseAll() {
	for {
		c.mu.Lock()
		name := ""
		for name = range c.leases {
			break
		}
		c.mu.Unlock()
		if name == "" {
			return
		}
		c.release(name)
	}
}

// waits reports whether the caller neither holds anything nor was refused.
func (c *crowd) waits(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, done := c.at[name]
	return !done
}

func (c *crowd) holds(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.leases[name]
	return ok
}

func (c *crowd) err(name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.errs[name]
}

// wantReason fails the test unless the caller was refused for that.
func (c *crowd) wantReason(name string, want gate.Reason) {
	c.t.Helper()
	if err := c.err(name); !errors.Is(err, want) {
		c.t.Errorf("%s: %v, want %s", name, err, want)
	}
}
