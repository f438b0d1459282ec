package fibergate

import (
	"github.com/gofiber/fiber/v2"

	"github.com/headgate-go/headgate/adapters/fiber/internal/fast"
	"github.com/headgate-go/headgate/core/gate"
)

// New returns a middleware that admits requests as config says: one Config, of which
// only Gate must be set. It panics, naming the field, on a nil Gate, on a Gate that
// cannot be compared with == and on an unknown Format. The middleware may be used any
// number of times.
func New(config ...Config) fiber.Handler {
	m := &middleware{use: useField()}
	if len(config) > 0 {
		m.Config = config[0]
	}
	if err := fast.Check(m.Gate, m.Format); err != nil {
		panic("fibergate: " + err.Error())
	}
	return m.serve
}

// middleware is one that New has made.
type middleware struct {
	Config
	use    int // see [pattern]
	linger fast.Linger
}

// serve puts a request to the gate, and the handlers run when it is admitted.
func (m *middleware) serve(c *fiber.Ctx) error {
	if m.Next != nil && m.Next(c) {
		return m.pass(c)
	}
	ctx := c.UserContext()
	if _, held := gate.LeaseOf(ctx, m.Gate); held {
		return m.pass(c)
	}
	s := stayOf(c)
	owner := s.own()
	q := m.request(c)
	var lease gate.Lease
	var reader *leased
	returned := false // not by a panic, nor by runtime.Goexit
	defer func() {
		if err := reader.refused(); err != nil {
			defer m.decided(c, &q, lease, err)
		}
		if owner {
			s.leave(&m.linger, returned)
		} else if !returned || fast.Finished(s.rc) {
			lease.Release()
		}
	}()
	lease, err := s.ask(ctx, c, m.Gate, &q, m.Flow == nil)
	m.decided(c, &q, lease, err)
	if m.ServerTiming {
		c.Response().Header.Add("Server-Timing", gate.ServerTiming(fast.Waited(lease, err)))
	}
	if err != nil {
		err = fast.Refuse(c, fast.Refusal(ctx, err), m.Format, m.OnRefuse)
	} else {
		c.SetUserContext(lease.In(ctx, m.Gate))
		reader = s.hold(lease)
		if m.Format != gate.Problem {
			s.format = m.Format
		}
		err = answerable(c, c.Next())
	}
	returned = true
	return err
}

// pass lets a request through unasked. What is left of its body is no request either.
func (m *middleware) pass(c *fiber.Ctx) error {
	if c.Context().RequestBodyStream() == nil {
		return answerable(c, c.Next())
	}
	s, returned := stayOf(c), false
	if s.own() {
		defer func() { s.leave(&m.linger, returned) }()
	}
	err := answerable(c, c.Next())
	returned = true
	return err
}

// answerable answers the error of a handler that holds a gate's refusal, as the
// middleware answers its own, and returns any other.
func answerable(c *fiber.Ctx, err error) error {
	if rej := fast.Unanswered(err); rej != nil {
		return fast.Refuse(c, rej, stayOf(c).format, nil)
	}
	return err
}
