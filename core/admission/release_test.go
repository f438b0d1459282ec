package admission

import (
	"context"
	"errors"
	"io"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

// However a handler ends, its bytes come back once.
func TestF2HowHandlersEnd(t *testing.T) {
	b := budget(t, 8*mib, func(c *Config) { c.QueueTimeout = 0 })
	ends := map[string]func(){
		"return":   func() {},
		"panic":    func() { panic("a string") },
		"abort":    func() { panic(http.ErrAbortHandler) },
		"goexit":   runtime.Goexit,
		"nil map":  func() { http.Header(nil).Set("a", "b") },
		"released": func() {},
	}
	for name, end := range ends {
		for _, n := range []int64{0, 100, 8 * mib, -1} {
			done := make(chan struct{})
			go func() {
				defer close(done)
				defer func() { _ = recover() }()
				l, err := b.Acquire(context.Background(), gate.Request{Bytes: n})
				defer l.Release()
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
				if name == "released" {
					l.Release()
				}
				end()
			}()
			<-done
			checkEmpty(t, b)
		}
	}
}

// A release can be called from anywhere, any number of times; one counts.
func TestF2DoubleRelease(t *testing.T) {
	b := budget(t, 8*mib, nil)
	other := admit(t, b, mib)
	for range 500 {
		l := admit(t, b, 2*mib)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(l.Release)
		}
		wg.Wait()
		l.Release()
		inflight(t, b, mib)
		if l.Live() {
			t.Fatal("lives after Release")
		}
	}
	other.Release()
}

// F7: a release does not care for the request's context.
func TestF7CanceledContext(t *testing.T) {
	b := budget(t, 8*mib, nil)
	ctx, cancel := context.WithCancel(t.Context())
	l, err := b.Acquire(ctx, gate.Request{Bytes: mib})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	inflight(t, b, mib)
	l.Release()
	inflight(t, b, 0)
}

// Long polls that give their bytes back early are not in the way.
func TestF10EarlyRelease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := budget(t, 10*mib, nil)
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				l, err := b.Acquire(context.Background(), gate.Request{Bytes: mib})
				if err != nil {
					t.Error(err)
					return
				}
				defer l.Release()
				time.Sleep(100 * time.Millisecond)
				l.Release()
				time.Sleep(time.Hour)
			})
		}
		time.Sleep(time.Second)
		s := b.Snapshot()
		if s.InflightBytes != 0 || s.Inflight != 0 || s.Waiting != 0 || s.Admitted != 50 {
			t.Errorf("%+v, want 50 admitted and none in flight", s)
		}
		all := admit(t, b, 10*mib)
		wg.Wait() // their deferred releases take nothing from it
		inflight(t, b, 10*mib)
		all.Release()
	})
}

// The bytes come back at the back end's first byte, once the body was read to its
// end, whichever of the two comes first.
func TestReleaseAtFirstByte(t *testing.T) {
	answer := gate.Sample{FirstByte: time.Second, Status: 200}
	failed := []gate.Sample{{}, {Err: io.ErrUnexpectedEOF}, {Status: 502}, {FirstByte: -1, Status: 200}}
	type step struct {
		do   string
		left int64 // bytes in flight after it
	}
	const n = 100 * kib
	for name, steps := range map[string][]step{
		"read, answer":          {{"half", n}, {"end", n}, {"answer", 0}, {"release", 0}},
		"answer, read":          {{"half", n}, {"answer", n}, {"half", n}, {"end", 0}, {"release", 0}},
		"not read":              {{"answer", n}, {"release", 0}},
		"half read":             {{"half", n}, {"answer", n}, {"answer", n}, {"release", 0}},
		"failed":                {{"end", n}, {"fail", n}, {"release", 0}},
		"failed, then answered": {{"end", n}, {"fail", n}, {"answer", 0}, {"fail", 0}},
		"released first":        {{"half", n}, {"release", 0}, {"end", 0}, {"answer", 0}},
	} {
		t.Run(name, func(t *testing.T) {
			b := budget(t, 8*mib, nil)
			for round := range 3 { // records are used again
				l := admit(t, b, n)
				ctx := l.In(t.Context(), b)
				body, _ := under(l, n)
				var last string
				for i, s := range steps {
					switch last = s.do; last {
					case "half":
						readN(t, body, n/4)
					case "end":
						if _, err := io.Copy(io.Discard, body); err != nil {
							t.Fatal(err)
						}
					case "answer":
						gate.Observe(ctx, answer)
					case "fail":
						for _, f := range failed {
							gate.Observe(ctx, f)
						}
					case "release":
						l.Release()
					}
					if got := b.Snapshot().InflightBytes; got != s.left {
						t.Fatalf("round %d, step %d, %s: %d in flight, want %d", round, i, s.do, got, s.left)
					}
					if live := l.Live(); live != (s.left > 0) {
						t.Fatalf("round %d, step %d, %s: live %t", round, i, s.do, live)
					}
				}
			}
		})
	}
}

// Without a body there is nothing to send on, and an unknown length that turned out
// empty is the same.
func TestReleaseAtFirstByteNoBody(t *testing.T) {
	b := budget(t, 8*mib, nil)
	for range 3 {
		l := admit(t, b, 0)
		if !l.Live() {
			t.Fatal("released at once")
		}
		gate.Observe(l.In(t.Context(), b), gate.Sample{FirstByte: 1, Status: 200})
		if l.Live() {
			t.Error("a request without a body is held after the first byte")
		}

		l = admit(t, b, -1)
		body, _ := under(l, 0)
		readAll(t, body, 0)
		if !l.Live() {
			t.Fatal("released at the end of the body, without an answer")
		}
		gate.Observe(l.In(t.Context(), b), gate.Sample{FirstByte: 1, Status: 200})
		if l.Live() {
			t.Error("an empty body is held after the first byte")
		}
	}
}

