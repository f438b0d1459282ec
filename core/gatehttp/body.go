package gatehttp

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

// body is a request's body as a handler reads it: under one lease, or several.
type body struct {
	io.ReadCloser // what the lease made of the source or of an outer gate's body
	from          *source
}

// Read reads on under the lease. Of the bodies that stand in each other the one whose
// gate refuses to read on is the first to see its error.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		if rej := (*gate.Rejection)(nil); errors.As(err, &rej) && !b.from.fromAbove(rej) {
			b.from.cut.CompareAndSwap(nil, &cut{b, rej})
		}
	}
	return n, err
}

// cut says that a gate has refused to read a body to its end.
type cut struct {
	by  *body
	rej *gate.Rejection
}

// source is a request's body as net/http handed it out. The outermost gate makes
// it; the readers of all leases end in it. It is the context of the request too, so
// that it is found behind whatever is put around the body.
type source struct {
	context.Context
	raw   io.ReadCloser
	w     http.ResponseWriter // nil: nobody tells when the handler returns, so deadlines stay as they are
	http1 bool

	over atomic.Bool         // raw has been read to its end, or closed
	cut  atomic.Pointer[cut] // the first

	// mu guards the fields below. It is held while the deadline is moved: w must not
	// be touched once the handler has returned, whoever is reading still.
	mu    sync.Mutex
	left  bool      // the handler has returned
	end   time.Time // where the server's ReadTimeout, started at admission, runs out; zero = nowhere
	fresh bool      // end must become the deadline before raw is read again
	armed bool      // the deadline was set here, so it is taken off here
}

type sourceKey struct{}

// Value returns the source for sourceKey, else what the parent holds.
func (s *source) Value(key any) any {
	if key == (sourceKey{}) {
		return s
	}
	return s.Context.Value(key)
}

// fromAbove reports whether rej has come from a gate further out, through a body that
// somebody has put around that gate's.
func (s *source) fromAbove(rej *gate.Rejection) bool {
	for up := sourceOf(s.Context); up != nil; up = sourceOf(up.Context) {
		if c := up.cut.Load(); c != nil && c.rej == rej {
			return true
		}
	}
	return false
}

func sourceOf(ctx context.Context) *source {
	s, _ := ctx.Value(sourceKey{}).(*source)
	return s
}

// withBody returns the copy of a request with a body, which is read under the lease.
func (a *Admission) withBody(own http.ResponseWriter) *http.Request {
	read, _ := timeouts(a.r)
	raw := a.r.Body
	if outer, ok := raw.(*body); ok {
		if !outer.from.hasLeft() {
			in := a.r.WithContext(a.ctx)
			if a.resume {
				outer.from.restart(read)
			}
			rc := a.lease.Body(outer, outer.from.setReadDeadline)
			if same, ok := rc.(*body); !ok || same != outer {
				a.body = &body{rc, outer.from}
				in.Body = a.body
			}
			return in
		}
		raw = outer.from.raw // left over where a framework keeps the copy: that handler is done
	}
	s := &source{Context: a.ctx, raw: raw, w: own, http1: a.r.ProtoMajor == 1}
	if up := sourceOf(a.ctx); up != nil {
		s.over.Store(up.over.Load())
	}
	if read > 0 && own != nil {
		s.end, s.fresh = time.Now().Add(read), a.resume
	}
	if own != nil {
		a.src = s
	}
	in := a.r.WithContext(s)
	a.body = &body{a.lease.Body(s, s.setReadDeadline), s}
	in.Body = a.body
	return in
}

// Read reads the body itself.
func (s *source) Read(p []byte) (int, error) {
	s.arm()
	n, err := s.raw.Read(p)
	if err == io.EOF {
		s.over.Store(true)
		s.disarm()
	}
	return n, err
}

// Close closes the body. What net/http does not read now it never reads.
func (s *source) Close() error {
	err := s.raw.Close()
	s.over.Store(true)
	return err
}

// restart starts the server's ReadTimeout anew.
func (s *source) restart(read time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if read > 0 {
		s.end, s.fresh = time.Now().Add(read), true
	}
}

// arm sets the restarted ReadTimeout as the deadline. It waits for the first Read
// because nobody can ask net/http whether the body is at its end: behind the end
// a deadline would hit the read by which net/http watches for the client's leaving,
// and cancel the request.
func (s *source) arm() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fresh {
		s.fresh, s.armed = false, true
		_ = s.moveLocked(s.end) // a writer without deadlines has none to restart
	}
}

func (s *source) disarm() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.armed {
		s.armed = false
		_ = s.moveLocked(time.Time{})
	}
}

// setReadDeadline is what leases move the deadline with. The server's own
// ReadTimeout stays in force: later than its end is its end, and so is the zero
// time as long as the body is not over.
func (s *source) setReadDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fresh = false
	if !s.end.IsZero() && (t.After(s.end) || t.IsZero() && !s.over.Load()) {
		t = s.end
	}
	return s.moveLocked(t)
}

func (s *source) moveLocked(t time.Time) error {
	switch {
	case s.left:
		return http.ErrBodyReadAfterClose
	case s.w == nil:
		return http.ErrNotSupported
	}
	return http.NewResponseController(s.w).SetReadDeadline(t)
}

func (s *source) hasLeft() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.left
}

// finish runs when the handler is done. A body that the handler has left unread is
// not waited for longer than that of a refused request.
func (s *source) finish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.http1 && !s.over.Load() {
		_ = s.moveLocked(time.Now().Add(linger))
	}
	s.left = true
}
