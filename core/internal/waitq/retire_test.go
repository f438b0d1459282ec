package waitq

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestRetire: a queue that is used stays as it is, one that is not is closed.
func TestRetire(t *testing.T) {
	bubble(t, conf(2), func(t *testing.T, q *Queue) {
		a := ask(q, Request{Cost: 1})
		if q.Retire() {
			t.Fatal("retired with a lease out")
		}
		b := ask(q, Request{Cost: 2})
		if q.Retire() {
			t.Fatal("retired with a lease out and a waiter")
		}
		a.release()
		b.wants(t, Granted)
		b.lease.Shrink(b.gen, 2)
		if q.Retire() {
			t.Fatal("retired with a lease of nothing out")
		}
		var l Lease
		if !q.TryAcquire(&l, 1, 2) {
			t.Error("the fast path is closed")
		}
		l.Release(l.Gen())
		b.release()
		q.Pause(time.Now().Add(time.Second))
		c := ask(q, Request{Cost: 1}) // waits, and no lease is out
		if q.Retire() {
			t.Fatal("retired with a waiter")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		c.wants(t, Granted)
		c.release()
		for range 2 { // twice is once
			if !q.Retire() {
				t.Fatal("not retired")
			}
		}
		<-q.Drained()
		ask(q, Request{Cost: 1}).wants(t, Closed)
		if q.TryAcquire(&l, 0, 0) || took(q) {
			t.Error("a retired queue admits")
		}
	})
	// An entry in the books that nobody has released is in use too.
	bubble(t, conf(1), func(t *testing.T, q *Queue) {
		var a, b Lease
		q.Book(&a, Request{Cost: 1})
		q.Book(&b, Request{Cost: 1})
		a.Release(a.Gen())
		if q.Retire() {
			t.Fatal("retired with an entry out")
		}
		b.Release(b.Gen())
		q.Book(&a, Request{Cost: 1})
		q.Book(&b, Request{Cost: 1})
		time.Sleep(time.Minute)
		synctest.Wait() // b has timed out, and is held
		a.Release(a.Gen())
		if q.Retire() {
			t.Fatal("retired with an entry out that has timed out")
		}
		b.Release(b.Gen())
		if !q.Retire() {
			t.Fatal("not retired")
		}
	})
	// A closed one that still has leases out is not, until the last is back.
	bubble(t, conf(1), func(t *testing.T, q *Queue) {
		a := ask(q, Request{Cost: 1})
		q.Close()
		if q.Retire() {
			t.Error("retired with a lease out")
		}
		a.release()
		if !q.Retire() {
			t.Error("not retired")
		}
	})
}

// TestRetireAgainstAcquires: whoever is granted holds its lease in a queue that is
// not retired, and once it is everybody is refused.
func TestRetireAgainstAcquires(t *testing.T) {
	rounds := 3000
	if raceEnabled || testing.Short() {
		rounds = 300
	}
	for range rounds {
		q := New(conf(2))
		var granted, retired atomic.Int64
		var wg sync.WaitGroup
		for i := range 3 {
			wg.Go(func() {
				var l Lease
				for {
					switch res := q.Acquire(context.Background(), &l, Request{Class: i, Cost: 1}); res.Outcome {
					case Granted:
						granted.Add(1)
						if retired.Load() > 0 {
							t.Error("granted after it was retired")
						}
						runtime.Gosched()
						if retired.Load() > 0 {
							t.Error("retired with a lease out")
						}
						l.Release(l.Gen())
						runtime.Gosched()
					case Closed:
						return
					default:
						t.Errorf("outcome %d", res.Outcome)
						return
					}
				}
			})
		}
		wg.Go(func() {
			for !q.Retire() {
				runtime.Gosched()
			}
			retired.Add(1)
		})
		wg.Wait()
		wantIdle(t, q)
	}
}

// TestEntered tells of each request that waits, before its caller blocks, and of no
// other.
func TestEntered(t *testing.T) {
	c := conf(2)
	c.MaxWaiters = 2
	var told atomic.Int64
	var q *Queue
	c.Owner = teller(func() {
		told.Add(1)
		q.Snapshot() // no lock is held
	})
	synctest.Test(t, func(t *testing.T) {
		q = New(c)
		want := func(n int64) {
			t.Helper()
			if got := told.Load(); got != n {
				t.Errorf("told of %d, want %d", got, n)
			}
		}
		a := ask(q, Request{Cost: 2})
		want(0)
		b := ask(q, Request{Class: 1, Cost: 2})
		want(1)
		var l Lease
		q.Book(&l, Request{Class: 1, Cost: 2})
		want(2)
		ask(q, Request{Class: 1, Cost: 1}).wants(t, Full)
		want(2)
		retime(q, c, time.Second)
		d := ask(q, Request{Cost: 2}) // in b's place
		want(3)
		a.release()
		wantAll(t, Granted, d)
		want(3)
		other := c
		other.Owner = nil // it is what it was
		q.Reconfigure(other)
		e := ask(q, Request{Cost: 2})
		want(4)
		l.Release(l.Gen())
		releaseAll(b, d, e)
		q.Close()
		ask(q, Request{Cost: 1}).wants(t, Closed)
		want(4)
	})
}

// TestTurnOfNoRoom: the timer is set for a turn that lapses once. A turn that is
// over and finds no room does not set it again and again.
func TestTurnOfNoRoom(t *testing.T) {
	c := conf(8)
	c.AgingStep, c.ClassLimit[1] = time.Second, 2
	bubble(t, c, func(t *testing.T, q *Queue) {
		long, full := ask(q, Request{Cost: 1}), ask(q, Request{Cost: 7})
		wide := ask(q, Request{Class: 1, Cost: 8})
		time.Sleep(time.Second)
		small, next := ask(q, Request{Cost: 7}), ask(q, Request{Cost: 7})
		full.release()
		small.wants(t, Granted) // past wide, and nothing is free
		time.Sleep(10 * time.Second)
		synctest.Wait() // the turn has lapsed: would the timer fire for it, it would for ever
		small.release()
		next.wants(t, Granted)
		releaseAll(next, long)
		wide.wants(t, Granted)
		releaseAll(wide)
	})
	// Nor does one of a class that may not be granted.
	bubble(t, c, func(t *testing.T, q *Queue) {
		long, full := ask(q, Request{Class: 1, Cost: 1}), ask(q, Request{Cost: 7})
		wide := ask(q, Request{Class: 1, Cost: 8, Flow: "wide"})
		narrow := ask(q, Request{Class: 1, Cost: 1, Flow: "wide"})
		time.Sleep(time.Second)
		big := ask(q, Request{Cost: 8})
		full.release()
		narrow.wants(t, Granted) // past wide: its class is at its limit
		time.Sleep(10 * time.Second)
		synctest.Wait()
		wantAll(t, Queued, wide, big)
		releaseAll(narrow, long)
		releaseAll(wide, big)
	})
}
