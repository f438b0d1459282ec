package lanes

import (
	"context"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/headgate-go/headgate/core/gate"
)

// Whatever a tenant is called: what is kept of it is short, the same each time, different
// for different names, never the overflow lane's; and its id says nothing of it.
func FuzzTenantKey(f *testing.F) {
	for _, s := range []string{"", "a", "tenant-7", reserved, reserved + overflow, overflow, anonymous, strings.Repeat("x", 128), strings.Repeat("x", 129)} {
		f.Add(s, s+"x")
		sum := sha256.Sum256([]byte(s))
		f.Add(s, string(sum[:]))
		f.Add(s, reserved+string(sum[:]))
	}
	l, err := New(DefaultConfig())
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(l.Close)
	f.Fuzz(func(t *testing.T, a, b string) {
		x, y := kept(a), kept(b)
		if len(x) > maxKey || x == reserved+overflow || x != kept(a) || (x == y) != (a == b) {
			t.Fatalf("%q is kept as %q, %q as %q", a, x, b, y)
		}
		id := l.LaneID(a)
		if id != l.LaneID(a) || (id == l.LaneID(b)) != (a == b) || !utf8.ValidString(id) {
			t.Fatalf("%q has the id %q, %q %q", a, id, b, l.LaneID(b))
		}
		if a != "" && (len(id) != 16 || id == anonymous || id == overflow || len(a) > 8 && strings.Contains(id, a)) {
			t.Fatalf("%q has the id %q", a, id)
		}
	})
}

// A ready record that remembers a lane which has been evicted since does not bring it back.
func TestEvictedLaneIsNotUsed(t *testing.T) {
	l := enforcing(t, func(c *Config) { limited(10)(c); c.MaxLanes = 1 })
	for range 100 {
		take(t, l, "a", 1).Release()
		l.lanes.pin(l, "b", 1).refs.Add(-1)
		if l.lanes.peek("a") != nil {
			t.Fatal("a was not evicted")
		}
		lease := take(t, l, "a", 1)
		if s := l.Snapshot(); l.lanes.peek("a") == nil || len(s.LaneTenants) != 1 || s.LaneTenants[0].Inflight != 1 {
			t.Fatalf("a has no lane: %+v", s.LaneTenants)
		}
		lease.Release()
	}
}

// A newcomer to a table in which all are in use looks at no more than mostLooks lanes,
// however many there are; and as soon as one of them is idle, the newcomers that follow
// find it within one turn of the hand.
func TestNewcomersLookAtFew(t *testing.T) {
	const n = 1000
	l := enforcing(t, func(c *Config) { limited(mostOf)(c); c.MaxLimit, c.MaxLanes = mostOf, n })
	busy := make([]gate.Lease, n)
	for i := range busy {
		busy[i] = take(t, l, fmt.Sprint("busy-", i), 1)
	}
	newcomers := 0
	newcomer := func() bool {
		t.Helper()
		newcomers++
		key, before := fmt.Sprint("newcomer-", newcomers), l.lanes.hand
		take(t, l, key, 1).Release()
		found := l.lanes.peek(key) != nil
		if looks := (l.lanes.hand - before + n) % n; looks > mostLooks || !found && looks != mostLooks {
			t.Fatalf("a newcomer looked at %d lanes, or rounds more", looks)
		}
		return found
	}
	for range 2 * n {
		if newcomer() {
			t.Fatal("a newcomer has the lane of somebody who is there")
		}
	}
	if s := l.Snapshot(); s.Overflowed != 2*n || s.LaneCount != n+1 {
		t.Fatalf("%d overflowed, %d lanes", s.Overflowed, s.LaneCount)
	}
	for _, i := range []int{0, 1, n / 2, n - 1} {
		busy[i].Release()
		tries := 1
		for !newcomer() {
			if tries++; tries > n/mostLooks+1 {
				t.Fatalf("%d newcomers have not found the idle lane", tries)
			}
		}
		key := fmt.Sprint("newcomer-", newcomers)
		busy[i] = take(t, l, key, 1)
	}
	for _, lease := range busy {
		lease.Release()
	}
	wantEmpty(t, l)
}

