package inflight

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

// told keeps the last demand of each lane.
type told struct {
	mu    sync.Mutex
	last  map[string]Demand
	calls int
}

func (d *told) hear(x Demand) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.last == nil {
		d.last = make(map[string]Demand)
	}
	d.last[x.Lane] = x
	d.calls++
}

func (d *told) of(lane string) Demand {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.last[lane]
}

func TestWatchTellsEachStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, nil)
		defer l.Close()
		var heard told
		want := func(held, waiting int, class gate.Class) {
			t.Helper()
			synctest.Wait()
			if got := heard.of(llm); got != (Demand{llm, held, waiting, class}) {
				t.Fatalf("heard %+v, want %d held, %d waiting, %v", got, held, waiting, class)
			}
		}
		first := take(t, l, gate.Default)
		stop := l.Watch(heard.hear)
		want(1, 0, 0) // what there was before
		c, ctx := newCrowd(t, l), context.Background()
		c.ask("bulk", ctx, gate.Request{Class: gate.Bulk})
		want(1, 1, gate.Bulk)
		leaving, cancel := context.WithCancel(ctx)
		c.ask("interactive", leaving, gate.Request{Class: gate.Interactive})
		want(1, 2, gate.Interactive)
		cancel()
		want(1, 1, gate.Bulk)
		first.Release()
		want(1, 0, 0)
		c.release("bulk")
		want(0, 0, 0)
		c.ask("at once", ctx, gate.Request{})
		want(1, 0, 0)
		c.ask("to time out", ctx, gate.Request{})
		want(1, 1, gate.Default)
		time.Sleep(300 * time.Second)
		want(1, 0, 0)

		stop()
		stop()
		calls := heard.calls
		c.release("at once")
		synctest.Wait()
		if heard.calls != calls || l.watch.on.Load() {
			t.Errorf("heard %d more after stop", heard.calls-calls)
		}
		again := l.Watch(heard.hear)
		want(0, 0, 0)
		again()
	})
}

// Whatever happens, each watcher's last word is how it is. One comes and goes.
func TestWatchersLastWord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, func(c *Config) { c.MaxInflight, c.MaxLanes = 2, 4 })
		defer l.Close()
		var heard told
		l.Watch(heard.hear)
		var wg sync.WaitGroup
		for g := range 20 {
			wg.Go(func() {
				rnd := rand.New(rand.NewPCG(3, uint64(g)))
				for range 50 {
					stop := func() {}
					if g == 0 {
						stop = l.Watch(func(Demand) {})
					}
					lease, err := l.Acquire(context.Background(), gate.Request{
						Lane: fmt.Sprint("lane ", rnd.IntN(3)), Class: classOf(rnd.IntN(3)),
					})
					if err != nil {
						t.Error(err)
						return
					}
					time.Sleep(time.Duration(rnd.IntN(1000)) * time.Millisecond)
					lease.Release()
					stop()
				}
			})
		}
		wg.Wait()
		synctest.Wait()
		for _, s := range l.Snapshot().Lanes {
			if got := heard.of(s.Lane); got.Held != s.Inflight || got.Waiting != s.Queued {
				t.Errorf("lane %s: heard %+v, is %d and %d", s.Lane, got, s.Inflight, s.Queued)
			}
		}
	})
}

// The watcher may call the limiter: SetLimit is what it is for.
func TestWatcherSetsTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, nil)
		defer l.Close()
		l.Watch(func(d Demand) {
			if d.Waiting > 0 {
				if err := l.SetLimit(d.Lane, d.Held+d.Waiting+1); err != nil {
					t.Error(err)
				}
			}
		})
		c := newCrowd(t, l)
		for i := range 5 {
			c.ask(fmt.Sprint(i), context.Background(), gate.Request{})
		}
		c.wantOrder("0", "1", "2", "3", "4")
		c.finish()
	})
}

// Close ends the goroutine: the bubble would not end otherwise.
func TestCloseEndsWatching(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, nil)
		n := 0
		stop := l.Watch(func(Demand) { n++ })
		l.Close()
		l.Close()
		stop()
		l.Watch(func(Demand) { t.Error("called on a closed limiter") })()
		lease, err := l.Acquire(context.Background(), gate.Request{Lane: llm})
		if err == nil {
			t.Error("a closed limiter gave a slot")
		}
		lease.Release()
	})
}
