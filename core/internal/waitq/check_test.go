package waitq

import (
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"slices"
)

// check compares the queue with the model after an event; before is the length
// of the log ahead of it.
func (p *pair) check(before int) error {
	if got, want := p.log, p.m.log; !slices.Equal(got, want) {
		from := min(before, len(got), len(want))
		return fmt.Errorf("outcomes {request, outcome, charge}: queue %v, model %v", got[from:], want[from:])
	}
	if p.blind {
		return nil
	}
	if err := p.compare(); err != nil {
		return err
	}
	if err := checkStructure(p.q); err != nil {
		return fmt.Errorf("structure: %w", err)
	}
	return p.checkLaws(before)
}

func (p *pair) compare() error {
	q, m := p.q, p.m
	queued, held := int64(0), int64(0)
	for _, w := range m.waiters {
		queued, held = queued+w.cost, held+w.held
	}
	var d diff
	d.add("free", q.freeLocked(), m.free())
	d.add("leases", q.state.Load()&countMask, int64(len(m.leases)))
	d.add("waiting", int64(q.waiting), int64(len(m.waiters)))
	d.add("queued", q.queued, queued)
	d.add("held", q.held, held)
	d.add("turn", int64(firstOf(q.turnLocked(p.now))), int64(firstOf(m.turn(p.now))))
	for c := range Classes {
		d.where = []any{"class", c}
		if c < Classes-1 {
			d.add("debt", q.debt[c], m.debt[c])
		}
		if c > 0 {
			n := 0
			for _, l := range m.leases {
				if l.class == c {
					n++
				}
			}
			d.add("leases", q.classHeld[c].Load(), int64(n))
		}
		p.compareClass(&d, c)
	}
	return errors.Join(d.errs...)
}

// diff gathers what differs.
type diff struct {
	where []any
	errs  []error
}

func (d *diff) add(what string, queue, model int64) {
	if queue != model {
		d.errs = append(d.errs, fmt.Errorf("%v %s: %d in the queue, %d in the model", d.where, what, queue, model))
	}
}

// id is the number of a waiter's request, -1 for none.
func (p *pair) id(w *waiter) int64 {
	if id, ok := p.ids[w]; ok {
		return int64(id)
	}
	return -1
}

func (w *refWaiter) number() int64 {
	if w == nil {
		return -1
	}
	return int64(w.id)
}

func (p *pair) compareClass(d *diff, class int) {
	c := &p.q.classes[class]
	d.add("waiters", int64(c.n), int64(len(p.m.inClass(class))))
	d.add("virtual time", int64(c.v-p.base), p.m.v[class])
	d.add("pinned", p.id(c.pin), p.m.pin[class].number())
	if c.n > 0 {
		d.add("head", p.id(c.head()), p.m.head(class).number())
	}
	flows := 0
	for _, f := range p.m.flows {
		if f.class != class {
			continue
		}
		flows++
		g := c.flows[f.name]
		if g == nil {
			d.add("flow "+f.name, 0, 1)
			continue
		}
		d.where = []any{"class", class, "flow", f.name}
		d.add("start", int64(g.start-p.base), f.s)
		d.add("finish", int64(g.finish-p.base), f.f)
		d.add("weight", g.weight, f.weight)
		w := g.first
		for _, x := range p.m.waiters {
			if x.flow == f && w != nil {
				d.add("waiter", p.id(w), x.number())
				d.add("passes", int64(w.passes), int64(x.passes))
				w = w.fnext
			}
		}
	}
	d.add("flows", int64(len(c.flows)), int64(flows))
}

// checkLaws holds the queue to the laws without asking the model.
func (p *pair) checkLaws(before int) error {
	q := p.q
	used := int64(0)
	for _, l := range p.leases {
		used += l.charge
	}
	switch {
	case q.limit-q.freeLocked() != used:
		return fmt.Errorf("W10: in use is %d, the leases hold %d", q.limit-q.freeLocked(), used)
	case q.biased != (q.waiting > 0 || q.closed):
		return fmt.Errorf("the fast path is open %v with %d waiters", !q.biased, q.waiting)
	case !p.shrunk && q.waiting > q.maxWait:
		return fmt.Errorf("W11: %d wait, at most %d may", q.waiting, q.maxWait)
	case !p.shrunk && q.held > q.maxHeld:
		return fmt.Errorf("W11: waiters hold %d, at most %d may", q.held, q.maxHeld)
	}
	for _, e := range p.log[before:] {
		// Every grant of this event came with or after its change of the limit.
		if e.outcome == Granted && used > q.limit {
			return fmt.Errorf("W2: request %d was granted, in use is %d of %d", e.id, used, q.limit)
		}
	}
	if q.waiting > 0 && p.settled {
		if now := p.now; now-q.oldest.arrival >= q.timeout {
			return fmt.Errorf("request %d waits beyond its time", p.ids[q.oldest])
		}
		return p.checkWaiters()
	}
	return nil
}

