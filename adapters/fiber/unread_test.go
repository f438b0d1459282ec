package fibergate_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/recover"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	fibergate "github.com/headgate-go/headgate/adapters/fiber"
	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/gatetest"
)

// wrapping is a listener whose connections have no sides to close, as those of
// netutil.LimitListener.
type wrapping struct{ net.Listener }

func (l wrapping) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return struct{ net.Conn }{c}, err
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return l
}

// T23: the rest of a body is no request either where the middleware has not asked, and
// where something in front of it replaces the response that said "Connection: close".
func TestT23WhateverStandsAround(t *testing.T) {
	behind := func(limit int) fiber.Handler {
		return fibergate.New(fibergate.Config{Gate: &gatetest.Slots{Limit: limit}})
	}
	skipped := fibergate.New(fibergate.Config{Gate: &gatetest.Slots{}, Next: func(*fiber.Ctx) bool { return true }})
	reset := func(c *fiber.Ctx) error { err := c.Next(); c.Response().Reset(); return err }
	errorHandlers := map[string]fiber.ErrorHandler{
		"replaces": func(c *fiber.Ctx, _ error) error { c.Context().Error("gone", http.StatusTeapot); return nil },
		"panics": func(c *fiber.Ctx, err error) error {
			if errors.As(err, new(*gate.Rejection)) {
				panic("in the error handler")
			}
			return fiber.DefaultErrorHandler(c, err)
		},
		"fails":  func(_ *fiber.Ctx, err error) error { return err },
		"silent": func(*fiber.Ctx, error) error { return nil },
	}
	for name, test := range map[string]struct {
		handler fiber.Handler
		chain   []fiber.Handler
		errors  string
	}{
		"skipped":                   {ok, []fiber.Handler{skipped}, ""},
		"timed out":                 {func(c *fiber.Ctx) error { c.Context().TimeoutError("late"); return nil }, []fiber.Handler{behind(9)}, ""},
		"refused, reset in front":   {ok, []fiber.Handler{reset, behind(0)}, ""},
		"answered, reset in front":  {ok, []fiber.Handler{reset, behind(9)}, ""},
		"refused, error handler":    {ok, []fiber.Handler{behind(0)}, "replaces"},
		"failed, error handler":     {func(*fiber.Ctx) error { return fiber.ErrTeapot }, []fiber.Handler{behind(9)}, "replaces"},
		"error handler panics":      {ok, []fiber.Handler{behind(0)}, "panics"},
		"error handler fails":       {ok, []fiber.Handler{behind(0)}, "fails"},
		"error handler says naught": {ok, []fiber.Handler{behind(0)}, "silent"},
		"no route":                  {func(c *fiber.Ctx) error { return c.Next() }, []fiber.Handler{behind(9)}, ""},
		"redirected":                {func(c *fiber.Ctx) error { return c.Redirect("/next") }, []fiber.Handler{behind(9)}, ""},
		"refused by the second":     {ok, []fiber.Handler{behind(9), behind(0)}, ""},
		"restarted": {func(c *fiber.Ctx) error {
			if c.Locals("again") != nil {
				return ok(c)
			}
			c.Locals("again", true)
			return c.RestartRouting()
		}, []fiber.Handler{behind(9)}, ""},
	} {
		for kind, l := range map[string]net.Listener{"": listen(t), ", wrapped": wrapping{listen(t)}} {
			t.Run(name+kind, func(t *testing.T) {
				t.Parallel()
				var smuggled atomic.Int64
				config := streaming()
				config.ErrorHandler = errorHandlers[test.errors]
				a := fiber.New(config)
				a.Use(recover.New())
				a.Get("/next", func(c *fiber.Ctx) error { smuggled.Add(1); return ok(c) })
				for _, m := range test.chain {
					a.Use(m)
				}
				a.All("/", test.handler)
				addr, next := serveOn(t, a, l), strings.Repeat(head("GET /next"), 1000)
				for _, message := range []string{
					head("POST /", "Content-Length: "+strconv.Itoa(8192+len(next))) + strings.Repeat("x", 8192) + next,
					head("POST /", "Transfer-Encoding: chunked") + "2000\r\n" + strings.Repeat("x", 8192) + "\r\nfffff\r\n" + next,
				} {
					c := dial(t, addr)
					c.pour(message)
					assert.True(t, c.answer().Close)
					assert.Empty(t, c.rest())
				}
				assert.Zero(t, smuggled.Load(), "a body was taken for a request")
			})
		}
	}
}

// T24: so does one on a connection whose sides cannot be closed one by one.
func TestT24WrappedConnection(t *testing.T) {
	const tries = 40
	addr := serveOn(t, app(unreached(t), fibergate.New(fibergate.Config{Gate: &gatetest.Slots{}})), wrapping{listen(t)})
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: hang}
	for range tries {
		resp, err := client.Post("http://"+addr, "text/plain", bytes.NewReader(make([]byte, 8<<20)))
		require.NoError(t, err)
		_ = resp.Body.Close()
		assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
	}
}

// Of a body above BodyLimit fasthttp 1.51 takes what follows, too, and panics when that is
// read to its end: Body ends where the body does.
func TestBodyAboveTheLimitEnds(t *testing.T) {
	config := streaming()
	config.BodyLimit = 1000
	a := fiber.New(config)
	a.Use(recover.New(), fibergate.New(fibergate.Config{Gate: &gatetest.Slots{Limit: 1}}))
	a.Post("/", func(c *fiber.Ctx) error {
		b, err := io.ReadAll(fibergate.Body(c))
		if err != nil {
			return err
		}
		return c.Send(b)
	})
	c := dial(t, serve(t, a))
	c.say(head("POST /", "Content-Length: 1010") + strings.Repeat("x", 1010) + head("GET /"))
	got := c.answer()
	assert.Equal(t, http.StatusOK, got.StatusCode)
	assert.Equal(t, strings.Repeat("x", 1010), got.text)
}
