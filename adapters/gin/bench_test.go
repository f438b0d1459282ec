package gingate_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/stretchr/testify/assert"

	gingate "github.com/headgate-go/headgate/adapters/gin"
	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/gatetest"
)

// discard is a response that goes nowhere.
type discard struct{ header http.Header }

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }
func (d *discard) WriteHeader(int)             {}

func silent(*gin.Context) {}

// Two allocations per gate without a body: the request's copy and its context.
func TestAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates too")
	}
	const four, six = "192.0.2.1:1234", "[2001:db8::1]:1234"
	one := gingate.New(&gatetest.Free{})
	for name, test := range map[string]struct {
		middlewares []gin.HandlerFunc
		peer        string
		most        float64
	}{
		"no gate":        {nil, four, 0},
		"one gate":       {[]gin.HandlerFunc{one}, four, 2},
		"two gates":      {[]gin.HandlerFunc{one, gingate.New(&gatetest.Free{})}, four, 4},
		"one gate, IPv6": {[]gin.HandlerFunc{one}, six, 4},
		"configured": {[]gin.HandlerFunc{gingate.WithConfig(gingate.Config{
			Gate: &gatetest.Free{}, Skip: func(*gin.Context) bool { return false },
			Flow: func(*gin.Context) string { return "x" }, Cost: func(*gin.Context) int64 { return 1 },
			OnDecision: func(gingate.Decision) {},
		})}, six, 2},
		"another format": {[]gin.HandlerFunc{gingate.WithConfig(gingate.Config{Gate: &gatetest.Free{}, Format: gate.OpenAI})}, four, 3},
	} {
		t.Run(name, func(t *testing.T) {
			h := app(silent, test.middlewares...)
			w, r := &discard{http.Header{}}, httptest.NewRequest(http.MethodGet, "/", http.NoBody)
			r.RemoteAddr = test.peer
			assert.LessOrEqual(t, testing.AllocsPerRun(1000, func() { h.ServeHTTP(w, r) }), test.most)
		})
	}
}

// BenchmarkMiddleware compares the middleware with Gin alone, and with the least that
// any middleware can do which hands its handler a value in the request's context.
func BenchmarkMiddleware(b *testing.B) {
	type key struct{}
	least := func(c *gin.Context) {
		c.Request = c.Request.WithContext(context.WithValue(c.Request.Context(), key{}, c))
		c.Next()
	}
	for _, c := range []struct {
		name        string
		middlewares []gin.HandlerFunc
	}{
		{"bare", nil},
		{"least", []gin.HandlerFunc{least}},
		{"gate", []gin.HandlerFunc{gingate.New(&gatetest.Free{})}},
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
