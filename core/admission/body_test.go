package admission

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"

	"github.com/headgate-go/headgate/core/gate"
)

// A body without a length is held to the same cap, and what is taken from the
// connection beyond it is at most one read buffer.
func TestA2UnknownLength(t *testing.T) {
	b := budget(t, 8*mib, func(c *Config) { c.HardMaxBodyBytes = mib })
	l := admit(t, b, -1)
	body, below := under(l, 2*mib)
	n, err := io.Copy(io.Discard, body)
	r := refused(t, err, gate.PayloadTooLarge)
	if n != mib || r.Limit != mib {
		t.Errorf("read %d for a limit of %d, want 1 MiB", n, r.Limit)
	}
	if below.taken > mib+32*kib {
		t.Errorf("%d bytes taken from the connection, want 1 MiB and at most a read buffer", below.taken)
	}
	for range 3 { // the refusal is final
		if n, err := body.Read(make([]byte, 10)); n != 0 || !errors.Is(err, gate.PayloadTooLarge) {
			t.Errorf("Read after it = %d, %v", n, err)
		}
	}
	if below.taken > mib+32*kib {
		t.Errorf("%d bytes taken after the refusal", below.taken)
	}
	if n := b.Snapshot().ShedReasons[gate.PayloadTooLarge]; n != 1 {
		t.Errorf("counted %d times, want once", n)
	}
	l.Release()
}

// The same against the budget, where that is the smaller cap.
func TestA2UnknownLengthBeyondBudget(t *testing.T) {
	b := budget(t, 8*mib, nil)
	l := admit(t, b, -1)
	body, _ := under(l, 9*mib)
	n, err := io.Copy(io.Discard, body)
	if r := refused(t, err, gate.BodyExceedsBudget); n != 8*mib || r.Status() != 413 {
		t.Errorf("read %d, status %d, want 8 MiB and 413", n, r.Status())
	}
	l.Release()
}

// A body of exactly the cap is whole.
func TestA2ExactlyTheCap(t *testing.T) {
	for _, declared := range []int64{mib, -1} {
		b := budget(t, 8*mib, func(c *Config) { c.HardMaxBodyBytes = mib })
		l := admit(t, b, declared)
		body, _ := under(l, mib)
		readAll(t, body, mib)
		inflight(t, b, mib)
		l.Release()
	}
}

// A declared length that is too short is no way around the charge.
func TestA2LongerThanDeclared(t *testing.T) {
	b := budget(t, 8*mib, func(c *Config) { c.QueueTimeout = 0 })
	l := admit(t, b, 10)
	body, _ := under(l, 2*mib)
	readAll(t, body, 2*mib)
	inflight(t, b, 2*mib)

	rest := admit(t, b, 6*mib)
	liar := admit(t, b, 0)
	body, below := under(liar, 2*mib)
	n, err := io.Copy(io.Discard, body)
	refused(t, err, gate.AdmissionBusy)
	if n != 0 || below.taken > 32*kib {
		t.Errorf("read %d, taken %d of a body that was declared empty with no room left", n, below.taken)
	}
	inflight(t, b, 8*mib)
	liar.Release()
	rest.Release()
	l.Release()
}

// A growth that is refused leaves the lease as it was.
func TestA14Grow(t *testing.T) {
	b := budget(t, 15*mib, func(c *Config) { c.QueueTimeout = 0 })
	l := admit(t, b, 10*mib)
	r := refused(t, l.Grow(10*mib), gate.AdmissionBusy)
	if r.Limit != 15*mib || r.Unit != "bytes" {
		t.Errorf("%+v, want the budget as the limit", r)
	}
	inflight(t, b, 10*mib)
	if err := l.Grow(5 * mib); err != nil {
		t.Fatal(err)
	}
	inflight(t, b, 15*mib)
	l.Shrink(3 * mib)
	inflight(t, b, 12*mib)
	l.Release()
	inflight(t, b, 0)
	if err := l.Grow(mib); err != nil { // no charge, as gate.Lease says
		t.Errorf("Grow after Release = %v", err)
	}
	l.Shrink(mib)
	inflight(t, b, 0)
}

