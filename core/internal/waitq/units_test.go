package waitq

import (
	"testing"
	"testing/synctest"
	"time"
)

func inUnits(limit int64) Config {
	c := conf(limit)
	c.Units = true
	return c
}

// leases makes the state of a queue of units what it is with n more leases of a class.
func (q *Queue) leases(class int, n int64) int64 {
	return q.state.Add(n * (place(class, unitBits) - unit))
}

// TestUnitsRanges: a queue of units has a smaller limit than others.
func TestUnitsRanges(t *testing.T) {
	panics := func(f func()) (did bool) {
		defer func() { did = recover() != nil }()
		f()
		return false
	}
	q := New(inUnits(MaxUnits))
	if !panics(func() { New(inUnits(MaxUnits + 1)) }) || !panics(func() { q.SetLimit(MaxUnits + 1) }) ||
		!panics(func() { q.Reconfigure(conf(MaxUnits + 1)) }) {
		t.Error("no panic")
	}
	q.Reconfigure(conf(5)) // it stays what it is
	var l Lease
	if !q.TryAcquire(&l, 1, 3) || q.InUse() != 1 || !l.Release(l.Gen()) {
		t.Error("not a queue of units any more")
	}
	wantIdle(t, q)
}

// TestUnitsHaveNoCost: whatever a request says it takes one, and it stays one.
func TestUnitsHaveNoCost(t *testing.T) {
	bubble(t, inUnits(2), func(t *testing.T, q *Queue) {
		a, b := ask(q, Request{Class: 1, Cost: 1000}), ask(q, Request{Class: 2})
		wantAll(t, Granted, a, b)
		next := ask(q, Request{Cost: MaxLimit})
		next.wants(t, Queued)
		if s := q.Snapshot(); s.InUse != 2 || s.Queued != 1 || s.ClassLeases != [Classes]int64{0, 1, 1} {
			t.Errorf("%+v", s)
		}
		if !a.lease.Grow(a.gen, 1) { // neither grows nor shrinks
			t.Error("a unit grows into what is not there")
		}
		b.lease.Shrink(b.gen, 1)
		if q.InUse() != 2 {
			t.Errorf("in use %d", q.InUse())
		}
		a.release()
		next.wants(t, Granted)
		releaseAll(b, next)
	})
}

// TestUnitsAtTheTop: with as many leases as there may be, of one class, and very many
// acquires that are just failing, no count runs over into its neighbour, and nobody is
// let in.
func TestUnitsAtTheTop(t *testing.T) {
	const failing = 48_000
	for class := range Classes {
		for fails := range Classes {
			q := New(inUnits(MaxUnits))
			q.leases(class, MaxUnits)
			for range failing {
				if q.leases(fails, 1) >= 0 {
					t.Fatal("let in beyond the limit")
				}
			}
			want := [Classes]int64{}
			want[class] += MaxUnits
			want[fails] += failing
			one, two := q.lowerLeases()
			if q.freeLocked() != -failing || one != want[1] || two != want[2] {
				t.Errorf("%d free, %d and %d leases, want %v", q.freeLocked(), one, two, want)
			}
			var l Lease
			if q.TryAcquire(&l, fails, 1) || q.Waiting() || q.Room(fails) {
				t.Error("there is room, or somebody waits")
			}
			q.leases(fails, -failing)
			q.leases(class, -MaxUnits)
			wantIdle(t, q)
		}
	}
}

// TestUnitsAdmitAll: all are let in, however many are out. Beyond MaxUnits they are
// counted beside the state, which stays what it is.
func TestUnitsAdmitAll(t *testing.T) {
	const failing = 48_000
	for class := range Classes {
		bubble(t, inUnits(1), func(t *testing.T, q *Queue) {
			q.leases(class, MaxUnits-1)
			waiter := ask(q, Request{Class: class, Cost: 1})
			waiter.wants(t, Queued)
			for fails := range Classes { // the bias and all of these
				q.leases(fails, failing)
			}
			if !q.Waiting() || q.Room(class) {
				t.Error("nobody waits, or there is room")
			}
			for fails := range Classes {
				q.leases(fails, -failing)
			}
			q.AdmitAll()
			synctest.Wait()
			waiter.wants(t, Granted)
			state := q.state.Load()
			beyond := []*call{ask(q, Request{Class: class}), ask(q, Request{Class: 2}), ask(q, Request{Class: 1})}
			wantAll(t, Granted, beyond...)
			if s := q.Snapshot(); q.state.Load() != state || s.Leases != MaxUnits+3 || s.InUse != MaxUnits {
				t.Errorf("state %x, was %x: %+v", q.state.Load(), state, s)
			}
			q.Reconfigure(inUnits(1))
			late := ask(q, Request{})
			late.wants(t, Queued)
			beyond[0].release()
			if beyond[0].lease.Release(beyond[0].gen) || q.Retire() {
				t.Error("released twice, or retired with leases out")
			}
			waiter.release()
			q.leases(class, -(MaxUnits - 1))
			q.redispatch(q.now())
			synctest.Wait()
			late.wants(t, Granted)
			releaseAll(late)
			q.Close()
			releaseAll(beyond[1])
			select {
			case <-q.Drained():
				t.Error("drained while a lease of nothing is out")
			default:
			}
			releaseAll(beyond[2])
			<-q.Drained()
		})
	}
}

