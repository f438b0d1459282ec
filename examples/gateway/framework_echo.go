package main

import (
	"errors"
	"io"
	"net/http"

	echov4 "github.com/labstack/echo/v4"

	echogate "github.com/headgate-go/headgate/adapters/echo"
	"github.com/headgate-go/headgate/core/gate"
)

// labstackEcho serves the routes with Echo. What a gate refuses comes as an error to
// Echo's error handler, wherever it was refused.
func labstackEcho(g *gateway) server {
	e := echov4.New()
	e.HTTPErrorHandler = func(err error, c echov4.Context) {
		if a, ok := apiAt(c.Request().URL.Path); ok && errors.Is(err, echov4.ErrMethodNotAllowed) {
			onlyPost(a).ServeHTTP(c.Response(), c.Request())
			return
		}
		e.DefaultHTTPErrorHandler(err, c)
	}
	if g.hg != nil {
		e.Use(g.echoBytes())
	}
	e.Use(func(next echov4.HandlerFunc) echov4.HandlerFunc {
		return func(c echov4.Context) error {
			answerFirst(c.Response(), c.Request(), echoRoute(c))
			return next(c)
		}
	})

	e.POST(echoPath, echoEcho)
	methods := []string{http.MethodGet, http.MethodHead}
	for path, probe := range g.probes() {
		e.Match(methods, path, func(c echov4.Context) error { return c.String(probe()) })
	}
	for path, h := range g.reports() {
		e.Match(methods, path, echov4.WrapHandler(h))
	}
	for path, h := range g.calls(refuseLater) {
		e.POST(path, echoCall(h))
	}
	return g.newServer(e)
}

// echoBytes puts the byte gate in front of all routes.
func (g *gateway) echoBytes() echov4.MiddlewareFunc {
	var gates [formats]echov4.MiddlewareFunc
	for f := range gates {
		gates[f] = echogate.WithConfig(echogate.Config{
			Gate: g.hg.Bytes, Format: gate.Format(f), Route: echoRoute,
			Skipper:    func(c echov4.Context) bool { return isReport(c.Request().URL.Path) },
			OnDecision: func(d echogate.Decision) { g.decided(d.Method, d.Route, d.Waited, d.Err) },
		})
	}
	return func(next echov4.HandlerFunc) echov4.HandlerFunc {
		var behind [formats]echov4.HandlerFunc
		for f := range behind {
			behind[f] = gates[f](next)
		}
		return func(c echov4.Context) error { return behind[formatOf(c.Request().URL.Path)](c) }
	}
}

func echoRoute(c echov4.Context) string { return pattern(c.Request().Method, c.Path()) }

// echoCall passes a call to h, and early answers by Echo's writer, which would take the
// first for the answer. It returns what was refused.
func echoCall(h http.Handler) echov4.HandlerFunc {
	return func(c echov4.Context) error {
		var refused error
		h.ServeHTTP(&early{c.Response(), c.Response().Writer}, withNative(c.Request(), &refused))
		return refused
	}
}

// echoEcho reads the whole body into memory, which is what the byte gate is for.
func echoEcho(c echov4.Context) error {
	pause, err := parseHold(c.QueryParam("hold"))
	if err != nil {
		badRequest(c.Response(), c.Request(), err.Error())
		return nil
	}
	body, err := io.ReadAll(c.Request().Body)
	var rej *gate.Rejection
	if errors.As(err, &rej) {
		return err // too large, too slow, or no room to grow
	}
	if err != nil {
		badRequest(c.Response(), c.Request(), "the body ends early or is not well-formed")
		return nil //nolint:nilerr // it is answered
	}
	if hold(echogate.Context(c), pause) != nil {
		panic(http.ErrAbortHandler) // the client has left: close, do not answer 200
	}
	writeJSON(c.Response(), http.StatusOK, digest(body))
	return nil
}
