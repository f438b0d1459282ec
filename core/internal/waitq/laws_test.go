package waitq

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// The laws W1 to W6 of the queue, each in its smallest form; model_test.go has
// them in all their combinations.

// TestW1EveryoneWhoFits: whatever gives room, everyone who fits has it at once.
func TestW1EveryoneWhoFits(t *testing.T) {
	// A holder of 6 in 8, a head of 8 that two grants have passed, and behind it
	// two who would fit into what is left for the head.
	type state struct {
		q            *Queue
		holder, head *call
	}
	events := map[string]func(s state){
		"release": func(s state) { s.holder.release(); s.head.release() },
		"cancel":  func(s state) { s.head.leave() },
		"timeout": func(s state) { time.Sleep(time.Second); synctest.Wait() },
		"growth":  func(s state) { s.q.SetLimit(16); synctest.Wait() },
		"shrink":  func(s state) { s.holder.lease.Shrink(s.holder.gen, 6); synctest.Wait(); s.head.release() },
		"shed":    func(s state) { s.q.Shed(0); synctest.Wait() },
		"reload": func(s state) {
			c := conf(16)
			s.q.Reconfigure(c)
			synctest.Wait()
		},
	}
	for name, event := range events {
		t.Run(name, func(t *testing.T) {
			bubble(t, conf(8), func(t *testing.T, q *Queue) {
				s := state{q: q}
				s.holder = ask(q, Request{Cost: 6})
				s.head = ask(q, Request{Cost: 8})
				first, second := ask(q, Request{Cost: 1}), ask(q, Request{Cost: 1})
				wantAll(t, Granted, first, second)
				first.release()
				second.release()
				time.Sleep(time.Minute - time.Second) // the head's time is over in a second
				a, b := ask(q, Request{Class: 1, Cost: 1}), ask(q, Request{Class: 2, Cost: 1})
				wantAll(t, Queued, s.head, a, b)
				event(s)
				wantAll(t, Granted, a, b)
				releaseAll(s.holder, s.head, a, b)
			})
		})
	}
	t.Run("class limit", func(t *testing.T) {
		c := conf(8)
		c.ClassLimit[2] = 0
		bubble(t, c, func(t *testing.T, q *Queue) {
			a, b := ask(q, Request{Class: 2, Cost: 1}), ask(q, Request{Class: 2, Cost: 1})
			wantAll(t, Queued, a, b)
			c.ClassLimit[2] = 2
			q.Reconfigure(c)
			synctest.Wait()
			wantAll(t, Granted, a, b)
			releaseAll(a, b)
		})
	})
}

// TestW2Shrink: after a shrink nothing is granted until use is below the limit,
// and a cost above it runs alone.
func TestW2Shrink(t *testing.T) {
	bubble(t, conf(10), func(t *testing.T, q *Queue) {
		a, b := ask(q, Request{Cost: 6}), ask(q, Request{Cost: 4})
		big, small := ask(q, Request{Cost: 8}), ask(q, Request{Cost: 1})
		q.SetLimit(4)
		wantAll(t, Queued, big, small)
		if got := q.InUse(); got != 10 {
			t.Fatalf("a shrink revoked leases: in use %d", got)
		}
		a.release()
		wantAll(t, Queued, big, small)
		b.release()
		wantAll(t, Granted, big)
		wantAll(t, Queued, small)
		if got := q.InUse(); got != 4 {
			t.Fatalf("a cost of 8 at limit 4 is charged %d", got)
		}
		big.release()
		wantAll(t, Granted, small)
		releaseAll(small)
	})
	// The same without a queue: the largest cost is the whole of any limit.
	bubble(t, conf(4), func(t *testing.T, q *Queue) {
		huge := ask(q, Request{Cost: MaxLimit})
		wantAll(t, Granted, huge)
		if got := q.InUse(); got != 4 {
			t.Fatalf("in use %d of 4", got)
		}
		releaseAll(huge)
	})
}

