package lanes

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/headgate-go/headgate/core/gate"
)

// Whatever a tenant is called: what is kept of it is short, the same each time, different
// for different names, never the overflow lane's; and its id says nothing of it.
func FuzzTenantKey(f *testing.F) {
	for _, s := range []string{"", "a", "tenant-7", reserved, reserved + overflow, overflow, anonymous, strings.Repeat("x", 128), strings.Repeat("x", 129)} {
		f.Add(s, s+"x")
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
