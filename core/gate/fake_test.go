package gate_test

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

// errGrow is what a full fake answers to Grow.
var errGrow = &gate.Rejection{Reason: gate.AdmissionBusy, Gate: "fake"}

// fake is a gate and its only holder. Each lease is a new generation of it; it
// counts what reaches the living one and ignores what is meant for others.
type fake struct {
	mu       sync.Mutex
	gen      uint64 // of the last lease
	live     bool
	full     bool // Grow fails
	waited   time.Duration
	held     int64
	releases int
	grows    int
	shrinks  int
	samples  []gate.Sample
	deadline func(time.Time) error // as Body was given it
}

func (f *fake) Acquire(ctx context.Context, _ gate.Request) (gate.Lease, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return gate.Lease{}, &gate.Rejection{Reason: gate.Canceled, Gate: "fake", Cause: err}
	}
	if f.live {
		return gate.Lease{}, &gate.Rejection{Reason: gate.QueueFull, Gate: "fake", Limit: 1}
	}
	f.gen++
	f.live, f.held, f.samples = true, 1, nil
	return gate.NewLease(f, f.gen), nil
}

// lease acquires where the test leaves room.
func (f *fake) lease() gate.Lease {
	l, err := f.Acquire(context.Background(), gate.Request{})
	if err != nil {
		panic(err)
	}
	return l
}

// at locks f and reports whether gen lives.
func (f *fake) at(gen uint64) bool {
	f.mu.Lock()
	return f.live && f.gen == gen
}

func (f *fake) Release(gen uint64) {
	defer f.mu.Unlock()
	if f.at(gen) {
		f.live, f.held = false, 0
		f.releases++
	}
}

func (f *fake) Live(gen uint64) bool {
	defer f.mu.Unlock()
	return f.at(gen)
}

func (f *fake) Grow(gen uint64, n int64) error {
	defer f.mu.Unlock()
	if !f.at(gen) {
		return nil
	}
	f.grows++
	if f.full {
		return errGrow
	}
	f.held += n
	return nil
}

func (f *fake) Shrink(gen uint64, n int64) {
	defer f.mu.Unlock()
	if f.at(gen) {
		f.shrinks++
		f.held -= min(n, f.held)
	}
}

func (f *fake) Body(gen uint64, rc io.ReadCloser, set func(time.Time) error) io.ReadCloser {
	defer f.mu.Unlock()
	if !f.at(gen) {
		return rc
	}
	f.deadline = set
	return leasedBody{rc}
}

func (f *fake) Observe(gen uint64, s gate.Sample) {
	defer f.mu.Unlock()
	if f.at(gen) {
		f.samples = append(f.samples, s)
	}
}

func (f *fake) Waited(gen uint64) time.Duration {
	defer f.mu.Unlock()
	if f.at(gen) {
		return f.waited
	}
	return 0
}

func (f *fake) seen() []gate.Sample {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]gate.Sample(nil), f.samples...)
}

type leasedBody struct{ io.ReadCloser }

// body is an io.ReadCloser that can be compared.
type body struct{ closed bool }

func (b *body) Read([]byte) (int, error) { return 0, io.EOF }
func (b *body) Close() error {
	if b.closed {
		return errors.New("closed twice")
	}
	b.closed = true
	return nil
}
