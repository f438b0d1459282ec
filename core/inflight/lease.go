package inflight

import (
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/internal/near"
	"github.com/headgate-go/headgate/core/internal/waitq"
)

// lease is the record behind a gate.Lease. Records are used again, by any lane.
type lease struct {
	waitq.Lease

	// Set while the record is free. Whoever has a stale lease may read them while the
	// record serves the next.
	lane  atomic.Pointer[lane]
	class atomic.Int32

	turn near.Turn // in a record of the pool it is never taken
	_    [64]byte  // keeps the next record off this one's line
}

// records keeps the lease records that are free. A record that is near the caller is
// taken if it is not out, else one of the pool.
type records struct {
	near [near.Size]lease
	rest sync.Pool // of *lease
}

// record returns a free record for a lease of ln.
func (l *Limiter) record(ln *lane, class int) *lease {
	rec := &l.records.near[near.Index()]
	if !rec.turn.Take() {
		rec = l.records.another()
	}
	if rec.lane.Load() != ln { // a load costs less than a store
		rec.lane.Store(ln)
	}
	if rec.class.Load() != int32(class) {
		rec.class.Store(int32(class))
	}
	return rec
}

func (r *records) another() *lease {
	rec, _ := r.rest.Get().(*lease)
	if rec == nil {
		rec = new(lease)
	}
	return rec
}

// put takes back a record that nobody holds.
func (r *records) put(rec *lease) {
	if !rec.turn.Back() {
		r.rest.Put(rec)
	}
}

// Release gives the slot back, once.
func (r *lease) Release(gen uint64) {
	ln := r.lane.Load()
	if !r.Lease.Release(gen) {
		return
	}
	l := ln.limit
	l.records.put(r)
	if l.watch.on.Load() {
		l.watch.changed(ln)
	}
}

// Grow refuses: a call is one slot.
func (r *lease) Grow(gen uint64, n int64) error {
	ln := r.lane.Load()
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
	ln, class := r.lane.Load(), int(r.class.Load())
	if !r.Live(gen) { // looked at last: then the two are this lease's
		return
	}
	ln.answers.observe(time.Now(), s, ln.q.Room(class) || !ln.q.Waiting())
}
