package admission

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

// Twenty bodies that arrive in the same instant: what was free for the first is
// not free for the fourth.
func TestA1CheckThenUse(t *testing.T) {
	rounds := 1000
	if testing.Short() || raceEnabled {
		rounds = 200
	}
	b := budget(t, 10*mib, func(c *Config) { c.QueueTimeout = 0 })
	for range rounds {
		var used, admitted, decided atomic.Int64
		var ready, ended sync.WaitGroup
		barrier, all := make(chan struct{}), make(chan struct{})
		for range 20 {
			ready.Add(1)
			ended.Go(func() {
				ready.Done()
				<-barrier
				l, err := b.Acquire(context.Background(), gate.Request{Bytes: 3 * mib})
				defer l.Release()
				if err == nil {
					admitted.Add(1)
					if n := used.Add(3 * mib); n > 10*mib {
						t.Errorf("%d bytes in flight, over the budget", n)
					}
				}
				if decided.Add(1) == 20 {
					close(all)
				}
				<-all
			})
		}
		ready.Wait()
		close(barrier)
		ended.Wait()
		if a := admitted.Load(); a != 3 {
			t.Fatalf("%d admitted, want exactly 3", a)
		}
		checkEmpty(t, b)
	}
	s := b.Snapshot()
	if s.Admitted != int64(3*rounds) || s.ShedReasons[gate.QueueTimeout] != int64(17*rounds) {
		t.Errorf("counted %d admitted, sheds %v, want %d and %d", s.Admitted, s.ShedReasons, 3*rounds, 17*rounds)
	}
}

// A body larger than the whole budget is refused in no time, whatever the load,
// and takes no place in the queue.
func TestA3LargerThanBudget(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := budget(t, 8*mib, func(c *Config) { c.QueueTimeout = 30 * time.Second })
		start := time.Now()
		try := func(when string) {
			t.Helper()
			before := b.Snapshot()
			l, err := b.Acquire(context.Background(), gate.Request{Bytes: 20 * mib})
			l.Release()
			r := refused(t, err, gate.BodyExceedsBudget)
			if r.Status() != 413 || r.RetryAfter != 0 || r.Limit != 8*mib || r.Unit != "bytes" || r.Waited != 0 {
				t.Errorf("%s: %+v, want 413 for a limit of 8 MiB without Retry-After", when, r)
			}
			after := b.Snapshot()
			if after.Waiting != before.Waiting || after.Queued != before.Queued || after.InflightBytes != before.InflightBytes {
				t.Errorf("%s: it stood in the queue or in the books: %+v", when, after)
			}
			if d := time.Since(start); d != 0 {
				t.Errorf("%s: took %v, want no time at all", when, d)
			}
		}
		try("idle")
		full := admit(t, b, 8*mib)
		try("full")
		waiter := acquire(t.Context(), b, gate.Request{Bytes: mib})
		waits(t, waiter)
		try("full and queued")
		full.Release()
		granted(t, waiter).Release()

		// One byte less than too much is fine.
		admit(t, b, 8*mib).Release()
		if _, err := b.Acquire(t.Context(), gate.Request{Bytes: 8*mib + 1}); err == nil {
			t.Error("8 MiB and a byte were admitted")
		}
		if n := b.Snapshot().ShedReasons[gate.BodyExceedsBudget]; n != 4 {
			t.Errorf("counted %d, want 4", n)
		}
	})
}

// The hard cap comes before the budget in the order of checks.
func TestHardCapComesFirst(t *testing.T) {
	b := budget(t, 8*mib, func(c *Config) { c.HardMaxBodyBytes = 16 * mib })
	_, err := b.Acquire(t.Context(), gate.Request{Bytes: 16*mib + 1})
	if r := refused(t, err, gate.PayloadTooLarge); r.Limit != 16*mib {
		t.Errorf("limit %d, want the hard cap", r.Limit)
	}
	_, err = b.Acquire(t.Context(), gate.Request{Bytes: 16 * mib})
	refused(t, err, gate.BodyExceedsBudget)
}

// A budget below the cap for one body lowers that cap, and says so.
func TestA5EffectiveCap(t *testing.T) {
	for _, c := range []struct{ budget, hard, want int64 }{
		{8 * mib, 50 * mib, 8 * mib},
		{64 * mib, 50 * mib, 50 * mib},
		{64 * mib, 1 * mib, 1 * mib},
		{1 * mib, 5 * mib, 5 * mib}, // the least budget is 8 MiB: a body of 5 MiB stays possible
	} {
		b := budget(t, c.budget, func(f *Config) { f.HardMaxBodyBytes = gate.Size(c.hard) })
		if s := b.Snapshot(); s.MaxBodyBytes != c.want {
			t.Errorf("budget %d, cap %d: max_body_bytes = %d, want %d", c.budget, c.hard, s.MaxBodyBytes, c.want)
		}
		admit(t, b, c.want).Release()
		if _, err := b.Acquire(t.Context(), gate.Request{Bytes: c.want + 1}); err == nil {
			t.Errorf("budget %d, cap %d: a byte more than the effective cap was admitted", c.budget, c.hard)
		}
	}
}

