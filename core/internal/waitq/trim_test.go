package waitq

import (
	"context"
	"math/rand/v2"
	"reflect"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"
)

// used is a queue in which everything has happened, and nobody is left.
func used(t *testing.T, q *Queue) {
	t.Helper()
	for class := range Classes {
		holder := ask(q, Request{Class: class, Cost: 1})
		var calls []*call
		for i := range 40 {
			calls = append(calls, ask(q, Request{Class: i % Classes, Cost: 1 + int64(i%7), Flow: string(rune('a' + i%20)), Arrived: time.Now().Add(-time.Second)}))
		}
		time.Sleep(time.Duration(1+class) * time.Second)
		holder.release()
		for range 2 {
			for _, c := range calls {
				if c.granted() {
					time.Sleep(time.Millisecond)
					c.release()
				}
			}
		}
		releaseAll(calls...)
	}
	synctest.Wait()
}

// TestTrim: what counts stays, whatever else there was is gone, and the queue goes
// on as a new one would.
func TestTrim(t *testing.T) {
	c := tracking(1)
	c.AgingStep = time.Second
	bubble(t, c, func(t *testing.T, q *Queue) {
		q.Trim() // never used
		used(t, q)
		before, total := q.Snapshot(), q.Totals()
		for range 2 { // again, nothing more
			q.Trim()
			wantTrimmed(t, q)
			after := q.Snapshot()
			before.TypicalHold = [Classes]time.Duration{}
			if !reflect.DeepEqual(before, after) {
				t.Errorf("before %+v\nafter  %+v", before, after)
			}
			if w := q.Waits(); w != (Waits{Totals: total}) || total.Holds.Sum == 0 {
				t.Errorf("got  %+v\nwant %+v", w.Totals, total)
			}
		}
		if q.KnowsHold(0) || q.RetryAfter(0, 1) != time.Second {
			t.Error("hold times are known")
		}
		used(t, q)
		again := q.Snapshot()
		for i := range Classes {
			if again.Entered[i] != 2*before.Entered[i] || again.Outcomes[i][Granted] != 2*before.Outcomes[i][Granted] {
				t.Errorf("class %d: %d and %d after twice the work", i, again.Entered[i], before.Entered[i])
			}
		}
		if w := q.Waits(); w.Total[1].Sum != 2*total.Total[1].Sum {
			t.Errorf("waited %v and %v", w.Total[1].Sum, total.Total[1].Sum)
		}
	})
}

func wantTrimmed(t *testing.T, q *Queue) {
	t.Helper()
	if q.window != nil || q.stats.counts != nil || q.stats.pace != nil || q.timer != nil || q.armed || q.all != (list{}) || q.woken != nil {
		t.Errorf("not trimmed: %+v", q.stats)
	}
	for i := range q.classes {
		if q.classes[i] != (class{}) {
			t.Errorf("class %d holds %+v", i, q.classes[i])
		}
	}
}

// TestTrimInUse: it does nothing to those who wait, and leases that are out and a
// pause go on.
func TestTrimInUse(t *testing.T) {
	bubble(t, tracking(1), func(t *testing.T, q *Queue) {
		holder, waiter := ask(q, Request{Cost: 1}), ask(q, Request{Cost: 1})
		q.Trim()
		if err := checkStructure(q); err != nil || waiting(q) != 1 {
			t.Fatalf("%d wait: %v", waiting(q), err)
		}
		waiter.leave()
		q.Pause(time.Now().Add(time.Second))
		q.Trim()
		time.Sleep(time.Second)
		synctest.Wait()
		holder.release()
		if !took(q) {
			t.Error("the fast path is closed after a pause")
		}
		q.undo(1<<countBits - 1)
		q.Trim()
		wantTrimmed(t, q)
		a, b := ask(q, Request{Cost: 1}), ask(q, Request{Cost: 1}) // with a new timer
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		b.wants(t, TimedOut)
		releaseAll(a)
	})
}

// TestPack: counters come out as they went in.
func TestPack(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		var c counters
		if r.IntN(3) > 0 {
			c.totals = new([Classes]WaitTotal)
		}
		if r.IntN(3) > 0 {
			c.holds = new(HoldTotal)
		}
		c.each(func(n *int64) {
			if r.IntN(2) == 0 {
				*n = r.Int64() >> r.IntN(63)
			}
		})
		if c.totals != nil && r.IntN(4) == 0 {
			c.totals = new([Classes]WaitTotal)
		}
		if c.holds != nil && r.IntN(4) == 0 {
			c.holds = new(HoldTotal)
		}
		s := stats{counts: &c}
		s.pack()
		if got := s.counters(); s.counts != nil || !reflect.DeepEqual(got, c) {
			t.Fatalf("got %+v, want %+v", got, c)
		}
		s.use()
		if !reflect.DeepEqual(*s.counts, c) || s.packed != "" {
			t.Fatalf("got %+v, want %+v", *s.counts, c)
		}
	}
}

// TestIdleSize: an in-flight lane that has been idle for 5 minutes may have 1 KiB,
// of which its policy has a fifth. This is the queue's part of it.
func TestIdleSize(t *testing.T) {
	if n := unsafe.Sizeof(Queue{}); n > 576 {
		t.Errorf("a queue has %d bytes, want at most 576", n)
	}
	bubble(t, tracking(1), func(t *testing.T, q *Queue) {
		used(t, q)
		q.Trim()
		if n := len(q.stats.packed); n > 160 {
			t.Errorf("the counters of a queue that was used have %d bytes", n)
		}
	})
	if raceEnabled {
		t.Skip("the race detector makes sync.Pool drop waiters, which are counted below")
	}
	const n = 2000
	queues := make([]*Queue, n)
	heap := func() int64 {
		var m runtime.MemStats
		for range 3 { // what is in a sync.Pool lives for two collections
			runtime.GC()
		}
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	for i := range queues {
		q := New(tracking(1))
		queues[i] = q
		for class := range Classes {
			for range 300 {
				use(t, q, class)
			}
		}
		q.Trim()
	}
	per := (heap() - before) / n
	t.Logf("%d bytes each", per)
	if per > 800 {
		t.Errorf("an idle queue has %d bytes, want at most 800", per)
	}
	runtime.KeepAlive(queues)
}

// use lets somebody wait for a moment in a queue with a limit of 1.
func use(t *testing.T, q *Queue, class int) {
	var a, b Lease
	q.TryAcquire(&a, class, 1)
	if q.Book(&b, Request{Class: class, Cost: 1}) != Queued {
		t.Fatal("not queued")
	}
	a.Release(a.Gen())
	b.Release(b.Gen())
	if q.Acquire(context.Background(), &a, Request{Class: class, Cost: 1}).Outcome != Granted {
		t.Fatal("refused")
	}
	a.Release(a.Gen())
}
