package inflight

import (
	"io"
	"sync"
	"time"

	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/internal/near"
	"github.com/headgate-go/headgate/core/internal/waitq"
)

// lease is the record behind a gate.Lease. Records are used again, by any lane.
type lease struct {
	waitq.Lease
	limit  *Limiter // whose record it is
	pooled bool     // else it stands ready, and its Release is its way back

	_ [64]byte // keeps the next record off this one's line
}

// records keeps the lease records that are free. Who gets a slot at once takes the
// record that is near, if that is not out. For all others there is a pool.
type records struct {
	near [near.Size]lease
	rest sync.Pool // of *lease
}

func (r *records) init(l *Limiter) {
	for i := range r.near {
		r.near[i].limit = l
		r.near[i].Share()
	}
}

// get returns a record of the pool.
func (r *records) get(l *Limiter) *lease {
	rec, _ := r.rest.Get().(*lease)
	if rec == nil {
		rec = &lease{limit: l, pooled: true}
	}
	return rec
}

// fill returns a record of the pool with the slot that was taken at once, though ready
// could not be filled, and its generation.
func (r *records) fill(l *Limiter, q *waitq.Queue, class int, ready *lease) (*lease, uint64) {
	rec := r.get(l)
	return rec, rec.HoldUnit(q, class, &ready.Lease)
}

// lane is that of the lease that the record has now. Who asks for one generation asks
// first, and then whether that is live.
func (r *lease) lane() *lane { return r.Queue().Owner().(*lane) }

// Release gives the slot back, once. From then on a record that stands ready may be
// another's.
func (r *lease) Release(gen uint64) {
	q := r.Queue()
	if held, ok := r.End(gen); ok {
		q.Give(held)
	} else if !r.Lease.Release(gen) {
		return
	}
	if r.pooled || r.limit.watch.on.Load() {
		r.released(q)
	}
}

func (r *lease) released(q *waitq.Queue) {
	l := r.limit
	if r.pooled {
		l.records.rest.Put(r)
	}
	if l.watch.on.Load() {
		l.watch.changed(q.Owner().(*lane))
	}
}

// Grow refuses: a call is one slot.
func (r *lease) Grow(gen uint64, n int64) error {
	ln := r.lane()
	if !r.Live(gen) {
		return nil
	}
	return &gate.Rejection{
		Reason: gate.CostExceedsLimit, Gate: name, Lane: ln.key, Limit: 1, Unit: "slot per call",
		Advice: "acquire another lease for another call",
	}
}

// Shrink does nothing: a call is one slot until it is released.
func (r *lease) Shrink(uint64, int64) {}

// Body returns rc: bodies are no concern of this gate.
func (r *lease) Body(_ uint64, rc io.ReadCloser, _ func(time.Time) error) io.ReadCloser { return rc }

// Observe counts how the back end answered the call. Where nobody waits, the call's own
// slot is about to be free: in a lane of one there is no other.
func (r *lease) Observe(gen uint64, s gate.Sample) {
	ln, class := r.lane(), r.Class()
	if !r.Live(gen) { // looked at last: then the two are this lease's
		return
	}
	ln.answers.observe(time.Now(), s, ln.q.Room(class) || !ln.q.Waiting())
}
