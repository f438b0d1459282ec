package admission

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

// K5: made-up identities order the waiters; they multiply neither the budget nor
// the queue, and do not push out who was there.
func TestK5FakeFlows(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := budget(t, 8*mib, func(c *Config) { c.MaxWaiters, c.HeavyBytes = 100, 1 })
		full := admit(t, b, 8*mib)
		honest := acquire(t.Context(), b, gate.Request{Bytes: mib, Flow: "honest"})
		var holding, most, admitted atomic.Int64
		var wg sync.WaitGroup
		for i := range 5000 {
			wg.Go(func() {
				l, err := b.Acquire(context.Background(), gate.Request{Bytes: mib, Flow: fmt.Sprintf("bearer-%d", i)})
				if err != nil {
					return
				}
				defer l.Release()
				admitted.Add(1)
				if n := holding.Add(mib); n > most.Load() {
					most.Store(n)
				}
				time.Sleep(10 * time.Millisecond)
				holding.Add(-mib)
			})
		}
		synctest.Wait()
		if s := b.Snapshot(); s.Waiting != 100 || s.InflightBytes != 8*mib || s.Sheds != 4901 {
			t.Errorf("%d wait, %d in flight, %d shed, want 100, 8 MiB, 4901", s.Waiting, s.InflightBytes, s.Sheds)
		}
		full.Release()
		granted(t, honest).Release() // it came first, so it is in the first turn
		wg.Wait()
		if most.Load() > 8*mib || admitted.Load() != 99 {
			t.Errorf("%d admitted, %d bytes at once", admitted.Load(), most.Load())
		}
	})
}

// One flow of a thousand against one request of another: the other is served in turn.
func TestFlowsTakeTurns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := budget(t, 8*mib, func(c *Config) { c.QueueTimeout, c.MaxWaiters = time.Hour, 2000 })
		l := admit(t, b, 8*mib)
		var served atomic.Int64
		flood := func(n int, flow string) {
			for range n {
				go func() {
					l, err := b.Acquire(context.Background(), gate.Request{Bytes: 8 * mib, Flow: flow})
					if err == nil {
						served.Add(1)
						time.Sleep(10 * time.Millisecond)
					}
					l.Release()
				}()
			}
			synctest.Wait()
		}
		flood(1000, "a")
		quiet := acquire(t.Context(), b, gate.Request{Bytes: 8 * mib, Flow: "b"})
		l.Release()
		var q gate.Lease
		for range 3 {
			synctest.Wait()
			select {
			case r := <-quiet:
				q = r.lease
			default:
				time.Sleep(10 * time.Millisecond)
			}
		}
		if n := served.Load(); !q.Live() || n > 2 {
			t.Errorf("after %d completions of the other flow: granted %t, want it within 2", n, q.Live())
		}
		q.Release()
		time.Sleep(time.Minute)
	})
}

// Light bodies go before heavy ones that came first.
func TestLightGoesBeforeHeavy(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := budget(t, 8*mib, nil)
		full := admit(t, b, 8*mib)
		big := acquire(t.Context(), b, gate.Request{Bytes: 8 * mib})
		unknown := acquire(t.Context(), b, gate.Request{Bytes: -1})
		atLimit := acquire(t.Context(), b, gate.Request{Bytes: 256 * kib}) // from HeavyBytes on it is heavy
		light := acquire(t.Context(), b, gate.Request{Bytes: 256*kib - 1})
		if s := b.Snapshot(); s.Waiting != 4 || s.WaitingHeavy != 3 {
			t.Errorf("%d wait, %d heavy, want 4 and 3", s.Waiting, s.WaitingHeavy)
		}
		full.Release()
		l := granted(t, light)
		u, a := granted(t, unknown), granted(t, atLimit) // they may pass the big one
		waits(t, big)
		for _, x := range []gate.Lease{l, u, a} {
			x.Release()
		}
		granted(t, big).Release()
	})
}

// A heavy body that has waited a second may go before light ones, for a quarter
// of the bytes at most, so that neither starves the other.
func TestHeavyAges(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := budget(t, 8*mib, func(c *Config) { c.QueueTimeout, c.MaxWaiters, c.HeavyBytes = time.Hour, 1<<20, 8*mib })
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		var bytes [2]atomic.Int64
		var firstHeavy atomic.Int64
		start := time.Now()
		work := func(n int, size int64, class int) {
			for range n {
				wg.Go(func() {
					for ctx.Err() == nil {
						l, err := b.Acquire(ctx, gate.Request{Bytes: size, Flow: fmt.Sprint(class)})
						if err == nil {
							bytes[class].Add(quantum)
							if class == heavy {
								firstHeavy.CompareAndSwap(0, int64(time.Since(start)))
							}
							time.Sleep(100 * time.Millisecond)
						}
						l.Release()
					}
				})
			}
		}
		work(400, quantum, light) // 128 fit, so that some wait whenever any end
		synctest.Wait()
		work(600, -1, heavy) // of the same cost, and enough to wait a second each
		time.Sleep(2 * time.Second)
		bytes[light].Store(0)
		bytes[heavy].Store(0)
		time.Sleep(10 * time.Second)
		cancel()
		wg.Wait()
		l, h := bytes[light].Load(), bytes[heavy].Load()
		if first := time.Duration(firstHeavy.Load()); first < time.Second || first > time.Second+500*time.Millisecond {
			t.Errorf("the first heavy body was granted after %v, want it soon after a second", first)
		}
		if share := float64(h) / float64(l+h); share > 0.251 || share < 0.24 {
			t.Errorf("heavy bodies got %.3f of the bytes, want a quarter", share)
		}
	})
}

// A big body at the head may be passed by two and no more, and an endless stream
// of small ones cannot starve it.
func TestA16BigHead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := budget(t, 10*mib, func(c *Config) { c.HeavyBytes = 1 })
		first := admit(t, b, 6*mib)
		big := acquire(t.Context(), b, gate.Request{Bytes: 8 * mib, Flow: "big"})
		waits(t, big)
		var small []<-chan result
		for range 4 {
			small = append(small, acquire(t.Context(), b, gate.Request{Bytes: mib, Flow: "small"}))
		}
		var passed []gate.Lease
		for _, w := range small[:2] {
			passed = append(passed, granted(t, w))
		}
		waits(t, small[2])
		waits(t, small[3])
		for _, l := range passed {
			l.Release()
		}
		waits(t, small[2]) // the room is kept for the big one
		first.Release()
		l := granted(t, big)
		for _, w := range small[2:] {
			granted(t, w).Release()
		}
		l.Release()
	})
}

func TestA16NotStarved(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := budget(t, 10*mib, nil)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 24 { // each holds 512 KiB nearly all the time: together more than the budget
			wg.Go(func() {
				for ctx.Err() == nil {
					l, err := b.Acquire(ctx, gate.Request{Bytes: 200 * kib, Flow: "small"})
					if err == nil {
						_ = l.Grow(300 * kib)
						time.Sleep(10 * time.Millisecond)
					}
					l.Release()
				}
			})
		}
		time.Sleep(time.Second)
		start := time.Now()
		l, err := b.Acquire(ctx, gate.Request{Bytes: 10 * mib, Flow: "big"})
		if err != nil {
			t.Fatalf("the big one was refused after %v: %v", time.Since(start), err)
		}
		// It ages for a second, then two may pass, then the room is kept.
		if d := time.Since(start); d > agingStep+100*time.Millisecond {
			t.Errorf("the big one waited %v", d)
		}
		l.Release()
		cancel()
		wg.Wait()
	})
}
