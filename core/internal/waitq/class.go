package waitq

import "math/bits"

const (
	buckets  = 35 // costs up to 2^34, rounded up to a power of two
	tagScale = 20 // fraction bits of a tag: weights up to 1000 stay exact enough
	// spareFlows bounds the flow records kept for later use.
	spareFlows = 256
	// bigBurst is the number of flows from which the map is made anew after a
	// burst, since maps do not shrink.
	bigBurst = 1024
)

// class is the waiters of one class. Everything in it is guarded by Queue.mu.
type class struct {
	n       int
	v       uint64  // virtual time
	pin     *waiter // the head that did not fit
	kept    int64   // since when pin keeps higher classes waiting; 0 = it does not
	heap    flowHeap
	byQueue queueHeap // kept while the queue overflows, else nil
	flows   map[string]*flow
	peak    int   // most flows since the map was made
	last    *flow // the flow used last, most often the next too
	spare   *flow // free records, linked by next
	spares  int
	mask    uint64 // bit b: buckets[b] is not empty
	sizes   *[buckets]struct{ first, last *waiter }
}

// flow is the waiters of one fairness key. It exists while it has waiters.
type flow struct {
	name          string
	first, last   *waiter
	start, finish uint64 // tags
	queued        int64  // cost of its waiters
	id            uint64 // orders flows of equal weight in line; the first waiter's
	weight        int64
	number        int32 // in class.heap
	byAt          int   // in class.byQueue
	next          *flow
}

func tag(cost, weight int64) uint64 { return uint64(cost<<tagScale) / uint64(weight) }

// head is the first waiter of the class in the order.
func (c *class) head() *waiter {
	if c.pin != nil {
		return c.pin
	}
	return c.heap.first().first
}

func (c *class) find(name string) *flow {
	if c.last != nil && c.last.name == name {
		return c.last
	}
	return c.flows[name]
}

func (c *class) flow(name string, id uint64) *flow {
	if f := c.find(name); f != nil {
		c.last = f
		return f
	}
	f := c.spare
	if f != nil {
		c.spare, f.next = f.next, nil
		c.spares--
	} else {
		f = new(flow)
	}
	f.name, f.id, f.start = name, id, c.v
	if c.flows == nil {
		c.flows = make(map[string]*flow)
	}
	c.flows[name] = f
	c.peak = max(c.peak, len(c.flows))
	c.last = f
	return f
}

// add puts w at the end of its flow.
func (c *class) add(w *waiter, name string) {
	f := c.flow(name, w.seq)
	w.flow, f.weight = f, int64(w.weight)
	f.queued += w.cost
	if f.last == nil {
		f.first, f.last = w, w
		f.finish = f.start + tag(w.cost, f.weight)
		c.heap.push(f)
		if c.byQueue != nil {
			c.byQueue.push(f)
		}
	} else {
		w.fprev, f.last.fnext, f.last = f.last, w, w
		if c.byQueue != nil {
			c.byQueue.fix(f.byAt)
		}
	}
	if c.sizes == nil {
		c.sizes = new([buckets]struct{ first, last *waiter })
	}
	w.bucket = uint8(bits.Len64(uint64(w.cost - 1)))
	b := &c.sizes[w.bucket]
	if b.last == nil {
		b.first, c.mask = w, c.mask|1<<w.bucket
	} else {
		w.bprev, b.last.bnext = b.last, w
	}
	b.last = w
	c.n++
}

// remove takes w out of its flow. granted charges the flow for it, inOrder moves
// the class's virtual time too.
func (c *class) remove(w *waiter, granted, inOrder bool) {
	f, first := w.flow, w.flow.first == w
	c.unlink(w)
	c.n--
	if c.pin == w {
		c.pin, c.kept = nil, 0
	}
	f.queued -= w.cost
	if granted {
		f.start += tag(w.cost, f.weight)
	}
	if f.first == nil || inOrder {
		if int64(f.start-c.v) > 0 {
			c.v = f.start
		}
	}
	if f.first == nil {
		c.forget(f)
		return
	}
	if granted || first {
		f.finish = f.start + tag(f.first.cost, f.weight)
		c.heap.fix(f)
	}
	if c.byQueue != nil {
		c.byQueue.fix(f.byAt)
	}
}

func (c *class) unlink(w *waiter) {
	f := w.flow
	if w.fprev == nil {
		f.first = w.fnext
	} else {
		w.fprev.fnext = w.fnext
	}
	if w.fnext == nil {
		f.last = w.fprev
	} else {
		w.fnext.fprev = w.fprev
	}
	b := &c.sizes[w.bucket]
	if w.bprev == nil {
		b.first = w.bnext
	} else {
		w.bprev.bnext = w.bnext
	}
	if w.bnext == nil {
		b.last = w.bprev
	} else {
		w.bnext.bprev = w.bprev
	}
	if b.first == nil {
		c.mask &^= 1 << w.bucket
	}
	w.flow, w.fprev, w.fnext, w.bprev, w.bnext = nil, nil, nil, nil, nil
}

// forget drops a flow without waiters.
func (c *class) forget(f *flow) {
	c.heap.remove(f)
	if c.byQueue != nil {
		c.byQueue.remove(f.byAt)
	}
	delete(c.flows, f.name)
	if c.last == f {
		c.last = nil
	}
	*f = flow{}
	if c.spares < spareFlows {
		f.next, c.spare = c.spare, f
		c.spares++
	}
	if c.n == 0 && c.peak > bigBurst {
		c.flows, c.heap, c.peak = nil, flowHeap{}, 0
	}
}

// oldest is the waiter that arrived first among those whose cost, rounded up to
// a power of two, is at most room. nil when there is none.
func (c *class) oldest(room int64) *waiter {
	var w *waiter
	for m := c.mask & (2<<(bits.Len64(uint64(room))-1) - 1); m != 0; m &= m - 1 {
		if x := c.sizes[bits.TrailingZeros64(m)].first; w == nil || x.seq < w.seq {
			w = x
		}
	}
	return w
}

// newest is the waiter that arrived last.
func (c *class) newest() *waiter {
	var w *waiter
	for m := c.mask; m != 0; m &= m - 1 {
		if x := c.sizes[bits.TrailingZeros64(m)].last; w == nil || x.seq > w.seq {
			w = x
		}
	}
	return w
}

// longest is the flow with the most queued cost per weight, nil without waiters.
func (c *class) longest() *flow {
	if c.n == 0 {
		return nil
	}
	if c.byQueue == nil {
		c.byQueue = make(queueHeap, 0, c.heap.len()+1)
		for _, s := range c.heap.slots {
			c.byQueue.push(c.heap.flows[s.number])
		}
	}
	return c.byQueue[0]
}
