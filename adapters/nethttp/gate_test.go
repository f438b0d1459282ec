package httpgate_test

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate/core/gate"
	"github.com/stretchr/testify/require"
)

// slots is a small gate of its own kind: so many slots, first come first served.
type slots struct {
	limit int
	wait  time.Duration // how long a request may wait; 0 = not at all
	read  reader        // how admitted bodies are read; nil = as they are

	mu      sync.Mutex
	held    int
	most    int
	asked   []gate.Request
	waiters []chan struct{}
}

// reader is how a gate wraps a body.
type reader func(rc io.ReadCloser, setReadDeadline func(time.Time) error) io.ReadCloser

func (s *slots) Acquire(ctx context.Context, r gate.Request) (gate.Lease, error) {
	s.mu.Lock()
	s.asked = append(s.asked, r)
	if ctx.Err() != nil {
		s.mu.Unlock()
		return gate.Lease{}, refusal(gate.Canceled, context.Cause(ctx))
	}
	if s.held < s.limit {
		defer s.mu.Unlock()
		return s.grantLocked(0), nil
	}
	if s.wait == 0 {
		s.mu.Unlock()
		return gate.Lease{}, refusal(gate.QueueFull, nil)
	}
	turn := make(chan struct{})
	s.waiters = append(s.waiters, turn)
	s.mu.Unlock()
	return s.await(ctx, turn)
}

func (s *slots) await(ctx context.Context, turn chan struct{}) (gate.Lease, error) {
	arrived := time.Now()
	timeout := time.NewTimer(s.wait)
	defer timeout.Stop()
	var err error
	select {
	case <-turn:
	case <-timeout.C:
		err = &gate.Rejection{Reason: gate.QueueTimeout, Gate: "slots", Waited: time.Since(arrived), RetryAfter: time.Second}
	case <-ctx.Done():
		err = refusal(gate.Canceled, ctx.Err())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		return s.grantLocked(time.Since(arrived)), nil
	}
	for i, w := range s.waiters {
		if w == turn {
			s.waiters = append(s.waiters[:i], s.waiters[i+1:]...)
			return gate.Lease{}, err
		}
	}
	s.wakeLocked() // the turn was ours already: hand it on
	return gate.Lease{}, err
}

func (s *slots) grantLocked(waited time.Duration) gate.Lease {
	s.held++
	s.most = max(s.most, s.held)
	return gate.NewLease(&slot{gate: s, waited: max(waited, 0)}, 1)
}

func (s *slots) wakeLocked() {
	if len(s.waiters) > 0 {
		close(s.waiters[0])
		s.waiters = s.waiters[1:]
	}
}

func (s *slots) queued() int { s.mu.Lock(); defer s.mu.Unlock(); return len(s.waiters) }

func (s *slots) inUse() int { s.mu.Lock(); defer s.mu.Unlock(); return s.held }

func (s *slots) peak() int { s.mu.Lock(); defer s.mu.Unlock(); return s.most }

func (s *slots) requests() []gate.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]gate.Request(nil), s.asked...)
}

// slot is one lease of slots.
type slot struct {
	gate     *slots
	waited   time.Duration
	released atomic.Bool
	samples  atomic.Int32
}

func (h *slot) Release(uint64) {
	if h.released.Swap(true) {
		return
	}
	s := h.gate
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held--
	s.wakeLocked()
}

func (h *slot) Live(uint64) bool            { return !h.released.Load() }
func (h *slot) Grow(uint64, int64) error    { return nil }
func (h *slot) Shrink(uint64, int64)        {}
func (h *slot) Observe(uint64, gate.Sample) { h.samples.Add(1) }
func (h *slot) Waited(uint64) time.Duration { return h.waited }
func (h *slot) Body(_ uint64, rc io.ReadCloser, set func(time.Time) error) io.ReadCloser {
	if h.gate.read == nil {
		return rc
	}
	return h.gate.read(rc, set)
}

// scripted is a gate that answers what it is told to.
type scripted struct {
	acquire func(context.Context, gate.Request) (gate.Lease, error)
}

func (s *scripted) Acquire(ctx context.Context, r gate.Request) (gate.Lease, error) {
	return s.acquire(ctx, r)
}

func refusing(err error) *scripted {
	return &scripted{func(context.Context, gate.Request) (gate.Lease, error) { return gate.Lease{}, err }}
}

func refusal(reason gate.Reason, cause error) *gate.Rejection {
	return &gate.Rejection{Reason: reason, Gate: "slots", RetryAfter: 3 * time.Second, Cause: cause}
}

// capped reads at most n bytes of a body.
func capped(n int64) reader {
	return func(rc io.ReadCloser, _ func(time.Time) error) io.ReadCloser { return &cappedBody{rc, n} }
}

type cappedBody struct {
	io.ReadCloser
	left int64
}

func (b *cappedBody) Read(p []byte) (int, error) {
	if b.left < 0 {
		return 0, refusal(gate.PayloadTooLarge, nil)
	}
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return n - 1, refusal(gate.PayloadTooLarge, nil)
	}
	return n, err
}

// impatient ends a Read that blocks for longer than d.
func impatient(d time.Duration) reader {
	return func(rc io.ReadCloser, set func(time.Time) error) io.ReadCloser { return &impatientBody{rc, d, set} }
}

type impatientBody struct {
	io.ReadCloser
	idle time.Duration
	set  func(time.Time) error
}

func (b *impatientBody) Read(p []byte) (int, error) {
	if err := b.set(time.Now().Add(b.idle)); err != nil {
		return 0, err
	}
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		_ = b.set(time.Time{})
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = refusal(gate.SlowBody, nil)
	}
	return n, err
}

func (b *impatientBody) Close() error {
	err := b.ReadCloser.Close()
	_ = b.set(time.Time{})
	return err
}

// TestSlots checks the gate that the other tests lean on.
func TestSlots(t *testing.T) {
	s := &slots{limit: 1, wait: time.Minute}
	first, err := s.Acquire(t.Context(), gate.Request{})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = s.Acquire(ctx, gate.Request{})
	require.ErrorIs(t, err, gate.Canceled)
	first.Release()
	first.Release()
	require.Zero(t, s.inUse())
	require.Equal(t, 1, s.peak())
}
