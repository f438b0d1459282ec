package admission

import (
	"context"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/headgate-go/headgate/core/gate"
)

// reload changes the configuration of b.
func reload(t testing.TB, b *Budget, change func(*Config)) {
	t.Helper()
	c := b.set.Load().Config
	change(&c)
	if err := b.Reconfigure(c); err != nil {
		t.Fatal(err)
	}
}

// B29: the budget follows the limit of the machine, within a second and in place.
func TestB29Resize(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMachine(512 * mib)
		b := budgetOn(t, m, nil)
		budgetIs := func(want int64) {
			t.Helper()
			if s := b.Snapshot(); s.MaxInflightBytes != want || s.BudgetSource != "cgroup" {
				t.Fatalf("budget %d from %s, want %d", s.MaxInflightBytes, s.BudgetSource, want)
			}
		}
		budgetIs(16 * mib)
		first, second := admit(t, b, 8*mib), admit(t, b, 6*mib)

		m.ceiling.Store(256 * mib)
		time.Sleep(refresh)
		synctest.Wait()
		budgetIs(8 * mib)
		inflight(t, b, 14*mib) // leases out are not broken
		w := acquire(t.Context(), b, gate.Request{Bytes: 2 * mib})
		second.Release()
		waits(t, w) // and nothing is granted until there is room under the new limit
		if err := first.Grow(1); err == nil {
			t.Error("a lease grew over the new limit")
		}
		_, err := b.Acquire(t.Context(), gate.Request{Bytes: 9 * mib})
		refused(t, err, gate.BodyExceedsBudget)

		m.ceiling.Store(gib)
		time.Sleep(refresh)
		synctest.Wait()
		budgetIs(32 * mib)
		granted(t, w).Release() // more room is granted at once
		first.Release()

		m.ceiling.Store(0) // a file that cannot be read for once changes nothing
		time.Sleep(refresh)
		synctest.Wait()
		budgetIs(32 * mib)
		m.ceiling.Store(512 * mib)
		b.Refresh() // without waiting for the second
		budgetIs(16 * mib)
	})
}

// A budget that was set does not follow the machine.
func TestB29Override(t *testing.T) {
	m := newMachine(512 * mib)
	b := budgetOn(t, m, func(c *Config) { c.MaxInflightBytes = 100 * mib })
	m.ceiling.Store(256 * mib)
	b.Refresh()
	if s := b.Snapshot(); s.MaxInflightBytes != 100*mib || s.CeilingBytes != 256*mib {
		t.Errorf("budget %d, ceiling %d", s.MaxInflightBytes, s.CeilingBytes)
	}
	reload(t, b, func(c *Config) { c.MaxInflightBytes = Auto })
	if s := b.Snapshot(); s.MaxInflightBytes != 8*mib || s.BudgetSource != "cgroup" {
		t.Errorf("budget %d from %s", s.MaxInflightBytes, s.BudgetSource)
	}
}

// J1: the same configuration again is no change, and a smaller one lets nobody in
// beside those who are out.
func TestJ1Reload(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := budget(t, 10*mib, func(c *Config) {
			c.MaxHeavyInFlight, c.HealthyHeadroom = 5, 0
			c.Exempt, c.Factors = []string{"/livez"}, []Factor{{ContentType: "Text/Plain", Times: 1}}
		})
		var out []gate.Lease
		for range 5 {
			out = append(out, admit(t, b, mib))
		}
		same := b.set.Load()
		w := acquire(t.Context(), b, gate.Request{Bytes: mib})
		for range 100 {
			reload(t, b, func(*Config) {})
			b.Refresh()
		}
		if b.set.Load() != same {
			t.Error("an identical configuration made a change")
		}
		waits(t, w)
		reload(t, b, func(c *Config) { c.MaxHeavyInFlight = 3 })
		for i, l := range out {
			waits(t, w)
			if s := b.Snapshot(); s.HeavyInflight != int64(5-i) || s.CountCap != 3 {
				t.Fatalf("%+v after %d releases", s, i)
			}
			l.Release()
			if i == 2 { // two are left: under 3
				granted(t, w).Release()
				w = acquire(t.Context(), b, gate.Request{Bytes: 10 * mib})
			}
		}
		granted(t, w).Release()
	})
}

// J4: what is reported is applied. A waiter that now fits starts at the reload.
func TestJ4Applied(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := budget(t, 8*mib, nil)
		full := admit(t, b, 8*mib)
		w := acquire(t.Context(), b, gate.Request{Bytes: 4 * mib})
		waits(t, w)
		reload(t, b, func(c *Config) { c.MaxInflightBytes = 12 * mib })
		l := granted(t, w)
		if s := b.Snapshot(); s.MaxInflightBytes != 12*mib || s.InflightBytes != 12*mib {
			t.Errorf("%d of %d in flight, want 12 of 12 MiB", s.InflightBytes, s.MaxInflightBytes)
		}
		l.Release()
		full.Release()
	})
}

