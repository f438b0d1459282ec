package httpgate_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/gorilla/mux"
	"github.com/headgate-go/headgate/adapters/nethttp"
	"github.com/headgate-go/headgate/core/gate"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// asked returns what g is asked for r by a middleware with c.
func asked(t *testing.T, c httpgate.Config, r *http.Request) gate.Request {
	t.Helper()
	g := &slots{limit: 1}
	c.Gate = g
	record(httpgate.WithConfig(c)(http.HandlerFunc(ok)), r)
	require.Len(t, g.requests(), 1)
	return g.requests()[0]
}

// T42, K3, K12: no header decides by default who waits where.
func TestT42HeadersAreNotTrusted(t *testing.T) {
	first := request()
	first.RemoteAddr = "203.0.113.9:1000"
	want := asked(t, httpgate.Config{}, first)
	assert.Equal(t, "203.0.113.9", want.Flow)
	for i := range 100 {
		r := request()
		r.RemoteAddr = fmt.Sprintf("203.0.113.9:%d", 2000+i)
		for _, name := range []string{
			"X-Forwarded-For", "X-Real-Ip", "Forwarded", "True-Client-Ip", "Cf-Connecting-Ip", "X-Tenant", "X-Priority",
			"X-Request-Cost", "Authorization", "X-Api-Key", "X-Session-Id", "Priority",
		} {
			r.Header.Set(name, fmt.Sprintf("spoofed-%d", i))
		}
		require.Equal(t, want, asked(t, httpgate.Config{}, r))
	}
	six := request()
	six.RemoteAddr = "[2001:db8:1:2:3:4:5:6]:443"
	assert.Equal(t, "2001:db8:1:2::/64", asked(t, httpgate.Config{}, six).Flow)
}

// What is configured is asked for; what is not comes from the context and the request.
func TestRequestFields(t *testing.T) {
	r := httptest.NewRequest(http.MethodPost, "/a%20b?q=1", strings.NewReader("body"))
	r.Header.Set("Content-Type", "text/plain")
	r.Pattern = "POST /{x}"
	r = httpgate.SetClass(r, gate.Bulk)
	r = r.WithContext(gate.WithFlow(r.Context(), "tenant", 7))
	assert.Equal(t, gate.Request{
		Flow: "tenant", Weight: 7, Class: gate.Bulk, Bytes: 4,
		Method: "POST", Route: "POST /{x}", Path: "/a b", ContentType: "text/plain",
	}, asked(t, httpgate.Config{}, r))

	q := asked(t, httpgate.Config{
		Lane: func(*http.Request) string { return "lane" }, Flow: func(*http.Request) string { return "flow" },
		Class: func(*http.Request) gate.Class { return gate.Interactive }, Cost: func(*http.Request) int64 { return 9 },
		Route: func(*http.Request) string { return "/route" },
	}, r)
	assert.Equal(t, gate.Request{
		Lane: "lane", Flow: "flow", Weight: 1, Class: gate.Interactive, Cost: 9, Bytes: 4,
		Method: "POST", Route: "/route", Path: "/a b", ContentType: "text/plain",
	}, q)

	nobody := asked(t, httpgate.Config{Flow: func(*http.Request) string { return "" }}, request())
	assert.Empty(t, nobody.Flow, "a Flow of our own that knows nobody does not mean the peer")

	chunked := httptest.NewRequest(http.MethodPost, "/", &repeat{n: 10})
	assert.EqualValues(t, -1, asked(t, httpgate.Config{}, chunked).Bytes)
}

