package fast

import (
	"bufio"
	"io"
	"net"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/headgate-go/headgate/core/gate"
)

const (
	// lingering is how long what is left of a body may go on arriving behind the answer.
	lingering = time.Second
	// lingerers is how many connections of one middleware may do that at once.
	lingerers = 256
	// briefly is how long it may where more do.
	briefly = 50 * time.Millisecond
)

// Finished reports whether the response of rc is whole when its handler returns: no
// stream and no hijacked connection goes on behind it. Those end when fasthttp closes
// the user values of rc, which it does for neither an abandoned request nor one that
// has not come from a server of its own.
func Finished(rc *fasthttp.RequestCtx) bool {
	return !rc.Response.IsBodyStream() && !rc.Hijacked() || Foreign(rc)
}

// Foreign reports whether nobody will close the user values of rc.
func Foreign(rc *fasthttp.RequestCtx) bool {
	return rc.ConnRequestNum() == 0 || rc.LastTimeoutErrorResponse() != nil
}

// hangUp ends a request without an answer.
func hangUp(rc *fasthttp.RequestCtx) {
	rc.SetConnectionClose()
	if Foreign(rc) {
		return
	}
	rc.HijackSetNoResponse(true)
	rc.Hijack(func(c net.Conn) { _ = c.Close() })
}

// Length is that of a request's body, as its header announces it; -1 = unknown.
func Length(h *fasthttp.RequestHeader) int {
	n := h.ContentLength()
	if n < -1 {
		return 0 // where no length is said there is no body
	}
	return n
}

// Guard has the leases released when the hijacked connection of rc gets lost: where the
// client is gone before its hijack begins, fasthttp forgets the request and closes
// nothing. Then owner, a user value of rc, is garbage, and nothing else tells.
func Guard[T any](rc *fasthttp.RequestCtx, owner *T, leases ...gate.Lease) {
	if rc.Hijacked() {
		runtime.AddCleanup(owner, Release, slices.Clone(leases))
	}
}

// Release releases the last lease first, and all whatever happens.
func Release(all []gate.Lease) {
	if last := len(all) - 1; last >= 0 {
		defer Release(all[:last])
		all[last].Release()
	}
}

// Linger ends connections on which a client may still be sending. Its zero value is
// ready for use.
type Linger struct{ n atomic.Int64 }

// halfCloser is a connection of which one direction can be closed.
type halfCloser interface{ CloseWrite() error }

// Close has the response of rc, whatever it will be, written as the last one of its
// connection. Were that closed at once, what the client has sent meanwhile would make
// its system throw away the answer; so only the sending side is closed, and what
// arrives is thrown away for a second, or for a moment where too many connections
// linger already, and on a nil Linger. before runs between the two.
func (l *Linger) Close(rc *fasthttp.RequestCtx, write time.Duration, before func()) {
	if rc.Hijacked() {
		return // it ends in any case
	}
	if late := rc.LastTimeoutErrorResponse(); late != nil {
		late.SetConnectionClose() // it is the one that will be written
		return
	}
	rc.SetConnectionClose()
	if Foreign(rc) || !networked(rc) {
		return
	}
	rc.HijackSetNoResponse(true)
	rc.Hijack(func(c net.Conn) {
		defer c.Close() // for servers that keep hijacked connections
		answer(rc, c, write)
		before()
		l.finish(c)
	})
}

// networked reports whether rc has come over a network, and not from app.Test: there the
// answer is awaited from the handler, and peers have no port.
func networked(rc *fasthttp.RequestCtx) bool {
	tcp, ok := rc.RemoteAddr().(*net.TCPAddr)
	return !ok || tcp.Port != 0
}

// answer writes the response. Whoever has replaced it meanwhile may have forgotten that
// it is the last one.
func answer(rc *fasthttp.RequestCtx, c net.Conn, timeout time.Duration) {
	if timeout > 0 {
		_ = c.SetWriteDeadline(time.Now().Add(timeout)) // a write will tell
	}
	rc.SetConnectionClose()
	w := bufio.NewWriter(c)
	if rc.Response.Write(w) == nil {
		_ = w.Flush() // the client may have left: nobody to tell
	}
}

// finish closes the sending side and lets in what still arrives. A connection that a
// listener has wrapped may have no sides; its client then sees where the answer ends by
// its length.
func (l *Linger) finish(c net.Conn) {
	under := c
	if u, ok := c.(interface{ UnsafeConn() net.Conn }); ok {
		under = u.UnsafeConn()
	}
	if half, ok := under.(halfCloser); ok && half.CloseWrite() != nil {
		return
	}
	long := briefly
	if l != nil {
		defer l.n.Add(-1)
		if l.n.Add(1) <= lingerers {
			long = lingering
		}
	}
	if c.SetReadDeadline(time.Now().Add(long)) == nil {
		_, _ = io.Copy(io.Discard, c) // ends with the deadline at the latest
	}
}
