package echogate

import (
	"context"
	"errors"

	"github.com/labstack/echo/v4"

	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/gatehttp"
)

// Acquire asks g from inside a handler. The request of c becomes a copy that holds the
// lease, which the handler must release:
//
//	if err := echogate.Acquire(c, g, gate.Request{Flow: tenant}); err != nil {
//		return err
//	}
//	defer echogate.Release(c, g)
//
// Method, Route, Path, Bytes and ContentType of q are taken from c where they are
// zero, class, flow and weight from the context. A request that holds a lease of g
// already stays as it is, and so it does after an error: nothing is held then. The
// error is the gate's. A middleware of this package around the handler answers it; an
// app without one answers it by [Refuse]. Like the middleware, Acquire gives the
// request its server's WriteTimeout anew after a wait; unlike it, it calls no
// OnDecision, and a body that no middleware of this package has handed out keeps its
// read deadline: a handler's end cannot be seen from here.
func Acquire(c echo.Context, g gate.Gate, q gate.Request) error {
	if q.Route == "" {
		q.Route = c.Path()
	}
	in, err := gatehttp.Acquire(c.Response().Writer, c.Request(), g, q)
	c.SetRequest(in)
	return err
}

// Release releases the lease that g gave to the request, now instead of when the
// handler returns. It does nothing where there is none, or none that still lives.
func Release(c echo.Context, g gate.Gate) { gatehttp.Release(c.Request(), g) }

// Refuse answers a request with the refusal that err is or wraps, and reports whether
// it did; the handler then returns nil. It does nothing, and reports false, for nil and
// for errors that are no gate's. err comes from [Acquire], from reading the body, or
// from a client call that was refused.
//
// A refused client call is often a response and no error: clientwrap.Refused tells, and
// what it returns is handed in once it is known not to be nil (a nil [*gate.Rejection] in
// an error is not nil).
//
// It writes the answer itself. To leave it to the app's HTTPErrorHandler return the
// error, behind a middleware of this package; that handler may call Refuse in turn. On
// HTTP/1 an unread rest of the body closes the connection. To an answer that has begun
// nothing is added. The answer has the Format of the middleware that made the error,
// else of the innermost one around the handler whose Format is not [gate.Problem].
func Refuse(c echo.Context, err error) bool {
	var rej *gate.Rejection
	if !errors.As(err, &rej) || rej == nil { // nil from clientwrap.Refused, for example
		return false
	}
	if prepare(c, rej) {
		body, contentType := rej.Render(formatOf(c, err))
		_ = c.Blob(rej.Status(), contentType, body) // the client may have left: nobody to tell
	}
	return true
}

// Context returns the context that holds the request's leases, class and flow: that
// of c.Request().
func Context(c echo.Context) context.Context { return c.Request().Context() }

// SetClass makes the work of c one of class class, for everything that asks a gate
// from now on. It panics on a class that does not exist, as [gate.WithClass] does.
func SetClass(c echo.Context, class gate.Class) {
	r := c.Request()
	c.SetRequest(r.WithContext(gate.WithClass(r.Context(), class)))
}
