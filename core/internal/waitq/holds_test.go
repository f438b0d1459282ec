package waitq

import (
	"context"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"
)

// held is how many leases the hold times of q stand for.
func held(q *Queue) (n int64) {
	for _, m := range q.Waits().Holds.Buckets {
		n += m
	}
	return n
}

// TestHoldsOfWhoQueued: of those each is measured, to the nanosecond, from the grant on.
func TestHoldsOfWhoQueued(t *testing.T) {
	bubble(t, tracking(1), func(t *testing.T, q *Queue) {
		var want HoldTotal
		holder := ask(q, Request{Cost: 1})
		for i := range 200 {
			next := ask(q, Request{Class: i % Classes, Cost: 1})
			d := time.Duration(i) * 7 * time.Millisecond
			time.Sleep(d)
			holder.release()
			want.add(int64(d), 1)
			holder = next
		}
		holder.release()
		want.add(0, 1)
		if got := q.Waits().Holds; got != want {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
	})
}

// TestHoldsOfNobody: who has left before the grant, was refused, or got nothing, held
// nothing; and without TrackWaits nothing is kept.
func TestHoldsOfNobody(t *testing.T) {
	c := tracking(1)
	c.MaxWaiters, c.Timeout = 1, time.Second
	bubble(t, c, func(t *testing.T, q *Queue) {
		holder := ask(q, Request{Cost: 1})
		late, full := ask(q, Request{Cost: 1}), ask(q, Request{Cost: 1})
		var shadow Lease
		q.Book(&shadow, Request{Cost: 1})
		shadow.Release(shadow.Gen())
		time.Sleep(2 * time.Second)
		synctest.Wait()
		late.wants(t, TimedOut)
		full.wants(t, Full)
		left := ask(q, Request{Cost: 1})
		left.cancel()
		holder.releaseBefore(func() {})
		if n := held(q); n != 1 {
			t.Errorf("%d holds of 1", n)
		}
	})
	bubble(t, conf(1), func(t *testing.T, q *Queue) {
		a, b := ask(q, Request{Cost: 1}), ask(q, Request{Cost: 1})
		releaseAll(a, b)
		if q.Waits() != (Waits{}) || q.stats.counts.holds != nil || q.owed.Load() != 0 {
			t.Error("hold times are kept")
		}
	})
}

// TestHoldsStandForAll: whatever records leases take and whatever queue these turn to,
// the hold times that are known stand for no more leases than came back, and for fewer
// by at most 63 for each record and each class; and they are about the same ones.
func TestHoldsStandForAll(t *testing.T) {
	seeds := uint64(20)
	if testing.Short() || raceEnabled {
		seeds = 3
	}
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 11))
			c := newCounter(1 + r.IntN(6))
			track := func(c *Config) { c.TrackWaits = true }
			queues := []*Queue{c.queue(1000, track), c.queue(1000, track), c.queue(1000, track)}[:1+r.IntN(3)]
			var own Lease
			var released, long [3]int64
			stay, at, n, class := 1+r.IntN(40), 0, 0, 0
			for i := range 30_000 {
				if r.IntN(stay) == 0 {
					at, n, class = r.IntN(len(c.records)), r.IntN(len(queues)), r.IntN(Classes)
				}
				l, gen := c.serve(queues[n], at, class, &own)
				d := time.Millisecond
				if r.IntN(4) == 0 {
					d = 30 * time.Millisecond
					long[n]++
				}
				time.Sleep(d)
				l.Release(gen)
				if released[n]++; i%100 != 0 {
					continue
				}
				got, most := held(queues[n]), int64(sampleMask*(len(c.records)+Classes))
				if got > released[n] || got < released[n]-most {
					t.Fatalf("seed %d: %d holds of %d leases", seed, got, released[n])
				}
			}
			for i, q := range queues {
				got := float64(q.Waits().Holds.Buckets[1]) / float64(held(q))
				if want := float64(long[i]) / float64(released[i]); released[i] > 5000 && (got < want-0.1 || got > want+0.1) {
					t.Errorf("seed %d: of %d leases %.3f were held for long, in the holds %.3f", seed, released[i], want, got)
				}
			}
		})
	}
}

// TestUntimed: the formula says what counting one by one does.
func TestUntimed(t *testing.T) {
	for base := range int64(2*sampleMask + 3) {
		before := int64(0)
		for count := base + 1; count < base+400; count++ {
			n := count - base
			timed := n <= holdSamples || (count-1)%(sampleMask+1) == 0
			after, b := untimed(base, count)
			switch {
			case timed && (after != 0 || b != before):
				t.Fatalf("base %d, lease %d: %d and %d, want 0 and %d", base, n, after, b, before)
			case !timed && (after != before+1 || b != 0):
				t.Fatalf("base %d, lease %d: %d and %d, want %d and 0", base, n, after, b, before+1)
			}
			if before++; timed {
				before = 0
			}
		}
	}
}

// TestHoldsWhileLocked: a lease that is timed and comes back while somebody has the lock
// does not wait for it. The next one stands for both.
func TestHoldsWhileLocked(t *testing.T) {
	q := New(tracking(4))
	var a, b Lease
	ctx := context.Background()
	if q.Acquire(ctx, &a, Request{Cost: 1}).Outcome != Granted || q.Acquire(ctx, &b, Request{Cost: 1}).Outcome != Granted {
		t.Fatal("refused")
	}
	q.mu.Lock()
	a.Release(a.Gen())
	q.mu.Unlock()
	if n := held(q); n != 0 {
		t.Errorf("%d holds", n)
	}
	b.Release(b.Gen())
	if n := held(q); n != 2 {
		t.Errorf("%d holds of 2", n)
	}
}
