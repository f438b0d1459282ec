package main

import (
	"context"
	"math"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	headgate "github.com/headgate-go/headgate/core"
	"github.com/headgate-go/headgate/core/gate"
)

// work is one kind of request, which comes at random times.
type work struct {
	rate  float64       // a second, on average
	swing float64       // how far the rate goes up and down, 0..1
	every time.Duration // the time of one such swing
	do    func(context.Context, *rand.Rand)
}

const (
	large   = "https://llm.example.com/v1|large"
	small   = "https://llm.example.com/v1|small"
	vectors = "https://vectors.example.com"
	search  = "https://search.example.com"
)

// startLoad keeps hg's gates busy until ctx ends. over waits for what is still running.
func startLoad(ctx context.Context, hg *headgate.Headgate) (over func(context.Context) error) {
	var running sync.WaitGroup
	for i, w := range theLoad(hg) {
		running.Go(func() { w.run(ctx, rand.New(rand.NewPCG(1, uint64(i))), &running) })
	}
	return func(ctx context.Context) error {
		done := make(chan struct{})
		go func() {
			defer close(done)
			running.Wait()
		}()
		select {
		case <-done:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func theLoad(hg *headgate.Headgate) []work {
	return []work{
		// More than the back end can do, in waves: its lane has a queue.
		{3, 0.9, 3 * time.Minute, call(hg, large, gate.Bulk, time.Second, 0)},
		{3, 0.5, time.Minute, call(hg, large, gate.Default, time.Second, 0)},
		{1.5, 0.5, 40 * time.Second, call(hg, large, gate.Interactive, time.Second, 0)},
		{12, 0.4, 2 * time.Minute, call(hg, small, gate.Interactive, 300*time.Millisecond, 0)},
		// A back end that fails while there is room.
		{6, 0.3, time.Minute, call(hg, vectors, gate.Default, 200*time.Millisecond, 0.3)},
		{1, 0.8, 4 * time.Minute, call(hg, search, gate.Interactive, 100*time.Millisecond, 0)},
		{7, 0.9, 150 * time.Second, upload(hg)},
		{14, 0.8, 3 * time.Minute, tenant(hg)},
	}
}

// run starts requests until ctx ends.
func (w work) run(ctx context.Context, rng *rand.Rand, running *sync.WaitGroup) {
	began := time.Now()
	for {
		wave := 1 + w.swing*math.Sin(2*math.Pi*float64(time.Since(began))/float64(w.every))
		next := rng.ExpFloat64() / (w.rate * wave)
		if !pause(ctx, time.Duration(min(next, 1)*float64(time.Second))) {
			return
		}
		if next > 1 {
			continue // the rate may be another by now
		}
		one := rand.New(rand.NewPCG(rng.Uint64(), 0))
		running.Go(func() { w.do(ctx, one) })
	}
}

// pause waits for d, or returns false when ctx ends.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// around is d, half of it more or less.
func around(d time.Duration, rng *rand.Rand) time.Duration {
	return time.Duration(float64(d) * (0.5 + rng.Float64()))
}

// call is a call to a back end, of which so many fail.
func call(hg *headgate.Headgate, lane string, class gate.Class, takes time.Duration, fails float64) func(context.Context, *rand.Rand) {
	return func(ctx context.Context, rng *rand.Rand) {
		slot, err := hg.Outbound.Acquire(ctx, gate.Request{Lane: lane, Class: class})
		if err != nil {
			return
		}
		defer slot.Release()
		first := around(takes, rng)
		pause(ctx, first)
		answer := gate.Sample{FirstByte: first, Status: 200}
		if rng.Float64() < fails {
			answer.Status = 503
		}
		gate.Observe(slot.In(ctx, hg.Outbound), answer)
	}
}

// upload is a request with a body, now and then one that is too large.
func upload(hg *headgate.Headgate) func(context.Context, *rand.Rand) {
	return func(ctx context.Context, rng *rand.Rand) {
		bytes := int64(rng.ExpFloat64() * (4 << 20))
		lease, err := hg.Bytes.Acquire(ctx, gate.Request{Bytes: bytes})
		if err != nil {
			return
		}
		defer lease.Release()
		pause(ctx, around(2*time.Second, rng))
	}
}

// tenant is a request of one of a few tenants, one of which asks for half of everything.
// The back end is as fast as it can be up to a cost of 70 in flight.
func tenant(hg *headgate.Headgate) func(context.Context, *rand.Rand) {
	return func(ctx context.Context, rng *rand.Rand) {
		who := 0
		if rng.IntN(2) > 0 {
			who = 1 + rng.IntN(9)
		}
		ctx = gate.WithFlow(ctx, "tenant "+strconv.Itoa(who), 1)
		lease, err := hg.Tenants.Acquire(ctx, gate.Request{Cost: int64(2 + rng.IntN(10))})
		if err != nil {
			return
		}
		defer lease.Release()
		busy := float64(hg.Tenants.Snapshot().InflightCost)
		first := time.Duration(0.6 * max(1, busy/70) * (0.9 + 0.2*rng.Float64()) * float64(time.Second))
		pause(ctx, first)
		gate.Observe(lease.In(ctx, hg.Tenants), gate.Sample{FirstByte: first, Status: 200})
	}
}
