package gingate_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/stretchr/testify/require"

	"github.com/headgate-go/headgate/core/gate"
)

// slots is a small gate: so many slots, and nobody waits.
type slots struct {
	limit int

	mu    sync.Mutex
	held  int
	asked []gate.Request
}

func (s *slots) Acquire(_ context.Context, r gate.Request) (gate.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, r)
	if s.held >= s.limit {
		return gate.Lease{}, refusal(gate.QueueFull)
	}
	s.held++
	return gate.NewLease(&slot{gate: s}, 1), nil
}

func (s *slots) inUse() int { s.mu.Lock(); defer s.mu.Unlock(); return s.held }

func (s *slots) requests() []gate.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]gate.Request(nil), s.asked...)
}

// slot is one lease of slots.
type slot struct {
	gate     *slots
	released atomic.Bool
}

func (h *slot) Release(uint64) {
	if !h.released.Swap(true) {
		h.gate.mu.Lock()
		h.gate.held--
		h.gate.mu.Unlock()
	}
}
func (h *slot) Live(uint64) bool            { return !h.released.Load() }
func (h *slot) Grow(uint64, int64) error    { return nil }
func (h *slot) Shrink(uint64, int64)        {}
func (h *slot) Observe(uint64, gate.Sample) {}
func (h *slot) Waited(uint64) time.Duration { return 0 }
func (h *slot) Body(_ uint64, rc io.ReadCloser, _ func(time.Time) error) io.ReadCloser {
	return &counted{ReadCloser: rc}
}

// counted is a body that a gate has put its reader around.
type counted struct {
	io.ReadCloser
	n int
}

func (b *counted) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.n += n
	return n, err
}

// refusing is a gate that lets nobody in.
type refusing struct{ err error }

func (g *refusing) Acquire(context.Context, gate.Request) (gate.Lease, error) {
	return gate.Lease{}, g.err
}

func refusal(reason gate.Reason) *gate.Rejection {
	return &gate.Rejection{Reason: reason, Gate: "slots", RetryAfter: 3 * time.Second}
}

// app returns an engine with the middlewares and a handler at GET and POST /.
func app(h gin.HandlerFunc, middlewares ...gin.HandlerFunc) *gin.Engine {
	r := gin.New()
	r.Use(middlewares...)
	r.GET("/", h)
	r.POST("/", h)
	return r
}

func ok(c *gin.Context) { c.String(http.StatusOK, "ok") }

func unreached(t *testing.T) gin.HandlerFunc {
	t.Helper()
	return func(*gin.Context) { t.Error("the handler ran") }
}

// send sends a request past the network and returns its answer.
func send(h http.Handler, method, path string, body io.Reader) *httptest.ResponseRecorder {
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, httptest.NewRequest(method, path, body))
	return rec
}

func get(h http.Handler, path string) *httptest.ResponseRecorder {
	return send(h, http.MethodGet, path, http.NoBody)
}

// serve starts a server on loopback.
func serve(t *testing.T, h http.Handler) *httptest.Server {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	srv.Client().Timeout = hang
	return srv
}

// hang is how long a test waits for something that must happen.
const hang = 20 * time.Second

// post sends n bytes over the network and returns the answer and its body.
func post(t *testing.T, srv *httptest.Server, n int) (*http.Response, string) {
	t.Helper()
	resp, err := srv.Client().Post(srv.URL, "text/plain", strings.NewReader(strings.Repeat("x", n)))
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp, string(text)
}

// eventually waits until what is true.
func eventually(t *testing.T, what func() bool, msg string) {
	t.Helper()
	require.Eventually(t, what, hang, time.Millisecond, msg)
}
