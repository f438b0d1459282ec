package waitq

import "runtime"

const (
	// maxPasses is how many grants may pass a head that does not fit.
	maxPasses = 2
	// keepSteps is for how many aging steps the head of an aged turn may keep higher
	// classes waiting for its room.
	keepSteps = 2
	// sampleMask picks, of the grants that did not queue, the first 64 and then one
	// in 64 for timing.
	sampleMask = 63

	never = 1<<63 - 1
)

// TryAcquire fills l and returns true if there is room and nobody waits. It
// never waits and takes no lock. A cost of 0 takes no room, so it cannot be in
// anyone's way: it is refused only by a closed queue.
func (q *Queue) TryAcquire(l *Lease, class int, cost int64) bool {
	if q.units {
		held := packUnit(class)
		if !q.tryUnit(class, held) {
			return false
		}
		l.holdNow(q, held, q.grants[class].Add(1))
		return true
	}
	if cost == 0 {
		class = 0 // it takes nothing that a class limit could bound
	}
	// The look ahead keeps rare the adds that fail, and so hide room from others.
	if q.state.Load() < cost<<countBits {
		return cost == 0 && q.tryNothing(l)
	}
	if class > 0 && !q.eligible(class) {
		return false // nor may one that fails for its class hide them
	}
	if q.state.Add(1-cost<<countBits) < 0 {
		q.undo(cost<<countBits - 1)
		return cost == 0 && q.tryNothing(l)
	}
	if class > 0 && !q.takeLower(class) {
		q.undo(cost<<countBits - 1)
		return false
	}
	l.holdNow(q, packCost(class, cost), q.grants[class].Add(1))
	return true
}

func (q *Queue) tryUnit(class int, held int64) bool {
	s := q.state.Load()
	if s < unit || class > 0 && !q.withinUnits(class, s+place(class, unitBits)) {
		return false
	}
	if s = q.state.Add(-(held >> backAt)); s < 0 || class > 0 && !q.withinUnits(class, s) {
		q.undo(held >> backAt)
		return false
	}
	return true
}

// holdNow is hold for the nth grant of its class that did not queue.
func (l *Lease) holdNow(q *Queue, held, n int64) uint64 {
	start := int64(0)
	switch {
	case n <= sampleMask+1:
		start = q.now()
	case n&sampleMask == 0:
		start = -q.now()
	}
	return l.hold(q, held, start, 0)
}

// undo takes back a failed add, which may have hidden room from a dispatch.
func (q *Queue) undo(delta int64) {
	if q.state.Add(delta) < 0 {
		q.redispatch(q.now())
	}
}

// tryNothing admits a cost of 0 while the queue is slow.
func (q *Queue) tryNothing(l *Lease) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	q.take(q.pack(0, 0))
	q.grants[0].Add(1)
	l.hold(q, q.pack(0, 0), 0, 0)
	return true
}

// released does what follows the release of a lease that left the state s, where
// somebody may wait or the lease was timed from start, 0 = it was not.
func (q *Queue) released(s int64, held, start int64) {
	if s >= 0 {
		if q.mu.TryLock() { // a sample is not worth a wait
			q.heldLocked(classOf(held), q.now()-start)
			q.mu.Unlock()
		} else {
			q.owed.Add(1)
		}
		return
	}
	now := q.now()
	q.mu.Lock()
	q.releasedLocked(held, start, now)
	wakes := q.takeWokenLocked()
	q.mu.Unlock()
	wakes.wake()
}

func (q *Queue) releasedLocked(held, start, now int64) {
	if start > 0 {
		q.heldLocked(classOf(held), now-start)
	}
	if q.waiting > 0 {
		q.stats.drained(charge(held), now)
	}
	q.settleLocked(now)
}

// redispatch dispatches for a change that is in the state already.
func (q *Queue) redispatch(now int64) {
	q.mu.Lock()
	q.settleLocked(now)
	wakes := q.takeWokenLocked()
	q.mu.Unlock()
	wakes.wake()
}

// growTries is how often grow looks for room.
const growTries = 4

// grow takes n more for a lease that is out: free room, whoever waits for it. An acquire
// that is failing hides room for some instructions; so where there seems to be none, it
// lets others run and looks again.
func (q *Queue) grow(n int64) bool {
	if n > MaxLimit { // more could not be added to the state
		return false
	}
	if q.state.Load() >= n<<countBits {
		if q.state.Add(-(n << countBits)) >= 0 {
			return true
		}
		q.undo(n << countBits)
	}
	for range growTries {
		if q.growSlow(n) {
			return true
		}
		runtime.Gosched()
	}
	return false
}

func (q *Queue) growSlow(n int64) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.freeLocked() < n {
		return false
	}
	if q.state.Add(-(n<<countBits)) < 0 && !q.biased { // an acquire was faster
		q.state.Add(n << countBits)
		return false
	}
	return true
}

// shrink gives back n of a lease that stays out.
func (q *Queue) shrink(n int64) {
	if q.state.Add(n<<countBits) < 0 {
		q.redispatch(q.now())
	}
}

func (q *Queue) fitsLocked(w *waiter) bool { return q.freeLocked() >= min(w.cost, q.limit) }

// biasLocked turns the fast path off.
func (q *Queue) biasLocked() {
	if !q.biased {
		q.biased = true
		q.lookLocked(isSlow, true)
		q.state.Add(-q.bias() << q.shift())
	}
}

// unbiasLocked forgets the queue when nobody waits, and turns the fast path on
// again unless a pause forbids it.
func (q *Queue) unbiasLocked() {
	if q.waiting > 0 || !q.biased || q.closed {
		return
	}
	q.debt = [Classes - 1]int64{}
	q.stats.forgetDrain()
	if q.until == 0 {
		q.biased = false
		q.lookLocked(isSlow, false)
		if q.units {
			q.lookLocked(isTight, !q.eligible(1) || !q.eligible(2))
		}
		q.state.Add(q.bias() << q.shift())
	}
}
