package httpgate_test

import (
	"context"
	"net"
	"net/http"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/headgate-go/headgate/adapters/nethttp"
	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/gatetest"
)

// The conformance suite, with the middleware around the standard library's router and
// behind one that knows the route.
func TestSuite(t *testing.T) {
	t.Run("mux", func(t *testing.T) {
		gatetest.Run(t, gatetest.Adapter{Start: aroundMux, ItemRoute: "unmatched"})
	})
	t.Run("chi", func(t *testing.T) {
		gatetest.Run(t, gatetest.Adapter{Start: behindChi, ItemRoute: "/item/{id}"})
	})
}

func aroundMux(l net.Listener, o gatetest.Options) gatetest.Server {
	mux := http.NewServeMux()
	app := outermost(o, gates(o)(mux))
	for _, route := range gatetest.Routes() {
		mux.Handle(pattern(route), handler(o, route, app))
	}
	return gatetest.Serve(l, o, app)
}

func behindChi(l net.Listener, o gatetest.Options) gatetest.Server {
	router := chi.NewRouter()
	app := outermost(o, router)
	for _, route := range gatetest.Routes() {
		router.With(gates(o)).Handle(pattern(route), handler(o, route, app))
	}
	return gatetest.Serve(l, o, app)
}

func pattern(route gatetest.Route) string {
	if route == gatetest.Item {
		return string(route) + "{id}"
	}
	return string(route)
}

// outermost is the recovery and the CORS that stand in front of the gate.
func outermost(o gatetest.Options, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer o.Recover(func() { w.WriteHeader(http.StatusInternalServerError) })
		w.Header().Set("Access-Control-Allow-Origin", "*")
		next.ServeHTTP(w, r)
	})
}

// gates is the middleware, authentication, and the middleware once more.
func gates(o gatetest.Options) func(http.Handler) http.Handler {
	c := httpgate.Config{
		Gate: o.Gate, Format: o.Format, ServerTiming: o.ServerTiming,
		OnDecision: func(d httpgate.Decision) {
			o.OnDecision(gatetest.Decision{Method: d.Method, Route: d.Route, Waited: d.Waited, Err: d.Err})
		},
	}
	if o.Skip != nil {
		c.Skip = func(r *http.Request) bool { return o.Skip(r.URL.Path) }
	}
	if o.Flow != nil {
		c.Flow = func(r *http.Request) string { return o.Flow(r.Header.Get) }
	}
	outer := httpgate.WithConfig(c)
	return func(next http.Handler) http.Handler {
		if o.Inner != nil {
			next = httpgate.New(o.Inner)(next)
		}
		if o.Auth != nil {
			next = auth(o, next)
		}
		return outer(next)
	}
}

func auth(o gatetest.Options, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, ok := o.Auth(r.Context(), r.Header.Get)
		if !ok {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

func handler(o gatetest.Options, route gatetest.Route, app http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := &exchange{HTTP: gatetest.HTTP{W: w, R: r}, app: app}
		if err := o.Handle(route, x); err != nil && !httpgate.Refuse(w, x.R, err) {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
}

// exchange is a request in the words of this adapter.
type exchange struct {
	gatetest.HTTP
	app http.Handler
}

func (x *exchange) Context() context.Context { return httpgate.Context(x.R) }
func (x *exchange) Release(g gate.Gate)      { httpgate.Release(x.R, g) }
func (x *exchange) Refuse(err error) bool    { return httpgate.Refuse(x.W, x.R, err) }
func (x *exchange) SetClass(c gate.Class)    { x.R = httpgate.SetClass(x.R, c) }

func (x *exchange) Acquire(g gate.Gate, q gate.Request) (err error) {
	x.R, err = httpgate.Acquire(x.W, x.R, g, q)
	return err
}

func (x *exchange) Redispatch(to gatetest.Route) error {
	again := x.R.Clone(x.R.Context())
	again.URL.Path = string(to)
	x.app.ServeHTTP(x.W, again)
	return nil
}
