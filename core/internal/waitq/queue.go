package waitq

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Classes is the number of classes; 0 is the most urgent.
const Classes = 3

// MaxLimit bounds a queue's limit and every cost.
const MaxLimit = 1 << 34

// Unlimited is a class limit that never binds.
const Unlimited = 1<<63 - 1

// Config is what a queue is made of. Every field can be changed later.
type Config struct {
	// Limit is the capacity in units of cost, 1 to MaxLimit.
	Limit int64
	// ClassLimit is the most leases of a class that may be out at once. It
	// does not bind class 0, whose leases are not counted apart.
	ClassLimit [Classes]int64
	// Timeout is the longest wait, counted from arrival. 0 lets nobody wait.
	Timeout time.Duration
	// AgingStep is the wait that raises a waiter's rank by one class. 0 = none.
	AgingStep time.Duration
	// MaxWaiters bounds the number of waiters. 0 lets nobody wait.
	MaxWaiters int
	// MaxHeld bounds the sum of Request.Held over the waiters.
	MaxHeld int64
}

// Request is what a caller asks for.
type Request struct {
	Class  int    // 0 to Classes-1
	Weight int    // share of the flow, at least 1
	Flow   string // fairness key inside the class; one over 128 bytes is kept as its digest
	Cost   int64  // 0 to MaxLimit; 0 takes no room and never waits
	Held   int64  // what the waiter holds in memory while it waits
}

// Outcome is how a request for a lease ended.
type Outcome uint8

// The outcomes.
const (
	Granted   Outcome = iota // the lease is held
	Full                     // the queue is full
	TimedOut                 // waited as long as the queue allows
	Hopeless                 // the caller's deadline leaves no time to finish
	Displaced                // gave its place to someone else
	Shed                     // removed by Evict
	Closed                   // the queue is closed
	Canceled                 // the caller's context ended: its Err says how
	Queued                   // waits still: only Book says so
)

// Result is the outcome of an Acquire and how long it took in the queue. Waited
// is 0 for whoever never queued.
type Result struct {
	Outcome Outcome
	Waited  time.Duration
}

// Queue is a capacity and those who wait for it. Use New. All methods are safe
// for concurrent use.
type Queue struct {
	// The hot line: what an acquire and a release without a queue touch.
	state     atomic.Int64
	grants    [Classes]atomic.Int64 // grants that did not queue
	classCap  [Classes]atomic.Int64
	classHeld [Classes]atomic.Int64 // leases out, by class; class 0 is not counted
	returned  atomic.Int64          // grants that cancellation overtook

	// Immutable after New.
	epoch   time.Time
	shut    atomic.Bool   // the queue is closed
	drained chan struct{} // closed when the queue is closed and no lease is out
	waiters sync.Pool     // of *waiter

	mu       sync.Mutex
	limit    int64
	timeout  int64
	step     int64
	maxWait  int
	maxHeld  int64
	biased   bool
	lenient  bool // AdmitAll: nobody waits
	closed   bool
	finished bool // drained is closed
	armed    bool // the timer fires at firesAt
	firesAt  int64
	timer    *time.Timer
	classes  [Classes]class
	debt     [Classes - 1]int64
	waiting  int
	booked   int   // leases that Book queued and nobody has released
	held     int64 // sum of Held over the waiters
	queued   int64 // sum of cost over the waiters
	seq      uint64
	oldest   *waiter // all waiters, by arrival
	newest   *waiter
	woken    *waiter // granted or refused, to be woken after the lock
	stats    stats
}

// New returns a queue. It panics on a Config out of its ranges: policies check
// what users give before it comes here.
func New(c Config) *Queue {
	q := &Queue{epoch: time.Now(), drained: make(chan struct{})}
	q.check(c)
	q.limit = c.Limit
	q.state.Store(c.Limit << countBits)
	q.configureLocked(c)
	return q
}

