package fibergate_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	fibergate "github.com/headgate-go/headgate/adapters/fiber"
	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/gatetest"
)

// deviations are what Fiber cannot do.
var deviations = gatetest.Deviations{
	Prefetches: true, NoDisconnectSignal: true, NoHTTP2: true, NoInterim: true, PanicsEndProcess: true, NotNetHTTP: true,
}

// daemons outlive every fasthttp server.
var daemons = []string{"fasthttp.updateServerDate", "fasthttp.(*workerPool).Start"}

// The conformance suite, with bodies streamed and the middleware at the app, and with
// bodies buffered, the middleware at each route, and an error handler of the app's own.
func TestSuite(t *testing.T) {
	stream := fiber.Config{StreamRequestBody: true, DisablePreParseMultipartForm: true}
	t.Run("stream", func(t *testing.T) {
		gatetest.Run(t, gatetest.Adapter{
			Start: start(stream, false), ItemRoute: "unmatched", Deviations: deviations, Daemons: daemons,
		})
	})
	t.Run("buffered, route, own error handler", func(t *testing.T) {
		d := deviations
		d.Prefetches, d.BuffersBodies = false, true
		gatetest.Run(t, gatetest.Adapter{
			Start: start(fiber.Config{ErrorHandler: ownErrors}, true), ItemRoute: "/item/:id", Deviations: d, Daemons: daemons,
		})
	})
}

func ownErrors(c *fiber.Ctx, err error) error {
	if fibergate.Refuse(c, err) {
		return nil
	}
	return fiber.DefaultErrorHandler(c, err)
}

func start(config fiber.Config, perRoute bool) func(net.Listener, gatetest.Options) gatetest.Server {
	return func(l net.Listener, o gatetest.Options) gatetest.Server {
		config := config
		config.DisableStartupMessage, config.UnescapePath, config.BodyLimit = true, true, 64<<20
		config.ReadBufferSize = 140 << 10 // so that heads as long as the suite's are not refused
		config.ReadTimeout, config.WriteTimeout = o.ReadTimeout, o.WriteTimeout
		app := fiber.New(config)
		app.Server().Logger = complaints{o.ErrorLog}
		app.Use(outermost(o))
		chain := gates(o)
		if !perRoute {
			for _, h := range chain {
				app.Use(h)
			}
			chain = nil
		}
		for _, route := range gatetest.Routes() {
			app.All(pattern(route), append(chain[:len(chain):len(chain)], handler(o, route))...)
		}
		s := newServer(app, l)
		if o.TLS != nil {
			l = tls.NewListener(l, o.TLS)
		}
		go func() { _ = app.Listener(l) }() // ends when the server is closed
		return s
	}
}

// complaints are the server's, but for those about heads that broke off.
type complaints struct{ fasthttp.Logger }

func (c complaints) Printf(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !strings.Contains(text, "error when reading request headers: EOF") {
		c.Logger.Printf("%s", text)
	}
}

// server is an app that can be closed at once.
type server struct {
	app *fiber.App
	l   net.Listener

	mu    sync.Mutex
	conns map[net.Conn]bool
}

func newServer(app *fiber.App, l net.Listener) *server {
	s := &server{app: app, l: l, conns: map[net.Conn]bool{}}
	app.Server().ConnState = func(c net.Conn, state fasthttp.ConnState) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if state == fasthttp.StateNew {
			s.conns[c] = true
		}
		if state == fasthttp.StateClosed {
			delete(s.conns, c)
		}
	}
	return s
}

func (s *server) Shutdown(ctx context.Context) error { return s.app.ShutdownWithContext(ctx) }

func (s *server) Close() error {
	over, cancel := context.WithCancel(context.Background())
	cancel()
	_ = s.app.ShutdownWithContext(over)
	_ = s.l.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		_ = c.Close()
	}
	return nil
}

func pattern(route gatetest.Route) string {
	if route == gatetest.Item {
		return string(route) + ":id"
	}
	return string(route)
}

