package waitq

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func tracking(limit int64) Config {
	c := conf(limit)
	c.TrackWaits, c.Timeout = true, 5*time.Minute
	return c
}

// exactly is the percentile of waits by its definition: interpolated linearly at
// p(n-1) in the sorted list.
func exactly(waits []time.Duration, p float64) time.Duration {
	if len(waits) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(waits))
	at := p * float64(len(s)-1)
	i := int(at)
	return s[i] + time.Duration((at-float64(i))*float64(s[min(i+1, len(s)-1)]-s[i]))
}

// near: within 4.5 % or 0.525 ms, and the error of an age.
func near(got, want, age time.Duration) bool {
	return math.Abs(float64(got-want)) <= 0.045*float64(want)+float64(525*time.Microsecond+age)+1
}

// TestWaitsOfFew: with few waits the percentiles are exact.
func TestWaitsOfFew(t *testing.T) {
	const s = time.Second
	for _, test := range []struct {
		waits    []time.Duration
		p50, p90 time.Duration
	}{
		{nil, 0, 0},
		{[]time.Duration{0}, 0, 0},
		{[]time.Duration{7 * s}, 7 * s, 7 * s},
		{[]time.Duration{0, 30 * s}, 15 * s, 27 * s},
		{[]time.Duration{40 * s, 10 * s, 20 * s, 30 * s}, 25 * s, 37 * s},
		{[]time.Duration{0, 10 * s, 20 * s, 30 * s, 40 * s}, 20 * s, 36 * s},
		{[]time.Duration{0, 0, 0, 0, 0, 0, 0, 0, 0, 1}, 0, 0},
	} {
		var out sample
		for _, d := range test.waits {
			out = append(out, value{int64(d), 1})
		}
		out.sort()
		if out.percentile(0.5) != test.p50 || out.percentile(0.9) != test.p90 || exactly(test.waits, 0.9) != test.p90 {
			t.Errorf("%v: p50 %v, p90 %v, want %v and %v", test.waits, out.percentile(0.5), out.percentile(0.9), test.p50, test.p90)
		}
	}
	bubble(t, tracking(1), func(t *testing.T, q *Queue) {
		a := ask(q, Request{Cost: 1}) // did not wait
		b := ask(q, Request{Cost: 1})
		if w := q.Waits(); w.Count != 2 || w.P50 != 0 {
			t.Errorf("%+v", w)
		}
		time.Sleep(30 * s)
		synctest.Wait()
		want := Waits{Count: 2, P50: 15 * s, P90: 27 * s}
		want.Total[0].Buckets[0] = 1
		if w := q.Waits(); w != want { // b waits still
			t.Errorf("got  %+v\nwant %+v", w, want)
		}
		a.release()
		want.Total[0].Buckets[7], want.Total[0].Sum = 1, 30*s
		want.Holds.Buckets[9], want.Holds.Sum = 1, 30*s
		if w := q.Waits(); w != want {
			t.Errorf("got  %+v\nwant %+v", w, want)
		}
		releaseAll(b)
	})
}

// TestWaitsWithin: random waits, many of them, whatever their scale.
func TestWaitsWithin(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 12))
		w := &window{}
		var all []time.Duration
		scale := math.Pow(10, 5+7*r.Float64()) // 0.1 ms to 1000 s
		for range 1 + r.IntN(3000) {
			d := time.Duration(r.ExpFloat64() * scale)
			if r.IntN(3) == 0 {
				d = 0
				w.at().zeros++
			} else if d > 0 {
				w.add(int64(d))
			}
			all = append(all, d)
			w.roll(w.newest + r.Int64N(1001)/1000) // now and then the next slice, few enough in all
		}
		s, _ := w.appendTo(nil)
		if w.sum != nil {
			s = w.sum.appendTo(s)
		}
		s.sort()
		if s.count() != int64(len(all)) {
			t.Fatalf("seed %d: %d waits of %d", seed, s.count(), len(all))
		}
		for _, p := range []float64{0, 0.1, 0.5, 0.9, 1} {
			if got, want := s.percentile(p), exactly(all, p); !near(got, want, 0) {
				t.Errorf("seed %d: p%v of %d waits is %v, want %v", seed, 100*p, len(all), got, want)
			}
		}
	}
	for d := int64(1); d > 0 && d < 1<<47; d += 1 + d/7 {
		if got := waitOf(waitBucket(d)); !near(time.Duration(got), time.Duration(d), 0) {
			t.Errorf("%v is taken for %v", time.Duration(d), time.Duration(got))
		}
	}
	if waitBucket(math.MaxInt64) != waitsCounted-1 {
		t.Error("the longest wait is in no bucket")
	}
}

