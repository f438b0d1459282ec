package gate_test

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

// meter is a gate that lets everybody in and learns how the back end answers.
type meter struct{ calls, failures atomic.Int64 }

func (m *meter) Acquire(ctx context.Context, _ gate.Request) (gate.Lease, error) {
	if err := ctx.Err(); err != nil {
		return gate.Lease{}, &gate.Rejection{Reason: gate.Canceled, Gate: "meter", Cause: err}
	}
	return gate.NewLease(&metered{meter: m}, 0), nil
}

// metered holds one lease. It is never used again, so its generation stays 0.
type metered struct {
	meter    *meter
	released atomic.Bool
}

func (h *metered) Observe(_ uint64, s gate.Sample) {
	if h.released.Load() {
		return
	}
	h.meter.calls.Add(1)
	if s.Err != nil || s.Status >= 500 {
		h.meter.failures.Add(1)
	}
}

func (h *metered) Release(uint64)              { h.released.Store(true) }
func (h *metered) Live(uint64) bool            { return !h.released.Load() }
func (h *metered) Grow(uint64, int64) error    { return nil }
func (h *metered) Shrink(uint64, int64)        {}
func (h *metered) Waited(uint64) time.Duration { return 0 }
func (h *metered) Body(_ uint64, rc io.ReadCloser, _ func(time.Time) error) io.ReadCloser {
	return rc
}

// Every gate that holds the request hears how its back end answered, and needs
// to know nothing of the client that called it.
func ExampleObserve() {
	inbound, outbound := &meter{}, &meter{}

	ctx := context.Background()
	lease, _ := inbound.Acquire(ctx, gate.Request{})
	defer lease.Release()
	ctx = lease.In(ctx, inbound)

	for _, status := range []int{503, 200} { // the client tries twice
		slot, _ := outbound.Acquire(ctx, gate.Request{})
		gate.Observe(slot.In(ctx, outbound), gate.Sample{Status: status, FirstByte: 40 * time.Millisecond})
		slot.Release()
	}
	fmt.Println(inbound.calls.Load(), inbound.failures.Load())
	fmt.Println(outbound.calls.Load(), outbound.failures.Load())
	// Output:
	// 2 1
	// 2 1
}
