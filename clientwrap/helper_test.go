package clientwrap_test

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

	"github.com/headgate-go/headgate/clientwrap"
	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/inflight"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// guard is how long a test may hang before it fails.
const guard = 30 * time.Second

// slots opens a limiter whose lanes have n slots for everybody.
func slots(tb testing.TB, n int, set ...func(*inflight.Config)) *inflight.Limiter {
	tb.Helper()
	c := inflight.DefaultConfig()
	c.MaxInflight = n
	c.InteractiveReserve = 0
	for _, f := range set {
		f(&c)
	}
	l, err := inflight.New(c)
	require.NoError(tb, err)
	tb.Cleanup(l.Close)
	return l
}

// nobodyWaits refuses whoever would have to wait.
func nobodyWaits(c *inflight.Config) { c.QueueTimeout = 0 }

// lane is the one lane that the limiter has.
func lane(tb testing.TB, l *inflight.Limiter) inflight.LaneSnapshot {
	tb.Helper()
	lanes := l.Snapshot().Lanes
	require.Len(tb, lanes, 1)
	return lanes[0]
}

// inFlight is how many slots are held in all lanes.
func inFlight(l *inflight.Limiter) (n int) {
	for _, ln := range l.Snapshot().Lanes {
		n += ln.Inflight
	}
	return n
}

func queued(l *inflight.Limiter) (n int) {
	for _, ln := range l.Snapshot().Lanes {
		n += ln.Queued
	}
	return n
}

// comesTo waits until f returns want, because what is asked for comes about in another
// goroutine or behind a socket.
func comesTo(tb testing.TB, want int, f func() int) {
	tb.Helper()
	require.Eventually(tb, func() bool { return f() == want }, guard, time.Millisecond, "want %d", want)
}

// serve starts a server on a socket.
func serve(tb testing.TB, h http.HandlerFunc) *httptest.Server {
	tb.Helper()
	s := httptest.NewServer(h)
	tb.Cleanup(s.Close)
	return s
}

// serveHTTP2 starts a server that speaks HTTP/2.
func serveHTTP2(tb testing.TB, h http.HandlerFunc) *httptest.Server {
	tb.Helper()
	s := httptest.NewUnstartedServer(h)
	s.EnableHTTP2 = true
	s.StartTLS()
	tb.Cleanup(s.Close)
	return s
}

// clientOf returns a client of s over a transport of its own.
func clientOf(tb testing.TB, s *httptest.Server, l *inflight.Limiter, c clientwrap.Config) *http.Client {
	tb.Helper()
	base := s.Client().Transport.(*http.Transport).Clone()
	tb.Cleanup(base.CloseIdleConnections)
	return &http.Client{Transport: clientwrap.NewTransport(base, l, c)}
}

// stream answers with a first piece at once and goes on until the test ends or the
// client leaves.
func stream(tb testing.TB) http.HandlerFunc {
	tb.Helper()
	end := make(chan struct{})
	tb.Cleanup(func() { close(end) })
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "data: 1\n\n")
		_ = http.NewResponseController(w).Flush()
		select {
		case <-end:
		case <-r.Context().Done():
		}
	}
}

func get(tb testing.TB, ctx context.Context, c *http.Client, url string) (*http.Response, error) {
	tb.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	return c.Do(req)
}

// mustGet is get for a request that must be sent.
func mustGet(tb testing.TB, ctx context.Context, c *http.Client, url string) *http.Response {
	tb.Helper()
	resp, err := get(tb, ctx, c, url)
	require.NoError(tb, err)
	require.Nil(tb, clientwrap.Refused(resp, err))
	return resp
}

// refusal is the refusal that a call must end with; its body is closed.
func refusal(tb testing.TB, resp *http.Response, err error) *gate.Rejection {
	tb.Helper()
	rej := clientwrap.Refused(resp, err)
	if !assert.NotNil(tb, rej, "want a refusal, have %v, %v", resp, err) {
		return new(gate.Rejection)
	}
	if resp != nil {
		assert.NoError(tb, resp.Body.Close())
	}
	return rej
}

// spy is a request's body that counts how often it is closed.
type spy struct {
	io.Reader
	closed atomic.Int32
}

func (s *spy) Close() error {
	s.closed.Add(1)
	return nil
}

func newSpy(text string) *spy { return &spy{Reader: strings.NewReader(text)} }

// answer is a response that a fake base gives.
func answer(r *http.Request, status int, body io.ReadCloser) *http.Response {
	return &http.Response{
		Status: http.StatusText(status), StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{}, Body: body, ContentLength: -1, Request: r,
	}
}

// text is a body for answer.
func text(s string) io.ReadCloser { return io.NopCloser(strings.NewReader(s)) }

// hello answers everything with a body of five bytes.
func hello(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
	return answer(r, http.StatusOK, text("hello")), nil
}

// request returns a request for a fake base.
func request(tb testing.TB, ctx context.Context, body io.Reader) *http.Request {
	tb.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://api.example.com/v1/x", body)
	if err != nil {
		panic(err) // it is called from any goroutine
	}
	return r
}

// setCancel sets a request's deprecated Cancel channel.
func setCancel(r *http.Request, ch <-chan struct{}) {
	//lint:ignore SA1019 callers still set it
	r.Cancel = ch //nolint:staticcheck // as above
}

// hold takes one slot of the lane that request goes to, until give is called.
func hold(tb testing.TB, l *inflight.Limiter) (give func()) {
	tb.Helper()
	lease, err := l.Acquire(context.Background(), gate.Request{Lane: "http://api.example.com"})
	require.NoError(tb, err)
	return lease.Release
}

// recorder is a gate of no room of its own that notes what is observed.
type recorder struct {
	mu      sync.Mutex
	samples []gate.Sample
}

func (g *recorder) Acquire(context.Context, gate.Request) (gate.Lease, error) {
	return gate.NewLease(g, 1), nil
}
func (g *recorder) Release(uint64)              {}
func (g *recorder) Live(uint64) bool            { return true }
func (g *recorder) Grow(uint64, int64) error    { return nil }
func (g *recorder) Shrink(uint64, int64)        {}
func (g *recorder) Waited(uint64) time.Duration { return 0 }
func (g *recorder) Body(_ uint64, rc io.ReadCloser, _ func(time.Time) error) io.ReadCloser {
	return rc
}

func (g *recorder) Observe(_ uint64, s gate.Sample) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.samples = append(g.samples, s)
}

// in returns a context that g holds, as an adapter makes it for a handler.
func (g *recorder) in(ctx context.Context) context.Context {
	return gate.NewLease(g, 1).In(ctx, g)
}

// observed returns what was observed since the last call.
func (g *recorder) observed() []gate.Sample {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.samples
	g.samples = nil
	return s
}

// readAll reads a body to its end and does not close it.
func readAll(tb testing.TB, r io.Reader) string {
	tb.Helper()
	b, err := io.ReadAll(r)
	require.NoError(tb, err)
	return string(b)
}
