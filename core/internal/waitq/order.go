package waitq

// turnLocked is the class whose head is the head of the order, and the highest
// class that waits; both are -1 if every class that waits is at its limit.
func (q *Queue) turnLocked(now int64) (turn, top int) {
	top = -1
	for c := range Classes {
		if q.standsLocked(c) {
			top = c
			break
		}
	}
	if top < 0 || q.step == 0 {
		return top, top
	}
	for c := Classes - 1; c > top; c-- {
		if q.standsLocked(c) && q.agedLocked(c, top, now) && q.owesNothingLocked(top, c) {
			return c, top
		}
	}
	return top, top
}

// lapsedLocked reports whether h, the head of an aged turn that does not fit, has
// kept the higher classes waiting for as long as it may. Then its turn is spent as
// if it had been granted.
func (q *Queue) lapsedLocked(h *waiter, now int64) bool {
	c := &q.classes[h.class]
	if c.kept == 0 {
		c.kept = now
		q.armLocked(now)
	}
	if now-c.kept < keepSteps*q.step {
		return false
	}
	c.kept = 0
	q.chargeTurnLocked(h)
	return true
}

// chargeTurnLocked lets h's class owe for a turn to the classes above that wait.
func (q *Queue) chargeTurnLocked(h *waiter) {
	for b := range int(h.class) {
		if q.standsLocked(b) {
			q.debt[b] += 3 * min(h.cost, q.limit)
		}
	}
}

// standsLocked reports whether class c has waiters that may be granted.
func (q *Queue) standsLocked(c int) bool { return q.classes[c].n > 0 && q.belowClassLimit(c) }

func (q *Queue) agedLocked(c, to int, now int64) bool {
	return q.agedBy(q.classes[c].oldest(MaxLimit), c-to, now)
}

func (q *Queue) agedBy(w *waiter, ranks int, now int64) bool {
	return q.step > 0 && now-w.arrival >= int64(ranks)*q.step
}

func (q *Queue) owesNothingLocked(top, c int) bool {
	for b := top; b < c; b++ {
		if q.debt[b] > 0 && q.standsLocked(b) {
			return false
		}
	}
	return true
}

// shareLocked keeps the debts for a grant to w, which still stands in the queue.
func (q *Queue) shareLocked(w *waiter, inOrder bool) {
	if inOrder && q.step > 0 {
		q.chargeTurnLocked(w)
	}
	if int(w.class) < len(q.debt) {
		q.debt[w.class] = max(0, q.debt[w.class]-min(w.cost, q.limit))
	}
}

// passerLocked is the waiter that may pass h, the head of the order, which does
// not fit. nil when there is none.
func (q *Queue) passerLocked(h *waiter) *waiter {
	room := q.freeLocked()
	if room <= 0 {
		return nil
	}
	for i := range Classes {
		if !q.standsLocked(i) {
			continue
		}
		c := &q.classes[i]
		w := c.head()
		if w == h {
			w = c.heap.first().first
		}
		if w != h && min(w.cost, q.limit) <= room {
			return w
		}
		if w := c.oldest(room); w != nil {
			return w
		}
	}
	return nil
}

// insertLocked puts w into every list.
func (q *Queue) insertLocked(w *waiter, flow string) {
	q.seq++
	w.seq, w.queued = q.seq, true
	q.classes[w.class].add(w, flow)
	w.aprev = q.newest
	if q.newest == nil {
		q.oldest = w
	} else {
		q.newest.anext = w
	}
	q.newest = w
	q.waiting++
	q.stats.entered[w.class]++
	q.queued += w.cost
	q.held += w.held
}

// unlinkLocked takes w out of every list.
func (q *Queue) unlinkLocked(w *waiter, granted, inOrder bool) {
	q.classes[w.class].remove(w, granted, inOrder)
	if w.aprev == nil {
		q.oldest = w.anext
	} else {
		w.aprev.anext = w.anext
	}
	if w.anext == nil {
		q.newest = w.aprev
	} else {
		w.anext.aprev = w.aprev
	}
	w.aprev, w.anext, w.queued = nil, nil, false
	q.waiting--
	q.queued -= w.cost
	q.held -= w.held
	if c := &q.classes[w.class]; c.byQueue != nil && q.waiting <= q.maxWait/2 {
		c.byQueue = nil
	}
}

// makePlaceLocked makes sure that w may stand in the queue, displacing one other
// waiter if that is what it takes and the rules allow it.
func (q *Queue) makePlaceLocked(w *waiter, flow string, now int64) bool {
	if q.hasPlaceLocked(w, nil) {
		return true
	}
	v := q.victimLocked(w, flow, now)
	if v == nil || !q.hasPlaceLocked(w, v) {
		return false
	}
	q.removeLocked(v, Displaced, now)
	return true
}

// hasPlaceLocked reports whether w may stand in the queue, without v in it.
func (q *Queue) hasPlaceLocked(w, v *waiter) bool {
	waiting, held := q.waiting, q.held
	if v != nil {
		waiting, held = waiting-1, held-v.held
	}
	return waiting < q.maxWait && w.held <= q.maxHeld-held
}

// startsAtOnceLocked grants w, a newcomer to a full queue, if the rules let it
// start before all who wait, or past a head that does not fit: then it takes
// nobody's place. It stands in the queue for the time of one dispatch.
func (q *Queue) startsAtOnceLocked(w *waiter, flow string, now int64) bool {
	if q.hasPlaceLocked(w, nil) || !q.fitsLocked(w) || !q.belowClassLimit(int(w.class)) {
		return false
	}
	weight := w.weight
	if f := q.classes[w.class].find(flow); f != nil {
		w.weight = uint16(f.weight) // its flow's, until it has its own place
	}
	q.insertLocked(w, flow)
	q.dispatchLocked(now)
	if !w.queued {
		return true
	}
	q.unlinkLocked(w, false, false)
	q.stats.entered[w.class]--
	w.weight = weight
	return false
}

// victimLocked is the waiter that gives way to w, nil if none does.
func (q *Queue) victimLocked(w *waiter, flow string, now int64) *waiter {
	for i := Classes - 1; i > int(w.class); i-- {
		if v := q.classes[i].newest(); v != nil && !q.agedBy(v, i-int(w.class), now) {
			return v
		}
	}
	mine := w.cost
	if own := q.classes[w.class].find(flow); own != nil {
		mine += own.queued
	}
	// All that wait below are aged to w's rank, and so compete with it.
	for i := int(w.class); i < Classes; i++ {
		f := q.classes[i].longest()
		if f != nil && f.name != flow && more(f.queued, f.weight, mine, int64(w.weight)) > 0 {
			return f.last
		}
	}
	return nil
}
