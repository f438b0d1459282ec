package waitq

import (
	"encoding/binary"
	"time"
)

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
	zeros := uint64(0)
	s.counts.each(func(n *int64) {
		if *n == 0 {
			zeros++
			return
		}
		b = appendZeros(b, zeros)
		b, zeros = binary.AppendUvarint(b, uint64(*n)), 0
	})
	s.packed, s.counts = string(appendZeros(b, zeros)), nil
}

// appendZeros appends so many zeros: one, and how many there are.
func appendZeros(b []byte, n uint64) []byte {
	if n == 0 {
		return b
	}
	return binary.AppendUvarint(append(b, 0), n)
}

// use makes the counters fit to be changed.
func (s *stats) use() *counters {
	if s.counts == nil {
		c := s.counters()
		s.counts, s.packed = &c, ""
	}
	return s.counts
}

// counters reads the counters, in whatever form they are.
func (s *stats) counters() counters {
	switch {
	case s.counts != nil:
		return *s.counts
	case s.packed == "":
		return counters{}
	}
	var c counters // it is on the heap
	b := []byte(s.packed)
	next := func() uint64 {
		v, size := binary.Uvarint(b)
		b = b[size:]
		return v
	}
	zeros := uint64(0)
	c.each(func(n *int64) {
		if *n = 0; zeros == 0 {
			if *n = int64(next()); *n == 0 {
				zeros = next()
			}
		}
		zeros -= min(zeros, 1)
	})
	return c
}

// each calls f for every counter, always in the same order. The totals come last, each
// after a number that says whether it is there: where it is not before, f makes it.
func (c *counters) each(f func(n *int64)) {
	for i := range Classes {
		for o := range c.outcomes[i] {
			f(&c.outcomes[i][o])
		}
		f(&c.entered[i])
		f(&c.turned[i])
	}
	if there(&c.totals, f) {
		for i := range c.totals {
			eachOf(c.totals[i].Buckets[:], &c.totals[i].Sum, f)
		}
	}
	if there(&c.holds, f) {
		eachOf(c.holds.Buckets[:], &c.holds.Sum, f)
	}
}

func eachOf(buckets []int64, sum *time.Duration, f func(n *int64)) {
	for i := range buckets {
		f(&buckets[i])
	}
	f((*int64)(sum))
}

// there calls f for whether *p is there, and makes it if f says that it is.
func there[T any](p **T, f func(n *int64)) bool {
	n := int64(0)
	if *p != nil {
		n = 1
	}
	if f(&n); n != 0 && *p == nil {
		*p = new(T)
	}
	return n != 0
}
