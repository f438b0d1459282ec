package waitq

import "time"

// Pause grants nothing before until, whatever room there is: TryAcquire and the like
// are false, and whoever comes waits within its own bounds. Leases that are out
// stay good and may grow. Grants go on at until by themselves. A pause in force is
// made longer by a later until; an earlier one, or one that has passed, does
// nothing. A cost of 0 takes no room and is not held up, and nobody whom AdmitAll
// lets in is; what Book enters is. A closed queue is not paused.
func (q *Queue) Pause(until time.Time) {
	at, now := q.clock(until), q.now()
	q.mu.Lock()
	q.pauseLocked(at, now)
	q.mu.Unlock()
}

func (q *Queue) pauseLocked(at, now int64) {
	if at <= now || at <= q.until || q.closed {
		return
	}
	q.until = at
	for i := range q.classes {
		q.classes[i].kept = 0 // from now on it is the pause that keeps all waiting
	}
	q.biasLocked()
	q.armLocked(now)
}

// Resume ends a pause, if there is one.
func (q *Queue) Resume() {
	now := q.now()
	q.mu.Lock()
	q.endPauseLocked()
	q.settleLocked(now)
	wakes := q.takeWokenLocked()
	q.mu.Unlock()
	wakes.wake()
}

func (q *Queue) endPauseLocked() {
	q.until = 0
}

// thawLocked ends a pause that is over and reports whether there was one.
func (q *Queue) thawLocked(now int64) bool {
	if q.until == 0 || now < q.until {
		return false
	}
	q.endPauseLocked()
	return true
}

// clock is t on the queue's clock, at most a century away.
func (q *Queue) clock(t time.Time) int64 {
	return min(max(int64(t.Sub(q.epoch)), -century), century) + 1
}
