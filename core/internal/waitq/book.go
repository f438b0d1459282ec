package waitq

// Book enters r in the queue's books without making anyone wait: l is held at
// once, whatever the outcome, and must be released. It serves shadow modes, which
// only want to know. The outcome is that of the moment, or Queued for a request
// that would wait. A queued one stands in the queue like any other, is granted in
// its turn or refused in its time, and leaves with its release. A refused one
// holds nothing.
func (q *Queue) Book(l *Lease, r Request) Outcome {
	if q.TryAcquire(l, r.Class, r.Cost) {
		return Granted
	}
	w := q.getWaiter(r)
	w.deadline, w.booked = never, true
	flow := flowKey(r.Flow)
	now := q.now()
	q.mu.Lock()
	q.enterLocked(w, flow, now)
	outcome := w.outcome
	switch outcome {
	case Queued:
		q.booked++
	case Granted:
	default:
		q.state.Add(1) // a lease that holds nothing
	}
	wakes := q.takeWokenLocked()
	q.mu.Unlock()
	wakes.wake()
	if outcome == Queued {
		l.hold(q, r.Class, 0, 0)
		l.booked = w
		if q.notify != nil {
			q.notify()
		}
		return Queued
	}
	<-w.ready
	if outcome == Granted {
		l.hold(q, r.Class, w.charge, w.left)
	} else {
		l.hold(q, 0, 0, 0)
	}
	q.putWaiter(w)
	return outcome
}

// unbook ends the entry of a lease that Book queued.
func (q *Queue) unbook(w *waiter) {
	now := q.now()
	q.mu.Lock()
	q.booked--
	switch {
	case w.outcome == Queued:
		q.removeLocked(w, Canceled, now)
		q.settleLocked(now)
	case w.outcome == Granted:
		q.leaveClass(int(w.class))
		q.state.Add(w.charge<<countBits - 1)
		q.releasedLocked(int(w.class), w.charge, w.left, now)
	default:
		q.settleLocked(now)
	}
	wakes := q.takeWokenLocked()
	q.mu.Unlock()
	wakes.wake()
	<-w.ready
	q.putWaiter(w)
}

// AdmitAll grants everyone who waits, and every later Acquire, room or not, until
// Reconfigure: for a policy that stops enforcing. In use may then exceed the limit,
// as after a shrink. What Book enters is booked as before.
func (q *Queue) AdmitAll() {
	now := q.now()
	q.mu.Lock()
	q.lenient = !q.closed
	for _, w := range q.all.all(inAll) {
		if !w.booked {
			q.unlinkLocked(w, true, false)
			q.admitLocked(w, now)
		}
	}
	q.settleLocked(now)
	wakes := q.takeWokenLocked()
	q.mu.Unlock()
	wakes.wake()
}

// admitLocked starts w, which is in no list, whether or not it fits. Beyond 2^39
// over the limit a grant takes nothing, so that the state word holds.
func (q *Queue) admitLocked(w *waiter, now int64) {
	if w.class > 0 {
		q.lower.Add(place(int(w.class)))
	}
	if q.freeLocked() < -1<<39 {
		w.cost = 0
	}
	q.startLocked(w, now)
}
