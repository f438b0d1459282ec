package admission

import (
	"io"
	"math"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/internal/waitq"
)

// lease is the record behind a gate.Lease. Records are used again.
type lease struct {
	waitq.Lease
	b      *Budget
	exempt bool // it holds a place among the exempt requests, not bytes

	// Set while the record is free. Whoever has a stale lease may read them while
	// the record serves the next.
	declared atomic.Int64  // the body's length, negative = unknown
	factor   atomic.Uint64 // bits of the float

	// The latest generations, plus one, whose back end has answered and whose body
	// was read to its end: once both are the present one, the bytes may go back.
	answered, read atomic.Uint64

	slot int  // in the registry, -1 = in none; of heavy leases alone
	near bool // it stands ready, and its Release is its way back

	_ [64]byte // keeps the next record off this one's line
}

func (b *Budget) lease(declared int64, factor float64) *lease {
	l := b.leases.get(b)
	l.describe(declared, factor)
	return l
}

func (b *Budget) exemptLease(declared int64) *lease {
	l, _ := b.exempts.Get().(*lease)
	if l == nil {
		l = &lease{b: b, slot: -1, exempt: true}
	}
	l.describe(declared, 1)
	return l
}

// describe says what a free record will be for. Most often little changes, and a
// load costs less than a store.
func (l *lease) describe(declared int64, factor float64) {
	if l.declared.Load() != declared {
		l.declared.Store(declared)
	}
	if f := math.Float64bits(factor); l.factor.Load() != f {
		l.factor.Store(f)
	}
}

// put takes back a record that nobody holds.
func (b *Budget) put(l *lease) {
	if l.exempt {
		b.exempts.Put(l)
	} else {
		b.leases.put(l)
	}
}

// admitted hands out a record that was just filled.
func (b *Budget) admitted(l *lease, class int) gate.Lease {
	if class == heavy {
		l.slot = b.heavies.add(b.now())
	}
	return gate.NewLease(l, l.Gen())
}

// Release gives the bytes back, once. Whoever did it owns the record until it is
// in the pool. One that stands ready may be another's by then.
func (l *lease) Release(gen uint64) {
	q := l.Queue()
	if held, ok := l.End(gen); ok {
		q.Give(held)
	} else if !l.Lease.Release(gen) {
		return
	}
	if !l.near {
		l.putBack()
	}
}

func (l *lease) putBack() {
	if l.slot >= 0 {
		l.b.heavies.remove(l.slot)
		l.slot = -1
	}
	l.b.put(l)
}

// Grow adds n bytes for memory that the body has become.
func (l *lease) Grow(gen uint64, n int64) error {
	if l.exempt || l.Lease.Grow(gen, n) {
		return nil
	}
	b := l.b
	s := b.set.Load()
	if s.Mode != gate.Enforce {
		return nil
	}
	return b.shed(&gate.Rejection{
		Reason: gate.AdmissionBusy, Gate: name, Limit: s.limit, Unit: unit, RetryAfter: b.retryAfter(heavy, n, 0),
		Advice: "no room for the body to grow: declare its length, raise MaxInflightBytes, or send fewer bodies at once",
	}, n)
}

// Shrink gives n bytes back.
func (l *lease) Shrink(gen uint64, n int64) {
	if !l.exempt {
		l.Lease.Shrink(gen, n)
	}
}

// Observe gives the bytes back when the back end has answered and the body has
// been sent on.
func (l *lease) Observe(gen uint64, s gate.Sample) {
	if s.FirstByte <= 0 || l.b.set.Load().ReleaseAt != FirstByte || !l.Live(gen) {
		return
	}
	mark(&l.answered, gen)
	l.releaseIfSent(gen)
}

// sent notes that the body has been read to its end.
func (l *lease) sent(gen uint64) {
	mark(&l.read, gen)
	l.releaseIfSent(gen)
}

// mark notes gen, unless a later generation is noted already.
func mark(at *atomic.Uint64, gen uint64) {
	for last := at.Load(); last <= gen; last = at.Load() {
		if at.CompareAndSwap(last, gen+1) {
			return
		}
	}
}

// releaseIfSent may race with a reuse of the record: what counts is that both
// marks carry the caller's own generation. Of a body of no bytes nothing has to be
// read; the next user's length does no harm here, since gen is then not held.
func (l *lease) releaseIfSent(gen uint64) {
	if l.answered.Load() == gen+1 && (l.read.Load() == gen+1 || l.declared.Load() == 0) {
		l.Release(gen)
	}
}

// Body counts and charges rc as the package comment says.
func (l *lease) Body(gen uint64, rc io.ReadCloser, setReadDeadline func(time.Time) error) io.ReadCloser {
	declared, factor := l.declared.Load(), math.Float64frombits(l.factor.Load())
	if rc == nil || !l.Live(gen) { // looked at last: then the two are this lease's
		return rc
	}
	return newBody(l, gen, declared, factor, rc, setReadDeadline)
}

// factor is what a request's bytes are multiplied by.
func (s *settings) factor(r *gate.Request) float64 {
	if len(s.Factors) == 0 {
		return 1
	}
	media, _, _ := strings.Cut(r.ContentType, ";")
	media = strings.ToLower(strings.TrimSpace(media))
	for i := range s.Factors {
		f := &s.Factors[i]
		if (f.ContentType == "" || f.ContentType == media) && (f.Route == "" || f.Route == r.Route) {
			return f.Times
		}
	}
	return 1
}
