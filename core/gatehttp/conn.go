package gatehttp

import (
	"io"
	"net/http"
	"strings"
	"time"
)

// linger is how long the rest of a body that nobody will read may take to arrive.
// Without it net/http waits for up to 256 KiB of it for as long as the client likes.
const linger = time.Second

// hasBody reports whether there is a body to read. HTTP/2 requests without one
// tell by their length alone.
func hasBody(r *http.Request) bool {
	return r.Body != nil && r.Body != http.NoBody && r.ContentLength != 0
}

// unread reports whether r has a body that is not known to be read to its end,
// whatever stands around the body by now.
func unread(r *http.Request) bool {
	if s := bodyOf(r); s != nil {
		return !s.over.Load()
	}
	return hasBody(r)
}

// bodyOf returns what r's body comes from, nil where no gate has handed it out.
func bodyOf(r *http.Request) *source {
	if b, ok := r.Body.(*body); ok {
		return b.from
	}
	return sourceOf(r.Context())
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
	if r.Header.Get("Expect") != "" {
		waitBeforeClose(w)
	}
}

// waitBeforeClose has net/http wait for the client to read the answer before it closes the
// connection. It does so by itself where it sees that a body is left unread, but not behind
// Expect (Go 1.26); a client that sends without waiting for its 100 would have its connection
// reset, and the answer with it. A body above a MaxBytesReader's limit has it wait as well, so
// one is read that has nothing to do with the request's.
func waitBeforeClose(w http.ResponseWriter) {
	for {
		u, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			break
		}
		w = u.Unwrap()
	}
	_, _ = http.MaxBytesReader(w, io.NopCloser(strings.NewReader("x")), 0).Read(make([]byte, 1)) // it fails
}

// hangUp ends a request whose client is gone. For a handler that writes nothing
// net/http answers 200, which a client that has only closed its sending side
// would take for success. An HTTP/2 stream is closed already.
func hangUp(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor != 1 || !hijackable(w) {
		return
	}
	if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
		_ = conn.Close()
	}
}

// hijackable reports whether the innermost writer can be hijacked. The writers of
// frameworks all have the method, and some panic where what they wrap does not.
func hijackable(w http.ResponseWriter) bool {
	for {
		u, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			_, ok = w.(http.Hijacker)
			return ok
		}
		w = u.Unwrap()
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
