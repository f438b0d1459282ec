package gingate_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	gingate "github.com/headgate-go/headgate/adapters/gin"
	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/gatetest"
)

// asked returns what a gate is asked for r by a middleware with c at the route.
func asked(t *testing.T, c gingate.Config, r *http.Request, before ...gin.HandlerFunc) gate.Request {
	t.Helper()
	g := &gatetest.Slots{Limit: 1}
	c.Gate = g
	engine := gin.New()
	engine.Use(append(before, gingate.WithConfig(c))...)
	engine.Any("/item/:id", ok)
	engine.ServeHTTP(httptest.NewRecorder(), r)
	require.Len(t, g.Requests(), 1)
	return g.Requests()[0]
}

// What is configured is asked for; what is not comes from the context and the request.
func TestRequestFields(t *testing.T) {
	r := httptest.NewRequest(http.MethodPost, "/item/a%20b?q=1", strings.NewReader("body"))
	r.Header.Set("Content-Type", "text/plain")
	auth := func(c *gin.Context) {
		gingate.SetClass(c, gate.Bulk)
		c.Request = c.Request.WithContext(gate.WithFlow(gingate.Context(c), "tenant", 7))
	}
	assert.Equal(t, gate.Request{
		Flow: "tenant", Weight: 7, Class: gate.Bulk, Bytes: 4,
		Method: "POST", Route: "/item/:id", Path: "/item/a b", ContentType: "text/plain",
	}, asked(t, gingate.Config{}, r, auth))

	assert.Equal(t, gate.Request{
		Lane: "a b", Flow: "flow", Weight: 1, Class: gate.Interactive, Cost: 9, Bytes: 4,
		Method: "POST", Route: "/route", Path: "/item/a b", ContentType: "text/plain",
	}, asked(t, gingate.Config{
		Lane: func(c *gin.Context) string { return c.Param("id") }, Flow: func(*gin.Context) string { return "flow" },
		Class: func(*gin.Context) gate.Class { return gate.Interactive }, Cost: func(*gin.Context) int64 { return 9 },
		Route: func(*gin.Context) string { return "/route" },
	}, r, auth))

	nobody := asked(t, gingate.Config{Flow: func(*gin.Context) string { return "" }}, httptest.NewRequest(http.MethodGet, "/item/1", http.NoBody))
	assert.Empty(t, nobody.Flow, "a Flow of our own that knows nobody does not mean the peer")
}

// T42, K3: the default flow is the peer, although Gin believes every proxy by default.
func TestT42PeerIsNotClientIP(t *testing.T) {
	r := httptest.NewRequest(http.MethodGet, "/item/1", http.NoBody)
	r.RemoteAddr = "203.0.113.9:1000"
	r.Header.Set("X-Forwarded-For", "198.51.100.7")
	believed := ""
	q := asked(t, gingate.Config{}, r, func(c *gin.Context) { believed = c.ClientIP() })
	assert.Equal(t, "198.51.100.7", believed, "if Gin has become careful, the comments can say so")
	assert.Equal(t, "203.0.113.9", q.Flow)
	r.RemoteAddr = "[2001:db8:1:2:3:4:5:6]:443"
	assert.Equal(t, "2001:db8:1:2::/64", asked(t, gingate.Config{}, r).Flow)
}

// T47: the middleware at every place, and the route that each knows before admission.
func TestT47Places(t *testing.T) {
	for name, p := range map[string]struct {
		app     func(mw gin.HandlerFunc) *gin.Engine
		matched string
		missing string // "" = the middleware never sees it
	}{
		"engine": {func(mw gin.HandlerFunc) *gin.Engine {
			r := gin.New()
			r.Use(mw)
			r.GET("/u/:id", ok)
			return r
		}, "/u/:id", "unmatched"},
		"engine, registered before Use": {func(mw gin.HandlerFunc) *gin.Engine {
			r := gin.New()
			r.GET("/u/:id", ok)
			r.Use(mw)
			return r
		}, "", "unmatched"},
		"group": {func(mw gin.HandlerFunc) *gin.Engine {
			r := gin.New()
			r.Group("/u", mw).GET("/:id", ok)
			return r
		}, "/u/:id", ""},
		"route": {func(mw gin.HandlerFunc) *gin.Engine {
			r := gin.New()
			r.GET("/u/:id", mw, ok)
			return r
		}, "/u/:id", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var routes []string
			h := p.app(gingate.WithConfig(gingate.Config{
				Gate: &gatetest.Slots{Limit: 1}, OnDecision: func(d gingate.Decision) { routes = append(routes, d.Route) },
			}))
			require.Equal(t, http.StatusOK, get(h, "/u/1").Code)
			require.Equal(t, http.StatusNotFound, get(h, "/nowhere").Code)
			require.Equal(t, http.StatusMovedPermanently, get(h, "/u/1/").Code) // Gin's redirect runs no middleware
			var want []string
			for _, route := range []string{p.matched, p.missing} {
				if route != "" {
					want = append(want, route)
				}
			}
			assert.Equal(t, want, routes)
		})
	}
}

// T45: labels stay few, whatever clients send, answered 404 and 405 too.
func TestT45LabelsAreBounded(t *testing.T) {
	labels := map[string]bool{}
	r := gin.New()
	r.HandleMethodNotAllowed = true
	r.Use(gingate.WithConfig(gingate.Config{
		Gate: &gatetest.Slots{Limit: 1}, OnDecision: func(d gingate.Decision) { labels[d.Method+" "+d.Route] = true },
	}))
	r.GET("/item/:id", ok)
	for i := range 1000 {
		get(r, fmt.Sprintf("/item/%d", i))
		get(r, fmt.Sprintf("/nowhere/%d", i))
		send(r, http.MethodPost, fmt.Sprintf("/item/%d", i), http.NoBody)
		send(r, fmt.Sprintf("M%d", i), "/item/1", http.NoBody)
	}
	assert.Equal(t, map[string]bool{
		"GET /item/:id": true, "GET unmatched": true, "POST unmatched": true, "other unmatched": true,
	}, labels)
}

// The hook sees each decision once, with the context as it was put to the gate.
func TestOnDecision(t *testing.T) {
	g := &gatetest.Slots{Limit: 1}
	var seen []gingate.Decision
	var paths []string
	mw := gingate.WithConfig(gingate.Config{
		Gate: g, Skip: func(c *gin.Context) bool { return c.Query("skip") != "" },
		OnDecision: func(d gingate.Decision) {
			seen, paths = append(seen, d), append(paths, d.Context.Request.URL.RawQuery)
		},
	})
	h := app(ok, mw, mw) // the second time it is admitted already
	get(h, "/?1")
	get(h, "/?skip=1")
	g.Limit = 0
	get(h, "/?2")
	require.Len(t, seen, 2)
	assert.NoError(t, seen[0].Err)
	assert.ErrorIs(t, seen[1].Err, gate.QueueFull)
	assert.Equal(t, []string{"1", "2"}, paths)
	assert.Equal(t, "/", seen[1].Route)
	assert.Equal(t, "GET", seen[1].Method)
}
