package lanes

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

// One tenant comes with a thousand requests and twenty come with one each. At capacity c
// each of the twenty waits at most ceil(21/c)+1 service times, with the default bounds of
// the queue, which the flood fills at once, with and without lanes.
func TestTenantFlood(t *testing.T) {
	const service = 100 * time.Millisecond
	for _, lanes := range []bool{false, true} {
		for _, c := range []int{1, 4, 8, 16} {
			bubble(t, func(cfg *Config) { limited(c)(cfg); cfg.VirtualLanes = lanes }, func(t *testing.T, l *Controller) {
				var mu sync.Mutex
				var wg sync.WaitGroup
				var waits []time.Duration
				flood := map[bool]int{}
				come := func(tenant string, quiet bool) {
					lease, err := l.Acquire(context.Background(), gate.Request{Flow: tenant, Cost: 1})
					mu.Lock()
					if quiet && err != nil {
						t.Errorf("%s: %v", tenant, err)
					} else if quiet {
						waits = append(waits, lease.Waited())
					} else {
						flood[err == nil]++
					}
					mu.Unlock()
					if err == nil {
						time.Sleep(service)
						lease.Release()
					}
				}
				for range 1000 {
					wg.Go(func() { come("flood", false) })
				}
				time.Sleep(time.Millisecond) // it is there first
				for i := range 20 {
					wg.Go(func() { come(fmt.Sprint("quiet-", i), true) })
				}
				wg.Wait()
				bound := time.Duration((21+c-1)/c+1) * service
				longest := slices.Max(waits)
				t.Logf("lanes %v, capacity %d: the longest wait is %.1f service times, at most %d; of the flood %d served, %d refused",
					lanes, c, float64(longest)/float64(service), bound/service, flood[true], flood[false])
				if len(waits) != 20 || longest > bound {
					t.Errorf("capacity %d: waits %v, want at most %v", c, waits, bound)
				}
			})
		}
	}
}

// #9654: a flood that goes on does not keep another tenant out: each of its requests is
// served within a few service times, with every cost that it may have.
func TestFloodThatGoesOn(t *testing.T) {
	both(t, limited(12), func(t *testing.T, l *Controller) {
		var wg sync.WaitGroup
		stop := make(chan struct{})
		for range 300 {
			wg.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					lease, err := l.Acquire(context.Background(), gate.Request{Flow: "flood", Cost: 3})
					if err != nil {
						time.Sleep(10 * time.Millisecond)
						continue
					}
					time.Sleep(100 * time.Millisecond)
					lease.Release()
				}
			})
		}
		time.Sleep(time.Second)
		longest := time.Duration(0)
		for _, cost := range []int64{1, 3, 6, 12, 100} {
			for range 5 {
				lease, err := l.Acquire(context.Background(), gate.Request{Flow: "quiet", Cost: cost})
				if err != nil {
					t.Fatalf("cost %d: %v", cost, err)
				}
				longest = max(longest, lease.Waited())
				time.Sleep(10 * time.Millisecond)
				lease.Release()
			}
		}
		t.Logf("longest wait %v, service 100ms", longest)
		if longest > 2*time.Second {
			t.Errorf("longest wait %v", longest)
		}
		close(stop)
		wg.Wait()
	})
}

// Weights come with the request or the context: twice the weight, twice the cost.
func TestWeights(t *testing.T) {
	both(t, func(c *Config) { limited(1)(c); c.MaxWait = time.Hour }, func(t *testing.T, l *Controller) {
		c := newCrowd(t, l)
		c.ask("first", gate.Request{Cost: 1})
		heavy := gate.WithFlow(context.Background(), "heavy", 3)
		for i := range 60 {
			c.askIn(heavy, fmt.Sprint("heavy", i), gate.Request{Cost: 1})
			c.ask(fmt.Sprint("light", i), gate.Request{Flow: "light", Cost: 1})
		}
		for i := range 40 {
			c.release(c.granted[i])
		}
		n := 0
		for _, name := range c.granted[1:] {
			if name[0] == 'h' {
				n++
			}
		}
		if n < 29 || n > 31 {
			t.Errorf("of 40 turns the tenant of weight 3 had %d", n)
		}
		c.releaseAll()
	})
}

// Classes come before tenants, and what waits below them ages: nothing starves.
func TestClasses(t *testing.T) {
	bubble(t, func(c *Config) { limited(1)(c); c.MaxWait = time.Minute }, func(t *testing.T, l *Controller) {
		c := newCrowd(t, l)
		c.ask("first", gate.Request{Cost: 1})
		c.ask("bulk", gate.Request{Flow: "a", Class: gate.Bulk, Cost: 1})
		c.ask("default", gate.Request{Flow: "a", Cost: 1})
		c.askIn(gate.WithClass(context.Background(), gate.Interactive), "chat", gate.Request{Flow: "b", Cost: 1})
		c.release("first")
		c.release("chat")
		c.release("default")
		c.release("bulk")
		if got, want := fmt.Sprint(c.granted), "[first chat default bulk]"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
		c.ask("holder", gate.Request{Cost: 1})
		c.ask("old bulk", gate.Request{Class: gate.Bulk, Cost: 1})
		last := "holder"
		for i := 0; !c.holds("old bulk"); i++ {
			if i == 20 {
				t.Fatal("bulk work starves")
			}
			name := fmt.Sprint("chat", i)
			c.ask(name, gate.Request{Class: gate.Interactive, Cost: 1})
			time.Sleep(time.Second)
			c.release(last)
			if last = name; c.holds("old bulk") {
				c.release("old bulk")
				break
			}
		}
		c.releaseAll()
	})
}
