package inflight

import (
	"strings"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/internal/waitq"
)

// lane is one queue and what is counted beside it.
type lane struct {
	key   string
	limit *Limiter
	q     *waitq.Queue
	set   atomic.Pointer[laneConfig]

	number  int64       // among all lanes that were made
	spot    uint32      // of its records among those that stand ready
	dirty   atomic.Bool // a watcher has to look at it
	repeats atomic.Int64
	sheds   sheds
	retries atomic.Int64
	would   struct{ admit, queue, refuse atomic.Int64 }

	answers answers

	idle int   // sweeps in a row that have found it unused; Limiter.mu
	used int64 // requests that the last sweep knew of; Limiter.mu
}

// spelling is a lane and its key in the very text that its first caller had, as most
// often all of them have: that is seen without a look at the bytes. The text may be a
// part of something large, so there is only one in a limiter.
type spelling struct {
	asked string
	lane  *lane
	q     *waitq.Queue // lane's
	spot  uint         // lane's
}

func (ln *lane) spelled(asked string) *spelling {
	return &spelling{asked, ln, ln.q, uint(ln.spot)}
}

// find returns the lane for a key, which it makes if there is none.
func (l *Limiter) find(key string) *lane {
	if s := l.last.Load(); s != nil && s.lane.key == key {
		return s.lane
	}
	if ln, ok := l.lanes.Load(key); ok {
		return ln.(*lane)
	}
	return l.make(key)
}

// make returns the lane for a key that somebody asks for. When there are as many lanes
// as may be, an idle one makes way; if none is idle it is the overflow lane, which is
// also that of the key "other".
func (l *Limiter) make(asked string) *lane {
	key := canonical(asked)
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.makeLocked(key, asked)
}

func (l *Limiter) makeLocked(key, asked string) *lane {
	if ln, ok := l.lanes.Load(key); ok {
		return ln.(*lane)
	}
	if key == other || !l.roomLocked() {
		if l.over == nil {
			l.over = l.openLocked(other)
			l.lanes.Store(other, l.over)
		}
		return l.over
	}
	key = strings.Clone(key) // it may be a part of something large
	ln := l.openLocked(key)
	l.order = append(l.order, ln)
	l.lanes.Store(key, ln)
	if l.set.Load().Mode != gate.Shadow {
		if asked != key { // it may tell what the key does not
			asked = key
		}
		l.last.Store(ln.spelled(asked))
	}
	return ln
}

func (l *Limiter) openLocked(key string) *lane {
	lc := l.laneConfigLocked(key)
	l.opened++
	ln := &lane{key: key, limit: l, number: l.opened, spot: uint32(l.opened) * 37}
	ln.set.Store(lc)
	mode := l.set.Load().Mode
	ln.q = waitq.New(ln.queue(lc, mode))
	switch {
	case l.closed.Load():
		ln.q.Close()
	case mode != gate.Enforce || lc.off():
		ln.q.AdmitAll()
	}
	if l.sweeps == nil && !l.closed.Load() {
		l.sweeps = time.AfterFunc(sweepEvery, l.sweep)
	}
	return ln
}

// roomLocked makes room for one lane more, and reports whether there is any. Of more
// lanes than may be, as after a reload, it ends all that are idle.
func (l *Limiter) roomLocked() bool {
	most := l.set.Load().MaxLanes
	for len(l.order) >= most && l.evictLocked() {
	}
	return len(l.order) < most
}

// evictLocked ends one lane in which nothing is held and nobody waits, and reports
// whether there was one. A lane that the sweep has found idle goes first. One that is
// paused stays: the pause is not to be had by asking for other lanes. Lanes in use are
// only looked at, since a client that invents keys may make this run for each request.
func (l *Limiter) evictLocked() bool {
	idle := false
	for range l.order {
		l.hand = (l.hand + 1) % len(l.order)
		ln := l.order[l.hand]
		if !ln.q.Idle() {
			continue
		}
		if idle = true; ln.idle > 0 && ln.q.Retire() {
			l.removeLocked(l.hand)
			return true
		}
	}
	for i := 0; idle && i < len(l.order); i++ {
		l.hand = (l.hand + 1) % len(l.order)
		if ln := l.order[l.hand]; ln.q.Idle() && ln.q.Retire() {
			l.removeLocked(l.hand)
			return true
		}
	}
	return false
}

