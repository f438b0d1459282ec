package admission

import (
	"context"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

// Close refuses those who wait and those who come, and leaves those who are in
// alone; Drain returns when the last of them is done. The bubble would report the
// budget's goroutine if it stayed.
func TestCloseAndDrain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := budget(t, 8*mib, func(c *Config) { c.Exempt = []string{"/livez"} })
		l := admit(t, b, -1)
		body, _ := under(l, mib)
		readN(t, body, 100*kib)
		exempt, err := b.Acquire(t.Context(), gate.Request{Path: "/livez"})
		if err != nil {
			t.Fatal(err)
		}
		full := admit(t, b, 7*mib)
		var all []<-chan result
		for range 10 {
			all = append(all, acquire(t.Context(), b, gate.Request{Bytes: 2 * mib}))
		}
		drained := make(chan time.Time)
		go func() {
			if err := b.Drain(context.Background()); err != nil {
				t.Error(err)
			}
			drained <- time.Now()
		}()

		start := time.Now()
		b.Close()
		for _, w := range all {
			refusedNow(t, w, gate.ShuttingDown)
		}
		for _, r := range []gate.Request{{Bytes: 1}, {Bytes: 0}, {Bytes: -1}, {Bytes: mib}, {Path: "/livez"}} {
			_, err := b.Acquire(t.Context(), r)
			refused(t, err, gate.ShuttingDown)
		}
		if d := time.Since(start); d != 0 {
			t.Errorf("the refusals took %v", d)
		}
		if n := b.Snapshot().ShedReasons[gate.ShuttingDown]; n != 15 {
			t.Errorf("counted %d, want 15", n)
		}

		soon, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := b.Drain(soon); err != context.DeadlineExceeded {
			t.Errorf("Drain = %v while leases are out, want the context's error", err)
		}
		readAll(t, body, mib-100*kib) // what is in goes on, and may grow
		time.Sleep(time.Minute)
		for _, x := range []gate.Lease{full, l, exempt} {
			synctest.Wait()
			select {
			case <-drained:
				t.Fatal("drained with leases out")
			default:
			}
			x.Release()
		}
		if at := <-drained; at.Sub(start) != time.Minute+time.Second {
			t.Errorf("drained after %v", at.Sub(start))
		}
		if err := b.Drain(soon); err != nil { // nothing is left to wait for
			t.Errorf("Drain of a drained budget = %v", err)
		}
		b.Close()
	})
}

// Close may be called from anywhere, and whatever is called afterwards does no harm.
func TestAfterClose(t *testing.T) {
	b := budget(t, 8*mib, nil)
	l := admit(t, b, mib)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(b.Close)
	}
	wg.Wait()
	b.Refresh()
	reload(t, b, func(c *Config) { c.MaxInflightBytes, c.MaxExempt = 20*mib, 3 })
	if s := b.Snapshot(); s.MaxInflightBytes != 20*mib || s.InflightBytes != mib {
		t.Errorf("%+v", s)
	}
	if err := l.Grow(mib); err != nil {
		t.Error(err)
	}
	l.Release()
	reload(t, b, func(c *Config) { c.Mode = gate.Off })
	reload(t, b, func(c *Config) { c.Mode = gate.Enforce })
	_, err := b.Acquire(t.Context(), gate.Request{Bytes: 1})
	refused(t, err, gate.ShuttingDown)
}

// Requests race with Close: each is admitted or refused, and Drain sees the last.
func TestCloseUnderLoad(t *testing.T) {
	for range 10 {
		b := budget(t, 8*mib, nil)
		var wg sync.WaitGroup
		for i := range 16 {
			wg.Go(func() {
				for n := 0; ; n++ {
					size := int64((i+n)%4) * mib / 2
					l, err := b.Acquire(context.Background(), gate.Request{Bytes: size})
					if err != nil {
						refusedAs(t, err, gate.ShuttingDown)
						return
					}
					body, _ := under(l, size)
					if got, err := io.Copy(io.Discard, body); got != size || err != nil {
						t.Errorf("read %d of %d: %v", got, size, err)
					}
					l.Release()
				}
			})
		}
		b.Close()
		if err := b.Drain(t.Context()); err != nil {
			t.Error(err)
		}
		wg.Wait()
		checkEmpty(t, b)
	}
}
