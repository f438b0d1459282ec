package waitq

// A record that many share is claimed by whoever has been granted a lease without
// queueing: its generation becomes odd, if it was even. The release that makes it even
// again is at once the end of the lease and the way back of the record. So whoever
// releases reads what it needs before that, or locks the record first.
//
// In a queue of units such a grant is counted by the record's generation alone: a
// counter of the queue would be one more word that all processors change. So a record
// is turned to one queue and class, and serves no other until it is turned to that. Then
// its count goes to the queue that it leaves, under that queue's lock, under which the
// count is read too: no grant is left out or counted twice.

// turnMask makes that of the grants that found their record turned to others the first
// and then one in 16 turns it to them.
const turnMask = 15

// Share makes a new record one that many share.
func (l *Lease) Share() { l.gen.Store(shared) }

// Count is how many leases a shared record has had.
func (l *Lease) Count() int64 { return int64((l.gen.Load()&^(changing|changed|shared) + 1) / 2) }

// free reports whether a shared record of that generation can be claimed.
func free(gen uint64) bool { return gen&(changing|1) == 0 }

// TryShared is TryAcquire with a cost in class 0, not for a queue of units, for a
// shared record. If there is room but the record is out, the cost is taken and gen is
// 0: then the caller fills a record of its own by Hold. It does not count the grant,
// which the caller can by the Count of its records.
func (q *Queue) TryShared(l *Lease, cost int64) (gen uint64, taken bool) {
	if q.state.Load() < cost<<countBits {
		return 0, false
	}
	if q.state.Add(1-cost<<countBits) < 0 {
		q.undo(cost<<countBits - 1)
		return 0, false
	}
	gen = l.gen.Load()
	if !free(gen) || !l.gen.CompareAndSwap(gen, gen+1) {
		return 0, true
	}
	gen++
	held := (cost<<countBits - 1) << backAt
	if gen&(sampleMask<<1) != 0 && l.q.Load() == q && l.held.Load() == held {
		return gen, true // as most often
	}
	l.refill(q, held, gen)
	return gen, true
}

// refill fills a shared record that has been claimed and is of that generation now. The
// first 16 of its leases since it has turned, and then one in 64, are timed.
func (l *Lease) refill(q *Queue, held int64, gen uint64) {
	l.start = 0
	if gen&(sampleMask<<1) == 0 || l.Count()-l.base.Load() <= holdSamples {
		l.start = q.now()
		held |= long
	}
	l.set(q, held)
}

// Hold fills l, which is the caller's own, with the cost that TryShared has taken from
// q, and returns the generation.
func (l *Lease) Hold(q *Queue, class int, cost int64) uint64 {
	start := int64(0)
	if n := l.gen.Load() / 2; n&sampleMask == 0 || n < holdSamples {
		start = q.now()
	}
	return l.hold(q, q.pack(class, cost), start, 0)
}

// TryUnit is TryAcquire for a queue of units and one of its owner's shared records. If
// there is room but the record is out or turned to others, the unit is taken and gen is
// 0: then the caller fills a record of its own by HoldUnit.
func (q *Queue) TryUnit(l *Lease, class int) (gen uint64, taken bool) {
	// This is tryUnit, in place for speed. It does not look ahead at the state, which
	// others may be changing just now, but at what seldom changes.
	look := q.look.Load()
	if look&isSlow != 0 {
		return 0, false
	}
	held := packUnit(class)
	if class > 0 && look&isTight != 0 && !q.eligible(class) {
		return 0, false // an add that fails for its class would hide a free unit from others
	}
	s := q.state.Add(-(held >> backAt))
	if s < 0 {
		q.undo(held >> backAt)
		return 0, false
	}
	// Looked at after the add: a bound that was set before it is seen.
	if class > 0 && q.look.Load()&isBounded != 0 {
		if one, two := counts(s, unitBits); !q.within(class, one, two) {
			q.undo(held >> backAt)
			return 0, false
		}
	}
	// A record that is claimed at the generation before which it was looked at has not
	// turned since.
	gen = l.gen.Load()
	if free(gen) && gen&(sampleMask<<1) != 0 && l.q.Load() == q && l.held.Load() == held && l.gen.CompareAndSwap(gen, gen+1) {
		return gen + 1, true // as most often
	}
	if !free(gen) || l.q.Load() != q || l.held.Load()&^long != held || !l.gen.CompareAndSwap(gen, gen+1) {
		return 0, true
	}
	l.refill(q, held, gen+1)
	return gen + 1, true
}

// HoldUnit fills l, which is the caller's own, with the unit that TryUnit has taken from
// q though it could not fill the record ready. It returns the generation, and counts the
// grant.
func (l *Lease) HoldUnit(q *Queue, class int, ready *Lease) uint64 {
	n := q.grants[class].Add(1)
	if n&turnMask == 1 {
		ready.turn(q, packUnit(class))
	}
	return l.holdNow(q, packUnit(class), n)
}

// turn turns a shared record, if it is not out, to q and the class of held. Its
// generation moves on, by one lease that there was not.
func (l *Lease) turn(q *Queue, held int64) {
	gen := l.gen.Load()
	if !free(gen) || !l.gen.CompareAndSwap(gen, gen|changing) {
		return
	}
	n := l.Count()
	if old := l.q.Load(); old != nil {
		old.mu.Lock()
		defer old.mu.Unlock()
		old.stats.use().turned[classOf(l.held.Load())] += n - l.base.Load()
		if after, _ := untimed(l.base.Load(), n); after > 0 && old.track {
			old.owed.Add(int32(after))
		}
	}
	l.base.Store(n + 1)
	l.set(q, held|long) // long, so that the first lease is looked at
	l.gen.Store(gen + 2)
}

// untimed is how many leases a shared record has had since the last one that was timed,
// by its base and Count: after the last of them if that is not timed, before it if it is;
// see refill.
func untimed(base, count int64) (after, before int64) {
	n := count - base
	last := (count-1)&^sampleMask + 1 - base // the last of one in 64
	if last <= holdSamples {
		last = min(n, holdSamples)
	}
	if last == n {
		return 0, min(max(n-holdSamples-1, 0), sampleMask)
	}
	return n - last, 0
}

// immediateLocked is how many grants did not queue.
func (q *Queue) immediateLocked() (n [Classes]int64) {
	turned := q.stats.turned()
	for i := range n {
		n[i] = q.grants[i].Load() + turned[i]
	}
	if q.owner != nil {
		for l := range q.owner.Shared {
			if l.q.Load() == q {
				n[l.Class()] += max(0, l.Count()-l.base.Load()) // -1 while it turns to q
			}
		}
	}
	return n
}
