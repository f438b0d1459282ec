package waitq

import (
	"crypto/sha256"
	"math"
)

// waiter is one caller in the queue. It is 128 bytes, its channel 96. What a walk
// through a list looks at is one cache line.
type waiter struct {
	links   [kinds]link
	arrival int64 // never = when it comes to the lock. Out of the queue: when it entered
	seq     uint64

	ready chan struct{} // gets one token when the outcome is in
	flow  *flow

	cost     int64
	charge   int64 // what the grant took; of one that was not granted, its position
	held     int64
	left     int64 // when it entered the queue. Out of it: when it left
	deadline int64 // the caller's own

	weight  uint16
	class   int8
	bucket  uint8
	passes  uint8
	outcome Outcome
	late    bool // in the treaps of its lists
	booked  bool // Book entered it: nobody waits for it
}

func (q *Queue) getWaiter(r Request) *waiter {
	w, _ := q.waiters.Get().(*waiter)
	if w == nil {
		w = &waiter{ready: make(chan struct{}, 1)}
	}
	q.fill(w, &r)
	return w
}

// fill makes w, which is in no list and waits for nobody, stand for r.
func (q *Queue) fill(w *waiter, r *Request) {
	*w = waiter{
		ready: w.ready, class: int8(r.Class), cost: r.Cost, held: r.Held, arrival: never,
		weight: uint16(min(max(r.Weight, 1), math.MaxUint16)),
	}
	if q.units {
		w.cost = 1
	}
	if !r.Arrived.IsZero() {
		w.arrival = q.clock(r.Arrived)
	}
}

// putWaiter takes w back; its token has been taken and nothing points at it.
func (q *Queue) putWaiter(w *waiter) { q.waiters.Put(w) }

// hopeless reports whether w could not finish by its caller's deadline.
func (w *waiter) hopeless(now, typical int64) bool {
	return w.deadline != never && (w.deadline <= now || w.deadline-now < typical)
}

// wakeList is a chain of waiters that have their outcomes.
type wakeList struct{ first *waiter }

// wake hands each its token. A waiter may be gone as soon as it has it.
func (l wakeList) wake() {
	for w := l.first; w != nil; {
		next := w.links[woken].next
		w.links[woken].next = nil
		w.ready <- struct{}{}
		w = next
	}
}

// flowKey bounds what a waiter keeps of a flow's name: a client may have made it.
func flowKey(flow string) string {
	if len(flow) <= 128 {
		return flow
	}
	sum := sha256.Sum256([]byte(flow))
	return string(sum[:])
}
