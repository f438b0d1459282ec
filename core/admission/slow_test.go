package admission

import (
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

// piece is n bytes that arrive at a time after the start.
type piece struct {
	at time.Duration
	n  int
}

// sender is a connection on which a body arrives: pieces in order of time, then
// silence or the end. A Read blocks for what has not arrived yet, or until the
// deadline. It must be used in a bubble, by one goroutine.
type sender struct {
	start    time.Time
	pieces   []piece
	silent   bool          // nothing ends the body
	every    time.Duration // more pieces, without end, of n bytes each
	n        int
	deadline time.Time
	set      []time.Time // every deadline, in order
	reads    int
	closed   bool
	noClock  bool // the connection knows no deadlines
}

func (s *sender) setReadDeadline(t time.Time) error {
	if s.noClock {
		return errors.ErrUnsupported
	}
	s.set, s.deadline = append(s.set, t), t
	return nil
}

func (s *sender) Read(p []byte) (int, error) {
	s.reads++
	if len(s.pieces) == 0 && s.every > 0 {
		last := time.Since(s.start) / s.every * s.every
		s.pieces = append(s.pieces, piece{last + s.every, s.n})
	}
	if len(s.pieces) == 0 && !s.silent {
		return 0, io.EOF
	}
	wake := time.Time{} // never
	if len(s.pieces) > 0 {
		wake = s.start.Add(s.pieces[0].at)
	}
	if !s.deadline.IsZero() && (wake.IsZero() || s.deadline.Before(wake)) {
		time.Sleep(time.Until(s.deadline))
		return 0, os.ErrDeadlineExceeded
	}
	if wake.IsZero() {
		select {} // the bubble reports the deadlock
	}
	time.Sleep(time.Until(wake))
	n := min(len(p), s.pieces[0].n)
	if s.pieces[0].n -= n; s.pieces[0].n == 0 {
		s.pieces = s.pieces[1:]
	}
	return n, nil
}

func (s *sender) Close() error {
	s.closed = true
	return nil
}

// send returns the body of s under l.
func send(l gate.Lease, s *sender) io.ReadCloser {
	s.start = time.Now()
	return l.Body(s, s.setReadDeadline)
}

// slowAfter reads body, which must be ended as slow at the given time from now.
func slowAfter(t *testing.T, body io.Reader, want time.Duration) (read int64) {
	t.Helper()
	start := time.Now()
	n, err := io.Copy(io.Discard, body)
	r := refused(t, err, gate.SlowBody)
	if d := time.Since(start); d != want {
		t.Errorf("ended after %v, want %v", d, want)
	}
	if r.Status() != 408 || !r.Timeout() {
		t.Errorf("status %d, timeout %t, want 408 and true", r.Status(), r.Timeout())
	}
	return n
}

// A known length is reserved whole, but those who do not send it are ended, and
// what they did not send comes back at once.
func TestA6SlowSendersPinNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := budget(t, 10*mib, func(c *Config) { c.BodyIdle = 5 * time.Second })
		for range 2 {
			l := admit(t, b, 5*mib)
			body := send(l, &sender{every: time.Second, n: 1})
			go func() {
				defer l.Release()
				if n, err := io.Copy(io.Discard, body); !errors.Is(err, gate.SlowBody) || n > 10 {
					t.Errorf("%d bytes and %v at a byte per second", n, err)
				}
				time.Sleep(time.Minute) // the handler is slow to return
			}()
		}
		inflight(t, b, 10*mib)
		l, err := b.Acquire(t.Context(), gate.Request{Bytes: kib})
		if err != nil {
			t.Fatal(err)
		}
		if w := l.Waited(); w > 3*time.Second {
			t.Errorf("the third waited %v behind two slow senders", w)
		}
		if s := b.Snapshot(); s.InflightBytes > 5*mib+kib+3 {
			t.Errorf("%d bytes in flight: what was not sent did not come back", s.InflightBytes)
		}
		l.Release()
		time.Sleep(2 * time.Minute)
	})
}

// Idle: nothing comes for BodyIdle.
func TestK9Idle(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := budget(t, 10*mib, nil)
		l := admit(t, b, 4096)
		s := &sender{pieces: []piece{{0, 44}}, silent: true}
		if n := slowAfter(t, send(l, s), 10*time.Second); n != 44 {
			t.Errorf("read %d, want 44", n)
		}
		inflight(t, b, 44)
		if s.deadline.IsZero() {
			t.Error("the deadline of a slow sender was taken away: whoever drains it would wait")
		}
		if n := b.Snapshot().ShedReasons[gate.SlowBody]; n != 1 {
			t.Errorf("counted %d times, want once", n)
		}
		l.Release()
	})
}

