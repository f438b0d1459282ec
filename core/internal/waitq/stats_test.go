package waitq

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestMedian: the histogram's median is at most the true one, and at most a third
// below it.
func TestMedian(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 5))
		var h histogram
		var all []int64
		scale := math.Pow(10, float64(1+r.IntN(11)))
		for range 1 + r.IntN(300) {
			d := 1 + int64(r.ExpFloat64()*scale)
			h.add(d)
			all = append(all, d)
		}
		slices.Sort(all)
		want := all[(len(all)-1)/2]
		if got := h.quantile(1, 2); got > want || float64(got) < float64(want)*2/3-1 {
			t.Fatalf("seed %d: median %d of %d samples, in truth %d", seed, got, len(all), want)
		}
	}
}

func TestMedianEdges(t *testing.T) {
	var h histogram
	if h.quantile(1, 2) != 0 {
		t.Error("a median of nothing")
	}
	for _, d := range []int64{-5, 0, 1, 2, 3, 1000, math.MaxInt64 / 4} {
		b := bucketOf(max(d, 1))
		if edgeOf(b) > max(d, 1) || edgeOf(b+1) <= max(d, 1) && b > 0 {
			t.Errorf("%d is in bucket %d from %d to %d", d, b, edgeOf(b), edgeOf(b+1))
		}
		h.add(d)
	}
	if h.n != 7 {
		t.Errorf("%d samples", h.n)
	}
}

// TestMedianFollows: old samples lose their weight, so the median follows a change.
func TestMedianFollows(t *testing.T) {
	var h histogram
	for range 10 * holdWindow {
		h.add(1000)
	}
	for range 2 * holdWindow {
		h.add(1_000_000)
	}
	if m := h.quantile(1, 2); m < 500_000 {
		t.Errorf("median %d, long after the change to 1000000", m)
	}
	if h.n > holdWindow {
		t.Errorf("%d samples kept", h.n)
	}
}

// TestMeter compares the rate with a plain count over the same windows.
func TestMeter(t *testing.T) {
	var m meter
	if m.rate(5) != 0 {
		t.Error("a rate of nothing")
	}
	// 10 units every 100 ms are 100 a second, at every moment after the first window.
	at := int64(1)
	for range 1000 {
		m.add(10, at)
		at += int64(100 * time.Millisecond)
		if got := m.rate(at) * 1e9; at > 2*drainWindow && math.Abs(got-100) > 2.5 {
			t.Fatalf("rate %.2f/s at %v, want 100", got, time.Duration(at))
		}
	}
	// Then nothing: the rate falls, and is 0 after two windows.
	last := m.rate(at)
	for range 200 {
		at += int64(100 * time.Millisecond)
		got := m.rate(at)
		if got > last {
			t.Fatalf("the rate rises from %v to %v while nothing comes back", last, got)
		}
		last = got
	}
	if last != 0 {
		t.Errorf("rate %v after 20 s of nothing", last)
	}
	m.add(1, at)
	if got := m.rate(at); got > 1.0/float64(time.Millisecond) {
		t.Errorf("one unit in its first instant is a rate of %v", got)
	}
}

// TestSampling: of the grants that do not queue one in 64 is timed; of the others
// every one.
func TestSampling(t *testing.T) {
	bubble(t, conf(1), func(t *testing.T, q *Queue) {
		var l Lease
		n := 0
		for range 640 {
			q.TryAcquire(&l, 2, 1)
			if l.start != 0 {
				n++
			}
			l.Release(l.Gen())
		}
		if n != 63+10 {
			t.Errorf("%d of 640 are timed, want the first 63 and 10", n)
		}
		c := ask(q, Request{Class: 1, Cost: 1})
		for range holdSamples {
			next := ask(q, Request{Class: 1, Cost: 1})
			time.Sleep(3 * time.Second)
			c.release()
			c = next
		}
		releaseAll(c)
		got := q.Snapshot().TypicalHold
		if got[1] < 2*time.Second || got[1] > 3*time.Second || got[0] != 0 {
			t.Errorf("typical holds %v, want 2 to 3 s for class 1", got)
		}
	})
}

// TestReturnedGrantsAreNoHolds: a grant that cancellation overtook is no work done.
func TestReturnedGrantsAreNoHolds(t *testing.T) {
	bubble(t, conf(1), func(t *testing.T, q *Queue) {
		for range 4 * holdSamples {
			holder := ask(q, Request{Class: 1, Cost: 1})
			waiter := ask(q, Request{Cost: 1})
			holder.releaseBefore(waiter.cancel)
			waiter.wants(t, Canceled)
		}
		s := q.Snapshot()
		if s.Returned != 4*holdSamples || s.Outcomes[0][Granted] != 4*holdSamples {
			t.Errorf("%+v", s)
		}
		if q.stats.knows(0) {
			t.Errorf("%d holds", q.stats.pace.holds[0].n)
		}
	})
}

