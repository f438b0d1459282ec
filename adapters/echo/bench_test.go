package echogate_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/assert"

	echogate "github.com/headgate-go/headgate/adapters/echo"
	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/gatetest"
)

// discard is a response that goes nowhere.
type discard struct{ header http.Header }

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }
func (d *discard) WriteHeader(int)             {}

func silent(echo.Context) error { return nil }

// Two allocations per gate without a body, the request's copy and its context, and the
// one that Echo makes for each middleware.
func TestAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates too")
	}
	const four, six = "192.0.2.1:1234", "[2001:db8::1]:1234"
	one := echogate.Middleware(&gatetest.Free{})
	for name, test := range map[string]struct {
		middlewares []echo.MiddlewareFunc
		peer        string
		most        float64
	}{
		"no gate":        {nil, four, 0},
		"one gate":       {[]echo.MiddlewareFunc{one}, four, 3},
		"two gates":      {[]echo.MiddlewareFunc{one, echogate.Middleware(&gatetest.Free{})}, four, 6},
		"one gate, IPv6": {[]echo.MiddlewareFunc{one}, six, 5},
		"configured": {[]echo.MiddlewareFunc{echogate.WithConfig(echogate.Config{
			Gate: &gatetest.Free{}, Skipper: func(echo.Context) bool { return false },
			Flow: func(echo.Context) string { return "x" }, Cost: func(echo.Context) int64 { return 1 },
			OnDecision: func(echogate.Decision) {},
		})}, six, 3},
		"another format": {[]echo.MiddlewareFunc{echogate.WithConfig(echogate.Config{Gate: &gatetest.Free{}, Format: gate.OpenAI})}, four, 4},
	} {
		t.Run(name, func(t *testing.T) {
			h := app(silent, test.middlewares...)
			w, r := &discard{http.Header{}}, httptest.NewRequest(http.MethodGet, "/", http.NoBody)
			r.RemoteAddr = test.peer
			assert.LessOrEqual(t, testing.AllocsPerRun(1000, func() { h.ServeHTTP(w, r) }), test.most)
		})
	}
}

// BenchmarkMiddleware compares the middleware with Echo alone, and with the least that
// any middleware can do which hands its handler a value in the request's context.
func BenchmarkMiddleware(b *testing.B) {
	type key struct{}
	least := before(func(c echo.Context) {
		c.SetRequest(c.Request().WithContext(context.WithValue(c.Request().Context(), key{}, c)))
	})
	for _, c := range []struct {
		name        string
		middlewares []echo.MiddlewareFunc
	}{
		{"bare", nil},
		{"least", []echo.MiddlewareFunc{least}},
		{"gate", []echo.MiddlewareFunc{echogate.Middleware(&gatetest.Free{})}},
	} {
		b.Run(c.name, func(b *testing.B) {
			h := app(silent, c.middlewares...)
			w, r := &discard{http.Header{}}, httptest.NewRequest(http.MethodGet, "/", http.NoBody)
			b.ReportAllocs()
			for b.Loop() {
				h.ServeHTTP(w, r)
			}
		})
	}
}
