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
	mu      sync.Mutex
	arrived time.Time     // of the first request, zero before it
	waited  time.Duration // in queues, all stays together
	asked   []asked
	first   [1]asked // room for what most calls ask
}

// asked is a lane that the call has asked for a slot.
type asked struct {
	limiter *Limiter
	lane    string          // its key
	served  bool            // it has given one
	refused *gate.Rejection // what it has said, nil if it has refused none
}

// maxAsked is how many lanes a ticket remembers.
const maxAsked = 8

// WithCall returns a context for one logical call and its retries: under it, every
// Acquire has the place and the age of the first; all of them together wait until
// QueueTimeout after the first at most, when a slot that is free is still given;
// and a lane that has refused one of them (full, timed out, displaced, closed)
// refuses the later ones at once, with the same error. It takes effect for every
// Limiter. While limits are not enforced, and in a lane without one, nothing is
// refused again. A ticket remembers 8 lanes. It must not be shared by calls that are
// made side by side: one would then pay for another's wait.
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
	c := &call{up: up, slot: &slot{limiter: l, lane: canonical(lane)}}
	if up != nil && up.slot == nil {
		c.ticket = up.ticket
	} else {
		c.ticket = new(ticket)
	}
	if outer := up.adopt(ctx, l, c.slot.lane); outer != nil {
		c.note(l, c.slot.lane, nil)
		c.slot.lease, c.slot.retry = outer.lease, outer.retry
	} else {
		r := gate.Request{Lane: lane}
		lease, err := l.acquireUnder(ctx, c, &r, index(gate.ClassOf(ctx)))
		if err != nil {
			return err
		}
		c.slot.lease, c.slot.retry = lease, r.Retry
	}
	c.slot.state.Store(slotReady)
	defer c.slot.end()
	return fn(gate.WithTicket(ctx, c))
}

// slot is what Do waited for.
type slot struct {
	limiter *Limiter
	lane    string // its key
	lease   gate.Lease
	retry   bool // it was counted as one
	state   atomic.Uint32
}

const (
	slotReady uint32 = iota + 1 // nobody has taken it yet
	slotTaken                   // somebody has, or Do has ended it
)

// adopt returns a slot of the lane with that key that a Do around waits to hand on, nil
// if there is none or ctx is done.
func (c *call) adopt(ctx context.Context, l *Limiter, lane string) *slot {
	if ctx.Err() != nil {
		return nil
	}
	for ; c != nil; c = c.up {
		if s := c.slot; s != nil && s.limiter == l && s.lane == lane && s.state.CompareAndSwap(slotReady, slotTaken) {
			return s
		}
	}
	return nil
}

func (s *slot) end() {
	if s.state.CompareAndSwap(slotReady, slotTaken) {
		s.lease.Release()
	}
}

// acquireCall is Acquire under a ticket.
func (l *Limiter) acquireCall(ctx context.Context, c *call, r *gate.Request, class int) (gate.Lease, error) {
	if s := c.adopt(ctx, l, canonical(r.Lane)); s != nil {
		if r.Retry && !s.retry {
			l.find(r.Lane).retries.Add(1)
		}
		c.note(l, s.lane, nil)
		return s.lease, nil
	}
	return l.acquireUnder(ctx, c, r, class)
}

// acquireUnder asks for a slot with the call's place, unless the lane has refused the
// call before. r.Retry says afterwards whether that was a retry.
func (l *Limiter) acquireUnder(ctx context.Context, c *call, r *gate.Request, class int) (gate.Lease, error) {
	lane, ln := canonical(r.Lane), l.find(r.Lane)
	before, again := c.ask(l, lane)
	switch {
	case before.served:
		ln.retried(class)
	case r.Retry || again:
		ln.retries.Add(1)
	}
	r.Retry = r.Retry || again
	if before.refused != nil && l.set.Load().Mode == gate.Enforce && !ln.set.Load().off() {
		ln.repeats.Add(1)
		return gate.Lease{}, before.refused
	}
	lease, err := l.wait(ctx, c.ticket, r, class)
	if err == nil {
		c.spend(lease.Waited())
	}
	c.note(l, lane, err)
	return lease, err
}

// ask notes that the call asks a lane, and returns what was known of it before, and
// whether it was asked before.
func (t *ticket) ask(l *Limiter, lane string) (before asked, again bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(t.asked)
	if a := t.askedLocked(l, lane); a != nil {
		before = *a
		again = len(t.asked) == n
	}
	return before, again
}

// note keeps how asking a lane has ended: with a slot, or with a refusal that will be no
// other when the call asks again. What the caller's own context says may be different
// then.
func (t *ticket) note(l *Limiter, lane string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.askedLocked(l, lane)
	if a == nil {
		return
	}
	if err == nil {
		a.served = true
		return
	}
	if rej, ok := err.(*gate.Rejection); ok {
		switch rej.Reason {
		case gate.QueueFull, gate.QueueTimeout, gate.Displaced, gate.ShuttingDown:
			a.refused = rej
		}
	}
}

// askedLocked is what is known of a lane; nil if it is one too many.
func (t *ticket) askedLocked(l *Limiter, lane string) *asked {
	for i := range t.asked {
		if a := &t.asked[i]; a.limiter == l && a.lane == lane {
			return a
		}
	}
	if t.asked == nil {
		t.asked = t.first[:0]
	}
	if len(t.asked) == maxAsked {
		return nil
	}
	t.asked = append(t.asked, asked{limiter: l, lane: lane})
	return &t.asked[len(t.asked)-1]
}

// spend counts a stay in a queue and returns how long the call has stood in queues in
// all.
func (t *ticket) spend(d time.Duration) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waited += d
	return t.waited
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
