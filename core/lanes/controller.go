package lanes

import (
	"context"
	"crypto/rand"
	randv2 "math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/internal/near"
	"github.com/headgate-go/headgate/core/internal/shedlog"
	"github.com/headgate-go/headgate/core/internal/waitq"
	"github.com/headgate-go/headgate/core/pressure"
)

// Controller is a [gate.Gate] over the cost that is in flight to one back end. Use New.
// All methods are safe for concurrent use.
type Controller struct {
	// What every request reads.
	set     atomic.Pointer[settings]
	look    atomic.Uint32 // asleep, wanting
	closed  atomic.Bool
	records records

	// Immutable after New.
	q       *waitq.Queue // cost
	exempt  *waitq.Queue // requests
	exempts sync.Pool    // of *lease
	secret  []byte       // of lane ids
	epoch   time.Time
	log     *shedlog.Log
	monitor *pressure.Monitor // nil = none
	unwatch func()            // ends what it tells

	lanes      table
	sheds      sheds
	costErrors atomic.Int64
	would      struct{ admit, queue, refuse atomic.Int64 }
	probes     struct{ asked, skipped, would, errors atomic.Int64 }
	timed      atomic.Int64  // requests timed in this window
	severity   atomic.Uint32 // a pressure.Severity, as last told
	limit      atomic.Int64  // the law's

	mu       sync.Mutex // guards what follows and serialises changes of set
	law      *law
	last     lastWindow
	timer    *time.Timer
	timerSet bool
}

// New returns a controller, or an error that names the field of c that is wrong. Close
// ends it.
func New(c Config) (*Controller, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	secret := make([]byte, 32)
	if _, err := rand.Read(secret); err != nil {
		return nil, err
	}
	s := derive(c)
	t := &Controller{epoch: time.Now(), secret: secret, monitor: c.Pressure, log: shedlog.New(c.Logger), unwatch: func() {}}
	t.set.Store(s)
	t.law = newLaw(s.law(), randv2.Float64)
	t.q = waitq.New(s.queue(t.law.limit))
	t.exempt = waitq.New(waitq.Config{Limit: int64(c.MaxExempt)})
	t.records.init(t)
	t.limit.Store(t.law.limit)
	t.restLocked(s) // nobody else has it yet
	if s.Mode != gate.Enforce {
		t.q.AdmitAll()
	}
	if c.Pressure != nil {
		t.unwatch = c.Pressure.Watch(func(s pressure.Severity, _ pressure.Ceiling) { t.pressed(s) })
	}
	return t, nil
}

// now is the controller's clock, in nanoseconds; never 0.
func (c *Controller) now() int64 { return int64(time.Since(c.epoch)) + 1 }

// Acquire takes what r costs in the lane of its tenant: r.Lane, else r.Flow, else the
// flow of ctx. It waits for room for MaxWait at most.
//
// The error is a *[gate.Rejection] with one of the reasons cost_exceeds_limit,
// tenant_queue_full, queue_full, queue_timeout, deadline, displaced, shutting_down, or
// canceled when the caller's context was canceled.
func (c *Controller) Acquire(ctx context.Context, r gate.Request) (gate.Lease, error) {
	s := c.set.Load()
	if !s.plain && (s.Mode != gate.Enforce || s.exempt[r.Path]) {
		return c.acquireAside(ctx, s, &r)
	}
	cost := r.Cost
	if cost <= 0 {
		cost = c.price(ctx, s, &r)
	}
	if c.look.Load() != 0 || cost > s.most || ctx.Err() != nil {
		return c.acquireSlow(ctx, s, &r, cost)
	}
	rec := &c.records.near[near.Index(0)]
	var ln *lane
	if s.VirtualLanes {
		ln = c.laneOf(ctx, s, &r, rec.lane.Load())
	}
	gen, taken := c.q.TryShared(&rec.Lease, cost)
	if !taken {
		return c.wait(ctx, s, &r, cost, c.records.get(c), c.hold(ln, s))
	}
	if gen == 0 {
		rec = c.records.another(c)
		gen = rec.Hold(c.q, 0, cost)
		ln = c.hold(ln, s)
	}
	if rec.lane.Load() != ln { // a load costs less than a store
		rec.lane.Store(ln)
	}
	return gate.NewLease(rec, gen), nil
}

// acquireSlow is Acquire for a request that may have to be timed or refused at once.
func (c *Controller) acquireSlow(ctx context.Context, s *settings, r *gate.Request, cost int64) (gate.Lease, error) {
	if cost > s.most {
		return gate.Lease{}, c.tooDear(ctx, s, r)
	}
	rec := c.records.get(c)
	c.begin(rec, ctx, s, r)
	ln := c.pin(ctx, s, r)
	// In its own class, so that the time it is held is known of that.
	if ctx.Err() == nil && c.q.TryAcquire(&rec.Lease, index(r.In(ctx).Class), cost) {
		return rec.admitted(ln), nil
	}
	return c.wait(ctx, s, r, cost, rec, ln)
}

