package admission

import (
	"context"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/internal/near"
	"github.com/headgate-go/headgate/core/internal/shedlog"
	"github.com/headgate-go/headgate/core/internal/waitq"
	"github.com/headgate-go/headgate/core/pressure"
)

const (
	light = 0
	heavy = 1

	// quantum is what a body of unknown length is charged at the start and by
	// which it grows.
	quantum = 64 << 10
	// agingStep is the wait after which a heavy body ranks with light ones.
	agingStep = time.Second
	// refresh is how often the ceiling and the heap are read.
	refresh = time.Second
	// amplification is how many bytes of heap a body's byte may become; see the
	// package comment.
	amplification = 8
)

// Budget is a [gate.Gate] over the bytes of bodies in flight. Use New. All
// methods are safe for concurrent use.
type Budget struct {
	q       *waitq.Queue // bytes
	exempt  *waitq.Queue // requests
	decoded *waitq.Queue // bytes after decompression
	set     atomic.Pointer[settings]
	sheds   sheds
	log     *shedlog.Log
	heavies registry
	leases  records
	exempts sync.Pool // of *lease with exempt set

	pressure    *pressure.Monitor // nil = none
	unwatch     func()
	readCeiling func() pressure.Ceiling
	readHeap    func() uint64
	stop        chan struct{}
	stopped     chan struct{}
	closeOnce   sync.Once
	closed      atomic.Bool

	epoch    time.Time
	heap     atomic.Uint64 // live bytes when last read
	severity atomic.Uint32 // pressure.Severity as last told
	shadow   struct{ admit, queue, refuse atomic.Int64 }

	mu sync.Mutex // serialises changes of set
}

// settings are a Config with what is derived from it. They are never changed.
type settings struct {
	Config
	severity pressure.Severity
	ceiling  pressure.Ceiling
	limit    int64 // the budget
	source   pressure.Source
	heavies  int64 // the count cap as it is now, headroom included
	exempt   map[string]bool
	// plain is the longest declared length that needs no looking at: light, within
	// every bound, priced at its bytes. -1 = none.
	plain int64
}

// New returns a budget that is open, or an error that names the field of c that
// is wrong. It starts one goroutine, which Close ends.
func New(c Config) (*Budget, error) {
	if c.Pressure == nil {
		return open(c, pressure.CurrentCeiling, liveHeap)
	}
	b, err := open(c, c.Pressure.Ceiling, liveHeap)
	if err == nil {
		b.unwatch = c.Pressure.Watch(func(s pressure.Severity, _ pressure.Ceiling) { b.press(s) })
	}
	return b, err
}

func open(c Config, ceiling func() pressure.Ceiling, heap func() uint64) (*Budget, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	b := &Budget{
		pressure: c.Pressure, unwatch: func() {},
		readCeiling: ceiling, readHeap: heap,
		stop: make(chan struct{}), stopped: make(chan struct{}), epoch: time.Now(), log: shedlog.New(c.Logger),
	}
	b.leases.init(b)
	b.heap.Store(heap())
	s := derive(c, ceiling(), b.heap.Load(), pressure.Normal)
	b.set.Store(s)
	b.q = waitq.New(s.queue())
	b.exempt = waitq.New(waitq.Config{Limit: int64(c.MaxExempt)})
	b.decoded = waitq.New(waitq.Config{Limit: s.limit * amplification})
	go b.watch()
	return b, nil
}

// derive turns a Config into settings for a machine.
func derive(c Config, ceiling pressure.Ceiling, heap uint64, severity pressure.Severity) *settings {
	c.Exempt, c.Factors = slices.Clone(c.Exempt), slices.Clone(c.Factors) // the caller's may change
	c.Logger, c.Pressure = nil, nil                                       // the budget has them; settings are compared
	for i := range c.Factors {
		c.Factors[i].ContentType = strings.ToLower(c.Factors[i].ContentType)
	}
	s := &settings{Config: c, severity: severity, ceiling: ceiling, source: ceiling.Source}
	s.limit = ceiling.Bytes / 4 / amplification
	if c.MaxInflightBytes != Auto {
		s.limit, s.source = int64(c.MaxInflightBytes), pressure.SourceOverride
	}
	s.limit = min(max(s.limit, minBudget), maxBudget)
	s.heavies = waitq.Unlimited
	if c.MaxHeavyInFlight != Auto {
		s.heavies = int64(c.MaxHeavyInFlight)
		if healthy := float64(heap) < c.HeapShedRatio*float64(ceiling.Bytes); healthy {
			headroom := int64(c.HealthyHeadroom)
			if headroom == Auto {
				headroom = s.heavies
			}
			s.heavies += headroom
		}
	}
	if len(c.Exempt) > 0 {
		s.exempt = make(map[string]bool, len(c.Exempt))
		for _, p := range c.Exempt {
			s.exempt[p] = true
		}
	}
	s.plain = -1
	if c.Mode == gate.Enforce && len(c.Factors) == 0 {
		s.plain = min(int64(c.HeavyBytes)-1, int64(c.HardMaxBodyBytes), s.limit)
	}
	return s
}

