package inflight

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

// world is a lane of 6 slots with exponential service of 20 s, for 20,000 s of
// virtual time.
type world struct {
	interactive, bulk float64 // arrivals a second
	step              time.Duration
	reserve           int
	seed              uint64
}

// waits are the waits of a world's callers, by class, in order.
type waits struct{ interactive, bulk []time.Duration }

func (w world) run(t *testing.T) (out waits) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, func(c *Config) {
			c.MaxInflight, c.InteractiveReserve, c.AgingStep = 6, w.reserve, w.step
			c.QueueTimeout, c.MaxQueue = math.MaxInt64, most
		})
		defer l.Close()
		var mu sync.Mutex
		var wg sync.WaitGroup
		end := time.Now().Add(20_000 * time.Second)
		stream := func(rate float64, class gate.Class, into *[]time.Duration, seed uint64) {
			rnd := rand.New(rand.NewPCG(w.seed, seed))
			for {
				time.Sleep(time.Duration(rnd.ExpFloat64() / rate * float64(time.Second)))
				if time.Now().After(end) {
					return
				}
				service := time.Duration(rnd.ExpFloat64() * 20 * float64(time.Second))
				wg.Go(func() {
					lease, err := l.Acquire(context.Background(), gate.Request{Lane: llm, Class: class})
					if err != nil {
						t.Error(err)
						return
					}
					waited := lease.Waited()
					time.Sleep(service)
					lease.Release()
					mu.Lock()
					defer mu.Unlock()
					*into = append(*into, waited)
				})
			}
		}
		wg.Go(func() { stream(w.interactive, gate.Interactive, &out.interactive, 1) })
		wg.Go(func() { stream(w.bulk, gate.Bulk, &out.bulk, 2) })
		wg.Wait()
	})
	slices.Sort(out.interactive)
	slices.Sort(out.bulk)
	return out
}

func p90(d []time.Duration) time.Duration { return d[len(d)*9/10] }

// median7 is the median of f over 7 seeds.
func median7(f func(seed uint64) time.Duration) time.Duration {
	var all []time.Duration
	for seed := range uint64(7) {
		all = append(all, f(seed+1))
	}
	slices.Sort(all)
	return all[3]
}

// Near-critical bulk work, all of which ages, costs interactive calls little: their
// p90 stays within 1.6 times that of strict classes.
func TestAgingCostsInteractiveLittle(t *testing.T) {
	if testing.Short() {
		t.Skip("42,000 calls in virtual time: left out with -short")
	}
	w := world{interactive: 0.06, bulk: 0.245}
	run := func(step time.Duration) (interactive, bulk time.Duration) {
		var bulks []time.Duration
		interactive = median7(func(seed uint64) time.Duration {
			w.step, w.seed = step, seed
			got := w.run(t)
			bulks = append(bulks, p90(got.bulk))
			return p90(got.interactive)
		})
		slices.Sort(bulks)
		return interactive, bulks[3]
	}
	strict, strictBulk := run(0)
	aged, agedBulk := run(time.Minute)
	t.Logf("interactive p90 %.1f s strict, %.1f s with aging (%.2f x); bulk p90 %.0f s and %.0f s",
		strict.Seconds(), aged.Seconds(), float64(aged)/float64(strict), strictBulk.Seconds(), agedBulk.Seconds())
	if float64(aged) > 1.6*float64(strict) {
		t.Errorf("interactive p90 %v, more than 1.6 times the %v of strict classes", aged, strict)
	}
}

// Interactive overload does not starve bulk work, at a price that the package says.
func TestAgingStarvesNobody(t *testing.T) {
	if testing.Short() {
		t.Skip("104,000 calls in virtual time: left out with -short")
	}
	w := world{interactive: 0.32, bulk: 0.05}
	longest := func(step time.Duration) (bulk, interactive time.Duration) {
		var waits90 []time.Duration
		for seed := range uint64(7) {
			w.step, w.seed = step, seed+1
			got := w.run(t)
			bulk = max(bulk, got.bulk[len(got.bulk)-1])
			waits90 = append(waits90, p90(got.interactive))
		}
		slices.Sort(waits90)
		return bulk, waits90[3]
	}
	strict, strictInteractive := longest(0)
	aged, agedInteractive := longest(time.Minute)
	t.Logf("longest bulk wait %.0f s strict, %.0f s with aging; interactive p90 %.0f s and %.0f s",
		strict.Seconds(), aged.Seconds(), strictInteractive.Seconds(), agedInteractive.Seconds())
	if aged > 6*time.Minute {
		t.Errorf("a bulk call waited %v", aged)
	}
	if strict < 20*time.Minute {
		t.Errorf("the longest bulk wait of strict classes is %v: the world is no overload", strict)
	}
}
