package httpgate

import (
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

// linger is how long the rest of a body that nobody will read may take to arrive.
// Without it net/http waits for up to 256 KiB of it for as long as the client likes.
const linger = time.Second

// hasBody reports whether there is a body to read. HTTP/2 requests without one
// tell by their length alone.
func hasBody(r *http.Request) bool {
	return r.Body != nil && r.Body != http.NoBody && r.ContentLength != 0
}

// unread reports whether r has a body that is not known to be read to its end.
func unread(r *http.Request) bool {
	if b, ok := r.Body.(*body); ok {
		return !b.from.over.Load()
	}
	return hasBody(r)
}

// closeUnread makes net/http answer before the body has arrived, and bounds how
// long the connection then stays. HTTP/2 needs neither, and would lose all of the
// connection's streams.
func closeUnread(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor != 1 || !unread(r) {
		return
	}
	w.Header().Set("Connection", "close")
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(linger)) // no deadlines: nothing to bound
}

// hangUp ends a request whose client is gone. For a handler that writes nothing
// net/http answers 200, which a client that has only closed its sending side
// would take for success. An HTTP/2 stream is closed already.
func hangUp(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor != 1 {
		return
	}
	if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
		_ = conn.Close()
	}
}

// timeouts returns the server's read and write timeouts, 0 where there are none.
func timeouts(r *http.Request) (read, write time.Duration) {
	if s, ok := r.Context().Value(http.ServerContextKey).(*http.Server); ok {
		return max(s.ReadTimeout, 0), max(s.WriteTimeout, 0)
	}
	return 0, 0
}

// pauseTimeouts takes the deadlines off an HTTP/2 stream while its request waits
// and reports whether it did: there, one that passes ends the stream for good. On
// HTTP/1 a deadline matters only to the next read or write, so it can be moved
// after the wait.
func pauseTimeouts(w http.ResponseWriter, r *http.Request) (paused bool) {
	if r.ProtoMajor != 2 {
		return false
	}
	read, write := timeouts(r)
	if write > 0 {
		paused = http.NewResponseController(w).SetWriteDeadline(time.Time{}) == nil
	}
	if read > 0 && unread(r) {
		paused = http.NewResponseController(w).SetReadDeadline(time.Time{}) == nil || paused
	}
	return paused
}

// resumeWrite starts the server's WriteTimeout anew.
func resumeWrite(w http.ResponseWriter, r *http.Request) {
	if _, write := timeouts(r); write > 0 {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(write)) // a writer without deadlines loses none
	}
}

// body is a request's body as a handler reads it: under one lease, or several.
type body struct {
	io.ReadCloser // what the lease made of the source or of an outer gate's body
	from          *source
}

// source is a request's body as net/http handed it out. The outermost gate makes
// it; the readers of all leases end in it.
type source struct {
	raw   io.ReadCloser
	w     http.ResponseWriter // nil: nobody tells when the handler returns, so deadlines stay as they are
	http1 bool

	over atomic.Bool // raw has been read to its end, or closed

	// mu guards the fields below. It is held while the deadline is moved: w must not
	// be touched once the handler has returned, whoever is reading still.
	mu    sync.Mutex
	left  bool      // the handler has returned
	end   time.Time // where the server's ReadTimeout, started at admission, runs out; zero = nowhere
	fresh bool      // end must become the deadline before raw is read again
	armed bool      // the deadline was set here, so it is taken off here
}

// leaseBody returns the body of r read under the lease, and the source if it was
// made here: its finish must run when the handler is done. resume starts the
// server's ReadTimeout anew.
func leaseBody(w http.ResponseWriter, r *http.Request, lease gate.Lease, resume bool) (io.ReadCloser, *source) {
	read, _ := timeouts(r)
	if outer, ok := r.Body.(*body); ok {
		if resume {
			outer.from.restart(read)
		}
		rc := lease.Body(outer, outer.from.setReadDeadline)
		if same, ok := rc.(*body); ok && same == outer {
			return outer, nil
		}
		return &body{rc, outer.from}, nil
	}
	s := &source{raw: r.Body, w: w, http1: r.ProtoMajor == 1}
	if read > 0 && w != nil {
		s.end, s.fresh = time.Now().Add(read), resume
	}
	return &body{lease.Body(s, s.setReadDeadline), s}, s
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