// TestW3NoBarging: room goes to the first in the order and to nobody else.
func TestW3NoBarging(t *testing.T) {
	bubble(t, conf(2), func(t *testing.T, q *Queue) {
		holder := ask(q, Request{Cost: 2})
		var calls []*call
		for range 20 {
			calls = append(calls, ask(q, Request{Cost: 2}))
		}
		holder.release()
		for i, c := range calls {
			wantAll(t, Granted, c)
			wantAll(t, Queued, calls[i+1:]...)
			var l Lease
			c.lease.Shrink(c.gen, 1) // one is free, and kept for the next
			if i+1 < len(calls) && q.TryAcquire(&l, 0, 1) {
				t.Fatalf("the free room went to a newcomer while %d waited", len(calls)-i-1)
			}
			c.release()
		}
	})
	// A release and a newcomer at the same instant: the waiter has the room.
	bubble(t, conf(1), func(t *testing.T, q *Queue) {
		holder := ask(q, Request{Cost: 1})
		waiter := ask(q, Request{Cost: 1})
		holder.lease.Release(holder.gen)
		newcomer := start(context.Background(), q, Request{Cost: 1})
		synctest.Wait()
		waiter.wants(t, Granted)
		newcomer.wants(t, Queued)
		releaseAll(waiter, newcomer)
	})
}

// TestW4CancellationWins over free room, and over a grant that came first.
func TestW4CancellationWins(t *testing.T) {
	bubble(t, conf(1), func(t *testing.T, q *Queue) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		askContext(ctx, q, Request{Cost: 1}).wants(t, Canceled)
	})
	bubble(t, conf(1), func(t *testing.T, q *Queue) {
		holder := ask(q, Request{Cost: 1})
		first, second := ask(q, Request{Cost: 1}), ask(q, Request{Cost: 1})
		holder.releaseBefore(first.cancel)
		first.wants(t, Canceled)
		second.wants(t, Granted)
		if first.lease.Live(first.gen - 1) {
			t.Error("the lease of a canceled call is held")
		}
		if n := q.Snapshot().Returned; n != 1 {
			t.Errorf("%d grants returned, want 1", n)
		}
		releaseAll(second)
	})
}

// TestW5NobodyStartsTooLate: a waiter is not started if its deadline leaves less
// than the typical hold, and it is not in the queue when its context has ended.
func TestW5NobodyStartsTooLate(t *testing.T) {
	until := func(d time.Duration) context.Context {
		ctx, cancel := context.WithTimeout(context.Background(), d)
		context.AfterFunc(ctx, cancel)
		return ctx
	}
	t.Run("leaves when its context ends", func(t *testing.T) {
		bubble(t, conf(1), func(t *testing.T, q *Queue) {
			holder := ask(q, Request{Cost: 1})
			var calls []*call
			for range 10 {
				calls = append(calls, askContext(until(5*time.Second), q, Request{Cost: 1}))
			}
			stays := ask(q, Request{Cost: 1})
			time.Sleep(5 * time.Second)
			synctest.Wait()
			wantAll(t, Canceled, calls...)
			if s := q.Snapshot(); s.Waiting[0] != 1 || s.Queued != 1 || s.Outcomes[0][Canceled] != 10 {
				t.Errorf("before any release: %+v", s)
			}
			for _, c := range calls {
				if c.result.Waited != 5*time.Second {
					t.Errorf("waited %v", c.result.Waited)
				}
			}
			releaseAll(holder, stays)
		})
	})
	t.Run("hopeless at its turn", func(t *testing.T) {
		bubble(t, conf(1), func(t *testing.T, q *Queue) {
			holder := ask(q, Request{Cost: 1})
			known(q, 0, 3*time.Second)
			late := askContext(until(10*time.Second), q, Request{Cost: 1})
			exact := askContext(until(11*time.Second), q, Request{Cost: 1})
			time.Sleep(8 * time.Second)
			wantAll(t, Queued, late, exact)
			holder.release()
			late.wants(t, Hopeless) // 2 s left, 3 s needed
			exact.wants(t, Granted) // 3 s left
			releaseAll(exact)
		})
	})
	t.Run("hopeless on arrival", func(t *testing.T) {
		bubble(t, conf(1), func(t *testing.T, q *Queue) {
			holder := ask(q, Request{Cost: 1})
			known(q, 2, 3*time.Second)
			askContext(until(3*time.Second-1), q, Request{Class: 2, Cost: 1}).wants(t, Hopeless)
			other := askContext(until(3*time.Second-1), q, Request{Class: 1, Cost: 1})
			other.wants(t, Queued) // of its class nothing is known
			releaseAll(holder, other)
		})
	})
	t.Run("a deadline beyond all durations is none", func(t *testing.T) {
		bubble(t, conf(1), func(t *testing.T, q *Queue) {
			holder := ask(q, Request{Cost: 1})
			known(q, 0, time.Second)
			ctx, cancel := context.WithDeadline(context.Background(), time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC))
			defer cancel()
			waiter := askContext(ctx, q, Request{Cost: 1})
			waiter.wants(t, Queued)
			holder.release()
			waiter.wants(t, Granted)
			releaseAll(waiter)
		})
	})
}

