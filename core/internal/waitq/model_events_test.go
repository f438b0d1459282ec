package waitq

import "slices"

// request is what an arrival asks for.
type request struct {
	class    int
	flow     string
	weight   int64
	cost     int64
	held     int64
	deadline int64
	arrived  int64 // when it came for the first time, never = now
	passes   int   // grants that passed it before it had its place
}

// rules are the choices that the package comment makes. Each one is on, or has
// its number, in theRules.
type rules struct {
	passes int   // grants that may pass a head
	share  int64 // what an aged grant owes for each unit of cost

	fifo, pins, pinWithRoom, olderInTie                            bool
	tagsAtHead, startAtV, leaverMovesV, orderMovesV, weights       bool
	passesCharge, passesAreFree, passesMoveV                       bool
	highestPasses, roundUp, middle                                 bool
	capCharge, classLimits                                         bool
	rankPerStep, everyBoundary, debtToStanding, repay, noCredit    bool
	forgive                                                        bool
	hopeless, askOnArrival, askAtTurn, deadlineExact               bool
	expireExact, expireFirst                                       bool
	newest, lowestGivesWay, agedStay, ownQueued, ownCost, strictly bool
	agedCompete, turnsLapse                                        bool
	flowWait, flowCost, flowClasses, flowFirst, flowAgedStay       bool
	flowGivesWay, flowFull                                         bool
	longestFlow, perWeight, boundHeld, onePlace, ownFlowStays      bool
	atOnce                                                         bool
	reserves, reserveClamped, reserveLower, keepStanding           bool
	tickets, ticketInFlow, ticketAges, ticketInTie, ticketExpires  bool
	ticketNewest, ticketAtOnce                                     bool
	pauses, pauseExact, pauseGrows, pauseKeeps                     bool
	placeAbove, placeBelow, placeOwn, placeFlows, placePin         bool
}

func theRules() rules {
	return rules{
		passes: 2, share: 3,
		fifo: true, pins: true, pinWithRoom: true, olderInTie: true,
		tagsAtHead: true, startAtV: true, leaverMovesV: true, orderMovesV: true, weights: true,
		passesCharge: true, passesAreFree: true, passesMoveV: false,
		highestPasses: true, roundUp: true, middle: true,
		capCharge: true, classLimits: true,
		rankPerStep: true, everyBoundary: true, debtToStanding: true, repay: true, noCredit: true,
		forgive:  true,
		hopeless: true, askOnArrival: true, askAtTurn: true, deadlineExact: true,
		expireExact: true, expireFirst: true,
		agedCompete: true, turnsLapse: true,
		newest: true, lowestGivesWay: true, agedStay: true, ownQueued: true, ownCost: true, strictly: true,
		longestFlow: true, perWeight: true, boundHeld: true, onePlace: true, ownFlowStays: true, atOnce: true,
		flowWait: true, flowCost: true, flowClasses: true, flowFirst: true, flowAgedStay: true,
		flowGivesWay: true, flowFull: true,
		reserves: true, reserveClamped: true, reserveLower: true, keepStanding: true,
		tickets: true, ticketInFlow: true, ticketAges: true, ticketInTie: true, ticketExpires: true,
		ticketNewest: true, ticketAtOnce: true,
		pauses: true, pauseExact: true, pauseGrows: true, pauseKeeps: true,
		placeAbove: true, placeBelow: true, placeOwn: true, placeFlows: true, placePin: true,
	}
}

// arrive is one request.
func (m *ref) arrive(r request, now int64) {
	id := m.next
	m.next++
	if len(m.waiters) == 0 && !m.paused() && r.cost <= m.free() && !m.atLimit(r.class) {
		m.start(id, r.class, r.cost)
		return
	}
	if m.rules.askOnArrival && m.hopeless(r.class, r.deadline, now) {
		m.refuse(id, Hopeless)
		return
	}
	thawed := m.thaw(now)
	if m.rules.expireFirst && m.expire(now) || thawed {
		m.dispatch(now)
	}
	switch over := m.isOver(min(r.arrived, now), now, now); {
	case len(m.waiters) == 0 && !m.paused() && m.charge(r.cost) <= m.free() && !m.atLimit(r.class):
		m.start(id, r.class, m.charge(r.cost))
	case (!m.hasPlace(r, m.waiters) && m.rules.atOnce || over && m.rules.ticketAtOnce) && m.startsAtOnce(id, &r, now):
	case over:
		m.timesOut(id, r, now)
	case !m.place(r, now):
		if m.flowFits(r, m.waiters) || !m.rules.flowFull {
			m.refuse(id, Full)
		} else {
			m.refuse(id, FlowFull)
		}
	default:
		m.insert(id, r, now)
		m.dispatch(now)
	}
	m.settled()
}

