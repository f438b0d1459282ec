package waitq

import "encoding/binary"

// Trim gives back all memory that a queue can do without while nobody waits: what
// is known of recent waits and of hold times, its lists, and its timer. Counters
// and totals stay. It may be called at any time; while somebody waits it does nothing.
func (q *Queue) Trim() {
	now := q.now()
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.waiting > 0 {
		return
	}
	q.rollLocked(now)
	q.window = nil
	for i := range q.classes {
		q.classes[i] = class{} // without flows, where virtual time begins is nothing to anybody
	}
	q.stats.pack()
	q.stats.pace = nil
	if q.until == 0 && q.timer != nil {
		q.timer.Stop()
		q.timer, q.armed = nil, false
	}
}

// pack keeps the counters in as few bytes as they take.
func (s *stats) pack() {
	if s.counts == nil {
		return
	}
	var b []byte
	s.counts.each(func(n *int64) { b = binary.AppendUvarint(b, uint64(*n)) })
	s.packed, s.counts = string(b), nil
}

// unpack makes the counters, which are nil, fit for use.
func (s *stats) unpack() {
	c := s.counters()
	s.counts, s.packed = &c, ""
}

// counters reads the counters, in whatever form they are.
func (s *stats) counters() counters {
	var c counters
	if s.counts != nil {
		return *s.counts
	}
	if s.packed == "" {
		return c
	}
	b := []byte(s.packed)
	c.each(func(n *int64) {
		v, size := binary.Uvarint(b)
		*n, b = int64(v), b[size:]
	})
	return c
}

// each calls f for every counter, always in the same order. The totals come last;
// where there are none before, f makes them: 1 says that there are.
func (c *counters) each(f func(n *int64)) {
	for i := range Classes {
		for o := range c.outcomes[i] {
			f(&c.outcomes[i][o])
		}
		f(&c.entered[i])
	}
	there := int64(0)
	if c.totals != nil {
		there = 1
	}
	if f(&there); there == 0 {
		return
	}
	if c.totals == nil {
		c.totals = new([Classes]WaitTotal)
	}
	for i := range c.totals {
		for b := range c.totals[i].Buckets {
			f(&c.totals[i].Buckets[b])
		}
		f((*int64)(&c.totals[i].Sum))
	}
}
