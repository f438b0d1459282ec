package waitq

// paused: nothing may be granted.
func (m *ref) paused() bool { return m.until != 0 && m.rules.pauses }

// thaw ends a pause that is over.
func (m *ref) thaw(now int64) bool {
	if m.until == 0 || now < m.until || now == m.until && !m.rules.pauseExact {
		return false
	}
	m.until = 0
	return true
}

func (m *ref) pause(until, now int64) {
	if until <= now || until <= m.until && m.rules.pauseGrows {
		return
	}
	m.until = until
	if m.rules.pauseKeeps {
		m.kept = [Classes]int64{}
	}
}

// position is the place of w in the order: one more than the waiters of higher
// classes, those that go before it in its own flow, and one for each other flow of
// its class whose turn comes before that of its own.
func (m *ref) position(w *refWaiter) int64 {
	n := int64(1)
	for _, x := range m.waiters {
		if x.class < w.class && m.rules.placeAbove || x.class > w.class && !m.rules.placeBelow {
			n++
		}
	}
	pin := m.pin[w.class]
	if !m.rules.placePin {
		pin = nil
	}
	if pin == w {
		return n
	}
	for _, x := range m.waiters {
		if x == w {
			break
		}
		if x.flow == w.flow && x != pin && m.rules.placeOwn {
			n++
		}
	}
	if pin != nil && pin.flow == w.flow {
		n++
	}
	for _, f := range m.flows {
		if f == w.flow || f.class != w.class {
			continue
		}
		if m.turnBefore(f, w.flow) || !m.rules.placeFlows || pin != nil && pin.flow == f {
			n++
		}
	}
	return n
}

// turnBefore: f has the smaller finish tag, or the older first waiter.
func (m *ref) turnBefore(f, g *refFlow) bool {
	a, b := m.first(f), m.first(g)
	if f.f != g.f {
		return f.f < g.f
	}
	return a.arrival < b.arrival || a.arrival == b.arrival && a.id < b.id
}
