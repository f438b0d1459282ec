package httpgate

import (
	"context"
	"errors"
	"net/http"

	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/gatehttp"
)

// Acquire asks g from inside a handler. It returns a copy of r that holds the
// lease; the handler goes on with the copy and must release the lease:
//
//	r, err := httpgate.Acquire(w, r, g, gate.Request{Flow: tenant})
//	if httpgate.Refuse(w, r, err) {
//		return
//	}
//	defer httpgate.Release(r, g)
//
// Method, Route, Path, Bytes and ContentType of q are taken from r where they
// are zero, class, flow and weight from the context. A request that holds a lease
// of g already is returned as it is. After an error the result is r itself, and
// nothing is held. Like the middleware, Acquire gives the request its server's
// WriteTimeout anew after a wait; unlike it, it calls no OnDecision, and a body that
// no middleware of this package has handed out keeps its read deadline: a handler's
// end cannot be seen from here, and nothing may touch w after it.
func Acquire(w http.ResponseWriter, r *http.Request, g gate.Gate, q gate.Request) (*http.Request, error) {
	if q.Route == "" {
		q.Route = r.Pattern
	}
	return gatehttp.Acquire(w, r, g, q)
}

// Release releases the lease that g gave to r, now instead of when the handler
// returns. It does nothing where there is none, or none that still lives.
func Release(r *http.Request, g gate.Gate) { gatehttp.Release(r, g) }

// Refuse answers a request with the refusal that err is or wraps, and reports
// whether it did; the handler then returns. It does nothing, and reports false, for
// nil and for errors that are no gate's. err comes from [Acquire], from reading the
// body, or from a client call that was refused.
//
// A refused client call is often a response and no error: clientwrap.Refused tells, and
// what it returns is handed in once it is known not to be nil (a nil [*gate.Rejection] in
// an error is not nil).
//
// It must be called before the handler has written anything, with the request
// whose body the handler has read: on HTTP/1 an unread rest closes the connection.
// (So does a body that this package has not handed out, because nobody can tell
// whether it was read.) The answer has the Format of the innermost middleware around
// the handler whose Format is not [gate.Problem].
func Refuse(w http.ResponseWriter, r *http.Request, err error) bool {
	var rej *gate.Rejection
	if !errors.As(err, &rej) || rej == nil { // nil from clientwrap.Refused, for example
		return false
	}
	answer(w, r, rej, gatehttp.FormatOf(r), nil)
	return true
}

// Context returns the context that holds r's leases, class and flow: r's own. It
// exists so that handlers read alike in every adapter.
func Context(r *http.Request) context.Context { return r.Context() }

// SetClass returns a copy of r whose work is of class c, for everything that asks
// a gate from now on. It panics on a class that does not exist, as
// [gate.WithClass] does.
func SetClass(r *http.Request, c gate.Class) *http.Request {
	return r.WithContext(gate.WithClass(r.Context(), c))
}

// answer writes the refusal.
func answer(w http.ResponseWriter, r *http.Request, rej *gate.Rejection, f gate.Format, custom func(http.ResponseWriter, *http.Request, *gate.Rejection) bool) {
	if !gatehttp.Prepare(w, r, rej) || custom != nil && custom(w, r, rej) {
		return
	}
	body, contentType := rej.Render(f)
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(rej.Status())
	_, _ = w.Write(body) // the client may have left: nobody to tell
}
