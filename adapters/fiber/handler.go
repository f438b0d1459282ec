package fibergate

import (
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/gofiber/fiber/v2"

	"github.com/headgate-go/headgate/adapters/fiber/internal/fast"
	"github.com/headgate-go/headgate/core/gate"
)

// Acquire asks g from inside a handler. c.UserContext() holds the lease afterwards,
// which the handler must release:
//
//	if err := fibergate.Acquire(c, g, gate.Request{Flow: tenant}); err != nil {
//		return err
//	}
//	defer fibergate.Release(c, g)
//
// A handler that leaves a response stream may leave the lease to it: what is still held
// when the response is finished is released then.
//
// Method, Route, Path, Bytes, Buffered and ContentType of q are taken from c where they
// are zero, class, flow and weight from the context. A request that holds a lease of g
// already stays as it is, and so it does after an error: nothing is held then. The error
// is the gate's. A middleware of this package around the handler answers it; an app
// without one answers it by [Refuse]. Like the middleware, Acquire gives a streamed body
// its server's ReadTimeout anew after a wait; unlike it, it calls no OnDecision.
func Acquire(c *fiber.Ctx, g gate.Gate, q gate.Request) error {
	ctx := c.UserContext()
	if _, held := gate.LeaseOf(ctx, g); held {
		return nil
	}
	if q.Route == "" {
		q.Route = pattern(c, useField())
	}
	s := stayOf(c)
	lease, err := s.ask(ctx, c, g, &q, false)
	if err != nil {
		return err
	}
	c.SetUserContext(lease.In(ctx, g))
	s.hold(lease)
	return nil
}

// Release releases the lease that g gave to the request, now instead of when its
// response is finished. It does nothing where there is none, or none that still lives.
func Release(c *fiber.Ctx, g gate.Gate) {
	lease, _ := gate.LeaseOf(c.UserContext(), g)
	lease.Release()
}

// Refuse answers a request with the refusal that err is or wraps, and reports whether
// it did; the handler then returns nil. It does nothing, and reports false, for nil and
// for errors that are no gate's. err comes from [Acquire], from reading [Body], or from
// a client call that was refused.
//
// A refused client call is often a response and no error: clientwrap.Refused tells, and
// what it returns is handed in once it is known not to be nil (a nil [*gate.Rejection] in
// an error is not nil).
//
// It writes the answer itself. To leave it to the app's ErrorHandler return the error,
// behind a middleware of this package; that handler may call Refuse in turn. What of
// the answer is there already is replaced. The answer has the Format of the middleware
// that made the error, else of the innermost one around the handler whose Format is not
// [gate.Problem].
//
// The unread rest of a streamed body closes the connection. Where no middleware of this
// package stands around the handler, a client that is still sending may not get to read
// the answer.
func Refuse(c *fiber.Ctx, err error) bool {
	var rej *gate.Rejection
	if !errors.As(err, &rej) || rej == nil { // nil from clientwrap.Refused, for example
		return false
	}
	s := stayOf(c)
	if fast.Prepare(c.Context(), rej) {
		fast.Write(c.Context(), rej, formatOf(s, err))
	}
	if !s.owned {
		s.endUnread(nil)
	}
	return true
}

// formatOf returns the format to answer err in.
func formatOf(s *stay, err error) gate.Format {
	var r *fast.Refused
	if errors.As(err, &r) {
		return r.Format
	}
	return s.format
}

// Context returns the context that holds the request's leases, class and flow: that of
// c.UserContext(). It may be kept; it does not end with the request, nor when the client
// leaves.
func Context(c *fiber.Ctx) context.Context { return c.UserContext() }

// SetClass makes the work of c one of class class, for everything that asks a gate
// from now on. It panics on a class that does not exist, as [gate.WithClass] does.
func SetClass(c *fiber.Ctx, class gate.Class) {
	c.SetUserContext(gate.WithClass(c.UserContext(), class))
}

// Body returns the request's body, read under the leases that the request holds: they
// count and charge what is read, end it at their caps, and end slow senders. Their
// errors hold a *[gate.Rejection]. A request without a body has [http.NoBody].
//
// With StreamRequestBody it reads the connection; the memory that it takes is the
// caller's buffer. Without, it reads what Fiber has in memory already, and of a form that
// Fiber has parsed it is better to read c.MultipartForm. Each call returns the same body,
// read on where it was left. It ends with the request: who reads on gets an error.
//
// c.Body and whatever uses it read a streamed body past the leases, and to its end.
func Body(c *fiber.Ctx) io.ReadCloser {
	s := stayOf(c)
	if s.source == nil {
		return http.NoBody
	}
	if s.body.ReadCloser == nil {
		s.body.ReadCloser = s.source
	}
	return &s.body
}
