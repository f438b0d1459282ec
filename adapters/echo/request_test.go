package echogate_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	echogate "github.com/headgate-go/headgate/adapters/echo"
	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/gatetest"
)

// asked returns what a gate is asked for r by a middleware with c.
func asked(t *testing.T, c echogate.Config, r *http.Request, before ...echo.MiddlewareFunc) gate.Request {
	t.Helper()
	g := &gatetest.Slots{Limit: 1}
	c.Gate = g
	e := echo.New()
	e.Use(append(before, echogate.WithConfig(c))...)
	e.Any("/item/:id", ok)
	e.ServeHTTP(httptest.NewRecorder(), r)
	require.Len(t, g.Requests(), 1)
	return g.Requests()[0]
}

// What is configured is asked for; what is not comes from the context and the request.
func TestRequestFields(t *testing.T) {
	r := httptest.NewRequest(http.MethodPost, "/item/a%20b?q=1", strings.NewReader("body"))
	r.Header.Set("Content-Type", "text/plain")
	auth := before(func(c echo.Context) {
		echogate.SetClass(c, gate.Bulk)
		c.SetRequest(c.Request().WithContext(gate.WithFlow(echogate.Context(c), "tenant", 7)))
	})
	assert.Equal(t, gate.Request{
		Flow: "tenant", Weight: 7, Class: gate.Bulk, Bytes: 4,
		Method: "POST", Route: "/item/:id", Path: "/item/a b", ContentType: "text/plain",
	}, asked(t, echogate.Config{}, r, auth))

	assert.Equal(t, gate.Request{
		Lane: "/item/:id", Flow: "flow", Weight: 1, Class: gate.Interactive, Cost: 9, Bytes: 4,
		Method: "POST", Route: "/route", Path: "/item/a b", ContentType: "text/plain",
	}, asked(t, echogate.Config{
		Lane: func(c echo.Context) string { return c.Path() }, Flow: func(echo.Context) string { return "flow" },
		Class: func(echo.Context) gate.Class { return gate.Interactive }, Cost: func(echo.Context) int64 { return 9 },
		Route: func(echo.Context) string { return "/route" },
	}, r, auth))

	nobody := asked(t, echogate.Config{Flow: func(echo.Context) string { return "" }}, httptest.NewRequest(http.MethodGet, "/item/1", http.NoBody))
	assert.Empty(t, nobody.Flow, "a Flow of our own that knows nobody does not mean the peer")
}

// T42, K3: the default flow is the peer, whatever RealIP believes.
func TestT42PeerIsNotRealIP(t *testing.T) {
	r := httptest.NewRequest(http.MethodGet, "/item/1", http.NoBody)
	r.RemoteAddr = "203.0.113.9:1000"
	r.Header.Set("X-Forwarded-For", "198.51.100.7")
	r.Header.Set("X-Real-Ip", "198.51.100.8")
	assert.Equal(t, "203.0.113.9", asked(t, echogate.Config{}, r).Flow)
	r.RemoteAddr = "[2001:db8:1:2:3:4:5:6]:443"
	assert.Equal(t, "2001:db8:1:2::/64", asked(t, echogate.Config{}, r).Flow)
}

// T47: the middleware at every place, and the route that each knows before admission.
func TestT47Places(t *testing.T) {
	for name, p := range map[string]struct {
		app     func(mw echo.MiddlewareFunc) *echo.Echo
		matched string
		missing string // "" = the middleware never sees it
	}{
		"Use": {func(mw echo.MiddlewareFunc) *echo.Echo {
			e := echo.New()
			e.GET("/u/:id", ok) // before Use: covered as well
			e.Use(mw)
			return e
		}, "/u/:id", "unmatched"},
		"Pre": {func(mw echo.MiddlewareFunc) *echo.Echo {
			e := echo.New()
			e.Pre(mw)
			e.GET("/u/:id", ok)
			return e
		}, "unmatched", "unmatched"},
		"Group": {func(mw echo.MiddlewareFunc) *echo.Echo {
			e := echo.New()
			e.Group("/u", mw).GET("/:id", ok)
			return e
		}, "/u/:id", ""},
		"route": {func(mw echo.MiddlewareFunc) *echo.Echo {
			e := echo.New()
			e.GET("/u/:id", ok, mw)
			return e
		}, "/u/:id", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var routes []string
			e := p.app(echogate.WithConfig(echogate.Config{
				Gate: &gatetest.Slots{Limit: 1}, OnDecision: func(d echogate.Decision) { routes = append(routes, d.Route) },
			}))
			require.Equal(t, http.StatusOK, get(e, "/u/1").Code)
			require.Equal(t, http.StatusNotFound, get(e, "/nowhere").Code)
			want := []string{p.matched}
			if p.missing != "" {
				want = append(want, p.missing)
			}
			assert.Equal(t, want, routes)
		})
	}
}

// T45: labels stay few, whatever clients send, answered 404 and 405 too.
func TestT45LabelsAreBounded(t *testing.T) {
	labels := map[string]bool{}
	e := echo.New()
	e.Use(echogate.WithConfig(echogate.Config{
		Gate: &gatetest.Slots{Limit: 1}, OnDecision: func(d echogate.Decision) { labels[d.Method+" "+d.Route] = true },
	}))
	e.GET("/item/:id", ok)
	g := e.Group("/group", before(func(echo.Context) {}))
	g.GET("/known", ok)
	for i := range 1000 {
		get(e, fmt.Sprintf("/item/%d", i))
		get(e, fmt.Sprintf("/nowhere/%d", i))
		get(e, fmt.Sprintf("/group/%d", i))
		send(e, http.MethodPost, fmt.Sprintf("/item/%d", i), http.NoBody)
		send(e, fmt.Sprintf("M%d", i), "/item/1", http.NoBody)
	}
	assert.Equal(t, map[string]bool{
		"GET /item/:id": true, "GET unmatched": true, "GET /group/*": true, "POST /item/:id": true, "other /item/:id": true,
	}, labels)
}

// The hook sees each decision once, with the context as it was put to the gate.
func TestOnDecision(t *testing.T) {
	g := &gatetest.Slots{Limit: 1}
	var seen []echogate.Decision
	var queries []string
	mw := echogate.WithConfig(echogate.Config{
		Gate: g, Skipper: func(c echo.Context) bool { return c.QueryParam("skip") != "" },
		OnDecision: func(d echogate.Decision) {
			seen, queries = append(seen, d), append(queries, d.Context.QueryString())
		},
	})
	e := app(ok, mw, mw) // the second time it is admitted already
	get(e, "/?1")
	get(e, "/?skip=1")
	g.Limit = 0
	get(e, "/?2")
	require.Len(t, seen, 2)
	assert.NoError(t, seen[0].Err)
	assert.ErrorIs(t, seen[1].Err, gate.QueueFull)
	assert.Equal(t, []string{"1", "2"}, queries)
	assert.Equal(t, "/", seen[1].Route)
	assert.Equal(t, "GET", seen[1].Method)
}
