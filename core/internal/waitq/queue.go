package waitq

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Queue is a capacity and those who wait for it. Use New. All methods are safe
// for concurrent use.
type Queue struct {
	// The hot line: what an acquire and a release without a queue touch.
	state    atomic.Int64
	grants   [Classes]atomic.Int64     // grants that did not queue
	lower    atomic.Int64              // leases of classes 1 and 2; not in a queue of units
	classCap [Classes - 1]atomic.Int64 // bounds those of each
	lowerCap atomic.Int64              // bounds those of both together
	look     atomic.Uint32             // isSlow, isBounded

	// Immutable after New.
	units bool // the layout of the state
	track bool // TrackWaits
	owner Owner
	epoch time.Time

	returned atomic.Int64 // grants that cancellation overtook

	waits   atomic.Bool  // waiting is not 0
	owed    atomic.Int32 // leases that came back untimed, and that the next timed one stands for
	waiters sync.Pool    // of *waiter

	mu       sync.Mutex
	limit    int64
	over     int64 // what was in use beyond the limit when that was set
	reserve  int64 // as configured
	until    int64 // end of the pause, 0 = none
	since    int64 // since when somebody has been waiting
	timeout  int64
	step     int64
	maxWait  int
	maxHeld  int64
	flowWait int
	flowCost int64
	biased   bool
	lenient  bool // AdmitAll: nobody waits
	closed   bool
	finished bool // closed, and no lease is out
	armed    bool // the timer fires at firesAt
	keeps    bool // some class may have kept set
	firesAt  int64
	drained  chan struct{} // closed when finished; nil until somebody asks
	timer    *time.Timer
	classes  [Classes]class
	debt     [Classes - 1]int64
	waiting  int
	booked   int32 // leases that Book queued and nobody has released
	nothing  int32 // leases that hold nothing and that the state does not count
	held     int64 // sum of Held over the waiters
	queued   int64 // sum of cost over the waiters
	seq      uint64
	all      list    // all waiters
	woken    *waiter // granted or refused, to be woken after the lock
	stats    stats
	window   *window // nil until there is a wait, after Trim, and without TrackWaits
	seen     int64   // of the grants that did not queue, those that the window has
}

// New returns a queue. It panics on a Config out of its ranges: policies check
// what users give before it comes here.
func New(c Config) *Queue {
	q := &Queue{epoch: time.Now(), owner: c.Owner, track: c.TrackWaits, units: c.Units}
	q.check(c)
	q.configureLocked(c)
	q.setLimitLocked(c.Limit)
	return q
}

// Owner is Config.Owner.
func (q *Queue) Owner() Owner { return q.owner }

// now is the queue's clock: nanoseconds since New, monotonic, at least 1.
func (q *Queue) now() int64 { return int64(time.Since(q.epoch)) + 1 }

// Acquire fills l with a lease, waiting for it if it must, or reports why not.
// Only when the outcome is Granted is l held, and must be released. A context
// that is done is Canceled even where there is room, and a grant that it
// overtakes goes back. l must be free: new or released.
func (q *Queue) Acquire(ctx context.Context, l *Lease, r Request) Result {
	return q.acquire(ctx, l, &r) // inlined, so that r is not copied
}

func (q *Queue) acquire(ctx context.Context, l *Lease, r *Request) Result {
	if ctx.Err() != nil {
		return Result{Outcome: Canceled}
	}
	if q.TryAcquire(l, r.Class, r.Cost) {
		return Result{}
	}
	return q.Wait(ctx, l, r)
}

