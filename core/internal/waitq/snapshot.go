package waitq

import (
	"math"
	"time"
)

// Retry bounds, in seconds; see RetryAfter.
const (
	retryLeast = 1
	retryMost  = 40
)

// RetryAfter is how long a newcomer of this cost should stay away: the time that
// what waits and the newcomer itself take to drain, at the rate at which cost has
// come back since the queue formed, over the last 5 to 10 seconds at most; before
// that has been measured for a second, or where nothing came back, by Little's law
// from the third quartile of the holds, or from the longest of the waits that go on if
// that is longer. It is between 1 and 40 s and, at the same rate, never shorter for more
// load; but in a pause never less than what remains of it.
func (q *Queue) RetryAfter(class int, cost int64) time.Duration {
	now := q.now()
	q.mu.Lock()
	ahead := float64(q.queued + cost)
	rate := q.stats.drainRate(now)
	hold := float64(q.stats.patient(class))
	if q.waiting > 0 {
		hold = max(hold, float64(now-q.longestLocked()))
	}
	limit := float64(q.limit)
	pause := time.Duration(max(q.until-now, 0))
	q.mu.Unlock()
	est := hold * (1 + ahead/limit)
	if rate > 0 {
		est = max(ahead/rate, hold)
	}
	after := time.Duration(math.Ceil(min(max(est/1e9, retryLeast), retryMost))) * time.Second
	return max(after, (pause + time.Second - 1).Truncate(time.Second))
}

// KnowsHold reports whether any hold time of the class is known.
func (q *Queue) KnowsHold(class int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.stats.knows(class)
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
	OldestWait  time.Duration  // of those who wait, without what a ticket waited before
	// WaitingSince is for how long somebody has been waiting without a break; 0 =
	// nobody waits.
	WaitingSince time.Duration
	Reserve      int64                  // in force
	Paused       time.Duration          // what remains of a pause
	TypicalHold  [Classes]time.Duration // median; 0 = not known yet

	// Counters since New. Immediate are grants that never came to the lock;
	// Outcomes are those of all others. Returned of the granted went back at once, since their
	// callers had left.
	Immediate [Classes]int64
	Entered   [Classes]int64 // requests that stood in the queue
	Outcomes  [Classes][Queued]int64
	Returned  int64
}

// FlowQueue is what waits of one flow, in all classes together.
type FlowQueue struct {
	Waiting int
	Queued  int64 // their cost
}

// Flows is what waits of each flow that has waiters, by the name that the queue keeps.
// It holds the lock for a step for each flow.
func (q *Queue) Flows() map[string]FlowQueue {
	q.mu.Lock()
	defer q.mu.Unlock()
	flows := make(map[string]FlowQueue)
	for i := range q.classes {
		if q.classes[i].n == 0 {
			continue
		}
		for name, f := range q.classes[i].flows {
			all := flows[name]
			flows[name] = FlowQueue{all.Waiting + f.n, all.Queued + f.queued}
		}
	}
	return flows
}

// Spare is the room that a newcomer may have now. That is none while anybody waits, in a
// pause, and when the queue is closed. It may be low while acquires fail.
func (q *Queue) Spare() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.waiting > 0 || q.until != 0 || q.closed {
		return 0
	}
	return max(0, q.freeLocked())
}

// longestLocked is when whoever has waited longest entered the queue: the first of the
// chain, in which all stand as they came, or a late ticket. When that was for a ticket
// is known to a slot of Waits where waits are tracked and many wait.
func (q *Queue) longestLocked() int64 {
	at := int64(never)
	if w := q.all.first; w != nil {
		at = w.left
	}
	if q.all.late == nil {
		return at
	}
	if q.track && q.waiting > few {
		return min(at, q.window.ages.oldest())
	}
	for _, w := range q.all.all(inAll) {
		at = min(at, w.left)
	}
	return at
}

// Snapshot reads the queue's state. It holds the lock for some dozen loads.
func (q *Queue) Snapshot() Snapshot {
	var s Snapshot
	now := q.now()
	q.mu.Lock()
	defer q.mu.Unlock()
	s.Limit = q.limit
	state := q.state.Load()
	s.InUse = q.inUseIn(state)
	s.Leases = q.leasesIn(state) + int64(q.nothing)
	if q.units {
		s.Leases = s.InUse + int64(q.nothing)
	}
	s.Queued, s.Held = q.queued, q.held
	one, two := q.lowerIn(state)
	s.ClassLeases = [Classes]int64{max(0, s.Leases-one-two), one, two}
	for i := range Classes {
		s.Waiting[i] = q.classes[i].n
		s.TypicalHold[i] = time.Duration(q.stats.typical(i))
	}
	s.Immediate = q.immediateLocked()
	if q.waiting > 0 {
		s.OldestWait = time.Duration(max(now-q.longestLocked(), 0))
		s.WaitingSince = time.Duration(max(now-q.since, 0))
	}
	s.Reserve = q.reservedLocked()
	s.Paused = time.Duration(max(q.until-now, 0))
	n := q.stats.counters()
	s.Outcomes, s.Entered, s.Returned = n.outcomes, n.entered, q.returned.Load()
	return s
}
