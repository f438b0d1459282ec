package httpgate

import (
	"cmp"
	"net/http"
	"time"

	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/gatehttp"
)

// Config says how requests are put to a gate. Only Gate must be set. The
// functions run on the request's goroutine before the gate is asked, OnDecision
// and OnRefuse after it; a panic in one of them passes through and leaks nothing.
type Config struct {
	// Gate admits the requests.
	Gate gate.Gate
	// Skip lets a request pass without asking the gate. nil skips none.
	Skip func(*http.Request) bool
	// Lane names the queue to wait in, for gates that have several. nil and ""
	// leave it to the gate.
	Lane func(*http.Request) string
	// Flow is the fairness key among those who wait. nil takes the flow of the
	// request's context (see [gate.WithFlow]), and the peer's address (see
	// [gate.PeerFlow]) where the context has none. A Flow that returns "" takes the
	// context's, else one flow that all such requests share.
	//
	// In front of authentication take the key from nothing that a client can make
	// up, or dilute it on purpose with [gate.HashFlow].
	Flow func(*http.Request) string
	// Class is how urgent the request is. nil and the zero Class take the class of
	// the context. Do not read it from a header that strangers can send.
	Class func(*http.Request) gate.Class
	// Cost is the price in the gate's unit. nil and 0 let the gate price the request.
	Cost func(*http.Request) int64
	// Route is the pattern that the request matches, for the gate's prices and for
	// [Decision]; "" = not known. nil takes the request's Pattern, which the router
	// sets: middleware around the whole router runs before that.
	Route func(*http.Request) string
	// Format is the shape of a refusal's body, here and in [Refuse] below this
	// middleware. The zero Format is [gate.Problem].
	Format gate.Format
	// ServerTiming adds to every answer, refusals too, a Server-Timing header that says
	// how long the request stood in this gate's queue ("queue;dur=", in milliseconds, 0 where
	// it did not wait). Browsers show it, and it tells whoever asks how busy the process
	// is. false adds none.
	ServerTiming bool
	// OnRefuse answers a refused request in place of the middleware and reports
	// whether it did; false leaves the answer to the middleware. Retry-After, the
	// marker header and, where it is due, "Connection: close" are set already. It is
	// not called for a client that has left. nil leaves every answer to the
	// middleware.
	OnRefuse func(http.ResponseWriter, *http.Request, *gate.Rejection) bool
	// OnDecision sees every decision of the gate once, before the handler runs or
	// the refusal is written. Where the gate then cuts the body that it has admitted (too
	// large, too slow, no room for it to grow), it sees that refusal too, when the handler
	// is done. It is not called for requests that pass unasked. nil sees none.
	OnDecision func(Decision)
}

// Decision is what a gate decided for a request: a line for the access log.
type Decision struct {
	// Request is the request as it was put to the gate. It must not be kept.
	Request *http.Request
	// Method is the request's method: one of the nine that net/http names, else
	// "other".
	Method string
	// Route is the pattern that the request matched, "unmatched" where none is
	// known.
	Route string
	// Waited is how long the request stood in the queue.
	Waited time.Duration
	// Err is nil for an admitted request, else the gate's error: of a request that was
	// not admitted, or of one whose body was cut.
	Err error
}

// check panics on a configuration that cannot work. Middleware is built at
// start-up, from code: there is nobody to hand an error to.
func (c *Config) check() {
	if err := gatehttp.Check(c.Gate, c.Format); err != nil {
		panic("httpgate: " + err.Error())
	}
}

// request puts r into the gate's words.
func (c *Config) request(r *http.Request) (q gate.Request) {
	if c.Lane != nil {
		q.Lane = c.Lane(r)
	}
	if c.Class != nil {
		q.Class = c.Class(r)
	}
	if c.Cost != nil {
		q.Cost = c.Cost(r)
	}
	if c.Flow != nil {
		q.Flow = c.Flow(r)
	}
	if c.Route != nil {
		q.Route = c.Route(r)
	} else {
		q.Route = r.Pattern
	}
	return q
}

// peer is the address whose flow a request without one takes.
func (c *Config) peer(r *http.Request) string {
	if c.Flow != nil {
		return "" // a Flow that knows nobody does not mean the peer
	}
	return r.RemoteAddr
}

// leave ends an admission, and tells the hook if the gate has cut the body.
func (c *Config) leave(r *http.Request, q *gate.Request, a *gatehttp.Admission) {
	a.Leave()
	if err := a.Cut(); err != nil {
		c.decided(r, q, a, err)
	}
}

// decided tells the hook.
func (c *Config) decided(r *http.Request, q *gate.Request, a *gatehttp.Admission, err error) {
	if c.OnDecision != nil && a.Asked() {
		c.OnDecision(Decision{
			Request: r, Method: q.Method, Route: cmp.Or(q.Route, gatehttp.Unmatched), Waited: a.Waited(), Err: err,
		})
	}
}
