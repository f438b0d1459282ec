package inflight

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/internal/near"
	"github.com/headgate-go/headgate/core/internal/shedlog"
	"github.com/headgate-go/headgate/core/internal/waitq"
)

// Limiter is a [gate.Gate] over the calls that are in flight, by lane. Use New.
// All methods are safe for concurrent use.
type Limiter struct {
	// What every call reads.
	set     atomic.Pointer[Config]
	last    atomic.Pointer[spelling] // the lane made last; most processes have one busy one. Nil in shadow mode
	lanes   sync.Map                 // key -> *lane
	closed  atomic.Bool
	records records

	log   *shedlog.Log
	watch watch

	mu     sync.Mutex     // serialises changes of the lanes and the settings
	order  []*lane        // all lanes but the overflow, to look for an idle one
	hand   int            // where in order the search for an idle lane goes on
	opened int64          // how many lanes have been made
	ended  LaneSnapshot   // what the lanes that are no more have counted
	over   *lane          // the overflow lane, once there is one
	manual map[string]int // limits from SetLimit
	plain  *laneConfig    // of lanes of which nothing is said
	sweeps *time.Timer    // nil until there is a lane
}

// New returns a limiter without lanes, or an error that names the field of c that
// is wrong. Close ends it.
func New(c Config) (*Limiter, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	l := &Limiter{manual: make(map[string]int), log: shedlog.New(c.Logger)}
	l.records.init(l)
	l.useLocked(c.clone()) // nobody else has it yet
	return l, nil
}

// Acquire takes a slot of the lane r.Lane, in the class of r or of ctx, and waits
// for it if it must. A request is one slot whatever its Cost; an unknown class
// counts as default. Where [Limiter.Do] has waited for that lane above, its slot is
// handed on, if nobody has it yet.
//
// The error is a *[gate.Rejection] with one of the reasons queue_full,
// queue_timeout, displaced, shutting_down, deadline (the context's, or too near to
// finish), or canceled when the caller's context was canceled.
func (l *Limiter) Acquire(ctx context.Context, r gate.Request) (gate.Lease, error) {
	c, t := gate.Inherited(ctx)
	if r.Class != 0 {
		c = r.Class
	}
	class := index(c)
	if t != nil || r.Retry {
		return l.acquire(ctx, t, &r, class)
	}
	if ctx.Err() != nil {
		return l.wait(ctx, nil, &r, class)
	}
	var q *waitq.Queue
	var spot uint
	if s := l.last.Load(); s != nil && near.Same(s.asked, r.Lane) {
		q, spot = s.q, s.spot
	} else if l.set.Load().Mode != gate.Shadow {
		ln := l.find(r.Lane)
		q, spot = ln.q, uint(ln.spot)
	} else {
		return l.wait(ctx, nil, &r, class)
	}
	rec := &l.records.near[near.Index(spot+uint(class)<<4)]
	gen, taken := q.TryUnit(&rec.Lease, class)
	if !taken {
		return l.wait(ctx, nil, &r, class)
	}
	if gen == 0 {
		rec, gen = l.records.fill(l, q, class, rec)
	}
	if l.watch.on.Load() {
		l.watch.changed(q.Owner().(*lane))
	}
	return gate.NewLease(rec, gen), nil
}

// acquire takes a slot for a request that may be part of a call, t, and of which
// something may have to be counted.
func (l *Limiter) acquire(ctx context.Context, t any, r *gate.Request, class int) (gate.Lease, error) {
	if c, ok := t.(*call); ok {
		return l.acquireCall(ctx, c, r, class)
	}
	if r.Retry {
		l.find(r.Lane).retries.Add(1)
	}
	return l.wait(ctx, nil, r, class)
}

