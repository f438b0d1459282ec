package inflight

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

// count is how many durations are in a histogram, whose shape must be right.
func count(t testing.TB, h Histogram) (n int64) {
	t.Helper()
	if len(h.Counts) != len(h.Bounds)+1 {
		t.Fatalf("%d buckets and %d bounds", len(h.Counts), len(h.Bounds))
	}
	for _, m := range h.Counts {
		n += m
	}
	return n
}

// I9: a call that waits for 2 s and works for 1 s is 2 s in the one and 1 s in the other.
func TestWaitsAndHoldsAreTwo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, func(c *Config) { c.MaxInflight, c.InteractiveReserve = 1, 0 })
		defer l.Close()
		c := newCrowd(t, l)
		c.ask("before", context.Background(), gate.Request{})
		c.ask("it", context.Background(), gate.Request{Class: gate.Bulk})
		time.Sleep(2 * time.Second)
		c.release("before")
		before := state(t, l)
		time.Sleep(time.Second)
		c.release("it")
		s := state(t, l)
		if w := s.Waits[2]; count(t, w) != 1 || w.Sum != 2*time.Second || w.Counts[5] != 1 || w.Bounds[5] != 5*time.Second {
			t.Errorf("waits %+v", w)
		}
		if w := s.Waits[1]; count(t, w) != 1 || w.Sum != 0 || w.Counts[0] != 1 {
			t.Errorf("waits %+v of who did not wait", w)
		}
		if w := s.Waits[0]; count(t, w) != 0 {
			t.Errorf("waits %+v of nobody", w)
		}
		if n, d := count(t, s.Holds)-count(t, before.Holds), s.Holds.Sum-before.Holds.Sum; n != 1 || d != time.Second {
			t.Errorf("%d holds of %v, want 1 of 1s", n, d)
		}
	})
}

// A call that has timed out in the queue is a wait, once, and no hold.
func TestTimeoutIsAWaitOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, func(c *Config) { c.MaxInflight, c.InteractiveReserve, c.QueueTimeout = 1, 0, 20*time.Second })
		defer l.Close()
		c := newCrowd(t, l)
		c.ask("holds", context.Background(), gate.Request{})
		c.ask("waits", context.Background(), gate.Request{})
		time.Sleep(time.Minute)
		synctest.Wait()
		c.wantErr("waits", gate.QueueTimeout)
		s := state(t, l)
		if w := s.Waits[1]; count(t, w) != 2 || w.Sum != 20*time.Second || w.Counts[7] != 1 || count(t, s.Holds) != 0 {
			t.Errorf("waits %+v, holds %+v", w, s.Holds)
		}
		c.finish()
	})
}

// Of calls that do not wait some stand for all.
func TestHoldsOfCallsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, func(c *Config) { c.MaxInflight, c.InteractiveReserve = 8, 0 })
		defer l.Close()
		const calls = 20_000
		for range calls {
			lease := take(t, l, gate.Default)
			time.Sleep(time.Millisecond)
			lease.Release()
		}
		s := state(t, l)
		n := count(t, s.Holds)
		if n > calls || n < calls-4221 || s.Holds.Sum != time.Duration(n)*time.Millisecond {
			t.Errorf("%d holds of %d, %v in all", n, calls, s.Holds.Sum)
		}
		if w := count(t, s.Waits[1]); w != calls || s.Granted != calls {
			t.Errorf("%d waits, %d granted", w, s.Granted)
		}
	})
}

