package waitq

import (
	"context"
	"runtime"
	"testing"
	"time"
	"unsafe"
)

func skipAllocsUnderRace(t *testing.T) {
	t.Helper()
	if raceEnabled {
		t.Skip("the race detector makes sync.Pool drop waiters, so that new ones are allocated")
	}
}

func TestUncontendedAllocatesNothing(t *testing.T) {
	skipAllocsUnderRace(t)
	c := conf(8)
	c.Reserve, c.TrackWaits = 2, true
	q := New(c)
	var l Lease
	long := time.Now().Add(-time.Hour)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if n := testing.AllocsPerRun(1000, func() {
		if !q.TryAcquire(&l, 1, 3) {
			t.Fatal("refused")
		}
		gen := l.Gen()
		l.Grow(gen, 2)
		l.Shrink(gen, 1)
		l.Release(gen)
	}); n != 0 {
		t.Errorf("TryAcquire and Release: %v allocations", n)
	}
	if n := testing.AllocsPerRun(1000, func() {
		if !q.Room(2) || q.Acquire(ctx, &l, Request{Class: 2, Cost: 3, Flow: "a", Weight: 1, Arrived: long}).Outcome != Granted {
			t.Fatal("refused")
		}
		l.Release(l.Gen())
	}); n != 0 {
		t.Errorf("Acquire and Release: %v allocations", n)
	}
	wantIdle(t, q)
}

// TestContendedAllocatesNothing: a waiter, its channel and its flow are used again,
// and nothing is needed to count waits or for tickets.
func TestContendedAllocatesNothing(t *testing.T) {
	skipAllocsUnderRace(t)
	plain, tracked := conf(1), conf(1)
	tracked.TrackWaits, tracked.Owner = true, teller(func() {})
	for name, c := range map[string]Config{"plain": plain, "tracked": tracked} {
		t.Run(name, func(t *testing.T) { contend(t, New(c)) })
	}
}

func contend(t *testing.T, q *Queue) {
	arrived := time.Now().Add(-30 * time.Second)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	const others = 4
	for range others {
		go func() {
			defer func() { done <- struct{}{} }()
			var l Lease
			for q.Acquire(ctx, &l, Request{Cost: 1, Flow: "others"}).Outcome == Granted {
				runtime.Gosched() // the rest comes while it is held, and waits
				l.Release(l.Gen())
			}
		}()
	}
	var l Lease
	n := testing.AllocsPerRun(5000, func() {
		if q.Acquire(ctx, &l, Request{Cost: 1, Flow: "one", Arrived: arrived}).Outcome != Granted {
			t.Fatal("refused")
		}
		runtime.Gosched()
		l.Release(l.Gen())
	})
	entered := q.Snapshot().Entered[0] / (others + 1) // a fair share of them is this one's
	cancel()
	for range others {
		<-done
	}
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
	if entered < 1000 {
		t.Errorf("only %d of 5000 waited: nothing was measured", entered)
	}
	wantIdle(t, q)
}

// TestSizes: with its channel of 96 bytes a waiter stays below 256.
func TestSizes(t *testing.T) {
	if n := unsafe.Sizeof(waiter{}); n > 128 {
		t.Errorf("a waiter has %d bytes, want 128", n)
	}
	if n := unsafe.Sizeof(Lease{}); n > 64 {
		t.Errorf("a lease has %d bytes, want one cache line", n)
	}
	if unsafe.Sizeof(waiter{}.links)+16 > 64 || unsafe.Offsetof(waiter{}.ready) != unsafe.Sizeof(waiter{}.links)+16 {
		t.Error("a list is walked over more than one line of each waiter")
	}
	if unsafe.Offsetof(Queue{}.state) != 0 || unsafe.Offsetof(Queue{}.look) != 64 || unsafe.Offsetof(Queue{}.mu) < 128 {
		t.Error("the word that every acquire changes shares its line with what is only looked at, or with the lock")
	}
}
