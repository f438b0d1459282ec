package admission

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/headgate-go/headgate/core/internal/near"
)

// records keeps the lease records that are free. A lease that is admitted at once
// takes one of those that stand ready, if the one that is near is not out. For all
// other leases there is a pool.
type records struct {
	near [near.Size]lease
	rest sync.Pool    // of *lease
	more atomic.Int64 // leases of another
}

func (p *records) init(b *Budget) {
	one := math.Float64bits(1)
	for i := range p.near {
		l := &p.near[i]
		l.b, l.slot, l.near = b, -1, true
		l.factor.Store(one)
		l.Share()
	}
}

// another is for a lease that is admitted at once while the ready record is out.
func (p *records) another(b *Budget) *lease {
	p.more.Add(1)
	return b.lease(0, 1)
}

// get returns a record of the pool.
func (p *records) get(b *Budget) *lease {
	l, _ := p.rest.Get().(*lease)
	if l == nil {
		l = &lease{b: b, slot: -1}
	}
	return l
}

// put takes back a record that nobody holds.
func (p *records) put(l *lease) {
	p.rest.Put(l)
}

// taken counts the leases that were admitted at once.
func (p *records) taken() int64 {
	n := p.more.Load()
	for i := range p.near {
		n += p.near[i].Count()
	}
	return n
}