// Bytes in flight are the bytes that came, whatever was declared and however
// they come, within one quantum while the body is read and exactly afterwards.
func TestInflightEqualsRealBytes(t *testing.T) {
	readers := []struct {
		name string
		wrap func(io.Reader) io.Reader
	}{
		{"whole", func(r io.Reader) io.Reader { return r }},
		{"end with the last bytes", iotest.DataErrReader},
		{"halves", iotest.HalfReader},
		{"few bytes", func(r io.Reader) io.Reader { return &chopped{r: r, rng: rand.New(rand.NewPCG(1, 2))} }},
	}
	sizes := []int64{0, 1, 40, quantum - 1, quantum, quantum + 1, 2 * quantum, 256 * kib, mib + 17, 2 * mib}
	for _, wrap := range readers {
		for _, n := range sizes {
			for _, declared := range []int64{n, -1} {
				b := budget(t, 8*mib, func(c *Config) { c.QueueTimeout = 0 })
				l := admit(t, b, declared)
				body := l.Body(io.NopCloser(wrap.wrap(bytes.NewReader(make([]byte, n)))), nil)
				var read int64
				buf := make([]byte, 7001)
				for {
					k, err := body.Read(buf)
					read += int64(k)
					got := b.Snapshot().InflightBytes
					if declared < 0 && (got < read || got > read+quantum) {
						t.Fatalf("%s, %d unknown: %d in flight after %d", wrap.name, n, got, read)
					}
					if declared >= 0 && got != n {
						t.Fatalf("%s, %d declared: %d in flight after %d", wrap.name, n, got, read)
					}
					if err == io.EOF {
						break
					}
					if err != nil {
						t.Fatalf("%s, %d of %d: %v", wrap.name, read, n, err)
					}
				}
				if read != n {
					t.Fatalf("%s: read %d, want %d", wrap.name, read, n)
				}
				inflight(t, b, n)
				l.Release()
			}
		}
	}
}

// chopped reads a few bytes at a time.
type chopped struct {
	r   io.Reader
	rng *rand.Rand
}

func (c *chopped) Read(p []byte) (int, error) {
	return c.r.Read(p[:min(len(p), 1+c.rng.IntN(5000))])
}

// A body that fits to the byte is read to its end on a full budget: its end is
// no growth. (HTTP/2 tells the end apart from the last bytes.)
func TestEndOfBodyTakesNoRoom(t *testing.T) {
	for _, declared := range []int64{8 * mib, -1} {
		b := budget(t, 8*mib, func(c *Config) { c.QueueTimeout = 0 })
		l := admit(t, b, declared)
		body, _ := under(l, 8*mib)
		readAll(t, body, 8*mib)
		l.Release()

		full := admit(t, b, 8*mib-2*quantum)
		n := declared
		if n > 0 {
			n = 2 * quantum
		}
		l = admit(t, b, n)
		body, _ = under(l, 2*quantum)
		readAll(t, body, 2*quantum)
		inflight(t, b, 8*mib)
		l.Release()
		full.Release()
	}
}

// What a body turns out not to have comes back at its end, also when it fails.
func TestShorterThanCharged(t *testing.T) {
	b := budget(t, 8*mib, nil)
	for _, c := range []struct {
		declared int64
		end      error
	}{{5 * mib, io.EOF}, {5 * mib, io.ErrUnexpectedEOF}, {5 * mib, errors.New("connection reset")}, {-1, io.EOF}} {
		l := admit(t, b, c.declared)
		body := l.Body(io.NopCloser(io.MultiReader(bytes.NewReader(make([]byte, 1000)), iotest.ErrReader(c.end))), nil)
		n, err := io.Copy(io.Discard, body)
		if c.end == io.EOF {
			c.end = nil
		}
		if n != 1000 || err != c.end {
			t.Errorf("read %d, %v, want 1000 and %v", n, err, c.end)
		}
		inflight(t, b, 1000)
		l.Release()
	}
}