func (q *Queue) check(c Config) {
	switch {
	case c.Limit < 1 || c.Limit > MaxLimit:
		panic("waitq: Limit out of range")
	case c.Timeout < 0 || c.AgingStep < 0 || c.MaxWaiters < 0 || c.MaxHeld < 0:
		panic("waitq: negative bound")
	}
}

func (q *Queue) configureLocked(c Config) {
	q.timeout, q.step = bounded(c.Timeout), bounded(c.AgingStep)
	q.maxWait, q.maxHeld = c.MaxWaiters, c.MaxHeld
	for i := range q.classCap {
		q.classCap[i].Store(c.ClassLimit[i])
	}
}

// bounded keeps sums of times below the largest one: a century is for ever.
func bounded(d time.Duration) int64 { return int64(min(d, 100*365*24*time.Hour)) }

// now is the queue's clock: nanoseconds since New, monotonic, at least 1.
func (q *Queue) now() int64 { return int64(time.Since(q.epoch)) + 1 }

// Acquire fills l with a lease, waiting for it if it must, or reports why not.
// Only when the outcome is Granted is l held, and must be released. A context
// that is done is Canceled even where there is room, and a grant that it
// overtakes goes back. l must be free: new or released.
func (q *Queue) Acquire(ctx context.Context, l *Lease, r Request) Result {
	if ctx.Err() != nil {
		return Result{Outcome: Canceled}
	}
	if q.TryAcquire(l, r.Class, r.Cost) {
		return Result{}
	}
	return q.Wait(ctx, l, &r)
}

// Wait is Acquire for a caller whom Take or TryAcquire has just refused and whose
// context was not done before that. The cost must be above 0.
func (q *Queue) Wait(ctx context.Context, l *Lease, r *Request) Result {
	w := l.spare
	if w == nil {
		w = q.getWaiter(*r)
		l.spare = w
	} else {
		w.is(r)
	}
	w.deadline = q.deadlineOf(ctx)
	flow := flowKey(r.Flow)
	now := q.now()
	q.mu.Lock()
	q.enterLocked(w, flow, now)
	wakes := q.takeWokenLocked()
	q.mu.Unlock()
	wakes.wake()

	if done := ctx.Done(); done == nil {
		<-w.ready
	} else {
		select {
		case <-w.ready:
		case <-done:
			q.leave(w)
			<-w.ready // its result is in; a grant that came first goes back below
		}
	}
	return q.settle(ctx, l, w)
}

// settle turns a waiter whose token has been taken into a result.
func (q *Queue) settle(ctx context.Context, l *Lease, w *waiter) Result {
	// Clocks are read before the lock, so w may have left before it came.
	res := Result{Outcome: w.outcome, Waited: time.Duration(max(w.left-w.arrival, 0))}
	if w.outcome == Granted {
		l.hold(q, int(w.class), w.charge, w.left)
		l.waited.Store(int64(res.Waited))
		if ctx.Err() != nil {
			res.Outcome = Canceled
			l.giveBack()
		}
	}
	return res
}

// leave takes w out of the queue when its context has ended. If it has its
// outcome already, nothing happens.
func (q *Queue) leave(w *waiter) {
	now := q.now()
	q.mu.Lock()
	if w.queued {
		q.removeLocked(w, Canceled, now)
		q.settleLocked(now)
	}
	wakes := q.takeWokenLocked()
	q.mu.Unlock()
	wakes.wake()
}

func (q *Queue) deadlineOf(ctx context.Context) int64 {
	d, ok := ctx.Deadline()
	if !ok {
		return never
	}
	in := int64(d.Sub(q.epoch)) // the largest duration if it is further away
	return in + min(1, never-in)
}