// startsAtOnce grants r, for which there is no place in the queue, if it is the
// one to be granted once it stands in the queue.
func (m *ref) startsAtOnce(id int, r *request, now int64) bool {
	if m.paused() || m.charge(r.cost) > m.free() || m.atLimit(r.class) {
		return false
	}
	var w *refWaiter
	if m.visits(id, *r, now, func(x *refWaiter) { w = x; m.dispatch(now) }) {
		return true
	}
	r.passes = w.passes
	return false
}

// visits lets r stand in the queue while f runs. It takes no place: if it is there
// still, it leaves without a trace. visits reports whether it was granted.
func (m *ref) visits(id int, r request, now int64, f func(w *refWaiter)) bool {
	var own *refFlow
	var before refFlow
	var head *refWaiter
	for _, f := range m.flows {
		if f.class == r.class && f.name == r.flow {
			own, before, head = f, *f, m.first(f)
			r.weight = f.weight // until it has its own place
		}
	}
	w := m.insert(id, r, now)
	f(w)
	if !slices.Contains(m.waiters, w) {
		return true
	}
	m.take(w, false, false)
	if own != nil && m.first(own) == head && own.s == before.s {
		own.f = before.f
	}
	return false
}

// timesOut refuses a ticket whose time is over, with the position that it would
// have had.
func (m *ref) timesOut(id int, r request, now int64) {
	var position int64
	m.visits(id, r, now, func(w *refWaiter) { position = m.position(w) })
	m.log = append(m.log, ended{id, TimedOut, position})
}

func (m *ref) refuse(id int, o Outcome) { m.log = append(m.log, ended{id, o, 0}) }

// place makes room in the queue for r, at the cost of at most one other.
func (m *ref) place(r request, now int64) bool {
	if m.hasPlace(r, m.waiters) {
		return true
	}
	for range Classes * 100 {
		v := m.victim(r, now)
		if v == nil {
			return false
		}
		others := m.of(func(w *refWaiter) bool { return w != v })
		enough := m.hasPlace(r, others)
		if !enough && m.rules.onePlace {
			return false
		}
		m.remove(v, Displaced)
		if enough {
			return true
		}
	}
	return false
}

func (m *ref) hasPlace(r request, others []*refWaiter) bool {
	held := r.held
	for _, w := range others {
		held += w.held
	}
	return len(others) < m.maxWaiters && (held <= m.maxHeld || !m.rules.boundHeld) && m.flowFits(r, others)
}

// flowFits: the bounds of r's own flow leave a place for it.
func (m *ref) flowFits(r request, others []*refWaiter) bool {
	n, cost := 1, r.cost
	for _, w := range others {
		if w.flow.name == r.flow && (w.class == r.class || m.rules.flowClasses) {
			n, cost = n+1, cost+w.cost
		}
	}
	return (m.flowWait == 0 || n <= m.flowWait || !m.rules.flowWait) &&
		(m.flowCost == 0 || cost <= m.flowCost || !m.rules.flowCost)
}

