package gingate_test

import (
	"context"
	"net"
	"net/http"
	"os"
	"testing"

	"github.com/gin-gonic/gin"

	gingate "github.com/headgate-go/headgate/adapters/gin"
	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/gatetest"
)

func TestMain(m *testing.M) {
	gin.SetMode(gin.TestMode)
	os.Exit(m.Run())
}

// The conformance suite, with Gin's contexts as they are by default and with
// ContextWithFallback, and with the middleware at the engine and at each route.
func TestSuite(t *testing.T) {
	t.Run("engine", func(t *testing.T) {
		gatetest.Run(t, gatetest.Adapter{Start: start(false, false), ItemRoute: "/item/:id"})
	})
	t.Run("route, fallback", func(t *testing.T) {
		gatetest.Run(t, gatetest.Adapter{Start: start(true, true), ItemRoute: "/item/:id"})
	})
}

func start(perRoute, fallback bool) func(net.Listener, gatetest.Options) gatetest.Server {
	return func(l net.Listener, o gatetest.Options) gatetest.Server {
		engine := gin.New()
		engine.ContextWithFallback = fallback
		engine.Use(outermost(o))
		chain := gates(o)
		if !perRoute {
			engine.Use(chain...)
			chain = nil
		}
		for _, route := range gatetest.Routes() {
			engine.Any(pattern(route), append(chain[:len(chain):len(chain)], handler(o, route, engine))...)
		}
		return gatetest.Serve(l, o, engine)
	}
}

func pattern(route gatetest.Route) string {
	if route == gatetest.Item {
		return string(route) + ":id"
	}
	return string(route)
}

// outermost is the recovery and the CORS that stand in front of the gate.
func outermost(o gatetest.Options) gin.HandlerFunc {
	return func(c *gin.Context) {
		defer o.Recover(func() { c.AbortWithStatus(http.StatusInternalServerError) })
		c.Header("Access-Control-Allow-Origin", "*")
		c.Next()
	}
}

// gates is the middleware, authentication, and the middleware once more.
func gates(o gatetest.Options) (chain []gin.HandlerFunc) {
	c := gingate.Config{
		Gate: o.Gate, Format: o.Format, ServerTiming: o.ServerTiming,
		OnDecision: func(d gingate.Decision) {
			o.OnDecision(gatetest.Decision{Method: d.Method, Route: d.Route, Waited: d.Waited, Err: d.Err})
		},
	}
	if o.Skip != nil {
		c.Skip = func(c *gin.Context) bool { return o.Skip(c.Request.URL.Path) }
	}
	if o.Flow != nil {
		c.Flow = func(c *gin.Context) string { return o.Flow(c.GetHeader) }
	}
	chain = append(chain, gingate.WithConfig(c))
	if o.Auth != nil {
		chain = append(chain, auth(o))
	}
	if o.Inner != nil {
		chain = append(chain, gingate.New(o.Inner))
	}
	return chain
}

func auth(o gatetest.Options) gin.HandlerFunc {
	return func(c *gin.Context) {
		ctx, ok := o.Auth(gingate.Context(c), c.GetHeader)
		if !ok {
			c.AbortWithStatus(http.StatusUnauthorized)
			return
		}
		c.Request = c.Request.WithContext(ctx)
	}
}

func handler(o gatetest.Options, route gatetest.Route, engine *gin.Engine) gin.HandlerFunc {
	return func(c *gin.Context) {
		x := &exchange{gatetest.HTTP{W: c.Writer, R: c.Request}, c, engine}
		if err := o.Handle(route, x); err != nil && !gingate.Refuse(c, err) {
			c.AbortWithStatus(http.StatusInternalServerError)
		}
	}
}

// exchange is a request in the words of this adapter.
type exchange struct {
	gatetest.HTTP
	c      *gin.Context
	engine *gin.Engine
}

func (x *exchange) Context() context.Context { return gingate.Context(x.c) }
func (x *exchange) Release(g gate.Gate)      { gingate.Release(x.c, g) }
func (x *exchange) Refuse(err error) bool    { return gingate.Refuse(x.c, err) }

func (x *exchange) SetClass(c gate.Class) {
	gingate.SetClass(x.c, c)
	x.R = x.c.Request
}

func (x *exchange) Acquire(g gate.Gate, q gate.Request) error {
	err := gingate.Acquire(x.c, g, q)
	x.R = x.c.Request
	return err
}

// Reply sends interim answers past Gin's writer, which keeps a status back until
// something is written.
func (x *exchange) Reply(status int, body string) {
	if status >= 200 {
		x.c.String(status, "%s", body)
		return
	}
	if server, ok := x.c.Writer.(interface{ Unwrap() http.ResponseWriter }); ok {
		server.Unwrap().WriteHeader(status)
	}
}

func (x *exchange) Redispatch(to gatetest.Route) error {
	x.c.Request.URL.Path = string(to)
	x.engine.HandleContext(x.c)
	return nil
}
