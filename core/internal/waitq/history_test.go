package waitq

import (
	"fmt"
	"time"
)

// tape is a history written as bytes. A tape that is used up reads 0.
type tape []byte

// next is a number from 0 to n-1, n at most 256.
func (t *tape) next(n int) int {
	if len(*t) == 0 {
		return 0
	}
	b := (*t)[0]
	*t = (*t)[1:]
	return int(b) % n
}

func pick[T any](t *tape, from ...T) T { return from[t.next(len(from))] }

// pair is the queue and its model side by side. The queue's clock is an
// argument, so no time passes but that of the history.
type pair struct {
	q       *Queue
	m       *ref
	now     int64
	tape    tape
	waiters []*waiter       // by request, nil = never came to the lock
	ids     map[*waiter]int // of those that wait
	leases  []lent
	log     []ended
	base    uint64 // where the queue's virtual times began
	weights []int64
	in      layout
	blind   bool // compares outcomes alone
	trace   func(format string, args ...any)

	settled bool  // the last event ended with a dispatch
	shrunk  bool  // the bounds are below what is there
	until   int64 // end of the pause
	reserve int64
}

type lent struct {
	id, class int
	charge    int64
}

func readConfig(t *tape) Config {
	return Config{
		Limit:      int64(1 + t.next(16)),
		ClassLimit: [Classes]int64{0, pick[int64](t, Unlimited, Unlimited, 1, 2, 4), pick[int64](t, Unlimited, Unlimited, 0, 1, 3)},
		Reserve:    pick[int64](t, 0, 0, 0, 1, 2, 6, 100),
		Timeout:    time.Duration(pick(t, 0, 25, 60, 60, 120, 120, 400, 400, 400, 1000)),
		AgingStep:  time.Duration(pick(t, 0, 5, 15, 15, 50)),
		MaxWaiters: pick(t, 0, 2, 4, 8, 8, 16, 16, 32, 32, 64),
		MaxHeld:    int64(pick(t, 2, 12, 30, 1000, 1000, 1000)),

		FlowWaiters: pick(t, 0, 0, 0, 1, 2, 5),
		FlowQueued:  pick[int64](t, 0, 0, 0, 8, 20, 60),
	}
}

// layout is what costs there are, and how the queue keeps count.
type layout string

const (
	costs layout = "any costs"
	ones  layout = "costs of 1"
	units layout = "units"
)

// newPair reads the configuration from the head of the tape.
func newPair(data []byte, r rules, in layout) *pair {
	p := &pair{tape: data, now: 1, m: &ref{rules: r}, ids: make(map[*waiter]int), in: in}
	c := readConfig(&p.tape)
	c.Units = in == units
	p.q = New(c)
	noTimer(p.q) // the history says when it fires
	p.base = pick(&p.tape, 0, 0, ^uint64(0)-3<<tagScale, 1<<63-3<<tagScale)
	for i := range p.q.classes {
		p.q.classes[i].v = p.base
	}
	flows := 1 + p.tape.next(6)
	if p.tape.next(4) == 0 {
		flows *= 8 // enough for a heap of some levels
	}
	for range flows {
		p.weights = append(p.weights, int64(pick(&p.tape, 1, 1, 1, 2, 3, 7)))
	}
	p.m.configure(c)
	p.reserve = c.Reserve
	return p
}

func (m *ref) configure(c Config) {
	m.limit, m.classLimit, m.reserve = c.Limit, c.ClassLimit, c.Reserve
	m.timeout, m.step = int64(c.Timeout), int64(c.AgingStep)
	m.maxWaiters, m.maxHeld = c.MaxWaiters, c.MaxHeld
	m.flowWait, m.flowCost = c.FlowWaiters, c.FlowQueued
}

// what tells what an event did. Most are never read, so they are put in words late.
type what struct {
	format string
	args   []any
}

func note(format string, args ...any) what { return what{format, args} }

func (w what) String() string { return fmt.Sprintf(w.format, w.args...) }

// run plays the tape and returns the first difference, nil if there is none.
func (p *pair) run() error {
	for n := 1; len(p.tape) > 0; n++ {
		before := len(p.log)
		did := p.event()
		if p.trace != nil {
			p.trace("%3d at %d: %s -> %v", n, p.now, did, p.log[before:])
		}
		if err := p.check(before); err != nil {
			return fmt.Errorf("event %d, %s, at %d: %w", n, did, p.now, err)
		}
	}
	before := len(p.log)
	p.settled = true
	did := p.end()
	if err := p.check(before); err != nil {
		return fmt.Errorf("at the end, %s: %w", did, err)
	}
	return nil
}

