package waitq

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"
)

// ago is a ticket of a call that came d ago.
func ago(d time.Duration, r Request) Request {
	r.Arrived = time.Now().Add(-d)
	return r
}

// TestTicketKeepsItsPlace in its flow, and among flows of equal turn.
func TestTicketKeepsItsPlace(t *testing.T) {
	bubble(t, conf(1), func(t *testing.T, q *Queue) {
		holder := ask(q, Request{Cost: 1})
		time.Sleep(30 * time.Second)
		b := ask(q, Request{Cost: 1, Flow: "x"})
		time.Sleep(10 * time.Second)
		d := ask(q, Request{Cost: 1, Flow: "x"})
		a := ask(q, ago(20*time.Second, Request{Cost: 1, Flow: "x"}))
		c := ask(q, ago(5*time.Second, Request{Cost: 1, Flow: "x"}))
		e := ask(q, ago(0, Request{Cost: 1, Flow: "x"})) // as old as d, which came first
		for i, next := range []*call{a, b, c, d, e} {
			holder.release()
			next.wants(t, Granted)
			for _, later := range []*call{a, b, c, d, e}[i+1:] {
				later.wants(t, Queued)
			}
			holder = next
		}
		releaseAll(holder)
	})
	bubble(t, conf(1), func(t *testing.T, q *Queue) {
		holder := ask(q, Request{Cost: 1})
		a := ask(q, Request{Cost: 1, Flow: "a"})
		b := ask(q, ago(time.Second, Request{Cost: 1, Flow: "b"}))
		holder.release()
		b.wants(t, Granted) // of equal turn, and older
		a.wants(t, Queued)
		releaseAll(b, a)
	})
}

// TestTicketKeepsItsAge: it has aged as if it had never left.
func TestTicketKeepsItsAge(t *testing.T) {
	c := conf(1)
	c.AgingStep = 10 * time.Second
	bubble(t, c, func(t *testing.T, q *Queue) {
		holder := ask(q, Request{Cost: 1})
		urgent := ask(q, Request{Cost: 1})
		young := ask(q, ago(20*time.Second-1, Request{Class: 2, Cost: 1}))
		holder.release()
		urgent.wants(t, Granted)
		other := ask(q, Request{Cost: 1})
		time.Sleep(time.Nanosecond) // two steps, two ranks
		urgent.release()
		young.wants(t, Granted)
		releaseAll(young, other)
	})
	// Of two that are too old to fit the older one passes.
	bubble(t, conf(8), func(t *testing.T, q *Queue) {
		holder := ask(q, Request{Cost: 8})
		head := ask(q, ago(time.Second, Request{Cost: 8, Flow: "a"}))
		first := ask(q, Request{Cost: 1, Flow: "a"})
		older := ask(q, ago(time.Second/2, Request{Cost: 1, Flow: "a"}))
		holder.lease.Shrink(holder.gen, 1)
		synctest.Wait()
		wantAll(t, Granted, older)
		wantAll(t, Queued, head, first)
		releaseAll(older, holder, head, first)
	})
}

// TestTicketInAFullQueue: who came back last is not the newest because of that.
func TestTicketInAFullQueue(t *testing.T) {
	c := conf(1)
	c.MaxWaiters = 3
	bubble(t, c, func(t *testing.T, q *Queue) {
		holder := ask(q, Request{Cost: 1})
		time.Sleep(10 * time.Second)
		young := ask(q, Request{Class: 2, Cost: 1})
		middle := ask(q, ago(5*time.Second, Request{Class: 2, Cost: 1}))
		old := ask(q, ago(10*time.Second, Request{Class: 2, Cost: 1}))
		a := ask(q, Request{Cost: 1})
		young.wants(t, Displaced)
		b := ask(q, Request{Cost: 1})
		middle.wants(t, Displaced)
		wantAll(t, Queued, old, a, b)
		releaseAll(holder, a, b, old)
	})
	// The newest of the longest flow too.
	bubble(t, c, func(t *testing.T, q *Queue) {
		holder := ask(q, Request{Cost: 1})
		time.Sleep(10 * time.Second)
		young := ask(q, Request{Cost: 1, Flow: "long"})
		old := ask(q, ago(5*time.Second, Request{Cost: 1, Flow: "long"}))
		older := ask(q, ago(6*time.Second, Request{Cost: 1, Flow: "long"}))
		other := ask(q, Request{Cost: 1, Flow: "other"})
		young.wants(t, Displaced)
		wantAll(t, Queued, old, older, other)
		releaseAll(holder, older, old, other)
	})
}

