package waitq

const (
	countBits = 22
	bias      = 1 << 40
	countMask = 1<<countBits - 1

	// maxPasses is how many grants may pass a head that does not fit.
	maxPasses = 2
	// keepSteps is for how many aging steps the head of an aged turn may keep higher
	// classes waiting for its room.
	keepSteps = 2
	// sampleMask picks, of the grants that did not queue, the first 63 and then one
	// in 64 for timing.
	sampleMask = 63

	never = 1<<63 - 1
)

// TryAcquire fills l and returns true if there is room and nobody waits. It
// never waits and takes no lock. A cost of 0 takes no room, so it cannot be in
// anyone's way: it is refused only by a closed queue.
func (q *Queue) TryAcquire(l *Lease, class int, cost int64) bool {
	if cost == 0 {
		class = 0 // it takes nothing that a class limit could bound
	}
	// The look ahead keeps rare the adds that fail, and so hide room from others.
	if q.state.Load() < cost<<countBits {
		return cost == 0 && q.tryNothing(l)
	}
	if q.state.Add(1-cost<<countBits) < 0 {
		q.undo(cost<<countBits - 1)
		return cost == 0 && q.tryNothing(l)
	}
	if class > 0 && !q.within(q.lower.Add(place(class)), class) { // takeClass, for speed
		q.leaveClass(class)
		q.undo(cost<<countBits - 1)
		return false
	}
	var start int64
	if n := q.grants[class].Add(1); n&sampleMask == 0 || n <= sampleMask {
		start = q.now()
	}
	l.hold(q, class, cost, start)
	return true
}

// Take is TryAcquire in class 0 for a lease that [Lease.Hold] fills afterwards.
// When it is false nothing was taken, and Acquire is the way. It does not count
// the grant, which the caller must: a counter that all processors share costs as
// much as the acquire itself.
func (q *Queue) Take(cost int64) bool {
	if q.state.Load() < cost<<countBits {
		return false
	}
	if q.state.Add(1-cost<<countBits) < 0 {
		q.undo(cost<<countBits - 1)
		return false
	}
	return true
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
	q.state.Add(1)
	q.grants[0].Add(1)
	l.hold(q, 0, 0, 0)
	return true
}

// released does what follows a release that left the state s, where somebody may
// wait or the lease was timed.
func (q *Queue) released(s int64, class int, charge, start int64) {
	if s >= 0 {
		if q.mu.TryLock() { // a sample is not worth a wait
			q.stats.held(class, q.now()-start)
			q.mu.Unlock()
		}
		return
	}
	now := q.now()
	q.mu.Lock()
	q.releasedLocked(class, charge, start, now)
	wakes := q.takeWokenLocked()
	q.mu.Unlock()
	wakes.wake()
}

func (q *Queue) releasedLocked(class int, charge, start, now int64) {
	if start > 0 {
		q.stats.held(class, now-start)
	}
	if q.waiting > 0 {
		q.stats.drained(charge, now)
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

// grow takes n more for a lease that is out: free room, whoever waits for it.
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

// freeLocked is the room left; it is negative after a shrink of the limit below
// what is in use, and may read low for a moment while an acquire fails.
func (q *Queue) freeLocked() int64 {
	free := q.state.Load() >> countBits
	if q.biased {
		free += bias
	}
	return free
}

func (q *Queue) fitsLocked(w *waiter) bool { return q.freeLocked() >= min(w.cost, q.limit) }

// biasLocked turns the fast path off.
func (q *Queue) biasLocked() {
	if !q.biased {
		q.biased = true
		q.state.Add(-bias << countBits)
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
		q.state.Add(bias << countBits)
	}
}