// TestUnitsCanceledBeyond: a grant of nothing whose caller has left goes back like any.
func TestUnitsCanceledBeyond(t *testing.T) {
	bubble(t, inUnits(1), func(t *testing.T, q *Queue) {
		q.leases(0, MaxUnits)
		waiter := ask(q, Request{Class: 1})
		q.over = MaxUnits - 1 // as if the limit had shrunk
		q.mu.Lock()
		w := q.all.oldest(inAll)
		q.unlinkLocked(w, true, false)
		q.admitLocked(w, q.now())
		wakes := q.takeWokenLocked()
		nothing := q.nothing
		q.mu.Unlock()
		waiter.cancel()
		synctest.Wait()
		wakes.wake()
		synctest.Wait()
		waiter.wants(t, Canceled)
		if s := q.Snapshot(); nothing != 1 || s.Leases != MaxUnits || s.Returned != 1 {
			t.Errorf("%d leases of nothing, then %+v", nothing, s)
		}
		q.leases(0, -MaxUnits)
		q.redispatch(q.now())
	})
}

// TestUnitsFailingAdds: an acquire that is just failing hides room, or a place in its
// class, from a release. When it has gone back, who fits is granted. For Close it is a
// lease until then.
func TestUnitsFailingAdds(t *testing.T) {
	c := inUnits(2)
	c.ClassLimit[1] = 1
	bubble(t, c, func(t *testing.T, q *Queue) {
		for class := range 2 {
			holders := []*call{ask(q, Request{Class: class}), ask(q, Request{Class: 2 * (1 - class)})}
			waiter := ask(q, Request{Class: class})
			q.leases(class, 1)
			holders[0].release()
			waiter.wants(t, Queued)
			q.undo(unit - place(class, unitBits))
			synctest.Wait()
			waiter.wants(t, Granted)
			releaseAll(append(holders, waiter)...)
		}
		q.leases(1, 1)
		if q.Retire() {
			t.Error("retired while an acquire may succeed")
		}
		q.Close()
		q.undo(unit - place(1, unitBits))
		<-q.Drained()
	})
}

// TestUnitsBook: nobody waits, and a refused entry holds nothing.
func TestUnitsBook(t *testing.T) {
	c := inUnits(1)
	c.MaxWaiters = 1
	bubble(t, c, func(t *testing.T, q *Queue) {
		var l [3]Lease
		for i, want := range []Outcome{Granted, Queued, Full} {
			if got := q.Book(&l[i], Request{Class: 1 + i/2}); got != want {
				t.Fatalf("request %d: outcome %d, want %d", i, got, want)
			}
		}
		if s := q.Snapshot(); s.InUse != 1 || s.Leases != 2 || waiting(q) != 1 {
			t.Errorf("%+v", s)
		}
		time.Sleep(time.Second)
		l[0].Release(l[0].Gen())
		if s := q.Snapshot(); s.InUse != 1 || waiting(q) != 0 || s.ClassLeases[1] != 1 {
			t.Errorf("%+v", s)
		}
		l[1].Release(l[1].Gen())
		if gen := l[2].Gen(); q.Retire() || !l[2].Release(gen) || l[2].Release(gen) || !q.Retire() {
			t.Error("retired with an entry out, or not without one")
		}
		if got := q.Book(&l[0], Request{}); got != Closed || !l[0].Release(l[0].Gen()) {
			t.Errorf("outcome %d in a closed queue", got)
		}
	})
}

// TestUnitsRetire: no acquire comes between the look and the close.
func TestUnitsRetire(t *testing.T) {
	c := newCounter(1)
	q := c.queue(3, nil)
	var own Lease
	l, gen := c.serve(q, 0, 2, &own)
	if q.Retire() {
		t.Error("retired with a lease out")
	}
	l.Release(gen)
	if !q.Retire() {
		t.Error("not retired")
	}
	if l, _ := c.serve(q, 0, 2, &own); l != nil || q.TryAcquire(&own, 0, 1) || q.Waiting() {
		t.Error("a retired queue admits")
	}
	wantIdle(t, q)
}
