package lanes

import (
	"context"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

// backend is a back end in a bubble, whose calls take base times what its load makes of
// it, with jitter. It is entered and left under its lock.
type backend struct {
	mu       sync.Mutex
	rnd      *rand.Rand
	base     time.Duration
	capacity int // calls
	active   int
}

func newBackend(capacity int, base time.Duration) *backend {
	return &backend{rnd: rand.New(rand.NewPCG(1, 2)), base: base, capacity: capacity}
}

// serve answers one call and returns how long that took. The load is looked at ten times
// in a call.
func (b *backend) serve() time.Duration {
	begin := time.Now()
	b.mu.Lock()
	b.active++
	work := b.base.Seconds() * math.Exp(0.2*b.rnd.NormFloat64())
	b.mu.Unlock()
	for range 10 {
		b.mu.Lock()
		slow := max(1, float64(b.active)/float64(b.capacity))
		b.mu.Unlock()
		time.Sleep(time.Duration(work / 10 * slow * float64(time.Second)))
	}
	b.mu.Lock()
	b.active--
	b.mu.Unlock()
	return time.Since(begin)
}

// callers keep n callers of a tenant asking until stop. do is what a caller does with its
// lease.
func callers(t *testing.T, l *Controller, n int, wg *sync.WaitGroup, stop <-chan struct{}, do func(ctx context.Context)) {
	t.Helper()
	for range n {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				ctx := context.Background()
				lease, err := l.Acquire(ctx, gate.Request{Flow: "busy", Cost: 1})
				if err != nil {
					time.Sleep(50 * time.Millisecond)
					continue
				}
				do(lease.In(ctx, l))
				lease.Release()
			}
		})
	}
}

// busy runs f beside callers that never let go of the limit, on a back end of 40 calls of
// half a second, whose first bytes are reported or not.
func busy(t *testing.T, observe bool, f func(t *testing.T, l *Controller, b *backend)) {
	t.Helper()
	bubble(t, virtual, func(t *testing.T, l *Controller) {
		b := newBackend(40, 500*time.Millisecond)
		var wg sync.WaitGroup
		stop := make(chan struct{})
		callers(t, l, 100, &wg, stop, func(ctx context.Context) {
			d := b.serve()
			if observe {
				gate.Observe(ctx, gate.Sample{FirstByte: d, Status: 200})
				time.Sleep(200 * time.Millisecond) // the rest of the answer
			}
		})
		f(t, l, b)
		close(stop)
		wg.Wait()
	})
}

// meanLimit is the mean of the limit over so many seconds.
func meanLimit(l *Controller, seconds int) float64 {
	sum := int64(0)
	for range seconds {
		time.Sleep(time.Second)
		sum += l.Snapshot().Limit
	}
	return float64(sum) / float64(seconds)
}

// The whole controller finds the capacity of a back end, by first bytes and by holds.
// Where a first byte is 0.5 s and a lease 0.7 s, 40 calls at work are 56 leases.
func TestControllerFindsTheCapacity(t *testing.T) {
	for _, observe := range []bool{true, false} {
		busy(t, observe, func(t *testing.T, l *Controller, b *backend) {
			time.Sleep(4 * time.Minute)
			want, source := 40.0, "hold"
			if observe {
				want, source = 56, "first_byte"
			}
			got := meanLimit(l, 120)
			s := l.Snapshot()
			t.Logf("by %s: mean limit %.0f, capacity %.0f, latency %.2fs of %.2fs", s.LatencySource, got, want, s.ShortLatencyS, s.LongLatencyS)
			if got < 0.75*want || got > 1.25*want || s.LatencySource != source {
				t.Errorf("by %s: mean limit %.0f, want %.0f within 25 %%", s.LatencySource, got, want)
			}
			b.mu.Lock()
			b.capacity = 20
			b.mu.Unlock()
			time.Sleep(30 * time.Second)
			want *= 0.5
			if observe {
				want = 20 + 20*0.2/0.5 // half of the leases at work, the rest of the answer as before
			}
			got = meanLimit(l, 60)
			t.Logf("halved: mean limit %.0f, capacity %.0f", got, want)
			if got < 0.7*want || got > 1.3*want {
				t.Errorf("halved: mean limit %.0f, want %.0f", got, want)
			}
		})
	}
}