// TestSnapshot counts what is there and what has been.
func TestSnapshot(t *testing.T) {
	c := conf(4)
	c.MaxWaiters = 3
	bubble(t, c, func(t *testing.T, q *Queue) {
		a, b := ask(q, Request{Cost: 3}), ask(q, Request{Class: 2, Cost: 1})
		w1 := ask(q, Request{Cost: 2, Held: 5})
		time.Sleep(time.Second)
		w2, w3 := ask(q, Request{Class: 1, Cost: 4}), ask(q, Request{Cost: 1, Held: 6})
		ask(q, Request{Class: 2, Cost: 1}).wants(t, Full)
		time.Sleep(time.Second)
		got := q.Snapshot()
		want := Snapshot{
			Limit: 4, InUse: 4, Leases: 2, ClassLeases: [Classes]int64{1, 0, 1},
			Waiting: [Classes]int{2, 1, 0}, Queued: 7, Held: 11, OldestWait: 2 * time.Second, WaitingSince: 2 * time.Second,
			Immediate: [Classes]int64{1, 0, 1}, Entered: [Classes]int64{2, 1, 0},
		}
		want.Outcomes[2][Full] = 1
		if got != want {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
		releaseAll(a, b, w1, w3, w2)
		got = q.Snapshot()
		if got.Outcomes[0][Granted] != 2 || got.Outcomes[1][Granted] != 1 || got.Immediate != want.Immediate {
			t.Errorf("at the end %+v", got)
		}
	})
}

// TestRetryAfter: whole seconds from 1 to 40, and never shorter for more load.
func TestRetryAfter(t *testing.T) {
	t.Run("nothing is known", func(t *testing.T) {
		bubble(t, conf(1), func(t *testing.T, q *Queue) {
			if got := q.RetryAfter(0, 1); got != time.Second {
				t.Errorf("%v", got)
			}
		})
	})
	t.Run("by the rate", func(t *testing.T) {
		bubble(t, conf(2), func(t *testing.T, q *Queue) {
			// 2 of cost 1 every second.
			for range 30 {
				for range 2 {
					go func() {
						var l Lease
						if q.Acquire(t.Context(), &l, Request{Cost: 1}).Outcome == Granted {
							time.Sleep(time.Second)
							l.Release(l.Gen())
						}
					}()
				}
			}
			time.Sleep(10*time.Second + time.Second/2)
			ahead := q.Snapshot().Queued
			got := q.RetryAfter(0, 2)
			if want := time.Duration(ahead+2) * time.Second / 2; got < want-2*time.Second || got > want+3*time.Second {
				t.Errorf("%v with %d ahead at 2/s", got, ahead)
			}
			time.Sleep(30 * time.Second)
		})
	})
	t.Run("by the hold", func(t *testing.T) {
		bubble(t, conf(1), func(t *testing.T, q *Queue) {
			known(q, 0, 15*time.Second)
			if got := q.RetryAfter(0, 1); got < 10*time.Second || got > 40*time.Second {
				t.Errorf("%v at a typical hold of 15 s", got)
			}
		})
	})
	t.Run("by the oldest wait", func(t *testing.T) {
		bubble(t, conf(1), func(t *testing.T, q *Queue) {
			holder, waiter := ask(q, Request{Cost: 1}), ask(q, Request{Cost: 1})
			time.Sleep(20 * time.Second)
			synctest.Wait()
			if got := q.RetryAfter(0, 1); got < 20*time.Second {
				t.Errorf("%v though the oldest has waited 20 s", got)
			}
			releaseAll(holder, waiter)
		})
	})
	t.Run("never shorter for more", func(t *testing.T) {
		for _, rate := range []int64{0, 1, 50} {
			bubble(t, conf(4), func(t *testing.T, q *Queue) {
				holder := ask(q, Request{Cost: 4})
				if rate > 0 {
					q.stats.measured().drain = meter{start: q.now(), prev: rate * 5, prevLength: drainWindow}
				}
				known(q, 0, 2*time.Second)
				last := time.Duration(0)
				var calls []*call
				for range 60 {
					for _, cost := range []int64{1, 5, 1000} {
						if got := q.RetryAfter(0, cost); cost == 1 && got < last || got < time.Second || got > 40*time.Second || got%time.Second != 0 {
							t.Errorf("%v after %v with one waiter less", got, last)
						}
					}
					last = q.RetryAfter(0, 1)
					calls = append(calls, ask(q, Request{Cost: 2}))
				}
				releaseAll(calls...)
				releaseAll(holder)
			})
		}
	})
}
