package lanes

import (
	"context"
	"crypto/sha256"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/headgate-go/headgate/core/gate"
)

// lane is what is known of one tenant. Its queue is a flow of the controller's.
type lane struct {
	key string // the tenant's, as kept keeps it
	// refs counts requests that wait, or whose lease is not one of the ready records,
	// which tell themselves; below 0 = evicted.
	refs  atomic.Int64
	skips atomic.Int64 // targets that probes skipped
	used  atomic.Bool  // since the hand last came by
}

// evicted is added to the requests of a lane when it is evicted.
const evicted = -1 << 62

const (
	// mostLooks is how many lanes a newcomer looks at for one that makes way, so that a full
	// table in which all are in use costs it no look at each. The next newcomer goes on
	// where it has stopped.
	mostLooks = 32
	// maxKey is the longest tenant's key that is kept as it is.
	maxKey = 128
	// reserved begins the flow of the overflow lane, and digests: no tenant's key that is
	// kept as it is begins like it.
	reserved  = "\xff"
	overflow  = "overflow"
	anonymous = "anonymous"
)

// kept is a tenant's key as it is kept: a client may have made it.
func kept(key string) string {
	if len(key) <= maxKey && !strings.HasPrefix(key, reserved) {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return reserved + string(sum[:]) // or a client could name itself as another's digest
}

// table is the lanes that there are.
type table struct {
	lanes     sync.Map     // kept key -> *lane
	anonymous atomic.Int64 // requests without a tenant
	spilled   atomic.Int64 // requests that went to the overflow lane

	mu    sync.Mutex
	order []*lane // all lanes but the overflow
	hand  int     // where in order the search for an idle one goes on
	over  *lane   // the overflow lane, once there is one
}

// tenant is the key of r's lane as it is kept.
func (c *Controller) tenant(ctx context.Context, r *gate.Request) string {
	key := r.Lane
	if key == "" {
		if key = r.Flow; key == "" {
			key, _ = gate.FlowOf(ctx)
		}
	}
	if key == "" {
		c.lanes.anonymous.Add(1)
	}
	return kept(key)
}

// laneOf returns the lane of r's tenant, which most often is the one that had the record
// before. It may be evicted before r is admitted: then what r holds is not reported, and
// that is all, since what waits stands in a flow of its key.
func (c *Controller) laneOf(ctx context.Context, s *settings, r *gate.Request, last *lane) *lane {
	key := c.tenant(ctx, r)
	ln := last
	if ln == nil || ln.key != key || ln.refs.Load() < 0 {
		ln = c.lanes.find(c, key, s.MaxLanes)
	}
	ln.use()
	return ln
}

// pin returns the lane of r's tenant, nil where there are none. r is counted in it from
// now on, and whoever gets it takes 1 from its refs when r is over.
func (c *Controller) pin(ctx context.Context, s *settings, r *gate.Request) *lane {
	if !s.VirtualLanes {
		return nil
	}
	return c.lanes.pin(c, c.tenant(ctx, r), s.MaxLanes)
}

// hold is pin for a lane that laneOf has found, or nil.
func (c *Controller) hold(ln *lane, s *settings) *lane {
	if ln == nil || ln.refs.Add(1) > 0 {
		return ln
	}
	ln.refs.Add(-1)
	return c.lanes.pin(c, ln.key, s.MaxLanes)
}

// use notes that somebody has used the lane. A load costs less than a store.
func (ln *lane) use() {
	if !ln.used.Load() {
		ln.used.Store(true)
	}
}

func (t *table) pin(c *Controller, key string, most int) *lane {
	for {
		ln := t.find(c, key, most)
		if ln.refs.Add(1) > 0 {
			ln.use()
			return ln
		}
		ln.refs.Add(-1)
		runtime.Gosched() // whoever evicts it is about to take it out of the map
	}
}

// peek returns the lane for a key, nil if there is none.
func (t *table) peek(key string) *lane {
	if ln, ok := t.lanes.Load(key); ok {
		return ln.(*lane)
	}
	return nil
}

// find returns the lane for a key, which it makes if there is none.
func (t *table) find(c *Controller, key string, most int) *lane {
	if ln := t.peek(key); ln != nil {
		return ln
	}
	return t.open(c, key, most)
}

// open makes the lane for a key. When there are as many as may be, an idle one makes way;
// if none is found it is the overflow lane.
func (t *table) open(c *Controller, key string, most int) *lane {
	t.mu.Lock()
	defer t.mu.Unlock()
	if ln := t.peek(key); ln != nil {
		return ln
	}
	for len(t.order) >= most && t.evictLocked(&c.records) {
	}
	if len(t.order) >= most {
		if t.over == nil {
			t.over = &lane{key: reserved + overflow}
		}
		t.spilled.Add(1)
		return t.over
	}
	ln := &lane{key: strings.Clone(key)} // it may be a part of something large
	t.order = append(t.order, ln)
	t.lanes.Store(ln.key, ln)
	return ln
}

// evictLocked drops one lane in which nothing is held and nobody waits, and reports
// whether it has found one among those that it looks at. One that nobody has used since
// the hand last came by goes first, else the first that is idle.
func (t *table) evictLocked(ready *records) bool {
	spare := -1 // the first that is idle, though it was used
	for range min(mostLooks, len(t.order)) {
		t.hand = (t.hand + 1) % len(t.order)
		ln := t.order[t.hand]
		if ln.refs.Load() != 0 {
			continue
		}
		if ln.used.Swap(false) {
			if spare < 0 && ready.serve(ln) == 0 {
				spare = t.hand
			}
		} else if t.dropLocked(ready, t.hand) {
			return true
		}
	}
	return spare >= 0 && t.dropLocked(ready, spare)
}

// dropLocked drops the lane at a place in order, unless it is in use.
func (t *table) dropLocked(ready *records, at int) bool {
	ln := t.order[at]
	if ready.serve(ln) > 0 || !ln.refs.CompareAndSwap(0, evicted) {
		return false
	}
	n := len(t.order) - 1
	t.order[at] = t.order[n]
	t.order[n] = nil
	t.order = t.order[:n]
	t.lanes.Delete(ln.key)
	return true
}

// all returns every lane, the overflow last.
func (t *table) all() []*lane {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := append(make([]*lane, 0, len(t.order)+1), t.order...)
	if t.over != nil {
		all = append(all, t.over)
	}
	return all
}

// LaneID returns the id under which reports and refusals speak of a tenant's lane. It is
// a keyed hash of the tenant's key; the secret is made by New and never leaves.
func (c *Controller) LaneID(tenant string) string { return c.id(kept(tenant)) }

// id is what a lane is known by outside.
func (c *Controller) id(key string) string {
	switch key {
	case "":
		return anonymous
	case reserved + overflow:
		return overflow
	}
	return gate.HashFlow(c.secret, key)[:16]
}
