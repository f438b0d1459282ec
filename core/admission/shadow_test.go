package admission

import (
	"context"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

// would checks what shadow mode says that enforce would have done.
func would(t testing.TB, b *Budget, admit, queue, refuse int64) {
	t.Helper()
	s := b.Snapshot()
	if s.WouldAdmit != admit || s.WouldQueue != queue || s.WouldRefuse != refuse {
		t.Errorf("would admit %d, queue %d, refuse %d, want %d, %d, %d",
			s.WouldAdmit, s.WouldQueue, s.WouldRefuse, admit, queue, refuse)
	}
	if s.Sheds != 0 || s.Canceled != 0 {
		t.Errorf("sheds %v, canceled %d in shadow mode", s.ShedReasons, s.Canceled)
	}
}

// Shadow mode admits everything, at once, and keeps virtual books.
func TestShadow(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := budget(t, 8*mib, func(c *Config) { c.Mode, c.MaxWaiters = gate.Shadow, 1 })
		start := time.Now()
		first := admit(t, b, 6*mib)
		would(t, b, 1, 0, 0)
		second := admit(t, b, 4*mib)
		would(t, b, 1, 1, 0)
		third := admit(t, b, 4*mib)
		would(t, b, 1, 1, 1)
		tooLarge, over := admit(t, b, 20*mib), admit(t, b, 60*mib)
		would(t, b, 1, 1, 3)
		none := admit(t, b, 0)
		would(t, b, 2, 1, 3)
		if s := b.Snapshot(); s.InflightBytes != 6*mib || s.Waiting != 1 || s.Inflight != 5 {
			t.Errorf("%+v, want 6 MiB in flight and one that waits in the books", s)
		}
		if d := time.Since(start); d != 0 {
			t.Errorf("it took %v", d)
		}
		first.Release()
		inflight(t, b, 4*mib) // the second has its turn in the books
		second.Release()
		for _, l := range []gate.Lease{third, tooLarge, over, none} {
			if !l.Live() {
				t.Error("not live")
			}
			l.Release()
		}
		inflight(t, b, 0)
		would(t, b, 2, 1, 3)
	})
}

// A request that would have waited too long holds nothing from then on, and its
// release finds nothing to give back.
func TestShadowTimeout(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := budget(t, 8*mib, func(c *Config) { c.Mode = gate.Shadow })
		first, second := admit(t, b, 8*mib), admit(t, b, 8*mib)
		if s := b.Snapshot(); s.Waiting != 1 {
			t.Errorf("%d wait in the books", s.Waiting)
		}
		time.Sleep(15 * time.Second)
		synctest.Wait()
		if s := b.Snapshot(); s.Waiting != 0 || s.InflightBytes != 8*mib {
			t.Errorf("%+v, want it refused in the books", s)
		}
		first.Release()
		inflight(t, b, 0)
		second.Release()
	})
}

// Bodies are counted in the books and never cut, however long or slow they are.
func TestShadowBody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := budget(t, 8*mib, func(c *Config) { c.Mode = gate.Shadow })
		full := admit(t, b, 8*mib-quantum)
		for _, declared := range []int64{10, -1, 60 * mib, 3 * mib} {
			l := admit(t, b, declared)
			body, _ := under(l, 60*mib)
			readAll(t, body, 60*mib)
			if err := l.Grow(mib); err != nil {
				t.Errorf("Grow: %v", err)
			}
			l.Release()
			inflight(t, b, 8*mib-quantum)
		}
		l := admit(t, b, -1)
		body := send(l, &sender{pieces: []piece{{time.Hour, 10}}})
		readAll(t, body, 10)
		l.Release()
		full.Release()
		if s := b.Snapshot(); s.Sheds != 0 {
			t.Errorf("sheds %v", s.ShedReasons)
		}
	})
}

// Exempt requests are admitted beyond their cap too.
func TestShadowExempt(t *testing.T) {
	b := budget(t, 8*mib, func(c *Config) {
		c.Mode, c.MaxExempt, c.Exempt = gate.Shadow, 2, []string{"/livez"}
	})
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	var out []gate.Lease
	for range 5 {
		l, err := b.Acquire(canceled, gate.Request{Path: "/livez"})
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, l)
	}
	would(t, b, 2, 0, 3)
	for _, l := range out {
		l.Release()
	}
}

// Off: everything passes, nothing is counted.
func TestOff(t *testing.T) {
	b := budget(t, 8*mib, func(c *Config) { c.Mode = gate.Off })
	for _, n := range []int64{0, -1, mib, 100 * mib} {
		l := admit(t, b, n)
		if l != (gate.Lease{}) {
			t.Errorf("Acquire(%d) = %v, want the zero lease", n, l)
		}
		body, _ := under(l, 100*mib)
		readAll(t, body, 100*mib)
		l.Release()
	}
	if s := b.Snapshot(); s.Admitted != 0 || s.Mode != gate.Off {
		t.Errorf("%+v", s)
	}
}