// Wait is Acquire for a caller whom TryAcquire or the like has just refused and whose
// context was not done before that. The cost must be above 0.
func (q *Queue) Wait(ctx context.Context, l *Lease, r *Request) Result {
	w := l.spare
	if w == nil {
		w = q.getWaiter(*r)
		l.spare = w
	} else {
		q.fill(w, r)
	}
	w.deadline = q.deadlineOf(ctx)
	flow := flowKey(r.Flow)
	now := q.now()
	q.mu.Lock()
	q.enterLocked(w, flow, now)
	waits := w.outcome == Queued
	wakes := q.takeWokenLocked()
	q.mu.Unlock()
	wakes.wake()
	if waits && q.owner != nil {
		q.owner.Entered()
	}

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
	switch w.outcome {
	case TimedOut, Displaced:
		res.Position = int(w.charge)
	case Granted:
		start, done := w.left, ctx.Err() != nil
		if done {
			start = 0 // no work is done: no hold time
		}
		if q.units && w.charge == 0 {
			l.holdNothing(q, int(w.class), nil, int64(res.Waited))
		} else {
			l.hold(q, q.pack(int(w.class), w.charge), start, int64(res.Waited))
		}
		if done {
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
	if w.outcome == Queued {
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
	if last := q.all.last; last != nil && now < last.arrival {
		now = last.arrival // clocks are read before the lock: keep the order
	}
	w.arrival, w.left = min(w.arrival, now), now
	q.stats.use()
	switch {
	case q.closed:
		q.finishLocked(w, Closed, now)
		return
	case w.hopeless(now, q.stats.typical(int(w.class))):
		q.finishLocked(w, Hopeless, now)
		return
	}
	q.biasLocked()
	thawed := q.thawLocked(now)
	if q.expireLocked(now) || thawed { // the expired make way before the newcomer is judged
		q.dispatchLocked(now)
	}
	over, place := now-w.arrival >= q.timeout, q.hasPlaceLocked(w, flow, nil)
	switch {
	case q.lenient && !w.booked:
		q.admitLocked(w, now)
	case q.waiting == 0 && q.until == 0 && q.fitsLocked(w) && q.takeClass(int(w.class)):
		q.startLocked(w, now)
	case (over || !place) && q.startsAtOnceLocked(w, flow, now): // that takes no place
	case over:
		w.charge = q.newcomersPositionLocked(w, flow)
		q.finishLocked(w, TimedOut, now)
	case !place && !q.makePlaceLocked(w, flow, now):
		q.finishLocked(w, q.fullLocked(w, flow), now)
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
	q.thawLocked(now)
	q.expireLocked(now)
	q.dispatchLocked(now)
	q.unbiasLocked()
	q.finishIfDrainedLocked()
}

// dispatchLocked grants everyone whom the rules let in. See "Order" and "Room"
// in the package comment.
func (q *Queue) dispatchLocked(now int64) {
	for q.waiting > 0 && q.until == 0 && q.freeLocked() > 0 {
		if q.keeps {
			q.keepLocked()
		}
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
	if w.class > 0 {
		creditors := uint8(0)
		if inOrder && q.step > 0 {
			creditors = q.creditorsLocked(int(w.class)) // before w's lease can shut one out
		}
		if !q.takeClass(int(w.class)) {
			return false
		}
		q.chargeTurnLocked(w, creditors)
	}
	if int(w.class) < len(q.debt) && q.debt[w.class] > 0 {
		q.debt[w.class] = max(0, q.debt[w.class]-min(w.cost, q.limit))
	}
	q.unlinkLocked(w, true, inOrder)
	q.startLocked(w, now)
	return true
}

// startLocked charges w, which is in no list and has passed takeClass, and hands it
// its grant.
func (q *Queue) startLocked(w *waiter, now int64) {
	w.charge = min(w.cost, q.limit)
	q.take(q.pack(int(w.class), w.charge))
	q.finishLocked(w, Granted, now)
}

// removeLocked takes w from the queue with the given outcome.
func (q *Queue) removeLocked(w *waiter, o Outcome, now int64) {
	q.unlinkLocked(w, false, false)
	q.finishLocked(w, o, now)
}

// removeInPlaceLocked is removeLocked for an outcome that tells the position.
func (q *Queue) removeInPlaceLocked(w *waiter, o Outcome, now int64) {
	w.charge = q.positionLocked(w)
	q.removeLocked(w, o, now)
}

// finishLocked gives w, which is in no list, its outcome and puts it on the list
// of those to wake.
func (q *Queue) finishLocked(w *waiter, o Outcome, now int64) {
	if q.track {
		q.leftLocked(int(w.class), o, w.outcome == Queued, max(now-w.left, 0), now)
	}
	w.outcome, w.arrival, w.left = o, w.left, now
	w.links[woken].next, q.woken = q.woken, w
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
