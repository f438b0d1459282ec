package gingate

import (
	"github.com/gin-gonic/gin"

	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/gatehttp"
)

// New returns a middleware that admits requests through g, with everything else
// as the zero [Config] has it. It panics on a gate that [WithConfig] refuses.
func New(g gate.Gate) gin.HandlerFunc { return WithConfig(Config{Gate: g}) }

// WithConfig returns a middleware that admits requests as c says. It panics,
// naming the field, on a nil Gate, on a Gate that cannot be compared with == and on an
// unknown Format. The middleware may be used any number of times.
func WithConfig(c Config) gin.HandlerFunc {
	c.check()
	return c.serve
}

// serve puts a request to the gate, and the handlers run when it is admitted.
func (m *Config) serve(c *gin.Context) {
	if m.Skip != nil && m.Skip(c) {
		return // Gin goes on by itself
	}
	q := m.request(c)
	a, err := gatehttp.Ask(c.Writer, c.Request, m.Gate, &q, m.peer(c))
	defer m.leave(c, &q, &a)
	m.decided(c, &q, &a, err)
	if m.ServerTiming {
		a.Tell()
	}
	if err != nil {
		answer(c, gatehttp.Refusal(c.Request, err), m.Format, m.OnRefuse)
		return
	}
	c.Request = a.Enter(m.Format)
	c.Next()
}
