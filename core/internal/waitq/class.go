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
	n    int
	v    uint64  // virtual time
	pin  *waiter // the head that did not fit
	kept int64   // since when pin keeps higher classes waiting; 0 = it does not
	mask uint64  // bit b: sizes[b] is not empty
	*shelf
}

// shelf is what a class has once it has had a waiter, until Trim takes it.
type shelf struct {
	heap    flowHeap
	byQueue queueHeap // kept while the queue overflows, else nil
	flows   map[string]*flow
	peak    int   // most flows since the map was made
	last    *flow // the flow used last, most often the next too
	spare   *flow // free records, linked by next
	spares  int
	sizes   [buckets]list // waiters by cost, rounded up to a power of two
}

// flow is the waiters of one fairness key. It exists while it has waiters.
type flow struct {
	name          string
	waiters       list
	head          *waiter // the oldest of them
	start, finish uint64  // tags
	queued        int64   // cost of its waiters
	n             int     // and their number
	id            uint64  // orders flows of equal weight in line; the first waiter's
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
	return c.heap.first().head
}

func (c *class) find(name string) *flow {
	if c.shelf == nil {
		return nil
	}
	return c.shelf.find(name)
}

func (s *shelf) find(name string) *flow {
	if s.last != nil && s.last.name == name {
		return s.last
	}
	return s.flows[name]
}

func (s *shelf) flow(name string, id, v uint64) *flow {
	if f := s.find(name); f != nil {
		s.last = f
		return f
	}
	f := s.spare
	if f != nil {
		s.spare, f.next = f.next, nil
		s.spares--
	} else {
		f = new(flow)
	}
	f.name, f.id, f.start = name, id, v
	s.flows[name] = f
	s.peak = max(s.peak, len(s.flows))
	s.last = f
	return f
}

// add puts w into its flow.
func (c *class) add(w *waiter, name string) {
	if c.shelf == nil {
		c.shelf = &shelf{flows: make(map[string]*flow)}
	}
	s := c.shelf
	f := s.flow(name, w.seq, c.v)
	w.flow, f.weight = f, int64(w.weight)
	f.queued += w.cost
	f.n++
	c.n++
	w.bucket = uint8(bits.Len64(uint64(w.cost - 1)))
	c.mask |= 1 << w.bucket
	if bucket := &s.sizes[w.bucket]; w.late {
		f.waiters.pushLate(w, inFlow)
		bucket.pushLate(w, inSize)
	} else {
		f.waiters.push(w, inFlow)
		bucket.push(w, inSize)
	}
	switch {
	case f.n == 1:
		f.head, f.finish = w, f.start+tag(w.cost, f.weight)
		s.heap.push(f)
		if s.byQueue != nil {
			s.byQueue.push(f)
		}
	case w.before(f.head):
		f.head, f.finish = w, f.start+tag(w.cost, f.weight)
		s.heap.fix(f)
		fallthrough
	default:
		if s.byQueue != nil {
			s.byQueue.fix(f.byAt)
		}
	}
}

// remove takes w out of its flow. granted charges the flow for it, inOrder moves
// the class's virtual time too.
func (c *class) remove(w *waiter, granted, inOrder bool) {
	f, s := w.flow, c.shelf
	w.flow = nil
	c.n--
	if c.pin == w {
		c.pin, c.kept = nil, 0
	}
	bucket := &s.sizes[w.bucket]
	if w.late {
		f.waiters.removeLate(w, inFlow)
		bucket.removeLate(w, inSize)
	} else {
		f.waiters.remove(w, inFlow)
		bucket.remove(w, inSize)
	}
	if bucket.empty() {
		c.mask &^= 1 << w.bucket
	}
	f.n--
	f.queued -= w.cost
	if granted {
		f.start += tag(w.cost, f.weight)
	}
	if (f.n == 0 || inOrder) && int64(f.start-c.v) > 0 {
		c.v = f.start
	}
	if f.n == 0 {
		c.forget(f)
		return
	}
	if granted || f.head == w {
		if f.head == w {
			f.head = f.waiters.oldest(inFlow)
		}
		f.finish = f.start + tag(f.head.cost, f.weight)
		s.heap.fix(f)
	}
	if s.byQueue != nil {
		s.byQueue.fix(f.byAt)
	}
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
		c.flows, c.heap, c.peak = make(map[string]*flow), flowHeap{}, 0
	}
}

// oldest is the waiter that arrived first among those whose cost, rounded up to
// a power of two, is at most room. nil when there is none.
func (c *class) oldest(room int64) *waiter {
	var w *waiter
	for m := c.mask & (2<<(bits.Len64(uint64(room))-1) - 1); m != 0; m &= m - 1 {
		if x := c.sizes[bits.TrailingZeros64(m)].oldest(inSize); w == nil || x.before(w) {
			w = x
		}
	}
	return w
}

// newest is the waiter that arrived last.
func (c *class) newest() *waiter {
	var w *waiter
	for m := c.mask; m != 0; m &= m - 1 {
		if x := c.sizes[bits.TrailingZeros64(m)].newest(inSize); w == nil || w.before(x) {
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
