package admission

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/pressure"
)

// Thousands of waiters meet changes of severity and of mode: each gets one answer, those that
// are evicted leave at once, and the light ones stay.
func TestCriticalEvictsThousands(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const each = 2000
		b := budget(t, 8*mib, func(c *Config) { c.MaxWaiters = 2 * each })
		full := admit(t, b, 8*mib)
		var heavies, lights, evicted, granted atomic.Int64
		var wg sync.WaitGroup
		for i := range 2 * each {
			wg.Go(func() {
				n, left := int64(1*kib), &lights
				if i%2 == 0 {
					n, left = 256*kib, &heavies
				}
				ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
				defer cancel()
				l, err := b.Acquire(ctx, gate.Request{Bytes: n, Flow: string(rune('a' + i%17))})
				defer l.Release()
				left.Add(1)
				switch {
				case err == nil:
					granted.Add(1)
				default:
					refused(t, err, gate.ResourcePressure)
					evicted.Add(1)
				}
			})
		}
		time.Sleep(2 * time.Second) // so that heavy ones have aged to the light ones' rank
		synctest.Wait()
		if s := b.Snapshot(); s.Waiting != 2*each || s.WaitingHeavy != each {
			t.Fatalf("%+v", s)
		}
		b.press(pressure.Critical)
		synctest.Wait()
		if s := b.Snapshot(); heavies.Load() != each || lights.Load() != 0 || s.Waiting != each || s.WaitingHeavy != 0 {
			t.Errorf("at critical %d heavy and %d light have left, want %d and 0; %d wait", heavies.Load(), lights.Load(), each, s.Waiting)
		}
		full.Release()
		wg.Wait()
		if evicted.Load() != each || granted.Load() != each {
			t.Errorf("%d evicted, %d granted, want %d each", evicted.Load(), granted.Load(), each)
		}
		b.press(pressure.Normal)
		admit(t, b, 8*mib).Release()
	})
}

// While it is critical the mode and all else may change: what does not enforce refuses
// nobody, what enforces again refuses heavy bodies again, and a new limit lets none in.
func TestReconfigureWhileCritical(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := budget(t, 8*mib, nil)
		held := admit(t, b, 8*mib)
		waiter := acquire(context.Background(), b, gate.Request{Bytes: mib})
		light := acquire(context.Background(), b, gate.Request{Bytes: kib})
		b.press(pressure.Critical)
		refusedNow(t, waiter, gate.ResourcePressure)
		for _, mode := range []gate.Mode{gate.Shadow, gate.Enforce, gate.Off, gate.Enforce, gate.Shadow, gate.Off, gate.Shadow, gate.Enforce} {
			reload(t, b, func(c *Config) { c.Mode = mode })
			if light != nil {
				granted(t, light).Release() // by the first mode that does not enforce
				light = nil
			}
			l, err := b.Acquire(context.Background(), gate.Request{Bytes: mib})
			if mode == gate.Enforce {
				refused(t, err, gate.ResourcePressure)
			} else if err != nil {
				t.Errorf("%s: %v", mode, err)
			}
			l.Release()
		}
		reload(t, b, func(c *Config) { c.MaxInflightBytes, c.HeavyBytes = 64*mib, mib+1 })
		admit(t, b, mib).Release() // light by the new configuration
		_, err := b.Acquire(context.Background(), gate.Request{Bytes: 2 * mib})
		refused(t, err, gate.ResourcePressure)
		held.Release()
	})
}

// The books of shadow mode under changing pressure: everybody is let in and counted once, and
// what would have been evicted holds nothing.
func TestShadowBooksUnderPressure(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := budget(t, 8*mib, func(c *Config) { c.Mode = gate.Shadow })
		r := rand.New(rand.NewPCG(1, 34))
		var out []gate.Lease
		var all int64
		for range 5000 {
			switch r.IntN(10) {
			case 0:
				b.press(pressure.Severity(r.IntN(3)))
			case 1:
				time.Sleep(time.Duration(r.Int64N(int64(3 * time.Second))))
			case 2, 3, 4:
				for range min(len(out), 2) {
					i := r.IntN(len(out))
					out[i].Release()
					out[i] = out[len(out)-1]
					out = out[:len(out)-1]
				}
			default:
				out = append(out, admit(t, b, r.Int64N(9*mib)-1))
				all++
			}
		}
		b.press(pressure.Critical)
		if s := b.Snapshot(); s.WaitingHeavy != 0 || s.InflightBytes > 8*mib {
			t.Errorf("%+v", s)
		}
		for _, l := range out {
			l.Release()
		}
		b.press(pressure.Normal)
		if s := b.Snapshot(); s.WouldAdmit+s.WouldQueue+s.WouldRefuse != all || min(s.WouldAdmit, s.WouldQueue, s.WouldRefuse) == 0 {
			t.Errorf("would admit %d, queue %d, refuse %d of %d", s.WouldAdmit, s.WouldQueue, s.WouldRefuse, all)
		}
	})
}

// K16: at critical pressure health checks are answered, and no more of them than their cap.
func TestK16ExemptAtCritical(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := budget(t, 8*mib, func(c *Config) { c.Exempt = []string{"/livez", "/metrics"} })
		b.press(pressure.Critical)
		probe := func(i int) gate.Request { return gate.Request{Path: []string{"/livez", "/metrics"}[i%2]} }
		var out []gate.Lease
		for i := range 1000 {
			l, err := b.Acquire(context.Background(), probe(i))
			if err != nil {
				refused(t, err, gate.AdmissionBusy)
				continue
			}
			out = append(out, l)
		}
		if len(out) != 256 {
			t.Errorf("%d at once, want 256", len(out))
		}
		for _, n := range []int64{mib, -1} { // no way round the pressure
			_, err := b.Acquire(context.Background(), gate.Request{Path: "/livez", Bytes: n})
			refused(t, err, gate.ResourcePressure)
		}
		for _, l := range out {
			l.Release()
		}
		// Also where every request is looked at for its price, what is light passes.
		reload(t, b, func(c *Config) { c.Factors = []Factor{{ContentType: "application/json", Times: 8}} })
		for i, r := range []gate.Request{probe(0), probe(1), {}, {Bytes: 100 * kib}, {Bytes: 255 * kib, ContentType: "application/json"}} {
			l, err := b.Acquire(context.Background(), r)
			if err != nil {
				t.Errorf("%d: %v", i, err)
			}
			l.Release()
		}
	})
}
