package gatehttp

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

// Admission is what came of asking a gate for a request. It is used by the request's
// goroutine alone.
type Admission struct {
	w      http.ResponseWriter
	r      *http.Request
	ctx    context.Context // holds the lease
	lease  gate.Lease
	asked  bool
	resume bool // the wait has cost time of the server's timeouts
	src    *source
	body   *body // what reads the request's body under the lease, nil = nothing does
	err    error
}

// Ask puts r to g. It completes q first: Method (one of the nine that net/http names,
// else "other"), Path, Bytes and ContentType from r where they are zero, class, flow
// and weight from r's context, and the flow of peer, an address, where there is none
// then and peer is not "". The caller must call Leave, in a defer; after an error
// nothing is held, and Leave does nothing.
func Ask(w http.ResponseWriter, r *http.Request, g gate.Gate, q *gate.Request, peer string) (a Admission, err error) {
	describe(q, r)
	if r.ProtoMajor == 2 { // what is not put to the gate keeps its deadlines
		if _, held := gate.LeaseOf(r.Context(), g); held {
			return Admission{r: r}, nil
		}
	}
	paused := pauseTimeouts(w, r)
	a.w, a.r = w, r
	a.ctx, a.lease, a.asked, err = gate.Admit(r.Context(), g, q, peer)
	a.resume = paused || err == nil && a.lease.Waited() > 0
	a.err = err
	return a, err
}

// Asked reports whether the gate was asked: false where the request holds a lease of
// it already.
func (a *Admission) Asked() bool { return a.asked }

// Waited is how long the request stood in the queue, whatever came of it: 0 where the
// gate's error does not tell.
func (a *Admission) Waited() time.Duration {
	if a.err == nil {
		return a.lease.Waited()
	}
	if rej := (*gate.Rejection)(nil); errors.As(a.err, &rej) {
		return rej.Waited
	}
	return 0
}

// Tell adds to the answer's header how long the request stood in the queue; see
// [gate.ServerTiming]. It does nothing where the gate was not asked. It must be called
// before anything is written.
func (a *Admission) Tell() {
	if a.asked {
		a.w.Header().Add("Server-Timing", gate.ServerTiming(a.Waited()))
	}
}

// Enter returns the request that the handler gets, which is r itself where the gate
// was not asked. [FormatOf] finds f in it, unless f is [gate.Problem]. It is called
// once, and what it returns may be read until Leave.
func (a *Admission) Enter(f gate.Format) *http.Request {
	if !a.asked {
		return a.r
	}
	if f != gate.Problem {
		a.ctx = &formatted{a.ctx, f}
	}
	return a.enter(a.w)
}

// enter makes the copy. own is nil where nobody will call Leave.
func (a *Admission) enter(own http.ResponseWriter) *http.Request {
	if a.resume {
		resumeWrite(a.w, a.r)
	}
	if !hasBody(a.r) {
		return a.r.WithContext(a.ctx)
	}
	return a.withBody(own)
}

// Cut returns the refusal with which the gate ended the reading of a body that it had
// admitted (too large, too slow, no room to grow), nil where it has not. It is final after
// Leave, but for a body that is read longer than its handler runs.
func (a *Admission) Cut() error {
	if a.body != nil {
		if c := a.body.from.cut.Load(); c != nil && c.by == a.body {
			return c.rej
		}
	}
	return nil
}

// Leave releases the lease when the handler is done, however that came about. A body
// that the handler has left unread is waited for no longer than that of a refused
// request.
func (a *Admission) Leave() {
	if a.src == nil {
		a.lease.Release()
		return
	}
	defer a.lease.Release()
	a.src.finish()
}

// Acquire asks g from inside a handler and returns a copy of r that holds the lease.
// The handler goes on with the copy and must release the lease. q is completed as
// [Ask] does it, without a peer. A request that holds a lease of g already is returned
// as it is; after an error the result is r itself, and nothing is held.
//
// A body that no middleware has handed out keeps its read deadline: a handler's end
// cannot be seen from here, and nothing may touch w after it.
func Acquire(w http.ResponseWriter, r *http.Request, g gate.Gate, q gate.Request) (*http.Request, error) {
	a, err := Ask(w, r, g, &q, "")
	if err != nil || !a.asked {
		return r, err
	}
	return a.enter(nil), nil
}

// Release releases the lease that g gave to r, now instead of when the handler
// returns. It does nothing where there is none, or none that still lives.
func Release(r *http.Request, g gate.Gate) {
	lease, _ := gate.LeaseOf(r.Context(), g)
	lease.Release()
}

// formatted is a context that remembers the Format for refusals in the handler.
type formatted struct {
	context.Context
	format gate.Format
}

type formatKey struct{}

// Value returns the format for formatKey, else what the parent holds.
func (c *formatted) Value(key any) any {
	if key == (formatKey{}) {
		return c.format
	}
	return c.Context.Value(key)
}

// FormatOf returns the format of the innermost middleware around the handler of r
// whose format is not [gate.Problem], which it is where there is none.
func FormatOf(r *http.Request) gate.Format {
	f, _ := r.Context().Value(formatKey{}).(gate.Format)
	return f
}