// victim is who gives way to r.
func (m *ref) victim(r request, now int64) *refWaiter {
	lower := []int{2, 1, 0}[:Classes-1-r.class]
	if !m.rules.lowestGivesWay {
		slices.Reverse(lower)
	}
	own := !m.flowFits(r, m.waiters) && m.rules.flowFirst
	for _, c := range lower {
		ws := m.inClass(c)
		if own {
			ws = m.of(func(w *refWaiter) bool { return w.class == c && w.flow.name == r.flow })
		}
		if own && len(ws) > 0 {
			if v := m.last(ws); m.rules.flowGivesWay && (!m.aged(v, c-r.class, now) || !m.rules.flowAgedStay) {
				return v
			}
		} else if len(ws) > 0 {
			if v := m.last(ws); !m.aged(v, c-r.class, now) || !m.rules.agedStay {
				return v
			}
		}
	}
	if own {
		return nil
	}
	mine := r.cost
	if !m.rules.ownCost {
		mine = 0
	}
	for _, f := range m.flows {
		if f.class == r.class && f.name == r.flow && m.rules.ownQueued {
			mine += m.queued(f)
		}
	}
	for c := r.class; c < Classes; c++ {
		if c > r.class && !m.rules.agedCompete {
			break
		}
		var most *refFlow
		for _, f := range m.flows {
			if f.class == c && (most == nil || m.moreQueued(f, most)) {
				most = f
			}
		}
		if most == nil || most.name == r.flow && m.rules.ownFlowStays {
			continue
		}
		a, b := m.queued(most)*r.weight, mine*most.weight
		if !m.rules.perWeight {
			a, b = m.queued(most), mine
		}
		if a > b || a == b && !m.rules.strictly {
			return m.last(m.of(func(w *refWaiter) bool { return w.flow == most }))
		}
	}
	return nil
}

func (m *ref) last(ws []*refWaiter) *refWaiter {
	if !m.rules.newest {
		return ws[0]
	}
	if !m.rules.ticketNewest {
		return slices.MaxFunc(ws, func(a, b *refWaiter) int { return a.id - b.id })
	}
	return ws[len(ws)-1]
}

// moreQueued: a has more queued cost per weight than b, or as much and is older.
func (m *ref) moreQueued(a, b *refFlow) bool {
	x, y := m.queued(a)*b.weight, m.queued(b)*a.weight
	if !m.rules.perWeight {
		x, y = m.queued(a), m.queued(b)
	}
	if !m.rules.longestFlow {
		x, y = y, x
	}
	return x > y || x == y && a.born < b.born
}

func (m *ref) queued(f *refFlow) int64 {
	n := int64(0)
	for _, w := range m.waiters {
		if w.flow == f {
			n += w.cost
		}
	}
	return n
}

// expire refuses those whose time is over.
func (m *ref) expire(now int64) bool {
	over := m.of(func(w *refWaiter) bool { return m.isOver(w.arrival, w.entered, now) })
	for _, w := range over {
		m.remove(w, TimedOut)
	}
	return len(over) > 0
}

// isOver: the time of who arrived and entered then is over.
func (m *ref) isOver(arrived, entered, now int64) bool {
	if !m.rules.ticketExpires {
		arrived = entered
	}
	return now > arrived+m.timeout || now == arrived+m.timeout && m.rules.expireExact
}

// settle is what follows every change but an arrival.
func (m *ref) settle(now int64) {
	m.thaw(now)
	m.expire(now)
	m.dispatch(now)
	m.settled()
}

// settled: with the queue, its debts are gone.
func (m *ref) settled() {
	if len(m.waiters) == 0 && m.rules.forgive {
		m.debt = [Classes]int64{}
	}
}

func (m *ref) cancel(id int, now int64) {
	for _, w := range m.waiters {
		if w.id == id {
			m.remove(w, Canceled)
			break
		}
	}
	m.settle(now)
}

// release ends a lease; by is the part of it that goes back, all of it for a
// release, less for a shrink.
func (m *ref) release(id int, by, now int64, all bool) {
	for _, l := range m.leases {
		if l.id == id {
			l.charge -= by
		}
	}
	if all {
		m.leases = slices.DeleteFunc(m.leases, func(l *refLease) bool { return l.id == id })
	}
	m.settle(now)
}

// grow adds to a lease and reports whether there was room.
func (m *ref) grow(id int, by, now int64) bool {
	if m.free() < by {
		m.settle(now)
		return false
	}
	for _, l := range m.leases {
		if l.id == id {
			l.charge += by
		}
	}
	return true
}

func (m *ref) shed(class int, now int64) {
	ws := m.inClass(class)
	slices.Reverse(ws)
	for _, w := range ws {
		m.remove(w, Shed)
	}
	m.settle(now)
}
