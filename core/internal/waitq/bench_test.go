package waitq

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"
)

// BenchmarkUncontended is an acquire and a release where there is room.
func BenchmarkUncontended(b *testing.B) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	b.Run("one", func(b *testing.B) {
		q := New(conf(8))
		var l Lease
		b.ReportAllocs()
		for b.Loop() {
			q.Acquire(ctx, &l, Request{Cost: 1, Weight: 1})
			l.Release(l.Gen())
		}
	})
	b.Run("class limit", func(b *testing.B) {
		q := New(conf(8))
		var l Lease
		b.ReportAllocs()
		for b.Loop() {
			q.Acquire(ctx, &l, Request{Class: 1, Cost: 1, Weight: 1})
			l.Release(l.Gen())
		}
	})
	b.Run("parallel", func(b *testing.B) {
		q := New(conf(1 << 20))
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			var l Lease
			for pb.Next() {
				q.Acquire(ctx, &l, Request{Cost: 1, Weight: 1})
				l.Release(l.Gen())
			}
		})
	})
}

// BenchmarkContended is 128 goroutines at a limit of 8.
func BenchmarkContended(b *testing.B) {
	for _, bench := range []struct {
		name           string
		classes, flows int
	}{{"one flow", 1, 1}, {"3 classes 16 flows", Classes, 16}} {
		b.Run(bench.name, func(b *testing.B) {
			c := conf(8)
			c.AgingStep = time.Minute
			q := New(c)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			names := make([]string, bench.flows)
			for i := range names {
				names[i] = fmt.Sprint("flow ", i)
			}
			var number sync.Mutex
			n := 0
			b.ReportAllocs()
			b.SetParallelism(128 / runtime.GOMAXPROCS(0))
			b.RunParallel(func(pb *testing.PB) {
				number.Lock()
				r := Request{Class: n % bench.classes, Cost: 1, Weight: 1, Flow: names[n%bench.flows]}
				n++
				number.Unlock()
				var l Lease
				for pb.Next() {
					if o := q.Acquire(ctx, &l, r).Outcome; o != Granted {
						b.Errorf("outcome %d", o)
						return
					}
					runtime.Gosched()
					l.Release(l.Gen())
				}
			})
			wantIdleBench(b, q)
		})
	}
}

func wantIdleBench(b *testing.B, q *Queue) {
	b.Helper()
	if s := q.Snapshot(); s.InUse != 0 || s.Leases != 0 {
		b.Fatalf("%+v", s)
	}
}

// queueSizes are the waiters and flows that the queue's speed is measured at. The
// last is to take no more than 1.6 times the first.
var queueSizes = []struct {
	name           string
	waiters, flows int
}{
	{"10 waiters 1 flow", 10, 1},
	{"10 waiters 10 flows", 10, 10},
	{"1k waiters 1k flows", 1000, 1000},
	{"100k waiters 1 flow", 100_000, 1},
	{"100k waiters 10k flows", 100_000, 10_000},
}

// BenchmarkDispatch is one release that grants the next waiter and one arrival
// that takes its place, in the engine alone: no goroutine sleeps or wakes.
func BenchmarkDispatch(b *testing.B) {
	for _, size := range queueSizes {
		b.Run(size.name, func(b *testing.B) {
			benchDispatch(b, conf(1), 0, size.waiters, size.flows, func() int64 { return never })
		})
	}
}

// BenchmarkDispatchReserve is the same in a class that may have all but one slot.
func BenchmarkDispatchReserve(b *testing.B) {
	c := conf(2)
	c.Reserve, c.AgingStep, c.TrackWaits = 1, time.Minute, true
	for _, size := range queueSizes {
		b.Run(size.name, func(b *testing.B) {
			benchDispatch(b, c, 1, size.waiters, size.flows, func() int64 { return never })
		})
	}
}

