package inflight

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/internal/waitq"
)

// Trap 59, W12 of the earlier limiter: however many keys there are, lanes and what
// they send are bounded.
func TestInventedKeysMakeNoLanes(t *testing.T) {
	const lanes, limit, keys = 10, 3, 10_000
	l := open(t, func(c *Config) { c.MaxInflight, c.MaxLanes, c.MaxQueue = limit, lanes, 0 })
	var held []gate.Lease
	for i := range keys {
		if lease, err := l.Acquire(context.Background(), gate.Request{Lane: fmt.Sprint("key ", i), Class: gate.Interactive}); err == nil {
			held = append(held, lease)
		}
	}
	if want := lanes + limit; len(held) != want { // one in each lane, and the overflow lane's
		t.Errorf("%d in flight, want %d", len(held), want)
	}
	s := l.Snapshot()
	if len(s.Lanes) != lanes+1 {
		t.Errorf("%d lanes, want %d", len(s.Lanes), lanes+1)
	}
	for _, lane := range s.Lanes {
		if lane.Lane == other && lane.Inflight != limit {
			t.Errorf("the overflow lane has %d in flight", lane.Inflight)
		}
	}
	for _, lease := range held {
		lease.Release()
	}
	wantIdle(t, l)
}

// Idle lanes make way; one that is used keeps what it counts.
func TestIdleLanesMakeWay(t *testing.T) {
	l := open(t, func(c *Config) { c.MaxLanes = 5 })
	kept := take(t, l, gate.Default)
	for i := range 1000 {
		lease, err := l.Acquire(context.Background(), gate.Request{Lane: fmt.Sprint("key ", i)})
		if err != nil {
			t.Fatal(err)
		}
		lease.Release()
	}
	s := l.Snapshot()
	if len(s.Lanes) != 5 {
		t.Errorf("%d lanes, want 5", len(s.Lanes))
	}
	if got := state(t, l); got.Inflight != 1 || got.Granted != 1 {
		t.Errorf("the used lane has %d in flight, %d granted", got.Inflight, got.Granted)
	}
	kept.Release()
	wantIdle(t, l)
}

// Lanes come and go under callers of all of them: no lane is ever over its limit.
func TestEvictionUnderLoad(t *testing.T) {
	const limit, keys = 2, 12
	l := open(t, func(c *Config) { c.MaxInflight, c.MaxLanes, c.InteractiveReserve = limit, 4, 0 })
	var inflight [keys]atomic.Int64
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(7, uint64(g)))
			for range 2000 {
				k := rnd.IntN(keys)
				lease, err := l.Acquire(context.Background(), gate.Request{Lane: fmt.Sprint("key ", k)})
				if err != nil {
					t.Error(err)
					return
				}
				// In the overflow lane keys share the limit: they have no more either.
				if n := inflight[k].Add(1); n > 2*limit {
					t.Errorf("%d of one key in flight", n)
				}
				if rnd.IntN(4) == 0 {
					runtime.Gosched()
				}
				inflight[k].Add(-1)
				lease.Release()
			}
		})
	}
	wg.Wait()
	wantIdle(t, l)
	if n := len(l.Snapshot().Lanes); n > 5 {
		t.Errorf("%d lanes", n)
	}
}

// A caller who meets a lane on its way out asks once, and again when it has gone: whoever
// removes it may be far from done.
func TestEvictionHalfDone(t *testing.T) {
	for _, mode := range []gate.Mode{gate.Enforce, gate.Shadow} {
		l := open(t, func(c *Config) { c.Mode = mode })
		lease, err := l.Acquire(context.Background(), gate.Request{Lane: "a"})
		if err != nil {
			t.Fatal(err)
		}
		lease.Release()
		l.mu.Lock()
		ln := l.find("a")
		if !ln.q.Retire() {
			t.Fatal("the lane is not idle")
		}
		done := make(chan error)
		go func() {
			lease, err := l.Acquire(context.Background(), gate.Request{Lane: "a"})
			lease.Release()
			done <- err
		}()
		asked := func() int64 { return ln.q.Snapshot().Outcomes[index(gate.Default)][waitq.Closed] }
		for asked() == 0 {
			runtime.Gosched()
		}
		for range 1000 {
			runtime.Gosched()
		}
		if n := asked(); n != 1 {
			t.Errorf("%v: asked %d times", mode, n)
		}
		l.removeLocked(0)
		l.mu.Unlock()
		if err := <-done; err != nil {
			t.Errorf("%v: %v", mode, err)
		}
		wantIdle(t, l)
	}
}

