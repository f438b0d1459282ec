package fibergate_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gofiber/fiber/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	fibergate "github.com/headgate-go/headgate/adapters/fiber"
	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/gatetest"
)

// asked is what the gate is asked for r by a middleware at a route.
func asked(t *testing.T, c fibergate.Config, r *http.Request, before ...fiber.Handler) gate.Request {
	t.Helper()
	g := &gatetest.Slots{Limit: 1}
	c.Gate = g
	a := fiber.New(streaming())
	for _, h := range before {
		a.Use(h)
	}
	a.All("/item/:id", fibergate.New(c), ok)
	send(t, a, r)
	require.Len(t, g.Requests(), 1)
	return g.Requests()[0]
}

// What is configured is asked for; what is not comes from the context and the request.
func TestRequestFields(t *testing.T) {
	request := func() *http.Request {
		r := httptest.NewRequest(http.MethodPost, "/item/a%20b?q=1", strings.NewReader("body"))
		r.Header.Set("Content-Type", "text/plain")
		return r
	}
	auth := before(func(c *fiber.Ctx) {
		fibergate.SetClass(c, gate.Bulk)
		c.SetUserContext(gate.WithFlow(fibergate.Context(c), "tenant", 7))
	})
	assert.Equal(t, gate.Request{
		Flow: "tenant", Weight: 7, Class: gate.Bulk, Bytes: 4, Buffered: 4,
		Method: "POST", Route: "/item/:id", Path: "/item/a%20b", ContentType: "text/plain",
	}, asked(t, fibergate.Config{}, request(), auth))

	assert.Equal(t, gate.Request{
		Lane: "/item/:id", Flow: "flow", Weight: 1, Class: gate.Interactive, Cost: 9, Bytes: 4, Buffered: 4,
		Method: "POST", Route: "/route", Path: "/item/a%20b", ContentType: "text/plain",
	}, asked(t, fibergate.Config{
		Lane: func(c *fiber.Ctx) string { return c.Route().Path }, Flow: func(*fiber.Ctx) string { return "flow" },
		Class: func(*fiber.Ctx) gate.Class { return gate.Interactive }, Cost: func(*fiber.Ctx) int64 { return 9 },
		Route: func(*fiber.Ctx) string { return "/route" },
	}, request(), auth))

	nobody := asked(t, fibergate.Config{Flow: func(*fiber.Ctx) string { return "" }}, httptest.NewRequest(http.MethodGet, "/item/1", http.NoBody))
	assert.Empty(t, nobody.Flow, "a Flow of our own that knows nobody does not mean the peer")
}

// The path is the one that Fiber routes by: were it normalised, a path that a gate
// exempts could lead to another handler.
func TestK16PathAsRouted(t *testing.T) {
	for unescape, want := range map[bool][]string{
		false: {"/files/../livez", "//livez", "/%6civez", "/livez"},
		true:  {"/files/../livez", "//livez", "/livez", "/livez"},
	} {
		g := &gatetest.Slots{Limit: 1}
		var routed []string
		config := streaming()
		config.UnescapePath = unescape
		a := fiber.New(config)
		a.Use(fibergate.New(fibergate.Config{Gate: g}))
		a.Get("/livez", func(c *fiber.Ctx) error { routed = append(routed, "/livez"); return nil })
		a.Get("/*", func(c *fiber.Ctx) error { routed = append(routed, "/*"); return nil })
		addr := serve(t, a)
		c := dial(t, addr)
		for i, path := range []string{"/files/../livez", "//livez", "/%6civez", "/livez"} {
			c.say(head("GET " + path))
			c.answer()
			asked := g.Requests()[i].Path
			assert.Equal(t, want[i], asked)
			assert.Equal(t, asked == "/livez", routed[i] == "/livez", path)
		}
	}
}

// T42, K3: the default flow is the peer, whatever c.IP believes.
func TestT42PeerIsNotTheHeader(t *testing.T) {
	for peer, want := range map[string]string{
		"203.0.113.9:1000": "203.0.113.9", "[2001:db8:1:2:3:4:5:6]:443": "2001:db8:1:2::/64", "[::ffff:203.0.113.9]:1": "203.0.113.9",
	} {
		g := &gatetest.Slots{Limit: 1}
		config := streaming()
		config.ProxyHeader = fiber.HeaderXForwardedFor
		a := fiber.New(config)
		a.Use(fibergate.New(fibergate.Config{Gate: g}))
		a.Get("/", func(c *fiber.Ctx) error { assert.Equal(t, "198.51.100.7", c.IP()); return nil })
		var rc fasthttp.RequestCtx
		rc.Request.SetRequestURI("http://test/")
		rc.Request.Header.Set(fiber.HeaderXForwardedFor, "198.51.100.7")
		tcp, err := net.ResolveTCPAddr("tcp", peer)
		require.NoError(t, err)
		rc.SetRemoteAddr(tcp)
		a.Handler()(&rc)
		require.Len(t, g.Requests(), 1)
		assert.Equal(t, want, g.Requests()[0].Flow)
	}
}

