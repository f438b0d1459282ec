package inflight

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

// call is what a context carries of one logical call.
type call struct {
	up *call // the call around it, nil if none
	*ticket
	slot *slot // what Do got, nil under WithCall
}

func callOf(ctx context.Context) *call {
	_, t := gate.Inherited(ctx)
	c, _ := t.(*call)
	return c
}

// ticket is what the requests for slots of one logical call have in common.
type ticket struct {
	mu       sync.Mutex
	arrived  time.Time     // of the first request, zero before it
	waited   time.Duration // in queues, all stays together
	attempts int           // requests for slots, Do's own excepted
	refused  []refusal
}

type refusal struct {
	by   *Limiter
	lane string
	err  *gate.Rejection
}

// maxRefusals is how many lanes' refusals a ticket remembers.
const maxRefusals = 8

// WithCall returns a context for one logical call and its retries: under it, every
// Acquire has the place and the age of the first; all of them together wait until
// QueueTimeout after the first at most, when a slot that is free is still given;
// and a lane that has refused one of them (full, timed out, displaced, closed)
// refuses the later ones at once, with the same error. It takes effect for every
// Limiter. It must not be shared by calls that are made side by side: one would
// then pay for another's wait.
func WithCall(ctx context.Context) context.Context {
	return gate.WithTicket(ctx, &call{up: callOf(ctx), ticket: new(ticket)})
}

// Do waits for a slot of the lane, then calls fn with a context that carries it,
// and returns fn's error, or the *[gate.Rejection] of a call that got no slot: fn
// has not run then. It waits above the client, so the wait is not in the client's
// timeout.
//
// The first Acquire for the same lane below fn's context gets that very slot; so
// does a Do. A slot that somebody got is theirs to release and may outlive fn (a
// response body that is read later, for example). A slot that nobody got ends with
// fn, whether it returns, panics or exits its goroutine.
//
// The context is one logical call as from [WithCall]; a Do directly under WithCall
// takes part in that call.
func (l *Limiter) Do(ctx context.Context, lane string, fn func(context.Context) error) error {
	up := callOf(ctx)
	c := &call{up: up, slot: &slot{limiter: l, lane: lane}}
	if up != nil && up.slot == nil {
		c.ticket = up.ticket
	} else {
		c.ticket = new(ticket)
	}
	lease, adopted := up.adopt(l, lane)
	if !adopted {
		var err error
		if lease, err = l.acquireUnder(ctx, c.ticket, &gate.Request{Lane: lane}, index(gate.ClassOf(ctx))); err != nil {
			return err
		}
	}
	c.slot.lease = lease
	c.slot.state.Store(slotReady)
	defer c.slot.end()
	return fn(gate.WithTicket(ctx, c))
}

// slot is what Do waited for.
type slot struct {
	limiter *Limiter
	lane    string
	lease   gate.Lease
	state   atomic.Uint32
}

const (
	slotReady uint32 = iota + 1 // nobody has taken it yet
	slotTaken                   // somebody has, or Do has ended it
)

// adopt returns a slot of the lane that a Do around waits to hand on.
func (c *call) adopt(l *Limiter, lane string) (gate.Lease, bool) {
	for ; c != nil; c = c.up {
		if s := c.slot; s != nil && s.limiter == l && s.lane == lane && s.state.CompareAndSwap(slotReady, slotTaken) {
			return s.lease, true
		}
	}
	return gate.Lease{}, false
}

func (s *slot) end() {
	if s.state.CompareAndSwap(slotReady, slotTaken) {
		s.lease.Release()
	}
}

// acquireCall is Acquire under a ticket.
func (l *Limiter) acquireCall(ctx context.Context, c *call, r *gate.Request, class int) (gate.Lease, error) {
	r.Retry = c.attempt() || r.Retry
	if ctx.Err() == nil {
		if lease, ok := c.adopt(l, r.Lane); ok {
			return lease, nil
		}
	}
	if r.Retry {
		l.find(r.Lane).retried(class)
	}
	return l.acquireUnder(ctx, c.ticket, r, class)
}

// acquireUnder asks for a slot with the ticket's place, unless the lane has refused
// the call before.
func (l *Limiter) acquireUnder(ctx context.Context, t *ticket, r *gate.Request, class int) (gate.Lease, error) {
	lane := canonical(r.Lane)
	if err := t.refusal(l, lane); err != nil {
		l.find(lane).repeats.Add(1)
		return gate.Lease{}, err
	}
	lease, err := l.acquire(ctx, t, r, class)
	if err != nil {
		t.note(l, lane, err)
	} else {
		t.spend(lease.Waited())
	}
	return lease, err
}

// refusal is what the lane has said to the call before, nil if nothing.
func (t *ticket) refusal(l *Limiter, lane string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range t.refused {
		if r.by == l && r.lane == lane {
			return r.err
		}
	}
	return nil
}

// note keeps a refusal that will be no other when the call asks again. What the
// caller's own context says may be different then.
func (t *ticket) note(l *Limiter, lane string, err error) {
	rej, ok := err.(*gate.Rejection)
	if !ok {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch rej.Reason {
	case gate.QueueFull, gate.QueueTimeout, gate.Displaced, gate.ShuttingDown:
		if len(t.refused) < maxRefusals {
			t.refused = append(t.refused, refusal{l, lane, rej})
		}
	}
}

// inQueues is how long the call has stood in queues in all.
func (t *ticket) inQueues() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.waited
}

// spend counts a stay in a queue.
func (t *ticket) spend(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waited += d
}

// attempt counts a request for a slot and reports whether it is a retry.
func (t *ticket) attempt() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.attempts++
	return t.attempts > 1
}

// arrival is when the call first asked, which is now if it never did.
func (t *ticket) arrival() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.arrived.IsZero() {
		t.arrived = time.Now()
	}
	return t.arrived
}
