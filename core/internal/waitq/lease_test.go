package waitq

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestStaleGenerations: who has released a lease cannot touch what its record
// holds afterwards.
func TestStaleGenerations(t *testing.T) {
	q := New(conf(4))
	var l Lease
	var stale []uint64
	for i := range 100 {
		if !q.TryAcquire(&l, i%Classes, 2) {
			t.Fatal("refused")
		}
		gen := l.Gen()
		for _, old := range stale {
			if l.Live(old) || l.Release(old) || l.Waited(old) != 0 || !l.Grow(old, 1) {
				t.Fatalf("generation %d is held, %d was meant", old, gen)
			}
			l.Shrink(old, 1)
		}
		if !l.Live(gen) || q.InUse() != 2 {
			t.Fatalf("a stale generation changed the lease: in use %d", q.InUse())
		}
		if !l.Release(gen) || l.Release(gen) {
			t.Fatal("not released exactly once")
		}
		stale = append(stale, gen)
	}
	wantIdle(t, q)
}

// TestRecycledRecords releases every lease twice, the second time when its record
// may be another's: no lease is ever freed by anybody but its holder.
func TestRecycledRecords(t *testing.T) {
	const workers, rounds = 16, 300
	q := New(conf(4))
	records := sync.Pool{New: func() any { return new(Lease) }}
	type ref struct {
		l   *Lease
		gen uint64
	}
	late := make(chan ref, workers*rounds)
	var wg sync.WaitGroup
	var stolen atomic.Int64
	for range workers {
		wg.Go(func() {
			for range rounds {
				l := records.Get().(*Lease)
				if q.Acquire(context.Background(), l, Request{Cost: 1}).Outcome != Granted {
					t.Error("refused")
					return
				}
				mine := ref{l, l.Gen()}
				select {
				case old := <-late: // somebody's, released long ago
					if old.l.Release(old.gen) {
						stolen.Add(1)
					}
					old.l.Shrink(old.gen, 1)
					old.l.Grow(old.gen, 1)
				default:
				}
				if !l.Live(mine.gen) || !l.Release(mine.gen) {
					stolen.Add(1)
				}
				records.Put(l)
				late <- mine
			}
		})
	}
	wg.Wait()
	if n := stolen.Load(); n > 0 {
		t.Errorf("%d leases were freed by others", n)
	}
	wantIdle(t, q)
}

// meet lets two goroutines go on at the same time, in each round a little apart.
type meet struct{ came atomic.Int64 }

func (m *meet) wait(round int64, late int64) {
	m.came.Add(1)
	for i := 1; m.came.Load() < 2*round; i++ {
		if i%1000 == 0 {
			runtime.Gosched() // the other may not be running
		}
	}
	for range late {
		m.came.Load()
	}
}

// TestReleaseOnce: of two releases at the same time one does it.
func TestReleaseOnce(t *testing.T) {
	q := New(conf(4))
	var l Lease
	var gen uint64
	var before, after meet
	var did [2]int64 // releases by each
	release := func(who, round int64) {
		before.wait(round, round*(who+1)%29)
		if l.Release(gen) {
			did[who]++
		}
		after.wait(round, 0)
	}
	rounds := int64(30_000)
	if raceEnabled || testing.Short() {
		rounds = 1000
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for round := int64(1); round <= rounds; round++ {
			release(1, round)
		}
	})
	for round := int64(1); round <= rounds; round++ {
		if !q.TryAcquire(&l, 0, 1) {
			t.Fatal("room was lost")
		}
		gen = l.Gen()
		release(0, round)
		if n := did[0] + did[1]; n != round || q.InUse() != 0 {
			t.Errorf("%d releases of %d leases, in use %d", n, round, q.InUse())
			break
		}
	}
	before.came.Store(1 << 40) // let the other one go
	after.came.Store(1 << 40)
	wg.Wait()
}

// TestGrowWhileReleased: growth and release of one lease at the same time leave
// nothing behind, whichever comes first.
func TestGrowWhileReleased(t *testing.T) {
	q := New(conf(100))
	var l Lease
	for range 2000 {
		if !q.TryAcquire(&l, 1, 10) {
			t.Fatal("refused")
		}
		gen := l.Gen()
		var wg sync.WaitGroup
		wg.Go(func() { l.Grow(gen, 20) })
		wg.Go(func() { l.Shrink(gen, 3) })
		wg.Go(func() { l.Release(gen) })
		wg.Wait()
		if q.InUse() != 0 {
			t.Fatalf("in use %d", q.InUse())
		}
	}
	wantIdle(t, q)
}

