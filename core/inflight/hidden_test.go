package inflight

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/internal/waitq"
)

// busy runs goroutines that do something over and over until the test calls end.
func busy(n int, do func()) (end func()) {
	var ended atomic.Bool
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			for !ended.Load() {
				do()
			}
		})
	}
	return func() { ended.Store(true); wg.Wait() }
}

// bulk takes a slot of lane a for a bulk call.
func bulk(l *Limiter) (gate.Lease, error) {
	return l.Acquire(context.Background(), gate.Request{Lane: "a", Class: gate.Bulk})
}

// Calls that fail at the reserve do not hide the reserved slot from interactive ones: where
// nobody may wait, these would be refused.
func TestReservedSlotIsNotHidden(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"MaxQueue": func(c *Config) { c.MaxQueue = 0 }, "QueueTimeout": func(c *Config) { c.QueueTimeout = 0 },
	} {
		t.Run(name, func(t *testing.T) {
			l := open(t, func(c *Config) {
				c.MaxInflight, c.InteractiveReserve = 2, 1
				change(c)
			})
			held, err := bulk(l)
			if err != nil {
				t.Fatal(err)
			}
			end := busy(2, func() {
				if b, err := bulk(l); err == nil {
					t.Error("bulk beyond the reserve")
					b.Release()
				}
			})
			for range 20_000 {
				lease, err := l.Acquire(context.Background(), gate.Request{Lane: "a", Class: gate.Interactive})
				if err != nil {
					t.Errorf("refused though the reserved slot is free: %v", err)
					break
				}
				lease.Release()
			}
			end()
			held.Release()
			wantIdle(t, l)
		})
	}
}

// A limit and what the reserve leaves of it change as one: with 1 slot, or with 2 of which
// 1 is reserved, two bulk calls are never out.
func TestReloadKeepsReserve(t *testing.T) {
	l := open(t, func(c *Config) { c.MaxInflight, c.InteractiveReserve, c.MaxQueue = 1, 1, 0 })
	var out atomic.Int64
	end := busy(3, func() {
		b, err := bulk(l)
		if err != nil {
			return
		}
		if n := out.Add(1); n > 1 {
			t.Errorf("%d bulk calls are out", n)
		}
		runtime.Gosched()
		out.Add(-1)
		b.Release()
	})
	for i := range 20_000 {
		if err := l.SetLimit("a", 1+i%2); err != nil {
			t.Fatal(err)
		}
	}
	end()
	wantIdle(t, l)
}

// No snapshot shows more in flight than the limit has ever been, whoever fails meanwhile.
func TestSnapshotKeepsTheLimit(t *testing.T) {
	l := open(t, func(c *Config) { c.MaxInflight, c.InteractiveReserve, c.MaxQueue = 2, 0, 0 })
	var held [2]gate.Lease
	for i := range held {
		var err error
		if held[i], err = bulk(l); err != nil {
			t.Fatal(err)
		}
	}
	end := busy(2, func() {
		if b, err := bulk(l); err == nil {
			t.Error("granted")
			b.Release()
		}
	})
	for range 20_000 {
		if s := l.Snapshot().Lanes[0]; s.Inflight != 2 {
			t.Errorf("%d in flight", s.Inflight)
			break
		}
	}
	end()
	if err := l.SetLimit("a", 1); err != nil {
		t.Fatal(err)
	}
	if s := l.Snapshot().Lanes[0]; s.Inflight != 2 || s.Limit != 1 {
		t.Errorf("%d in flight after the limit has shrunk to %d", s.Inflight, s.Limit)
	}
	held[0].Release()
	held[1].Release()
	wantIdle(t, l)
}

// A lease that shadow mode's books queue is of the class that asked: what a back end
// answers to a bulk call is not held against it while the free slot is no bulk call's.
func TestBookedClass(t *testing.T) {
	l := open(t, func(c *Config) { c.Mode, c.MaxInflight, c.InteractiveReserve = gate.Shadow, 2, 1 })
	var leases [2]gate.Lease
	for i := range leases {
		var err error
		if leases[i], err = bulk(l); err != nil {
			t.Fatal(err)
		}
	}
	ln := l.find("a")
	if ln.q.Room(2) || !ln.q.Waiting() {
		t.Fatal("a slot is free for bulk calls, or nobody waits in the books")
	}
	gate.Observe(leases[1].In(context.Background(), l), gate.Sample{Status: 500, FirstByte: time.Millisecond})
	if all, bad := ln.answers.lastMinute(time.Now()); all != 1 || bad != 0 {
		t.Errorf("%d of %d answers count as bad while a slot was free", bad, all)
	}
	var own waitq.Lease
	ln.q.Book(&own, waitq.Request{Class: 2, Cost: 1})
	if own.Class() != 2 {
		t.Errorf("the class of a lease that the books queue is %d", own.Class())
	}
	own.Release(own.Gen())
	leases[0].Release()
	leases[1].Release()
	wantIdle(t, l)
}
