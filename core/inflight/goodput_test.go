package inflight

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

// offered is a load on a lane of 8 slots with a service of 1 s, give or take a fifth,
// whose callers give up after 10 s. One call in ten of what the lane can serve is
// interactive, all others are default.
type offered struct {
	times   float64 // the whole load, in times of the lane's capacity
	reserve int
	seed    uint64
}

// run returns the calls that were done in time, as a share of what the lane can
// serve, and the 99th percentile of the interactive calls' latency.
func (o offered) run(t *testing.T) (goodput float64, p99 time.Duration) {
	const (
		slots = 8
		warm  = 20 * time.Second
		lasts = 120 * time.Second
	)
	var mu sync.Mutex
	var done int
	var latency []time.Duration
	synctest.Test(t, func(t *testing.T) {
		l := open(t, func(c *Config) { c.MaxInflight, c.InteractiveReserve, c.QueueTimeout = slots, o.reserve, 8*time.Second })
		defer l.Close()
		start := time.Now()
		var wg sync.WaitGroup
		call := func(class gate.Class, service time.Duration) {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			began := time.Now()
			lease, err := l.Acquire(ctx, gate.Request{Lane: llm, Class: class})
			defer lease.Release()
			if err == nil {
				select {
				case <-time.After(service):
				case <-ctx.Done(): // its client has left, but the back end works on
					time.Sleep(service - time.Since(began) + lease.Waited())
					err = ctx.Err()
				}
			}
			now := time.Now()
			if now.Sub(start) < warm || now.Sub(start) >= warm+lasts {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				done++
			}
			if class == gate.Interactive {
				latency = append(latency, now.Sub(began))
			}
		}
		stream := func(rate float64, class gate.Class, seed uint64) {
			rnd := rand.New(rand.NewPCG(o.seed, seed))
			for time.Since(start) < warm+lasts {
				time.Sleep(time.Duration(rnd.ExpFloat64() / rate * float64(time.Second)))
				service := time.Duration((0.8 + 0.4*rnd.Float64()) * float64(time.Second))
				wg.Go(func() { call(class, service) })
			}
		}
		wg.Go(func() { stream(0.1*slots, gate.Interactive, 1) })
		wg.Go(func() { stream((o.times-0.1)*slots, gate.Default, 2) })
		wg.Wait()
		wantIdle(t, l)
	})
	slices.Sort(latency)
	return float64(done) / (slots * lasts.Seconds()), latency[len(latency)*99/100]
}

// Whatever is offered beyond what the lane can serve, almost all of what it serves is
// done in time, and interactive calls do not notice. What a reserve keeps free while
// nobody interactive is there is not served: with one slot of 8, that is some 5 %.
func TestGoodput(t *testing.T) {
	for _, times := range []float64{0.5, 1, 1.5, 2, 5, 10} {
		good, p99 := offered{times: times, seed: 7}.run(t)
		kept, kept99 := offered{times: times, reserve: 1, seed: 7}.run(t)
		t.Logf("%4.1f x offered: %3.0f %% of capacity done in time, interactive p99 %.2f s; with a reserve of 1 %3.0f %%, %.2f s",
			times, 100*good, p99.Seconds(), 100*kept, kept99.Seconds())
		if want := 0.95 * min(times, 1); good < want {
			t.Errorf("%.1f x offered: %.1f %% of capacity, want at least %.1f %%", times, 100*good, 100*want)
		}
		if want := 0.9 * min(times, 1); kept < want {
			t.Errorf("%.1f x offered, with a reserve: %.1f %% of capacity, want at least %.1f %%", times, 100*kept, 100*want)
		}
		if worst := max(p99, kept99); worst > 3*time.Second {
			t.Errorf("%.1f x offered: interactive p99 %v, want at most 3s", times, worst)
		}
	}
}
