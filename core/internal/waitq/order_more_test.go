package waitq

import (
	"context"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"
)

// TestTurnLapsesByItself: a head that has begun to keep others waiting with a release, not
// with an arrival, keeps them for no longer than it may either: nothing else has to happen.
func TestTurnLapsesByItself(t *testing.T) {
	const step = 5 * time.Second
	c := conf(10)
	c.AgingStep = step
	bubble(t, c, func(t *testing.T, q *Queue) {
		large, small := ask(q, Request{Cost: 6}), ask(q, Request{Cost: 4})
		head := ask(q, Request{Class: 2, Cost: 10})
		time.Sleep(2 * step) // it has aged past both classes
		first, second, third := ask(q, Request{Cost: 1}), ask(q, Request{Cost: 1}), ask(q, Request{Cost: 1})
		wantAll(t, Queued, head, first, second, third)
		small.release()
		wantAll(t, Granted, first, second) // past the head
		time.Sleep(keepSteps*step - 1)
		synctest.Wait()
		wantAll(t, Queued, head, third)
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		wantAll(t, Granted, third)
		head.wants(t, Queued)
		releaseAll(large, first, second, third)
		head.wants(t, Granted)
		releaseAll(head)
	})
}

// TestOldestWaitIsATickets: a ticket that entered before the first of those who came in
// order is the one that waits the longest.
func TestOldestWaitIsATickets(t *testing.T) {
	for _, c := range []Config{conf(1), tracking(1)} {
		bubble(t, c, func(t *testing.T, q *Queue) {
			holder, first := ask(q, Request{Cost: 1}), ask(q, Request{Cost: 1})
			time.Sleep(time.Second)
			ticket := ask(q, ago(10*time.Second, Request{Cost: 1}))
			time.Sleep(time.Second)
			first.leave()
			later := ask(q, Request{Cost: 1})
			time.Sleep(time.Second)
			if s := q.Snapshot(); s.OldestWait != 2*time.Second {
				t.Errorf("oldest wait %v, want 2s", s.OldestWait)
			}
			ticket.leave()
			if s := q.Snapshot(); s.OldestWait != time.Second {
				t.Errorf("oldest wait %v, want 1s", s.OldestWait)
			}
			releaseAll(holder, later)
		})
	}
}

// TestTightClassAddsNothing: once one of a class has been refused for its bound, others of
// the class fail without an add to the state, which would hide free units for a moment.
func TestTightClassAddsNothing(t *testing.T) {
	c := inUnits(3)
	c.Reserve, c.MaxWaiters = 1, 0
	q := New(c)
	var held [2]Lease
	for i := range held {
		if !q.TryAcquire(&held[i], 2, 1) {
			t.Fatal("refused")
		}
	}
	var l Lease
	if o := q.Acquire(context.Background(), &l, Request{Class: 2}).Outcome; o != Full {
		t.Fatalf("outcome %d beyond the reserve", o)
	}
	var ready Lease
	ready.Share()
	still, over := q.state.Load(), make(chan struct{})
	var looks sync.WaitGroup
	looks.Go(func() {
		for {
			select {
			case <-over:
				return
			default:
				if now := q.state.Load(); now != still {
					t.Errorf("the state is %x for a moment, was %x", now, still)
					return
				}
			}
		}
	})
	for range 200_000 {
		for class := 1; class < Classes; class++ {
			if _, taken := q.TryUnit(&ready, class); taken {
				t.Error("taken")
			}
		}
	}
	close(over)
	looks.Wait()
	held[0].Release(held[0].Gen())
	held[1].Release(held[1].Gen())
	wantIdle(t, q)
}

