package admission

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

// A waiter is refused at its time, whether anybody else arrives or not.
func TestC9TimeoutWithoutArrivals(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := budget(t, 8*mib, nil)
		full := admit(t, b, 8*mib)
		start := time.Now()
		w := acquire(t.Context(), b, gate.Request{Bytes: mib})
		time.Sleep(15*time.Second - time.Nanosecond)
		waits(t, w)
		time.Sleep(time.Nanosecond)
		r := refusedNow(t, w, gate.QueueTimeout)
		if d := time.Since(start); d != 15*time.Second || r.Waited != 15*time.Second {
			t.Errorf("refused after %v, which it calls %v, want 15s", d, r.Waited)
		}
		if r.RetryAfter < 15*time.Second { // it has just seen that less is not enough
			t.Errorf("Retry-After %v after 15s in vain", r.RetryAfter)
		}
		full.Release()
	})
}

// The caller's own deadline counts too, and a caller that gave up is told apart
// from one whose time is over.
func TestC10OwnDeadline(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := budget(t, 8*mib, func(c *Config) { c.QueueTimeout = time.Minute })
		full := admit(t, b, 8*mib)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		w := acquire(ctx, b, gate.Request{Bytes: mib})
		time.Sleep(5*time.Second - time.Nanosecond)
		waits(t, w)
		time.Sleep(time.Nanosecond)
		r := refusedNow(t, w, gate.Deadline)
		if r.Waited != 5*time.Second || r.Cause != context.DeadlineExceeded || !r.Timeout() {
			t.Errorf("%+v, want the context's error after 5s", r)
		}
		if s := b.Snapshot(); s.ShedReasons[gate.Deadline] != 1 || s.Canceled != 0 {
			t.Errorf("sheds %v, canceled %d", s.ShedReasons, s.Canceled)
		}
		full.Release()
	})
}

// Where the holds are known, a caller without the time for one is refused at once.
func TestC10NoTimeLeft(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := budget(t, 8*mib, func(c *Config) { c.QueueTimeout = time.Hour })
		l := admit(t, b, 8*mib)
		for range 40 { // each was queued, so each is timed
			w := acquire(t.Context(), b, gate.Request{Bytes: 8 * mib})
			l.Release()
			l = granted(t, w)
			time.Sleep(4 * time.Second)
		}
		if h := b.Snapshot().TypicalHoldHeavy; h < 2 || h > 4 {
			t.Fatalf("typical_hold_heavy_s = %v, want 4 or up to a third less", h)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		_, err := b.Acquire(ctx, gate.Request{Bytes: mib})
		r := refused(t, err, gate.Deadline)
		if d := time.Since(start); d != 0 || r.Waited != 0 {
			t.Errorf("refused after %v, want at once", d)
		}
		l.Release()
	})
}

// Waiters whose clients left are gone before any room comes free.
func TestC12AbandonedWaiters(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := budget(t, 8*mib, nil)
		full := admit(t, b, 8*mib)
		ctx, cancel := context.WithCancel(t.Context())
		var gone []<-chan result
		for i := range 10 {
			gone = append(gone, acquire(ctx, b, gate.Request{Bytes: mib, Buffered: kib, Flow: fmt.Sprint(i)}))
		}
		stays := acquire(t.Context(), b, gate.Request{Bytes: mib})
		if s := b.Snapshot(); s.Waiting != 11 || s.QueuedBytes != 10*kib {
			t.Fatalf("%+v, want 11 waiting", s)
		}
		cancel()
		synctest.Wait()
		if s := b.Snapshot(); s.Waiting != 1 || s.QueuedBytes != 0 || s.Canceled != 10 || s.Sheds != 0 {
			t.Errorf("%+v, want one left, 10 canceled and no shed", s)
		}
		for _, w := range gone {
			refusedNow(t, w, gate.Canceled)
		}
		full.Release()
		granted(t, stays).Release()
		if s := b.Snapshot(); s.Admitted != 2 {
			t.Errorf("%d admitted, want 2", s.Admitted)
		}
	})
}

// A grant that meets the caller's leaving goes back, and is not counted as admitted.
func TestC12GrantMeetsCancel(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := budget(t, 8*mib, nil)
		admitted, canceled := int64(0), int64(0)
		for range 500 {
			l := admit(t, b, 8*mib)
			ctx, cancel := context.WithCancel(t.Context())
			w := acquire(ctx, b, gate.Request{Bytes: 8 * mib})
			cancel()
			l.Release()
			r := <-w
			if r.err == nil {
				admitted++
			} else {
				refused(t, r.err, gate.Canceled)
				canceled++
			}
			r.lease.Release()
			inflight(t, b, 0)
		}
		s := b.Snapshot()
		if s.Admitted != 500+admitted || s.Canceled != canceled || s.Sheds != 0 {
			t.Errorf("counted %d admitted and %d canceled, want %d and %d", s.Admitted, s.Canceled, 500+admitted, canceled)
		}
		if b.q.Snapshot().Returned == 0 {
			t.Error("no grant met a cancel: the test shows nothing")
		}
	})
}

