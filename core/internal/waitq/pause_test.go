package waitq

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestPause: nothing is granted before its end, at which it goes on by itself.
func TestPause(t *testing.T) {
	bubble(t, conf(4), func(t *testing.T, q *Queue) {
		holder := ask(q, Request{Cost: 1})
		q.Pause(time.Now().Add(30 * time.Second))
		var l Lease
		if q.TryAcquire(&l, 0, 1) || took(q) {
			t.Error("granted in a pause")
		}
		if q.Waiting() {
			t.Error("somebody waits")
		}
		a, b := ask(q, Request{Cost: 2}), ask(q, Request{Class: 2, Cost: 1})
		wantAll(t, Queued, a, b)
		if s := q.Snapshot(); s.Paused != 30*time.Second || !q.Waiting() {
			t.Errorf("%+v", s)
		}
		holder.release() // what is out comes back as ever
		time.Sleep(30*time.Second - 1)
		synctest.Wait()
		wantAll(t, Queued, a, b)
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		wantAll(t, Granted, a, b)
		if s := q.Snapshot(); s.Paused != 0 || a.result.Waited != 30*time.Second {
			t.Errorf("paused for %v more, waited %v", s.Paused, a.result.Waited)
		}
		if !took(q) {
			t.Error("the fast path is closed")
		}
		l.Hold(q, 0, 1)
		l.Release(l.Gen())
		releaseAll(a, b)
	})
}

