package lanes

import (
	"strings"
	"testing"
	"unicode/utf8"
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
