package headgate_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

// First the waiters are refused, then stop is called, then leases are awaited.
func TestShutdownOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, small())
		lease := hold(t, h, 8*mib)
		waiter := wait(t, h, mib)
		synctest.Wait()

		type key struct{}
		ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), key{}, "v"), time.Minute)
		defer cancel()
		stopped, done := make(chan struct{}), make(chan error, 1)
		go func() {
			done <- h.Shutdown(ctx, func(ctx context.Context) error {
				defer close(stopped)
				synctest.Wait()
				select {
				case err := <-waiter:
					if !errors.Is(err, gate.ShuttingDown) {
						t.Errorf("the waiter ended with %v, want shutting_down", err)
					}
				default:
					t.Error("stop is called while somebody still waits")
				}
				if _, err := h.Bytes.Acquire(ctx, gate.Request{Bytes: 1}); !errors.Is(err, gate.ShuttingDown) {
					t.Errorf("a newcomer gets %v, want shutting_down", err)
				}
				if ctx.Value(key{}) != "v" || !lease.Live() {
					t.Error("stop got another context, or the lease was broken")
				}
				return nil
			})
		}()
		<-stopped
		synctest.Wait()
		if len(done) > 0 {
			t.Error("returned while a lease is out")
		}
		time.Sleep(30 * time.Second)
		lease.Release()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if s := h.Snapshot().Admission; s.InflightBytes != 0 || s.Inflight != 0 || s.Waiting != 0 {
			t.Errorf("counters after it: %+v", s)
		}
	})
}

// ctx bounds the wait for leases, and the error says which gate still has some.
func TestShutdownContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, small())
		lease := hold(t, h, mib)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		start := time.Now()
		err := h.Shutdown(ctx, nil)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "admission") {
			t.Errorf("Shutdown = %v", err)
		}
		if took := time.Since(start); took != 10*time.Second {
			t.Errorf("gave up after %v", took)
		}
		if !lease.Live() {
			t.Error("the lease was broken")
		}
		lease.Release()
		if err := h.Shutdown(t.Context(), nil); err != nil {
			t.Errorf("again, with the lease back: %v", err)
		}
	})
}

func TestShutdownJoinsErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, small())
		defer hold(t, h, mib).Release()
		broken := errors.New("the listener broke")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := h.Shutdown(ctx, func(context.Context) error { return broken })
		if !errors.Is(err, broken) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Shutdown = %v, want both errors", err)
		}
	})
}

// An error of stop does not cut the wait for leases short.
func TestShutdownWaitsAfterStopFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, small())
		lease := hold(t, h, mib)
		time.AfterFunc(time.Second, lease.Release)
		broken := errors.New("the listener broke")
		err := h.Shutdown(t.Context(), func(context.Context) error { return broken })
		if !errors.Is(err, broken) || strings.Contains(err.Error(), "leases") {
			t.Errorf("Shutdown = %v, want stop's error alone", err)
		}
		if lease.Live() {
			t.Error("did not wait for the lease")
		}
	})
}

func TestShutdownTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, small())
		lease := hold(t, h, mib)
		stops := 0
		stop := func(context.Context) error { stops++; return nil }
		first, second := make(chan error, 1), make(chan error, 1)
		go func() { first <- h.Shutdown(t.Context(), stop) }()
		synctest.Wait()
		go func() { second <- h.Shutdown(t.Context(), nil) }()
		synctest.Wait()
		if len(first)+len(second) > 0 {
			t.Error("returned while a lease is out")
		}
		lease.Release()
		if a, b := <-first, <-second; a != nil || b != nil || stops != 1 {
			t.Errorf("Shutdown = %v and %v, stop called %d times", a, b, stops)
		}
		if err := h.Shutdown(t.Context(), stop); err != nil || stops != 2 {
			t.Errorf("a third time: %v, stop called %d times", err, stops)
		}
	})
}

// Open's goroutine ends with Shutdown, even when leases stay out: the bubble would
// not end otherwise.
func TestShutdownLeavesNothingRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, small())
		hold(t, h, mib) // never released
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := h.Shutdown(ctx, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("Shutdown = %v", err)
		}
	})
}

// Outbound stays open while requests that were admitted finish, and is closed and
// waited for afterwards.
func TestShutdownClosesOutboundLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := small()
		c.Inflight.MaxInflight = 1
		h := open(t, c)
		bytes := hold(t, h, mib)
		slot, err := h.Outbound.Acquire(t.Context(), gate.Request{Lane: "llm"})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error)
		go func() { ended <- h.Shutdown(context.Background(), nil) }()
		synctest.Wait()
		slot.Release()
		slot, err = h.Outbound.Acquire(t.Context(), gate.Request{Lane: "llm"})
		if err != nil {
			t.Fatalf("a request that runs still cannot call out: %v", err)
		}
		bytes.Release()
		synctest.Wait()
		if _, err := h.Outbound.Acquire(t.Context(), gate.Request{Lane: "llm"}); !errors.Is(err, gate.ShuttingDown) {
			t.Errorf("Acquire = %v, want shutting_down", err)
		}
		select {
		case err := <-ended:
			t.Fatalf("Shutdown = %v while a slot is held", err)
		default:
		}
		slot.Release()
		if err := <-ended; err != nil {
			t.Errorf("Shutdown = %v", err)
		}
	})
}

// Tenants' lanes are shut down with the bytes: waiters and newcomers are refused at once,
// what is admitted finishes, and its calls go out until then.
func TestShutdownTenants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := small()
		c.Lanes.Mode, c.Lanes.MinLimit, c.Lanes.InitialLimit = gate.Enforce, 8, 8
		c.Inflight.MaxInflight = 1
		h := open(t, c)
		ask := func() (gate.Lease, error) { return h.Tenants.Acquire(t.Context(), gate.Request{Flow: "a", Cost: 8}) }
		lease, err := ask()
		if err != nil {
			t.Fatal(err)
		}
		waiter := make(chan error, 1)
		go func() { _, err := ask(); waiter <- err }()
		synctest.Wait()
		done := make(chan error, 1)
		go func() { done <- h.Shutdown(context.Background(), nil) }()
		synctest.Wait()
		if _, err := ask(); !errors.Is(err, gate.ShuttingDown) || !errors.Is(<-waiter, gate.ShuttingDown) {
			t.Errorf("a newcomer gets %v", err)
		}
		slot, err := h.Outbound.Acquire(t.Context(), gate.Request{Lane: "b"})
		if err != nil {
			t.Errorf("the call of an admitted request: %v", err)
		}
		slot.Release()
		if len(done) > 0 {
			t.Error("returned while a lease is out")
		}
		lease.Release()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if s := h.Snapshot().Lanes; s.Inflight != 0 || s.QueuedCount != 0 {
			t.Errorf("%+v", s)
		}
	})
}