// Acquire fills what the caller left open and nothing else, and holds one lease.
func TestAcquire(t *testing.T) {
	g := &slots{limit: 1}
	r := httptest.NewRequest("BREW", "/pot", strings.NewReader("body"))
	in, err := httpgate.Acquire(httptest.NewRecorder(), r, g, gate.Request{Flow: "tenant", Bytes: 100})
	require.NoError(t, err)
	assert.Equal(t, gate.Request{Flow: "tenant", Weight: 1, Class: gate.Default, Bytes: 100, Method: "other", Path: "/pot"}, g.requests()[0])
	_, held := gate.LeaseOf(httpgate.Context(in), g)
	assert.True(t, held)
	_, held = gate.LeaseOf(httpgate.Context(r), g)
	assert.False(t, held, "the caller's request was changed")

	same, err := httpgate.Acquire(httptest.NewRecorder(), in, g, gate.Request{})
	require.NoError(t, err)
	assert.Same(t, in, same)

	other, err := httpgate.Acquire(httptest.NewRecorder(), r, g, gate.Request{})
	require.ErrorIs(t, err, gate.QueueFull)
	assert.Same(t, r, other)
	httpgate.Release(other, g) // nothing is held: nothing happens
	assert.Equal(t, 1, g.inUse())
	httpgate.Release(in, g)
	httpgate.Release(in, g)
	assert.Zero(t, g.inUse())
}

// SetClass reaches everything below, and nothing above.
func TestSetClass(t *testing.T) {
	r := request()
	bulk := httpgate.SetClass(r, gate.Bulk)
	assert.Equal(t, gate.Bulk, gate.Request{}.In(httpgate.Context(bulk)).Class)
	assert.Equal(t, gate.Default, gate.Request{}.In(httpgate.Context(r)).Class)
	assert.Panics(t, func() { httpgate.SetClass(r, 99) })
}

// Observe, called with the handler's context, reaches the leases of all gates.
func TestObserveReachesLeases(t *testing.T) {
	var held []*slot
	mw := func() func(http.Handler) http.Handler {
		return httpgate.New(&scripted{func(context.Context, gate.Request) (gate.Lease, error) {
			h := &slot{gate: &slots{}}
			held = append(held, h)
			return gate.NewLease(h, 1), nil
		}})
	}
	record(mw()(mw()(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		gate.Observe(httpgate.Context(r), gate.Sample{Status: 200})
	}))), request())
	require.Len(t, held, 2)
	for _, h := range held {
		assert.EqualValues(t, 1, h.samples.Load())
		assert.True(t, h.released.Load())
	}
}

// T45, I1, I2: labels stay few, whatever clients send.
func TestT45LabelsAreBounded(t *testing.T) {
	labels := map[string]bool{}
	router := http.NewServeMux()
	router.Handle("GET /item/{id}", httpgate.WithConfig(httpgate.Config{
		Gate: &slots{limit: 1}, OnDecision: func(d httpgate.Decision) { labels[d.Method+" "+d.Route] = true },
	})(http.HandlerFunc(ok)))
	h := httpgate.WithConfig(httpgate.Config{
		Gate: &slots{limit: 1}, OnDecision: func(d httpgate.Decision) { labels[d.Method+" "+d.Route] = true },
	})(router)
	for i := range 10_000 {
		record(h, httptest.NewRequest(http.MethodGet, fmt.Sprintf("/item/%d", i), http.NoBody))
		record(h, httptest.NewRequest(http.MethodGet, fmt.Sprintf("/nowhere/%d", i), http.NoBody))
		record(h, httptest.NewRequest(fmt.Sprintf("M%d", i), "/", http.NoBody))
	}
	assert.Equal(t, map[string]bool{"GET GET /item/{id}": true, "GET unmatched": true, "other unmatched": true}, labels)
}

// place is where a middleware stands in an app with the route /u/{id}.
type place struct {
	app     func(mw func(http.Handler) http.Handler) http.Handler
	route   func(*http.Request) string // Config.Route
	matched string                     // the label of a request that matches
	missing string                     // of one that does not; "" = the middleware never sees it
}

var item = http.HandlerFunc(ok)

