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
		q.nothing++
	}
	wakes := q.takeWokenLocked()
	q.mu.Unlock()
	wakes.wake()
	if outcome == Queued {
		l.holdNothing(q, r.Class, w, 0)
		if q.owner != nil {
			q.owner.Entered()
		}
		return Queued
	}
	<-w.ready
	if outcome == Granted {
		l.hold(q, q.pack(r.Class, w.charge), w.left, 0)
	} else {
		l.holdNothing(q, r.Class, nil, 0)
	}
	q.putWaiter(w)
	return outcome
}

// unbook ends a lease that the state knows nothing of. w is the entry of one that
// Book queued, nil for one that holds nothing.
func (q *Queue) unbook(w *waiter) {
	now := q.now()
	q.mu.Lock()
	if w == nil {
		q.nothing--
		q.settleLocked(now)
		wakes := q.takeWokenLocked()
		q.mu.Unlock()
		wakes.wake()
		return
	}
	q.booked--
	switch {
	case w.outcome == Queued:
		q.removeLocked(w, Canceled, now)
		q.settleLocked(now)
	case w.outcome == Granted:
		held := q.pack(int(w.class), w.charge)
		q.give(held)
		q.releasedLocked(held, w.left, now)
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

// admitLocked starts w, which is in no list, whether or not it fits. The state word
// holds so much: in a queue of units, beyond MaxUnits leases one is counted beside it;
// in others, beyond 2^39 over the limit a lease takes nothing.
func (q *Queue) admitLocked(w *waiter, now int64) {
	switch {
	case q.units && q.leasesIn(q.state.Load()) >= MaxUnits:
		q.nothing++
		w.charge = 0
		q.finishLocked(w, Granted, now)
		return
	case !q.units && q.freeLocked() < -1<<39:
		w.cost = 0
	}
	if w.class > 0 && !q.units {
		q.lower.Add(place(int(w.class), lowerBits))
	}
	q.startLocked(w, now)
}