// TestPauseWithoutAQueue: where nobody waits the fast path opens at the end.
func TestPauseWithoutAQueue(t *testing.T) {
	bubble(t, conf(1), func(t *testing.T, q *Queue) {
		q.Pause(time.Now().Add(time.Second))
		time.Sleep(time.Second - 1)
		synctest.Wait()
		if took(q) {
			t.Error("granted in a pause")
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if !took(q) {
			t.Error("the fast path is closed after the pause")
		}
		q.undo(1<<countBits - 1)
	})
	// Whoever comes at the very end and is faster than the timer starts.
	q := New(conf(1))
	e := newEngine(q)
	q.pauseLocked(100, e.now)
	e.now = 100
	if w := e.enter(Request{Cost: 1}); w.outcome != Granted {
		t.Errorf("outcome %d", w.outcome)
	}
	if q.Waiting() || q.biased {
		t.Error("the fast path is closed after the pause")
	}
	e.release(0, 1)
}

// TestPauseGrows: a later end counts, an earlier one does not, nor does one that
// has passed.
func TestPauseGrows(t *testing.T) {
	bubble(t, conf(1), func(t *testing.T, q *Queue) {
		start := time.Now()
		q.Pause(start)
		q.Pause(start.Add(-time.Hour))
		if s := q.Snapshot(); s.Paused != 0 {
			t.Errorf("paused for %v", s.Paused)
		}
		q.Pause(start.Add(10 * time.Second))
		q.Pause(start.Add(5 * time.Second))
		a := ask(q, Request{Cost: 1})
		time.Sleep(10*time.Second - 1)
		q.Pause(start.Add(20 * time.Second))
		q.Pause(time.Now())
		time.Sleep(10 * time.Second)
		synctest.Wait()
		a.wants(t, Queued)
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		a.wants(t, Granted)
		releaseAll(a)
	})
}

// TestResume ends it at once.
func TestResume(t *testing.T) {
	bubble(t, conf(1), func(t *testing.T, q *Queue) {
		q.Resume() // nothing to end
		q.Pause(time.Now().Add(time.Hour))
		a := ask(q, Request{Cost: 1})
		q.Resume()
		synctest.Wait()
		a.wants(t, Granted)
		a.release()
		q.Pause(time.Now().Add(time.Hour))
		q.Resume()
		if !took(q) {
			t.Error("the fast path is closed")
		}
		q.undo(1<<countBits - 1)
	})
}

// TestPauseBounds: in a pause everybody waits within its own bounds, and the queue's.
func TestPauseBounds(t *testing.T) {
	c := conf(1)
	c.MaxWaiters = 3
	bubble(t, c, func(t *testing.T, q *Queue) {
		q.Pause(time.Now().Add(2 * time.Minute))
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		short := askContext(ctx, q, Request{Cost: 1})
		long, low := ask(q, Request{Cost: 1}), ask(q, Request{Class: 1, Cost: 1})
		ask(q, Request{Class: 1, Cost: 1}).wants(t, Full)
		urgent := ask(q, Request{Cost: 1})
		urgent.wants(t, Queued)
		low.wants(t, Displaced)
		time.Sleep(time.Second)
		synctest.Wait()
		short.wants(t, Canceled)
		time.Sleep(59*time.Second - 1)
		synctest.Wait()
		wantAll(t, Queued, long, urgent)
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		wantAll(t, TimedOut, long, urgent)
		last := ask(q, Request{Cost: 1})
		time.Sleep(time.Minute) // its time and the pause end together
		synctest.Wait()
		last.wants(t, TimedOut)
	})
	c.Timeout = 0
	bubble(t, c, func(t *testing.T, q *Queue) {
		q.Pause(time.Now().Add(time.Minute))
		ask(q, Request{Cost: 1}).wants(t, TimedOut)
		zero := ask(q, Request{}) // takes nothing, and cannot wait
		zero.wants(t, Granted)
		releaseAll(zero)
	})
}

// TestPauseLetsGrow: started work goes on in a pause.
func TestPauseLetsGrow(t *testing.T) {
	bubble(t, conf(4), func(t *testing.T, q *Queue) {
		a := ask(q, Request{Cost: 1})
		q.Pause(time.Now().Add(time.Hour))
		if !a.lease.Grow(a.gen, 3) || a.lease.Grow(a.gen, 1) {
			t.Error("growth in a pause")
		}
		a.lease.Shrink(a.gen, 2)
		releaseAll(a)
	})
}

// TestPauseAndReconfigure: other settings change nothing about it, and a changed
// limit waits for its end.
func TestPauseAndReconfigure(t *testing.T) {
	bubble(t, conf(1), func(t *testing.T, q *Queue) {
		q.Pause(time.Now().Add(50 * time.Second))
		a, b := ask(q, Request{Cost: 1}), ask(q, Request{Cost: 1})
		q.SetLimit(2)
		retime(q, conf(2), time.Hour)
		q.Shed(1)
		time.Sleep(50*time.Second - 1)
		synctest.Wait()
		wantAll(t, Queued, a, b)
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		wantAll(t, Granted, a, b)
		releaseAll(a, b)
	})
}

// TestPauseAndAdmitAll: whom nothing holds up no pause does, but in the books.
func TestPauseAndAdmitAll(t *testing.T) {
	bubble(t, conf(2), func(t *testing.T, q *Queue) {
		q.Pause(time.Now().Add(30 * time.Second))
		a := ask(q, Request{Cost: 1})
		q.AdmitAll()
		synctest.Wait()
		a.wants(t, Granted)
		b := ask(q, Request{Cost: 1})
		b.wants(t, Granted)
		b.release()
		var l Lease
		if o := q.Book(&l, Request{Cost: 1}); o != Queued {
			t.Errorf("outcome %d", o)
		}
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if s := q.Snapshot(); s.InUse != 2 || s.Outcomes[0][Granted] != 3 {
			t.Errorf("%+v", s)
		}
		l.Release(l.Gen())
		releaseAll(a)
	})
}

// TestPauseAndClose: a closed queue is not paused, and is done without a pause's end.
func TestPauseAndClose(t *testing.T) {
	bubble(t, conf(1), func(t *testing.T, q *Queue) {
		q.Pause(time.Now().Add(time.Hour))
		a := ask(q, Request{Cost: 1})
		q.Close()
		synctest.Wait()
		a.wants(t, Closed)
		q.Pause(time.Now().Add(time.Hour))
		<-q.Drained()
		if s := q.Snapshot(); s.Paused != 0 || q.Waiting() {
			t.Errorf("%+v", s)
		}
	})
}

// TestPauseInRetryAfter: who comes back before its end comes back for nothing.
func TestPauseInRetryAfter(t *testing.T) {
	bubble(t, conf(1), func(t *testing.T, q *Queue) {
		for _, d := range []time.Duration{5*time.Second - 1, 5 * time.Second, 5*time.Second + 1, time.Hour} {
			q.Pause(time.Now().Add(d))
			got := q.RetryAfter(0, 1)
			if got < d || got >= d+time.Second || got%time.Second != 0 {
				t.Errorf("retry after %v in a pause of %v", got, d)
			}
		}
		q.Resume()
		if got := q.RetryAfter(0, 1); got != time.Second {
			t.Errorf("retry after %v", got)
		}
	})
}

// TestPauseAndAgedTurn: it is not the turn that keeps others waiting in a pause, so
// it does not run out then.
func TestPauseAndAgedTurn(t *testing.T) {
	c := conf(8)
	c.AgingStep = time.Second
	bubble(t, c, func(t *testing.T, q *Queue) {
		long, full := ask(q, Request{Cost: 1}), ask(q, Request{Cost: 7})
		wide := ask(q, Request{Class: 1, Cost: 8})
		time.Sleep(time.Second)
		var small []*call
		for range 4 {
			small = append(small, ask(q, Request{Cost: 2}))
		}
		full.release()
		wantAll(t, Granted, small[:2]...) // the two that may pass
		time.Sleep(time.Second)
		q.Pause(time.Now().Add(10 * time.Second))
		time.Sleep(10*time.Second + 2*time.Second - 1)
		synctest.Wait()
		wantAll(t, Queued, small[2:]...)
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		wantAll(t, Granted, small[2])
		releaseAll(append(small, long)...)
		wide.wants(t, Granted)
		releaseAll(wide)
	})
}
