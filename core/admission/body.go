package admission

import (
	"errors"
	"io"
	"math"
	"os"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

// Graces of the two rates: before, a body has hardly begun.
const (
	rateGrace        = 10 * time.Second
	rateGraceWaiting = 2 * time.Second
	never            = 100 * 365 * 24 * time.Hour
)

// body reads a request's body within its lease. Like any reader it is used by
// one goroutine at a time, but Close may come from another.
type body struct {
	rc       io.ReadCloser
	l        *lease
	gen      uint64
	factor   float64
	s        *settings
	deadline func(time.Time) error // nil: slow senders are left alone

	most    int64 // bytes that may be read
	covered int64 // bytes that are charged for and may be read
	spare   int64 // bytes that are charged for beyond most
	read    int64
	blocked time.Duration // in Read so far
	err     error         // sticky
}

func newBody(l *lease, gen uint64, declared int64, factor float64, rc io.ReadCloser, deadline func(time.Time) error) *body {
	s := l.b.set.Load()
	b := &body{rc: rc, l: l, gen: gen, factor: factor, s: s, deadline: deadline, covered: declared}
	b.most = max(s.most(factor), declared)
	if l.exempt {
		b.most = declared
	}
	if s.Mode != gate.Enforce {
		b.most, b.deadline = math.MaxInt64, nil
	}
	if declared < 0 { // what is charged beyond the cap comes back at the end
		b.covered, b.spare = min(quantum, b.most), max(0, quantum-b.most)
	}
	return b
}

// most is the effective cap for one body.
func (s *settings) most(factor float64) int64 {
	n := math.Floor(float64(s.limit) / factor)
	if n >= float64(s.HardMaxBodyBytes) { // n may be beyond an int64
		return int64(s.HardMaxBodyBytes)
	}
	return int64(n)
}

// Read reads at most what is charged for, and charges for more when that is used
// up. An error of its own is a *gate.Rejection; any error is final.
func (b *body) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	if len(p) == 0 {
		return 0, nil
	}
	if b.read == b.covered || b.read == b.most {
		return b.readOn(p)
	}
	n, err := b.timed(p[:min(int64(len(p)), b.covered-b.read)])
	b.read += int64(n)
	if err != nil {
		return n, b.fail(err)
	}
	return n, nil
}

// readOn reads where everything that is charged for is read. The end of a body
// takes no room, and whether it is there only a Read can tell: so one byte is read
// first and charged afterwards.
func (b *body) readOn(p []byte) (int, error) {
	n, err := b.timed(p[:1])
	if n > 0 {
		if over := b.cover(); over != nil {
			return 0, b.fail(over)
		}
		b.read++
	}
	if err != nil {
		return n, b.fail(err)
	}
	return n, nil
}

func (b *body) tooLarge() error {
	rej := b.s.tooLarge(b.most+1, b.factor)
	if rej == nil { // the body is longer than it was declared to be
		rej = &gate.Rejection{
			Reason: gate.PayloadTooLarge, Gate: name, Limit: b.most, Unit: unit,
			Advice: "send a body of the length that is declared",
		}
	}
	return b.l.b.shed(rej, b.cost(b.read))
}

// cover charges for the next bytes.
func (b *body) cover() error {
	if b.read == b.most {
		return b.tooLarge()
	}
	more := min(quantum, b.most-b.covered)
	if n := b.cost(b.covered+more) - b.cost(b.covered); n > 0 {
		if err := b.l.Grow(b.gen, n); err != nil {
			return err
		}
	}
	b.covered += more
	return nil
}

func (b *body) cost(n int64) int64 { return scale(n, b.factor) }

// timed is one Read with the clock running.
func (b *body) timed(p []byte) (int, error) {
	if b.deadline == nil {
		return b.rc.Read(p)
	}
	left := b.left()
	if left <= 0 {
		return 0, b.slow()
	}
	start := time.Now()
	if b.deadline(start.Add(left)) != nil {
		b.deadline = nil // the connection has none
		return b.rc.Read(p)
	}
	n, err := b.rc.Read(p)
	b.blocked += time.Since(start)
	if isTimeout(err) {
		// The deadline stays: whoever drains the connection shall not wait either.
		return n, b.slow()
	}
	// A deadline that outlives the Read would hit the server's own reads.
	_ = b.deadline(time.Time{})
	return n, err
}

// left is how long the next Read may be blocked.
func (b *body) left() time.Duration {
	left := min(b.s.BodyIdle, b.s.BodyTimeout-b.blocked)
	if r := b.s.MinBodyRate; r > 0 {
		left = min(left, max(rateGrace, b.timeAt(r))-b.blocked)
	}
	if r := b.s.MinBodyRateWaiting; r > 0 && b.l.b.q.Waiting() {
		left = min(left, max(rateGraceWaiting, b.timeAt(r))-b.blocked)
	}
	return left
}

// timeAt is how long the bytes read so far take at a rate.
func (b *body) timeAt(perSecond gate.Size) time.Duration {
	t := float64(b.read) / float64(perSecond) * float64(time.Second)
	return time.Duration(min(t, float64(never)))
}

func (b *body) slow() error {
	rej := &gate.Rejection{
		Reason: gate.SlowBody, Gate: name, Waited: b.blocked,
		Advice: "the body arrived too slowly: see BodyIdle, BodyTimeout, MinBodyRate and MinBodyRateWaiting",
	}
	return b.l.b.shed(rej, b.cost(b.read))
}

// fail makes err final and gives back what was charged but not read.
func (b *body) fail(err error) error {
	b.err = err
	if charged := b.covered + b.spare; charged > b.read {
		b.l.Shrink(b.gen, b.cost(charged)-b.cost(b.read))
	}
	if errors.Is(err, io.EOF) {
		b.l.sent(b.gen)
	}
	return err
}

// Close closes the body below. What is left unread of a slow one is not waited for.
func (b *body) Close() error {
	return b.rc.Close()
}

func isTimeout(err error) bool {
	if err == nil || err == io.EOF { // nearly always: As allocates
		return false
	}
	var t interface{ Timeout() bool }
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &t) && t.Timeout()
}