func stdPlaces() map[string]place {
	router := http.NewServeMux()
	router.Handle("GET /u/{id}", item)
	around := func(mw func(http.Handler) http.Handler) http.Handler { return mw(router) }
	ask := func(r *http.Request) string { _, pattern := router.Handler(r); return pattern }
	return map[string]place{
		"ServeMux, around it":            {app: around, matched: "unmatched", missing: "unmatched"},
		"ServeMux, around it, asking it": {app: around, route: ask, matched: "GET /u/{id}", missing: "unmatched"},
		"ServeMux, one route": {app: func(mw func(http.Handler) http.Handler) http.Handler {
			m := http.NewServeMux()
			m.Handle("GET /u/{id}", mw(item))
			return m
		}, matched: "GET /u/{id}"},
	}
}

func chiPlaces() map[string]place {
	return map[string]place{
		"chi Use": {app: func(mw func(http.Handler) http.Handler) http.Handler {
			m := chi.NewRouter()
			m.Use(mw)
			m.Method(http.MethodGet, "/u/{id}", item)
			return m
		}, matched: "unmatched", missing: "unmatched"},
		"chi With": {app: func(mw func(http.Handler) http.Handler) http.Handler {
			m := chi.NewRouter()
			m.With(mw).Method(http.MethodGet, "/u/{id}", item)
			return m
		}, matched: "/u/{id}"},
		"chi Group": {app: func(mw func(http.Handler) http.Handler) http.Handler {
			m := chi.NewRouter()
			m.Group(func(g chi.Router) {
				g.Use(mw)
				g.Method(http.MethodGet, "/u/{id}", item)
			})
			return m
		}, matched: "/u/{id}"},
	}
}

func gorillaPlaces() map[string]place {
	template := func(r *http.Request) string {
		t, _ := mux.CurrentRoute(r).GetPathTemplate()
		return t
	}
	use := func(mw func(http.Handler) http.Handler) http.Handler {
		m := mux.NewRouter()
		m.Use(mux.MiddlewareFunc(mw))
		m.Handle("/u/{id}", item).Methods(http.MethodGet)
		return m
	}
	return map[string]place{
		"gorilla Use, asking it": {app: use, route: template, matched: "/u/{id}"},
		"gorilla Use":            {app: use, matched: "unmatched"}, // gorilla leaves Request.Pattern alone
		"gorilla one route": {app: func(mw func(http.Handler) http.Handler) http.Handler {
			m := mux.NewRouter()
			m.Handle("/u/{id}", mw(item)).Methods(http.MethodGet)
			return m
		}, route: template, matched: "/u/{id}"},
	}
}

// T47: the middleware on every router, at every place, over both protocols, and
// the route that each place knows before admission.
func TestT47Routers(t *testing.T) {
	for _, places := range []map[string]place{stdPlaces(), chiPlaces(), gorillaPlaces()} {
		for name, p := range places {
			t.Run(name, func(t *testing.T) {
				eachProtocol(t, func(t *testing.T, http2 bool) {
					var routes []string
					g := &slots{limit: 1}
					srv, _ := serve(t, http2, p.app(httpgate.WithConfig(httpgate.Config{
						Gate: g, Route: p.route,
						OnDecision: func(d httpgate.Decision) { routes = append(routes, d.Route) },
					})))
					found, _ := get(t, srv, "/u/1")
					require.Equal(t, http.StatusOK, found.StatusCode)
					missing, _ := get(t, srv, "/nowhere")
					require.Equal(t, http.StatusNotFound, missing.StatusCode)
					want := []string{p.matched}
					if p.missing != "" {
						want = append(want, p.missing)
					}
					assert.Equal(t, want, routes)
					assert.Zero(t, g.inUse())
				})
			})
		}
	}
}

// T35, H5: the writer that the handler gets is the very one that came.
func TestT35WriterIsNotWrapped(t *testing.T) {
	var came http.ResponseWriter
	h := httpgate.New(&slots{limit: 1})(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if came != w {
			t.Errorf("the handler got a %T in place of a %T", w, came)
		}
	}))
	outer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		came = w
		h.ServeHTTP(w, r)
	})
	record(outer, request())
	eachProtocol(t, func(t *testing.T, http2 bool) {
		srv, _ := serve(t, http2, outer)
		get(t, srv, "/")
		send(t, srv, http.MethodPost, "/", &repeat{n: 10})
	})
}
