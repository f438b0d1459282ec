package prebody_test

import (
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/headgate-go/headgate/core/gate"
)

// K9: fasthttp reads the body itself, so its lease cannot end a slow sender: the server's
// ReadTimeout does, and the lease comes back.
func TestK9SlowSender(t *testing.T) {
	b := budget(t, nil)
	addr := serve(t, app(t, b, func(*fiber.Ctx) error { t.Error("the handler ran"); return nil }, fiber.Config{ReadTimeout: 200 * time.Millisecond}))
	for _, framing := range []string{"Content-Length: 4096", "Transfer-Encoding: chunked"} {
		c := dial(t, addr)
		c.say(head(framing) + "1000\r\nand no more")
		eventually(t, func() bool { return b.Snapshot().Inflight == 1 }, "it is not admitted")
		eventually(t, func() bool { return b.Snapshot().Inflight == 0 }, "a slow sender holds its lease")
		_ = c.rest()
	}
}

// Where the same connection is used again a lease is the next request's own, and that of
// a request without a body is none.
func TestConnectionUsedAgain(t *testing.T) {
	g := &counting{}
	var held []int64
	var live []bool
	c := dial(t, serve(t, app(t, g, func(c *fiber.Ctx) error {
		_, ok := gate.LeaseOf(c.UserContext(), g)
		held, live = append(held, g.held.Load()), append(live, ok)
		return c.SendString("ok")
	})))
	for range 50 { // one behind the other, without waiting for answers
		c.say(head("Content-Length: 4") + "body" + head() + head("Transfer-Encoding: chunked") + "1\r\nx\r\n0\r\n\r\n")
	}
	for range 150 {
		if got := c.answer(); got.text != "ok" || got.Close {
			t.Fatalf("got %d %q", got.StatusCode, got.text)
		}
	}
	for i := range held {
		if held[i] != 1 || !live[i] {
			t.Fatalf("request %d is served with %d leases held, its own found: %v", i, held[i], live[i])
		}
	}
	eventually(t, func() bool { return g.held.Load() == 0 }, "leases leaked")
}