// TestTicketTick: a ticket waits until its arrival + timeout, to the tick, whatever
// the order in which tickets come back; what it has waited is its time in the queue.
func TestTicketTick(t *testing.T) {
	bubble(t, conf(1), func(t *testing.T, q *Queue) {
		holder := ask(q, Request{Cost: 1})
		time.Sleep(time.Minute)
		ages := []time.Duration{0, 30 * time.Second, 59*time.Second + 999*time.Millisecond, time.Second, time.Minute - 1}
		var calls []*call
		for _, d := range ages {
			calls = append(calls, ask(q, ago(d, Request{Cost: 1, Flow: "a"})))
		}
		wantAll(t, Queued, calls...)
		if s := q.Snapshot(); s.OldestWait != 0 || s.WaitingSince != 0 {
			t.Errorf("oldest %v, waiting for %v", s.OldestWait, s.WaitingSince)
		}
		start := time.Now()
		for _, i := range []int{4, 2, 1, 3, 0} {
			end := start.Add(time.Minute - ages[i])
			time.Sleep(time.Until(end) - 1)
			synctest.Wait()
			calls[i].wants(t, Queued)
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			calls[i].wants(t, TimedOut)
			if got := calls[i].result.Waited; got != time.Minute-ages[i] {
				t.Errorf("waited %v", got)
			}
		}
		releaseAll(holder)
	})
	bubble(t, conf(1), func(t *testing.T, q *Queue) {
		holder := ask(q, Request{Cost: 1})
		a := ask(q, ago(59*time.Second, Request{Cost: 1}))
		time.Sleep(time.Second - 1)
		holder.release()
		a.wants(t, Granted) // at the last moment
		if a.result.Waited != time.Second-1 || a.lease.Waited(a.gen) != time.Second-1 {
			t.Errorf("waited %v", a.result.Waited)
		}
		releaseAll(a)
	})
}

// TestTicketIsOver: one whose time is over is granted if it can start at once, and
// refused at once if not. It takes nobody's place.
func TestTicketIsOver(t *testing.T) {
	c := conf(2)
	c.MaxWaiters, c.Reserve = 2, 1
	bubble(t, c, func(t *testing.T, q *Queue) {
		old := func(class int) *call { return ask(q, ago(time.Hour, Request{Class: class, Cost: 1})) }
		a := old(1)
		wantAll(t, Granted, a) // nobody waits
		b, w := old(1), ask(q, Request{Class: 1, Cost: 1})
		b.wants(t, TimedOut)
		w.wants(t, Queued)
		d := old(0) // past one that the reserve stops
		d.wants(t, Granted)
		x, y := old(0), old(1)
		wantAll(t, TimedOut, x, y)
		w.wants(t, Queued)
		if b.result.Waited != 0 || x.result.Position != 1 || y.result.Position != 1 {
			t.Errorf("waited %v, positions %d and %d", b.result.Waited, x.result.Position, y.result.Position)
		}
		if s := q.Snapshot(); s.Entered != [Classes]int64{1, 1, 0} {
			t.Errorf("%v stood in the queue", s.Entered)
		}
		releaseAll(a, d, w)
	})
}

// TestTicketClock: what is ahead of the clock counts as now, and what is before the
// queue's beginning by centuries is just old.
func TestTicketClock(t *testing.T) {
	c := conf(1)
	c.Timeout, c.AgingStep = math.MaxInt64, time.Hour
	bubble(t, c, func(t *testing.T, q *Queue) {
		holder := ask(q, Request{Cost: 1})
		future := ask(q, ago(-time.Hour, Request{Cost: 1}))
		if w := q.all.oldest(inAll); w.arrival != q.now() {
			t.Errorf("arrival at %d, now is %d", w.arrival, q.now())
		}
		new := ask(q, Request{Cost: 1})
		ask(q, Request{Cost: 1, Arrived: time.Unix(-1<<40, 0)}).wants(t, TimedOut)
		ancient := ask(q, ago(99*365*24*time.Hour, Request{Cost: 1}))
		early := ask(q, ago(time.Hour, Request{Cost: 1})) // before New, both
		if w := q.all.oldest(inAll); q.now()-w.arrival != 99*365*24*int64(time.Hour) {
			t.Errorf("arrival at %d of one from another age", w.arrival)
		}
		for _, next := range []*call{ancient, early, future, new} {
			holder.release()
			next.wants(t, Granted)
			holder = next
		}
		releaseAll(holder)
	})
	c.Timeout = time.Hour
	bubble(t, c, func(t *testing.T, q *Queue) {
		holder := ask(q, Request{Cost: 1})
		waiter := ask(q, Request{Cost: 1, Arrived: time.Now().Add(-59 * time.Minute).Round(0)}) // without monotonic time
		time.Sleep(time.Minute - 1)
		synctest.Wait()
		waiter.wants(t, Queued)
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		waiter.wants(t, TimedOut)
		releaseAll(holder)
	})
}

