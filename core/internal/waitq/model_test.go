package waitq

import (
	"cmp"
	"math/bits"
	"slices"
)

// ref is the queue as the package comment tells it, in the plainest form there
// is: one slice of waiters in order of arrival, searched from end to end. It
// shares no code with the queue. The rules are values, so that a test can break
// one at a time; see TestMutants.
type ref struct {
	rules rules

	limit      int64
	classLimit [Classes]int64
	reserve    int64
	until      int64 // end of the pause, 0 = none
	since      int64 // since when somebody has been waiting
	timeout    int64
	step       int64
	maxWaiters int
	maxHeld    int64
	flowWait   int
	flowCost   int64
	typical    [Classes]int64

	next    int // number of the next request
	waiters []*refWaiter
	flows   []*refFlow
	leases  []*refLease
	v       [Classes]int64
	pin     [Classes]*refWaiter
	kept    [Classes]int64 // since when the pinned one keeps higher classes waiting; 0 = not
	debt    [Classes]int64
	log     []ended
}

// ended is how one request ended.
type ended struct {
	id      int
	outcome Outcome
	charge  int64 // what it holds, if it was granted; its position, if it was displaced or timed out
}

type refLease struct {
	id, class int
	charge    int64
}

type refWaiter struct {
	id, class int
	flow      *refFlow
	cost      int64
	held      int64
	arrival   int64
	entered   int64
	deadline  int64
	passes    int
	tag       int64 // only for the mutant that makes tags on arrival
}

type refFlow struct {
	class  int
	name   string
	weight int64 // of its latest request
	s, f   int64
	born   int // number of its first waiter
}

func (m *ref) free() int64 {
	free := m.limit
	for _, l := range m.leases {
		free -= l.charge
	}
	return free
}

func (m *ref) charge(cost int64) int64 {
	if m.rules.capCharge {
		return min(cost, m.limit)
	}
	return cost
}

// atLimit reports whether the class has as many leases out as it may.
func (m *ref) atLimit(class int) bool {
	if class == 0 {
		return false
	}
	own, lower := int64(0), int64(0)
	for _, l := range m.leases {
		if l.class == class {
			own++
		}
		if l.class > 0 || !m.rules.reserveLower {
			lower++
		}
	}
	reserve := min(m.reserve, m.limit-1)
	if !m.rules.reserveClamped {
		reserve = min(m.reserve, m.limit)
	}
	return m.rules.classLimits && own >= m.classLimit[class] ||
		m.rules.reserves && reserve > 0 && lower >= m.limit-reserve
}

// of returns the waiters that keep passes, in order of arrival.
func (m *ref) of(keep func(*refWaiter) bool) []*refWaiter {
	var ws []*refWaiter
	for _, w := range m.waiters {
		if keep(w) {
			ws = append(ws, w)
		}
	}
	return ws
}

func (m *ref) inClass(c int) []*refWaiter {
	return m.of(func(w *refWaiter) bool { return w.class == c })
}

// first is the waiter of a flow that goes first, nil if it has none.
func (m *ref) first(f *refFlow) *refWaiter {
	var first *refWaiter
	for _, w := range m.waiters {
		if w.flow == f && (first == nil || !m.rules.fifo || !m.rules.ticketInFlow && w.id < first.id) {
			first = w
		}
	}
	return first
}

// stands: the class waits and is not left out.
func (m *ref) stands(c int) bool {
	return slices.ContainsFunc(m.waiters, func(w *refWaiter) bool { return w.class == c }) && !m.atLimit(c)
}

// turn is the class of the head of the order, -1 if there is none, and the highest
// that stands.
func (m *ref) turn(now int64) (turn, top int) {
	for top < Classes && !m.stands(top) {
		top++
	}
	if top == Classes {
		return -1, -1
	}
	for c := Classes - 1; c > top && m.step > 0; c-- {
		if m.stands(c) && m.aged(m.inClass(c)[0], c-top, now) && !m.owes(top, c) {
			return c, top
		}
	}
	return top, top
}

// aged: w has waited a step for each of the ranks.
func (m *ref) aged(w *refWaiter, ranks int, now int64) bool {
	if !m.rules.rankPerStep {
		ranks = 1
	}
	since := w.arrival
	if !m.rules.ticketAges {
		since = w.entered
	}
	return m.step > 0 && now >= since+int64(ranks)*m.step
}

func (m *ref) owes(top, c int) bool {
	for b := top; b < c; b++ {
		if m.stands(b) && m.debt[b] > 0 && (m.rules.everyBoundary || b == top) {
			return true
		}
	}
	return false
}

// fair is the first waiter of the flow with the smallest finish tag.
func (m *ref) fair(class int) *refWaiter {
	var best *refWaiter
	for _, f := range m.flows {
		if f.class != class {
			continue
		}
		w := m.first(f)
		older := best != nil && (w.arrival < best.arrival || w.arrival == best.arrival && w.id < best.id)
		if !m.rules.ticketInTie {
			older = best != nil && w.id < best.id
		}
		if !m.rules.olderInTie {
			older = !older
		}
		if best == nil || f.f < best.flow.f || f.f == best.flow.f && older {
			best = w
		}
	}
	return best
}

func (m *ref) head(class int) *refWaiter {
	if p := m.pin[class]; p != nil && m.rules.pins {
		return p
	}
	return m.fair(class)
}

func (m *ref) fits(w *refWaiter) bool { return m.charge(w.cost) <= m.free() }

