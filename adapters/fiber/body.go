package fibergate

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/headgate-go/headgate/adapters/fiber/internal/fast"
	"github.com/headgate-go/headgate/core/gate"
)

// prefetch is how much of a streamed body fasthttp reads before it hands it out.
const prefetch = 8 << 10

// errOver is what a body says behind the end of its request.
var errOver = errors.New("fibergate: the request is over, its body cannot be read any more")

// body is the body as a handler reads it: what the leases have made of the source.
type body struct{ io.ReadCloser }

// leased is the body as a lease reads it. Of those that stand in each other the one whose
// gate refuses to read on is the first to see its error.
type leased struct {
	io.ReadCloser
	from *source
}

func (l *leased) Read(p []byte) (int, error) {
	n, err := l.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		if rej := (*gate.Rejection)(nil); errors.As(err, &rej) {
			l.from.cut.CompareAndSwap(nil, &cut{l, rej})
		}
	}
	return n, err
}

// refused returns the refusal with which the gate has cut its body, nil where it has not.
func (l *leased) refused() error {
	if l != nil {
		if c := l.from.cut.Load(); c != nil && c.by == l {
			return c.rej
		}
	}
	return nil
}

// cut says that a gate has refused to read a body to its end.
type cut struct {
	by  *leased
	rej *gate.Rejection
}

// source is a request's body as fasthttp hands it out: a stream, or bytes in memory.
type source struct {
	rc     *fasthttp.RequestCtx
	conn   net.Conn            // nil: none whose deadlines can be moved
	raw    io.Reader           // nil: the body is in memory
	cut    atomic.Pointer[cut] // the first
	length int64               // -1 = unknown
	memory int64               // how much of it lies in memory from the start

	// reading is held while raw is read: fasthttp's own buffer is below.
	reading sync.Mutex
	mem     *bytes.Reader
	err     error // sticky

	// mu guards the fields below. It is held while the deadline is moved: conn must not
	// be touched once the request is over, whoever is reading still.
	mu    sync.Mutex
	total int64     // bytes that were read
	over  bool      // all has been read
	left  bool      // the request is over
	end   time.Time // where the server's ReadTimeout, started at admission, runs out; zero = nowhere
	fresh bool      // end must become the deadline before raw is read again
	set   time.Time // the deadline; zero = none of ours
}

// newSource returns the body of rc, of which most is what the server reads at most
// before it hands out a stream.
func newSource(rc *fasthttp.RequestCtx, raw io.Reader, length int64, most int) *source {
	b := &source{rc: rc, raw: raw, length: length, memory: length}
	if !fast.Foreign(rc) {
		b.conn = rc.Conn()
	}
	if raw == nil {
		return b
	}
	if most <= 0 || most > prefetch {
		most = prefetch
	}
	b.memory = min(max(length, 0), int64(most))
	return b
}

// continues takes over where old, whose time is over, was left.
func (b *source) continues(old *source) {
	old.reading.Lock()
	defer old.reading.Unlock()
	old.mu.Lock()
	defer old.mu.Unlock()
	if b.raw == old.raw && b.raw != nil {
		b.total, b.over = old.total, old.over
		if !errors.Is(old.err, errOver) {
			b.err = old.err
		}
	}
	if b.raw == nil && old.mem != nil {
		b.mem = old.mem
	}
}

// Read reads the body itself.
func (b *source) Read(p []byte) (int, error) {
	b.reading.Lock()
	defer b.reading.Unlock()
	if b.err == nil {
		b.err = b.begin()
	}
	if b.err != nil || len(p) == 0 {
		return 0, b.err
	}
	if b.mem == nil && !b.streams() {
		b.mem = bytes.NewReader(b.rc.Request.Body())
	}
	if b.mem != nil {
		return b.mem.Read(p)
	}
	if b.length >= 0 && int64(len(p)) > b.length-b.total { // total changes under reading alone
		p = p[:b.length-b.total] // of a body above BodyLimit fasthttp 1.51 may hold more, and panics behind it
	}
	n, err := b.raw.Read(p)
	b.err = b.came(n, err)
	return n, b.err
}

