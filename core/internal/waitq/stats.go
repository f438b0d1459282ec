package waitq

import (
	"math/bits"
	"time"
)

const (
	// holdSamples is how many hold times must be known before one is typical.
	holdSamples = 16
	// holdWindow is the number of samples after which old ones count half.
	holdWindow = 512
	// drainWindow is the period over which the drain rate is measured.
	drainWindow = int64(5 * time.Second)
)

// stats counts what happens in the queue. Queue.mu guards it.
type stats struct {
	counts *counters // nil until somebody comes to the lock, and after Trim
	packed string    // what Trim made of them
	pace   *pace     // nil until something is known, and after Trim
}

// counters are what never starts again.
type counters struct {
	outcomes [Classes][Queued]int64 // of those who came to the lock
	entered  [Classes]int64         // of those, who stood in the queue
	turned   [Classes]int64         // grants of shared records that serve others now
	totals   *[Classes]WaitTotal    // nil until there is one
	holds    *HoldTotal             // nil until there is one
}

// pace is how long leases are held and how fast they come back.
type pace struct {
	holds [Classes]*histogram
	typ   [Classes]int64
	drain meter
}

func (s *stats) ended(w *waiter) { s.counts.outcomes[w.class][w.outcome]++ }

// turned is counters.turned.
func (s *stats) turned() [Classes]int64 {
	if s.counts != nil {
		return s.counts.turned
	}
	return s.counters().turned
}

// typical is the median hold time of a class, 0 while it is not known.
func (s *stats) typical(class int) int64 {
	if s.pace == nil {
		return 0
	}
	return s.pace.typ[class]
}

// patient is the third quartile of the hold times that are known, 0 where there is
// none: half of those who come back after the median come back too soon.
func (s *stats) patient(class int) int64 {
	if !s.knows(class) {
		return 0
	}
	return s.pace.holds[class].quantile(3, 4)
}

func (s *stats) knows(class int) bool { return s.pace != nil && s.pace.holds[class] != nil }

func (s *stats) measured() *pace {
	if s.pace == nil {
		s.pace = new(pace)
	}
	return s.pace
}

func (s *stats) held(class int, d int64) {
	p := s.measured()
	h := p.holds[class]
	if h == nil {
		h = new(histogram)
		p.holds[class] = h
	}
	h.add(d)
	if h.n >= holdSamples && h.n%8 == 0 {
		p.typ[class] = h.quantile(1, 2)
	}
}

// heldLocked notes that a lease was held for d. It stands for those that are owed, too.
func (q *Queue) heldLocked(class int, d int64) {
	q.stats.held(class, d)
	if !q.track {
		return
	}
	n := int64(1)
	if q.owed.Load() != 0 {
		n += int64(q.owed.Swap(0))
	}
	c := q.stats.use()
	if c.holds == nil {
		c.holds = new(HoldTotal)
	}
	c.holds.add(max(d, 0), n)
}

// histogram counts durations in half octaves: a quantile is at most 1/3 low.
type histogram struct {
	n      uint32
	counts [128]uint32
}

func (h *histogram) add(d int64) {
	h.counts[bucketOf(max(d, 1))]++
	if h.n++; h.n >= holdWindow {
		h.n = 0
		for i := range h.counts {
			h.counts[i] /= 2
			h.n += h.counts[i]
		}
	}
}

// quantile is the lower edge of the bucket that holds the quantile a/b.
func (h *histogram) quantile(a, b uint64) int64 {
	var sum uint64
	for i, n := range h.counts {
		if sum += uint64(n); sum*b >= uint64(h.n)*a && sum > 0 {
			return edgeOf(i)
		}
	}
	return 0
}

func bucketOf(d int64) int {
	k := bits.Len64(uint64(d)) - 1
	if k == 0 {
		return 0
	}
	return 2*k + int(d>>(k-1)&1)
}

func edgeOf(i int) int64 { return (2 + int64(i&1)) << (i / 2) >> 1 }

// meter measures a rate over the present window and the one before.
type meter struct {
	start      int64 // of the present window; 0 = nothing measured yet
	prev, now  int64
	prevLength int64
}

func (m *meter) add(v, at int64) {
	m.roll(at)
	m.now += v
}

func (m *meter) roll(at int64) {
	switch d := at - m.start; {
	case m.start == 0 || d >= 2*drainWindow:
		*m = meter{start: at}
	case d >= drainWindow:
		*m = meter{start: at, prev: m.now, prevLength: d}
	}
}

// rate is in units per nanosecond, 0 while nothing was measured for a second.
func (m *meter) rate(at int64) float64 {
	if m.start == 0 || at-m.start >= 2*drainWindow || at-m.start+m.prevLength < int64(time.Second) {
		return 0
	}
	return float64(m.prev+m.now) / float64(at-m.start+m.prevLength)
}

// drained notes that cost has come back while the queue was slow.
func (s *stats) drained(cost, now int64) { s.measured().drain.add(cost, now) }

// drainRate is the rate at which cost comes back, 0 while it is not known.
func (s *stats) drainRate(now int64) float64 {
	if s.pace == nil {
		return 0
	}
	return s.pace.drain.rate(now)
}

// forgetDrain ends the measuring: it is of a queue, and there is none any more.
func (s *stats) forgetDrain() {
	if s.pace != nil {
		s.pace.drain = meter{}
	}
}