// outermost is the recovery and the CORS that stand in front of the gate.
func outermost(o gatetest.Options) fiber.Handler {
	return func(c *fiber.Ctx) error {
		defer o.Recover(func() { _ = c.SendStatus(fiber.StatusInternalServerError) })
		c.Set(fiber.HeaderAccessControlAllowOrigin, "*")
		return c.Next()
	}
}

// gates is the middleware, authentication, and the middleware once more.
func gates(o gatetest.Options) (chain []fiber.Handler) {
	config := fibergate.Config{
		Gate: o.Gate, Format: o.Format, ServerTiming: o.ServerTiming,
		OnDecision: func(d fibergate.Decision) {
			o.OnDecision(gatetest.Decision{Method: d.Method, Route: d.Route, Waited: d.Waited, Err: d.Err})
		},
	}
	if o.Skip != nil {
		config.Next = func(c *fiber.Ctx) bool { return o.Skip(c.Path()) }
	}
	if o.Flow != nil {
		config.Flow = func(c *fiber.Ctx) string { return o.Flow(header(c)) }
	}
	chain = append(chain, fibergate.New(config))
	if o.Auth != nil {
		chain = append(chain, func(c *fiber.Ctx) error {
			ctx, ok := o.Auth(fibergate.Context(c), header(c))
			if !ok {
				return fiber.ErrUnauthorized
			}
			c.SetUserContext(ctx)
			return c.Next()
		})
	}
	if o.Inner != nil {
		chain = append(chain, fibergate.New(fibergate.Config{Gate: o.Inner}))
	}
	return chain
}

func header(c *fiber.Ctx) func(string) string {
	return func(name string) string { return c.Get(name) }
}

func handler(o gatetest.Options, route gatetest.Route) fiber.Handler {
	return func(c *fiber.Ctx) error { return o.Handle(route, &exchange{c: c}) }
}

// exchange is a request in the words of this adapter.
type exchange struct {
	c       *fiber.Ctx
	trailer bool
}

func (x *exchange) Context() context.Context                  { return fibergate.Context(x.c) }
func (x *exchange) Acquire(g gate.Gate, q gate.Request) error { return fibergate.Acquire(x.c, g, q) }
func (x *exchange) Release(g gate.Gate)                       { fibergate.Release(x.c, g) }
func (x *exchange) Refuse(err error) bool                     { return fibergate.Refuse(x.c, err) }
func (x *exchange) SetClass(c gate.Class)                     { fibergate.SetClass(x.c, c) }
func (x *exchange) Header(name string) string                 { return x.c.Get(name) }
func (x *exchange) Body() io.Reader                           { return fibergate.Body(x.c) }

func (x *exchange) Trailer(name string) string {
	return string(x.c.Request().Header.Peek(name))
}

func (x *exchange) SetTrailer(name, value string) {
	_ = x.c.Response().Header.AddTrailer(name)
	x.c.Set(name, value)
	x.trailer = true
}

// Reply sends a body that has a trailer as a stream, which fasthttp wants.
func (x *exchange) Reply(status int, body string) {
	if status < 200 {
		return
	}
	x.c.Status(status)
	if !x.trailer {
		_ = x.c.SendString(body)
		return
	}
	x.c.Context().SetBodyStreamWriter(func(w *bufio.Writer) { _, _ = w.WriteString(body) })
}

func (x *exchange) Stream(contentType string, f func(w io.Writer, flush func() error)) {
	x.c.Set(fiber.HeaderContentType, contentType)
	x.c.Response().ImmediateHeaderFlush = true
	x.c.Context().SetBodyStreamWriter(func(w *bufio.Writer) { f(w, w.Flush) })
}

func (x *exchange) Upgrade(header map[string]string, f func(io.ReadWriter)) error {
	x.c.Status(fiber.StatusSwitchingProtocols)
	for name, value := range header {
		x.c.Set(name, value)
	}
	x.c.Context().Hijack(func(c net.Conn) { f(c) })
	return nil
}

func (x *exchange) Redispatch(to gatetest.Route) error {
	x.c.Path(string(to))
	return x.c.RestartRouting()
}