// T43, H1: every string that a gate has got stays what it was when later requests have
// used the connection's buffers again, wherever it came from.
func TestT43StringsAreCopied(t *testing.T) {
	const times = 200
	name := func(i int) string { return fmt.Sprintf("tenant-%03d", i) }
	g, inner := &gatetest.Slots{Limit: 1}, &gatetest.Slots{Limit: 1}
	header := func(c *fiber.Ctx) string { return c.Get("X-Tenant") }
	a := fiber.New(streaming())
	a.Use(fibergate.New(fibergate.Config{Gate: g, Flow: header, Lane: header, Route: header}))
	a.Use(before(func(c *fiber.Ctx) { c.SetUserContext(gate.WithFlow(c.UserContext(), header(c), 1)) }))
	a.Post("/:id", fibergate.New(fibergate.Config{Gate: inner}), ok)
	c := dial(t, serve(t, a))
	for i := range times {
		c.say(head("POST /"+name(i), "X-Tenant: "+name(i), "Content-Type: "+name(i), "Content-Length: 4") + "body")
		require.Equal(t, "ok", c.answer().text)
	}
	for i, q := range g.Requests() {
		assert.Equal(t, strings.Repeat(name(i)+" ", 4)+"/"+name(i), strings.Join([]string{q.Flow, q.Lane, q.Route, q.ContentType, q.Path}, " "))
	}
	for i, q := range inner.Requests() {
		assert.Equal(t, name(i), q.Flow)
		assert.Equal(t, "/:id", q.Route)
	}
	assert.Len(t, inner.Requests(), times)
}

// T47: the middleware at every place, and the route that each knows before admission.
func TestT47Places(t *testing.T) {
	for name, p := range map[string]struct {
		app     func(mw fiber.Handler) *fiber.App
		matched string
		missing string // "" = the middleware never sees it
	}{
		"Use": {func(mw fiber.Handler) *fiber.App {
			a := fiber.New(streaming())
			a.Use(mw)
			a.Get("/u/:id", ok)
			return a
		}, "unmatched", "unmatched"},
		"Use, too late": {func(mw fiber.Handler) *fiber.App {
			a := fiber.New(streaming())
			a.Get("/u/:id", ok)
			a.Use(mw)
			return a
		}, "", "unmatched"},
		"Use with a prefix": {func(mw fiber.Handler) *fiber.App {
			a := fiber.New(streaming())
			a.Use("/u", mw)
			a.Get("/u/:id", ok)
			return a
		}, "unmatched", ""},
		"Group": {func(mw fiber.Handler) *fiber.App {
			a := fiber.New(streaming())
			a.Group("/u", mw).Get("/:id", ok)
			return a
		}, "unmatched", ""},
		"Mount": {func(mw fiber.Handler) *fiber.App {
			sub := fiber.New(streaming())
			sub.Get("/:id", mw, ok)
			a := fiber.New(streaming())
			a.Mount("/u", sub)
			return a
		}, "/u/:id", ""},
		"route": {func(mw fiber.Handler) *fiber.App {
			a := fiber.New(streaming())
			a.Get("/u/:id", mw, ok)
			return a
		}, "/u/:id", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var routes, want []string
			a := p.app(fibergate.New(fibergate.Config{
				Gate: &gatetest.Slots{Limit: 1}, OnDecision: func(d fibergate.Decision) { routes = append(routes, d.Route) },
			}))
			require.Equal(t, http.StatusOK, get(t, a, "/u/1").StatusCode)
			require.Equal(t, http.StatusNotFound, get(t, a, "/nowhere").StatusCode)
			for _, r := range []string{p.matched, p.missing} {
				if r != "" {
					want = append(want, r)
				}
			}
			assert.Equal(t, want, routes)
		})
	}
}

// T45: labels stay few, whatever clients send, answered 404 and 405 too.
func TestT45LabelsAreBounded(t *testing.T) {
	labels := map[string]bool{}
	mw := fibergate.New(fibergate.Config{
		Gate: &gatetest.Slots{Limit: 1}, OnDecision: func(d fibergate.Decision) { labels[d.Method+" "+d.Route] = true },
	})
	config := streaming()
	config.RequestMethods = append([]string{"PURGE"}, fiber.DefaultMethods...)
	a := fiber.New(config)
	a.All("/item/:id", mw, ok)
	a.Use(mw)
	for i := range 200 {
		get(t, a, fmt.Sprintf("/item/%d", i))
		get(t, a, fmt.Sprintf("/nowhere/%d", i))
		send(t, a, httptest.NewRequest("PURGE", fmt.Sprintf("/item/%d", i), http.NoBody))
		send(t, a, httptest.NewRequest(fmt.Sprintf("M%d", i), "/item/1", http.NoBody))
	}
	assert.Equal(t, map[string]bool{"GET /item/:id": true, "GET unmatched": true, "other /item/:id": true}, labels)
}

// The hook sees each decision once, with the context as it was put to the gate.
func TestOnDecision(t *testing.T) {
	g := &gatetest.Slots{Limit: 1}
	var seen []fibergate.Decision
	var queries []string
	mw := fibergate.New(fibergate.Config{
		Gate: g, Next: func(c *fiber.Ctx) bool { return c.Query("skip") != "" },
		OnDecision: func(d fibergate.Decision) {
			seen, queries = append(seen, d), append(queries, string(d.Context.Request().URI().QueryString()))
		},
	})
	a := fiber.New(streaming())
	a.Get("/", mw, mw, ok) //nolint:gocritic // the second time it is admitted already
	get(t, a, "/?1")
	get(t, a, "/?skip=1")
	g.Limit = 0
	get(t, a, "/?2")
	require.Len(t, seen, 2)
	require.NoError(t, seen[0].Err)
	require.ErrorIs(t, seen[1].Err, gate.QueueFull)
	assert.Equal(t, []string{"1", "2"}, queries)
	assert.Equal(t, "/", seen[1].Route)
	assert.Equal(t, "GET", seen[1].Method)
}