func (p *pair) event() what {
	switch e := p.tape.next(64); {
	case e < 28:
		return p.arrive()
	case e < 44:
		return p.release()
	case e < 47:
		return p.cancel()
	case e < 53:
		return p.advance()
	case e < 56:
		return p.resize()
	case e < 62:
		return p.configure()
	default:
		d := int64(1 + p.tape.next(20)) // the timer is late
		p.now += d
		p.settled = false
		return note("%d pass without a timer", d)
	}
}

// locked runs f as a method of the queue would, and takes down the outcomes.
func (p *pair) locked(f func(q *Queue)) {
	p.q.mu.Lock()
	f(p.q)
	l := p.q.takeWokenLocked()
	p.q.mu.Unlock()
	var ends []*waiter
	for w := l.first; w != nil; w = w.links[woken].next {
		ends = append(ends, w)
	}
	for i := len(ends) - 1; i >= 0; i-- { // the last outcome is the first of the list
		p.ended(p.ids[ends[i]], int(ends[i].class), ends[i].outcome, ends[i].charge)
		delete(p.ids, ends[i])
		ends[i].links[woken].next = nil
	}
	p.settled = true
}

func (p *pair) ended(id, class int, o Outcome, charge int64) {
	if o == Granted {
		p.leases = append(p.leases, lent{id, class, charge})
	}
	p.log = append(p.log, ended{id, o, charge})
}

func (p *pair) arrive() what {
	t := &p.tape
	flow := t.next(len(p.weights))
	r := request{
		class:    t.next(Classes),
		flow:     string(rune('A' + flow)),
		weight:   p.weights[flow],
		cost:     int64(1 + t.next(16)),
		held:     int64(pick(t, 0, 0, 1, 3, 9)),
		deadline: pick(t, never, never, never, never, never, never, p.now+12, p.now+40, p.now+100, p.now),
		arrived:  pick(t, never, never, never, never, p.now-2, p.now-11, p.now-30, p.now-30, p.now-90, p.now-350, p.now+5, 0),
	}
	switch { // the last two costs are others
	case r.cost == 15:
		r.cost = pick[int64](t, 20, 33, 1000, MaxLimit)
	case r.cost == 16:
		r.weight = int64(pick(t, 1, 2, 5, 1000)) // and the flow has it from now on
		r.cost = int64(1 + t.next(5))
	}
	if p.in != costs {
		r.cost = 1
	}
	id := len(p.waiters)
	var l Lease
	if p.q.TryAcquire(&l, r.class, r.cost) {
		p.waiters = append(p.waiters, nil)
		p.ended(id, r.class, Granted, charge(l.held.Load()))
		p.settled = true
	} else {
		w := p.q.getWaiter(Request{Class: r.class, Weight: int(r.weight), Flow: r.flow, Cost: r.cost, Held: r.held})
		w.deadline, w.arrival = r.deadline, r.arrived
		p.waiters, p.ids[w] = append(p.waiters, w), id
		p.locked(func(q *Queue) { q.enterLocked(w, r.flow, p.now) })
		// A refusal at the door dispatches for nobody.
		p.settled = w.outcome == Queued || w.outcome == Granted
	}
	p.m.arrive(r, p.now)
	return note("request %d %+v", id, r)
}

func (p *pair) release() what {
	if len(p.leases) == 0 {
		return note("nothing")
	}
	i := p.tape.next(min(len(p.leases), 256))
	l := p.leases[i]
	p.leases = append(p.leases[:i], p.leases[i+1:]...)
	held := p.q.pack(l.class, l.charge)
	if p.q.give(held) < 0 {
		p.locked(func(q *Queue) { q.releasedLocked(held, 0, p.now) })
	}
	p.m.release(l.id, l.charge, p.now, true)
	return note("release of %d", l.id)
}

func (p *pair) cancel() what {
	if len(p.m.waiters) == 0 {
		return note("nothing")
	}
	id := p.m.waiters[p.tape.next(min(len(p.m.waiters), 256))].id
	w := p.waiters[id]
	p.locked(func(q *Queue) {
		q.removeLocked(w, Canceled, p.now)
		q.settleLocked(p.now)
	})
	p.m.cancel(id, p.now)
	return note("%d leaves", id)
}

// advance lets time pass; the timer fires whenever somebody's time or a pause is over.
func (p *pair) advance() what {
	d := int64(pick(&p.tape, 1, 2, 3, 5, 10, 10, 15, 30, 60, 200))
	to := p.now + d
	for {
		at := int64(never)
		if len(p.m.waiters) > 0 {
			at = p.m.waiters[0].arrival + p.m.timeout
		}
		if p.m.until != 0 {
			at = min(at, p.m.until)
		}
		if at > to {
			break
		}
		p.now = max(p.now, at)
		if !p.m.rules.expireExact || !p.m.rules.pauseExact {
			p.now++
		}
		p.settle()
	}
	if to > p.now {
		p.now, p.settled = to, false
	}
	return note("%d pass", d)
}

