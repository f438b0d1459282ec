package gate

import (
	"context"
	"fmt"
	"time"
)

// scope is a context that carries everything of this package. It is a
// context.Context itself so that a scope costs one allocation.
type scope struct {
	context.Context
	up     *scope // the scope around this one
	ticket any
	flow   string
	weight uint16
	class  Class
	gate   Gate // nil where the scope adds no lease
	lease  Lease
}

type scopeKey struct{}

// Value returns the scope for scopeKey, else what the parent holds.
func (s *scope) Value(key any) any {
	if key == (scopeKey{}) {
		return s
	}
	return s.Context.Value(key)
}

// String names the contexts as package context does. Without it, printing a
// context would print the flow, which may be a tenant's name.
func (s *scope) String() string {
	if p, ok := s.Context.(fmt.Stringer); ok {
		return p.String() + ".gate"
	}
	return fmt.Sprintf("%T.gate", s.Context)
}

func scopeOf(ctx context.Context) *scope {
	if s, ok := ctx.(*scope); ok {
		return s
	}
	s, _ := ctx.Value(scopeKey{}).(*scope)
	return s
}

// child returns a new scope below ctx with the class, flow and ticket of the scope
// around it, up.
func child(ctx context.Context, up *scope) *scope {
	s := &scope{Context: ctx, up: up}
	if up != nil {
		s.class, s.flow, s.weight, s.ticket = up.class, up.flow, up.weight, up.ticket
	}
	return s
}

// WithClass returns a context whose work is of class c, goroutines started
// with it included. It panics on a class that does not exist; names from
// outside go through [ParseClass].
func WithClass(ctx context.Context, c Class) context.Context {
	if !c.Valid() {
		panic("gate.WithClass: unknown " + c.String())
	}
	s := child(ctx, scopeOf(ctx))
	s.class = c
	return s
}

// ClassOf returns the class of the work of ctx, [Default] where ctx has none.
func ClassOf(ctx context.Context) Class {
	if s := scopeOf(ctx); s != nil && s.class != 0 {
		return s.class
	}
	return Default
}

// WithFlow returns a context whose work waits in the given flow, with a share
// of weight beside other flows. Weights are 1 to 1000, 0 counts as 1; others
// panic.
func WithFlow(ctx context.Context, flow string, weight int) context.Context {
	if weight < 0 || weight > 1000 {
		panic("gate.WithFlow: weight must be 0 to 1000")
	}
	s := child(ctx, scopeOf(ctx))
	s.flow, s.weight = flow, uint16(weight)
	return s
}

// WithTicket returns a context that carries t, which is whatever a gate keeps for one
// logical call and its retries. Gates call it for their users; see [Inherited].
func WithTicket(ctx context.Context, t any) context.Context {
	s := child(ctx, scopeOf(ctx))
	s.ticket = t
	return s
}

// Inherited returns what a request takes over from ctx by one look-up: its class, 0
// where there is none, and the innermost ticket, nil where there is none.
func Inherited(ctx context.Context) (c Class, ticket any) {
	if s, ok := ctx.Value(scopeKey{}).(*scope); ok { // no more than this is inlined
		return s.class, s.ticket
	}
	return
}

// FlowOf returns the flow that a request takes over from ctx, "" where there is none, and
// its weight, 0 where there is none.
func FlowOf(ctx context.Context) (flow string, weight int) {
	if s, ok := ctx.Value(scopeKey{}).(*scope); ok { // no more than this is inlined
		return s.flow, int(s.weight)
	}
	return
}

// LeaseOf returns the lease that g gave to the request of ctx, and whether
// there is one that still lives.
func LeaseOf(ctx context.Context, g Gate) (Lease, bool) { return scopeOf(ctx).leaseOf(g) }

func (s *scope) leaseOf(g Gate) (Lease, bool) {
	for ; s != nil; s = s.up {
		if s.gate != nil && s.gate == g && s.lease.Live() {
			return s.lease, true
		}
	}
	return Lease{}, false
}

// Admit asks g for the request of ctx, as adapters do it. It completes r from ctx
// as [Request.In] does, and takes the flow of peer, an address (see [PeerFlow]),
// where there is no flow then and peer is not "". It returns a context in which
// [LeaseOf] finds the lease.
//
// A request that holds a lease of g already is not asked for again: one that is
// dispatched twice is admitted once. Then asked is false, r is untouched, in is ctx
// and the lease is zero. After an error, too, in is ctx and the lease is zero.
func Admit(ctx context.Context, g Gate, r *Request, peer string) (in context.Context, l Lease, asked bool, err error) {
	up := scopeOf(ctx)
	if _, held := up.leaseOf(g); held {
		return ctx, Lease{}, false, nil
	}
	r.fill(up)
	if r.Flow == "" && peer != "" {
		r.Flow = PeerFlow(peer)
	}
	if l, err = g.Acquire(ctx, *r); err != nil {
		return ctx, Lease{}, true, err
	}
	return l.in(ctx, up, g), l, true, nil
}

// Sample is how a back end answered one call.
type Sample struct {
	// FirstByte is the time from sending the request to the response head;
	// 0 = there was none.
	FirstByte time.Duration
	// Status is the response's status code; 0 = there was none.
	Status int
	// Err is the transport's error, nil when a response arrived.
	Err error
}

// Observe hands s to every lease that the request of ctx holds. A transport
// calls it once for each call, when the response head has arrived or the call
// has failed. Without leases it does nothing.
func Observe(ctx context.Context, s Sample) {
	for sc := scopeOf(ctx); sc != nil; sc = sc.up {
		if sc.lease.h != nil {
			sc.lease.h.Observe(sc.lease.gen, s)
		}
	}
}
