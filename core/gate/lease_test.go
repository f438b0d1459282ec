package gate_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

func TestZeroLeaseIsHarmless(t *testing.T) {
	var l gate.Lease
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			l.Release()
			l.Release()
			l.Shrink(-1)
			l.Shrink(1 << 40)
			for _, n := range []int64{-1, 0, 1, 1 << 62} {
				if err := l.Grow(n); err != nil {
					t.Errorf("Grow(%d) = %v, want nil", n, err)
				}
			}
			if l.Live() {
				t.Error("the zero lease lives")
			}
			if w := l.Waited(); w != 0 {
				t.Errorf("Waited() = %v, want 0", w)
			}
			b := &body{}
			if got := l.Body(b, nil); got != b {
				t.Errorf("Body returned %v, want the body itself", got)
			}
			if got := l.Body(nil, func(time.Time) error { panic("called") }); got != nil {
				t.Errorf("Body(nil) = %v, want nil", got)
			}
		})
	}
	wg.Wait()

	g := &fake{}
	ctx := l.In(gate.WithClass(context.Background(), gate.Bulk), g)
	if got, ok := gate.LeaseOf(ctx, g); ok || got != l {
		t.Errorf("LeaseOf = %v, %t below a zero lease, want none", got, ok)
	}
	gate.Observe(ctx, gate.Sample{Status: 200})
	if c := (gate.Request{}).In(ctx).Class; c != gate.Bulk {
		t.Errorf("class below a zero lease = %v, want bulk", c)
	}
}

func TestLeaseReachesItsHolder(t *testing.T) {
	f := &fake{waited: 3 * time.Second}
	l := f.lease()
	if !l.Live() {
		t.Fatal("a new lease does not live")
	}
	if w := l.Waited(); w != 3*time.Second {
		t.Errorf("Waited() = %v, want 3s", w)
	}
	if err := l.Grow(5); err != nil {
		t.Errorf("Grow(5) = %v", err)
	}
	l.Shrink(2)
	if f.held != 4 {
		t.Errorf("holds %d after 1+5-2", f.held)
	}
	for _, n := range []int64{0, -1, -1 << 63} {
		if err := l.Grow(n); err != nil {
			t.Errorf("Grow(%d) = %v, want nil", n, err)
		}
		l.Shrink(n)
	}
	if f.grows != 1 || f.shrinks != 1 {
		t.Errorf("the holder saw %d grows and %d shrinks, want one each: n <= 0 does nothing", f.grows, f.shrinks)
	}
	f.full = true
	if err := l.Grow(1); !errors.Is(err, gate.AdmissionBusy) {
		t.Errorf("Grow in a full gate = %v, want the holder's rejection", err)
	}
	called := false
	b := &body{}
	if got := l.Body(b, func(time.Time) error { called = true; return nil }); got != (leasedBody{b}) {
		t.Errorf("Body = %v, want the holder's", got)
	}
	if called {
		t.Error("Body itself moved the read deadline")
	}
	if f.deadline(time.Time{}); !called {
		t.Error("the holder did not get setReadDeadline")
	}
	l.Release()
	if l.Live() || f.held != 0 {
		t.Error("lives after Release")
	}
	if w := l.Waited(); w != 0 {
		t.Errorf("Waited() = %v after Release, want 0", w)
	}
}

func TestCopiesReleaseOnce(t *testing.T) {
	f := &fake{}
	l := f.lease()
	var wg sync.WaitGroup
	for range 8 {
		held := l
		wg.Go(held.Release)
	}
	wg.Wait()
	if f.releases != 1 {
		t.Fatalf("released %d times, want once", f.releases)
	}
}

// A holder is used again; what still has the old lease must not touch the new.
func TestStaleLeaseTouchesNothing(t *testing.T) {
	f := &fake{}
	old := f.lease()
	oldCtx := old.In(context.Background(), f)
	old.Release()
	next := f.lease()
	nextCtx := next.In(oldCtx, f)
	if old == next {
		t.Fatal("leases of two generations compare equal")
	}

	old.Release()
	old.Shrink(1)
	if err := old.Grow(7); err != nil {
		t.Errorf("stale Grow = %v, want nil", err)
	}
	gate.Observe(oldCtx, gate.Sample{Status: 500})
	if old.Live() || !next.Live() || f.held != 1 || len(f.seen()) != 0 {
		t.Errorf("a stale lease reached the next: live %t, held %d, samples %v", next.Live(), f.held, f.seen())
	}
	if _, ok := gate.LeaseOf(oldCtx, f); ok {
		t.Error("the old context holds a lease")
	}
	if got, ok := gate.LeaseOf(nextCtx, f); !ok || got != next {
		t.Errorf("LeaseOf(new context) = %v, %t", got, ok)
	}
	gate.Observe(nextCtx, gate.Sample{Status: 200})
	if s := f.seen(); len(s) != 1 || s[0].Status != 200 {
		t.Errorf("the new lease saw %v, want the one sample of its own context", s)
	}
}

// holder is some gate's record.
type holder struct{ gate.Holder }

// A gate knows its own leases; the zero Lease is nobody's.
func TestHolder(t *testing.T) {
	h := holder{}
	if got, gen := gate.NewLease(h, 7).Holder(); got != h || gen != 7 {
		t.Errorf("%v of generation %d", got, gen)
	}
	if got, gen := (gate.Lease{}).Holder(); got != nil || gen != 0 {
		t.Errorf("%v of generation %d hold the zero lease", got, gen)
	}
}