func (p *pair) settle() {
	p.locked(func(q *Queue) { q.settleLocked(p.now) })
	p.m.settle(p.now)
}

// resize changes a lease.
func (p *pair) resize() what {
	if len(p.leases) == 0 {
		return note("nothing")
	}
	l := &p.leases[p.tape.next(min(len(p.leases), 256))]
	n := int64(1 + p.tape.next(6))
	grows := p.tape.next(2) == 1
	if p.in != costs {
		return note("nothing: a unit is a unit")
	}
	if !grows {
		n = min(n, l.charge)
		l.charge -= n
		if p.q.state.Add(n<<countBits) < 0 {
			p.locked(func(q *Queue) { q.settleLocked(p.now) })
		}
		p.m.release(l.id, n, p.now, false)
		return note("%d gives back %d", l.id, n)
	}
	id, room := l.id, p.q.freeLocked() >= n
	if p.q.state.Add(-(n << countBits)); room {
		l.charge += n
	} else {
		p.q.state.Add(n << countBits)
		p.locked(func(q *Queue) { q.settleLocked(p.now) })
	}
	if got := p.m.grow(id, n, p.now); got != room {
		return note("DIFFERENCE: growth of %d by %d is %v in the queue, %v in the model", id, n, room, got)
	}
	return note("%d grows by %d: %v", id, n, room)
}

func (p *pair) configure() what {
	t := &p.tape
	var did what
	switch class := 1 + t.next(Classes-1); t.next(11) {
	case 0, 1, 2:
		n := int64(1 + t.next(16))
		p.q.setLimitLocked(n)
		p.m.limit, did = n, note("limit %d", n)
	case 3:
		n := pick[int64](t, 0, 1, 2, 3, 5, Unlimited)
		p.q.capClassLocked(class, n)
		p.m.classLimit[class], did = n, note("limit of class %d: %d", class, n)
	case 4:
		n := int64(pick(t, 0, 10, 40, 40, 100, 500, 500, 500))
		p.q.timeout, p.m.timeout = n, n
		did = note("timeout %d", n)
	case 5:
		class = t.next(Classes)
		for p.q.classes[class].n > 0 {
			p.locked(func(q *Queue) { q.removeLocked(q.classes[class].newest(), Shed, p.now) })
		}
		p.locked(func(q *Queue) { q.settleLocked(p.now) })
		p.m.shed(class, p.now)
		return note("class %d is shed", class)
	case 6:
		class, n := t.next(Classes), int64(pick(t, 0, 3, 3, 12))
		p.q.stats.measured().typ[class], p.m.typical[class] = n, n
		return note("typical hold of class %d: %d", class, n)
	case 8, 9:
		at := p.now + int64(pick(t, -1, 0, 1, 5, 20, 20, 60, 150))
		p.q.pauseLocked(at, p.now)
		p.m.pause(at, p.now)
		p.until = max(p.until, at)
		return note("pause until %d", at)
	case 10:
		p.q.endPauseLocked()
		p.m.until, p.until = 0, 0
		did = note("the pause ends")
	case 7:
		c := readConfig(t)
		p.q.configureLocked(c)
		p.q.setLimitLocked(c.Limit)
		p.m.configure(c)
		p.reserve = c.Reserve
		did, p.shrunk = note("%+v", c), true
	}
	p.settle()
	return did
}

// end lets everybody go in the order of service, or closes the queue.
func (p *pair) end() what {
	if len(p.m.waiters)%4 == 1 {
		p.q.Close()
		for _, w := range p.m.waiters {
			p.ended(w.id, w.class, p.waiters[w.id].outcome, 0)
		}
		p.ids = make(map[*waiter]int)
		for len(p.m.waiters) > 0 {
			p.m.remove(p.m.waiters[0], Closed)
		}
		return note("close")
	}
	for i := 1; i < Classes; i++ {
		p.q.capClassLocked(i, Unlimited)
		p.m.classLimit[i] = Unlimited
	}
	p.q.timeout, p.m.timeout = 1<<40, 1<<40
	p.q.reserve, p.m.reserve, p.reserve = 0, 0, 0
	p.q.boundLowerLocked()
	p.q.endPauseLocked()
	p.m.until, p.until = 0, 0
	p.settle()
	// Room grows by one, so that passes and kept room have their part in it.
	for n := max(p.m.limit, 1); len(p.m.waiters) > 0; n = min(n+1+n/8, MaxLimit) {
		p.q.setLimitLocked(n)
		p.m.limit = n
		p.settle()
		if n == MaxLimit {
			break // huge costs may need more than there is: the model says so too
		}
	}
	p.shrunk = true
	return note("room for everybody")
}