func (s *settings) queue() waitq.Config {
	queued := int64(s.MaxQueuedBytes)
	if queued == Auto {
		queued = max(4<<20, s.limit/2)
	}
	return waitq.Config{
		Limit:      s.limit,
		ClassLimit: [waitq.Classes]int64{waitq.Unlimited, s.heavies, 0},
		Timeout:    s.wait(),
		AgingStep:  agingStep,
		MaxWaiters: s.MaxWaiters,
		MaxHeld:    queued,
	}
}

// price is what a request is charged before its body is read, and its class.
func (s *settings) price(n int64, factor float64) (cost int64, class int) {
	switch {
	case n == 0:
		return 0, light
	case n < 0: // it always fits: no factor is above 64, no budget under 128 quanta
		return scale(quantum, factor), heavy
	case n < int64(s.HeavyBytes):
		return scale(n, factor), light
	}
	return scale(n, factor), heavy
}

// scale is n bytes times factor, rounded up.
func scale(n int64, factor float64) int64 {
	if factor == 1 {
		return n
	}
	if f := math.Ceil(float64(n) * factor); f < math.MaxInt64 {
		return int64(f)
	}
	return math.MaxInt64
}

// Acquire admits a request by the length of its body, r.Bytes. It waits for room
// for QueueTimeout at most. The lease's Body reads the body within its charge.
//
// The error is a *[gate.Rejection] with one of the reasons payload_too_large,
// body_exceeds_budget, admission_busy, queue_timeout, deadline, displaced,
// resource_pressure, shutting_down, or canceled when the caller's context was canceled.
func (b *Budget) Acquire(ctx context.Context, r gate.Request) (gate.Lease, error) {
	s := b.set.Load()
	if r.Bytes < 0 || r.Bytes > s.plain || s.exempt != nil && s.exempt[r.Path] {
		return b.acquire(ctx, s, &r)
	}
	if ctx.Err() == nil {
		l := &b.leases.near[near.Index(0)]
		if gen, taken := b.q.TryShared(&l.Lease, r.Bytes); taken {
			if gen == 0 {
				l = b.leases.another(b)
				gen = l.Hold(b.q, light, r.Bytes)
			}
			if l.declared.Load() != r.Bytes { // a load costs less than a store
				l.declared.Store(r.Bytes)
			}
			return gate.NewLease(l, gen), nil
		}
	}
	return b.acquireSlow(ctx, s, b.lease(r.Bytes, 1), &r, light, r.Bytes)
}

// acquire is Acquire for requests that need looking at.
func (b *Budget) acquire(ctx context.Context, s *settings, r *gate.Request) (gate.Lease, error) {
	if s.Mode != gate.Enforce {
		return b.acquireAnyway(ctx, s, *r)
	}
	if s.exempts(r) {
		return b.acquireExempt(ctx, s, r.Bytes)
	}
	factor := s.factor(r)
	if rej := s.tooLarge(r.Bytes, factor); rej != nil {
		return gate.Lease{}, b.shed(rej, scale(r.Bytes, factor))
	}
	cost, class := s.price(r.Bytes, factor)
	if s.sheds(class) {
		return gate.Lease{}, b.pressed(ctx, class, cost)
	}
	l := b.lease(r.Bytes, factor)
	if ctx.Err() == nil && b.q.TryAcquire(&l.Lease, class, cost) {
		return b.admitted(l, class), nil
	}
	return b.acquireSlow(ctx, s, l, r, class, cost)
}

// acquireAnyway admits r in the modes that do not enforce, until Close.
func (b *Budget) acquireAnyway(ctx context.Context, s *settings, r gate.Request) (gate.Lease, error) {
	var l gate.Lease
	closed := b.closed.Load()
	if !closed && s.Mode == gate.Shadow {
		l, closed = b.book(ctx, s, r)
	}
	if closed {
		l.Release()
		return gate.Lease{}, b.reject(ctx, waitq.Result{Outcome: waitq.Closed}, &gate.Rejection{
			Advice: "this process is shutting down: another one may serve the request",
		}, light, 0)
	}
	return l, nil
}