// wait takes the cost for a request that found no room. Thousands of goroutines may be
// parked below it, so its frame is kept small.
func (c *Controller) wait(ctx context.Context, s *settings, r *gate.Request, cost int64, rec *lease, ln *lane) (gate.Lease, error) {
	w := waitq.Request{Cost: cost, Held: cost}
	complete(ctx, r, ln, &w)
	var res waitq.Result
	if ctx.Err() != nil {
		res.Outcome = waitq.Canceled
	} else {
		res = c.q.Wait(ctx, &rec.Lease, &w)
	}
	if res.Outcome == waitq.Granted {
		c.granted(rec)
		if charge := rec.Charge(); charge < cost {
			rec.alone.Store(charge)
		}
		return rec.admitted(ln), nil
	}
	return c.refused(ctx, s, r, &w, res, rec, ln)
}

// complete says who waits.
//
//go:noinline
func complete(ctx context.Context, r *gate.Request, ln *lane, w *waitq.Request) {
	in := r.In(ctx)
	w.Class, w.Weight = index(in.Class), in.Weight
	if ln != nil {
		w.Flow = ln.key
	} else {
		w.Flow = kept(tenantOf(&in))
	}
}

// index is the engine's number of a class; one that is unknown counts as default.
func index(c gate.Class) int {
	if i := c - gate.Interactive; i < waitq.Classes {
		return int(i)
	}
	return int(gate.Default - gate.Interactive)
}

// tenantOf is the key of r's lane; r is complete.
func tenantOf(r *gate.Request) string {
	if r.Lane != "" {
		return r.Lane
	}
	return r.Flow
}

// book admits r in shadow mode and counts what would have become of it.
func (c *Controller) book(ctx context.Context, s *settings, r *gate.Request, cost int64) (gate.Lease, error) {
	rec := c.records.get(c)
	c.begin(rec, ctx, s, r)
	ln := c.pin(ctx, s, r)
	w := waitq.Request{Cost: cost, Held: cost}
	complete(ctx, r, ln, &w)
	tooDear := cost > s.most
	if tooDear {
		w = waitq.Request{} // it holds nothing
	}
	o := c.q.Book(&rec.Lease, w)
	switch {
	case o == waitq.Closed:
		lease := rec.admitted(ln)
		rec.forget()
		lease.Release()
		return gate.Lease{}, c.shutDown()
	case tooDear:
		c.would.refuse.Add(1)
	case o == waitq.Granted:
		c.would.admit.Add(1)
	case o == waitq.Queued:
		rec.booked.Store(cost)
		c.would.queue.Add(1)
	default:
		c.would.refuse.Add(1)
	}
	return rec.admitted(ln), nil
}

// acquireAside admits what does not have to find room: everything in the modes that do not
// enforce, and exempt paths.
func (c *Controller) acquireAside(ctx context.Context, s *settings, r *gate.Request) (gate.Lease, error) {
	if s.Mode == gate.Shadow && !s.exempt[r.Path] {
		return c.book(ctx, s, r, c.price(ctx, s, r))
	}
	if c.closed.Load() {
		return gate.Lease{}, c.shutDown()
	}
	if s.Mode == gate.Off {
		return gate.Lease{}, nil
	}
	rec, _ := c.exempts.Get().(*lease)
	if rec == nil {
		rec = &lease{c: c, pooled: true, aside: true}
	}
	if s.Mode == gate.Shadow {
		if c.exempt.Book(&rec.Lease, waitq.Request{Cost: 1}) == waitq.Granted {
			c.would.admit.Add(1)
		} else {
			c.would.refuse.Add(1)
		}
		return rec.admitted(nil), nil
	}
	res := c.exempt.Acquire(ctx, &rec.Lease, waitq.Request{Cost: 1})
	if res.Outcome == waitq.Granted {
		return rec.admitted(nil), nil
	}
	c.exempts.Put(rec)
	return gate.Lease{}, c.exemptFull(ctx, s, res)
}

// Reconfigure replaces the configuration at once and whole. On an error, which names the
// wrong field, nothing has changed. The limit that was learned stays, within the new
// bounds; leases that are out stay good; waiters keep their place and are measured by
// the new MaxWait; when the new mode does not enforce, all are admitted. A smaller
// MaxLanes takes effect as new lanes come.
func (c *Controller) Reconfigure(cfg Config) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	next := derive(cfg)
	c.mu.Lock()
	defer c.mu.Unlock()
	last := c.set.Swap(next)
	c.log.Use(cfg.Logger)
	c.law.configure(next.law())
	if last.Mode == gate.Off {
		c.law.begin()
	}
	if c.timerSet && !c.closed.Load() && next.Window != last.Window {
		c.timer.Reset(next.Window) // if it fires just now, one window is short
	}
	c.limit.Store(c.law.limit)
	c.q.Reconfigure(next.queue(c.law.limit))
	c.exempt.SetLimit(int64(cfg.MaxExempt))
	if next.Mode != gate.Enforce {
		c.q.AdmitAll()
	}
	c.restLocked(next)
	return nil
}

// Close refuses everyone who waits and every later request, and stops the timer. Leases
// that are out stay good. Closing again does nothing.
func (c *Controller) Close() {
	c.closed.Store(true)
	c.unwatch()
	c.mu.Lock()
	if c.timer != nil {
		c.timer.Stop()
	}
	c.look.Store(0)
	c.mu.Unlock()
	c.q.Close()
	c.exempt.Close()
	c.log.Close()
}

// Drain waits, after Close, until every lease is back or ctx ends, and returns ctx's
// error in that case. Before Close it waits for that too.
func (c *Controller) Drain(ctx context.Context) error { return waitq.Drain(ctx, c.q, c.exempt) }