// BenchmarkDispatchTickets is the same with every second arrival a ticket that is
// as old as it may be.
func BenchmarkDispatchTickets(b *testing.B) {
	for _, size := range queueSizes {
		b.Run(size.name, func(b *testing.B) {
			r, n := rand.New(rand.NewPCG(1, 1)), 0
			benchDispatch(b, conf(1), 0, size.waiters, size.flows, func() int64 {
				if n++; n%2 == 0 {
					return -r.Int64N(int64(time.Minute) - 1)
				}
				return never
			})
		})
	}
}

func benchDispatch(b *testing.B, c Config, class, waiters, flows int, arrival func() int64) {
	q := New(c)
	noTimer(q) // the clock stands still
	names := make([]string, flows)
	for i := range names {
		names[i] = fmt.Sprint("flow ", i)
	}
	now := int64(1)
	enter := func(w *waiter, flow string) {
		w.cost, w.weight, w.class, w.deadline, w.arrival = 1, 1, int8(class), never, arrival()
		q.mu.Lock()
		q.enterLocked(w, flow, now)
		q.mu.Unlock()
	}
	enter(q.getWaiter(Request{}), "")
	spare := q.takeWokenLocked().first
	for i := range waiters {
		enter(q.getWaiter(Request{}), names[i%flows])
	}
	flow := 0
	b.ReportAllocs()
	for b.Loop() {
		*spare = waiter{ready: spare.ready}
		enter(spare, names[flow])
		if flow++; flow == len(names) {
			flow = 0
		}
		held := q.pack(class, 1)
		q.give(held)
		q.mu.Lock()
		q.releasedLocked(held, 0, now)
		spare = q.takeWokenLocked().first
		q.mu.Unlock()
	}
	if q.waiting != waiters {
		b.Fatalf("%d waiters", q.waiting)
	}
}

// BenchmarkExpiry is everybody's time over at once; the metric is for each.
func BenchmarkExpiry(b *testing.B) {
	for _, size := range queueSizes {
		b.Run(size.name, func(b *testing.B) {
			q := New(conf(1))
			noTimer(q)
			names := make([]string, size.flows)
			for i := range names {
				names[i] = fmt.Sprint("flow ", i)
			}
			ws := make([]*waiter, size.waiters)
			for i := range ws {
				ws[i] = q.getWaiter(Request{})
			}
			first := q.getWaiter(Request{Cost: 1})
			q.enterLocked(first, "", 1)
			now := int64(1)
			took := time.Duration(0)
			for b.Loop() {
				for i, w := range ws {
					*w = waiter{ready: w.ready, cost: 1, weight: 1, deadline: never, arrival: never}
					q.enterLocked(w, names[i%size.flows], now)
				}
				q.takeWokenLocked()
				now += int64(time.Minute)
				start := time.Now()
				q.settleLocked(now)
				took += time.Since(start)
			}
			if q.waiting > 0 {
				b.Fatalf("%d waiters", q.waiting)
			}
			b.ReportMetric(float64(took)/float64(b.N*size.waiters), "ns/waiter")
		})
	}
}

// BenchmarkHandOver is BenchmarkDispatch with a parked goroutine for each waiter,
// which is woken, releases, and waits again.
func BenchmarkHandOver(b *testing.B) {
	for _, size := range queueSizes {
		b.Run(size.name, func(b *testing.B) {
			c := conf(1)
			c.Timeout = time.Hour
			q := New(c)
			ctx, cancel := context.WithCancel(context.Background())
			var first Lease
			q.TryAcquire(&first, 0, 1)
			var wg sync.WaitGroup
			done := make(chan struct{})
			left := b.N
			for i := range size.waiters {
				r := Request{Cost: 1, Flow: fmt.Sprint("flow ", i%size.flows)}
				wg.Go(func() {
					var l Lease
					for q.Acquire(ctx, &l, r).Outcome == Granted {
						left-- // the lease is the lock
						if left == 0 {
							close(done)
						}
						l.Release(l.Gen())
					}
				})
			}
			for waiting(q) < size.waiters {
				runtime.Gosched()
			}
			b.ReportAllocs()
			b.ResetTimer()
			first.Release(first.Gen())
			<-done
			b.StopTimer()
			cancel()
			wg.Wait()
		})
	}
}
