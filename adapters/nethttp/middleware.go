package httpgate

import (
	"net/http"

	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/gatehttp"
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
	a, err := gatehttp.Ask(w, r, c.Gate, &q, c.peer(r))
	defer c.leave(r, &q, &a)
	c.decided(r, &q, &a, err)
	if c.ServerTiming {
		a.Tell()
	}
	if err != nil {
		answer(w, r, gatehttp.Refusal(r, err), c.Format, c.OnRefuse)
		return
	}
	m.next.ServeHTTP(w, a.Enter(c.Format))
}