// passer is who may pass h.
func (m *ref) passer(h *refWaiter) *refWaiter {
	order := []int{0, 1, 2}
	if !m.rules.highestPasses {
		slices.Reverse(order)
	}
	for _, c := range order {
		if !m.stands(c) {
			continue
		}
		first := m.head(c)
		if first == h {
			first = m.fair(c)
		}
		if first != h && m.fits(first) {
			return first
		}
		for _, w := range m.inClass(c) {
			cost := w.cost
			if m.rules.roundUp {
				cost = 1 << bits.Len64(uint64(cost-1))
			}
			if cost <= m.free() && (m.rules.middle || m.first(w.flow) == w) {
				return w
			}
		}
	}
	return nil
}

// dispatch grants whom the rules let in.
func (m *ref) dispatch(now int64) {
	for len(m.waiters) > 0 && !m.paused() && (m.free() > 0 || !m.rules.pinWithRoom) {
		for c := range m.kept {
			if !m.stands(c) && m.rules.keepStanding {
				m.kept[c] = 0
			}
		}
		turn, top := m.turn(now)
		if turn < 0 {
			return
		}
		if turn == top {
			m.kept[turn] = 0
		}
		h := m.head(turn)
		switch {
		case m.rules.askAtTurn && m.hopeless(h.class, h.deadline, now):
			m.remove(h, Hopeless)
			continue
		case m.fits(h):
			m.grant(h, true)
			continue
		}
		m.pin[turn] = h
		if turn > top {
			if m.kept[turn] == 0 {
				m.kept[turn] = now
			}
			if now >= m.kept[turn]+2*m.step && m.rules.turnsLapse {
				m.kept[turn] = 0
				for b := range turn {
					if m.stands(b) {
						m.debt[b] += m.rules.share * m.charge(h.cost)
					}
				}
				continue
			}
		}
		if h.passes >= m.rules.passes {
			return
		}
		p := m.passer(h)
		switch {
		case p == nil:
			return
		case m.rules.askAtTurn && m.hopeless(p.class, p.deadline, now):
			m.remove(p, Hopeless)
		default:
			m.grant(p, false)
			h.passes++
		}
	}
}

func (m *ref) hopeless(class int, deadline, now int64) bool {
	if deadline == never || !m.rules.hopeless {
		return false
	}
	if !m.rules.deadlineExact && deadline == now && m.typical[class] == 0 {
		return false
	}
	return deadline <= now || deadline < now+m.typical[class]
}

func (m *ref) grant(w *refWaiter, inOrder bool) {
	charge := m.charge(w.cost)
	for b := range w.class {
		if (inOrder || !m.rules.passesAreFree) && m.step > 0 && (m.stands(b) || !m.rules.debtToStanding) {
			m.debt[b] += m.rules.share * charge
		}
	}
	if w.class < Classes-1 && m.rules.repay {
		m.debt[w.class] -= charge
		if m.rules.noCredit {
			m.debt[w.class] = max(m.debt[w.class], 0)
		}
	}
	if inOrder || m.rules.passesCharge {
		w.flow.s += m.over(w.cost, w.flow)
	}
	m.take(w, true, inOrder || m.rules.passesMoveV)
	m.start(w.id, w.class, charge)
}

func (m *ref) start(id, class int, charge int64) {
	m.leases = append(m.leases, &refLease{id, class, charge})
	m.log = append(m.log, ended{id, Granted, charge})
}

func (m *ref) remove(w *refWaiter, o Outcome) {
	position := int64(0)
	if o == TimedOut || o == Displaced {
		position = m.position(w)
	}
	m.take(w, false, false)
	m.log = append(m.log, ended{w.id, o, position})
}

// over is a cost over a flow's weight in tag units, rounded down.
func (m *ref) over(cost int64, f *refFlow) int64 {
	if !m.rules.weights {
		return cost << tagScale
	}
	return cost << tagScale / f.weight
}

// take takes w from the queue and keeps the tags.
func (m *ref) take(w *refWaiter, granted, inOrder bool) {
	f := w.flow
	first := m.first(f) == w
	m.waiters = slices.DeleteFunc(m.waiters, func(x *refWaiter) bool { return x == w })
	if m.pin[w.class] == w {
		m.pin[w.class], m.kept[w.class] = nil, 0
	}
	next := m.first(f)
	if inOrder && m.rules.orderMovesV || next == nil && m.rules.leaverMovesV {
		m.v[f.class] = max(m.v[f.class], f.s)
	}
	switch {
	case next == nil:
		m.flows = slices.DeleteFunc(m.flows, func(x *refFlow) bool { return x == f })
	case !m.rules.tagsAtHead:
		f.f = next.tag
	case granted || first:
		f.f = f.s + m.over(next.cost, f)
	}
}

// insert puts a newcomer where its arrival belongs.
func (m *ref) insert(id int, r request, now int64) *refWaiter {
	i := slices.IndexFunc(m.flows, func(f *refFlow) bool { return f.class == r.class && f.name == r.flow })
	if i < 0 {
		f := &refFlow{class: r.class, name: r.flow, born: id}
		if m.rules.startAtV {
			f.s = m.v[r.class]
		}
		i, m.flows = len(m.flows), append(m.flows, f)
	}
	f := m.flows[i]
	f.weight = r.weight
	w := &refWaiter{id: id, class: r.class, flow: f, cost: r.cost, held: r.held, arrival: min(r.arrived, now), entered: now, deadline: r.deadline, passes: r.passes}
	w.tag = f.s + m.over(r.cost, f)
	for _, x := range m.waiters {
		if x.flow == f {
			w.tag = x.tag + m.over(r.cost, f)
		}
	}
	if !m.rules.tickets {
		w.arrival = now
	}
	if len(m.waiters) == 0 {
		m.since = now
	}
	m.waiters = append(m.waiters, w)
	slices.SortStableFunc(m.waiters, func(a, b *refWaiter) int { return cmp.Compare(a.arrival, b.arrival) })
	if m.first(f) == w {
		f.f = f.s + m.over(r.cost, f)
	}
	return w
}
