package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"time"

	"github.com/gofiber/fiber/v2"

	fibergate "github.com/headgate-go/headgate/adapters/fiber"
	"github.com/headgate-go/headgate/core/gate"
)

// gofiber serves the routes with Fiber. There is no middleware/recover: the server
// recovers by itself, since a cut answer must not look complete.
func gofiber(g *gateway) server {
	ctx, cut := context.WithCancel(context.Background())
	app := fiber.New(fiber.Config{
		StreamRequestBody: true, DisablePreParseMultipartForm: true, // else a body is in memory before a gate is asked
		StrictRouting: true, CaseSensitive: true, // one path, one route, as in the others
		DisableDefaultContentType: true, DisableStartupMessage: true, // standard output has one line
		BodyLimit:      math.MaxInt, // the gate has one
		ReadBufferSize: fiberHeadBytes, IdleTimeout: 2 * time.Minute,
		ErrorHandler: fiberError,
	})
	app.Use(g.fiberBytes())
	app.Use(func(c *fiber.Ctx) error {
		if pattern(c.Method(), c.Path()) != http.MethodPost+" "+c.Path() {
			fiberUnread(c)
		}
		c.SetUserContext(served{ctx, c.UserContext()})
		return c.Next()
	})

	app.Post(echoPath, fiberEcho)
	for path, probe := range g.probes() {
		app.Get(path, func(c *fiber.Ctx) error { // and HEAD
			status, text := probe()
			c.Set(fiber.HeaderContentType, "text/plain; charset=utf-8")
			return c.Status(status).SendString(text)
		})
	}
	for path, h := range g.reports() {
		app.Get(path, bridge(g.log, h))
	}
	for path, h := range g.calls(refuseLater) {
		app.Post(path, bridge(g.log, h))
	}
	return newFiberServer(app, g.log, cut)
}

// fiberBytes puts the byte gate in front of all routes. A bare gateway has one that lets
// everything in: the adapter also ends connections on which the rest of a body that
// nobody reads is still to come, which Fiber takes for a request.
func (g *gateway) fiberBytes() fiber.Handler {
	if g.hg == nil {
		return fibergate.New(fibergate.Config{Gate: openGate{}})
	}
	var behind [formats]fiber.Handler
	for f := range behind {
		behind[f] = fibergate.New(fibergate.Config{
			Gate: g.hg.Bytes, Format: gate.Format(f),
			Next:  func(c *fiber.Ctx) bool { return isReport(c.Path()) }, // they must not count themselves
			Route: func(c *fiber.Ctx) string { return pattern(c.Method(), c.Path()) },
			OnDecision: func(d fibergate.Decision) {
				if d.Context.Context().UserValue(otherMethod{}) != nil {
					d.Method = "other"
				}
				g.decided(d.Method, d.Route, d.Waited, d.Err)
			},
		})
	}
	return func(c *fiber.Ctx) error { return behind[formatOf(c.Path())](c) }
}

// fiberError answers what Fiber itself has found wrong as net/http does. Of refusals it
// writes the text, which the adapter makes an answer of.
func fiberError(c *fiber.Ctx, err error) error {
	path, f := c.Path(), (*fiber.Error)(nil)
	switch {
	case errors.Is(err, fiber.ErrMethodNotAllowed):
		c.Set(fiber.HeaderAllow, allowed(path)) // Fiber's has a line for each method
		if a, ok := apiAt(path); ok {
			fiberUnread(c)
			p := a.takesPost()
			return fiberJSON(c, p.status, a.shape(p))
		}
		return fiberText(c, http.StatusMethodNotAllowed, "Method Not Allowed")
	case !errors.As(err, new(*gate.Rejection)) && errors.As(err, &f) && f.Code == http.StatusNotFound:
		return fiberText(c, f.Code, "404 page not found")
	}
	return fiber.DefaultErrorHandler(c, err)
}

// fiberEcho reads the whole body into memory, which is what the byte gate is for.
func fiberEcho(c *fiber.Ctx) error {
	pause, err := parseHold(c.Query("hold"))
	if err != nil {
		fiberUnread(c)
		return fiberText(c, http.StatusBadRequest, err.Error())
	}
	body, err := io.ReadAll(fibergate.Body(c))
	if rej := (*gate.Rejection)(nil); errors.As(err, &rej) {
		return err // too large, too slow, or no room to grow
	}
	if err != nil {
		fiberUnread(c)
		return fiberText(c, http.StatusBadRequest, "the body ends early or is not well-formed")
	}
	ctx, leave := context.WithCancel(fibergate.Context(c))
	defer leave()
	if conn, ours := c.Context().Conn().(*fiberConn); ours && pause > 0 {
		defer conn.watch(leave)()
	}
	if hold(ctx, pause) != nil {
		panic(http.ErrAbortHandler) // the client has left: close, do not answer 200
	}
	return fiberJSON(c, http.StatusOK, digest(body))
}

// fiberUnread has the answer end the connection, if there is a body.
func fiberUnread(c *fiber.Ctx) {
	if c.Request().Header.ContentLength() > 0 || c.Request().Header.ContentLength() == -1 {
		c.Context().SetConnectionClose()
	}
}

func fiberText(c *fiber.Ctx, status int, text string) error {
	c.Set(fiber.HeaderContentType, "text/plain; charset=utf-8")
	c.Set(fiber.HeaderXContentTypeOptions, "nosniff")
	return c.Status(status).SendString(text + "\n")
}

func fiberJSON(c *fiber.Ctx, status int, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	c.Set(fiber.HeaderContentType, "application/json")
	return c.Status(status).Send(append(text, '\n'))
}
