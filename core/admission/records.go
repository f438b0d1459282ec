package admission

import (
	"math"
	"sync"
	"sync/atomic"
	"unsafe"
)

// nearBits is the logarithm of the number of records that stand ready.
const nearBits = 6

// records keeps the lease records that are free. A lease that is admitted at once
// takes one of those that stand ready, the one that its goroutine's stack picks: so
// a goroutine finds its own again, in its processor's cache, for half of what a
// sync.Pool takes. If that one is out, and for all other leases, there is a pool.
type records struct {
	near [1 << nearBits]lease
	rest sync.Pool    // of *lease
	more atomic.Int64 // calls of another
}

func (p *records) init(b *Budget) {
	one := math.Float64bits(1)
	for i := range p.near {
		l := &p.near[i]
		l.b, l.slot = b, -1
		l.factor.Store(one)
	}
}

// mine is the caller's ready record, for a lease that is admitted at once. It is
// nil when that one is out; then another is to be had. Both count the lease.
func (p *records) mine() *lease {
	var here byte
	// The factor, 2^64 over the golden ratio, spreads stacks that lie side by side.
	at := uint64(uintptr(unsafe.Pointer(&here))>>11) * 0x9e3779b97f4a7c15 >> (64 - nearBits)
	l := &p.near[at]
	if t := l.turn.Load(); t&1 == 1 || !l.turn.CompareAndSwap(t, t+1) {
		return nil
	}
	return l
}

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

// taken counts the leases that mine and another were for.
func (p *records) taken() int64 {
	n := p.more.Load()
	for i := range p.near {
		n += int64(p.near[i].turn.Load()+1) / 2
	}
	return n
}
