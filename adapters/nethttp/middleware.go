package httpgate

import (
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
	if m.passes(r) {
		m.next.ServeHTTP(w, r)
		return
	}
	q := c.request(r)
	lease, resume, err := acquire(w, r, c.Gate, q)
	if err != nil {
		c.decided(r, q, waited(err), err)
		answer(w, r, rejection(r, err), c.Format, c.OnRefuse)
		return
	}
	defer lease.Release()
	ctx := lease.In(r.Context(), c.Gate)
	if c.Format != gate.Problem {
		ctx = &formatted{ctx, c.Format}
	}
	in, src := enter(w, r.WithContext(ctx), lease, resume)
	if src != nil {
		defer src.finish()
	}
	c.decided(r, q, lease.Waited(), nil)
	m.next.ServeHTTP(w, in)
}

// passes reports whether the gate need not be asked.
func (m *middleware) passes(r *http.Request) bool {
	if m.config.Skip != nil && m.config.Skip(r) {
		return true
	}
	_, held := gate.LeaseOf(r.Context(), m.config.Gate)
	return held
}

// acquire asks g. resume says that the wait has cost time of the server's timeouts.
func acquire(w http.ResponseWriter, r *http.Request, g gate.Gate, q gate.Request) (lease gate.Lease, resume bool, err error) {
	paused := pauseTimeouts(w, r)
	lease, err = g.Acquire(r.Context(), q)
	return lease, paused || err == nil && lease.Waited() > 0, err
}

// enter makes the copy of a request ready for its handler. The source is nil unless
// its finish must run when the handler is done.
func enter(w http.ResponseWriter, in *http.Request, lease gate.Lease, resume bool) (*http.Request, *source) {
	if resume {
		resumeWrite(w, in)
	}
	var own *source
	if hasBody(in) {
		in.Body, own = leaseBody(w, in, lease, resume)
	}
	return in, own
}

func (c *Config) decided(r *http.Request, q gate.Request, waited time.Duration, err error) {
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
