package fibergate_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/limiter"
	"github.com/stretchr/testify/assert"
	"github.com/valyala/fasthttp"

	fibergate "github.com/headgate-go/headgate/adapters/fiber"
	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/gatetest"
)

func silent(*fiber.Ctx) error { return nil }

func benchApp(middlewares []fiber.Handler) *fiber.App {
	a := fiber.New(streaming())
	for _, m := range middlewares {
		a.Use(m)
	}
	a.Get("/items", silent)
	return a
}

// request returns a request of peer's, and how to begin it anew.
func request(a *fiber.App, peer string) (h fasthttp.RequestHandler, rc *fasthttp.RequestCtx) {
	rc = new(fasthttp.RequestCtx)
	addr, err := net.ResolveTCPAddr("tcp", peer)
	if err != nil {
		panic(err)
	}
	rc.SetRemoteAddr(addr)
	rc.Request.SetRequestURI("http://test/items")
	rc.Request.Header.SetMethod(fiber.MethodGet)
	handle := a.Handler()
	return func(rc *fasthttp.RequestCtx) {
		handle(rc)
		rc.ResetUserValues() // as the server does
		rc.Response.Reset()
	}, rc
}

// Four allocations for the first gate without a body: the request's record, its context,
// its path and the peer's address, which fasthttp keeps in no form that could be kept.
// One, the context, for each further gate.
func TestAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates too")
	}
	const four, six = "192.0.2.1:1234", "[2001:db8::1]:1234"
	one := func() fiber.Handler { return fibergate.New(fibergate.Config{Gate: &gatetest.Free{}}) }
	flow := func(*fiber.Ctx) string { return "x" }
	for name, test := range map[string]struct {
		middlewares []fiber.Handler
		peer        string
		most        float64
	}{
		"no gate":        {nil, four, 0},
		"one gate":       {[]fiber.Handler{one()}, four, 4},
		"two gates":      {[]fiber.Handler{one(), one()}, four, 5},
		"one gate, IPv6": {[]fiber.Handler{one()}, six, 6},
		"configured": {[]fiber.Handler{fibergate.New(fibergate.Config{
			Gate: &gatetest.Free{}, Next: func(*fiber.Ctx) bool { return false }, Flow: flow,
			Cost: func(*fiber.Ctx) int64 { return 1 }, Format: gate.OpenAI, OnDecision: func(fibergate.Decision) {},
		})}, six, 4},
	} {
		t.Run(name, func(t *testing.T) {
			h, rc := request(benchApp(test.middlewares), test.peer)
			assert.LessOrEqual(t, testing.AllocsPerRun(1000, func() { h(rc) }), test.most)
		})
	}
}

// BenchmarkMiddleware compares the middleware with Fiber alone, with the least that any
// middleware can do which hands its handler a value in c.UserContext(), and with Fiber's
// own limiter.
func BenchmarkMiddleware(b *testing.B) {
	type key struct{}
	least := before(func(c *fiber.Ctx) {
		c.SetUserContext(context.WithValue(c.UserContext(), key{}, c))
	})
	flow := func(*fiber.Ctx) string { return "x" }
	for _, c := range []struct {
		name        string
		middlewares []fiber.Handler
	}{
		{"bare", nil},
		{"least", []fiber.Handler{least}},
		{"gate", []fiber.Handler{fibergate.New(fibergate.Config{Gate: &gatetest.Free{}})}},
		{"gate, own flow", []fiber.Handler{fibergate.New(fibergate.Config{Gate: &gatetest.Free{}, Flow: flow})}},
		{"Fiber's limiter", []fiber.Handler{limiter.New(limiter.Config{Max: 1 << 30, Expiration: time.Hour})}},
	} {
		for _, parallel := range []bool{false, true} {
			name := c.name
			if parallel {
				name += ", parallel"
			}
			b.Run(name, func(b *testing.B) {
				a := benchApp(c.middlewares)
				b.ReportAllocs()
				if parallel {
					b.RunParallel(func(pb *testing.PB) {
						h, rc := request(a, "192.0.2.1:1234")
						for pb.Next() {
							h(rc)
						}
					})
					return
				}
				h, rc := request(a, "192.0.2.1:1234")
				for b.Loop() {
					h(rc)
				}
			})
		}
	}
}
