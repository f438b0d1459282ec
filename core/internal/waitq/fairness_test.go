package waitq

import (
	"context"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// maxMin shares capacity by weighted max-min fairness: the level rises evenly for
// all, per weight, and who has what it asks for leaves. It knows nothing of queues.
func maxMin(capacity float64, loads []load) []float64 {
	share := make([]float64, len(loads))
	open := make(map[int]bool)
	for i := range loads {
		open[i] = true
	}
	for len(open) > 0 && capacity > 1e-9 {
		weights := 0.0
		for i := range open {
			weights += float64(loads[i].weight)
		}
		rise := capacity / weights
		for i := range open {
			rise = min(rise, (loads[i].demand()-share[i])/float64(loads[i].weight))
		}
		for i := range open {
			share[i] += rise * float64(loads[i].weight)
			capacity -= rise * float64(loads[i].weight)
			if loads[i].demand()-share[i] < 1e-9 {
				delete(open, i)
			}
		}
	}
	return share
}

// load is a flow that sends a request of cost every so often.
type load struct {
	weight int
	cost   int64
	every  time.Duration
}

// demand is in cost per second.
func (l load) demand() float64 { return float64(l.cost) / l.every.Seconds() }

func TestMaxMin(t *testing.T) {
	per := func(demand, weight int) load {
		return load{weight: weight, cost: 1, every: time.Second / time.Duration(demand)}
	}
	for _, test := range []struct {
		capacity float64
		loads    []load
		want     []float64
	}{
		{10, []load{per(2, 1), per(4, 1), per(10, 1)}, []float64{2, 4, 4}},
		{10, []load{per(1, 1), per(10, 1), per(10, 2)}, []float64{1, 3, 6}},
		{100, []load{per(1, 1), per(5, 3)}, []float64{1, 5}},
		{8, []load{per(5, 1), per(5, 1), per(5, 2)}, []float64{2, 2, 4}},
	} {
		for i, got := range maxMin(test.capacity, test.loads) {
			if math.Abs(got-test.want[i]) > 1e-6 {
				t.Errorf("%v of %v: share %d is %v", test.loads, test.capacity, i, got)
			}
		}
	}
}

const service = time.Second

// offer sends the loads into q until the time is over and returns the cost that
// each was granted after the warm-up. Every lease is held for one service time.
func offer(q *Queue, loads []load, warm, during time.Duration) []int64 {
	granted := make([]atomic.Int64, len(loads))
	from := time.Now().Add(warm)
	ctx, cancel := context.WithDeadline(context.Background(), from.Add(during))
	defer cancel()
	for i, l := range loads {
		go func() {
			for ctx.Err() == nil {
				go func() {
					var lease Lease
					r := Request{Cost: l.cost, Flow: string(rune('a' + i)), Weight: l.weight}
					if q.Acquire(ctx, &lease, r).Outcome != Granted {
						return
					}
					if !time.Now().Before(from) {
						granted[i].Add(l.cost)
					}
					time.Sleep(service)
					lease.Release(lease.Gen())
				}()
				select {
				case <-ctx.Done():
				case <-time.After(l.every):
				}
			}
		}()
	}
	<-ctx.Done()
	time.Sleep(2 * service)
	synctest.Wait()
	got := make([]int64, len(loads))
	for i := range granted {
		got[i] = granted[i].Load()
	}
	return got
}

// TestFairness compares the cost that each flow is granted over a long time with
// its max-min share. What a flow may be off is the bound of the package comment:
// flows that wait differ by no more than the largest cost per weight of each of
// them; the rest of the tolerance is what stands in the queue of a light flow.
// Those that ask for more than their share have equal costs, so that none of them
// is served by passing; see TestFairnessOfPasses.
func TestFairness(t *testing.T) {
	const limit, during = 12, 200 * time.Second
	ms := time.Millisecond
	cases := map[string][]load{
		"equal":   {{1, 1, 100 * ms}, {1, 1, 100 * ms}, {1, 1, 100 * ms}},
		"weights": {{1, 2, 150 * ms}, {2, 2, 150 * ms}, {3, 2, 150 * ms}},
		"light":   {{1, 1, 1000 * ms}, {1, 2, 1500 * ms}, {1, 4, 100 * ms}, {2, 4, 300 * ms}},
		"one":     {{1, 2, 10000 * ms}, {1, 1, 30 * ms}},
		"flood":   {{1, 1, 10 * ms}, {1, 1, 500 * ms}, {1, 1, 400 * ms}},
	}
	r := rand.New(rand.NewPCG(3, 3))
	for _, name := range []string{"random 1", "random 2", "random 3", "random 4"} {
		cost := int64(1 + r.IntN(3))
		for range 3 + r.IntN(4) {
			cases[name] = append(cases[name], load{1 + r.IntN(4), cost, time.Duration(200+r.IntN(1500)) * ms})
		}
		cases[name] = append(cases[name], load{1, cost, 80 * ms}) // keeps the queue
	}
	for name, loads := range cases {
		t.Run(name, func(t *testing.T) {
			c := conf(limit)
			c.Timeout = time.Hour
			bubble(t, c, func(t *testing.T, q *Queue) {
				compareShares(t, loads, offer(q, loads, 20*time.Second, during), limit, during)
			})
		})
	}
}

func compareShares(t *testing.T, loads []load, got []int64, limit float64, during time.Duration) {
	t.Helper()
	total, perWeight, mixed := int64(0), 0.0, false
	for i, l := range loads {
		total += got[i]
		perWeight = max(perWeight, float64(l.cost)/float64(l.weight))
		mixed = mixed || l.cost != loads[0].cost
	}
	used := float64(total) / (limit * during.Seconds() / service.Seconds())
	if least := map[bool]float64{false: 0.999, true: 0.8}[mixed]; used < least { // kept room is idle
		t.Errorf("%.3f of the capacity is used though there is a queue", used)
	}
	for i, share := range maxMin(float64(total)/during.Seconds(), loads) {
		l := loads[i]
		want := share * during.Seconds()
		off := 2*perWeight*float64(l.weight) + 2*float64(l.cost)
		t.Logf("weight %d, cost %d, demand %.2f/s: granted %d, max-min share %.1f +- %.0f", l.weight, l.cost, l.demand(), got[i], want, off)
		if math.Abs(float64(got[i])-want) > off {
			t.Errorf("flow %d: granted %d, max-min share %.1f +- %.0f", i, got[i], want, off)
		}
	}
}

// TestFairnessBound holds the queue to its bound in each single moment: with a
// and b waiting all the time, what a is granted per weight is ahead of b by at
// most the cost of one request of each over its weight. At limit 1 nobody passes.
func TestFairnessBound(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		flows := 2 + r.IntN(5)
		type share struct{ granted, largest float64 } // over the weight
		shares := make([]share, flows)
		weights := make([]int, flows)
		for i := range weights {
			weights[i] = 1 + r.IntN(5)
		}
		q := New(conf(1))
		e := newEngine(q)
		send := func(i int) {
			cost := 1 + r.IntN(20)
			shares[i].largest = max(shares[i].largest, float64(cost)/float64(weights[i]))
			e.enter(Request{Cost: int64(cost), Flow: string(rune('a' + i)), Weight: weights[i]})
		}
		e.enter(Request{Cost: 1})
		for i := range flows {
			send(i)
			send(i)
		}
		for range 500 {
			before := make([]int64, flows)
			for i := range flows {
				before[i] = q.classes[0].flows[string(rune('a'+i))].queued
			}
			e.release(0, 1)
			for i := range flows {
				f := q.classes[0].flows[string(rune('a'+i))]
				if cost := before[i] - f.queued; cost > 0 {
					shares[i].granted += float64(cost) / float64(weights[i])
					send(i)
				}
			}
			for i, a := range shares {
				for j, b := range shares {
					if a.granted-b.granted > a.largest+b.largest+1e-3 {
						t.Fatalf("seed %d: flow %d has %.2f per weight, flow %d has %.2f, largest requests %.2f and %.2f",
							seed, i, a.granted, j, b.granted, a.largest, b.largest)
					}
				}
			}
		}
	}
}

// TestFairnessOfPasses states the price of W1: a flow of small requests that
// passes big heads (at most two grants for each head) may get more than its
// share by that much, and no more.
func TestFairnessOfPasses(t *testing.T) {
	loads := []load{{1, 1, 60 * time.Millisecond}, {4, 4, 500 * time.Millisecond}, {4, 5, 600 * time.Millisecond}}
	c := conf(12)
	c.Timeout = time.Hour
	bubble(t, c, func(t *testing.T, q *Queue) {
		const during = 200 * time.Second
		got := offer(q, loads, 20*time.Second, during)
		heads := float64(got[1])/4 + float64(got[2])/5
		total := float64(got[0] + got[1] + got[2])
		share := maxMin(total/during.Seconds(), loads)[0] * during.Seconds()
		t.Logf("small requests: granted %d, share %.0f, %.0f big heads", got[0], share, heads)
		if most := max(share, 2*heads) + 10; float64(got[0]) > most {
			t.Errorf("small requests were granted %d, at most %.0f by their share and two passes for each of %.0f heads", got[0], most, heads)
		}
	})
}