// A body that broke off was not sent on.
func TestReleaseAtFirstByteBrokenBody(t *testing.T) {
	b := budget(t, 8*mib, nil)
	l := admit(t, b, mib)
	body := l.Body(io.NopCloser(io.MultiReader(newPayload(100), errReader{})), nil)
	if _, err := io.Copy(io.Discard, body); err != io.ErrClosedPipe {
		t.Fatal(err)
	}
	gate.Observe(l.In(t.Context(), b), gate.Sample{FirstByte: 1, Status: 400})
	inflight(t, b, 100)
	l.Release()
}

type errReader struct{}

func (errReader) Read([]byte) (int, error) { return 0, io.ErrClosedPipe }

// With release_at: return, only the release counts.
func TestReleaseAtReturn(t *testing.T) {
	b := budget(t, 8*mib, func(c *Config) { c.ReleaseAt = Return })
	for range 3 {
		l := admit(t, b, mib)
		body, _ := under(l, mib)
		readAll(t, body, mib)
		gate.Observe(l.In(t.Context(), b), gate.Sample{FirstByte: 1, Status: 200})
		inflight(t, b, mib)
		l.Release()
		inflight(t, b, 0)
	}
}

// What is left of a lease that is over can do nothing to the next one of the same
// record.
func TestStaleLeaseIsHarmless(t *testing.T) {
	b := budget(t, 8*mib, func(c *Config) {
		c.Exempt = []string{"/livez"}
		c.Factors = []Factor{{ContentType: "application/json", Times: 2}}
	})
	requests := []gate.Request{
		{Bytes: 0}, {Bytes: 100}, {Bytes: -1}, {Bytes: mib}, {Bytes: kib, ContentType: "application/json"}, {Bytes: 100, Path: "/livez"},
	}
	answer := gate.Sample{FirstByte: 1, Status: 200}
	for _, old := range requests {
		for _, next := range requests {
			for range 5 {
				stale, err := b.Acquire(t.Context(), old)
				if err != nil {
					t.Fatal(err)
				}
				ctx := stale.In(t.Context(), b)
				body, _ := under(stale, max(old.Bytes, 0))
				stale.Release()
				l, err := b.Acquire(t.Context(), next)
				if err != nil {
					t.Fatal(err)
				}
				before := b.Snapshot()

				gate.Observe(ctx, answer)
				if _, err := io.Copy(io.Discard, body); err != nil && old.Path == "" {
					t.Errorf("reading on: %v", err)
				}
				gate.Observe(ctx, answer)
				if err := stale.Grow(mib); err != nil {
					t.Error(err)
				}
				stale.Shrink(10)
				stale.Release()
				if _, ok := gate.LeaseOf(ctx, b); ok || stale.Live() || stale.Waited() != 0 {
					t.Error("the stale lease lives")
				}
				after := b.Snapshot()
				if !l.Live() || after.InflightBytes != before.InflightBytes || after.Inflight != before.Inflight {
					t.Fatalf("%+v then %+v: %d bytes, live %t; before: %d", old, next, after.InflightBytes, l.Live(), before.InflightBytes)
				}
				// And the next one's own marks are as good as ever.
				if next.Path == "" {
					if next.Bytes != 0 { // else it was marked as read before the stale one's end
						body, _ = under(l, max(next.Bytes, 0))
					}
					if _, err := io.Copy(io.Discard, body); err != nil {
						t.Error(err)
					}
					if !l.Live() {
						t.Fatalf("%+v then %+v: released without an answer of its own", old, next)
					}
					gate.Observe(l.In(t.Context(), b), answer)
					if l.Live() {
						t.Fatalf("%+v then %+v: its answer was lost", old, next)
					}
				}
				l.Release()
			}
		}
	}
}

// The same with everything at once, for the race detector.
func TestStaleLeasesUnderRace(t *testing.T) {
	b := budget(t, 8*mib, func(c *Config) {
		c.Exempt = []string{"/livez"}
		c.Factors = []Factor{{ContentType: "application/json", Times: 2}}
	})
	requests := []gate.Request{
		{Bytes: 0}, {Bytes: 100}, {Bytes: -1}, {Bytes: kib, ContentType: "application/json"}, {Bytes: 100, Path: "/livez"},
	}
	var last [8]atomic.Pointer[gate.Lease]
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for n := range 400 {
				r := requests[(i+n)%len(requests)]
				l, err := b.Acquire(context.Background(), r)
				if err != nil {
					t.Error(err)
					return
				}
				last[i].Store(&l)
				body, _ := under(l, max(r.Bytes, 0))
				for j := range last { // leases of others, dead or alive
					x := last[(i+j)%len(last)].Load()
					if x == nil {
						continue
					}
					ctx := x.In(context.Background(), b)
					gate.Observe(ctx, gate.Sample{FirstByte: 1})
					_ = x.Grow(10)
					x.Shrink(10)
					other, _ := under(*x, 10)
					_, _ = other.Read(make([]byte, 5))
					if j%3 == 0 {
						x.Release()
					}
				}
				if _, err := io.Copy(io.Discard, body); err != nil && !errors.Is(err, gate.PayloadTooLarge) {
					t.Error(err)
				}
				l.Release()
			}
		})
	}
	wg.Wait()
}
