package gatetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/headgate-go/headgate/core/admission"
	"github.com/headgate-go/headgate/core/gate"
)

const mib = 1 << 20

// forever is longer than any case.
const forever = 24 * time.Hour

// budget opens the real byte gate with 8 MiB and bounds that no slow machine meets.
func (e *env) budget(change func(*admission.Config)) *admission.Budget {
	e.Helper()
	c := admission.DefaultConfig()
	c.MaxInflightBytes, c.MaxQueuedBytes = 8*mib, 64*mib
	c.QueueTimeout, c.BodyIdle, c.BodyTimeout = forever, forever, forever
	c.MinBodyRate, c.MinBodyRateWaiting = 0, 0
	if change != nil {
		change(&c)
	}
	b, err := admission.New(c)
	if err != nil {
		e.Fatalf("no budget: %v", err)
	}
	e.gates = append(e.gates, &openBudget{b, e})
	return b
}

// openBudget looks after a budget.
type openBudget struct {
	*admission.Budget
	e *env
}

func (b *openBudget) left() string {
	if s := b.Snapshot(); s.Inflight != 0 || s.InflightBytes != 0 || s.Waiting != 0 || s.QueuedBytes != 0 || s.ExemptInflight != 0 || s.DecodedBytes != 0 {
		return fmt.Sprintf("the budget holds %d leases, %d bytes, %d decoded; %d wait", s.Inflight, s.InflightBytes, s.DecodedBytes, s.Waiting)
	}
	return ""
}

func (b *openBudget) end() error {
	b.Close()
	if b.e.Failed() {
		return nil
	}
	return b.Drain(b.e.alive)
}

// fill takes n bytes of b and returns how to give them back.
func (e *env) fill(b gate.Gate, n int64) (giveBack func()) {
	e.Helper()
	lease, err := b.Acquire(e.ctx, gate.Request{Bytes: n})
	if err != nil {
		e.Fatalf("the gate was to be empty: %v", err)
	}
	return lease.Release
}

// slots is a small gate: so many slots, first come first served.
type slots struct {
	limit int
	wait  time.Duration // how long a request may wait; 0 = not at all
	idle  time.Duration // how long a Read of a body may block; 0 = as it likes
	over  chan struct{} // closed: nobody may wait any longer
	once  sync.Once

	mu      sync.Mutex
	held    int
	bodies  int // that leases were asked to read
	asked   []gate.Request
	waiters []chan struct{}
}

// slots returns a gate with limit slots, in which a request may wait for wait.
func (e *env) slots(limit int, wait time.Duration) *slots {
	s := &slots{limit: limit, wait: wait, over: make(chan struct{})}
	e.gates = append(e.gates, s)
	return s
}

// Acquire implements gate.Gate.
func (s *slots) Acquire(ctx context.Context, r gate.Request) (gate.Lease, error) {
	s.mu.Lock()
	s.asked = append(s.asked, r.In(ctx))
	switch {
	case ctx.Err() != nil:
		s.mu.Unlock()
		return gate.Lease{}, refusal(gate.Canceled, ctx.Err())
	case s.held < s.limit:
		defer s.mu.Unlock()
		s.held++
		return s.lease(0), nil
	case s.wait == 0:
		s.mu.Unlock()
		return gate.Lease{}, refusal(gate.QueueFull, nil)
	}
	turn := make(chan struct{})
	s.waiters = append(s.waiters, turn)
	s.mu.Unlock()
	return s.await(ctx, turn)
}

