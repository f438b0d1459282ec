package lanes

import (
	"context"
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
	c      *Controller
	pooled bool // else it stands ready, and its Release is its way back
	aside  bool // it holds a place among the exempt requests, not cost

	// Whoever has a stale lease may read these while the record serves the next.
	lane   atomic.Pointer[lane] // nil without lanes
	told   atomic.Uint64        // the latest generation, plus one, that was observed
	booked atomic.Int64         // what one that waits in the books would cost
	alone  atomic.Int64         // the whole limit, of one that was charged that in place of its cost

	// Of a record of the pool: its holder's, and then of whoever's Release ended it.
	start  int64           // when it was granted; 0 = not timed
	ctx    context.Context // of the request, where it is timed
	stream bool

	_ [64]byte // keeps the next record off this one's line
}

// records keeps the lease records that are free. Who gets its cost at once takes the
// record that is near, if that is not out. For all others there is a pool.
type records struct {
	near [near.Size]lease
	rest sync.Pool    // of *lease
	more atomic.Int64 // leases of another
}

func (p *records) init(c *Controller) {
	for i := range p.near {
		p.near[i].c = c
		p.near[i].Share()
	}
}

// get returns a record of the pool.
func (p *records) get(c *Controller) *lease {
	rec, _ := p.rest.Get().(*lease)
	if rec == nil {
		rec = &lease{c: c, pooled: true}
	}
	return rec
}

// another is for a lease that is admitted at once while the ready record is out.
func (p *records) another(c *Controller) *lease {
	p.more.Add(1)
	return p.get(c)
}

// taken counts the leases that found room without coming to the queue.
func (p *records) taken() int64 {
	n := p.more.Load()
	for i := range p.near {
		n += p.near[i].Count()
	}
	return n
}

// serve counts the leases of a lane that the ready records hold.
func (p *records) serve(ln *lane) (n int64) {
	for i := range p.near {
		rec := &p.near[i]
		if rec.lane.Load() == ln && rec.Live(rec.Gen()) {
			n++
		}
	}
	return n
}

// byLane counts the leases of every lane that the ready records hold.
func (p *records) byLane() map[*lane]int64 {
	n := make(map[*lane]int64)
	for i := range p.near {
		if rec := &p.near[i]; rec.Live(rec.Gen()) {
			n[rec.lane.Load()]++
		}
	}
	return n
}

// admitted hands out a record of the pool that was just filled.
func (l *lease) admitted(ln *lane) gate.Lease {
	if l.lane.Load() != ln {
		l.lane.Store(ln)
	}
	return gate.NewLease(l, l.Gen())
}

// Release gives the cost back, once. From then on a record that stands ready may be
// another's.
func (l *lease) Release(gen uint64) {
	if !l.pooled {
		if held, ok := l.End(gen); ok {
			l.c.q.Give(held)
		} else {
			l.Lease.Release(gen)
		}
		return
	}
	ln := l.lane.Load() // the one of gen, if this ends gen
	if l.Lease.Release(gen) {
		l.putBack(gen, ln)
	}
}

// putBack is for whoever's Release ended a lease of the pool.
func (l *lease) putBack(gen uint64, ln *lane) {
	c := l.c
	if ln != nil {
		ln.refs.Add(-1)
	}
	if l.aside {
		c.exempts.Put(l)
		return
	}
	start, ctx, stream, told := l.start, l.ctx, l.stream, l.told.Load() == gen+1
	l.forget()
	if l.booked.Load() != 0 {
		l.booked.Store(0)
	}
	if l.alone.Load() != 0 {
		l.alone.Store(0)
	}
	c.records.rest.Put(l)
	if start != 0 {
		c.ended(ctx, start, stream, told)
	}
}

// forget lets a record be as one that is not timed.
func (l *lease) forget() { l.start, l.ctx, l.stream = 0, nil, false }

// holds is what generation gen of the record holds, or would hold if it were not in the
// books alone, and its lane. ok is false when gen is not out any more.
func (l *lease) holds(gen uint64) (cost int64, ln *lane, ok bool) {
	charge, limit := l.Charge(), l.c.limit.Load()
	cost, ln = max(charge, min(l.booked.Load(), limit)), l.lane.Load()
	if whole := l.alone.Load(); whole != 0 && charge == whole {
		cost = max(cost, limit) // which may have grown since
	}
	return cost, ln, l.Live(gen) // looked at last: then they are this lease's
}

// Grow adds to what the lease holds, where there is room.
func (l *lease) Grow(gen uint64, n int64) error {
	if l.aside || l.Lease.Grow(gen, n) {
		return nil
	}
	c := l.c
	s := c.set.Load()
	if s.Mode != gate.Enforce {
		return nil
	}
	return c.noGrowth(s, l.lane.Load(), n)
}

// Shrink gives back a part of what the lease holds.
func (l *lease) Shrink(gen uint64, n int64) {
	if !l.aside {
		l.Lease.Shrink(gen, n)
	}
}

// Body returns rc: bodies are no concern of this gate.
func (l *lease) Body(_ uint64, rc io.ReadCloser, _ func(time.Time) error) io.ReadCloser { return rc }

// Observe hands on how the back end answered. A lease that was observed is no sample by
// the time for which it is held.
func (l *lease) Observe(gen uint64, s gate.Sample) {
	if l.aside || !l.Live(gen) {
		return
	}
	for last := l.told.Load(); last <= gen; last = l.told.Load() {
		if l.told.CompareAndSwap(last, gen+1) {
			break
		}
	}
	l.c.observed(s)
}