// BodyIdle counts by itself, below the graces of the rates.
func TestK9ShortIdle(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := budget(t, 10*mib, func(c *Config) { c.BodyIdle = 3 * time.Second })
		l := admit(t, b, 4096)
		s := &sender{pieces: []piece{{0, 44}, {2 * time.Second, 44}, {5 * time.Second, 44}}, silent: true}
		if n := slowAfter(t, send(l, s), 8*time.Second); n != 3*44 {
			t.Errorf("read %d, want %d", n, 3*44)
		}
		l.Release()
	})
}

// A Read that is blocked already when somebody comes to wait ends after BodyIdle at
// the latest, whatever rate is asked for.
func TestK9BlockedWhenWaitingBegins(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := budget(t, 10*mib, nil)
		l := admit(t, b, 10*mib)
		body := send(l, &sender{pieces: []piece{{0, 2 * mib}}, silent: true})
		readN(t, body, 2*mib)
		slow := make(chan error, 1)
		go func() {
			_, err := body.Read(make([]byte, 10))
			slow <- err
		}()
		time.Sleep(time.Second)
		w := acquire(t.Context(), b, gate.Request{Bytes: mib})
		time.Sleep(9*time.Second - time.Nanosecond)
		waits(t, w)
		time.Sleep(time.Nanosecond)
		granted(t, w).Release() // before the slow one's handler has returned
		refused(t, <-slow, gate.SlowBody)
		l.Release()
	})
}

// The same silence, met by a body of unknown length and on an exempt path.
func TestK9IdleElsewhere(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := budget(t, 10*mib, func(c *Config) { c.Exempt = []string{"/livez"} })
		for _, r := range []gate.Request{{Bytes: -1}, {Bytes: 100, Path: "/livez"}} {
			l, err := b.Acquire(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			slowAfter(t, send(l, &sender{silent: true}), 10*time.Second)
			l.Release()
		}
	})
}

// Under 1 KiB/s on average after the first 10 s.
func TestK9MinBodyRate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := budget(t, 10*mib, nil)
		l := admit(t, b, mib)
		slowAfter(t, send(l, &sender{every: time.Second, n: 100}), 10*time.Second)
		l.Release()

		// Half the rate for 10 s, after a fast start: it lives on what it has.
		l = admit(t, b, mib)
		n := slowAfter(t, send(l, &sender{pieces: []piece{{0, 16 * kib}}, every: time.Second, n: 512}), 31*time.Second+500*time.Millisecond)
		if n != 16*kib+31*512 {
			t.Errorf("read %d", n)
		}
		l.Release()

		// Exactly the rate is not slow.
		l = admit(t, b, mib)
		s := &sender{}
		for i := range 120 {
			s.pieces = append(s.pieces, piece{time.Duration(i) * time.Second, kib})
		}
		readAll(t, send(l, s), 120*kib)
		l.Release()
	})
}

// Under 64 KiB/s after the first 2 s, while somebody waits and only then.
func TestK9MinBodyRateWaiting(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := budget(t, 10*mib, func(c *Config) { c.QueueTimeout = time.Hour })
		l := admit(t, b, 10*mib)
		s := &sender{every: 100 * time.Millisecond, n: 3 * kib} // 30 KiB/s
		body := send(l, s)
		readN(t, body, 300*kib)
		if d := time.Since(s.start); d != 10*time.Second {
			t.Fatalf("300 KiB took %v", d)
		}
		w := acquire(t.Context(), b, gate.Request{Bytes: mib})
		slowAfter(t, body, 0) // it is behind by far already
		granted(t, w).Release()
		l.Release()

		l = admit(t, b, 10*mib)
		w = acquire(t.Context(), b, gate.Request{Bytes: mib})
		slowAfter(t, send(l, &sender{every: 100 * time.Millisecond, n: 3 * kib}), 2*time.Second)
		granted(t, w).Release()
		l.Release()

		l = admit(t, b, 10*mib) // fast enough, with somebody waiting all the time
		w = acquire(t.Context(), b, gate.Request{Bytes: mib})
		readN(t, send(l, &sender{every: 100 * time.Millisecond, n: 7 * kib}), 2*mib)
		waits(t, w)
		l.Release()
		granted(t, w).Release()
	})
}

