package waitq

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"
)

// TestTimeoutTick: a waiter may be granted up to the last nanosecond of its time
// and is refused at the first one after, by the timer alone.
func TestTimeoutTick(t *testing.T) {
	bubble(t, conf(1), func(t *testing.T, q *Queue) {
		holder := ask(q, Request{Cost: 1})
		waiter := ask(q, Request{Cost: 1})
		time.Sleep(time.Minute - time.Millisecond)
		synctest.Wait()
		waiter.wants(t, Queued)
		time.Sleep(time.Millisecond - 1)
		holder.release()
		waiter.wants(t, Granted)
		if waiter.result.Waited != time.Minute-1 || waiter.lease.Waited(waiter.gen) != time.Minute-1 {
			t.Errorf("waited %v", waiter.result.Waited)
		}
		releaseAll(waiter)
	})
	bubble(t, conf(1), func(t *testing.T, q *Queue) {
		holder := ask(q, Request{Cost: 1})
		a := ask(q, Request{Cost: 1})
		time.Sleep(time.Second)
		b := ask(q, Request{Cost: 1})
		time.Sleep(59 * time.Second)
		synctest.Wait()
		a.wants(t, TimedOut)
		b.wants(t, Queued)
		if a.result.Waited != time.Minute {
			t.Errorf("waited %v", a.result.Waited)
		}
		time.Sleep(time.Second)
		holder.lease.Release(holder.gen) // at the very end: too late
		synctest.Wait()
		b.wants(t, TimedOut)
	})
}

// TestTimeoutZero lets nobody wait, and whoever fits start.
func TestTimeoutZero(t *testing.T) {
	c := conf(1)
	c.Timeout = 0
	bubble(t, c, func(t *testing.T, q *Queue) {
		holder := ask(q, Request{Cost: 7})
		holder.wants(t, Granted)
		ask(q, Request{Cost: 1}).wants(t, TimedOut)
		releaseAll(holder)
	})
}

// TestTimeoutChanges: a new timeout counts from arrival, for those who wait too.
func TestTimeoutChanges(t *testing.T) {
	bubble(t, conf(1), func(t *testing.T, q *Queue) {
		holder := ask(q, Request{Cost: 1})
		a := ask(q, Request{Cost: 1})
		time.Sleep(10 * time.Second)
		b := ask(q, Request{Cost: 1})
		retime(q, conf(1), 15*time.Second) // shorter
		time.Sleep(5*time.Second - 1)
		synctest.Wait()
		wantAll(t, Queued, a, b)
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		a.wants(t, TimedOut)
		b.wants(t, Queued)
		retime(q, conf(1), 100*time.Second) // longer: 105 s of it left
		time.Sleep(95*time.Second - 1)
		synctest.Wait()
		b.wants(t, Queued)
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		b.wants(t, TimedOut)
		if b.result.Waited != 100*time.Second {
			t.Errorf("waited %v", b.result.Waited)
		}
		c := ask(q, Request{Cost: 1})
		time.Sleep(20 * time.Second)
		d := ask(q, Request{Cost: 1})
		retime(q, conf(1), 20*time.Second) // over already for the one, at once
		synctest.Wait()
		c.wants(t, TimedOut)
		d.wants(t, Queued)
		retime(q, conf(1), 0)
		synctest.Wait()
		d.wants(t, TimedOut)
		releaseAll(holder)
	})
}

// TestTimeoutForever: the largest durations mean never, also after a change.
func TestTimeoutForever(t *testing.T) {
	c := conf(1)
	c.Timeout, c.AgingStep = math.MaxInt64, math.MaxInt64
	bubble(t, c, func(t *testing.T, q *Queue) {
		holder := ask(q, Request{Cost: 1})
		low := ask(q, Request{Class: 2, Cost: 1})
		time.Sleep(365 * 24 * time.Hour)
		high := ask(q, Request{Class: 0, Cost: 1})
		holder.release()
		high.wants(t, Granted)
		low.wants(t, Queued) // it has not aged
		retime(q, c, 2*365*24*time.Hour)
		time.Sleep(365*24*time.Hour - 1)
		synctest.Wait()
		low.wants(t, Queued)
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		low.wants(t, TimedOut)
		releaseAll(high)
	})
}

// TestTimerAlone: the timer serves waiters that came after it was set, and those
// who are left when the first one has gone.
func TestTimerAlone(t *testing.T) {
	bubble(t, conf(1), func(t *testing.T, q *Queue) {
		holder := ask(q, Request{Cost: 1})
		var calls []*call
		for range 10 {
			calls = append(calls, ask(q, Request{Cost: 1}))
			time.Sleep(time.Second)
		}
		calls[0].leave()
		time.Sleep(50 * time.Second)
		for i, c := range calls {
			synctest.Wait()
			if i > 0 {
				c.wants(t, TimedOut)
			}
			wantAll(t, Queued, calls[i+1:]...)
			time.Sleep(time.Second)
		}
		releaseAll(holder)
	})
}

// TestCallersDeadline: a caller's own deadline and the timeout, whichever is first.
func TestCallersDeadline(t *testing.T) {
	bubble(t, conf(1), func(t *testing.T, q *Queue) {
		holder := ask(q, Request{Cost: 1})
		for _, test := range []struct {
			own     time.Duration
			outcome Outcome
			waited  time.Duration
		}{{5 * time.Second, Canceled, 5 * time.Second}, {time.Hour, TimedOut, time.Minute}} {
			ctx, cancel := context.WithTimeout(context.Background(), test.own)
			c := askContext(ctx, q, Request{Cost: 1})
			time.Sleep(test.waited)
			synctest.Wait()
			c.wants(t, test.outcome)
			if c.result.Waited != test.waited {
				t.Errorf("waited %v, want %v", c.result.Waited, test.waited)
			}
			cancel()
		}
		releaseAll(holder)
	})
}

// TestWaitedIsNotNegative: clocks are read before the lock, so a grant may be
// older than the waiter's arrival.
func TestWaitedIsNotNegative(t *testing.T) {
	q := New(conf(1))
	e := newEngine(q)
	e.now = 1000
	e.enter(Request{Cost: 1})
	w := e.enter(Request{Cost: 1})
	e.now = 900
	e.release(0, 1)
	var l Lease
	if res := q.settle(context.Background(), &l, w); res.Outcome != Granted || res.Waited != 0 || l.Waited(l.Gen()) != 0 {
		t.Errorf("%+v, lease waited %v", res, l.Waited(l.Gen()))
	}
	l.Release(l.Gen())
	wantIdle(t, q)
}

// TestClockReadBeforeTheLock: a newcomer whose clock is older than that of the
// newest waiter counts from the same moment, so that arrivals stay in order.
func TestClockReadBeforeTheLock(t *testing.T) {
	q := New(conf(1))
	e := newEngine(q)
	e.now = 1000
	e.enter(Request{Cost: 1})
	first := e.enter(Request{Cost: 1})
	e.now = 900
	second := e.enter(Request{Cost: 1})
	if first.arrival != 1000 || second.arrival != 1000 || second.left != 1000 {
		t.Errorf("arrivals %d and %d", first.arrival, second.arrival)
	}
	if err := checkStructure(q); err != nil {
		t.Error(err)
	}
}