func (s *slots) await(ctx context.Context, turn chan struct{}) (gate.Lease, error) {
	arrived, timeout := time.Now(), time.NewTimer(s.wait)
	defer timeout.Stop()
	var rej *gate.Rejection
	select {
	case <-turn:
	case <-timeout.C:
		rej = refusal(gate.QueueTimeout, nil)
	case <-s.over:
		rej = refusal(gate.QueueTimeout, nil)
	case <-ctx.Done():
		rej = refusal(gate.Canceled, ctx.Err())
	}
	waited := max(time.Since(arrived), 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if rej == nil {
		return s.lease(waited), nil
	}
	rej.Waited = waited
	for i, w := range s.waiters {
		if w == turn {
			s.waiters = append(s.waiters[:i], s.waiters[i+1:]...)
			return gate.Lease{}, rej
		}
	}
	s.freeLocked() // the slot was this one's already: hand it on
	return gate.Lease{}, rej
}

// expire ends the wait of all, now and from now on, as a bound does.
func (s *slots) expire() { s.once.Do(func() { close(s.over) }) }

func (s *slots) lease(waited time.Duration) gate.Lease {
	return gate.NewLease(&slot{gate: s, waited: waited}, 1)
}

// freeLocked hands a slot on, or takes it back.
func (s *slots) freeLocked() {
	if len(s.waiters) == 0 {
		s.held--
		return
	}
	close(s.waiters[0])
	s.waiters = s.waiters[1:]
}

func (s *slots) queued() int { s.mu.Lock(); defer s.mu.Unlock(); return len(s.waiters) }
func (s *slots) inUse() int  { s.mu.Lock(); defer s.mu.Unlock(); return s.held }
func (s *slots) wrapped() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bodies
}

func (s *slots) requests() []gate.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]gate.Request(nil), s.asked...)
}

func (s *slots) left() string {
	if held, queued := s.inUse(), s.queued(); held != 0 || queued != 0 {
		return fmt.Sprintf("the gate holds %d leases; %d wait", held, queued)
	}
	return ""
}

func (s *slots) end() error {
	s.expire()
	return nil
}

// slot is one lease of slots.
type slot struct {
	gate     *slots
	waited   time.Duration
	released bool // under the gate's lock
}

// Release implements gate.Holder.
func (h *slot) Release(uint64) {
	s := h.gate
	s.mu.Lock()
	defer s.mu.Unlock()
	if !h.released {
		h.released = true
		s.freeLocked()
	}
}

// Live implements gate.Holder.
func (h *slot) Live(uint64) bool {
	h.gate.mu.Lock()
	defer h.gate.mu.Unlock()
	return !h.released
}

// Grow implements gate.Holder.
func (h *slot) Grow(uint64, int64) error { return nil }

// Shrink implements gate.Holder.
func (h *slot) Shrink(uint64, int64) {}

// Observe implements gate.Holder.
func (h *slot) Observe(uint64, gate.Sample) {}

// Waited implements gate.Holder.
func (h *slot) Waited(uint64) time.Duration { return h.waited }

// Body implements gate.Holder.
func (h *slot) Body(_ uint64, rc io.ReadCloser, setReadDeadline func(time.Time) error) io.ReadCloser {
	h.gate.mu.Lock()
	defer h.gate.mu.Unlock()
	h.gate.bodies++
	if h.gate.idle > 0 && setReadDeadline != nil {
		return &timedBody{rc, h.gate.idle, setReadDeadline}
	}
	return rc
}

// timedBody has a deadline for each Read, behind the body's end too.
type timedBody struct {
	io.ReadCloser
	idle time.Duration
	set  func(time.Time) error
}

// Read implements io.Reader.
func (b *timedBody) Read(p []byte) (int, error) {
	if err := b.set(time.Now().Add(b.idle)); err != nil {
		return 0, err
	}
	n, err := b.ReadCloser.Read(p)
	_ = b.set(time.Time{})
	return n, err
}

// refusing is a gate that answers with what it is set to.
type refusing struct {
	mu  sync.Mutex
	err error
	n   int
}

func (r *refusing) set(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
}

// Acquire implements gate.Gate.
func (r *refusing) Acquire(context.Context, gate.Request) (gate.Lease, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.n++; r.err == nil {
		return gate.Lease{}, errors.New("nothing is set")
	}
	return gate.Lease{}, r.err
}

func refusal(reason gate.Reason, cause error) *gate.Rejection {
	return &gate.Rejection{Reason: reason, Gate: "slots", RetryAfter: 3 * time.Second, Cause: cause}
}
