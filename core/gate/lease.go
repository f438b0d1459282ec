package gate

import (
	"context"
	"io"
	"time"
)

// Lease is what an admitted request holds. It is a value: copies stand for the
// same lease. The zero Lease holds nothing, and all its methods may be called.
//
// Its holder must call Release at least once. All methods are safe for
// concurrent use, after Release too: they then do nothing.
type Lease struct {
	h   Holder
	gen uint64
}

// Holder is the side of a lease that a gate implements. Users never call it.
//
// A holder may be used again for a later lease: gen tells the leases of one
// holder apart. Each method must do nothing (and return its zero value) when
// gen is not the generation that the holder is at, and must be safe for
// concurrent use, Release of the same generation included.
type Holder interface {
	// Release gives back everything that the lease still holds.
	Release(gen uint64)
	// Live reports whether the lease has not been released.
	Live(gen uint64) bool
	// Grow adds n > 0 to what the lease holds, at once or not at all.
	Grow(gen uint64, n int64) error
	// Shrink gives back n > 0, at most what the lease holds.
	Shrink(gen uint64, n int64)
	// Body returns rc as the lease wants it read; see [Lease.Body].
	Body(gen uint64, rc io.ReadCloser, setReadDeadline func(time.Time) error) io.ReadCloser
	// Observe hands the lease the outcome of a back-end call.
	Observe(gen uint64, s Sample)
	// Waited is how long the lease's request stood in the queue.
	Waited(gen uint64) time.Duration
}

// NewLease returns the lease of generation gen that h holds. Gates call it.
func NewLease(h Holder, gen uint64) Lease { return Lease{h, gen} }

// Holder returns what NewLease was given, nil for the zero Lease. A gate calls it to know
// a lease of its own, of which it then asks more than Lease does.
func (l Lease) Holder() (h Holder, gen uint64) { return l.h, l.gen }

// Release gives back what the lease holds and wakes whom that lets in. Only
// the first call of all copies does anything.
func (l Lease) Release() {
	if l.h != nil {
		l.h.Release(l.gen)
	}
}

// Live reports whether the lease holds something still: false for the zero
// Lease and after Release.
func (l Lease) Live() bool { return l.h != nil && l.h.Live(l.gen) }

// Waited returns how long the request stood in the queue before it was
// admitted: 0 when it was admitted at once, and after Release.
func (l Lease) Waited() time.Duration {
	if l.h == nil {
		return 0
	}
	return l.h.Waited(l.gen)
}

// Grow adds n to what the lease holds, in the gate's unit. It takes free room
// ahead of everyone who waits, or fails at once with a *[Rejection]; it never
// waits. After a failure the lease holds what it held. n <= 0 does nothing;
// growing a released or zero lease does nothing and returns nil.
func (l Lease) Grow(n int64) error {
	if l.h == nil || n <= 0 {
		return nil
	}
	return l.h.Grow(l.gen, n)
}

// Shrink gives back n of what the lease holds, at most all of it. n <= 0 does
// nothing.
func (l Lease) Shrink(n int64) {
	if l.h != nil && n > 0 {
		l.h.Shrink(l.gen, n)
	}
}

// Body returns rc read under the lease: counted, bounded and, in byte
// admission, charged. Its Read fails with a *[Rejection] when the body breaks a
// limit, and goes on failing with it; Close closes rc.
//
// setReadDeadline moves the read deadline of the connection below rc; it lets
// the lease end a Read that a slow sender blocks. nil leaves slow senders alone.
// It is called from Read only.
//
// Gates that do not care for bodies return rc itself, as the zero Lease does.
// The caller reads the result in place of rc, and never rc itself again.
func (l Lease) Body(rc io.ReadCloser, setReadDeadline func(time.Time) error) io.ReadCloser {
	if l.h == nil {
		return rc
	}
	return l.h.Body(l.gen, rc, setReadDeadline)
}

// In returns a context under which [LeaseOf](ctx, g) finds l and [Observe]
// reaches it. Adapters call it once for each lease they hand to a handler; g
// is the gate that gave l. For the zero Lease it returns ctx.
func (l Lease) In(ctx context.Context, g Gate) context.Context { return l.in(ctx, scopeOf(ctx), g) }

func (l Lease) in(ctx context.Context, up *scope, g Gate) context.Context {
	if l.h == nil {
		return ctx
	}
	s := child(ctx, up)
	s.gate, s.lease = g, l
	return s
}
