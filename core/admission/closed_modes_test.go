package admission

import (
	"context"
	"testing"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

// Close refuses every later request, whatever the mode, and Drain waits for the
// leases of shadow mode too, those that only stand in its books included.
func TestCloseInEveryMode(t *testing.T) {
	for _, mode := range []gate.Mode{gate.Off, gate.Shadow, gate.Enforce} {
		t.Run(mode.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				b := budget(t, 8*mib, func(c *Config) { c.Mode = mode })
				held := admit(t, b, 8*mib)
				var booked gate.Lease
				if mode == gate.Shadow {
					booked = admit(t, b, mib) // would wait
				}
				b.Close()
				for _, n := range []int64{0, 1, mib, 100 * mib, -1} {
					l, err := b.Acquire(t.Context(), gate.Request{Bytes: n})
					if want := gate.ShuttingDown; n == 100*mib && mode == gate.Enforce {
						refused(t, err, gate.PayloadTooLarge)
					} else {
						refused(t, err, want)
					}
					if l.Live() {
						t.Errorf("%d bytes: a lease after Close", n)
					}
				}
				if mode == gate.Off {
					return // its leases hold nothing to wait for
				}
				held.Release()
				if mode == gate.Shadow {
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					if b.Drain(ctx) == nil {
						t.Error("Drain does not wait for what is booked")
					}
					booked.Release()
				}
				if err := b.Drain(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