// removeLocked takes a lane whose queue is retired out of the table. What it has counted
// stays.
func (l *Limiter) removeLocked(i int) {
	ln := l.order[i]
	var last LaneSnapshot
	last.count(ln, ln.q.Snapshot(), ln.q.Totals())
	l.ended.add(&last)
	n := len(l.order) - 1
	l.order[i] = l.order[n]
	l.order[n] = nil
	l.order = l.order[:n]
	l.lanes.Delete(ln.key)
	if s := l.last.Load(); s != nil && s.lane == ln {
		l.last.Store(nil)
	}
}

func (l *Limiter) allLocked() []*lane {
	all := append([]*lane(nil), l.order...)
	if l.over != nil {
		all = append(all, l.over)
	}
	return all
}

// queue is the engine's configuration of a lane.
func (ln *lane) queue(c *laneConfig, mode gate.Mode) waitq.Config {
	q := waitq.Config{
		Units:      true,
		Limit:      int64(c.maxInflight),
		Reserve:    int64(c.reserve),
		ClassLimit: [waitq.Classes]int64{waitq.Unlimited, waitq.Unlimited, waitq.Unlimited},
		Timeout:    c.queueTimeout,
		AgingStep:  c.agingStep,
		MaxWaiters: c.maxQueue,
		TrackWaits: true,
		Owner:      ln,
	}
	if c.off() || mode == gate.Off {
		q.Limit, q.Reserve = waitq.MaxUnits, 0
	}
	return q
}

// Entered is called by whoever begins to wait.
func (ln *lane) Entered() {
	if ln.limit.watch.on.Load() {
		ln.limit.watch.changed(ln)
	}
}

// Shared yields the records that stand ready.
func (ln *lane) Shared(yield func(*waitq.Lease) bool) {
	ready := &ln.limit.records.near
	for i := range ready {
		if !yield(&ready[i].Lease) {
			return
		}
	}
}

// retried counts a retry of a call that the back end has had before. Others are counted
// too, but do not speak against it: a client's word for it may be made up, or be about a
// refusal of ours.
func (ln *lane) retried(class int) {
	ln.retries.Add(1)
	ln.answers.note(time.Now(), true, ln.q.Room(class))
}

// Periods of the sweep.
const (
	sweepEvery = 15 * time.Second
	idleAfter  = 5 * time.Minute
)

// sweep runs every 15 s while there are lanes: it moves their windows on, and takes
// from a lane that is idle for 5 minutes what it can do without. It runs on the
// timer's own goroutine.
func (l *Limiter) sweep() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed.Load() {
		return
	}
	for _, ln := range l.allLocked() {
		ln.q.Roll()
		s, used := ln.q.Snapshot(), ln.used
		ln.used = requests(s)
		if ln.idle++; ln.used != used || s.Leases > 0 || waiting(s) > 0 {
			ln.idle = 0
		}
		if ln.idle == int(idleAfter/sweepEvery) {
			ln.q.Trim()
			ln.answers.trim()
		}
	}
	l.sweeps.Reset(sweepEvery)
}

// requests is how many have asked for a slot.
func requests(s waitq.Snapshot) (n int64) {
	for c := range waitq.Classes {
		n += s.Immediate[c]
		for _, m := range s.Outcomes[c] {
			n += m
		}
	}
	return n
}

func waiting(s waitq.Snapshot) (n int) {
	for _, m := range s.Waiting {
		n += m
	}
	return n
}