// Leaving enforce lets all waiters in; coming back to it waits until what is out
// fits again.
func TestLeavingEnforce(t *testing.T) {
	for _, mode := range []gate.Mode{gate.Shadow, gate.Off} {
		bubble(t, func(t *testing.T) {
			b := budget(t, 8*mib, func(c *Config) { c.MaxHeavyInFlight, c.HealthyHeadroom = 3, 0 })
			full := admit(t, b, 8*mib)
			var all []<-chan result
			for i := range 20 {
				all = append(all, acquire(t.Context(), b, gate.Request{Bytes: int64(i%2) * 2 * mib, Flow: "f"}))
				if i%2 == 0 { // nothing to wait for
					granted(t, all[i]).Release()
				}
			}
			reload(t, b, func(c *Config) { c.Mode = mode })
			var out []gate.Lease
			for i, w := range all {
				if i%2 == 1 {
					out = append(out, granted(t, w))
				}
			}
			if s := b.Snapshot(); s.InflightBytes != 28*mib || s.Waiting != 0 || s.HeavyInflight != 11 {
				t.Errorf("%s: %+v, want all 28 MiB in flight", mode, s)
			}
			reload(t, b, func(c *Config) { c.Mode = gate.Enforce })
			w := acquire(t.Context(), b, gate.Request{Bytes: mib})
			for _, l := range out[:8] {
				waits(t, w)
				l.Release()
			}
			full.Release() // 4 MiB and two bodies are left
			granted(t, w).Release()
			out[8].Release()
			out[9].Release()
		})
	}
}

// A request that had decided to queue when the mode changed is not refused either.
func TestLeavingEnforceOnTheWay(t *testing.T) {
	for _, mode := range []gate.Mode{gate.Shadow, gate.Off} {
		b := budget(t, 8*mib, func(c *Config) { c.MaxWaiters = 0 })
		full := admit(t, b, 8*mib)
		enforced := b.set.Load()
		reload(t, b, func(c *Config) { c.Mode = mode })
		r := gate.Request{Bytes: mib}
		l, err := b.acquireSlow(t.Context(), enforced, b.lease(mib, 1), &r, heavy, mib)
		if err != nil {
			t.Errorf("%s: %v", mode, err)
		}
		l.Release()
		full.Release()
	}
}

// What was booked in shadow mode counts when it comes to be enforced, and is over
// with its release.
func TestEnteringEnforce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := budget(t, 8*mib, func(c *Config) { c.Mode = gate.Shadow })
		first, booked, refusedInBooks := admit(t, b, 8*mib), admit(t, b, 4*mib), admit(t, b, 20*mib)
		reload(t, b, func(c *Config) { c.Mode = gate.Enforce })
		w := acquire(t.Context(), b, gate.Request{Bytes: 8 * mib})
		waits(t, w)
		first.Release()
		waits(t, w)
		inflight(t, b, 4*mib)
		booked.Release()
		l := granted(t, w)
		refusedInBooks.Release()
		inflight(t, b, 8*mib)
		l.Release()
	})
}

// The modes change while requests of all kinds come and go: nobody who left
// enforce waits on, shadow and off refuse nobody, and no counter leaks.
func TestModesUnderLoad(t *testing.T) {
	b := budget(t, 8*mib, func(c *Config) { c.QueueTimeout, c.MaxWaiters, c.Exempt = time.Minute, 1<<16, []string{"/livez"} })
	modes := []gate.Mode{gate.Shadow, gate.Enforce, gate.Shadow, gate.Off, gate.Enforce, gate.Off}
	var wg sync.WaitGroup
	var left atomic.Int64
	const workers = 32
	left.Store(workers)
	for i := range workers {
		wg.Go(func() {
			defer left.Add(-1)
			for n := range 150 {
				ctx, cancel := context.WithCancel(context.Background())
				r := gate.Request{Bytes: int64((i+n)%7) * mib, Flow: "f", Buffered: kib}
				switch (i + n) % 9 {
				case 0:
					r.Bytes = -1
				case 1:
					r.Bytes, r.Path = 0, "/livez"
				case 2:
					go cancel()
				}
				l, err := b.Acquire(ctx, r)
				if err == nil {
					body, _ := under(l, max(r.Bytes, 0))
					if _, err := io.CopyN(io.Discard, body, 100); err != nil && err != io.EOF {
						t.Error(err)
					}
					gate.Observe(l.In(ctx, b), gate.Sample{FirstByte: 1})
				} else if (i+n)%9 != 2 {
					t.Errorf("%+v: %v", r, err)
				}
				cancel()
				l.Release()
				l.Release()
			}
		})
	}
	for n := 0; left.Load() > 0; n++ {
		reload(t, b, func(c *Config) { c.Mode = modes[n%len(modes)] })
		time.Sleep(0) // yield
	}
	wg.Wait()
	// A booked entry may stand in the books until its lease is released: all are.
	checkEmpty(t, b)
	reload(t, b, func(c *Config) { c.Mode = gate.Enforce })
	admit(t, b, 8*mib).Release()
}
