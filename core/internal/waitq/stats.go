package waitq

import (
	"math"
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
	outcomes [Classes][Canceled + 1]int64 // of those who came to the lock
	entered  [Classes]int64               // of those, who stood in the queue
	holds    [Classes]*histogram
	typ      [Classes]int64
	drain    meter
}

func (s *stats) ended(w *waiter) { s.outcomes[w.class][w.outcome]++ }

// typical is the median hold time of a class, 0 while it is not known.
func (s *stats) typical(class int) int64 { return s.typ[class] }

// patient is the third quartile of the hold times that are known, 0 where there is
// none: half of those who come back after the median come back too soon.
func (s *stats) patient(class int) int64 {
	if h := s.holds[class]; h != nil {
		return h.quantile(3, 4)
	}
	return 0
}

func (s *stats) held(class int, d int64) {
	h := s.holds[class]
	if h == nil {
		h = new(histogram)
		s.holds[class] = h
	}
	h.add(d)
	if h.n >= holdSamples && h.n%8 == 0 {
		s.typ[class] = h.quantile(1, 2)
	}
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
func (s *stats) drained(cost, now int64) { s.drain.add(cost, now) }

// Retry bounds, in seconds; see RetryAfter.
const (
	retryLeast = 1
	retryMost  = 40
)

// RetryAfter is how long a newcomer of this cost should stay away: the time that
// what waits and the newcomer itself take to drain, at the rate at which cost has
// come back since the queue formed, over the last 5 to 10 seconds at most; before
// that has been measured for a second, or where nothing came back, by Little's law
// from the third quartile of the holds, or from the age of the oldest waiter if that is longer.
// It is between 1 and 40 s and, at the same rate, never shorter for more load.
func (q *Queue) RetryAfter(class int, cost int64) time.Duration {
	now := q.now()
	q.mu.Lock()
	ahead := float64(q.queued + cost)
	rate := q.stats.drain.rate(now)
	hold := float64(q.stats.patient(class))
	if q.oldest != nil {
		hold = max(hold, float64(now-q.oldest.arrival))
	}
	limit := float64(q.limit)
	q.mu.Unlock()
	est := hold * (1 + ahead/limit)
	if rate > 0 {
		est = max(ahead/rate, hold)
	}
	return time.Duration(math.Ceil(min(max(est/1e9, retryLeast), retryMost))) * time.Second
}

// KnowsHold reports whether any hold time of the class is known.
func (q *Queue) KnowsHold(class int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.stats.holds[class] != nil
}

// Snapshot is the state of a queue at one moment.
type Snapshot struct {
	Limit       int64
	InUse       int64 // cost that leases hold
	Leases      int64
	ClassLeases [Classes]int64 // leases out, by class
	Waiting     [Classes]int   // waiters, by class
	Queued      int64          // cost of the waiters
	Held        int64          // what waiters hold in memory
	OldestWait  time.Duration
	TypicalHold [Classes]time.Duration // median; 0 = not known yet

	// Counters since New. Immediate are grants that never came to the lock;
	// Outcomes are those of all others. Returned of the granted went back at once, since their
	// callers had left.
	Immediate [Classes]int64
	Entered   [Classes]int64 // requests that stood in the queue
	Outcomes  [Classes][Canceled + 1]int64
	Returned  int64
}

// Snapshot reads the queue's state. It holds the lock for some dozen loads.
func (q *Queue) Snapshot() Snapshot {
	var s Snapshot
	now := q.now()
	q.mu.Lock()
	defer q.mu.Unlock()
	s.Limit = q.limit
	s.Leases = q.state.Load() & countMask
	s.InUse = max(0, q.limit-q.freeLocked())
	s.Queued, s.Held = q.queued, q.held
	s.ClassLeases[0] = s.Leases
	for i := range Classes {
		if i > 0 {
			s.ClassLeases[i] = q.classHeld[i].Load()
			s.ClassLeases[0] -= s.ClassLeases[i]
		}
		s.Waiting[i] = q.classes[i].n
		s.TypicalHold[i] = time.Duration(q.stats.typical(i))
		s.Immediate[i] = q.grants[i].Load()
	}
	s.ClassLeases[0] = max(0, s.ClassLeases[0])
	if q.oldest != nil {
		s.OldestWait = time.Duration(max(now-q.oldest.arrival, 0))
	}
	s.Outcomes, s.Entered, s.Returned = q.stats.outcomes, q.stats.entered, q.returned.Load()
	return s
}
