package waitq

import (
	"cmp"
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
	d.add("leases", q.leasesIn(q.state.Load()), int64(len(m.leases)))
	d.add("waiting", int64(q.waiting), int64(len(m.waiters)))
	d.add("queued", q.queued, queued)
	d.add("held", q.held, held)
	if len(m.waiters) > 0 {
		d.add("waiting since", q.since, m.since)
	}
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
			one, two := q.lowerLeases()
			d.add("leases", []int64{one, two}[c-1], int64(n))
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
		g := c.find(f.name)
		if g == nil {
			d.add("flow "+f.name, 0, 1)
			continue
		}
		d.where = []any{"class", class, "flow", f.name}
		d.add("start", int64(g.start-p.base), f.s)
		d.add("finish", int64(g.finish-p.base), f.f)
		d.add("weight", g.weight, f.weight)
		ws := inOrder(&g.waiters, inFlow)
		for _, x := range p.m.waiters {
			if x.flow == f && len(ws) > 0 {
				d.add("waiter", p.id(ws[0]), x.number())
				d.add("passes", int64(ws[0].passes), int64(x.passes))
				ws = ws[1:]
			}
		}
	}
	if c.shelf != nil || flows > 0 {
		d.add("flows", int64(len(c.flows)), int64(flows))
	}
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
	case q.biased != (q.waiting > 0 || q.closed || q.until != 0):
		return fmt.Errorf("the fast path is open %v with %d waiters", !q.biased, q.waiting)
	case !p.shrunk && q.waiting > q.maxWait:
		return fmt.Errorf("W11: %d wait, at most %d may", q.waiting, q.maxWait)
	case !p.shrunk && q.held > q.maxHeld:
		return fmt.Errorf("W11: waiters hold %d, at most %d may", q.held, q.maxHeld)
	}
	for name, f := range q.Flows() {
		if !p.shrunk && (q.flowWait > 0 && f.Waiting > q.flowWait || q.flowCost > 0 && f.Queued > q.flowCost) {
			return fmt.Errorf("W11: %d of flow %s wait at a cost of %d, at most %d of %d may", f.Waiting, name, f.Queued, q.flowWait, q.flowCost)
		}
	}
	lower := int64(0)
	for _, l := range p.leases {
		if l.class > 0 {
			lower++
		}
	}
	for _, e := range p.log[before:] {
		if e.outcome == Granted && p.now < p.until {
			return fmt.Errorf("request %d was granted in a pause", e.id)
		}
		if r := min(p.reserve, q.limit-1); e.outcome == Granted && r > 0 && lower > q.limit-r && p.waiters[e.id] != nil && p.waiters[e.id].class > 0 {
			return fmt.Errorf("request %d was granted, %d of the lower classes are out at limit %d and reserve %d", e.id, lower, q.limit, r)
		}
		// Every grant of this event came with or after its change of the limit.
		if e.outcome == Granted && used > q.limit {
			return fmt.Errorf("W2: request %d was granted, in use is %d of %d", e.id, used, q.limit)
		}
	}
	if q.waiting > 0 && p.settled {
		if w := q.all.oldest(inAll); p.now-w.arrival >= q.timeout {
			return fmt.Errorf("request %d waits beyond its time", p.ids[w])
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
	if turn < 0 || q.freeLocked() <= 0 || p.now < p.until {
		return nil
	}
	h := q.classes[turn].head()
	if h.passes > maxPasses {
		return fmt.Errorf("W9: %d grants passed request %d", h.passes, p.ids[h])
	}
	for _, w := range q.all.all(inAll) {
		// A waiter in the middle of the order fits with its cost rounded up.
		need := int64(1) << bits.Len64(uint64(w.cost-1))
		if w == h || w == q.classes[w.class].head() && w != h {
			need = min(w.cost, q.limit)
		}
		kept := w != h && h.passes == maxPasses
		if need <= q.freeLocked() && p.mayStart(int(w.class)) && !kept {
			return fmt.Errorf("W1: request %d of cost %d waits at %d free", p.ids[w], w.cost, q.freeLocked())
		}
	}
	return nil
}

// mayStart: by its leases, and those of both lower classes, the class may have one more.
func (p *pair) mayStart(class int) bool {
	own, lower := int64(0), int64(0)
	for _, l := range p.leases {
		if l.class == class {
			own++
		}
		if l.class > 0 {
			lower++
		}
	}
	r := min(p.reserve, p.q.limit-1)
	return class == 0 || own < p.m.classLimit[class] && (r <= 0 || lower < p.q.limit-r)
}

// checkStructure walks every list and heap of a queue.
func checkStructure(q *Queue) error {
	n, queued, held := 0, int64(0), int64(0)
	if err := q.all.check(inAll); err != nil {
		return fmt.Errorf("the list of arrivals: %w", err)
	}
	for _, w := range q.all.all(inAll) {
		if w.outcome != Queued {
			return fmt.Errorf("waiter %d has outcome %d", w.seq, w.outcome)
		}
		n, queued, held = n+1, queued+w.cost, held+w.held
	}
	if n != q.waiting || queued != q.queued || held != q.held {
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
	if c.shelf == nil {
		if c.n != 0 || c.mask != 0 || c.pin != nil {
			return 0, errors.New("waiters without a shelf")
		}
		return 0, nil
	}
	for i, s := range c.heap.slots {
		f := c.heap.flows[s.number]
		m, err := f.check(index)
		switch {
		case err != nil:
			return 0, fmt.Errorf("flow %s: %w", f.name, err)
		case int(c.heap.at[s.number]) != i || s != f.key() || c.flows[f.name] != f:
			return 0, fmt.Errorf("flow %s in the heap", f.name)
		case i > 0 && less(s, c.heap.slots[(i-1)/4]):
			return 0, fmt.Errorf("order of the heap at %d", i)
		}
		n += m
	}
	if n != c.n || len(c.flows) != c.heap.len() {
		return 0, fmt.Errorf("%d waiters in flows, %d in all, %d flows in the heap, %d in the map", n, c.n, c.heap.len(), len(c.flows))
	}
	if c.pin != nil && (c.pin.flow == nil || int(c.pin.class) != index) {
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
	if err := f.waiters.check(inFlow); err != nil {
		return 0, err
	}
	queued := int64(0)
	for _, w := range f.waiters.all(inFlow) {
		if w.flow != f || int(w.class) != class {
			return 0, fmt.Errorf("waiter %d", w.seq)
		}
		n, queued = n+1, queued+w.cost
	}
	if n == 0 || n != f.n || queued != f.queued || f.head != f.waiters.oldest(inFlow) {
		return 0, fmt.Errorf("%d waiters of cost %d", n, queued)
	}
	return n, nil
}

func (c *class) checkSizes() error {
	n := 0
	for b := range buckets {
		if err := c.sizes[b].check(inSize); err != nil {
			return fmt.Errorf("size list %d: %w", b, err)
		}
		for _, w := range c.sizes[b].all(inSize) {
			if rounded := int64(1) << w.bucket; int(w.bucket) != b || w.cost > rounded || w.cost <= rounded/2 {
				return fmt.Errorf("size list %d", b)
			}
			n++
		}
		if (c.mask>>b&1 == 1) == c.sizes[b].empty() {
			return fmt.Errorf("mask of size list %d", b)
		}
	}
	if n != c.n {
		return fmt.Errorf("%d waiters in size lists", n)
	}
	return nil
}

// check looks at every link of a list.
func (l *list) check(k kind) error {
	var prev *waiter
	for w := l.first; w != nil; prev, w = w, w.links[k].next {
		if w.links[k].prev != prev || w.late || prev != nil && !prev.before(w) {
			return fmt.Errorf("waiter %d in the chain", w.seq)
		}
	}
	if l.last != prev {
		return errors.New("the end of the chain")
	}
	if err := checkTree(l.late, k); err != nil {
		return err
	}
	ws := inOrder(l, k)
	if len(ws) > 0 && (l.oldest(k) != ws[0] || l.newest(k) != ws[len(ws)-1]) || l.empty() != (len(ws) == 0) {
		return errors.New("the oldest or the newest")
	}
	return nil
}

func checkTree(w *waiter, k kind) error {
	if w == nil {
		return nil
	}
	left, right := w.links[k].prev, w.links[k].next
	switch {
	case !w.late, left != nil && !left.before(w), right != nil && !w.before(right),
		left != nil && left.height() > w.height(), right != nil && right.height() > w.height():
		return fmt.Errorf("late waiter %d", w.seq)
	}
	return errors.Join(checkTree(left, k), checkTree(right, k))
}

// inOrder is the waiters of a list in the order that its two parts stand for.
func inOrder(l *list, k kind) []*waiter {
	ws := l.all(k)
	slices.SortFunc(ws, func(a, b *waiter) int {
		return cmp.Or(cmp.Compare(a.arrival, b.arrival), cmp.Compare(a.seq, b.seq))
	})
	return ws
}

func firstOf(a, _ int) int { return a }
