package fibergate

import (
	"cmp"
	"reflect"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/headgate-go/headgate/adapters/fiber/internal/fast"
	"github.com/headgate-go/headgate/core/gate"
)

// Config says how requests are put to a gate. Only Gate must be set. The
// functions run on the request's goroutine before the gate is asked, OnDecision
// and OnRefuse after it; a panic in one of them passes through and leaks nothing.
// Strings that they return are copied.
type Config struct {
	// Gate admits the requests.
	Gate gate.Gate
	// Next lets a request pass without asking the gate when it returns true. nil lets
	// none pass.
	Next func(*fiber.Ctx) bool
	// Lane names the queue to wait in, for gates that have several. nil and ""
	// leave it to the gate.
	Lane func(*fiber.Ctx) string
	// Flow is the fairness key among those who wait. nil takes the flow of
	// c.UserContext() (see [gate.WithFlow]), and the peer's address (see
	// [gate.PeerFlow]) where the context has none. A Flow that returns "" takes the
	// context's, else one flow that all such requests share.
	//
	// In front of authentication take the key from nothing that a client can make
	// up, or dilute it on purpose with [gate.HashFlow]. c.IP is such a thing where
	// ProxyHeader is set and EnableTrustedProxyCheck is not.
	Flow func(*fiber.Ctx) string
	// Class is how urgent the request is. nil and the zero Class take the class of
	// the context. Do not read it from a header that strangers can send.
	Class func(*fiber.Ctx) gate.Class
	// Cost is the price in the gate's unit. nil and 0 let the gate price the request.
	Cost func(*fiber.Ctx) int64
	// Route is the pattern that the request matches, for the gate's prices and for
	// [Decision]; "" = not known. nil takes c.Route().Path where the middleware stands
	// at a route; at an app or a group Fiber does not know yet which route will match.
	Route func(*fiber.Ctx) string
	// Format is the shape of a refusal's body, here and for refusals that come up in
	// the handler. The zero Format is [gate.Problem].
	Format gate.Format
	// ServerTiming adds to every answer, refusals too, a Server-Timing header that says
	// how long the request stood in this gate's queue ("queue;dur=", in milliseconds, 0 where
	// it did not wait). Browsers show it, and it tells whoever asks how busy the process
	// is. false adds none.
	ServerTiming bool
	// OnRefuse returns what the middleware returns for a refused request: nil where it
	// has answered, an error for the ErrorHandler, or the rejection as it came for what
	// the middleware makes of it. Retry-After and the marker header are set already. It
	// is not called for a request whose context was cancelled. nil returns the
	// rejection.
	OnRefuse func(*fiber.Ctx, *gate.Rejection) error
	// OnDecision sees every decision of the gate once, before the handler runs or
	// the refusal is answered. Where the gate then cuts the body that it has admitted (too
	// large, too slow, no room for it to grow), it sees that refusal too, when the handler
	// is done. It is not called for requests that pass unasked. nil sees none.
	OnDecision func(Decision)
}

// Decision is what a gate decided for a request: a line for the access log.
type Decision struct {
	// Context is the request's, as it was put to the gate. It must not be kept.
	Context *fiber.Ctx
	// Method is the request's method: one of the nine that net/http names, else
	// "other".
	Method string
	// Route is the pattern that the request matched, "unmatched" where none did or
	// none is known yet. It must be copied to be kept.
	Route string
	// Waited is how long the request stood in the queue.
	Waited time.Duration
	// Err is nil for an admitted request, else the gate's error: of a request that was
	// not admitted, or of one whose body was cut.
	Err error
}

// request puts c into the gate's words.
func (m *middleware) request(c *fiber.Ctx) (q gate.Request) {
	if m.Lane != nil {
		q.Lane = strings.Clone(m.Lane(c))
	}
	if m.Class != nil {
		q.Class = m.Class(c)
	}
	if m.Cost != nil {
		q.Cost = m.Cost(c)
	}
	if m.Flow != nil {
		q.Flow = m.Flow(c) // copied when it is known which flow it will be
	}
	if m.Route != nil {
		q.Route = strings.Clone(m.Route(c))
	} else {
		q.Route = pattern(c, m.use)
	}
	return q
}

// decided tells the hook.
func (m *middleware) decided(c *fiber.Ctx, q *gate.Request, l gate.Lease, err error) {
	if m.OnDecision != nil {
		m.OnDecision(Decision{
			Context: c, Method: q.Method, Route: cmp.Or(q.Route, fast.Unmatched), Waited: fast.Waited(l, err), Err: err,
		})
	}
}

// pattern is the route that c has matched, "" where only a middleware's prefix has.
// Fiber tells the two apart in a field that it does not export, the one at use.
func pattern(c *fiber.Ctx, use int) string {
	r := c.Route()
	if len(r.Handlers) == 0 || use < 0 {
		return "" // not routed: the path is the client's own
	}
	if reflect.ValueOf(r).Elem().Field(use).Bool() {
		return ""
	}
	return r.Path
}

// useField is where a route says that it is a middleware's, -1 if that is not known.
func useField() int {
	f, ok := reflect.TypeFor[fiber.Route]().FieldByName("use")
	if !ok || f.Type.Kind() != reflect.Bool {
		return -1
	}
	return f.Index[0]
}