// TestTicketTimeoutChanges: a new timeout counts from the first arrival, and sets
// the timer anew both ways.
func TestTicketTimeoutChanges(t *testing.T) {
	bubble(t, conf(1), func(t *testing.T, q *Queue) {
		holder := ask(q, Request{Cost: 1})
		young := ask(q, Request{Cost: 1})
		old := ask(q, ago(50*time.Second, Request{Cost: 1}))
		retime(q, conf(1), 2*time.Minute) // longer: the old one has 70 s
		time.Sleep(30 * time.Second)
		synctest.Wait()
		wantAll(t, Queued, young, old)
		retime(q, conf(1), 80*time.Second+1) // shorter: a nanosecond left
		synctest.Wait()
		old.wants(t, Queued)
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		old.wants(t, TimedOut)
		older := ask(q, ago(time.Minute, Request{Cost: 1}))
		retime(q, conf(1), time.Minute+time.Second)
		time.Sleep(time.Second - 1)
		synctest.Wait()
		wantAll(t, Queued, older, young)
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		older.wants(t, TimedOut)
		retime(q, conf(1), 10*time.Minute)
		time.Sleep(9*time.Minute + 29*time.Second - 2)
		synctest.Wait()
		young.wants(t, Queued)
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		young.wants(t, TimedOut)
		releaseAll(holder)
	})
}

// TestTicketOfABook stands in the books as in the queue.
func TestTicketOfABook(t *testing.T) {
	bubble(t, conf(1), func(t *testing.T, q *Queue) {
		holder := ask(q, Request{Cost: 1})
		second := ask(q, Request{Cost: 1})
		var l, over Lease
		if o := q.Book(&l, ago(time.Second, Request{Cost: 1})); o != Queued {
			t.Fatalf("outcome %d", o)
		}
		if o := q.Book(&over, ago(time.Minute, Request{Cost: 1})); o != TimedOut {
			t.Errorf("outcome %d of one whose time is over", o)
		}
		over.Release(over.Gen())
		holder.release()
		second.wants(t, Queued) // the entry is older
		l.Release(l.Gen())
		synctest.Wait()
		second.wants(t, Granted)
		releaseAll(second)
	})
}

// TestTicketCanceled: its context wins as everybody's.
func TestTicketCanceled(t *testing.T) {
	bubble(t, conf(1), func(t *testing.T, q *Queue) {
		holder := ask(q, Request{Cost: 1})
		first := ask(q, Request{Cost: 1})
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		ticket := askContext(ctx, q, ago(10*time.Second, Request{Cost: 1}))
		time.Sleep(5 * time.Second)
		synctest.Wait()
		ticket.wants(t, Canceled)
		if ticket.result.Waited != 5*time.Second || ticket.result.Position != 0 {
			t.Errorf("%+v", ticket.result)
		}
		holder.release()
		releaseAll(first)
	})
}

// TestOldestWait is by when they entered, with tickets among them too: exact as long
// as they are few, then to a slot of Waits.
func TestOldestWait(t *testing.T) {
	for _, n := range []int{few / 2, 3 * few} {
		for _, c := range []Config{conf(1), tracking(1)} {
			bubble(t, c, func(t *testing.T, q *Queue) {
				holder := ask(q, Request{Cost: 1})
				plain := ask(q, Request{Cost: 1})
				first := time.Now()
				time.Sleep(time.Second)
				var calls []*call
				for i := range n {
					calls = append(calls, ask(q, ago(time.Duration(2+i%20)*time.Second, Request{Cost: 1})))
				}
				second := time.Now()
				time.Sleep(10 * time.Second)
				want := func(since time.Time) {
					t.Helper()
					slot := time.Duration(0)
					if c.TrackWaits && n > few {
						slot = time.Duration(ageWidth(int64(c.Timeout)))
					}
					if got, want := q.Snapshot().OldestWait, time.Since(since); got > want || got < want-slot {
						t.Errorf("%d waiters, tracked %v: oldest wait %v, want %v", n, c.TrackWaits, got, want)
					}
				}
				want(first)
				plain.leave()
				want(second)
				releaseAll(holder)
				releaseAll(calls...)
			})
		}
	}
}