// Of idle lanes the one that somebody has used since the hand last came by stays, beside
// those that nobody has.
func TestUsedLanesStay(t *testing.T) {
	const n = 3 * mostLooks
	l := enforcing(t, func(c *Config) { limited(10)(c); c.MaxLanes = n })
	for i := range n {
		take(t, l, fmt.Sprint(i), 1).Release()
	}
	for i := range 10 * n {
		take(t, l, "regular", 1).Release()
		take(t, l, fmt.Sprint("flood-", i), 1).Release()
	}
	regular := l.lanes.peek("regular")
	lost := 0
	for i := range 10 * n {
		take(t, l, fmt.Sprint("more-", i), 1).Release()
		take(t, l, "regular", 1).Release()
		if now := l.lanes.peek("regular"); now != regular {
			regular, lost = now, lost+1
		}
	}
	// The hand comes by 10 times. Only one that finds nothing but used lanes for mostLooks
	// takes the first of them, and that may be this one.
	if lost > 2 {
		t.Errorf("a lane that is used all the time was evicted %d times in %d evictions", lost, 10*n)
	}
}

// However many newcomers crowd a small table, while it is reloaded: the books have each of them
// once, nothing is in flight afterwards, and no lane is lost or left over.
func TestNewcomersAreBookedOnce(t *testing.T) {
	rounds := 3000
	if raceEnabled || testing.Short() {
		rounds = 500
	}
	l := enforcing(t, func(c *Config) {
		limited(20)(c)
		c.MinLimit, c.MaxLimit, c.MaxWait, c.MaxQueueCount, c.MaxLanes = 1, 60, 2*time.Millisecond, 4, 3
	})
	var granted, refused, noTargets atomic.Int64
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(5, uint64(g)))
			for range rounds {
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(r.IntN(2000))*time.Microsecond)
				q := gate.Request{Flow: fmt.Sprint(r.IntN([]int{4, 40, 1 << 20}[r.IntN(3)])), Cost: int64(1 + r.IntN(30)), Class: gate.Class(r.IntN(4))}
				lease, err := l.Acquire(ctx, q)
				if err != nil {
					refused.Add(1)
				} else {
					granted.Add(1)
					if in := lease.In(ctx, l); r.IntN(20) == 0 {
						l.Probe(in, 5, 100)
						noTargets.Add(1)
						_ = l.NoTarget(in, 5, 100)
					}
					runtime.Gosched()
					lease.Release()
				}
				cancel()
			}
		})
	}
	over := make(chan struct{})
	go func() { wg.Wait(); close(over) }()
	r := rand.New(rand.NewPCG(9, 9))
	for running := true; running; {
		select {
		case <-over:
			running = false
		case <-time.After(time.Millisecond):
			reload(t, l, func(c *Config) {
				c.MaxLanes, c.MaxQueueCount, c.MaxQueueCost, c.InitialLimit = 1+r.IntN(70), r.IntN(10), r.IntN(100), 1+r.IntN(60)
				c.MaxWait = time.Duration(r.IntN(4)) * time.Millisecond
			})
		}
	}
	wantEmpty(t, l)
	s := l.Snapshot()
	if s.Admitted != granted.Load() || s.Sheds+s.Canceled != refused.Load()+noTargets.Load() || s.ShedReasons[gate.NoTarget] != noTargets.Load() {
		t.Errorf("%d admitted, %d and %d refused; that were %d, %d and %d without a target", s.Admitted, s.Sheds, s.Canceled,
			granted.Load(), refused.Load(), noTargets.Load())
	}
	listed := 0
	l.lanes.lanes.Range(func(_, v any) bool {
		listed++
		if v.(*lane).refs.Load() < 0 {
			t.Error("an evicted lane is listed")
		}
		return true
	})
	if listed != len(l.lanes.order) || listed > 70 || s.Overflowed == 0 {
		t.Errorf("%d lanes are listed, %d in order, %d newcomers shared one", listed, len(l.lanes.order), s.Overflowed)
	}
}