// TestWaitsWindow: what is older than 5 minutes is forgotten, to a slice, and what
// is younger is not.
func TestWaitsWindow(t *testing.T) {
	bubble(t, tracking(1), func(t *testing.T, q *Queue) {
		for range 2*few + 10 { // kept as they are, and in buckets
			holder := ask(q, Request{Cost: 1})
			waiter := ask(q, Request{Cost: 1})
			time.Sleep(10 * time.Millisecond)
			releaseAll(holder, waiter)
		}
		n := q.Waits().Count
		retime(q, tracking(1), time.Second)
		holder := ask(q, Request{Cost: 1})
		ask(q, Request{Cost: 1})
		time.Sleep(time.Second)
		synctest.Wait()
		releaseAll(holder)
		if w := q.Waits(); w.Count != n+2 || n != 4*few+20 || w.TimedOut != 1 || w.P90 == 0 {
			t.Errorf("%+v", w)
		}
		time.Sleep(5*time.Minute - 15*time.Second - 3*time.Second)
		if w := q.Waits(); w.Count != n+2 || w.TimedOut != 1 {
			t.Errorf("before its time: %+v", w)
		}
		before := q.Waits().Total
		time.Sleep(18 * time.Second)
		if w := q.Waits(); w.Count != 0 || w.TimedOut != 0 || w.P90 != 0 || w.Total != before {
			t.Errorf("after its time: %+v", w)
		}
		if *q.window.sum != (waitCounts{}) {
			t.Error("the sum of nothing is not 0")
		}
	})
	// The same against a list, in a history of waits and rolls.
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 13))
		e := newEngine(New(tracking(1)))
		type left struct{ at, waited int64 }
		var all []left
		for range 400 {
			e.now += r.Int64N(r.Int64N(int64(20*time.Second)) + 1)
			if r.IntN(30) == 0 {
				e.now += r.Int64N(int64(10 * time.Minute))
			}
			d := r.Int64N(3) * r.Int64N(int64(time.Minute))
			e.q.leftLockedFor(d, e.now)
			all = append(all, left{e.now, d})
			want := int64(0)
			for _, l := range all {
				if e.now/sliceLength-l.at/sliceLength < sliceCount {
					want++
				}
			}
			e.q.rollLocked(e.now)
			s, _ := e.q.window.appendTo(nil)
			if e.q.window.sum != nil {
				s = e.q.window.sum.appendTo(s)
			}
			if s.count() != want {
				t.Fatalf("seed %d: %d waits, want %d", seed, s.count(), want)
			}
		}
	}
}

func (q *Queue) leftLockedFor(waited, now int64) {
	q.stats.use()
	q.leftLocked(0, Granted, true, waited, now)
}

// TestWaitsOfAll: who counts and who does not.
func TestWaitsOfAll(t *testing.T) {
	c := tracking(1)
	c.MaxWaiters, c.ClassLimit[2] = 4, 0
	bubble(t, c, func(t *testing.T, q *Queue) {
		holder := ask(q, Request{Cost: 1}) // 0
		granted, canceled := ask(q, Request{Cost: 1}), ask(q, Request{Cost: 1})
		shed, displaced := ask(q, Request{Class: 1, Cost: 1}), ask(q, Request{Class: 2, Cost: 1})
		ask(q, Request{Class: 2, Cost: 1}).wants(t, Full)                               // it never waited
		ask(q, Request{Class: 1, Cost: 1, Arrived: time.Unix(1, 0)}).wants(t, TimedOut) // 0
		time.Sleep(10 * time.Second)
		late := ask(q, Request{Cost: 1})
		displaced.wants(t, Displaced)
		time.Sleep(10 * time.Second)
		canceled.leave()
		q.Shed(1)
		synctest.Wait()
		shed.wants(t, Shed)
		time.Sleep(10 * time.Second)
		holder.release()
		granted.wants(t, Granted)
		w := q.Waits()
		all := []time.Duration{0, 0, 10 * time.Second, 20 * time.Second, 20 * time.Second, 30 * time.Second, 20 * time.Second}
		if w.Count != int64(len(all)) || w.P50 != exactly(all, 0.5) || w.P90 != exactly(all, 0.9) || w.TimedOut != 1 {
			t.Errorf("%+v", w)
		}
		var want [Classes]WaitTotal
		want[0].Buckets[0], want[0].Buckets[7], want[0].Sum = 1, 1, 30*time.Second
		want[1].Buckets[0] = 1
		if w.Total != want {
			t.Errorf("got  %+v\nwant %+v", w.Total, want)
		}
		releaseAll(granted, late)
	})
	q := New(conf(1)) // it does not keep any
	e := newEngine(q)
	e.enter(Request{Cost: 1})
	e.enter(Request{Cost: 1})
	e.release(0, 1)
	e.release(0, 1)
	q.Roll()
	if w := q.Waits(); w != (Waits{}) || q.window != nil || q.stats.counts.totals != nil {
		t.Errorf("%+v", w)
	}
}

// TestWaitsOfImmediateGrants count as 0 from the next Roll on.
func TestWaitsOfImmediateGrants(t *testing.T) {
	bubble(t, tracking(4), func(t *testing.T, q *Queue) {
		var l Lease
		for range 40 {
			for range 10 {
				q.TryAcquire(&l, 1, 1)
				l.Release(l.Gen())
			}
			q.Roll()
			time.Sleep(15 * time.Second)
		}
		if w := q.Waits(); w.Count != 190 || w.Total[1].Buckets[0] != 400 {
			t.Errorf("%d waits in 5 minutes, %d in all", w.Count, w.Total[1].Buckets[0])
		}
		time.Sleep(time.Hour)
		q.TryAcquire(&l, 1, 1)
		if w := q.Waits(); w.Count != 1 {
			t.Errorf("%d waits an hour later", w.Count)
		}
		l.Release(l.Gen())
	})
}