// Keys of 64 KiB, keys that are no text and no key at all are lanes like others.
func TestOddKeys(t *testing.T) {
	l := open(t, func(c *Config) { c.MaxQueue = 0 })
	for _, key := range []string{strings.Repeat("k", 64<<10), "\xff\xfe", ""} {
		lease, err := l.Acquire(context.Background(), gate.Request{Lane: key})
		if err != nil {
			t.Fatal(err)
		}
		_, err = l.Acquire(context.Background(), gate.Request{Lane: key})
		if err == nil || len(err.Error()) > 4*maxKey {
			t.Errorf("%.20q: error of %d bytes, %v", key, len(fmt.Sprint(err)), err == nil)
		}
		lease.Release()
	}
	if n := len(l.Snapshot().Lanes); n != 3 {
		t.Errorf("%d lanes, want 3", n)
	}
}

// What a lane counts over five minutes is given back when it is idle for so long.
func TestIdleLaneIsSmall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, nil)
		defer l.Close()
		lease := take(t, l, gate.Default)
		c := newCrowd(t, l)
		c.ask("w", context.Background(), gate.Request{})
		time.Sleep(40 * time.Second)
		lease.Release()
		synctest.Wait()
		c.release("w")
		if s := state(t, l); s.WaitP90S == 0 {
			t.Errorf("p90 %v, want about 36", s.WaitP90S)
		}
		time.Sleep(idleAfter + 2*sweepEvery)
		synctest.Wait()
		s := state(t, l)
		if s.WaitP50S != 0 || s.WaitP90S != 0 || s.Granted != 2 {
			t.Errorf("p50 %v, p90 %v, %d granted after it was idle", s.WaitP50S, s.WaitP90S, s.Granted)
		}
		c.ask("again", context.Background(), gate.Request{})
		c.release("again")
	})
}

// memory is what n lanes cost each, once used and then idle for five minutes.
func TestMemoryOfAnIdleLane(t *testing.T) {
	const lanes = 2000
	var before, after runtime.MemStats
	synctest.Test(t, func(t *testing.T) {
		l := open(t, func(c *Config) { c.MaxLanes = lanes })
		keys := make([]string, lanes)
		for i := range keys {
			keys[i] = fmt.Sprint("key ", i)
		}
		for range 3 { // what other tests have left in pools takes two to go
			runtime.GC()
		}
		runtime.ReadMemStats(&before)
		for _, key := range keys {
			lease, err := l.Acquire(context.Background(), gate.Request{Lane: key})
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				if lease, err := l.Acquire(context.Background(), gate.Request{Lane: key}); err == nil {
					lease.Release()
				}
			}()
			synctest.Wait()
			time.Sleep(time.Millisecond)
			lease.Release()
			synctest.Wait()
		}
		time.Sleep(idleAfter + 2*sweepEvery)
		synctest.Wait()
		for range 3 {
			runtime.GC()
		}
		runtime.ReadMemStats(&after)
		runtime.KeepAlive(l)
		l.Close()
	})
	per := int64(after.HeapAlloc-before.HeapAlloc) / lanes
	t.Logf("%d bytes for each idle lane", per)
	if per < 300 {
		t.Errorf("%d bytes for each idle lane: something else was measured", per)
	}
	if per > 1<<10+128 { // 1 KiB is the bar; the heap of a test is not quite still
		t.Errorf("%d bytes for each idle lane", per)
	}
}
