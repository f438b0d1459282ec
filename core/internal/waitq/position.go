package waitq

// sampledFlows is up to how many flows of a class Result.Position counts.
const sampledFlows = 128

// positionLocked is Result.Position of a waiter that is about to leave. It is the
// first or the last of its flow.
func (q *Queue) positionLocked(w *waiter) int64 {
	c, f := &q.classes[w.class], w.flow
	switch {
	case c.pin == w:
		return 1 + q.aboveLocked(w)
	case f.head == w:
		return c.place(f.key(), f, 0) + q.aboveLocked(w)
	}
	return c.place(f.key(), f, f.n-1) + q.aboveLocked(w)
}

// newcomersPositionLocked is that of a ticket whose time is over before it is in
// the queue. So it is older than whoever waits.
func (q *Queue) newcomersPositionLocked(w *waiter, flow string) int64 {
	c := &q.classes[w.class]
	if c.n == 0 {
		return 1 + q.aboveLocked(w)
	}
	start, weight := c.v, int64(w.weight)
	f := c.find(flow)
	if f != nil {
		start, weight = f.start, f.weight
	}
	return c.place(slot{finish: start + tag(w.cost, weight), age: ageKey(w.arrival), seq: q.seq + 1}, f, 0) + q.aboveLocked(w)
}

// aboveLocked is how many wait in classes above that of w.
func (q *Queue) aboveLocked(w *waiter) int64 {
	n := 0
	for i := range w.class {
		n += q.classes[i].n
	}
	return int64(n)
}

// place is the place in the class of a waiter of flow f, nil for a new one, that
// has the key and before which so many others of its flow go.
func (c *class) place(key slot, f *flow, ahead int) int64 {
	n := 1 + ahead + c.heap.countBefore(key)
	if f != nil && less(f.key(), key) {
		n-- // its own
	}
	if p := c.pin; p != nil && (p.flow == f && ahead == 0 || p.flow != f && !less(p.flow.key(), key)) {
		n++ // it goes first wherever its flow is
	}
	return int64(n)
}

// countBefore is how many flows have a smaller key; with more than sampledFlows,
// what that many spread over the heap make of it.
func (h *flowHeap) countBefore(key slot) int {
	step := len(h.slots)/sampledFlows | 1
	if len(h.slots) <= sampledFlows {
		step = 1
	}
	n := 0
	for i := 0; i < len(h.slots); i += step {
		if less(h.slots[i], key) {
			n++
		}
	}
	return n * step
}