// A8: BodyTimeout bounds all Reads together; no piece moves it.
func TestA8BodyTimeout(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := budget(t, 10*mib, func(c *Config) { c.BodyTimeout, c.BodyIdle, c.MinBodyRate = 10*time.Second, 2*time.Second, 0 })
		l := admit(t, b, mib)
		if n := slowAfter(t, send(l, &sender{every: 1900 * time.Millisecond, n: 1}), 10*time.Second); n != 5 {
			t.Errorf("read %d, want 5", n)
		}
		l.Release()
	})
}

func TestA8DefaultBodyTimeout(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := budget(t, 10*mib, nil)
		l := admit(t, b, 10*mib)
		slowAfter(t, send(l, &sender{every: time.Second, n: 2 * kib}), 5*time.Minute)
		l.Release()
	})
}

// The clock ticks only while a Read is blocked: a body that nobody reads, or that
// is read in pieces with long pauses, is not slow, even while others wait.
func TestK9PausesAreNotSlow(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := budget(t, 10*mib, func(c *Config) { c.QueueTimeout = 24 * time.Hour })
		l := admit(t, b, 10*mib)
		w := acquire(t.Context(), b, gate.Request{Bytes: mib})
		s := &sender{pieces: []piece{{0, 10 * mib}}}
		body := send(l, s)
		time.Sleep(time.Hour) // nobody reads
		for range 64 {
			readN(t, body, kib)
			time.Sleep(time.Minute) // the reader does other things
		}
		readAll(t, body, 10*mib-64*kib)
		waits(t, w)
		l.Release()
		granted(t, w).Release()
	})
}

// Nothing but the pauses between arrivals that a Read really met counts: bytes
// that arrived in the meantime are fast.
func TestK9ArrivedMeanwhile(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := budget(t, 10*mib, nil)
		l := admit(t, b, mib)
		s := &sender{}
		for i := range 100 {
			s.pieces = append(s.pieces, piece{time.Duration(i) * 8 * time.Second, 10})
		}
		body := send(l, s)
		time.Sleep(time.Hour)
		readAll(t, body, 1000)
		l.Release()
	})
}

// Each Read takes its deadline away when it ends well or at the end of the body:
// one that stayed would hit the server's own reads.
func TestK9DeadlineIsCleared(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := budget(t, 10*mib, nil)
		l := admit(t, b, -1)
		s := &sender{pieces: []piece{{time.Second, 10}, {2 * time.Second, 10}, {3 * time.Second, 10}}}
		body := send(l, s)
		buf := make([]byte, 10)
		for i := range 4 {
			start := time.Now()
			_, err := body.Read(buf)
			if i == 3 && err != io.EOF || i < 3 && err != nil {
				t.Fatalf("Read %d: %v", i, err)
			}
			if n := len(s.set); n < 2 || !s.set[n-1].IsZero() || s.set[n-2].IsZero() {
				t.Fatalf("deadlines %v, want one for the Read and the zero time after it", s.set)
			} else if d := s.set[n-2].Sub(start); i == 0 && d != 10*time.Second {
				t.Errorf("the first deadline is in %v, want 10s", d)
			}
		}
		if _, err := body.Read(buf); err != io.EOF {
			t.Errorf("Read after the end: %v", err)
		}
		if len(s.set)%2 != 0 || !s.deadline.IsZero() {
			t.Errorf("deadlines %v, want pairs", s.set)
		}
		l.Release()
	})
}

// A connection without deadlines, or none given: slow senders are left alone, and
// nothing else is lost.
func TestNoDeadlines(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := budget(t, 10*mib, nil)
		l := admit(t, b, -1)
		s := &sender{noClock: true, pieces: []piece{{time.Hour, 100 * kib}}}
		readAll(t, send(l, s), 100*kib)
		inflight(t, b, 100*kib)
		l.Release()

		l = admit(t, b, -1)
		s = &sender{start: time.Now(), pieces: []piece{{time.Hour, 100 * kib}}}
		readAll(t, l.Body(s, nil), 100*kib)
		if len(s.set) != 0 {
			t.Errorf("deadlines %v were set", s.set)
		}
		l.Release()
	})
}

// The limits are those of when the body was wrapped, and each can be switched off
// where zero says so.
func TestSlowSenderSettings(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := budget(t, 10*mib, func(c *Config) {
			c.BodyIdle, c.BodyTimeout, c.MinBodyRate, c.MinBodyRateWaiting = time.Hour, 3*time.Hour, 0, 0
			c.QueueTimeout = 24 * time.Hour
		})
		l := admit(t, b, 10*mib)
		w := acquire(t.Context(), b, gate.Request{Bytes: mib})
		slowAfter(t, send(l, &sender{every: 59 * time.Minute, n: 1}), 3*time.Hour)
		granted(t, w).Release()
		l.Release()
	})
}