// enterLocked gives w its outcome or its place in the queue.
func (q *Queue) enterLocked(w *waiter, flow string, now int64) {
	if q.newest != nil && now < q.newest.arrival {
		now = q.newest.arrival // clocks are read before the lock: keep the order
	}
	w.arrival = now
	switch {
	case q.closed:
		q.finishLocked(w, Closed, now)
		return
	case w.hopeless(now, q.stats.typical(int(w.class))):
		q.finishLocked(w, Hopeless, now)
		return
	}
	q.biasLocked()
	if q.expireLocked(now) { // the expired make way before the newcomer is judged
		q.dispatchLocked(now)
	}
	switch {
	case q.lenient && !w.booked:
		q.admitLocked(w, now)
	case q.waiting == 0 && q.fitsLocked(w) && q.takeClass(int(w.class)):
		q.startLocked(w, now)
	case q.timeout == 0:
		q.finishLocked(w, TimedOut, now)
	case q.startsAtOnceLocked(w, flow, now): // that takes no place
	case !q.makePlaceLocked(w, flow, now):
		q.finishLocked(w, Full, now)
	default:
		q.insertLocked(w, flow)
		q.dispatchLocked(now)
		q.armLocked(now)
	}
	q.unbiasLocked()
}

// settleLocked is what follows every change but an arrival: whoever may start is
// started, and the fast path opens when nobody is left.
func (q *Queue) settleLocked(now int64) {
	q.expireLocked(now)
	q.dispatchLocked(now)
	q.unbiasLocked()
	q.finishIfDrainedLocked()
}

// dispatchLocked grants everyone whom the rules let in. See "Order" and "Room"
// in the package comment.
func (q *Queue) dispatchLocked(now int64) {
	for q.waiting > 0 && q.freeLocked() > 0 {
		turn, top := q.turnLocked(now)
		if turn < 0 {
			return // all who wait are of classes at their limits
		}
		c := &q.classes[turn]
		if turn == top {
			c.kept = 0
		}
		h := c.head()
		if q.dropHopelessLocked(h, now) {
			continue
		}
		if q.fitsLocked(h) {
			q.grantLocked(h, now, true)
			continue
		}
		c.pin = h
		if turn > top && q.lapsedLocked(h, now) {
			continue
		}
		if h.passes >= maxPasses {
			return
		}
		p := q.passerLocked(h)
		if p == nil {
			return
		}
		if q.dropHopelessLocked(p, now) {
			continue
		}
		if q.grantLocked(p, now, false) {
			h.passes++
		}
	}
}

// grantLocked starts w, which fits, and takes it from the queue. It is false
// when its class has just reached its limit.
func (q *Queue) grantLocked(w *waiter, now int64, inOrder bool) bool {
	if !q.takeClass(int(w.class)) {
		return false
	}
	q.shareLocked(w, inOrder)
	q.unlinkLocked(w, true, inOrder)
	q.startLocked(w, now)
	return true
}

// startLocked charges w, which is in no list and counted in its class, and hands
// it its grant.
func (q *Queue) startLocked(w *waiter, now int64) {
	w.charge = min(w.cost, q.limit)
	q.state.Add(1 - w.charge<<countBits)
	q.finishLocked(w, Granted, now)
}

// removeLocked takes w from the queue with the given outcome.
func (q *Queue) removeLocked(w *waiter, o Outcome, now int64) {
	q.unlinkLocked(w, false, false)
	q.finishLocked(w, o, now)
}

// finishLocked gives w, which is in no list, its outcome and puts it on the list
// of those to wake.
func (q *Queue) finishLocked(w *waiter, o Outcome, now int64) {
	w.outcome, w.left = o, now
	w.bnext, q.woken = q.woken, w
	q.stats.ended(w)
}

func (q *Queue) dropHopelessLocked(w *waiter, now int64) bool {
	if !w.hopeless(now, q.stats.typical(int(w.class))) {
		return false
	}
	q.removeLocked(w, Hopeless, now)
	return true
}

func (q *Queue) takeWokenLocked() wakeList {
	l := wakeList{q.woken}
	q.woken = nil
	return l
}
