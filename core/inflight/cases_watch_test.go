package inflight

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

// A watcher that exits its goroutine, as a test's FailNow does, is not called again.
// The others hear everything, and Close returns.
func TestWatcherThatExits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, func(c *Config) { c.MaxInflight = 3 })
		defer l.Close()
		for _, lane := range []string{"a", "b", "c"} {
			lease, err := l.Acquire(context.Background(), gate.Request{Lane: lane})
			if err != nil {
				t.Fatal(err)
			}
			defer lease.Release()
		}
		var heard told
		exits := 0
		stop := l.Watch(func(Demand) { exits++; runtime.Goexit() })
		l.Watch(heard.hear)
		synctest.Wait()
		for _, lane := range []string{"a", "b", "c"} {
			if got := heard.of(lane); got.Held != 1 {
				t.Errorf("heard %+v of %s", got, lane)
			}
		}
		held := take(t, l, gate.Default)
		synctest.Wait()
		if got := heard.of(llm); got.Held != 1 || exits != 1 {
			t.Errorf("heard %+v; the other was called %d times", got, exits)
		}
		stop()
		held.Release()
		synctest.Wait()
		if got := heard.of(llm); got.Held != 0 {
			t.Errorf("heard %+v", got)
		}
	})
}

// The last watcher exits: nothing is left running, and the next one starts anew.
func TestLastWatcherExits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, nil)
		defer l.Close()
		take(t, l, gate.Default).Release()
		l.Watch(func(Demand) { runtime.Goexit() })
		synctest.Wait()
		if l.watch.on.Load() {
			t.Error("it goes on watching for nobody")
		}
		var heard told
		l.Watch(heard.hear)
		held := take(t, l, gate.Default)
		synctest.Wait()
		if got := heard.of(llm); got.Held != 1 {
			t.Errorf("heard %+v", got)
		}
		held.Release()
	})
}

// A lane that is made just when somebody begins to watch is told of. (What runs beside
// is a real race, so this is in no bubble.)
func TestWatchMissesNoLane(t *testing.T) {
	for i := range 2000 {
		l := open(t, nil)
		heard := make(chan Demand, 64)
		var both sync.WaitGroup
		both.Go(func() { take(t, l, gate.Default) })
		both.Go(func() {
			for range i % 40 {
				runtime.Gosched()
			}
			l.Watch(func(d Demand) { heard <- d })
		})
		both.Wait()
		select {
		case <-heard:
		case <-time.After(10 * time.Second):
			t.Fatalf("round %d: never told of the lane", i)
		}
		l.Close()
	}
}

// Many watchers that come and go while they are called: none is called after stop.
func TestStopIsAnEnd(t *testing.T) {
	l := open(t, func(c *Config) { c.MaxInflight = 4 })
	var all sync.WaitGroup
	over := make(chan struct{})
	for range 2 {
		all.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
					take(t, l, gate.Default).Release()
				}
			}
		})
	}
	var watchers sync.WaitGroup
	for range 4 {
		watchers.Go(func() {
			for range 300 {
				stopped := false // the detector sees a call after stop
				stop := l.Watch(func(Demand) {
					if stopped {
						t.Error("called after stop")
					}
				})
				runtime.Gosched()
				stop()
				stopped = true
				stop()
			}
		})
	}
	watchers.Wait()
	close(over)
	all.Wait()
}