// TestW5ExactDeadline: a deadline that is now has passed.
func TestW5ExactDeadline(t *testing.T) {
	for _, test := range []struct {
		left, typical int64
		hopeless      bool
	}{{-1, 0, true}, {0, 0, true}, {1, 0, false}, {9, 10, true}, {10, 10, false}, {never - 100, 10, false}} {
		w := waiter{deadline: 100 + test.left}
		if got := w.hopeless(100, test.typical); got != test.hopeless {
			t.Errorf("%d left of %d typical: hopeless %v", test.left, test.typical, got)
		}
	}
	if (&waiter{deadline: never}).hopeless(never, never) {
		t.Error("hopeless without a deadline")
	}
}

// TestW6NoLock: where there is room and no queue, acquire and release work while
// another holds the lock. (One release in 64 is timed, and takes it to say so.)
func TestW6NoLock(t *testing.T) {
	c := conf(8)
	c.ClassLimit[1] = 4
	q := New(c)
	q.mu.Lock()
	for i := range sampleMask / 2 {
		var a, b Lease
		if !q.TryAcquire(&a, 0, 5) || q.Acquire(context.Background(), &b, Request{Class: 1, Cost: 3}).Outcome != Granted {
			t.Fatalf("refused in round %d", i)
		}
		if !b.Grow(b.Gen(), 0) || !a.Release(a.Gen()) || !b.Grow(b.Gen(), 5) {
			t.Fatalf("growth or release in round %d", i)
		}
		b.Shrink(b.Gen(), 8)
		b.Release(b.Gen())
		if q.Waiting() {
			t.Fatal("waiting")
		}
	}
	q.mu.Unlock()
	wantIdle(t, q)
}

// TestW7IdleFlowsCostNothing: what a flood of flows used is given back.
func TestW7IdleFlowsCostNothing(t *testing.T) {
	q := New(conf(1))
	e := newEngine(q)
	e.enter(Request{Cost: 1})
	for i := range 20_000 {
		e.enter(Request{Cost: 1, Flow: fmt.Sprint(i)})
	}
	for e.leases > 0 {
		e.release(0, 1)
	}
	c := &q.classes[0]
	if len(c.flows) != 0 || cap(c.heap.slots) > bigBurst || c.spares > spareFlows || c.last != nil || c.byQueue != nil {
		t.Errorf("%d flows, heap for %d, %d spare records after the flood", len(c.flows), cap(c.heap.slots), c.spares)
	}
	wantIdle(t, q)
}
