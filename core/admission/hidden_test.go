package admission

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

// Bodies that the count cap refuses hide no room: with 7 of 8 MiB free a light body is
// admitted, and grows.
func TestCountCapHidesNoRoom(t *testing.T) {
	b := budget(t, 8*mib, func(c *Config) { c.MaxHeavyInFlight, c.HealthyHeadroom, c.QueueTimeout = 1, 0, 0 })
	held := admit(t, b, mib)
	var ended atomic.Bool
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for !ended.Load() {
				if l, err := b.Acquire(context.Background(), gate.Request{Bytes: 7 * mib}); err == nil {
					t.Error("admitted beyond the count cap")
					l.Release()
				}
			}
		})
	}
	for range 20_000 {
		l, err := b.Acquire(context.Background(), gate.Request{Bytes: 100 * kib})
		if err == nil {
			err = l.Grow(900 * kib)
		}
		l.Release()
		if err != nil {
			t.Errorf("with 7 MiB free: %v", err)
			break
		}
	}
	ended.Store(true)
	wg.Wait()
	held.Release()
}

// steady is a body that comes at 20 kB/s.
type steady struct{}

func (steady) Read(p []byte) (int, error) {
	time.Sleep(5 * time.Millisecond)
	return min(len(p), 100), nil
}

func (steady) Close() error { return nil }

// Where nobody may wait nobody does: requests that are refused do not make a body slow that
// keeps to MinBodyRate.
func TestRefusalsAreNoWaiters(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := budget(t, 8*mib, func(c *Config) { c.QueueTimeout = 0 })
		l := admit(t, b, 8*mib)
		var ended atomic.Bool
		go func() {
			for !ended.Load() {
				for range 20 {
					if _, err := b.Acquire(context.Background(), gate.Request{Bytes: 1000}); err == nil {
						t.Error("admitted")
					}
					if b.q.Waiting() {
						t.Error("somebody waits")
					}
				}
				time.Sleep(5 * time.Millisecond) // at the moments of the reads
			}
		}()
		body, p := l.Body(steady{}, func(time.Time) error { return nil }), make([]byte, 4096)
		for start := time.Now(); time.Since(start) < 12*time.Second; {
			if _, err := body.Read(p); err != nil {
				t.Fatalf("after %v: %v", time.Since(start), err)
			}
		}
		ended.Store(true)
		time.Sleep(10 * time.Millisecond) // for the last of them
		synctest.Wait()
		l.Release()
	})
}
