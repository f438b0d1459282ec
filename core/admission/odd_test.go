package admission

import (
	"context"
	"math"
	"testing"

	"github.com/headgate-go/headgate/core/gate"
)

// Odd sizes do not corrupt the books.
func TestA18NegativeAndZero(t *testing.T) {
	b := budget(t, 10*mib, func(c *Config) { c.QueueTimeout = 0 })
	l := admit(t, b, -5) // any negative length is an unknown one
	inflight(t, b, quantum)
	for _, n := range []int64{-1, 0, -1 << 62} {
		if err := l.Grow(n); err != nil {
			t.Errorf("Grow(%d) = %v", n, err)
		}
		l.Shrink(n)
	}
	inflight(t, b, quantum)
	l.Shrink(1 << 62) // at most what it holds
	inflight(t, b, 0)
	l.Release()

	full := admit(t, b, 10*mib)
	admit(t, b, 0).Release() // no body: nothing that a full budget could refuse
	full.Release()

	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := b.Acquire(canceled, gate.Request{})
	refused(t, err, gate.Canceled) // but the other checks are made
}

// Sizes near the end of the number line, in every field that takes one.
func TestA18Huge(t *testing.T) {
	const huge = 1<<63 - 1
	b := budget(t, 10*mib, func(c *Config) {
		c.QueueTimeout, c.HardMaxBodyBytes = 0, huge
		c.Factors = []Factor{{ContentType: "application/json", Times: 64}, {ContentType: "text/plain", Times: 1e-300}}
	})
	for _, r := range []gate.Request{
		{Bytes: huge}, {Bytes: huge, ContentType: "application/json"}, {Bytes: huge / 63, ContentType: "application/json"},
	} {
		_, err := b.Acquire(t.Context(), r)
		refused(t, err, gate.BodyExceedsBudget)
	}
	l, err := b.Acquire(t.Context(), gate.Request{Bytes: huge, ContentType: "text/plain"})
	if err != nil { // a billionth of a byte each
		t.Fatal(err)
	}
	inflight(t, b, 1)
	for _, n := range []int64{huge, 1 << 42, 1<<42 + 1, 1 << 41, 11 * mib} {
		refused(t, l.Grow(n), gate.AdmissionBusy)
	}
	inflight(t, b, 1)
	body, _ := under(l, 100*kib)
	readN(t, body, 100*kib)
	l.Release()
	full := admit(t, b, 10*mib)
	_, err = b.Acquire(t.Context(), gate.Request{Bytes: 1, Buffered: huge, Weight: math.MaxInt})
	refused(t, err, gate.QueueTimeout)
	full.Release()
}

// Weights outside 1 to 1000 count as the nearest of them.
func TestOddWeights(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := budget(t, 10*mib, nil)
		full := admit(t, b, 10*mib)
		var all []<-chan result
		for _, w := range []int{-1, 0, 1000, 1001, 1 << 16, math.MaxInt32, math.MaxInt} {
			all = append(all, acquire(t.Context(), b, gate.Request{Bytes: 1, Flow: "f", Weight: w}))
		}
		full.Release()
		for _, w := range all {
			granted(t, w).Release()
		}
	})
}

// A caller may defer the release before it looks at the error.
func TestA19ReleaseAfterFailedAcquire(t *testing.T) {
	b := budget(t, 10*mib, func(c *Config) { c.QueueTimeout = 0 })
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	full := admit(t, b, 10*mib)
	for _, c := range []struct {
		ctx  context.Context
		n    int64
		want gate.Reason
	}{
		{canceled, mib, gate.Canceled}, {t.Context(), mib, gate.QueueTimeout},
		{t.Context(), 20 * mib, gate.BodyExceedsBudget}, {t.Context(), 60 * mib, gate.PayloadTooLarge},
	} {
		l, err := b.Acquire(c.ctx, gate.Request{Bytes: c.n})
		refused(t, err, c.want)
		if l.Live() {
			t.Errorf("%s: the lease lives", c.want)
		}
		l.Release()
		l.Release()
		inflight(t, b, 10*mib)
	}
	full.Release()
	full.Release()
	inflight(t, b, 0)
}
