package httpgate

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

// New returns a middleware that admits requests through g, with everything else
// as the zero [Config] has it. It panics on a gate that [WithConfig] refuses.
func New(g gate.Gate) func(http.Handler) http.Handler {
	return WithConfig(Config{Gate: g})
}

// WithConfig returns a middleware that admits requests as c says. It panics,
// naming the field, on a nil Gate, on a Gate that cannot be compared with == and on an
// unknown Format. The middleware may wrap any number of handlers.
func WithConfig(c Config) func(http.Handler) http.Handler {
	c.check()
	return func(next http.Handler) http.Handler {
		return &middleware{config: &c, next: next}
	}
}

type middleware struct {
	config *Config
	next   http.Handler
}

// ServeHTTP puts r to the gate and serves it when it is admitted.
func (m *middleware) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := m.config
	if c.Skip != nil && c.Skip(r) {
		m.next.ServeHTTP(w, r)
		return
	}
	q := c.request(r)
	a := ask(w, r, c.Gate, &q, c.peer(r))
	switch {
	case a.err != nil:
		c.decided(r, &q, waited(a.err), a.err)
		answer(w, r, rejection(r, a.err), c.Format, c.OnRefuse)
		return
	case !a.asked:
		m.next.ServeHTTP(w, r)
		return
	}
	defer a.lease.Release()
	if c.Format != gate.Problem {
		a.ctx = &formatted{a.ctx, c.Format}
	}
	in, src := enter(w, w, r, &a)
	if src != nil {
		defer src.finish()
	}
	c.decided(r, &q, a.lease.Waited(), nil)
	m.next.ServeHTTP(w, in)
}

// admission is what came of asking a gate.
type admission struct {
	ctx    context.Context // holds the lease
	lease  gate.Lease
	asked  bool // false: the request holds a lease of the gate already
	resume bool // the wait has cost time of the server's timeouts
	err    error
}

func ask(w http.ResponseWriter, r *http.Request, g gate.Gate, q *gate.Request, peer string) (a admission) {
	if r.ProtoMajor == 2 { // what is not put to the gate keeps its deadlines
		if _, held := gate.LeaseOf(r.Context(), g); held {
			return a
		}
	}
	paused := pauseTimeouts(w, r)
	a.ctx, a.lease, a.asked, a.err = gate.Admit(r.Context(), g, q, peer)
	a.resume = paused || a.err == nil && a.lease.Waited() > 0
	return a
}

// enter makes the copy of an admitted request that its handler gets. The source is
// nil unless its finish must run when the handler is done; own is nil where nobody
// would run it.
func enter(w, own http.ResponseWriter, r *http.Request, a *admission) (*http.Request, *source) {
	in := r.WithContext(a.ctx)
	if a.resume {
		resumeWrite(w, in)
	}
	var src *source
	if hasBody(in) {
		in.Body, src = leaseBody(own, in, a.lease, a.resume)
	}
	return in, src
}

func (c *Config) decided(r *http.Request, q *gate.Request, waited time.Duration, err error) {
	if c.OnDecision == nil {
		return
	}
	d := Decision{Request: r, Method: q.Method, Route: q.Route, Waited: waited, Err: err}
	if d.Route == "" {
		d.Route = "unmatched"
	}
	c.OnDecision(d)
}

func waited(err error) time.Duration {
	if rej := (*gate.Rejection)(nil); errors.As(err, &rej) {
		return rej.Waited
	}
	return 0
}
