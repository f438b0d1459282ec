package waitq

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

// Every outcome but a grant has a reason of its own, and a context that ended says how.
func TestRefusal(t *testing.T) {
	left, cancel := context.WithCancel(context.Background())
	cancel()
	late, cancel := context.WithDeadline(context.Background(), time.Now().Add(-time.Second))
	defer cancel()
	for _, tc := range []struct {
		outcome Outcome
		ctx     context.Context
		reason  gate.Reason
		cause   error
	}{
		{Full, late, "the policy's own", nil},
		{FlowFull, late, gate.TenantQueueFull, nil},
		{TimedOut, late, gate.QueueTimeout, nil},
		{Hopeless, context.Background(), gate.Deadline, nil},
		{Displaced, left, gate.Displaced, nil},
		{Shed, left, gate.ResourcePressure, nil},
		{Closed, left, gate.ShuttingDown, nil},
		{Canceled, left, gate.Canceled, context.Canceled},
		{Canceled, late, gate.Deadline, context.DeadlineExceeded},
	} {
		reason, cause := Result{Outcome: tc.outcome}.Refusal(tc.ctx, "the policy's own")
		if reason != tc.reason || !errors.Is(cause, tc.cause) {
			t.Errorf("outcome %d: %s, %v; want %s, %v", tc.outcome, reason, cause, tc.reason, tc.cause)
		}
	}
}

// Jitter adds up to a half, never takes away.
func TestG7Jitter(t *testing.T) {
	for s := 1; s <= 40; s++ {
		base := time.Duration(s) * time.Second
		low, high := 1<<30*time.Second, time.Duration(0)
		for range 2000 {
			d := Jitter(base)
			low, high = min(low, d), max(high, d)
			if d%time.Second != 0 {
				t.Fatalf("Jitter(%v) = %v, want whole seconds", base, d)
			}
		}
		if most := base + (base+time.Second)/2; low != base || high > most || high == base {
			t.Errorf("Jitter(%v) = %v..%v, want up to %v", base, low, high, most)
		}
	}
}
