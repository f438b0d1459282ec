package waitq

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"
)

// TestAges: the ages of many who wait are right to half a slot, at any timeout, and
// after it has changed.
func TestAges(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 14))
		c := tracking(1)
		c.Timeout = []time.Duration{100 * time.Millisecond, time.Minute, 5 * time.Minute, time.Hour}[r.IntN(4)]
		e := newEngine(New(c))
		q := e.q
		e.enter(Request{Cost: 1})
		for range 300 {
			switch r.IntN(8) {
			case 0:
				e.release(0, 1)
				if e.leases == 0 {
					e.enter(Request{Cost: 1})
				}
			case 1:
				if r.IntN(6) == 0 {
					q.timeout = int64(time.Duration(1+r.IntN(2000)) * time.Second)
					q.setWidthLocked()
				}
			default:
				w := q.getWaiter(Request{Cost: 1})
				w.deadline = never
				if r.IntN(3) == 0 {
					w.arrival = e.now - r.Int64N(q.timeout) // its age in the queue is another
				}
				e.locked(func() { q.enterLocked(w, "", e.now) })
			}
			e.now += r.Int64N(q.timeout / 50)
			if r.IntN(50) == 0 {
				e.locked(func() { q.settleLocked(e.now) })
			}
		}
		if q.waiting == 0 {
			continue
		}
		var want []time.Duration
		old := int64(0)
		for _, w := range q.all.all(inAll) {
			want = append(want, time.Duration(e.now-w.left))
			if e.now-w.left > 1000*int64(time.Second) {
				old++
			}
		}
		a := q.window.ages
		s := a.appendTo(nil, e.now)
		if s.count() != int64(q.waiting) || a.n != int64(q.waiting) {
			t.Fatalf("seed %d: %d ages of %d waiters", seed, s.count(), q.waiting)
		}
		if old > 0 {
			continue // TestOldAges
		}
		for _, p := range []float64{0, 0.5, 0.9, 1} {
			sorted := append(sample(nil), s...)
			sorted.sort()
			got, want := sorted.percentile(p), exactly(want, p)
			if d := (got - want).Abs(); d > time.Duration(a.width)/2+1 {
				t.Errorf("seed %d: p%v is %v, want %v, slots of %v", seed, 100*p, got, want, time.Duration(a.width))
			}
		}
	}
}

// TestOldAges: those beyond the slots are taken together, at their mean.
func TestOldAges(t *testing.T) {
	a := &ages{width: int64(time.Second)}
	second := func(n int64) int64 { return n*int64(time.Second) + 1 }
	for _, at := range []int64{10, 20, 30, 40, 5000} {
		a.enter(second(at))
	}
	if a.older != 4 || a.sum != 100 {
		t.Errorf("%d older, sum %d", a.older, a.sum)
	}
	a.leave(second(40))
	s := a.appendTo(nil, second(5000))
	if len(s) != 2 || s[1].n != 3 || (time.Duration(s[1].wait)-4980*time.Second).Abs() > time.Second {
		t.Errorf("%v", s)
	}
	a.leave(second(5000))
	for _, at := range []int64{10, 20, 30} {
		a.leave(second(at))
	}
	if a.n != 0 || a.older != 0 || a.sum != 0 || a.slots != [ageSlots]uint32{} {
		t.Errorf("not empty: %d older, sum %d", a.older, a.sum)
	}
	a.enter(second(7000)) // and it begins anew
	if s := a.appendTo(nil, second(7001)); len(s) != 1 || s[0].n != 1 {
		t.Errorf("%v", s)
	}
}

// TestWaitsOfManyWaiters: of more than a few, with grants, as Waits puts them together.
func TestWaitsOfManyWaiters(t *testing.T) {
	bubble(t, tracking(1), func(t *testing.T, q *Queue) {
		holder := ask(q, Request{Cost: 1})
		all := []time.Duration{0}
		var calls []*call
		for range 4 * few {
			calls = append(calls, ask(q, Request{Cost: 1}))
			time.Sleep(time.Second)
		}
		for i := range calls {
			all = append(all, time.Duration(4*few-i)*time.Second)
		}
		for _, c := range calls[:10] {
			holder.release()
			holder = c
		}
		synctest.Wait()
		w := q.Waits()
		age := time.Duration(ageWidth(int64(5*time.Minute))) / 2
		if w.Count != int64(len(all)) || !near(w.P50, exactly(all, 0.5), age) || !near(w.P90, exactly(all, 0.9), age) {
			t.Errorf("%d waits, p50 %v, p90 %v; want %d, %v, %v", w.Count, w.P50, w.P90, len(all), exactly(all, 0.5), exactly(all, 0.9))
		}
		retime(q, tracking(1), time.Hour)
		if w := q.Waits(); w.Count != int64(len(all)) || !near(w.P50, exactly(all, 0.5), time.Second/2) {
			t.Errorf("after a change of the timeout: %+v", w)
		}
		releaseAll(append(calls, holder)...)
	})
}