// Waiters keep their arrival and are measured by the new timeout, both ways.
func TestJ4QueueTimeout(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := budget(t, 8*mib, nil)
		full := admit(t, b, 8*mib)
		w := acquire(t.Context(), b, gate.Request{Bytes: mib})
		time.Sleep(10 * time.Second)
		reload(t, b, func(c *Config) { c.QueueTimeout = time.Minute })
		time.Sleep(49 * time.Second)
		waits(t, w)
		time.Sleep(time.Second)
		if r := refusedNow(t, w, gate.QueueTimeout); r.Waited != time.Minute {
			t.Errorf("waited %v", r.Waited)
		}
		w = acquire(t.Context(), b, gate.Request{Bytes: mib})
		time.Sleep(10 * time.Second)
		reload(t, b, func(c *Config) { c.QueueTimeout = 5 * time.Second })
		refusedNow(t, w, gate.QueueTimeout)
		full.Release()
	})
}

// The caps beside the budget change with it.
func TestJ4OtherCaps(t *testing.T) {
	b := budget(t, 8*mib, func(c *Config) { c.Exempt, c.MaxExempt = []string{"/livez"}, 1 })
	probe := gate.Request{Path: "/livez"}
	var out []gate.Lease
	for _, most := range []int{1, 3, 2} {
		reload(t, b, func(c *Config) { c.MaxExempt = most })
		for {
			l, err := b.Acquire(t.Context(), probe)
			if err != nil {
				refused(t, err, gate.AdmissionBusy)
				break
			}
			out = append(out, l)
		}
		if len(out) != most && most != 2 || len(out) > 3 {
			t.Errorf("%d exempt requests for a cap of %d", len(out), most)
		}
	}
	for _, l := range out {
		l.Release()
	}
	reload(t, b, func(c *Config) { c.MaxInflightBytes, c.Exempt = 16*mib, nil })
	if n := b.decoded.Snapshot().Limit; n != 8*16*mib {
		t.Errorf("%d decoded bytes, want 8 times the budget", n)
	}
	full := admit(t, b, 16*mib)
	reload(t, b, func(c *Config) { c.QueueTimeout = 0 })
	if _, err := b.Acquire(t.Context(), gate.Request{Path: "/livez", Bytes: 1}); err == nil {
		t.Error("a path that is exempt no longer was let in")
	}
	full.Release()
}

// J6: a budget below what is out makes nothing negative; what comes back counts
// against it; raising it again wakes everyone who fits.
func TestJ6Lowered(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := budget(t, 100*mib, nil)
		big, small := admit(t, b, 40*mib), admit(t, b, 40*mib)
		reload(t, b, func(c *Config) { c.MaxInflightBytes = 50 * mib })
		if s := b.Snapshot(); s.InflightBytes != 80*mib || s.MaxInflightBytes != 50*mib {
			t.Errorf("%d of %d", s.InflightBytes, s.MaxInflightBytes)
		}
		var all []<-chan result
		for range 3 {
			all = append(all, acquire(t.Context(), b, gate.Request{Bytes: 10 * mib}))
		}
		small.Release() // 40 of 50
		l := granted(t, all[0])
		waits(t, all[1])
		reload(t, b, func(c *Config) { c.MaxInflightBytes = 70 * mib })
		for _, w := range all[1:] {
			granted(t, w).Release()
		}
		l.Release()
		big.Release()
	})
}

// A waiter that is larger than the shrunken budget is not stranded: it runs alone.
func TestJ6StrandedWaiter(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := budget(t, 40*mib, nil)
		full := admit(t, b, 40*mib)
		w := acquire(t.Context(), b, gate.Request{Bytes: 30 * mib})
		reload(t, b, func(c *Config) { c.MaxInflightBytes = 8 * mib })
		full.Release()
		l := granted(t, w)
		if s := b.Snapshot(); s.InflightBytes != 8*mib {
			t.Errorf("%d in flight, want the whole budget", s.InflightBytes)
		}
		body, _ := under(l, 30*mib)
		readAll(t, body, 30*mib)
		l.Release()
	})
}

// J9: a long stream keeps its own settings alive, and no others.
func TestJ9OldConfigs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := budget(t, 8*mib, nil)
		l := admit(t, b, -1)
		body, _ := under(l, mib)
		readN(t, body, 100*kib)
		var old []weak.Pointer[settings]
		for i := range 60 {
			old = append(old, weak.Make(b.set.Load()))
			reload(t, b, func(c *Config) { c.MaxInflightBytes = gate.Size(8*mib + i + 1) })
			time.Sleep(time.Second)
		}
		old = append(old, weak.Make(b.set.Load()))
		readN(t, body, 100*kib) // it is not cut
		runtime.GC()
		runtime.GC()
		alive := 0
		for _, p := range old {
			if p.Value() != nil {
				alive++
			}
		}
		if alive > 2 {
			t.Errorf("%d of %d configurations are alive, want the stream's and the present one", alive, len(old))
		}
		readAll(t, body, mib-200*kib)
		l.Release()
	})
}