// Growth takes free room ahead of everyone who waits, or fails; it never waits.
func TestGrowthGoesFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := budget(t, 8*mib, nil)
		other := admit(t, b, 6*mib)
		l := admit(t, b, -1)
		body, _ := under(l, 4*mib)
		readN(t, body, mib)
		w := acquire(t.Context(), b, gate.Request{Bytes: 3 * mib})
		waits(t, w)
		readN(t, body, mib) // a MiB is free, and is not kept from what has begun
		waits(t, w)
		if n, err := io.Copy(io.Discard, body); n > quantum {
			t.Errorf("%d bytes read beyond the budget, %v", n, err)
		} else {
			refused(t, err, gate.AdmissionBusy)
		}
		waits(t, w) // 2 MiB that were read are in memory still
		l.Release()
		waits(t, w)
		other.Release()
		granted(t, w).Release()
	})
}

// Many bodies that grow against each other: nobody deadlocks, the budget holds, and
// who is refused gives way to the rest.
func TestGrowthUnderContention(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const n = 40
		b := budget(t, 8*mib, nil)
		type end struct {
			n   int64
			err error
		}
		ends := make(chan end, n)
		var begun sync.WaitGroup
		begun.Add(n)
		var held memory
		for range n {
			l := admit(t, b, -1)
			body, _ := under(l, mib)
			go func() {
				defer l.Release()
				read, err := io.CopyN(&held, body, 192*kib)
				begun.Done()
				if err == nil {
					begun.Wait() // half a MiB is left, and each wants more than that
					var more int64
					more, err = io.Copy(&held, body)
					read += more
				}
				if used := held.n.Add(-read) + read; used > 8*mib {
					t.Errorf("%d bytes in memory", used)
				}
				ends <- end{read, err}
			}()
		}
		whole, busy := 0, 0
		for range n {
			e := <-ends
			switch {
			case e.err == nil && e.n == mib:
				whole++
			case errors.Is(e.err, gate.AdmissionBusy):
				busy++
			default:
				t.Errorf("ended after %d with %v", e.n, e.err)
			}
		}
		synctest.Wait()              // for the last release
		if whole == 0 || busy == 0 { // of those that grow side by side the last one always can
			t.Errorf("%d whole, %d busy, want some of both", whole, busy)
		}
	})
}

// memory is where bodies are kept; it counts them.
type memory struct{ n atomic.Int64 }

func (m *memory) Write(p []byte) (int, error) {
	m.n.Add(int64(len(p)))
	return len(p), nil
}

func TestBodyOfNoLease(t *testing.T) {
	b := budget(t, 8*mib, nil)
	l := admit(t, b, mib)
	l.Release()
	p := newPayload(1)
	if got := l.Body(p, nil); got != io.ReadCloser(p) {
		t.Errorf("Body after Release = %v, want the body itself", got)
	}
	l = admit(t, b, mib)
	if got := l.Body(nil, nil); got != nil {
		t.Errorf("Body(nil) = %v", got)
	}
	l.Release()
}

// Close closes what is below and gives nothing back: the handler may keep what
// it has read.
func TestBodyClose(t *testing.T) {
	b := budget(t, 8*mib, nil)
	l := admit(t, b, mib)
	body, below := under(l, mib)
	readN(t, body, 10)
	if err := body.Close(); err != nil || below.closed != 1 {
		t.Errorf("Close = %v, closed %d times", err, below.closed)
	}
	inflight(t, b, mib)
	l.Release()
}

// An empty Read is no Read.
func TestEmptyRead(t *testing.T) {
	b := budget(t, 8*mib, nil)
	l := admit(t, b, -1)
	body, below := under(l, 10)
	if n, err := body.Read(nil); n != 0 || err != nil || below.taken != 0 {
		t.Errorf("Read(nil) = %d, %v, %d taken", n, err, below.taken)
	}
	readAll(t, body, 10)
	l.Release()
}
