package waitq

import (
	"runtime"
	"sync/atomic"
	"time"
)

// Lease is what a grant took from a queue. Policies embed it in the record that
// they hand out and use again. A lease is held from the Acquire that filled it
// to the first Release of the generation it had then.
type Lease struct {
	gen atomic.Uint64 // the top bit is set while one goroutine changes the charge

	// Set by hold; read and changed only with the top bit of gen set, or by the
	// one whose Release moved gen on.
	q      *Queue
	charge int64
	start  int64        // when it was granted; 0 = not timed
	waited atomic.Int64 // read by others too: it counts while gen stands
	class  int8
	booked *waiter // the entry of a lease that Book queued

	spare *waiter // waits for the leases of this record, nil until one has to
}

const changing = 1 << 63

// Gen is the generation of a lease that was just filled. It names this lease
// among all that the record will ever hold.
func (l *Lease) Gen() uint64 { return l.gen.Load() }

// Live reports whether gen is held.
func (l *Lease) Live(gen uint64) bool { return l.gen.Load()&^changing == gen }

// Waited is how long generation gen stood in the queue, 0 when it is not held.
func (l *Lease) Waited(gen uint64) time.Duration {
	d := time.Duration(l.waited.Load())
	if !l.Live(gen) {
		return 0
	}
	return d
}

func (l *Lease) hold(q *Queue, class int, charge, start int64) {
	l.q, l.class, l.charge, l.start, l.booked = q, int8(class), charge, start, nil
	if l.waited.Load() != 0 { // most often it is, and a load costs less than a store
		l.waited.Store(0)
	}
}

// Hold fills l, which is free, with the cost that Take took from q, and returns
// its generation. The first 16 and then one in 64 of a record's leases are timed.
func (l *Lease) Hold(q *Queue, cost int64) uint64 {
	gen := l.gen.Load()
	l.hold(q, 0, cost, 0)
	if gen&sampleMask == 0 || gen < holdSamples {
		l.start = q.now()
	}
	return gen
}

// Release gives back what generation gen holds, once. It reports whether this
// call did it: then the record is free, and the caller's to use again.
func (l *Lease) Release(gen uint64) bool {
	if !l.gen.CompareAndSwap(gen, gen+1) && !l.advance(gen, gen+1) {
		return false
	}
	if w := l.booked; w != nil {
		l.booked = nil
		l.q.unbook(w)
		return true
	}
	q, class := l.q, int(l.class)
	q.leaveClass(class)
	if s := q.state.Add(l.charge<<countBits - 1); s < 0 || l.start != 0 {
		q.released(s, class, l.charge, l.start)
	}
	return true
}

// giveBack releases a grant that its caller never saw.
func (l *Lease) giveBack() {
	gen := l.Gen()
	l.q.returned.Add(1)
	l.start = 0 // no work was done: no hold time
	l.Release(gen)
}

// Grow adds n to what generation gen holds if there is room now. It reports
// false when there is none, and true when gen is no longer held. A lease that
// Book queued does not grow.
func (l *Lease) Grow(gen uint64, n int64) bool {
	if !l.advance(gen, gen|changing) {
		return true
	}
	ok := true
	if l.booked == nil {
		if ok = l.q.grow(n); ok {
			l.charge += n
		}
	}
	l.gen.Store(gen)
	return ok
}

// Shrink gives back n of what generation gen holds, at most all of it.
func (l *Lease) Shrink(gen uint64, n int64) {
	if !l.advance(gen, gen|changing) {
		return
	}
	q, by := l.q, min(n, l.charge)
	l.charge -= by
	l.gen.Store(gen)
	if by > 0 {
		q.shrink(by)
	}
}

// advance moves gen on from a held generation. It waits out a change, which lasts
// no longer than one turn at the queue's lock.
func (l *Lease) advance(gen, to uint64) bool {
	for !l.gen.CompareAndSwap(gen, to) {
		if l.gen.Load()&^changing != gen {
			return false
		}
		runtime.Gosched()
	}
	return true
}