// wait takes a slot for a request that has ticket t, or nil, the long way. Thousands
// of goroutines may be parked below it.
func (l *Limiter) wait(ctx context.Context, t *ticket, r *gate.Request, class int) (gate.Lease, error) {
	for {
		ln := l.find(r.Lane)
		rec := l.records.get(l)
		w := waitq.Request{Class: class, Cost: 1}
		complete(ctx, t, r, &w)
		if l.set.Load().Mode == gate.Shadow {
			return l.book(ln, rec, w)
		}
		res := ln.q.Acquire(ctx, &rec.Lease, w)
		if l.watch.on.Load() {
			l.watch.changed(ln)
		}
		if res.Outcome == waitq.Granted {
			return gate.NewLease(rec, rec.Gen()), nil
		}
		l.records.rest.Put(rec)
		if !l.retry(res.Outcome) {
			return gate.Lease{}, ln.reject(ctx, t, class, res)
		}
		l.await()
	}
}

// retry reports whether a refusal holds no more: the lane made way for another one,
// or the limits were switched off.
func (l *Limiter) retry(o waitq.Outcome) bool {
	if o == waitq.Closed {
		return !l.closed.Load()
	}
	return o != waitq.Canceled && l.set.Load().Mode != gate.Enforce
}

// await lets the change of the lanes or the settings that has overtaken a request come
// to its end. To ask again before that would only keep a processor from it.
func (l *Limiter) await() {
	l.mu.Lock()
	defer l.mu.Unlock()
}

// complete takes from r, the context and the ticket what matters to whoever waits.
//
//go:noinline
func complete(ctx context.Context, t *ticket, r *gate.Request, w *waitq.Request) {
	w.Flow, w.Weight = r.Flow, r.Weight
	if w.Flow == "" || w.Weight == 0 {
		in := r.In(ctx)
		w.Flow, w.Weight = in.Flow, in.Weight
	}
	if t != nil {
		w.Arrived = t.arrival()
	}
}

// book admits a request in shadow mode and counts what would have become of it.
func (l *Limiter) book(ln *lane, rec *lease, w waitq.Request) (gate.Lease, error) {
	o := ln.q.Book(&rec.Lease, w)
	for o == waitq.Closed {
		gate.NewLease(rec, rec.Gen()).Release()
		if l.closed.Load() {
			return gate.Lease{}, ln.reject(context.Background(), nil, w.Class, waitq.Result{Outcome: o})
		}
		l.await()
		ln, rec = l.find(ln.key), l.records.get(l)
		o = ln.q.Book(&rec.Lease, w)
	}
	switch o {
	case waitq.Granted:
		ln.would.admit.Add(1)
	case waitq.Queued:
		ln.would.queue.Add(1)
	default:
		ln.would.refuse.Add(1)
	}
	if l.watch.on.Load() {
		l.watch.changed(ln)
	}
	return gate.NewLease(rec, rec.Gen()), nil
}

// index is the engine's number of a class; one that is not set or unknown counts as
// default.
func index(c gate.Class) int {
	if i := c - gate.Interactive; i < waitq.Classes {
		return int(i)
	}
	return int(gate.Default - gate.Interactive)
}

// classOf is index's inverse.
func classOf(i int) gate.Class { return gate.Class(i) + gate.Interactive }

// Reconfigure replaces the configuration at once and whole, in every lane. On an
// error, which names the wrong field, nothing has changed; what is equal changes
// nothing. Slots that are held are never revoked; waiters keep their place, and
// wait until their arrival plus the new QueueTimeout. Limits that SetLimit has set
// stay. A smaller MaxLanes takes effect with the next new lane.
func (l *Limiter) Reconfigure(c Config) error {
	if err := c.Validate(); err != nil {
		return err
	}
	l.log.Use(c.Logger)
	c = c.clone()
	l.mu.Lock()
	defer l.mu.Unlock()
	if reflect.DeepEqual(l.set.Load(), &c) {
		return nil
	}
	l.useLocked(c)
	for _, ln := range l.allLocked() {
		l.applyLocked(ln)
	}
	return nil
}

// Inherit makes SetLimit undo what it has set.
const Inherit = -1

