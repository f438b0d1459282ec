package admission

import (
	"context"
	"io"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/headgate-go/headgate/core/gate"
)

// A probe is answered while everything is full, and moves no number of the budget.
func TestE1ExemptWhenFull(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := budget(t, 8*mib, func(c *Config) { c.MaxWaiters, c.Exempt = 1, []string{"/livez", "/readyz"} })
		full := admit(t, b, 8*mib)
		w := acquire(t.Context(), b, gate.Request{Bytes: mib, Flow: "one"})
		waits(t, w)
		for _, r := range []gate.Request{
			{Path: "/livez"}, {Path: "/readyz"}, {Path: "/livez", Bytes: 100}, {Path: "/livez", Bytes: 256*kib - 1},
		} {
			l, err := b.Acquire(t.Context(), r)
			if err != nil {
				t.Fatalf("%+v: %v", r, err)
			}
			s := b.Snapshot()
			if s.InflightBytes != 8*mib || s.Inflight != 1 || s.HeavyInflight != 1 || s.ExemptInflight != 1 || s.Waiting != 1 {
				t.Errorf("%+v: %+v", r, s)
			}
			l.Release()
		}
		full.Release()
		granted(t, w).Release()
	})
}

// Only the path itself is exempt, byte for byte, and no heavy body rides on it.
func TestE1ExactPath(t *testing.T) {
	b := budget(t, 8*mib, func(c *Config) { c.QueueTimeout, c.Exempt = 0, []string{"/livez"} })
	full := admit(t, b, 8*mib)
	for _, path := range []string{
		"", "/", "//livez", "/livez/", "/livez/../api", "/api/../livez", "/./livez", "/LIVEZ", "/livez ", "/livezz",
		"/livez?x", "/livez%20", "/live", "livez", "/livez\x00", "/livez;a=b", "http://host/livez",
	} {
		if _, err := b.Acquire(t.Context(), gate.Request{Path: path, Bytes: 100}); err == nil {
			t.Errorf("%q is exempt", path)
		}
	}
	for _, n := range []int64{-1, 256 * kib, mib} { // one of unknown length counts as heavy
		_, err := b.Acquire(t.Context(), gate.Request{Path: "/livez", Bytes: n})
		refused(t, err, gate.QueueTimeout)
	}
	_, err := b.Acquire(t.Context(), gate.Request{Path: "/livez", Bytes: 60 * mib})
	refused(t, err, gate.PayloadTooLarge)
	full.Release()
}

// More than was declared does not ride on an exempt path either.
func TestE1ExemptBody(t *testing.T) {
	b := budget(t, 8*mib, func(c *Config) { c.Exempt = []string{"/livez"} })
	for _, declared := range []int64{0, 100} {
		l, err := b.Acquire(t.Context(), gate.Request{Path: "/livez", Bytes: declared})
		if err != nil {
			t.Fatal(err)
		}
		body, _ := under(l, declared)
		readAll(t, body, declared)
		body, _ = under(l, mib)
		n, err := io.Copy(io.Discard, body)
		if r := refused(t, err, gate.PayloadTooLarge); n != declared || r.Limit != declared {
			t.Errorf("read %d for a limit of %d, want %d", n, r.Limit, declared)
		}
		if err := l.Grow(20 * mib); err != nil {
			t.Errorf("Grow = %v: an exempt lease holds no bytes", err)
		}
		l.Shrink(mib)
		inflight(t, b, 0)
		l.Release()
		l.Release()
	}
}

// Exempt requests have a cap of their own, and no queue.
func TestK16ExemptCap(t *testing.T) {
	b := budget(t, 8*mib, func(c *Config) { c.Exempt = []string{"/livez"} })
	var in, most, busy atomic.Int64
	var wg sync.WaitGroup
	all := make(chan struct{})
	var decided atomic.Int64
	for range 1000 {
		wg.Go(func() {
			l, err := b.Acquire(context.Background(), gate.Request{Path: "/livez"})
			defer l.Release()
			if err != nil {
				busy.Add(1)
			} else if n := in.Add(1); n > most.Load() {
				most.Store(n)
			}
			if decided.Add(1) == 1000 {
				close(all)
			}
			<-all
		})
	}
	wg.Wait()
	if in.Load() != 256 || busy.Load() != 744 {
		t.Errorf("%d in, %d refused, want 256 and 744", in.Load(), busy.Load())
	}
	for range 256 {
		l, err := b.Acquire(t.Context(), gate.Request{Path: "/livez"})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Release()
	}
	_, err := b.Acquire(t.Context(), gate.Request{Path: "/livez"})
	r := refused(t, err, gate.AdmissionBusy)
	if r.Limit != 256 || r.Unit != "exempt requests" || r.Waited != 0 {
		t.Errorf("%+v, want the cap of 256 as the limit", r)
	}
	admit(t, b, mib).Release() // everyone else has their own room
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = b.Acquire(canceled, gate.Request{Path: "/livez"})
	refused(t, err, gate.Canceled)
}