// What lanes have counted stays in the total when they make way, and a lane that is made
// anew has another number and begins at 0.
func TestTotalOutlivesLanes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, func(c *Config) {
			c.MaxInflight, c.InteractiveReserve, c.MaxQueue, c.QueueTimeout, c.MaxLanes = 1, 0, 1, time.Second, 3
		})
		defer l.Close()
		empty := l.Snapshot().Total
		if count(t, empty.Holds)+count(t, empty.Waits[0]) != 0 {
			t.Errorf("%+v", empty)
		}
		numbers := map[int64]bool{}
		const rounds = 40
		for i := range rounds {
			lane := fmt.Sprint("lane ", i%10)
			lease, err := l.Acquire(context.Background(), gate.Request{Lane: lane})
			if err != nil {
				t.Fatal(err)
			}
			go l.Acquire(context.Background(), gate.Request{Lane: lane, Class: gate.Bulk, Retry: true})
			synctest.Wait()
			if _, err := l.Acquire(context.Background(), gate.Request{Lane: lane, Class: gate.Bulk}); err == nil {
				t.Fatal("admitted")
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			lease.Release()
			for _, s := range l.Snapshot().Lanes {
				if s.Lane == lane && (s.Granted != 1 || numbers[s.Number] || s.Number == 0) {
					t.Errorf("%s has number %d and %d granted", lane, s.Number, s.Granted)
				} else if s.Lane == lane {
					numbers[s.Number] = true
				}
			}
			got := l.Snapshot()
			want := LaneSnapshot{
				Granted: int64(i) + 1, Retries: int64(i) + 1, Sheds: 2 * (int64(i) + 1),
				ShedReasons: map[gate.Reason]int64{gate.QueueFull: int64(i) + 1, gate.QueueTimeout: int64(i) + 1},
				Waits:       got.Total.Waits, Holds: got.Total.Holds,
			}
			if !reflect.DeepEqual(got.Total, want) {
				t.Fatalf("round %d:\ngot  %+v\nwant %+v", i, got.Total, want)
			}
			n := int64(i) + 1
			if w, h := got.Total.Waits, got.Total.Holds; count(t, w[1]) != n || w[2].Sum != time.Duration(n)*time.Second || count(t, w[2]) != n ||
				h.Sum != time.Duration(n)*time.Minute || count(t, h) != n {
				t.Fatalf("round %d: waits %+v, holds %+v", i, w, h)
			}
		}
		if n := len(l.Snapshot().Lanes); n != 3 || len(numbers) != rounds {
			t.Errorf("%d lanes with %d numbers", n, len(numbers))
		}
	})
}

// The total of two snapshots never falls, whatever lanes come and go meanwhile.
func TestTotalNeverFalls(t *testing.T) {
	l := open(t, func(c *Config) { c.MaxInflight, c.InteractiveReserve, c.MaxLanes, c.QueueTimeout = 2, 0, 8, 0 })
	defer l.Close()
	var wg sync.WaitGroup
	var stop atomic.Bool
	for i := range 4 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 1))
			for !stop.Load() {
				if lease, err := l.Acquire(context.Background(), gate.Request{Lane: fmt.Sprint(r.IntN(30))}); err == nil {
					lease.Release()
				}
			}
		})
	}
	var last LaneSnapshot
	for range 2000 {
		s := l.Snapshot().Total
		if s.Granted < last.Granted || s.Sheds < last.Sheds || s.Holds.Sum < last.Holds.Sum || s.Waits[1].Sum < last.Waits[1].Sum {
			t.Fatalf("%+v\nafter %+v", s, last)
		}
		for i, n := range last.Waits[1].Counts {
			if s.Waits[1].Counts[i] < n {
				t.Fatalf("waits %+v after %+v", s.Waits, last.Waits)
			}
		}
		last = s
	}
	stop.Store(true)
	wg.Wait()
}

// Histograms are not for the JSON.
func TestHistogramsAreNotInTheJSON(t *testing.T) {
	l := open(t, func(c *Config) { c.MaxInflight = 2 })
	defer l.Close()
	take(t, l, gate.Default).Release()
	b, err := json.Marshal(l.Snapshot())
	if err != nil || !strings.Contains(string(b), llm) {
		t.Fatalf("%s, %v", b, err)
	}
	for _, name := range []string{"total\":{", "Total", "umber", "aits\"", "olds\"", "ounds"} {
		if strings.Contains(string(b), name) {
			t.Errorf("%q is in %s", name, b)
		}
	}
}
