package waitq

import (
	"cmp"
	"math"
	"slices"
	"time"
)

const (
	waitBounds = 12
	holdBounds = 14
)

// WaitBounds are the upper bounds of all buckets of a WaitTotal but the last, which
// has none.
func WaitBounds() [waitBounds]time.Duration {
	const ms, s = time.Millisecond, time.Second
	return [waitBounds]time.Duration{
		5 * ms, 25 * ms, 100 * ms, 500 * ms, 1 * s, 5 * s, 15 * s, 30 * s, 60 * s, 120 * s, 300 * s, 600 * s,
	}
}

// HoldBounds are the same for a HoldTotal.
func HoldBounds() [holdBounds]time.Duration {
	const ms, s = time.Millisecond, time.Second
	return [holdBounds]time.Duration{
		10 * ms, 50 * ms, 100 * ms, 250 * ms, 500 * ms, 1 * s, 2500 * ms, 5 * s, 10 * s, 30 * s, 60 * s, 120 * s, 300 * s, 600 * s,
	}
}

// WaitTotal is the waits of a class since New: one of each request that was granted
// or timed out, 0 for who did not wait.
type WaitTotal struct {
	Buckets [waitBounds + 1]int64 // waits above the bound before, up to this one: not summed up
	Sum     time.Duration
}

func (t *WaitTotal) add(d int64) {
	if d == 0 { // as most often
		t.Buckets[0]++
		return
	}
	bounds := WaitBounds()
	t.Buckets[bucketWithin(bounds[:], d)]++
	t.Sum += time.Duration(d)
}

// HoldTotal is how long leases were held, since New. See "Holds" in the package comment.
type HoldTotal struct {
	Buckets [holdBounds + 1]int64 // as those of a WaitTotal
	Sum     time.Duration
}

// add counts n leases that were held for d.
func (t *HoldTotal) add(d, n int64) {
	bounds := HoldBounds()
	t.Buckets[bucketWithin(bounds[:], d)] += n
	t.Sum += time.Duration(d * n)
}

// bucketWithin is the first bucket whose upper bound is not below d.
func bucketWithin(bounds []time.Duration, d int64) int {
	i := 0
	for i < len(bounds) && d > int64(bounds[i]) {
		i++
	}
	return i
}

// Waits is how long requests have been waiting, and how long leases were held.
type Waits struct {
	// P50 and P90 are percentiles of Count waits: of all who left the queue within
	// the last 5 minutes, granted or not, who were granted or timed out without
	// having stood in it (0), and who wait still, with the time they have waited so
	// far. They are interpolated between neighbors, so of {0, 30 s} they are 15 s and
	// 27 s. See "Waits" in the package comment for their errors.
	P50, P90 time.Duration
	Count    int64
	TimedOut int64 // requests that timed out within the last 5 minutes
	Totals
}

// Totals is what never starts again of the waits, by class, and of the hold times.
type Totals struct {
	Total [Classes]WaitTotal
	Holds HoldTotal
}

// Waits reads how long requests have been waiting and leases were held. Without Config.TrackWaits it is
// all zero. It holds the lock to copy some 10 KB at most.
func (q *Queue) Waits() Waits {
	var out Waits
	if !q.track {
		return out
	}
	s := make(sample, 0, 2*few)
	var sum waitCounts
	var a ages
	now := q.now()
	q.mu.Lock()
	q.rollLocked(now)
	if w := q.window; w != nil {
		s, out.TimedOut = w.appendTo(s)
		if w.sum != nil {
			sum = *w.sum
		}
		if q.waiting > few {
			a = *w.ages
		} else {
			for _, x := range q.all.all(inAll) {
				s = append(s, value{max(now-x.left, 0), 1})
			}
		}
	}
	out.Totals = q.totalsLocked()
	q.mu.Unlock()
	s = a.appendTo(sum.appendTo(s), now)
	s.sort()
	out.Count = s.count()
	out.P50, out.P90 = s.percentile(0.5), s.percentile(0.9)
	return out
}

// Totals is that part of Waits, without the work of the others.
func (q *Queue) Totals() Totals {
	if !q.track {
		return Totals{}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.totalsLocked()
}

func (q *Queue) totalsLocked() (t Totals) {
	n := q.stats.counters()
	if n.totals != nil {
		t.Total = *n.totals
	}
	if n.holds != nil {
		t.Holds = *n.holds
	}
	for i, n := range q.immediateLocked() {
		t.Total[i].Buckets[0] += n
	}
	return t
}

// Roll counts the grants that have not come to the lock since the last Roll, and
// lets go of what is older than 5 minutes. Whoever wants Waits calls it at least
// every 15 seconds while the queue is in use.
func (q *Queue) Roll() {
	if !q.track {
		return
	}
	now := q.now()
	q.mu.Lock()
	q.rollLocked(now)
	q.mu.Unlock()
}

// value stands for n waits that are all taken to be of the same length.
type value struct{ wait, n int64 }

// sample is values by wait.
type sample []value

func (s sample) sort() {
	slices.SortFunc(s, func(a, b value) int { return cmp.Compare(a.wait, b.wait) })
}

func (s sample) count() (n int64) {
	for _, v := range s {
		n += v.n
	}
	return n
}

// percentile interpolates linearly at p(n-1) between the waits in order.
func (s sample) percentile(p float64) time.Duration {
	n := s.count()
	if n == 0 {
		return 0
	}
	at := p * float64(n-1)
	i := int64(at)
	low := s.nth(i)
	high := s.nth(min(i+1, n-1))
	return time.Duration(float64(low) + (at-float64(i))*float64(high-low))
}

// nth is the wait with i others before it.
func (s sample) nth(i int64) int64 {
	for _, v := range s {
		if i -= v.n; i < 0 {
			return v.wait
		}
	}
	return 0
}

const (
	leastOctave  = 20 // of waits below 2^20 ns, about 1 ms, no more is known
	waitOctaves  = 28 // up to 2^48 ns, some 78 hours; longer ones count as that
	perOctave    = 8
	waitsCounted = 1 + waitOctaves*perOctave
)

// waitCounts counts waits above 0 in buckets, each 2^(1/8) as wide as the one
// before: the middle of a bucket is at most 2^(1/16), 4.5 percent, away from what is
// in it.
type waitCounts [waitsCounted]uint32

// waitBucket is the bucket of a wait above 0.
func waitBucket(d int64) int {
	if d < 1<<leastOctave {
		return 0
	}
	return min(1+int((math.Log2(float64(d))-leastOctave)*perOctave), waitsCounted-1)
}

// waitOf is the middle of a bucket.
func waitOf(bucket int) int64 {
	if bucket == 0 {
		return 1 << (leastOctave - 1)
	}
	return int64(math.Exp2(leastOctave + (float64(bucket)-0.5)/perOctave))
}

// appendTo appends a value for each bucket to a sample.
func (c *waitCounts) appendTo(s sample) sample {
	for i, n := range c {
		if n > 0 {
			s = append(s, value{waitOf(i), int64(n)})
		}
	}
	return s
}
