package station

import (
	"container/heap"
	"math"
	"math/bits"
	"time"
)

// event is what happens at a virtual time: the end of a job's service, or, with
// reached set, the amount of work that somebody waits for.
type event struct {
	at      time.Duration
	order   uint64 // among equals, the order in which they were scheduled
	job     *Job
	reached chan struct{}
	index   int // in the heap, -1 outside
}

// events is a heap by virtual time.
type events struct {
	heap  []*event
	count uint64
}

func (e *events) Len() int { return len(e.heap) }

func (e *events) Less(i, j int) bool {
	a, b := e.heap[i], e.heap[j]
	return a.at < b.at || a.at == b.at && a.order < b.order
}

func (e *events) Swap(i, j int) {
	e.heap[i], e.heap[j] = e.heap[j], e.heap[i]
	e.heap[i].index, e.heap[j].index = i, j
}

// Push is the heap's; see schedule.
func (e *events) Push(x any) {
	ev := x.(*event) //nolint:errcheck // only schedule pushes
	ev.index = len(e.heap)
	e.heap = append(e.heap, ev)
}

// Pop is the heap's.
func (e *events) Pop() any {
	last := len(e.heap) - 1
	ev := e.heap[last]
	e.heap[last] = nil
	e.heap = e.heap[:last]
	ev.index = -1
	return ev
}

func (e *events) schedule(ev *event) {
	e.count++
	ev.order = e.count
	heap.Push(e, ev)
}

// cancel removes ev; an event that happened or never was scheduled is no error.
func (e *events) cancel(ev *event) {
	if ev != nil && ev.index >= 0 {
		heap.Remove(e, ev.index)
	}
}

// tick is the timer's: something is due.
func (s *Station) tick() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isClosed() {
		return
	}
	s.advanceLocked()
	s.rearmLocked()
}

// advanceLocked books everything up to now, event by event, each at the moment it
// was due, since each changes the speed of what comes after it.
func (s *Station) advanceLocked() {
	now := time.Now()
	for s.events.Len() > 0 {
		next := s.events.heap[0]
		due := s.now.Add(s.untilLocked(next.at))
		if due.After(now) {
			break
		}
		s.passLocked(next.at - s.virtual)
		s.now = due
		heap.Pop(&s.events)
		s.happenLocked(next)
	}
	if !now.After(s.now) {
		return
	}
	s.passLocked(s.workIn(now.Sub(s.now)))
	s.now = now
}

// rearmLocked sets the timer to the next event; all is booked up to s.now.
func (s *Station) rearmLocked() {
	if s.events.Len() == 0 || s.isClosed() {
		s.timer.Stop()
		return
	}
	s.timer.Reset(s.untilLocked(s.events.heap[0].at))
}

// passLocked lets the jobs in service get work each, and the virtual time pass by it.
func (s *Station) passLocked(work time.Duration) {
	s.virtual += work
	s.stats.Work += work * time.Duration(s.serving)
	s.stats.Wasted += work * time.Duration(s.orphans)
}

// untilLocked returns the real time from s.now to the virtual time at, rounded up.
func (s *Station) untilLocked(at time.Duration) time.Duration {
	ahead := at - s.virtual
	if s.serving <= s.capacity {
		return ahead
	}
	return mulDiv(ahead, s.serving, s.capacity, s.capacity-1)
}

// workIn returns the work that each job in service gets in that much real time, rounded down.
func (s *Station) workIn(elapsed time.Duration) time.Duration {
	if s.serving <= s.capacity {
		return elapsed
	}
	return mulDiv(elapsed, s.capacity, s.serving, 0)
}

// mulDiv returns (d x mul + add) / div, or the longest duration where that is too much.
// None is negative, div is not 0.
func mulDiv(d time.Duration, mul, div, add int64) time.Duration {
	hi, lo := bits.Mul64(uint64(d), uint64(mul))
	lo, carry := bits.Add64(lo, uint64(add), 0)
	hi += carry
	if hi >= uint64(div) {
		return math.MaxInt64
	}
	quotient, _ := bits.Div64(hi, lo, uint64(div))
	return time.Duration(min(quotient, math.MaxInt64))
}
