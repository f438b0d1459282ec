package versus

import (
	"context"
	"io"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/failsafe-go/failsafe-go/bulkhead"
	"github.com/failsafe-go/failsafe-go/failsafehttp"
	"github.com/headgate-go/headgate/clientwrap"
	"github.com/headgate-go/headgate/core/inflight"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// transport is a http.RoundTripper of one library, with room for so many requests at
// once.
type transport struct {
	name string
	wrap func(tb testing.TB, limit int, base http.RoundTripper) http.RoundTripper
	// streams says that a response whose body is still open counts.
	streams bool
}

var transports = []transport{
	{"headgate-clientwrap", func(tb testing.TB, limit int, base http.RoundTripper) http.RoundTripper {
		tb.Helper()
		g, done, err := openInflight(size{leases: limit, waiters: waiters})
		require.NoError(tb, err)
		tb.Cleanup(done)
		return clientwrap.NewTransport(base, g.(*inflight.Limiter), clientwrap.Config{})
	}, true},
	{"failsafe-adaptive", func(_ testing.TB, limit int, base http.RoundTripper) http.RoundTripper {
		return failsafehttp.NewRoundTripper(base, newAdaptive[*http.Response](limit))
	}, false},
	{"failsafe-bulkhead", func(_ testing.TB, limit int, base http.RoundTripper) http.RoundTripper {
		return failsafehttp.NewRoundTripper(base, bulkhead.NewBuilder[*http.Response](uint(limit)).WithMaxWaitTime(wait).Build())
	}, false},
	{"bare", func(_ testing.TB, _ int, base http.RoundTripper) http.RoundTripper { return base }, false},
}

// instant is a base that answers everything with the same response and an empty body.
type instant struct{ resp http.Response }

func (i *instant) RoundTrip(*http.Request) (*http.Response, error) {
	i.resp.StatusCode, i.resp.Body = http.StatusOK, ended{}
	return &i.resp, nil
}

// ended is a body at its end that is not http.NoBody.
type ended struct{}

func (ended) Read([]byte) (int, error) { return 0, io.EOF }
func (ended) Close() error             { return nil }

// exchange sends r, reads the answer to its end and closes it.
func exchange(rt http.RoundTripper, r *http.Request, buf []byte) error {
	resp, err := rt.RoundTrip(r)
	if err != nil {
		return err
	}
	for err == nil {
		_, err = resp.Body.Read(buf)
	}
	return resp.Body.Close()
}

// toward makes a client's request of the one that a server would get.
func toward(tb testing.TB, ctx context.Context) *http.Request {
	tb.Helper()
	r := newRequest(tb, ctx)
	r.URL.Scheme, r.URL.Host = "https", "llm.example.com"
	return r
}

// BenchmarkTransport is an exchange over a base that does nothing, the body read to its
// end and closed, under a context that can end.
func BenchmarkTransport(b *testing.B) {
	for _, tr := range transports {
		b.Run(tr.name, func(b *testing.B) {
			rt, r, buf := tr.wrap(b, room, new(instant)), toward(b, context.Background()), make([]byte, 16)
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				if err := exchange(rt, r, buf); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// gated is a base that says when a request is inside and waits there.
type gated struct {
	inside chan struct{}
	open   chan struct{}
}

func (g *gated) RoundTrip(*http.Request) (*http.Response, error) {
	g.inside <- struct{}{}
	<-g.open
	return &http.Response{StatusCode: http.StatusOK, Body: ended{}}, nil
}

// TestTransports: all but the bare one bound how many requests are on their way. Who
// counts open bodies too lets nobody in while all are open; the others do.
func TestTransports(t *testing.T) {
	for _, tr := range transports {
		t.Run(tr.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const limit = tight
				base := &gated{make(chan struct{}, 2*limit), make(chan struct{})}
				rt := tr.wrap(t, limit, base)
				bodies := make(chan io.Closer, 2*limit)
				send := func(ctx context.Context) {
					if resp, err := rt.RoundTrip(toward(t, ctx)); err == nil {
						bodies <- resp.Body
					}
				}
				inside := func() bool { // one more than there are
					n := len(base.inside)
					ctx, cancel := context.WithCancel(t.Context())
					go send(ctx)
					synctest.Wait()
					cancel()
					synctest.Wait()
					return len(base.inside) > n
				}
				for range limit {
					go send(t.Context())
				}
				synctest.Wait()
				require.Len(t, base.inside, limit)
				assert.Equal(t, tr.name == "bare", inside())
				close(base.open)
				synctest.Wait()
				assert.Equal(t, !tr.streams, inside())
				for len(bodies) > 0 {
					require.NoError(t, (<-bodies).Close())
				}
				assert.True(t, inside())
			})
		})
	}
}