// streams reports whether raw is still what fasthttp has of the body. It is not when
// c.Body or a proxy have read it, or somebody has closed it: then it may belong to
// another request by now.
func (b *source) streams() bool { return b.raw != nil && b.rc.RequestBodyStream() == b.raw }

// begin sets the restarted ReadTimeout as the deadline, and says why there is nothing to
// read.
func (b *source) begin() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.over:
		return io.EOF
	case b.left:
		return errOver
	case b.fresh:
		b.fresh = false
		_ = b.moveLocked(b.end) // a connection without deadlines has none to restart
	}
	return nil
}

// came notes what was read, and returns what is to be said of it.
func (b *source) came(n int, err error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.total += int64(n)
	end := err == io.EOF //nolint:errorlint // a wrapped one is something else
	switch {
	case end && b.length >= 0 && b.total < b.length:
		return io.ErrUnexpectedEOF // fasthttp does not tell
	case end || err == nil && b.total == b.length:
		b.over = true
	case err != nil && !b.set.IsZero() && !time.Now().Before(b.set):
		return os.ErrDeadlineExceeded // fasthttp may have hidden it
	}
	return err
}

// Close has nothing to close: the connection is fasthttp's.
func (b *source) Close() error { return nil }

// restart starts the server's ReadTimeout anew.
func (b *source) restart(read time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if read > 0 && b.raw != nil && b.conn != nil {
		b.end, b.fresh = time.Now().Add(read), true
	}
}

// setReadDeadline is what leases move the deadline with. The server's own ReadTimeout
// stays in force: later than its end is its end, and so is the zero time.
func (b *source) setReadDeadline(t time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fresh = false
	if !b.end.IsZero() && (t.IsZero() || t.After(b.end)) {
		t = b.end
	}
	return b.moveLocked(t)
}

func (b *source) moveLocked(t time.Time) error {
	switch {
	case b.left:
		return errOver
	case b.conn == nil:
		return os.ErrNoDeadline
	}
	b.set = t
	return b.conn.SetReadDeadline(t)
}

// finish ends the use of the connection: nobody reads when it returns, nor later.
func (b *source) finish() {
	if b.quit() {
		b.reading.Lock() // interrupted, the reader lets go
	}
	defer b.reading.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.set.IsZero() {
		b.set = time.Time{}
		_ = b.conn.SetReadDeadline(time.Time{}) // the next request sets its own, if the server has any
	}
}

// quit marks the end. It reports whether somebody is reading, and takes reading else.
func (b *source) quit() (busy bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left = true
	if b.reading.TryLock() {
		return false
	}
	if b.raw != nil && b.conn != nil {
		b.set = past()
		_ = b.conn.SetReadDeadline(b.set)
	}
	return true
}

// unread reports whether something of a streamed body may still come.
func (b *source) unread() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.raw == nil || b.conn == nil || b.over || b.length == b.memory:
		return false // whoever has not read it: it is off the connection
	case b.streams():
		return true
	}
	// Newer versions of fasthttp see to the rest of a stream that somebody has closed.
	_, drains := any(b.rc).(interface{ SetReadDeadline(time.Time) error })
	return !drains && int64(len(b.rc.Request.Body())) != b.length
}

// atEnd reports whether the stream is known to be at its end, without waiting: where
// somebody has read it past the leases.
func (b *source) atEnd() bool {
	if !b.reading.TryLock() {
		return false // somebody reads
	}
	defer b.reading.Unlock()
	if b.err != nil || !b.streams() {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.moveLocked(past()) != nil { // finish takes it off
		return false
	}
	n, err := b.raw.Read(make([]byte, 1))
	b.over = n == 0 && err == io.EOF
	return b.over
}

// past is a deadline that has passed.
func past() time.Time { return time.Unix(1, 0) }
