package waitq

import (
	"context"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// conf is a queue that bounds nothing but its capacity; a minute is its timeout.
func conf(limit int64) Config {
	return Config{
		Limit:      limit,
		ClassLimit: [Classes]int64{Unlimited, Unlimited, Unlimited},
		Timeout:    time.Minute,
		MaxWaiters: 1 << 20,
		MaxHeld:    1 << 40,
	}
}

// retime changes q's timeout; all else is as c says.
func retime(q *Queue, c Config, d time.Duration) {
	c.Timeout = d
	q.Reconfigure(c)
}

// capClassLocked bounds the leases of a class. Those of class 0 have no bound.
func (q *Queue) capClassLocked(class int, n int64) {
	if class > 0 {
		q.classCap[class-1].Store(n)
		q.boundLowerLocked()
	}
}

// teller is an owner without records, who is told who waits.
type teller func()

func (f teller) Entered()               { f() }
func (teller) Shared(func(*Lease) bool) {}

// call is a request in a goroutine of its own, inside a bubble.
type call struct {
	lease  Lease
	gen    uint64
	result Result
	done   atomic.Bool // the result is in
	cancel context.CancelFunc
}

// ask makes a request and returns when it is granted, refused, or waits.
func ask(q *Queue, r Request) *call { return askContext(context.Background(), q, r) }

func askContext(ctx context.Context, q *Queue, r Request) *call {
	c := start(ctx, q, r)
	synctest.Wait()
	return c
}

// start is ask without the wait.
func start(ctx context.Context, q *Queue, r Request) *call {
	c := &call{}
	ctx, c.cancel = context.WithCancel(ctx)
	go func() {
		c.result = q.Acquire(ctx, &c.lease, r)
		c.gen = c.lease.Gen()
		c.done.Store(true)
	}()
	return c
}

// leave ends the caller's context.
func (c *call) leave() {
	c.cancel()
	synctest.Wait()
}

// releaseBefore releases c's lease, and lets f happen after the grants of that and
// before anybody has heard of them.
func (c *call) releaseBefore(f func()) {
	l := &c.lease
	q, held := l.q.Load(), l.held.Load()
	l.gen.Store(c.gen + 2)
	q.give(held)
	now := q.now()
	q.mu.Lock()
	q.releasedLocked(held, l.start, now)
	wakes := q.takeWokenLocked()
	q.mu.Unlock()
	f()
	synctest.Wait()
	wakes.wake()
	synctest.Wait()
}

func (c *call) granted() bool { return c.done.Load() && c.result.Outcome == Granted }

// release ends the lease and lets those run who got its room.
func (c *call) release() {
	c.lease.Release(c.gen)
	synctest.Wait()
}

// wants fails the test unless the call is in the given state.
func (c *call) wants(t *testing.T, o Outcome) {
	t.Helper()
	switch done := c.done.Load(); {
	case o == Queued && done:
		t.Fatalf("outcome %d, want the request to wait", c.result.Outcome)
	case o != Queued && !done:
		t.Fatalf("the request waits, want outcome %d", o)
	case o != Queued && c.result.Outcome != o:
		t.Fatalf("outcome %d, want %d", c.result.Outcome, o)
	}
}

// wantAll is wants for many.
func wantAll(t *testing.T, o Outcome, calls ...*call) {
	t.Helper()
	for _, c := range calls {
		c.wants(t, o)
	}
}

// releaseAll ends every lease of those that have one, and waits for nobody.
func releaseAll(calls ...*call) {
	for _, c := range calls {
		c.cancel()
		synctest.Wait()
		if c.granted() {
			c.release()
		}
	}
}

// bubble runs f in virtual time and checks that it leaves nothing behind.
func bubble(t *testing.T, c Config, f func(t *testing.T, q *Queue)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		q := New(c)
		defer func() {
			if t.Failed() {
				q.Close() // lets the waiters go, so that the bubble can end
			}
		}()
		f(t, q)
		synctest.Wait()
		wantIdle(t, q)
	})
}

// wantIdle is W10: all counters are back to zero.
func wantIdle(t *testing.T, q *Queue) {
	t.Helper()
	s := q.Snapshot()
	var ended [Classes]int64
	for i := range Classes {
		for _, n := range s.Outcomes[i] {
			ended[i] += n
		}
	}
	if s.InUse != 0 || s.Leases != 0 || s.ClassLeases != [Classes]int64{} || s.Waiting != [Classes]int{} ||
		s.Queued != 0 || s.Held != 0 || s.OldestWait != 0 {
		t.Fatalf("not idle: %+v", s)
	}
	if free := q.freeLocked(); free != s.Limit {
		t.Fatalf("%d free of %d", free, s.Limit)
	}
	if q.Waiting() && !q.closed {
		t.Fatal("Waiting with nobody in the queue")
	}
	if err := checkStructure(q); err != nil {
		t.Fatal(err)
	}
}

// took takes a cost of 1 on the fast path, if there is room, and reports whether it did.
func took(q *Queue) bool {
	var l Lease
	_, taken := q.TryShared(&l, 1)
	return taken
}

// known makes d the typical hold of a class.
func known(q *Queue, class int, d time.Duration) {
	q.mu.Lock()
	for range 2 * holdSamples {
		q.stats.held(class, int64(d))
	}
	q.stats.measured().typ[class] = int64(d)
	q.mu.Unlock()
}

// engine is a queue without goroutines: callers are records, and time is a number.
type engine struct {
	q       *Queue
	now     int64
	leases  int             // out
	onGrant func(w *waiter) // nil or told of each grant, in any order
}

func newEngine(q *Queue) *engine {
	noTimer(q)
	return &engine{q: q, now: 1}
}

// noTimer keeps the queue from setting a real timer.
func noTimer(q *Queue) { q.armed, q.firesAt = true, math.MinInt64 }

func (e *engine) enter(r Request) *waiter {
	w := e.q.getWaiter(r)
	w.deadline = never
	e.locked(func() { e.q.enterLocked(w, r.Flow, e.now) })
	return w
}

func (e *engine) release(class int, charge int64) {
	e.leases--
	held := e.q.pack(class, charge)
	e.q.give(held)
	e.locked(func() { e.q.releasedLocked(held, 0, e.now) })
}

func (e *engine) locked(f func()) {
	e.q.mu.Lock()
	f()
	l := e.q.takeWokenLocked()
	e.q.mu.Unlock()
	for w := l.first; w != nil; {
		next := w.links[woken].next
		w.links[woken].next = nil
		if w.outcome == Granted {
			e.leases++
			if e.onGrant != nil {
				e.onGrant(w)
			}
		}
		w = next
	}
}
