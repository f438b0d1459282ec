package admission

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/pressure"
)

const (
	kib = 1 << 10
	mib = 1 << 20
	gib = 1 << 30
)

// machine is the memory that a budget under test sees. Its ceiling and its heap
// may change at any time.
type machine struct {
	ceiling atomic.Int64
	heap    atomic.Uint64
}

func newMachine(ceiling int64) *machine {
	m := new(machine)
	m.ceiling.Store(ceiling)
	return m
}

func (m *machine) readCeiling() pressure.Ceiling {
	n := m.ceiling.Load()
	if n == 0 {
		return pressure.Ceiling{Reason: "nothing could be read"}
	}
	return pressure.Ceiling{Bytes: n, Source: pressure.SourceCgroup, Path: "/"}
}

// budgetOn opens a budget on m with the defaults as change leaves them. When the
// test ends, it must be empty again, and is closed.
func budgetOn(t testing.TB, m *machine, change func(*Config)) *Budget {
	t.Helper()
	c := DefaultConfig()
	if change != nil {
		change(&c)
	}
	b, err := open(c, m.readCeiling, m.heap.Load)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		checkEmpty(t, b)
		b.Close()
		if t.Failed() {
			return // leases may be out
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := b.Drain(ctx); err != nil {
			t.Errorf("Drain: %v", err)
		}
		checkEmpty(t, b)
	})
	return b
}

// budget is budgetOn for a budget of n bytes.
func budget(t testing.TB, n int64, change func(*Config)) *Budget {
	t.Helper()
	return budgetOn(t, newMachine(64*gib), func(c *Config) {
		c.MaxInflightBytes = gate.Size(n)
		if change != nil {
			change(c)
		}
	})
}

// checkEmpty holds when nothing is in flight, nothing waits and nothing is charged.
func checkEmpty(t testing.TB, b *Budget) {
	t.Helper()
	s := b.Snapshot()
	for _, c := range []struct {
		name string
		n    int64
	}{
		{"inflight_bytes", s.InflightBytes}, {"inflight", s.Inflight}, {"heavy_inflight", s.HeavyInflight},
		{"exempt_inflight", s.ExemptInflight}, {"decoded_bytes", s.DecodedBytes}, {"waiting", int64(s.Waiting)},
		{"waiting_heavy", int64(s.WaitingHeavy)}, {"waiting_bytes", s.WaitingBytes}, {"queued_bytes", s.QueuedBytes},
		{"oldest_heavy_s", int64(s.OldestHeavyS * 1e9)}, {"oldest_wait_s", int64(s.OldestWaitS * 1e9)},
	} {
		if c.n != 0 {
			t.Errorf("%s = %d, want 0 when all is over", c.name, c.n)
		}
	}
}

// admit acquires where the test leaves room.
func admit(t testing.TB, b *Budget, n int64) gate.Lease {
	t.Helper()
	l, err := b.Acquire(context.Background(), gate.Request{Bytes: n})
	if err != nil {
		t.Fatalf("Acquire(%d) = %v, want a lease", n, err)
	}
	return l
}

// result is how an Acquire in a goroutine of its own ended, and when.
type result struct {
	lease gate.Lease
	err   error
	at    time.Time
}

// acquire acquires in a goroutine of its own and returns once it is through or waits.
func acquire(ctx context.Context, b *Budget, r gate.Request) <-chan result {
	done := make(chan result, 1)
	go func() {
		l, err := b.Acquire(ctx, r)
		done <- result{l, err, time.Now()}
	}()
	synctest.Wait()
	return done
}

// waits holds while the Acquire behind done has no result.
func waits(t testing.TB, done <-chan result) {
	t.Helper()
	synctest.Wait()
	select {
	case r := <-done:
		t.Fatalf("ended with %v, want it to wait", r.err)
	default:
	}
}

// granted returns the lease of an Acquire that must have one by now.
func granted(t testing.TB, done <-chan result) gate.Lease {
	t.Helper()
	synctest.Wait()
	select {
	case r := <-done:
		if r.err != nil {
			t.Fatalf("refused: %v, want a lease", r.err)
		}
		return r.lease
	default:
		t.Fatal("still waits, want a lease")
	}
	return gate.Lease{}
}

// refused checks that err is a rejection for want and returns it.
func refused(t testing.TB, err error, want gate.Reason) *gate.Rejection {
	t.Helper()
	var r *gate.Rejection
	if !errors.As(err, &r) {
		t.Fatalf("error %v, want a rejection: %s", err, want)
	}
	if r.Reason != want || !errors.Is(err, want) {
		t.Fatalf("reason %s (%v), want %s", r.Reason, err, want)
	}
	if r.Gate != "admission" {
		t.Errorf("gate %q, want admission", r.Gate)
	}
	if want == gate.Canceled {
		return r
	}
	switch retry := r.RetryAfterSeconds(); {
	case r.Status() == 503 && retry == "":
		t.Errorf("%s: no Retry-After", want)
	case r.Status() != 503 && retry != "":
		t.Errorf("%s: Retry-After %s where a retry cannot help", want, retry)
	}
	if r.Advice == "" {
		t.Errorf("%s: no advice", want)
	}
	return r
}

// refusedAs is refused for other goroutines than the test's.
func refusedAs(t testing.TB, err error, want gate.Reason) {
	t.Helper()
	var r *gate.Rejection
	if !errors.As(err, &r) || r.Reason != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

// refusedNow is refused for an Acquire that must be through.
func refusedNow(t testing.TB, done <-chan result, want gate.Reason) *gate.Rejection {
	t.Helper()
	synctest.Wait()
	select {
	case r := <-done:
		if r.lease != (gate.Lease{}) {
			t.Error("a lease beside an error")
		}
		return refused(t, r.err, want)
	default:
		t.Fatalf("still waits, want %s", want)
	}
	return nil
}

// inflight checks the bytes in flight.
func inflight(t testing.TB, b *Budget, want int64) {
	t.Helper()
	if s := b.Snapshot(); s.InflightBytes != want {
		t.Fatalf("inflight_bytes = %d, want %d", s.InflightBytes, want)
	}
}

// payload is a body of zeros that counts what is taken from it.
type payload struct {
	left, taken int64
	closed      int
}

func newPayload(n int64) *payload { return &payload{left: n} }

func (p *payload) Read(b []byte) (int, error) {
	if p.left == 0 {
		return 0, io.EOF
	}
	n := int(min(p.left, int64(len(b))))
	clear(b[:n])
	p.left -= int64(n)
	p.taken += int64(n)
	return n, nil
}

func (p *payload) Close() error {
	p.closed++
	return nil
}

// body returns the reader of a body of n bytes under l, and what is below it.
func under(l gate.Lease, n int64) (io.ReadCloser, *payload) {
	p := newPayload(n)
	return l.Body(p, nil), p
}

// readN reads n bytes or fails the test.
func readN(t testing.TB, r io.Reader, n int64) {
	t.Helper()
	if got, err := io.CopyN(io.Discard, r, n); err != nil {
		t.Fatalf("read %d of %d bytes: %v", got, n, err)
	}
}

// readAll reads r to its end, which must come after n bytes.
func readAll(t testing.TB, r io.Reader, n int64) {
	t.Helper()
	if got, err := io.Copy(io.Discard, r); got != n || err != nil {
		t.Fatalf("read %d bytes and %v, want %d and the end", got, err, n)
	}
}

// bubble runs f with virtual time.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}