// book admits r in shadow mode and counts what would have become of it. A body
// that could never fit holds nothing in the books. closed says that they are.
func (b *Budget) book(ctx context.Context, s *settings, r gate.Request) (_ gate.Lease, closed bool) {
	if s.exempts(&r) {
		l := b.exemptLease(r.Bytes)
		o := b.would(b.exempt.Book(&l.Lease, waitq.Request{Cost: 1, Weight: 1}))
		return gate.NewLease(l, l.Gen()), o == waitq.Closed
	}
	factor := s.factor(&r)
	l := b.lease(r.Bytes, factor)
	if s.tooLarge(r.Bytes, factor) != nil {
		b.shadow.refuse.Add(1)
		o := b.q.Book(&l.Lease, waitq.Request{Weight: 1})
		return b.admitted(l, light), o == waitq.Closed
	}
	cost, class := s.price(r.Bytes, factor)
	if s.sheds(class) {
		b.shadow.refuse.Add(1)
		o := b.q.Book(&l.Lease, waitq.Request{Weight: 1})
		return b.admitted(l, class), o == waitq.Closed
	}
	o := b.would(b.q.Book(&l.Lease, queued(r.In(ctx), class, cost)))
	return b.admitted(l, class), o == waitq.Closed
}

func (b *Budget) would(o waitq.Outcome) waitq.Outcome {
	switch o {
	case waitq.Closed:
	case waitq.Granted:
		b.shadow.admit.Add(1)
	case waitq.Queued:
		b.shadow.queue.Add(1)
	default:
		b.shadow.refuse.Add(1)
	}
	return o
}

// exempts reports whether r needs no room.
func (s *settings) exempts(r *gate.Request) bool {
	return s.exempt[r.Path] && r.Bytes >= 0 && r.Bytes < int64(s.HeavyBytes)
}

func queued(r gate.Request, class int, cost int64) waitq.Request {
	return waitq.Request{Class: class, Weight: r.Weight, Flow: r.Flow, Cost: cost, Held: max(r.Buffered, 0)}
}

// acquireSlow waits. Thousands of goroutines may be parked below it, so its frame is
// kept small: what it does not need while it waits is in functions of its own.
func (b *Budget) acquireSlow(ctx context.Context, s *settings, l *lease, r *gate.Request, class int, cost int64) (gate.Lease, error) {
	w := waitq.Request{Class: class, Weight: r.Weight, Flow: r.Flow, Cost: cost, Held: max(r.Buffered, 0)}
	if w.Weight == 0 || w.Flow == "" {
		complete(ctx, r, &w)
	}
	var res waitq.Result
	if cost == 0 || ctx.Err() != nil {
		res = b.q.Acquire(ctx, &l.Lease, w)
	} else {
		res = b.q.Wait(ctx, &l.Lease, &w)
	}
	if res.Outcome == waitq.Granted {
		return b.admitted(l, class), nil
	}
	return b.refused(ctx, s, l, r, class, cost, res)
}

// complete takes the flow and the weight from ctx.
//
//go:noinline
func complete(ctx context.Context, r *gate.Request, w *waitq.Request) {
	in := r.In(ctx)
	w.Weight, w.Flow = in.Weight, in.Flow
}

func (b *Budget) refused(ctx context.Context, s *settings, l *lease, r *gate.Request, class int, cost int64, res waitq.Result) (gate.Lease, error) {
	b.put(l)
	if now := b.set.Load(); now.Mode != gate.Enforce && res.Outcome != waitq.Canceled {
		return b.Acquire(ctx, *r) // the mode changed while r was on its way to the queue
	}
	if res.Outcome == waitq.Shed {
		return gate.Lease{}, b.reject(ctx, res, &gate.Rejection{Advice: pressedAdvice}, class, cost)
	}
	return gate.Lease{}, b.reject(ctx, res, &gate.Rejection{
		Limit: s.limit, Unit: unit,
		Advice: "raise MaxInflightBytes or QueueTimeout, or send fewer or smaller bodies at once",
	}, class, cost)
}

func (b *Budget) acquireExempt(ctx context.Context, s *settings, bytes int64) (gate.Lease, error) {
	l := b.exemptLease(bytes)
	res := b.exempt.Acquire(ctx, &l.Lease, waitq.Request{Cost: 1, Weight: 1})
	if res.Outcome == waitq.Granted {
		return gate.NewLease(l, l.Gen()), nil
	}
	b.put(l)
	if res.Outcome == waitq.TimedOut {
		res.Outcome = waitq.Full // they have no queue
	}
	return gate.Lease{}, b.reject(ctx, res, &gate.Rejection{
		Limit: int64(s.MaxExempt), Unit: "exempt requests",
		Advice: "raise MaxExempt, or call exempt paths less often",
	}, light, 0)
}

const (
	name = "admission"
	unit = "bytes"
)

// Close refuses everyone who waits and every later request, and ends the
// budget's goroutine. Leases that are out stay good. Closing again does nothing.
func (b *Budget) Close() {
	b.closeOnce.Do(func() {
		b.closed.Store(true)
		close(b.stop)
		b.unwatch()
	})
	<-b.stopped
	b.q.Close()
	b.exempt.Close()
	b.log.Close()
	// The decoded account stays open: requests that were admitted finish.
}

// Drain waits, after Close, until every lease is back or ctx ends, and returns
// ctx's error in that case. Before Close it waits for that too.
func (b *Budget) Drain(ctx context.Context) error { return waitq.Drain(ctx, b.q, b.exempt) }