// checkWaiters is W1 and W9: nobody waits who fits, unless a head that two grants
// have passed keeps its room.
func (p *pair) checkWaiters() error {
	q := p.q
	turn, _ := q.turnLocked(p.now)
	if turn < 0 || q.freeLocked() <= 0 {
		return nil
	}
	h := q.classes[turn].head()
	if h.passes > maxPasses {
		return fmt.Errorf("W9: %d grants passed request %d", h.passes, p.ids[h])
	}
	for w := q.oldest; w != nil; w = w.anext {
		// A waiter in the middle of the order fits with its cost rounded up.
		need := int64(1) << bits.Len64(uint64(w.cost-1))
		if w == h || w == q.classes[w.class].head() && w != h {
			need = min(w.cost, q.limit)
		}
		kept := w != h && h.passes == maxPasses
		if need <= q.freeLocked() && q.belowClassLimit(int(w.class)) && !kept {
			return fmt.Errorf("W1: request %d of cost %d waits at %d free", p.ids[w], w.cost, q.freeLocked())
		}
	}
	return nil
}

// checkStructure walks every list and heap of a queue.
func checkStructure(q *Queue) error {
	n, queued, held, seq := 0, int64(0), int64(0), uint64(0)
	var prev *waiter
	for w := q.oldest; w != nil; prev, w = w, w.anext {
		if w.aprev != prev || w.seq <= seq || !w.queued || prev != nil && w.arrival < prev.arrival {
			return fmt.Errorf("the list of arrivals at %d", w.seq)
		}
		n, queued, held, seq = n+1, queued+w.cost, held+w.held, w.seq
	}
	if q.newest != prev || n != q.waiting || queued != q.queued || held != q.held {
		return fmt.Errorf("sums over arrivals: %d waiters, cost %d, held %d", n, queued, held)
	}
	for i := range q.classes {
		m, err := q.classes[i].check(i)
		if err != nil {
			return fmt.Errorf("class %d: %w", i, err)
		}
		n -= m
	}
	if n != 0 {
		return fmt.Errorf("%d waiters more among arrivals than in the classes", n)
	}
	return nil
}

func (c *class) check(index int) (int, error) {
	n := 0
	for i, s := range c.heap.slots {
		f := c.heap.flows[s.number]
		m, err := f.check(index)
		switch {
		case err != nil:
			return 0, fmt.Errorf("flow %s: %w", f.name, err)
		case f.number != s.number || int(c.heap.at[s.number]) != i || s.finish != f.finish || s.seq != f.first.seq || c.flows[f.name] != f:
			return 0, fmt.Errorf("flow %s in the heap", f.name)
		case i > 0 && less(s, c.heap.slots[(i-1)/4]):
			return 0, fmt.Errorf("order of the heap at %d", i)
		}
		n += m
	}
	if n != c.n || len(c.flows) != c.heap.len() {
		return 0, fmt.Errorf("%d waiters in flows, %d in all, %d flows in the heap, %d in the map", n, c.n, c.heap.len(), len(c.flows))
	}
	if c.pin != nil && (c.pin.flow == nil || c.pin.flow.first != c.pin || int(c.pin.class) != index) {
		return 0, errors.New("the pinned waiter")
	}
	if c.last != nil && !slices.Contains(slices.Collect(maps.Values(c.flows)), c.last) {
		return 0, errors.New("the flow used last is gone")
	}
	for i, f := range c.byQueue {
		if f.byAt != i || c.flows[f.name] != f || i > 0 && c.byQueue.less(f, c.byQueue[(i-1)/2]) {
			return 0, fmt.Errorf("order of the heap by queue at %d", i)
		}
	}
	if c.byQueue != nil && len(c.byQueue) != c.heap.len() {
		return 0, errors.New("length of the heap by queue")
	}
	spares := 0
	for f := c.spare; f != nil; f = f.next {
		spares++
	}
	if spares != c.spares || spares > spareFlows {
		return 0, fmt.Errorf("%d spare flows, counted %d", spares, c.spares)
	}
	return n, c.checkSizes()
}

func (f *flow) check(class int) (n int, err error) {
	queued, seq := int64(0), uint64(0)
	var prev *waiter
	for w := f.first; w != nil; prev, w = w, w.fnext {
		if w.fprev != prev || w.flow != f || int(w.class) != class || w.seq <= seq {
			return 0, fmt.Errorf("waiter %d", w.seq)
		}
		n, queued, seq = n+1, queued+w.cost, w.seq
	}
	if f.last != prev || n == 0 || queued != f.queued {
		return 0, fmt.Errorf("%d waiters of cost %d", n, queued)
	}
	return n, nil
}

func (c *class) checkSizes() error {
	n := 0
	for b := range buckets {
		if c.sizes == nil {
			break
		}
		seq := uint64(0)
		var prev *waiter
		for w := c.sizes[b].first; w != nil; prev, w = w, w.bnext {
			rounded := int64(1) << w.bucket
			if w.bprev != prev || int(w.bucket) != b || w.cost > rounded || w.cost <= rounded/2 || w.seq <= seq {
				return fmt.Errorf("size list %d", b)
			}
			n, seq = n+1, w.seq
		}
		if c.sizes[b].last != prev || (c.mask>>b&1 == 1) != (prev != nil) {
			return fmt.Errorf("end or mask of size list %d", b)
		}
	}
	if n != c.n {
		return fmt.Errorf("%d waiters in size lists", n)
	}
	return nil
}

func firstOf(a, _ int) int { return a }