// Reconfigurations while thousands wait and come and go: capacity is conserved,
// nobody is lost.
func TestReconfigureUnderLoad(t *testing.T) {
	b := budget(t, 8*mib, func(c *Config) { c.QueueTimeout, c.MaxWaiters = time.Minute, 1<<16 })
	full := admit(t, b, 8*mib)
	var wg sync.WaitGroup
	var served, lost atomic.Int64
	for i := range 3000 {
		wg.Go(func() {
			n := int64(1+i%64) * 32 * kib
			l, err := b.Acquire(context.Background(), gate.Request{Bytes: n, Flow: "abc"[i%3 : i%3+1]})
			if err != nil {
				t.Error(err)
				lost.Add(1)
				return
			}
			served.Add(1)
			body, _ := under(l, n)
			if got, err := io.Copy(io.Discard, body); got != n || err != nil {
				t.Errorf("read %d of %d: %v", got, n, err)
			}
			l.Release()
		})
	}
	for b.Snapshot().Waiting < 2900 {
		runtime.Gosched()
	}
	stop := make(chan struct{})
	var reloads sync.WaitGroup
	for i := range 2 {
		reloads.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				reload(t, b, func(c *Config) {
					c.MaxInflightBytes = gate.Size(8+(n*7+i)%9) * mib
					c.MaxHeavyInFlight = 1 + n%40
					c.HealthyHeadroom = n % 3
				})
				b.Refresh()
				if s := b.Snapshot(); s.InflightBytes < 0 || s.WaitingBytes < 0 || s.HeavyInflight < 0 {
					t.Errorf("%+v", s)
				}
			}
		})
	}
	full.Release()
	wg.Wait()
	close(stop)
	reloads.Wait()
	if served.Load() != 3000 {
		t.Errorf("%d served, %d lost", served.Load(), lost.Load())
	}
}

// Healthy headroom: some more heavy bodies while the heap is under its ratio, as
// the last second saw it; never beyond the bytes.
func TestHealthyHeadroom(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMachine(gib) // a budget of 32 MiB
		b := budgetOn(t, m, func(c *Config) { c.MaxHeavyInFlight = 2 })
		capIs := func(want int64) {
			t.Helper()
			synctest.Wait()
			if s := b.Snapshot(); s.CountCap != want || !s.CountCapEnabled {
				t.Fatalf("count_cap = %d, want %d", s.CountCap, want)
			}
		}
		capIs(4) // as many again
		var out []gate.Lease
		for range 4 {
			out = append(out, admit(t, b, mib))
		}
		w := acquire(t.Context(), b, gate.Request{Bytes: mib})
		waits(t, w)
		admit(t, b, kib).Release() // light ones are not counted, nor behind it

		m.heap.Store(3*gib/4 - 1)
		time.Sleep(refresh)
		capIs(4)
		m.heap.Store(3 * gib / 4)
		time.Sleep(refresh)
		capIs(2)
		out[0].Release()
		out[1].Release()
		waits(t, w) // two are out
		out[2].Release()
		l := granted(t, w)
		w = acquire(t.Context(), b, gate.Request{Bytes: mib})
		waits(t, w)
		m.heap.Store(0)
		time.Sleep(refresh)
		capIs(4)
		granted(t, w).Release() // recovered by itself
		l.Release()
		out[3].Release()

		big := admit(t, b, 30*mib)
		if _, err := b.Acquire(t.Context(), gate.Request{Bytes: 3 * mib}); err == nil {
			t.Error("headroom went beyond the bytes")
		}
		big.Release()

		for _, c := range []struct{ set, want int }{{0, 2}, {1, 3}, {Auto, 4}, {1 << 20, 1<<20 + 2}} {
			reload(t, b, func(f *Config) { f.HealthyHeadroom = c.set })
			capIs(int64(c.want))
		}
		reload(t, b, func(c *Config) { c.MaxHeavyInFlight = Auto })
		if s := b.Snapshot(); s.CountCapEnabled || s.CountCap != 0 {
			t.Errorf("count cap %d, want none", s.CountCap)
		}
	})
}

// Where the ceiling is not known, nothing says that the heap is healthy.
func TestHeadroomWithoutCeiling(t *testing.T) {
	b := budgetOn(t, newMachine(0), func(c *Config) { c.MaxHeavyInFlight = 2 })
	if s := b.Snapshot(); s.CountCap != 2 {
		t.Errorf("count_cap = %d, want 2", s.CountCap)
	}
}