// TestClose wakes all, refuses all who come, and is done with the last lease.
func TestClose(t *testing.T) {
	drained := func(q *Queue) bool {
		select {
		case <-q.Drained():
			return true
		default:
			return false
		}
	}
	c := conf(2)
	bubble(t, c, func(t *testing.T, q *Queue) {
		a, b := ask(q, Request{Cost: 1}), ask(q, Request{Class: 1, Cost: 1})
		var waiters []*call
		for i := range 30 {
			waiters = append(waiters, ask(q, Request{Class: i % Classes, Cost: 1, Flow: string(rune('a' + i%4))}))
		}
		time.Sleep(time.Second)
		for range 2 { // twice is once
			q.Close()
			synctest.Wait()
			wantAll(t, Closed, waiters...)
		}
		if waiters[0].result.Waited != time.Second {
			t.Errorf("waited %v", waiters[0].result.Waited)
		}
		ask(q, Request{Cost: 1}).wants(t, Closed)
		ask(q, Request{Cost: 0}).wants(t, Closed)
		if q.timer.Stop() {
			t.Error("the timer of a closed queue still runs")
		}
		var l Lease
		if q.TryAcquire(&l, 0, 0) || q.TryAcquire(&l, 0, 1) || q.Waiting() {
			t.Error("a closed queue admits")
		}
		a.lease.Shrink(a.gen, 1)
		a.release()
		if drained(q) {
			t.Error("drained with a lease out")
		}
		ask(q, Request{Cost: 1}).wants(t, Closed)
		if !b.lease.Grow(b.gen, 1) {
			t.Error("a lease of a closed queue does not grow")
		}
		b.release()
		if !drained(q) {
			t.Error("not drained with no lease out")
		}
		q.SetLimit(5)
		retime(q, conf(5), time.Hour)
		q.Shed(0)
		ask(q, Request{Cost: 1}).wants(t, Closed)
	})
	bubble(t, c, func(t *testing.T, q *Queue) {
		q.Close()
		if !drained(q) {
			t.Error("an idle queue is not drained at once")
		}
	})
}

// TestCloseDuringAnAcquire: an acquire that is just failing counts as a lease for
// a moment. Close may see it, and Drained must come nevertheless.
func TestCloseDuringAnAcquire(t *testing.T) {
	q := New(conf(2))
	const failing = 1 - 5<<countBits
	q.state.Add(failing) // the first half of a TryAcquire of 5
	q.Close()
	q.undo(-failing) // and the second
	select {
	case <-q.Drained():
	default:
		t.Error("not drained")
	}
}

// TestCostZero takes no room, so it never waits and is in nobody's way.
func TestCostZero(t *testing.T) {
	c := conf(1)
	c.ClassLimit[2] = 0
	bubble(t, c, func(t *testing.T, q *Queue) {
		holder := ask(q, Request{Cost: 1})
		waiter := ask(q, Request{Cost: 1})
		q.SetLimit(5)
		synctest.Wait()
		waiter.wants(t, Granted)
		q.SetLimit(1) // in use is 2 now
		next := ask(q, Request{Cost: 1})
		zero := ask(q, Request{Class: 2, Cost: 0})
		next.wants(t, Queued)
		zero.wants(t, Granted)
		if s := q.Snapshot(); s.Leases != 3 || s.InUse != 2 {
			t.Errorf("%+v", s)
		}
		q.Close()
		releaseAll(holder, waiter, next)
		select {
		case <-q.Drained():
			t.Error("drained while a lease of nothing is out")
		default:
		}
		zero.release()
		<-q.Drained()
	})
}

// TestCostZeroInTheSlowMoment: somebody begins to wait between the look at the
// state and the add. The cost of 0 must not end up in the queue.
func TestCostZeroInTheSlowMoment(t *testing.T) {
	rounds := 2_000_000
	if raceEnabled || testing.Short() {
		rounds = 100_000
	}
	q := New(conf(1))
	var stop atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		for !stop.Load() { // as if somebody came and left
			q.mu.Lock()
			q.biasLocked()
			q.mu.Unlock()
			q.mu.Lock()
			q.unbiasLocked()
			q.mu.Unlock()
		}
	})
	var l Lease
	for i := range rounds {
		if !q.TryAcquire(&l, 1, 0) {
			t.Errorf("a cost of 0 was refused in round %d", i)
			break
		}
		l.Release(l.Gen())
	}
	stop.Store(true)
	wg.Wait()
	wantIdle(t, q)
}

// TestFailingAddsHideNoRoom: an acquire or a growth that is just failing hides
// room from a release. When it has gone back, who fits is granted.
func TestFailingAddsHideNoRoom(t *testing.T) {
	t.Run("acquire", func(t *testing.T) {
		bubble(t, conf(4), func(t *testing.T, q *Queue) {
			holder, waiter := ask(q, Request{Cost: 4}), ask(q, Request{Cost: 3})
			const failing = 1 - 2<<countBits
			q.state.Add(failing)
			holder.release()
			waiter.wants(t, Queued)
			q.undo(-failing)
			synctest.Wait()
			waiter.wants(t, Granted)
			releaseAll(waiter)
		})
	})
	t.Run("growth", func(t *testing.T) {
		q := New(conf(4))
		var l, other Lease
		q.TryAcquire(&l, 0, 1)
		q.mu.Lock()
		before := q.state.Load()
		var grown sync.WaitGroup
		for range 200 {
			grown.Go(func() {
				if q.grow(MaxLimit) {
					t.Error("grew beyond the limit")
				}
			})
		}
		for range 1000 {
			runtime.Gosched()
			if q.state.Load() != before {
				t.Fatal("a growth that cannot be hides room while it waits for the lock")
			}
		}
		if !q.TryAcquire(&other, 0, 3) {
			t.Error("the room is hidden")
		}
		q.mu.Unlock()
		grown.Wait()
		other.Release(other.Gen())
		l.Release(l.Gen())
		wantIdle(t, q)
	})
}
