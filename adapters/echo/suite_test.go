package echogate_test

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"testing"

	"github.com/labstack/echo/v4"

	echogate "github.com/headgate-go/headgate/adapters/echo"
	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/gatetest"
)

// The conformance suite, with the middleware at the app and at each route, and with
// the app's own error handler in place of Echo's.
func TestSuite(t *testing.T) {
	t.Run("app", func(t *testing.T) {
		gatetest.Run(t, gatetest.Adapter{Start: start(false, nil), ItemRoute: "/item/:id"})
	})
	t.Run("route, own error handler", func(t *testing.T) {
		gatetest.Run(t, gatetest.Adapter{Start: start(true, ownErrors), ItemRoute: "/item/:id"})
	})
}

func ownErrors(err error, c echo.Context) {
	if !echogate.Refuse(c, err) {
		c.Echo().DefaultHTTPErrorHandler(err, c)
	}
}

func start(perRoute bool, onError echo.HTTPErrorHandler) func(net.Listener, gatetest.Options) gatetest.Server {
	return func(l net.Listener, o gatetest.Options) gatetest.Server {
		e := echo.New()
		e.JSONSerializer = exact{}
		if onError != nil {
			e.HTTPErrorHandler = onError
		}
		e.Logger.SetOutput(o.ErrorLog.Writer())
		e.Use(outermost(o))
		chain := gates(o)
		if !perRoute {
			e.Use(chain...)
			chain = nil
		}
		for _, route := range gatetest.Routes() {
			e.Any(pattern(route), handler(o, route), chain...)
		}
		return gatetest.Serve(l, o, e)
	}
}

// exact ends JSON where it ends, as the suite reads it; Echo adds a newline.
type exact struct{ echo.DefaultJSONSerializer }

func (exact) Serialize(c echo.Context, i any, _ string) error {
	b, err := json.Marshal(i)
	if err == nil {
		_, err = c.Response().Write(b)
	}
	return err
}

func pattern(route gatetest.Route) string {
	if route == gatetest.Item {
		return string(route) + ":id"
	}
	return string(route)
}

// outermost is the recovery and the CORS that stand in front of the gate.
func outermost(o gatetest.Options) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			defer o.Recover(func() { _ = c.NoContent(http.StatusInternalServerError) })
			c.Response().Header().Set(echo.HeaderAccessControlAllowOrigin, "*")
			return next(c)
		}
	}
}

// gates is the middleware, authentication, and the middleware once more.
func gates(o gatetest.Options) (chain []echo.MiddlewareFunc) {
	c := echogate.Config{
		Gate: o.Gate, Format: o.Format, ServerTiming: o.ServerTiming,
		OnDecision: func(d echogate.Decision) {
			o.OnDecision(gatetest.Decision{Method: d.Method, Route: d.Route, Waited: d.Waited, Err: d.Err})
		},
	}
	if o.Skip != nil {
		c.Skipper = func(c echo.Context) bool { return o.Skip(c.Request().URL.Path) }
	}
	if o.Flow != nil {
		c.Flow = func(c echo.Context) string { return o.Flow(c.Request().Header.Get) }
	}
	chain = append(chain, echogate.WithConfig(c))
	if o.Auth != nil {
		chain = append(chain, auth(o))
	}
	if o.Inner != nil {
		chain = append(chain, echogate.Middleware(o.Inner))
	}
	return chain
}

func auth(o gatetest.Options) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			ctx, ok := o.Auth(echogate.Context(c), c.Request().Header.Get)
			if !ok {
				return echo.ErrUnauthorized
			}
			c.SetRequest(c.Request().WithContext(ctx))
			return next(c)
		}
	}
}

func handler(o gatetest.Options, route gatetest.Route) echo.HandlerFunc {
	return func(c echo.Context) error {
		return o.Handle(route, &exchange{gatetest.HTTP{W: c.Response(), R: c.Request()}, c})
	}
}

// exchange is a request in the words of this adapter.
type exchange struct {
	gatetest.HTTP
	c echo.Context
}

func (x *exchange) Context() context.Context { return echogate.Context(x.c) }
func (x *exchange) Release(g gate.Gate)      { echogate.Release(x.c, g) }
func (x *exchange) Refuse(err error) bool    { return echogate.Refuse(x.c, err) }

func (x *exchange) SetClass(c gate.Class) {
	echogate.SetClass(x.c, c)
	x.R = x.c.Request()
}

func (x *exchange) Acquire(g gate.Gate, q gate.Request) error {
	err := echogate.Acquire(x.c, g, q)
	x.R = x.c.Request()
	return err
}

// Reply sends interim answers past Echo's response, which counts any as the answer.
func (x *exchange) Reply(status int, body string) {
	if status >= 200 {
		_ = x.c.String(status, body)
		return
	}
	x.c.Response().Writer.WriteHeader(status)
}

func (x *exchange) Redispatch(to gatetest.Route) error {
	again := x.R.Clone(x.R.Context())
	again.URL.Path = string(to)
	x.c.Echo().ServeHTTP(x.c.Response(), again)
	return nil
}
