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

// keepLocked forgets what a class that may not be granted keeps others from: it
// keeps them from nothing.
func (q *Queue) keepLocked() {
	q.keeps = false
	for i := range q.classes {
		switch c := &q.classes[i]; {
		case c.kept == 0:
		case q.standsLocked(i):
			q.keeps = true
		default:
			c.kept = 0
		}
	}
}

// lapsedLocked reports whether h, the head of an aged turn that does not fit, has
// kept the higher classes waiting for as long as it may. Then its turn is spent as
// if it had been granted.
func (q *Queue) lapsedLocked(h *waiter, now int64) bool {
	c := &q.classes[h.class]
	if c.kept == 0 {
		c.kept, q.keeps = now, true
		q.armLocked(now)
	}
	if now-c.kept < keepSteps*q.step {
		return false
	}
	c.kept = 0
	q.chargeTurnLocked(h, q.creditorsLocked(int(h.class)))
	return true
}

// creditorsLocked is the set of the classes above c that wait: those that a turn of
// c is owed to.
func (q *Queue) creditorsLocked(c int) (set uint8) {
	for b := range c {
		if q.standsLocked(b) {
			set |= 1 << b
		}
	}
	return set
}

// chargeTurnLocked lets h's class owe for a turn.
func (q *Queue) chargeTurnLocked(h *waiter, creditors uint8) {
	for b := range int(h.class) {
		if creditors>>b&1 == 1 {
			q.debt[b] += 3 * min(h.cost, q.limit)
		}
	}
}

// standsLocked reports whether class c has waiters that may be granted.
func (q *Queue) standsLocked(c int) bool {
	return q.classes[c].n > 0 && (c == 0 || q.eligible(c))
}

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
			w = c.heap.first().head
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
	w.seq, w.outcome = q.seq, Queued
	w.late = q.all.last != nil && w.arrival < q.all.last.arrival
	if q.waiting == 0 {
		q.since = w.left
		q.waits.Store(true)
	}
	q.classes[w.class].add(w, flow)
	if w.late {
		q.all.pushLate(w, inAll)
	} else {
		q.all.push(w, inAll)
	}
	q.waiting++
	q.stats.counts.entered[w.class]++
	q.queued += w.cost
	q.held += w.held
	if q.track {
		q.agesLocked(w.left).enter(w.left)
	}
}

// unlinkLocked takes w out of every list.
func (q *Queue) unlinkLocked(w *waiter, granted, inOrder bool) {
	q.classes[w.class].remove(w, granted, inOrder)
	if w.late {
		q.all.removeLate(w, inAll)
	} else {
		q.all.remove(w, inAll)
	}
	if q.waiting--; q.waiting == 0 {
		q.waits.Store(false)
	}
	q.queued -= w.cost
	q.held -= w.held
	if q.track {
		q.window.ages.leave(w.left)
	}
	if c := &q.classes[w.class]; c.byQueue != nil && q.waiting <= q.maxWait/2 {
		c.byQueue = nil
	}
}

// makePlaceLocked makes sure that w may stand in the queue, displacing one other
// waiter if that is what it takes and the rules allow it.
func (q *Queue) makePlaceLocked(w *waiter, flow string, now int64) bool {
	if q.hasPlaceLocked(w, flow, nil) {
		return true
	}
	v := q.victimLocked(w, flow, now)
	if v == nil || !q.hasPlaceLocked(w, flow, v) {
		return false
	}
	q.removeInPlaceLocked(v, Displaced, now)
	return true
}

// hasPlaceLocked reports whether w may stand in the queue, without v in it.
func (q *Queue) hasPlaceLocked(w *waiter, flow string, v *waiter) bool {
	waiting, held := q.waiting, q.held
	if v != nil {
		waiting, held = waiting-1, held-v.held
	}
	return waiting < q.maxWait && w.held <= q.maxHeld-held && q.flowHasPlaceLocked(w, flow, v)
}

// flowHasPlaceLocked reports whether w may stand in its flow, without v in it.
func (q *Queue) flowHasPlaceLocked(w *waiter, flow string, v *waiter) bool {
	if q.flowWait == 0 && q.flowCost == 0 {
		return true
	}
	waiting, queued := 0, int64(0)
	for i := range q.classes {
		if f := q.classes[i].find(flow); f != nil {
			waiting, queued = waiting+f.n, queued+f.queued
		}
	}
	if v != nil && v.flow.name == flow {
		waiting, queued = waiting-1, queued-v.cost
	}
	return (q.flowWait == 0 || waiting < q.flowWait) && (q.flowCost == 0 || w.cost <= q.flowCost-queued)
}

// fullLocked is the outcome of w, for which there is no place.
func (q *Queue) fullLocked(w *waiter, flow string) Outcome {
	if q.flowHasPlaceLocked(w, flow, nil) {
		return Full
	}
	return FlowFull
}

// startsAtOnceLocked grants w, a newcomer that may not wait, if the rules let it
// start before all who wait, or past a head that does not fit: then it takes
// nobody's place. It stands in the queue for the time of one dispatch.
func (q *Queue) startsAtOnceLocked(w *waiter, flow string, now int64) bool {
	if q.until != 0 || !q.fitsLocked(w) || !q.eligible(int(w.class)) {
		return false
	}
	c, weight := &q.classes[w.class], w.weight
	f := c.find(flow)
	var head *waiter
	var start, finish uint64
	if f != nil {
		head, start, finish = f.head, f.start, f.finish
		w.weight = uint16(f.weight) // its flow's, until it has its own place
	}
	q.insertLocked(w, flow)
	q.dispatchLocked(now)
	if w.outcome != Queued {
		return true
	}
	q.unlinkLocked(w, false, false)
	w.outcome = Granted // none yet
	if f != nil && f.head == head && f.start == start {
		f.finish = finish // w may have been its head
		c.heap.fix(f)
	}
	q.stats.counts.entered[w.class]--
	w.weight = weight
	return false
}

// victimLocked is the waiter that gives way to w, nil if none does.
func (q *Queue) victimLocked(w *waiter, flow string, now int64) *waiter {
	if !q.flowHasPlaceLocked(w, flow, nil) {
		return q.victimInFlowLocked(w, flow, now) // nobody else's place would help
	}
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
			return f.waiters.newest(inFlow)
		}
	}
	return nil
}

// victimInFlowLocked is the waiter of w's own flow that gives way to it.
func (q *Queue) victimInFlowLocked(w *waiter, flow string, now int64) *waiter {
	for i := Classes - 1; i > int(w.class); i-- {
		if f := q.classes[i].find(flow); f != nil {
			if v := f.waiters.newest(inFlow); !q.agedBy(v, i-int(w.class), now) {
				return v
			}
		}
	}
	return nil
}
