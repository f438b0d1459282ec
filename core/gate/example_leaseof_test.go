package gate_test

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

// turnstile lets one request in at a time. It is the holder of every lease it
// gives: the generation is odd while one lives.
type turnstile struct{ gen atomic.Uint64 }

func (t *turnstile) Acquire(ctx context.Context, _ gate.Request) (gate.Lease, error) {
	if err := ctx.Err(); err != nil {
		return gate.Lease{}, &gate.Rejection{Reason: gate.Canceled, Gate: "turnstile", Cause: err}
	}
	gen := t.gen.Load()
	if gen%2 == 1 || !t.gen.CompareAndSwap(gen, gen+1) {
		return gate.Lease{}, &gate.Rejection{Reason: gate.QueueFull, Gate: "turnstile", Limit: 1, RetryAfter: time.Second}
	}
	return gate.NewLease(t, gen+1), nil
}

func (t *turnstile) Release(gen uint64)          { t.gen.CompareAndSwap(gen, gen+1) }
func (t *turnstile) Live(gen uint64) bool        { return t.gen.Load() == gen }
func (t *turnstile) Shrink(uint64, int64)        {}
func (t *turnstile) Observe(uint64, gate.Sample) {}
func (t *turnstile) Waited(uint64) time.Duration { return 0 }
func (t *turnstile) Grow(gen uint64, _ int64) (err error) {
	if t.Live(gen) {
		err = &gate.Rejection{Reason: gate.CostExceedsLimit, Gate: "turnstile", Limit: 1}
	}
	return err
}

func (t *turnstile) Body(_ uint64, rc io.ReadCloser, _ func(time.Time) error) io.ReadCloser {
	return rc
}

// A gate hands out leases by value: a holder and a generation. The turnstile's generation
// moves on with each release, so a copy that is kept for too long releases nothing.
func ExampleNewLease() {
	t := &turnstile{}
	first, _ := t.Acquire(context.Background(), gate.Request{}) // returns gate.NewLease(t, 1)
	first.Release()
	second, _ := t.Acquire(context.Background(), gate.Request{})
	first.Release()
	fmt.Println(first.Live(), second.Live())
	// Output: false true
}

// A middleware that meets a request a second time finds the lease that the
// request holds, and lets it pass.
func ExampleLeaseOf() {
	t := &turnstile{}
	middleware := func(next func(context.Context)) func(context.Context) {
		return func(ctx context.Context) {
			if _, ok := gate.LeaseOf(ctx, t); ok {
				fmt.Println("admitted before")
				next(ctx)
				return
			}
			lease, err := t.Acquire(ctx, gate.Request{})
			defer lease.Release() // the zero Lease too
			if err != nil {
				fmt.Println(err)
				return
			}
			fmt.Println("admitted")
			next(lease.In(ctx, t))
		}
	}

	handle := middleware(middleware(func(context.Context) {
		fmt.Println("handled")
		middleware(nil)(context.Background()) // another request meanwhile
	}))
	handle(context.Background())
	// Output:
	// admitted
	// admitted before
	// handled
	// refused locally by turnstile: queue full (limit 1)
}