// Streams hold for 15 s, the wait is 2 s: the hint has to come from the holds.
func TestC14RetryAfterFromHolds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := budget(t, 8*mib, func(c *Config) { c.QueueTimeout = 2 * time.Second })
		stream := gate.Request{Bytes: 8 * mib}
		l := admit(t, b, 8*mib)
		w := acquire(t.Context(), b, stream)
		time.Sleep(time.Second)
		l.Release()
		l = granted(t, w)
		time.Sleep(15 * time.Second)
		l.Release() // that is all it knows

		for range 20 {
			l = admit(t, b, 8*mib)
			go func() {
				time.Sleep(15 * time.Second)
				l.Release()
			}()
			time.Sleep(time.Second)
			_, err := b.Acquire(t.Context(), stream)
			r := refused(t, err, gate.QueueTimeout)
			if r.RetryAfter < 10*time.Second || r.RetryAfter > time.Minute {
				t.Errorf("Retry-After %v where streams hold for 15s", r.RetryAfter)
			}
			time.Sleep(r.RetryAfter)
			again, err := b.Acquire(t.Context(), stream)
			if err != nil {
				t.Fatalf("the first retry, after %v: %v", r.RetryAfter, err)
			}
			again.Release()
		}
	})
}

// There is one bound, and nothing hidden behind it.
func TestC16OneQueue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := budget(t, 8*mib, func(c *Config) { c.MaxWaiters = 1 })
		full := admit(t, b, 8*mib)
		var waiting, busy int
		var last <-chan result
		for range 5 {
			w := acquire(t.Context(), b, gate.Request{Bytes: mib, Flow: "one"})
			select {
			case r := <-w:
				refused(t, r.err, gate.AdmissionBusy)
				busy++
			default:
				waiting++
				last = w
			}
		}
		if s := b.Snapshot(); waiting != 1 || busy != 4 || s.Waiting != 1 {
			t.Errorf("%d wait, %d busy, want 1 and 4", waiting, busy)
		}
		full.Release()
		granted(t, last).Release()
	})
}

// A million arrivals on a full queue: it stays bounded, and so does the heap.
func TestC18BoundedQueue(t *testing.T) {
	arrivals := 1_000_000
	if testing.Short() || raceEnabled {
		arrivals = 100_000
	}
	b := budget(t, 8*mib, func(c *Config) { c.MaxWaiters, c.QueueTimeout = 100, time.Hour })
	full := admit(t, b, 8*mib)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			_, err := b.Acquire(ctx, gate.Request{Bytes: mib, Flow: "one"})
			refusedAs(t, err, gate.Canceled)
		})
	}
	for b.Snapshot().Waiting < 100 {
		runtime.Gosched()
	}
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	for range arrivals {
		if _, err := b.Acquire(ctx, gate.Request{Bytes: mib, Flow: "one"}); err == nil {
			t.Fatal("admitted")
		}
	}
	if s := b.Snapshot(); s.Waiting != 100 || s.ShedReasons[gate.AdmissionBusy] != int64(arrivals) {
		t.Errorf("%d wait, sheds %v", s.Waiting, s.ShedReasons)
	}
	if grown := heap() - before; grown > 5*mib {
		t.Errorf("the heap grew by %d bytes", grown)
	}
	cancel()
	wg.Wait()
	full.Release()
}

// Those refused together do not come back together.
func TestG7RetryAfterSpread(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := budget(t, 8*mib, func(c *Config) { c.QueueTimeout = 20 * time.Second })
		full := admit(t, b, 8*mib)
		var all []<-chan result
		for range 300 {
			all = append(all, acquire(t.Context(), b, gate.Request{Bytes: mib}))
		}
		time.Sleep(20 * time.Second)
		seen := map[string]int{}
		for _, w := range all {
			r := refusedNow(t, w, gate.QueueTimeout)
			if r.RetryAfter < 20*time.Second || r.RetryAfter > 60*time.Second || r.RetryAfter%time.Second != 0 {
				t.Errorf("Retry-After %v, want whole seconds, 20 to 60", r.RetryAfter)
			}
			seen[r.RetryAfterSeconds()]++
		}
		for s, n := range seen {
			if n > 100 {
				t.Errorf("%d of 300 come back after %s s", n, s)
			}
		}
		full.Release()
	})
}

// D15: timeout and grant in the same instant, again and again: nothing is lost.
func TestD15GrantMeetsTimeout(t *testing.T) {
	rounds := 20_000
	if testing.Short() || raceEnabled {
		rounds = 2_000
	}
	bubble(t, func(t *testing.T) {
		const wait = 10 * time.Millisecond
		b := budget(t, 8*mib, func(c *Config) { c.QueueTimeout = wait })
		admitted, timedOut := 0, 0
		for i := range rounds {
			l := admit(t, b, 8*mib)
			go func() {
				time.Sleep(wait)
				l.Release()
			}()
			ctx, cancel := t.Context(), context.CancelFunc(func() {})
			if i%2 == 0 { // and the caller's own deadline with them
				ctx, cancel = context.WithTimeout(ctx, wait)
			}
			w, err := b.Acquire(ctx, gate.Request{Bytes: 8 * mib})
			if err == nil {
				admitted++
			} else {
				timedOut++
			}
			w.Release()
			cancel()
			synctest.Wait()
			if n := b.Snapshot().InflightBytes; n != 0 {
				t.Fatalf("round %d: %d bytes are lost", i, n)
			}
		}
		if s := b.Snapshot(); s.Admitted != int64(rounds+admitted) || s.Sheds != int64(timedOut) {
			t.Errorf("counted %d and %d, want %d and %d", s.Admitted, s.Sheds, rounds+admitted, timedOut)
		}
	})
}
