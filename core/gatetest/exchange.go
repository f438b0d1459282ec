package gatetest

import (
	"context"
	"io"

	"github.com/headgate-go/headgate/core/gate"
)

// Exchange is one request and its answer, as a handler of the framework has them.
// It is used by one goroutine, and not after the handler has returned.
type Exchange interface {
	// Context, Acquire, Release, Refuse and SetClass are the adapter's helpers of
	// those names. What Acquire and SetClass change must show in the others.
	Context() context.Context
	Acquire(g gate.Gate, q gate.Request) error
	Release(g gate.Gate)
	Refuse(err error) bool
	SetClass(c gate.Class)

	// Header returns a header of the request, as the framework hands it out.
	Header(name string) string
	// Body is the request's body, read under its leases.
	Body() io.Reader
	// Trailer returns a trailer of the request. Body was read before.
	Trailer(name string) string

	// Reply answers. Below 200 it sends an interim answer without a body.
	Reply(status int, body string)
	// SetTrailer sets a trailer of the answer. It comes before Reply.
	SetTrailer(name, value string)
	// Stream answers 200 with what f writes, while f runs. In frameworks that stream
	// when the handler is done, f runs then.
	Stream(contentType string, f func(w io.Writer, flush func() error))
	// Upgrade answers 101 with the given headers and hands the connection to f, as
	// Stream does. It is closed when f returns.
	Upgrade(header map[string]string, f func(io.ReadWriter)) error
	// Redispatch sends the request through the app again, to another path.
	Redispatch(to Route) error
}

// Route is a path that the app serves.
type Route string

// The routes. The suite's clients steer what a handler does with the header
// "Suite-Arg".
const (
	// Echo reads the body and answers its length and SHA-256. It returns the error of
	// reading.
	Echo Route = "/echo"
	// Inflate inflates the body on the gate's account and answers as Echo does.
	Inflate Route = "/inflate"
	// Ignore answers without reading the body.
	Ignore Route = "/ignore"
	// Hold answers when the case lets it, whatever becomes of the client.
	Hold Route = "/hold"
	// Watch reads the body and answers when the case lets it, or when its context
	// ends.
	Watch Route = "/watch"
	// Item answers at once. It takes one parameter: register it as "/item/{id}".
	Item Route = "/item/"
	// Inspect answers what the handler was handed.
	Inspect Route = "/inspect"
	// Panic panics, or ends its goroutine.
	Panic Route = "/panic"
	// Abort begins an answer and panics with http.ErrAbortHandler.
	Abort Route = "/abort"
	// Events streams an event whenever the case says so.
	Events Route = "/events"
	// Flood streams without end.
	Flood Route = "/flood"
	// Socket is a websocket that echoes messages.
	Socket Route = "/socket"
	// Trailers reads the body and answers with its trailer, in a trailer too.
	Trailers Route = "/trailers"
	// Interim answers 103, then 201.
	Interim Route = "/interim"
	// Again sends the request to Echo, through the whole app, with its lease or
	// without.
	Again Route = "/again"
	// Early releases its lease and holds on.
	Early Route = "/early"
	// Observed reads the body, reports a back end's first byte and holds on.
	Observed Route = "/observed"
	// Nested asks a second gate for a bulk request, with the body read or not, and
	// returns its error.
	Nested Route = "/nested"
	// Leftover answers and leaves behind a goroutine that reads the body later.
	Leftover Route = "/leftover"
	// Fail returns a refusal, or answers it with Refuse, with the body read or not.
	Fail Route = "/fail"
)

// Routes returns all routes.
func Routes() []Route {
	return []Route{
		Echo, Inflate, Ignore, Hold, Watch, Item, Inspect, Panic, Abort, Events, Flood, Socket, Trailers, Interim, Again,
		Early, Observed, Nested, Leftover, Fail,
	}
}