// TestLimitAndReserveChangeAsOne: with 1 unit, or with 2 of which 1 is reserved, two leases
// of a lower class are never out, whoever comes while the one becomes the other.
func TestLimitAndReserveChangeAsOne(t *testing.T) {
	config := func(limit int64) Config {
		c := inUnits(limit)
		c.Reserve, c.MaxWaiters = 1, 0
		return c
	}
	for name, set := range map[string]func(*Queue, int64){
		"SetLimit":    (*Queue).SetLimit,
		"Reconfigure": func(q *Queue, n int64) { q.Reconfigure(config(n)) },
	} {
		t.Run(name, func(t *testing.T) {
			q := New(config(1))
			var out atomic.Int64
			var ended atomic.Bool
			var wg sync.WaitGroup
			for range 3 {
				wg.Go(func() {
					for !ended.Load() {
						var l Lease
						if !q.TryAcquire(&l, 2, 1) {
							continue
						}
						if n := out.Add(1); n > 1 {
							t.Errorf("%d are out", n)
						}
						runtime.Gosched()
						out.Add(-1)
						l.Release(l.Gen())
					}
				})
			}
			for i := range int64(20_000) {
				set(q, 1+i%2)
			}
			ended.Store(true)
			wg.Wait()
			wantIdle(t, q)
		})
	}
}

// TestClockIsMonotonic: what is done to the wall clock changes nothing in a queue.
func TestClockIsMonotonic(t *testing.T) {
	if epoch := New(conf(1)).epoch.String(); !strings.Contains(epoch, " m=") {
		t.Errorf("the epoch %s has no monotonic reading", epoch)
	}
}

// bytes is what a window takes.
func (w *window) bytes() (n uintptr) {
	n = unsafe.Sizeof(*w)
	for i := range w.slices {
		n += uintptr(cap(w.slices[i].few)) * 8
		if w.slices[i].waits != nil {
			n += unsafe.Sizeof(waitCounts{})
		}
	}
	if w.sum != nil {
		n += unsafe.Sizeof(waitCounts{})
	}
	if w.ages != nil {
		n += unsafe.Sizeof(ages{})
	}
	return n
}

// TestWindowIsBounded: whatever number of waits there have been in 5 minutes, and
// however many wait, what is kept of them has one size, and nobody is forgotten.
func TestWindowIsBounded(t *testing.T) {
	const each = 20_000 // in a slice
	e := newEngine(New(tracking(1)))
	r := rand.New(rand.NewPCG(3, 14))
	e.enter(Request{Cost: 1})
	most := uintptr(0)
	for range 2 * sliceCount {
		for range each {
			e.q.leftLockedFor(r.Int64N(int64(10*time.Minute)), e.now)
		}
		for range 100 {
			e.enter(Request{Cost: 1})
		}
		most = max(most, e.q.window.bytes())
		e.now += sliceLength
	}
	if limit := uintptr(6<<10 + sliceCount*1300); most > limit || most < 10<<10 {
		t.Errorf("%d bytes, want at most %d", most, limit)
	}
	s, _ := e.q.window.appendTo(nil)
	if n := e.q.window.sum.appendTo(s).count(); n < each*(sliceCount-1) {
		t.Errorf("%d waits are known, want those of %d slices", n, sliceCount-1)
	}
}

// TestAgesAfterAReload: the ages of many who wait are as right after a reload as its
// timeout says, whether it has grown or shrunk.
func TestAgesAfterAReload(t *testing.T) {
	for _, timeouts := range [][2]time.Duration{{time.Second, time.Hour}, {time.Hour, 10 * time.Second}} {
		c := tracking(1)
		c.Timeout = timeouts[0]
		bubble(t, c, func(t *testing.T, q *Queue) {
			holder := ask(q, Request{Cost: 1})
			all, calls := []time.Duration{0}, []*call{holder}
			var entered []time.Time
			enter := func(every time.Duration) {
				for range 2 * few {
					calls = append(calls, ask(q, Request{Cost: 1}))
					entered = append(entered, time.Now())
					time.Sleep(every)
				}
			}
			enter(time.Millisecond)
			c.Timeout = timeouts[1]
			q.Reconfigure(c)
			enter(c.Timeout / 1000)
			time.Sleep(c.Timeout / 100)
			for _, at := range entered {
				all = append(all, time.Since(at))
			}
			w, age := q.Waits(), time.Duration(ageWidth(int64(c.Timeout)))/2
			if w.Count != int64(len(all)) || !near(w.P50, exactly(all, 0.5), age) || !near(w.P90, exactly(all, 0.9), age) {
				t.Errorf("from %v to %v: %d waits, p50 %v, p90 %v; want %d, %v, %v", timeouts[0], timeouts[1],
					w.Count, w.P50, w.P90, len(all), exactly(all, 0.5), exactly(all, 0.9))
			}
			releaseAll(calls...)
		})
	}
}
