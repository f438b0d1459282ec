package waitq

import (
	"context"
	"time"
)

// Waiting reports whether anybody waits. It may be a moment old, and takes no lock. It
// does not go by the state: the queue is slow, too, while somebody is refused.
func (q *Queue) Waiting() bool { return q.waits.Load() }

// InUse is the cost that leases hold. While acquires fail it may read high for a
// moment.
func (q *Queue) InUse() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.inUseIn(q.state.Load())
}

// Reconfigure changes everything in c at once. What grew is granted at once. A
// limit below what is in use revokes nothing: nothing is granted until use is
// below it. Waiters keep their arrival: a waiter's time is over at arrival + the
// new timeout. Waiters beyond new queue bounds stay. It ends AdmitAll, and panics as
// New does.
func (q *Queue) Reconfigure(c Config) {
	q.check(c)
	now := q.now()
	q.mu.Lock()
	q.biasLocked() // nobody takes room by half of a change
	q.configureLocked(c)
	q.setLimitLocked(c.Limit)
	q.lenient = false
	q.settleLocked(now)
	q.armLocked(now)
	wakes := q.takeWokenLocked()
	q.mu.Unlock()
	wakes.wake()
}

// SetLimit is Reconfigure for the limit alone.
func (q *Queue) SetLimit(n int64) {
	q.check(Config{Limit: n})
	now := q.now()
	q.mu.Lock()
	q.biasLocked() // the limit and what the reserve leaves of it change as one
	q.setLimitLocked(n)
	q.settleLocked(now)
	wakes := q.takeWokenLocked()
	q.mu.Unlock()
	wakes.wake()
}

func (q *Queue) setLimitLocked(n int64) {
	q.state.Add((n - q.limit) << q.shift())
	q.limit = n
	q.over = max(0, -q.freeLocked())
	q.boundLowerLocked()
}

// Shed refuses every waiter of a class, with the outcome of that name.
func (q *Queue) Shed(class int) {
	now := q.now()
	q.mu.Lock()
	for q.classes[class].n > 0 {
		q.removeLocked(q.classes[class].newest(), Shed, now)
	}
	q.settleLocked(now)
	wakes := q.takeWokenLocked()
	q.mu.Unlock()
	wakes.wake()
}

// Close refuses all waiters and every later caller. Leases that are out stay
// good. Closing twice is the same as once.
func (q *Queue) Close() {
	now := q.now()
	q.mu.Lock()
	if !q.closed {
		q.biasLocked()
		for q.waiting > 0 {
			q.removeLocked(q.all.oldest(inAll), Closed, now)
		}
		q.closeLocked()
	}
	wakes := q.takeWokenLocked()
	q.mu.Unlock()
	wakes.wake()
}

// Idle reports whether no lease is out, nobody waits and there is no pause. It waits
// for no lock and may be a moment old, and false while others change the queue or
// acquires fail.
func (q *Queue) Idle() bool {
	if q.state.Load() < 0 || !q.mu.TryLock() {
		return false
	}
	defer q.mu.Unlock()
	s := q.state.Load()
	return s >= 0 && q.booked == 0 && q.nothing == 0 && q.leasesIn(s) == 0
}

// Retire is Close for a queue that nobody uses: it closes the queue and returns
// true if no lease is out and nobody waits. Otherwise it changes nothing and
// returns false, as it may while acquires fail. No acquire can come between the
// look and the close. For a closed queue it is whether the last lease is back.
func (q *Queue) Retire() bool {
	now := q.now()
	q.mu.Lock()
	q.biasLocked() // from here on nobody acquires
	if !q.closed && q.waiting == 0 && q.unusedLocked() {
		q.closeLocked()
		q.endLocked() // a second look could take an acquire that fails for a lease
	} else {
		q.settleLocked(now)
	}
	retired := q.finished
	wakes := q.takeWokenLocked()
	q.mu.Unlock()
	wakes.wake()
	return retired
}

// closeLocked closes a queue in which nobody waits.
func (q *Queue) closeLocked() {
	q.closed = true
	q.endPauseLocked()
	if q.timer != nil {
		q.timer.Stop()
	}
	q.finishIfDrainedLocked()
}

// finishIfDrainedLocked tells that the last lease is back. An acquire that is
// failing counts as a lease for a moment; it settles when it has gone back.
func (q *Queue) finishIfDrainedLocked() {
	if q.closed && q.unusedLocked() {
		q.endLocked()
	}
}

func (q *Queue) endLocked() {
	if !q.finished {
		q.finished = true
		if q.drained != nil {
			close(q.drained)
		}
	}
}

// unusedLocked reports whether no lease is out.
func (q *Queue) unusedLocked() bool {
	return q.booked == 0 && q.nothing == 0 && q.leasesIn(q.state.Load()) == 0
}

// Drained is closed once the queue is closed and every lease is back.
func (q *Queue) Drained() <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.drained == nil {
		q.drained = make(chan struct{})
		if q.finished {
			close(q.drained)
		}
	}
	return q.drained
}

// Drain waits until all the queues are closed and every lease of theirs is back, or ctx
// ends, and returns ctx's error in that case. Where nothing is left to wait for it is nil,
// whatever ctx says.
func Drain(ctx context.Context, queues ...*Queue) error {
	for _, q := range queues {
		select {
		case <-q.Drained():
			continue
		default:
		}
		select {
		case <-q.Drained():
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// expireLocked refuses those whose time is over and reports whether there were any.
func (q *Queue) expireLocked(now int64) bool {
	any := false
	for w := q.all.oldest(inAll); w != nil && now-w.arrival >= q.timeout; w = q.all.oldest(inAll) {
		q.removeInPlaceLocked(w, TimedOut, now)
		any = true
	}
	return any
}

// armLocked makes sure that the timer fires when the oldest waiter's time is over,
// an aged turn lapses or a pause ends. A timer that is set already is left alone if it fires no later.
func (q *Queue) armLocked(now int64) {
	oldest := q.all.oldest(inAll)
	if oldest == nil && q.until == 0 || q.closed {
		return
	}
	at := int64(never)
	if oldest != nil {
		at = oldest.arrival + q.timeout
	}
	if q.until != 0 {
		at = min(at, q.until)
	}
	for i := 0; q.keeps && i < Classes; i++ {
		// A turn that is over already is not one for the timer: it lapses at the next
		// dispatch that has room to give.
		if kept := q.classes[i].kept; kept > 0 && kept+keepSteps*q.step > now {
			at = min(at, kept+keepSteps*q.step)
		}
	}
	if q.armed && q.firesAt <= at {
		return
	}
	q.armed, q.firesAt = true, at
	d := time.Duration(max(at-now, 0))
	if q.timer == nil {
		q.timer = time.AfterFunc(d, q.fire)
	} else {
		q.timer.Reset(d)
	}
}

// fire runs on the timer's own goroutine, which ends with it.
func (q *Queue) fire() {
	now := q.now()
	q.mu.Lock()
	q.armed = false
	booked, waiting := q.booked > 0, q.waiting
	q.settleLocked(now)
	q.armLocked(now)
	left := q.waiting < waiting
	wakes := q.takeWokenLocked()
	q.mu.Unlock()
	wakes.wake()
	if booked && left && q.owner != nil { // nobody wakes who could tell of it
		q.owner.Entered()
	}
}
