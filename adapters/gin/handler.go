package gingate

import (
	"context"
	"errors"

	"github.com/gin-gonic/gin"

	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/gatehttp"
)

// Acquire asks g from inside a handler. c.Request becomes a copy that holds the
// lease, which the handler must release:
//
//	err := gingate.Acquire(c, g, gate.Request{Flow: tenant})
//	if gingate.Refuse(c, err) {
//		return
//	}
//	defer gingate.Release(c, g)
//
// Method, Route, Path, Bytes and ContentType of q are taken from c where they are
// zero, class, flow and weight from the context. A request that holds a lease of g
// already stays as it is, and so it does after an error: nothing is held then. Like the
// middleware, Acquire gives the request its server's WriteTimeout anew after a wait;
// unlike it, it calls no OnDecision, and a body that no middleware of this package has
// handed out keeps its read deadline: a handler's end cannot be seen from here.
func Acquire(c *gin.Context, g gate.Gate, q gate.Request) error {
	if q.Route == "" {
		q.Route = c.FullPath()
	}
	in, err := gatehttp.Acquire(c.Writer, c.Request, g, q)
	c.Request = in
	return err
}

// Release releases the lease that g gave to the request, now instead of when the
// handlers return. It does nothing where there is none, or none that still lives.
func Release(c *gin.Context, g gate.Gate) { gatehttp.Release(c.Request, g) }

// Refuse aborts a request and answers it with the refusal that err is or wraps, and
// reports whether it did; the handler then returns. It does nothing, and reports false,
// for nil and for errors that are no gate's. err comes from [Acquire], from reading the
// body, or from a client call that was refused.
//
// A refused client call is often a response and no error: clientwrap.Refused tells, and
// what it returns is handed in once it is known not to be nil (a nil [*gate.Rejection] in
// an error is not nil).
//
// On HTTP/1 an unread rest of the body closes the connection. To an answer that has
// begun nothing is added. The answer has the Format of the innermost middleware around
// the handler whose Format is not [gate.Problem].
func Refuse(c *gin.Context, err error) bool {
	var rej *gate.Rejection
	if !errors.As(err, &rej) || rej == nil { // nil from clientwrap.Refused, for example
		return false
	}
	answer(c, rej, gatehttp.FormatOf(c.Request), nil)
	return true
}

// Context returns the context that holds the request's leases, class and flow: that
// of c.Request. c itself ends with the request, and knows of a lease, only with
// Engine.ContextWithFallback.
func Context(c *gin.Context) context.Context { return c.Request.Context() }

// SetClass makes the work of c one of class class, for everything that asks a gate
// from now on. It panics on a class that does not exist, as [gate.WithClass] does.
func SetClass(c *gin.Context, class gate.Class) {
	c.Request = c.Request.WithContext(gate.WithClass(c.Request.Context(), class))
}

// answer aborts the request and writes the refusal, as AbortWithStatusJSON does.
func answer(c *gin.Context, rej *gate.Rejection, f gate.Format, custom func(*gin.Context, *gate.Rejection) bool) {
	c.Abort()
	if c.Writer.Written() {
		return
	}
	c.Status(rej.Status()) // for the log, if nothing is written
	if !gatehttp.Prepare(c.Writer, c.Request, rej) || custom != nil && custom(c, rej) {
		return
	}
	body, contentType := rej.Render(f)
	c.Data(rej.Status(), contentType, body)
}
