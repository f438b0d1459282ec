package waitq

import (
	"runtime"
	"sync/atomic"
	"time"
)

// Lease is what a grant took from a queue. Policies embed it in the record that
// they hand out and use again. A lease is held from the Acquire that filled it
// to the first Release of the generation it had then.
//
// A record is its holder's own, or one that many share; see Share.
type Lease struct {
	// The generation, with the flags below on top. It is odd while the record is out;
	// that of a holder's own record is odd always, but before the first lease.
	gen  atomic.Uint64
	q    atomic.Pointer[Queue]
	held atomic.Int64 // see pack

	waited atomic.Int64 // how long it queued
	base   atomic.Int64 // of a shared record: Count when it turned to q and its class

	// Of whoever fills the record, and then of the one whose Release moves gen on.
	start  int64   // when the lease was granted; 0 = not timed, below 0 see owes
	booked *waiter // the entry of a lease that Book queued

	spare *waiter // waits for the leases of this record, nil until one has to
}

const (
	changing = 1 << 63       // one goroutine has the record, to change it
	changed  = 1 << 62       // held is not what it was at the grant
	shared   = 1 << sharedAt // many share the record: part of its generations

	sharedAt = 61
)

// Gen is the generation of a lease that was just filled. It names this lease
// among all that the record will ever hold.
func (l *Lease) Gen() uint64 { return l.gen.Load() &^ (changing | changed) }

// Live reports whether gen is held.
func (l *Lease) Live(gen uint64) bool { return l.Gen() == gen && gen&1 == 1 }

// Queue is what the record serves now, or served last, and Class the class of its
// lease. Who asks for one generation asks first, and then whether that is live.
func (l *Lease) Queue() *Queue { return l.q.Load() }

// Class: see Queue.
func (l *Lease) Class() int { return classOf(l.held.Load()) }

// Charge is what the record's lease holds, 0 for one that the state knows nothing of. See Queue.
func (l *Lease) Charge() int64 { return charge(l.held.Load()) }

// Waited is how long generation gen stood in the queue, 0 when it is not held.
func (l *Lease) Waited(gen uint64) time.Duration {
	d := time.Duration(l.waited.Load())
	if !l.Live(gen) {
		return 0
	}
	return d
}

// hold fills l, which is the caller's own, and returns its generation. A start of 0
// does not time it. Most often little changes, and a load costs less than a store.
func (l *Lease) hold(q *Queue, held, start, waited int64) uint64 {
	l.start = start
	if start != 0 {
		held |= long
	}
	if l.q.Load() != q {
		l.q.Store(q)
	}
	if l.held.Load() != held {
		l.held.Store(held)
	}
	if l.waited.Load() != waited {
		l.waited.Store(waited)
	}
	gen := l.gen.Load()
	if gen == 0 {
		gen = 1
		l.gen.Store(gen)
	}
	return gen
}

// set fills a shared record. The class comes first: whoever finds the record at q while
// it counts q's grants finds their class too.
func (l *Lease) set(q *Queue, held int64) {
	if l.held.Load() != held {
		l.held.Store(held)
	}
	if l.q.Load() != q {
		l.q.Store(q)
	}
}

// holdNothing is hold for a lease that the state knows nothing of. w is its entry, nil
// if it has none. Its release comes to the lock.
func (l *Lease) holdNothing(q *Queue, class int, w *waiter, waited int64) {
	l.booked = w
	l.hold(q, beside|long|int64(class), 0, waited)
}

// Release gives back what generation gen holds, once. It reports whether this
// call did it: then the record is free. A shared one may be another's already, any
// other is the caller's to use again.
func (l *Lease) Release(gen uint64) bool {
	q := l.q.Load()
	if held, ok := l.End(gen); ok {
		q.Give(held)
		return true
	}
	return l.releaseLong(gen)
}

// End and [Queue.Give] are Release in two steps that are inlined. When End is false
// nothing has happened, and Release is the way.
func (l *Lease) End(gen uint64) (held int64, ok bool) {
	held = l.held.Load()
	return held, held&long == 0 && gen&1 == 1 && l.gen.CompareAndSwap(gen, after(gen))
}

// after is the generation that follows a held one.
func after(gen uint64) uint64 { return gen + 2 - gen>>sharedAt&1 }

// Give gives back what End returned, to the queue that the record served before End.
func (q *Queue) Give(held int64) {
	if s := q.state.Add(held >> backAt); s < 0 {
		q.released(s, held, 0)
	}
}

// releaseLong is Release for a lease that is timed, has changed or is changing, and for
// one of which the state does not say all.
func (l *Lease) releaseLong(gen uint64) bool {
	if gen&1 == 0 {
		return false
	}
	locked := gen&shared != 0 || !l.gen.CompareAndSwap(gen, after(gen))
	if locked && !l.lock(gen) {
		return false
	}
	q, held, start, booked := l.q.Load(), l.held.Load(), l.start, l.booked
	if start != 0 {
		start = l.owes(q, gen)
	}
	l.booked = nil
	if locked {
		l.gen.Store(after(gen))
	}
	if held&beside != 0 {
		q.unbook(booked)
	} else if s := q.give(held); s < 0 || start != 0 {
		q.released(s, held, start)
	}
	return true
}

// owes counts those that lease gen, which is timed, stands for besides itself: all that
// the record, or the count of its class, has had since the timed one before. It returns
// when the lease was granted.
func (l *Lease) owes(q *Queue, gen uint64) (start int64) {
	n := int64(0)
	switch start = l.start; {
	case gen&shared != 0:
		_, n = untimed(l.base.Load(), l.Count())
	case start < 0:
		start, n = -start, sampleMask
	}
	if n > 0 && q.track {
		q.owed.Add(int32(n))
	}
	return start
}

// giveBack releases a grant that its caller never saw.
func (l *Lease) giveBack() {
	l.q.Load().returned.Add(1)
	l.Release(l.Gen())
}

// Grow adds n to what generation gen holds if there is room now. It reports
// false when there is none, and true when gen is no longer held. A lease that
// Book queued does not grow, and neither does one of a queue of units.
func (l *Lease) Grow(gen uint64, n int64) bool {
	if !l.lock(gen) {
		return true
	}
	ok := true
	if held := l.held.Load(); held&(ofUnits|beside) == 0 {
		if ok = l.q.Load().grow(n); ok {
			l.held.Store(held + n<<(countBits+backAt))
		}
	}
	l.gen.Store(gen | changed)
	return ok
}

// Shrink gives back n of what generation gen holds, at most all of it.
func (l *Lease) Shrink(gen uint64, n int64) {
	if !l.lock(gen) {
		return
	}
	q, held, by := l.q.Load(), l.held.Load(), int64(0)
	if held&(ofUnits|beside) == 0 {
		by = min(n, charge(held))
		l.held.Store(held - by<<(countBits+backAt))
	}
	l.gen.Store(gen | changed)
	if by > 0 {
		q.shrink(by)
	}
}

// lock takes the record for a change of generation gen, if that is held. It waits
// out another change, which lasts no longer than one turn at the queue's lock. A store
// of the generation, with changed or moved on, unlocks it: once there has been a change,
// End is false, and so nobody goes by what the lease held before it.
func (l *Lease) lock(gen uint64) bool {
	for {
		now := l.gen.Load()
		if now&^(changing|changed) != gen || gen&1 == 0 {
			return false
		}
		if now&changing != 0 {
			runtime.Gosched()
		} else if l.gen.CompareAndSwap(now, gen|changing) {
			return true
		}
	}
}