// Count and bytes are one step: who is refused by one leaves the other untouched.
func TestA12CountAndBytesInOneStep(t *testing.T) {
	b := budget(t, 64*mib, func(c *Config) { c.QueueTimeout, c.MaxHeavyInFlight, c.HealthyHeadroom = 0, 100, 0 })
	var leases []gate.Lease
	for range 100 {
		if l, err := b.Acquire(t.Context(), gate.Request{Bytes: 2 * mib}); err == nil {
			leases = append(leases, l)
		}
	}
	if s := b.Snapshot(); len(leases) != 32 || s.HeavyInflight != 32 || s.InflightBytes != 64*mib {
		t.Errorf("%d admitted, %+v, want 32 by bytes", len(leases), s)
	}
	for _, l := range leases {
		l.Release()
	}

	c := b.set.Load().Config
	c.MaxHeavyInFlight = 8
	if err := b.Reconfigure(c); err != nil {
		t.Fatal(err)
	}
	leases = leases[:0]
	for range 100 {
		if l, err := b.Acquire(t.Context(), gate.Request{Bytes: 2 * mib}); err == nil {
			leases = append(leases, l)
		}
	}
	if s := b.Snapshot(); len(leases) != 8 || s.HeavyInflight != 8 || s.InflightBytes != 16*mib {
		t.Errorf("%d admitted, %+v, want 8 by count", len(leases), s)
	}
	admit(t, b, 100*kib).Release() // light bodies are not counted
	for _, l := range leases {
		l.Release()
	}
}

// Many at once against both limits: neither is ever exceeded.
func TestA12UnderRace(t *testing.T) {
	b := budget(t, 16*mib, func(c *Config) { c.QueueTimeout, c.MaxHeavyInFlight, c.HealthyHeadroom = 0, 5, 0 })
	var count, size atomic.Int64
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			n := int64(1+i%6) * mib
			for range 300 {
				l, err := b.Acquire(context.Background(), gate.Request{Bytes: n})
				if err != nil {
					continue
				}
				if c, s := count.Add(1), size.Add(n); c > 5 || s > 16*mib {
					t.Errorf("%d bodies of %d bytes in flight", c, s)
				}
				count.Add(-1)
				size.Add(-n)
				l.Release()
			}
		})
	}
	wg.Wait()
}

// Bytes are in flight only once they are granted.
func TestA15CanceledWhileWaiting(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := budget(t, 10*mib, nil)
		full := admit(t, b, 10*mib)
		ctx, cancel := context.WithCancel(t.Context())
		w := acquire(ctx, b, gate.Request{Bytes: 4 * mib})
		waits(t, w)
		if s := b.Snapshot(); s.InflightBytes != 10*mib || s.WaitingBytes != 4*mib || s.Waiting != 1 || s.WaitingHeavy != 1 {
			t.Errorf("%+v, want 10 MiB in flight and 4 MiB waiting", s)
		}
		cancel()
		r := refusedNow(t, w, gate.Canceled)
		if r.Cause != context.Canceled || r.RetryAfter != 0 {
			t.Errorf("%+v, want the context's error and no Retry-After", r)
		}
		if s := b.Snapshot(); s.InflightBytes != 10*mib || s.WaitingBytes != 0 || s.Waiting != 0 {
			t.Errorf("%+v, want nothing waiting", s)
		}
		if s := b.Snapshot(); s.Canceled != 1 || s.Sheds != 0 || len(s.ShedReasons) != 0 {
			t.Errorf("canceled %d, sheds %d %v: a caller that left is no shed", s.Canceled, s.Sheds, s.ShedReasons)
		}
		full.Release()
	})
}

// What an unknown length starts with never refuses the first request.
func TestA22FirstRequestOfUnknownLength(t *testing.T) {
	b := budget(t, 8*mib, func(c *Config) {
		c.QueueTimeout = 0
		c.Factors = []Factor{{ContentType: "application/json", Times: 64}}
	})
	for _, contentType := range []string{"", "application/json"} {
		factor := int64(1)
		if contentType != "" {
			factor = 64
		}
		l, err := b.Acquire(t.Context(), gate.Request{Bytes: -1, ContentType: contentType})
		if err != nil {
			t.Fatalf("%q: %v", contentType, err)
		}
		inflight(t, b, factor*quantum)
		body, _ := under(l, 40)
		readAll(t, body, 40)
		inflight(t, b, factor*40) // corrected by what really came
		l.Release()
	}
}

