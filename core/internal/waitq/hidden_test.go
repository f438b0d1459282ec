package waitq

import (
	"sync"
	"sync/atomic"
	"testing"
)

// W12: of three that ask for 60 of 121, the one that fails hides room for a moment; a lease
// that grows by 1 finds it all the same.
func TestGrowFindsHiddenRoom(t *testing.T) {
	q := New(conf(121))
	var own Lease
	if !q.TryAcquire(&own, 0, 0) {
		t.Fatal("an empty queue refuses")
	}
	var ended atomic.Bool
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			var l Lease
			for !ended.Load() {
				if q.TryAcquire(&l, 0, 60) {
					l.Release(l.Gen())
				}
			}
		})
	}
	gen := own.Gen()
	for range 50_000 {
		if !own.Grow(gen, 1) {
			t.Error("no room, though 1 of 121 is always free")
			break
		}
		own.Shrink(gen, 1)
	}
	ended.Store(true)
	wg.Wait()
	own.Release(gen)
	wantIdle(t, q)
}

// A lease that holds nothing is out all the same: its queue is not idle.
func TestIdleWithLeaseOfNothing(t *testing.T) {
	q := newCounter(1).queue(1, func(c *Config) { c.Timeout = 0 })
	var a, b Lease
	q.Book(&a, Request{Cost: 1})
	if o := q.Book(&b, Request{Cost: 1}); o == Granted || o == Queued {
		t.Fatalf("outcome %d: somebody may wait", o)
	}
	a.Release(a.Gen())
	if q.Idle() {
		t.Error("idle with a lease out")
	}
	b.Release(b.Gen())
	if !q.Idle() {
		t.Error("not idle")
	}
}
