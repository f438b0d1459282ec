package versus

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"testing"

	"github.com/failsafe-go/failsafe-go/bulkhead"
	"github.com/failsafe-go/failsafe-go/failsafehttp"
	"github.com/go-chi/chi/v5/middleware"
	httpgate "github.com/headgate-go/headgate/adapters/nethttp"
	"github.com/stretchr/testify/require"
	"github.com/zeromicro/go-zero/rest/handler"
	"golang.org/x/sync/semaphore"
)

// guard is a middleware of one library, with room for so many requests at once.
type guard struct {
	name string
	wrap func(tb testing.TB, limit int, next http.Handler) http.Handler
}

var guards = []guard{
	{"headgate-nethttp", func(tb testing.TB, limit int, next http.Handler) http.Handler {
		g, done, err := openAdmission(size{limit, limit, 2 * body})
		require.NoError(tb, err)
		tb.Cleanup(done)
		return httpgate.New(g)(next)
	}},
	{"xsync", func(_ testing.TB, limit int, next http.Handler) http.Handler {
		return &semaphored{semaphore.NewWeighted(int64(limit)), next}
	}},
	{"failsafe-adaptive", func(_ testing.TB, limit int, next http.Handler) http.Handler {
		return failsafehttp.NewHandler(next, newAdaptive[*http.Response](limit))
	}},
	{"failsafe-bulkhead", func(_ testing.TB, limit int, next http.Handler) http.Handler {
		b := bulkhead.NewBuilder[*http.Response](uint(limit)).WithMaxWaitTime(wait).Build()
		return failsafehttp.NewHandler(next, b)
	}},
	{"chi-throttle", func(_ testing.TB, limit int, next http.Handler) http.Handler {
		return middleware.ThrottleBacklog(limit, limit, wait)(next)
	}},
	{"gozero-maxconns", func(_ testing.TB, limit int, next http.Handler) http.Handler {
		return handler.MaxConnsHandler(limit)(next)
	}},
	{"withcontext", func(_ testing.TB, _ int, next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), key{}, next)))
		})
	}},
	{"bare", func(_ testing.TB, _ int, next http.Handler) http.Handler { return next }},
}

type key struct{}

// semaphored is what one writes by hand around a semaphore.
type semaphored struct {
	s    *semaphore.Weighted
	next http.Handler
}

func (m *semaphored) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := m.s.Acquire(r.Context(), 1); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	defer m.s.Release(1)
	m.next.ServeHTTP(w, r)
}

// discard is a http.ResponseWriter that keeps nothing but a refusal's status.
type discard struct {
	header http.Header
	status int
}

func (d *discard) Header() http.Header {
	if d.header == nil {
		d.header = http.Header{}
	}
	return d.header
}

func (d *discard) Write(p []byte) (int, error) { return len(p), nil }

func (d *discard) WriteHeader(code int) { d.status = code }

// refused returns an error if any answer had a status. The handlers here write none.
func (d *discard) refused() error {
	if d.status != 0 {
		return fmt.Errorf("refused with status %d", d.status)
	}
	return nil
}

// newRequest returns a request without a body whose context is as deep as the one
// that a http.Server makes: server and address, then one that ends with the
// connection, then one that ends with the request.
func newRequest(tb testing.TB, ctx context.Context) *http.Request {
	tb.Helper()
	ctx = context.WithValue(ctx, http.ServerContextKey, new(http.Server))
	ctx = context.WithValue(ctx, http.LocalAddrContextKey, net.Addr(&net.TCPAddr{}))
	ctx, closeConn := context.WithCancel(ctx)
	tb.Cleanup(closeConn)
	ctx, endRequest := context.WithCancel(ctx)
	tb.Cleanup(endRequest)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "/v1/models", http.NoBody)
	require.NoError(tb, err)
	r.RemoteAddr = "192.0.2.7:40961"
	r.Header.Set("Accept", "*/*")
	return r
}
