package admission

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

// owner is one request of the random walk, with what the books should hold for it.
type owner struct {
	r      gate.Request
	cancel context.CancelFunc
	done   <-chan result
	lease  gate.Lease
	ctx    context.Context
	body   io.ReadCloser
	size   int64 // what the body really has
	read   int64
	extra  int64 // by Grow and Shrink of the handler
	ended  bool  // the body was read to its end, or failed
	sent   bool  // to its end
	answer bool  // a back end has answered
	live   bool
}

// charge is what o holds: what was reserved or grown until the body ends, then what
// was read, and what the handler did besides.
func (o *owner) charge() int64 {
	if !o.live {
		return 0
	}
	n := o.r.Bytes
	if n < 0 {
		n = max(quantum, (o.read+quantum-1)/quantum*quantum)
	}
	if o.ended {
		n = min(n, o.read)
	}
	return n + o.extra
}

// walk plays one random history against b and checks the books after every step.
type walk struct {
	t    *testing.T
	rng  *rand.Rand
	b    *Budget
	all  []*owner
	most int64 // the largest budget that there was while something was out
	log  []string
}

func (w *walk) pick(ok func(*owner) bool) *owner {
	var some []*owner
	for _, o := range w.all {
		if ok(o) {
			some = append(some, o)
		}
	}
	if len(some) == 0 {
		return nil
	}
	return some[w.rng.IntN(len(some))]
}

func isLive(o *owner) bool    { return o.live }
func isWaiting(o *owner) bool { return o.done != nil }

func (w *walk) arrive() string {
	sizes := []int64{0, 1, 1000, quantum, 200 * kib, 256 * kib, mib, 2*mib + 3, 5 * mib, 8 * mib}
	o := &owner{size: sizes[w.rng.IntN(len(sizes))]}
	o.r = gate.Request{
		Bytes: o.size, Flow: fmt.Sprint(w.rng.IntN(4)), Weight: 1 + w.rng.IntN(3), Buffered: int64(w.rng.IntN(2)) * o.size,
	}
	if w.rng.IntN(3) == 0 {
		o.r.Bytes = -1
	}
	o.ctx, o.cancel = context.WithCancel(w.t.Context())
	if w.rng.IntN(4) == 0 {
		o.ctx, o.cancel = context.WithTimeout(w.t.Context(), time.Duration(1+w.rng.IntN(20))*time.Second)
	}
	o.done = acquire(o.ctx, w.b, o.r)
	w.all = append(w.all, o)
	return fmt.Sprintf("arrive with %d of %d", o.r.Bytes, o.size)
}

func (w *walk) readSome(o *owner) string {
	if o.body == nil {
		o.body, _ = under(o.lease, o.size)
	}
	n := int64(w.rng.IntN(int(o.size) + 2))
	if w.rng.IntN(3) == 0 {
		n = o.size + 1
	}
	got, err := io.CopyN(io.Discard, o.body, n)
	o.read += got
	switch {
	case err == io.EOF:
		o.ended, o.sent = true, true
		if o.read != o.size {
			w.t.Fatalf("the end after %d of %d bytes", o.read, o.size)
		}
		o.live = o.live && !o.answer
	case errors.Is(err, gate.AdmissionBusy):
		o.ended = true
	case err != nil:
		w.t.Fatal(err)
	}
	return fmt.Sprintf("read %d: %d, %v", n, got, err)
}

