package echogate

import (
	"fmt"

	"github.com/labstack/echo/v4"

	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/gatehttp"
)

// Middleware returns a middleware that admits requests through g, with everything
// else as [DefaultConfig] has it. It panics on a gate that [Config.ToMiddleware]
// refuses.
func Middleware(g gate.Gate) echo.MiddlewareFunc {
	c := DefaultConfig
	c.Gate = g
	return WithConfig(c)
}

// WithConfig returns a middleware that admits requests as c says. It panics where
// [Config.ToMiddleware] returns an error.
func WithConfig(c Config) echo.MiddlewareFunc {
	m, err := c.ToMiddleware()
	if err != nil {
		panic(err.Error())
	}
	return m
}

// ToMiddleware returns a middleware that admits requests as m says, or an error that
// names the field: a nil Gate, a Gate that cannot be compared with ==, an unknown
// Format. The middleware may be used any number of times.
func (m Config) ToMiddleware() (echo.MiddlewareFunc, error) {
	if err := gatehttp.Check(m.Gate, m.Format); err != nil {
		return nil, fmt.Errorf("echogate: %w", err)
	}
	if m.Skipper == nil {
		m.Skipper = skipNone
	}
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			if m.Skipper(c) {
				return answerable(c, next(c))
			}
			return m.serve(c, next)
		}
	}, nil
}

// serve puts a request to the gate, and next runs when it is admitted.
func (m *Config) serve(c echo.Context, next echo.HandlerFunc) error {
	q := m.request(c)
	a, err := gatehttp.Ask(c.Response().Writer, c.Request(), m.Gate, &q, m.peer(c))
	defer m.leave(c, &q, &a)
	m.decided(c, &q, &a, err)
	if m.ServerTiming {
		a.Tell()
	}
	if err != nil {
		return refusal(c, gatehttp.Refusal(c.Request(), err), m.Format, m.OnRefuse)
	}
	c.SetRequest(a.Enter(m.Format))
	return answerable(c, next(c))
}
