package waitq

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func reserving(limit, reserve int64) Config {
	c := conf(limit)
	c.Reserve = reserve
	return c
}

// TestReserve: class 0 may have everything, the others together all but the reserve,
// whoever came first.
func TestReserve(t *testing.T) {
	bubble(t, reserving(6, 2), func(t *testing.T, q *Queue) {
		var lower []*call
		for i := range 6 {
			lower = append(lower, ask(q, Request{Class: 1 + i%2, Cost: 1}))
		}
		wantAll(t, Granted, lower[:4]...)
		wantAll(t, Queued, lower[4:]...)
		if s := q.Snapshot(); s.Reserve != 2 || s.InUse != 4 || s.ClassLeases != [Classes]int64{0, 2, 2} {
			t.Errorf("%+v", s)
		}
		if !q.Room(0) || q.Room(1) || q.Room(2) {
			t.Error("room is not for class 0 alone")
		}
		a, b := ask(q, Request{Cost: 1}), ask(q, Request{Cost: 1})
		wantAll(t, Granted, a, b)
		c := ask(q, Request{Cost: 1})
		c.wants(t, Queued)
		lower[0].release() // its slot is not reserved: c is of the higher class
		c.wants(t, Granted)
		lower[1].release()
		wantAll(t, Granted, lower[4])
		releaseAll(a, b)
		wantAll(t, Granted, lower[5])
		releaseAll(append(lower, c)...)
	})
}

// TestReserveIsOfTheLimit: it leaves the others at least one slot, and follows the
// limit and the configuration at once, both ways.
func TestReserveIsOfTheLimit(t *testing.T) {
	for _, test := range []struct{ limit, reserve, want int64 }{{1, 5, 0}, {2, 99, 1}, {3, 1, 1}, {4, 0, 0}, {MaxLimit, MaxLimit, MaxLimit - 1}} {
		q := New(reserving(test.limit, test.reserve))
		if got := q.Snapshot().Reserve; got != test.want {
			t.Errorf("reserve %d at limit %d is %d, want %d", test.reserve, test.limit, got, test.want)
		}
		var l Lease
		if !q.TryAcquire(&l, 2, 1) {
			t.Errorf("reserve %d at limit %d shuts out a class", test.reserve, test.limit)
		}
	}
	bubble(t, reserving(1, 2), func(t *testing.T, q *Queue) {
		calls := []*call{ask(q, Request{Class: 1, Cost: 1}), ask(q, Request{Class: 2, Cost: 1}), ask(q, Request{Class: 2, Cost: 1})}
		wantGranted := func(n int) {
			t.Helper()
			synctest.Wait()
			wantAll(t, Granted, calls[:n]...)
			wantAll(t, Queued, calls[n:]...)
		}
		wantGranted(1)
		q.SetLimit(3) // less 2
		wantGranted(1)
		q.SetLimit(4)
		wantGranted(2)
		q.SetLimit(2) // less 1; nothing is revoked
		calls[0].release()
		calls = calls[1:]
		wantGranted(1)
		q.Reconfigure(reserving(2, 0))
		wantGranted(2)
		releaseAll(calls...)
	})
	// What it counts is leases, whatever they cost or have given back.
	bubble(t, reserving(4, 2), func(t *testing.T, q *Queue) {
		a, b := ask(q, Request{Class: 1, Cost: 1}), ask(q, Request{Class: 1, Cost: 1})
		a.lease.Shrink(a.gen, 1)
		c := ask(q, Request{Class: 1, Cost: 1})
		wantAll(t, Granted, a, b)
		c.wants(t, Queued)
		if !a.lease.Grow(a.gen, 3) { // W12: growth is not a lease more
			t.Error("no growth into the reserve")
		}
		releaseAll(a, b, c)
	})
	// No reserve binds nothing, not even leases beyond the limit.
	bubble(t, reserving(2, 0), func(t *testing.T, q *Queue) {
		var calls []*call
		for range 4 {
			c := ask(q, Request{Class: 1, Cost: 1})
			c.lease.Shrink(c.gen, 1)
			calls = append(calls, c)
		}
		wantAll(t, Granted, calls...)
		releaseAll(calls...)
	})
}

// TestReserveIsNoPass: grants past a head that only the reserve stops do not count,
// and it takes part in the order again when it is not stopped any more.
func TestReserveIsNoPass(t *testing.T) {
	bubble(t, reserving(2, 1), func(t *testing.T, q *Queue) {
		holder := ask(q, Request{Class: 1, Cost: 1})
		stopped, behind := ask(q, Request{Class: 1, Cost: 1}), ask(q, Request{Class: 2, Cost: 1})
		for range 20 {
			x := ask(q, Request{Cost: 1})
			x.wants(t, Granted)
			x.release()
		}
		wantAll(t, Queued, stopped, behind)
		if h := q.classes[1].head(); h.passes != 0 {
			t.Errorf("%d passes", h.passes)
		}
		holder.release()
		wantAll(t, Granted, stopped)
		wantAll(t, Queued, behind)
		stopped.release()
		releaseAll(behind)
	})
}

