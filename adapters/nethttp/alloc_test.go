package httpgate_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/headgate-go/headgate/adapters/nethttp"
	"github.com/headgate-go/headgate/core/gate"
	"github.com/stretchr/testify/assert"
)

// freeGate admits everyone with the same lease and allocates nothing.
type freeGate struct{ slot }

func (g *freeGate) Acquire(context.Context, gate.Request) (gate.Lease, error) {
	return gate.NewLease(g, 1), nil
}
func (g *freeGate) Release(uint64) {}

// discard is a response that goes nowhere.
type discard struct{ header http.Header }

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }
func (d *discard) WriteHeader(int)             {}

// Two allocations per gate without a body: the request's copy and its context.
func TestAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates too")
	}
	bare := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	one := httpgate.New(&freeGate{})(bare)
	const four, six = "192.0.2.1:1234", "[2001:db8::1]:1234"
	for name, test := range map[string]struct {
		h    http.Handler
		peer string
		most float64
	}{
		"no gate":        {bare, four, 0},
		"one gate":       {one, four, 2},
		"two gates":      {httpgate.New(&freeGate{})(one), four, 4},
		"one gate, IPv6": {one, six, 4},
		"configured": {httpgate.WithConfig(httpgate.Config{
			Gate: &freeGate{}, Skip: func(*http.Request) bool { return false },
			Flow: func(*http.Request) string { return "x" }, Cost: func(*http.Request) int64 { return 1 },
			OnDecision: func(httpgate.Decision) {},
		})(bare), six, 2},
		"another format": {httpgate.WithConfig(httpgate.Config{Gate: &freeGate{}, Format: gate.OpenAI})(bare), four, 3},
	} {
		t.Run(name, func(t *testing.T) {
			w, r := &discard{http.Header{}}, request()
			r.RemoteAddr = test.peer
			assert.LessOrEqual(t, testing.AllocsPerRun(1000, func() { test.h.ServeHTTP(w, r) }), test.most)
		})
	}
}

// BenchmarkMiddleware compares the middleware with the least that any middleware
// can do which hands its handler a value: a context value on a copied request.
func BenchmarkMiddleware(b *testing.B) {
	bare := http.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	type key struct{}
	wrap := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), key{}, w)))
		})
	}
	least := wrap(bare)
	for _, c := range []struct {
		name string
		h    http.Handler
	}{{"least", least}, {"gate", httpgate.New(&freeGate{})(bare)}} {
		b.Run(c.name, func(b *testing.B) {
			w, r := &discard{http.Header{}}, request()
			b.ReportAllocs()
			for b.Loop() {
				c.h.ServeHTTP(w, r)
			}
		})
	}
}