// A body that becomes many copies is charged for them.
func TestA29Factor(t *testing.T) {
	b := budget(t, 16*mib, func(c *Config) {
		c.QueueTimeout = 0
		c.Factors = []Factor{
			{ContentType: "application/json", Route: "/raw", Times: 1},
			{ContentType: "application/json", Times: 8},
			{Route: "/half", Times: 0.5},
		}
	})
	json := gate.Request{Bytes: mib, ContentType: "Application/JSON; charset=utf-8"}
	var leases []gate.Lease
	for range 2 {
		l, err := b.Acquire(t.Context(), json)
		if err != nil {
			t.Fatal(err)
		}
		leases = append(leases, l)
	}
	inflight(t, b, 16*mib)
	_, err := b.Acquire(t.Context(), json)
	refused(t, err, gate.QueueTimeout)
	for _, l := range leases {
		l.Release()
	}
	for _, c := range []struct {
		r    gate.Request
		want int64
	}{
		{gate.Request{Bytes: mib, ContentType: "text/plain"}, mib},
		{gate.Request{Bytes: mib, ContentType: "application/json", Route: "/raw"}, mib},
		{gate.Request{Bytes: mib, ContentType: "application/json", Route: "/half"}, 8 * mib},
		{gate.Request{Bytes: mib + 1, ContentType: "text/plain", Route: "/half"}, mib/2 + 1}, // rounded up
		{gate.Request{Bytes: mib}, mib},
		{gate.Request{Bytes: 0, ContentType: "application/json"}, 0},
	} {
		l, err := b.Acquire(t.Context(), c.r)
		if err != nil {
			t.Fatalf("%+v: %v", c.r, err)
		}
		inflight(t, b, c.want)
		body, _ := under(l, max(c.r.Bytes, 0))
		readAll(t, body, c.r.Bytes)
		inflight(t, b, c.want)
		l.Release()
	}
	_, err = b.Acquire(t.Context(), gate.Request{Bytes: 2*mib + 1, ContentType: "application/json"})
	if r := refused(t, err, gate.BodyExceedsBudget); r.Limit != 16*mib {
		t.Errorf("limit %d, want the budget", r.Limit)
	}
}

// What waiters hold in memory is bounded by itself.
func TestA31QueuedBytes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := budget(t, 10*mib, func(c *Config) { c.MaxWaiters, c.MaxQueuedBytes = 5000, 16*mib })
		full := admit(t, b, 10*mib)
		var waiting []<-chan result
		for range 100 {
			w := acquire(t.Context(), b, gate.Request{Bytes: mib, Buffered: mib, Flow: "one"})
			select {
			case r := <-w:
				refused(t, r.err, gate.AdmissionBusy)
			default:
				waiting = append(waiting, w)
			}
		}
		if s := b.Snapshot(); len(waiting) != 16 || s.Waiting != 16 || s.QueuedBytes != 16*mib {
			t.Errorf("%d wait, %+v, want 16 with 16 MiB", len(waiting), s)
		}
		unread := acquire(t.Context(), b, gate.Request{Bytes: mib, Flow: "one"})
		waits(t, unread) // a body that is not read yet holds nothing
		full.Release()
		for _, w := range waiting {
			granted(t, w).Release()
		}
		granted(t, unread).Release()
	})
}

// The bound that follows from the budget.
func TestA31QueuedBytesFromBudget(t *testing.T) {
	for _, c := range []struct{ budget, want int64 }{{8 * mib, 4 * mib}, {64 * mib, 32 * mib}, {2 * gib, gib}} {
		b := budget(t, c.budget, nil)
		if got := b.set.Load().queue().MaxHeld; got != c.want {
			t.Errorf("budget %d: %d bytes may be queued, want %d", c.budget, got, c.want)
		}
	}
}

// The reason is the limit that refused.
func TestA32Reason(t *testing.T) {
	b := budget(t, 10*mib, func(c *Config) { c.MaxWaiters, c.MaxHeavyInFlight = 0, 100 })
	full := admit(t, b, 10*mib)
	_, err := b.Acquire(t.Context(), gate.Request{Bytes: mib})
	r := refused(t, err, gate.AdmissionBusy)
	if r.Unit != "bytes" || r.Limit != 10*mib {
		t.Errorf("limit %d %s, want 10 MiB of bytes", r.Limit, r.Unit)
	}
	if s := b.Snapshot(); s.ShedReasons[gate.AdmissionBusy] != 1 || s.Sheds != 1 {
		t.Errorf("sheds %v, want one for admission_busy", s.ShedReasons)
	}
	full.Release()
}