// TestReserveKeepsAnAgedTurn: a turn that only the reserve stops is skipped, owes
// nothing for it, and comes when a lease of the lower classes ends.
func TestReserveKeepsAnAgedTurn(t *testing.T) {
	c := reserving(2, 1)
	c.AgingStep = time.Second
	bubble(t, c, func(t *testing.T, q *Queue) {
		lower, upper := ask(q, Request{Class: 2, Cost: 1}), ask(q, Request{Cost: 1})
		old := ask(q, Request{Class: 1, Cost: 1})
		time.Sleep(10 * time.Second)
		a, b := ask(q, Request{Cost: 1}), ask(q, Request{Cost: 1})
		upper.release() // old's turn, but this slot is not for it
		a.wants(t, Granted)
		wantAll(t, Queued, old, b)
		if q.debt != [Classes - 1]int64{} {
			t.Errorf("debts %v", q.debt)
		}
		lower.release()
		old.wants(t, Granted)
		b.wants(t, Queued)
		if q.debt[0] != 3 {
			t.Errorf("debts %v after the aged turn", q.debt)
		}
		releaseAll(old, a, b)
	})
}

// TestReserveAndAdmitAll: who stops enforcing goes beyond the reserve too.
func TestReserveAndAdmitAll(t *testing.T) {
	bubble(t, reserving(2, 1), func(t *testing.T, q *Queue) {
		calls := []*call{ask(q, Request{Class: 1, Cost: 1}), ask(q, Request{Class: 1, Cost: 1}), ask(q, Request{Class: 2, Cost: 1})}
		q.AdmitAll()
		synctest.Wait()
		wantAll(t, Granted, calls...)
		q.Reconfigure(reserving(2, 1))
		next := ask(q, Request{Class: 2, Cost: 1})
		calls[0].release()
		calls[1].release()
		next.wants(t, Queued)
		calls[2].release()
		next.wants(t, Granted)
		releaseAll(next)
	})
}

// TestReserveStress: with many at once, the lower classes never have more than
// their part, no slot is lost, and everybody is granted.
func TestReserveStress(t *testing.T) {
	c := reserving(8, 3)
	c.Timeout, c.ClassLimit[2] = 24*time.Hour, 4
	q := New(c)
	var held atomic.Int64 // 16 bits for each class: one word, so that a look at all is of one moment
	var wg sync.WaitGroup
	for i := range 48 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 11))
			var l Lease
			for range 400 {
				class := r.IntN(Classes)
				if q.Acquire(context.Background(), &l, Request{Class: class, Cost: 1, Flow: string(rune('a' + i%5))}).Outcome != Granted {
					t.Error("refused")
					return
				}
				h := held.Add(1 << (16 * class))
				if zero, one, two := h&0xffff, h>>16&0xffff, h>>32; one+two > 5 || two > 4 || zero+one+two > 8 {
					t.Errorf("%d, %d and %d are held", zero, one, two)
				}
				if r.IntN(4) == 0 {
					runtime.Gosched()
				}
				held.Add(-1 << (16 * class))
				l.Release(l.Gen())
			}
		})
	}
	wg.Wait()
	wantIdle(t, q)
	if n := q.lower.Load(); n != 0 {
		t.Errorf("%x leases of the lower classes", n)
	}
}

// TestRoom: it sees room whoever waits, paused or closed, and bounds of each kind.
func TestRoom(t *testing.T) {
	c := reserving(3, 1)
	c.ClassLimit[2] = 1
	bubble(t, c, func(t *testing.T, q *Queue) {
		want := func(when string, want ...bool) {
			t.Helper()
			for class, want := range want {
				if got := q.Room(class); got != want {
					t.Errorf("%s: class %d has room: %v", when, class, got)
				}
			}
		}
		want("empty", true, true, true)
		bulk := ask(q, Request{Class: 2, Cost: 1})
		want("class limit", true, true, false)
		waiter := ask(q, Request{Class: 2, Cost: 1})
		waiter.wants(t, Queued)
		want("somebody waits", true, true, false)
		lower := ask(q, Request{Class: 1, Cost: 1})
		want("reserve", true, false, false)
		full := ask(q, Request{Cost: 1})
		want("limit", false, false, false)
		q.SetLimit(1)
		want("shrunk", false, false, false)
		q.SetLimit(3)
		releaseAll(full, lower, waiter, bulk)
		q.Pause(time.Now().Add(time.Hour))
		want("paused", true, true, true)
		q.Close()
		want("closed", true, true, true)
	})
}