// SetLimit sets the number of slots of one lane, whether or not it exists yet,
// until it is called with [Inherit]. It wins over the configuration and outlives
// Reconfigure. 0 switches the lane's limit off, as MaxInflight 0 does. It takes
// effect like a reload; what is set already changes nothing. An n out of range, or a limit for more than MaxLanes lanes,
// is an error and changes nothing.
func (l *Limiter) SetLimit(lane string, n int) error {
	if n < Inherit || n > most {
		return fail("SetLimit", n, fmt.Sprintf("want 0 to %d, or Inherit (-1)", most))
	}
	key := canonical(lane)
	l.mu.Lock()
	defer l.mu.Unlock()
	was, known := l.manual[key]
	switch {
	case n == Inherit && !known, known && n == was:
		return nil // a watcher may say the same each time
	case n == Inherit:
		delete(l.manual, key)
	case !known && len(l.manual) >= l.set.Load().MaxLanes:
		return fail("SetLimit", n, "limits are set for MaxLanes lanes already: undo one with Inherit")
	default:
		l.manual[key] = n
	}
	for _, ln := range l.allLocked() {
		if ln.key == key {
			l.applyLocked(ln)
		}
	}
	return nil
}

// maxPause is the longest that Pause keeps a lane.
const maxPause = 60 * time.Second

// Pause lets the lane grant nothing for d, 60 s at most: its back end has asked for
// that. Callers wait within their own bounds. Of two pauses the one that ends later
// counts. It does nothing to a lane without a limit, or while limits are not
// enforced, or where d is not above 0; and it ends when the limit or its enforcement
// does.
func (l *Limiter) Pause(lane string, d time.Duration) {
	key := canonical(lane)
	l.mu.Lock() // a reload must not come between the look and the pause
	defer l.mu.Unlock()
	if d > 0 && l.set.Load().Mode == gate.Enforce && !l.laneConfigLocked(key).off() {
		l.makeLocked(key, key).q.Pause(time.Now().Add(min(d, maxPause)))
	}
}

// applyLocked puts what the settings say of a lane in force.
func (l *Limiter) applyLocked(ln *lane) {
	c := l.set.Load()
	lc := l.laneConfigLocked(ln.key)
	ln.set.Store(lc)
	ln.q.Reconfigure(ln.queue(lc, c.Mode))
	if c.Mode != gate.Enforce || lc.off() {
		ln.q.Resume()
		ln.q.AdmitAll()
	}
	l.watch.changed(ln)
}

// laneConfigLocked is what a lane goes by. Lanes of which nothing is said share one.
func (l *Limiter) laneConfigLocked(key string) *laneConfig {
	c := l.set.Load()
	o, said := c.Lanes[key]
	if n, ok := l.manual[key]; ok {
		o.MaxInflight, said = &n, true
	}
	if !said {
		return l.plain
	}
	lc := c.lane(o)
	return &lc
}

// useLocked makes c, which is a copy of its own, the settings.
func (l *Limiter) useLocked(c Config) {
	plain := c.lane(Override{})
	l.plain = &plain
	l.set.Store(&c)
	if c.Mode == gate.Shadow {
		l.last.Store(nil)
	} else if n := len(l.order); n > 0 {
		l.last.Store(l.order[n-1].spelled(l.order[n-1].key))
	}
}

// Close refuses everyone who waits and every later caller, in every lane, and ends
// what Watch started. Slots that are held stay good. Closing again does nothing.
func (l *Limiter) Close() {
	l.closed.Store(true)
	l.mu.Lock()
	if l.sweeps != nil {
		l.sweeps.Stop()
	}
	all := l.allLocked()
	l.mu.Unlock()
	for _, ln := range all {
		ln.q.Close()
	}
	l.watch.close()
	l.log.Close()
}

// Drain waits until every slot is back or ctx ends, and returns ctx's error in that
// case. It is for after Close: before it, it waits for that too where there are lanes,
// and knows nothing of those that are made meanwhile.
func (l *Limiter) Drain(ctx context.Context) error {
	l.mu.Lock()
	all := l.allLocked()
	l.mu.Unlock()
	queues := make([]*waitq.Queue, len(all))
	for i, ln := range all {
		queues[i] = ln.q
	}
	return waitq.Drain(ctx, queues...)
}
