package gatetest

import (
	"context"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

// Slots is a small gate for an adapter's own tests: so many slots, and nobody waits. It
// refuses with [gate.QueueFull], looks at no context, and puts a reader of its own around
// bodies.
type Slots struct {
	Limit int // may be changed while no request runs

	mu     sync.Mutex
	held   int
	bodies int
	asked  []gate.Request
}

// Acquire implements gate.Gate.
func (s *Slots) Acquire(_ context.Context, r gate.Request) (gate.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, r)
	if s.held >= s.Limit {
		return gate.Lease{}, Refusal(gate.QueueFull)
	}
	s.held++
	return gate.NewLease(&fakeSlot{gate: s}, 1), nil
}

// InUse is how many leases are held.
func (s *Slots) InUse() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held
}

// Bodies is how many bodies its leases were asked to read.
func (s *Slots) Bodies() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bodies
}

// Requests are all that it was asked for, as they came.
func (s *Slots) Requests() []gate.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked)
}

// fakeSlot is one lease of Slots.
type fakeSlot struct {
	gate     *Slots
	released atomic.Bool
}

func (h *fakeSlot) Release(uint64) {
	if !h.released.Swap(true) {
		h.gate.mu.Lock()
		defer h.gate.mu.Unlock()
		h.gate.held--
	}
}
func (h *fakeSlot) Live(uint64) bool            { return !h.released.Load() }
func (h *fakeSlot) Grow(uint64, int64) error    { return nil }
func (h *fakeSlot) Shrink(uint64, int64)        {}
func (h *fakeSlot) Observe(uint64, gate.Sample) {}
func (h *fakeSlot) Waited(uint64) time.Duration { return 0 }
func (h *fakeSlot) Body(_ uint64, rc io.ReadCloser, _ func(time.Time) error) io.ReadCloser {
	h.gate.mu.Lock()
	defer h.gate.mu.Unlock()
	h.gate.bodies++
	return &fakeBody{rc}
}

// fakeBody is a body that Slots reads.
type fakeBody struct{ io.ReadCloser }

// Refusing is a gate that lets nobody in: it answers Err.
type Refusing struct{ Err error }

// Acquire implements gate.Gate.
func (g *Refusing) Acquire(context.Context, gate.Request) (gate.Lease, error) {
	return gate.Lease{}, g.Err
}

// Refusal is what Slots refuses with, for any reason; a retry may succeed after 3 s.
func Refusal(reason gate.Reason) *gate.Rejection { return refusal(reason, nil) }

// Free is a gate that admits everyone at once by one and the same lease, and allocates
// nothing: what is left is the adapter's own cost.
type Free struct{ _ byte } // of some size, so that two are not the same

// Acquire implements gate.Gate.
func (g *Free) Acquire(context.Context, gate.Request) (gate.Lease, error) {
	return gate.NewLease((*freeLease)(g), 1), nil
}

type freeLease Free

func (h *freeLease) Release(uint64)              {}
func (h *freeLease) Live(uint64) bool            { return true }
func (h *freeLease) Grow(uint64, int64) error    { return nil }
func (h *freeLease) Shrink(uint64, int64)        {}
func (h *freeLease) Observe(uint64, gate.Sample) {}
func (h *freeLease) Waited(uint64) time.Duration { return 0 }
func (h *freeLease) Body(_ uint64, rc io.ReadCloser, _ func(time.Time) error) io.ReadCloser {
	return rc
}
