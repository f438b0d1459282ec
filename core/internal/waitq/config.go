package waitq

import "time"

// Classes is the number of classes; 0 is the most urgent.
const Classes = 3

// MaxLimit bounds a queue's limit and every cost; see MaxUnits too.
const MaxLimit = 1 << 34

// Unlimited is a class limit that never binds.
const Unlimited = 1<<63 - 1

// Config is what a queue is made of. Every field but Units, TrackWaits and Owner
// can be changed later.
type Config struct {
	// Units makes a queue of units: every cost is 1, whatever a request says. It
	// counts its leases by class with the very add that takes their room.
	Units bool
	// Limit is the capacity in units of cost, 1 to MaxLimit, or MaxUnits in a queue
	// of units.
	Limit int64
	// ClassLimit is the most leases of a class that may be out at once. It
	// does not bind class 0, whose leases are not counted apart.
	ClassLimit [Classes]int64
	// Reserve is the part of Limit that class 0 has for itself: leases of the
	// other classes together number at most Limit - min(Reserve, Limit-1). It is
	// leases that are counted, not their cost. 0, and what is left of a reserve at
	// a limit of 1, bounds nothing.
	Reserve int64
	// Timeout is the longest wait, counted from arrival, which for a ticket is
	// Request.Arrived. 0 lets nobody wait.
	Timeout time.Duration
	// AgingStep is the wait that raises a waiter's rank by one class. 0 = none.
	AgingStep time.Duration
	// MaxWaiters bounds the number of waiters. 0 lets nobody wait.
	MaxWaiters int
	// MaxHeld bounds the sum of Request.Held over the waiters.
	MaxHeld int64
	// FlowWaiters and FlowQueued bound the number and the cost of the waiters of one
	// flow, in all classes together. 0 = no bound beside those of the queue.
	FlowWaiters int
	FlowQueued  int64
	// TrackWaits makes the queue keep what Waits tells. Without it that costs nothing.
	TrackWaits bool
	// Owner is whose queue it is. nil = nobody's.
	Owner Owner
}

// Owner is who has a queue.
type Owner interface {
	// Entered is called after a request has entered the queue to wait, once for each
	// and before its caller blocks; and when what Book has entered may have left it in
	// its own time, which no caller sees. It must not block, panic, or count on being
	// told in order.
	Entered()
	// Shared yields the records that TryUnit is called with; they may serve many
	// queues. It is called under the queue's lock.
	Shared(yield func(*Lease) bool)
}

// Request is what a caller asks for.
type Request struct {
	Class  int    // 0 to Classes-1
	Weight int    // share of the flow, at least 1
	Flow   string // fairness key inside the class; one over 128 bytes is kept as its digest
	Cost   int64  // 0 to MaxLimit; 0 takes no room and never waits
	Held   int64  // what the waiter holds in memory while it waits
	// Arrived is when the call first came, for one that comes again: it has the
	// place and the age of that moment. Zero, or in the future, is now.
	Arrived time.Time
}

// Outcome is how a request for a lease ended.
type Outcome uint8

// The outcomes.
const (
	Granted   Outcome = iota // the lease is held
	Full                     // the queue is full
	FlowFull                 // the flow has as many waiters, or as much cost, as it may have
	TimedOut                 // waited as long as the queue allows
	Hopeless                 // the caller's deadline leaves no time to finish
	Displaced                // gave its place to someone else
	Shed                     // removed by Queue.Shed
	Closed                   // the queue is closed
	Canceled                 // the caller's context ended: its Err says how
	Queued                   // waits still: only Book says so
)

// Result is the outcome of an Acquire.
type Result struct {
	Outcome Outcome
	Waited  time.Duration // in the queue, this time; 0 for whoever never queued
	// Position is the place in the order, from 1 on, that a request had when it
	// timed out or was displaced; see "Leaving" in the package comment. 0 for others.
	Position int
}

func (q *Queue) check(c Config) {
	switch {
	case c.Limit < 1 || c.Limit > MaxLimit || q.units && c.Limit > MaxUnits:
		panic("waitq: Limit out of range")
	case c.Timeout < 0 || c.AgingStep < 0 || c.MaxWaiters < 0 || c.MaxHeld < 0 || c.Reserve < 0 ||
		c.FlowWaiters < 0 || c.FlowQueued < 0:
		panic("waitq: negative bound")
	}
}

func (q *Queue) configureLocked(c Config) {
	q.timeout, q.step = bounded(c.Timeout), bounded(c.AgingStep)
	q.setWidthLocked()
	q.maxWait, q.maxHeld, q.reserve = c.MaxWaiters, c.MaxHeld, c.Reserve
	q.flowWait, q.flowCost = c.FlowWaiters, c.FlowQueued
	for i := range q.classCap {
		q.classCap[i].Store(c.ClassLimit[i+1]) // setLimitLocked follows
	}
}

// century is for ever. No time and no duration in a queue is longer, which keeps
// their sums below the largest one.
const century = 100 * 365 * 24 * int64(time.Hour)

func bounded(d time.Duration) int64 { return min(int64(d), century) }
