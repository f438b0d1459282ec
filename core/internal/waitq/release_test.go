package waitq

import "testing"

// TestEnd: it ends what is held and has not changed, and nothing else.
func TestEnd(t *testing.T) {
	q := New(conf(100))
	var own, record Lease
	record.Share()
	for name, take := range map[string]func() *Lease{
		"own":    func() *Lease { q.TryAcquire(&own, 0, 10); return &own },
		"shared": func() *Lease { q.TryShared(&record, 10); return &record },
	} {
		for range 2 * sampleMask { // until they are not timed
			l := take()
			l.Release(l.Gen())
		}
		l := take()
		gen := l.Gen()
		if _, ok := l.End(gen + 1); ok {
			t.Errorf("%s: a generation to come has ended", name)
		}
		held, ok := l.End(gen)
		if !ok || l.Live(gen) {
			t.Errorf("%s: not ended", name)
		}
		q.Give(held)
		if _, ok := l.End(gen); ok || l.Release(gen) || l.Release(gen+1) || q.InUse() != 0 {
			t.Errorf("%s: ended twice, or while it is free; in use %d", name, q.InUse())
		}
		l = take()
		gen = l.Gen()
		l.Grow(gen, 5)
		if _, ok := l.End(gen); ok || !l.Live(gen) || q.InUse() != 15 {
			t.Errorf("%s: ended by what it held before it grew; in use %d", name, q.InUse())
		}
		l.Shrink(gen, 3)
		if !l.Release(gen) || l.Release(gen) || q.InUse() != 0 {
			t.Errorf("%s: in use %d after its release", name, q.InUse())
		}
	}
	var never Lease
	if _, ok := never.End(0); ok || never.Release(0) || never.Live(0) {
		t.Error("a record that was never filled is held")
	}
	wantIdle(t, q)
}