func (w *walk) step() string {
	switch op := w.rng.IntN(20); op {
	case 0, 1, 2, 3, 4:
		return w.arrive()
	case 5, 6, 7:
		if o := w.pick(func(o *owner) bool { return o.live && !o.ended }); o != nil {
			return w.readSome(o)
		}
	case 8, 9, 10, 11:
		if o := w.pick(isLive); o != nil {
			o.lease.Release()
			o.lease.Release()
			o.live = false
			return "release"
		}
	case 12:
		if o := w.pick(isWaiting); o != nil {
			o.cancel()
			return "cancel"
		}
	case 13:
		if o := w.pick(isLive); o != nil {
			n := int64(1 + w.rng.IntN(2*mib))
			err := o.lease.Grow(n)
			if err == nil {
				o.extra += n
			}
			return fmt.Sprintf("grow %d: %v", n, err)
		}
	case 14:
		if o := w.pick(func(o *owner) bool { return o.live && o.extra > 0 }); o != nil {
			n := 1 + w.rng.Int64N(o.extra)
			o.lease.Shrink(n)
			o.extra -= n
			return fmt.Sprintf("shrink %d", n)
		}
	case 15:
		if o := w.pick(func(o *owner) bool { return o.lease != (gate.Lease{}) }); o != nil { // over or not
			gate.Observe(o.lease.In(o.ctx, w.b), gate.Sample{FirstByte: time.Second})
			o.answer = true
			o.live = o.live && !o.sent && o.r.Bytes != 0
			return "answer"
		}
	case 16:
		c := w.b.set.Load().Config
		c.MaxInflightBytes = gate.Size(8+w.rng.IntN(9)) * mib
		c.MaxWaiters = w.rng.IntN(12)
		c.QueueTimeout = time.Duration(w.rng.IntN(20)) * time.Second
		c.MaxHeavyInFlight = []int{Auto, 1, 5}[w.rng.IntN(3)]
		if err := w.b.Reconfigure(c); err != nil {
			w.t.Fatal(err)
		}
		return fmt.Sprintf("budget %d", c.MaxInflightBytes)
	default:
		d := time.Duration(w.rng.IntN(3000)) * time.Millisecond
		time.Sleep(d)
		return fmt.Sprintf("%v later", d)
	}
	return "nothing"
}

// check compares the books with what the owners hold.
func (w *walk) check() {
	synctest.Wait()
	var charged, leases, waiting, heldBack, asked int64
	for _, o := range w.all {
		if o.done != nil {
			select {
			case r := <-o.done:
				o.done, o.lease, o.live = nil, r.lease, r.err == nil
			default:
				waiting++
				heldBack += o.r.Buffered
				asked += max(o.r.Bytes, 0)
				if o.r.Bytes < 0 {
					asked += quantum
				}
			}
		}
		if o.live {
			leases++
			charged += o.charge()
		}
		if o.live != o.lease.Live() {
			w.t.Fatalf("a lease lives %t, want %t", o.lease.Live(), o.live)
		}
	}
	s := w.b.Snapshot()
	if charged == 0 {
		w.most = 0
	}
	w.most = max(w.most, s.MaxInflightBytes)
	if s.InflightBytes != charged || s.Inflight != leases || int64(s.Waiting) != waiting || s.QueuedBytes != heldBack || s.WaitingBytes != asked {
		w.t.Fatalf("books: %d bytes of %d leases, %d waiting for %d with %d;\nowners: %d, %d, %d, %d, %d", s.InflightBytes, s.Inflight,
			s.Waiting, s.WaitingBytes, s.QueuedBytes, charged, leases, waiting, asked, heldBack)
	}
	if s.InflightBytes > w.most {
		w.t.Fatalf("%d bytes in flight, over every budget that there was", s.InflightBytes)
	}
	if waiting > 0 && leases == 0 {
		w.t.Fatal("somebody waits for nothing")
	}
}

// Whatever requests do, in whatever order, the books hold what they hold at every
// moment, and nothing when all are gone.
func TestRandomHistories(t *testing.T) {
	histories, steps := 150, 150
	if raceEnabled || testing.Short() {
		histories = 30
	}
	for seed := range uint64(histories) {
		bubble(t, func(t *testing.T) {
			w := &walk{t: t, rng: rand.New(rand.NewPCG(seed, 77)), b: budget(t, 8*mib, func(c *Config) { c.HealthyHeadroom = 0 })}
			defer func() {
				if t.Failed() {
					t.Logf("seed %d:", seed)
					for _, s := range w.log {
						t.Log(s)
					}
				}
				for _, o := range w.all {
					o.cancel()
				}
				synctest.Wait()
				for _, o := range w.all {
					if o.done != nil {
						o.lease = (<-o.done).lease
					}
					o.lease.Release()
				}
			}()
			for range steps {
				w.log = append(w.log, w.step())
				w.check()
			}
		})
		if t.Failed() {
			return
		}
	}
}
