package clientwrap_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/clientwrap"
	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/inflight"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The traps of this file: net/http.

// MaxConnsPerHost bounds connections, of which HTTP/2 needs one. Slots bound requests.
func TestTrap50_ConnectionsAreNotRequests(t *testing.T) {
	for name, start := range map[string]func(testing.TB, http.HandlerFunc) *httptest.Server{"http1": serve, "http2": serveHTTP2} {
		t.Run(name, func(t *testing.T) {
			const calls, limit = 20, 2
			var now, most atomic.Int32
			s := start(t, func(w http.ResponseWriter, _ *http.Request) {
				n := now.Add(1)
				for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
				}
				_ = http.NewResponseController(w).Flush()
				if n < limit { // meet the other one, or give up soon
					for range 100 {
						if now.Load() >= limit {
							break
						}
						time.Sleep(time.Millisecond)
					}
				}
				now.Add(-1)
			})
			l := slots(t, limit)
			c := clientOf(t, s, l, clientwrap.Config{})
			var all sync.WaitGroup
			for range calls {
				all.Go(func() {
					resp, err := get(t, context.Background(), c, s.URL)
					if assert.NoError(t, err) {
						assert.Equal(t, http.StatusOK, resp.StatusCode)
						_, _ = io.Copy(io.Discard, resp.Body)
						assert.NoError(t, resp.Body.Close())
					}
				})
			}
			all.Wait()
			assert.EqualValues(t, limit, most.Load())
			assert.Equal(t, 0, inFlight(l))
		})
	}
}

// A body that somebody has not closed blocks the next caller for as long as our queue
// allows, and the error says what blocks.
func TestTrap52_UnclosedBodyBlocks(t *testing.T) {
	s := serve(t, stream(t))
	l := slots(t, 1, func(c *inflight.Config) { c.QueueTimeout = 10 * time.Millisecond })
	c := clientOf(t, s, l, clientwrap.Config{AsError: true})
	first := mustGet(t, context.Background(), c, s.URL)
	defer first.Body.Close()
	resp, err := get(t, context.Background(), c, s.URL)
	require.ErrorContains(t, err, "refused locally by inflight: lane "+strconv.Quote(s.URL)+": queue timeout")
	require.ErrorContains(t, err, "limit 1")
	_ = refusal(t, resp, err)
}

// Who waits can be seen: in which lane, of which class, for how long.
func TestTrap53_WaitersAreVisible(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := slots(t, 1)
		n := newLine(t, l)
		give := hold(t, l)
		n.join(gate.WithClass(context.Background(), gate.Bulk), "bulk")
		n.join(gate.WithClass(context.Background(), gate.Interactive), "user")
		time.Sleep(time.Minute)
		s := lane(t, l)
		assert.Equal(t, "http://api.example.com", s.Lane)
		assert.Equal(t, 2, s.Queued)
		assert.Equal(t, inflight.ByClass{Interactive: 1, Bulk: 1}, s.QueuedByPriority)
		assert.InDelta(t, 60, float64(s.OldestWaitS), 0.1)
		give()
		n.all.Wait()
		l.Close()
	})
}

// The limit stands above the transport: who waits dials nothing, waits by class, and
// leaves nothing behind when it leaves.
func TestTrap54_DialsBelowTheLimit(t *testing.T) {
	var dials atomic.Int32
	s := serve(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.URL.Path) })
	base := s.Client().Transport.(*http.Transport).Clone()
	t.Cleanup(base.CloseIdleConnections)
	base.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		dials.Add(1)
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	}
	l := slots(t, 1)
	c := &http.Client{Transport: clientwrap.NewTransport(base, l, clientwrap.Config{})}
	lease, err := l.Acquire(context.Background(), gate.Request{Lane: s.URL})
	require.NoError(t, err)

	var mu sync.Mutex
	var order []string
	var all sync.WaitGroup
	for i, class := range []gate.Class{gate.Bulk, gate.Default, gate.Interactive} {
		all.Go(func() {
			resp, err := get(t, gate.WithClass(context.Background(), class), c, s.URL)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			order = append(order, class.String())
			mu.Unlock()
			_ = readAll(t, resp.Body)
			assert.NoError(t, resp.Body.Close())
		})
		comesTo(t, i+1, func() int { return queued(l) })
	}
	ctx, cancel := context.WithCancel(context.Background())
	left := make(chan error)
	go func() {
		_, err := get(t, ctx, c, s.URL)
		left <- err
	}()
	comesTo(t, 4, func() int { return queued(l) })
	cancel()
	require.ErrorIs(t, <-left, context.Canceled)
	assert.Zero(t, dials.Load())
	lease.Release()
	all.Wait()
	assert.Equal(t, []string{"interactive", "default", "bulk"}, order)
	assert.EqualValues(t, 1, dials.Load())
}

// Each hop of a redirect is an exchange of its own. With one slot it works, and with a
// ticket it keeps its place; each has a body of its own. (T51, G11)
func TestTrap57_Redirects(t *testing.T) {
	t.Run("one slot", func(t *testing.T) {
		s := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if n, _ := strconv.Atoi(strings.Trim(r.URL.Path, "/")); n > 0 {
				http.Redirect(w, r, fmt.Sprintf("/%d", n-1), http.StatusTemporaryRedirect)
				return
			}
			_, _ = io.Copy(w, r.Body)
		})
		l := slots(t, 1, nobodyWaits)
		c := clientOf(t, s, l, clientwrap.Config{Lane: clientwrap.LaneByModel("", "m")})
		resp, err := c.Post(s.URL+"/5", "application/json", strings.NewReader(`{"model": "m"}`))
		require.NoError(t, err)
		require.Nil(t, clientwrap.Refused(resp, err))
		assert.JSONEq(t, `{"model": "m"}`, readAll(t, resp.Body))
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, s.URL+"|m", lane(t, l).Lane)
		assert.EqualValues(t, 6, lane(t, l).Granted)
	})
	t.Run("place", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := slots(t, 1)
			base := &failsFirst{takes: time.Second}
			tr := clientwrap.NewTransport(roundTrip(func(r *http.Request) (*http.Response, error) {
				resp, err := base.RoundTrip(r)
				if r.URL.Path == "/from" {
					resp.StatusCode = http.StatusFound
					resp.Header.Set("Location", "/to")
				}
				return resp, err
			}), l, clientwrap.Config{})
			n := &line{t: t, base: base, tr: tr}
			n.all.Go(func() {
				_, err := get(t, inflight.WithCall(as(context.Background(), "hop")), &http.Client{Transport: tr}, "http://api.example.com/from")
				assert.NoError(t, err)
			})
			synctest.Wait()
			n.join(context.Background(), "later")
			n.join(context.Background(), "later")
			n.all.Wait()
			// The first who waited had the slot before the second hop could ask for it.
			assert.Equal(t, []string{"hop", "later", "hop", "later"}, base.seen())
			l.Close()
		})
	})
}

// The caller's request is as it was, whoever else uses it at the same time. (G4)
func TestTrap58_RequestIsNotChanged(t *testing.T) {
	l := slots(t, 4)
	tr := clientwrap.NewTransport(roundTrip(func(r *http.Request) (*http.Response, error) {
		assert.Equal(t, "bulk", r.Header.Get(clientwrap.ClassHeader))
		return hello(r)
	}), l, clientwrap.Config{ClassHeader: true, MaxHold: time.Minute, Lane: clientwrap.LaneByModel("", "m")})
	ctx := gate.WithClass(context.Background(), gate.Bulk)
	req := request(t, ctx, nil)
	req.Header.Set("X", "1")
	before := *req.Clone(ctx)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 50 {
				resp, err := tr.RoundTrip(req)
				if assert.NoError(t, err) {
					assert.Same(t, req, resp.Request)
					assert.Equal(t, "1", req.Header.Get("X"))
					assert.NoError(t, resp.Body.Close())
				}
			}
		})
	}
	all.Wait()
	assert.Equal(t, before.Header, req.Header)
	assert.Equal(t, before.URL, req.URL)
	assert.Equal(t, ctx, req.Context())

	bare := request(t, ctx, newSpy(`{"model": "m"}`))
	bare.Header = nil // allowed
	body := bare.Body
	resp, err := tr.RoundTrip(bare)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Same(t, body, bare.Body)
	assert.Nil(t, bare.Header)
}

type idler struct {
	http.RoundTripper
	closed int
}

func (i *idler) CloseIdleConnections() { i.closed++ }

// CloseIdleConnections reaches the base, if it has one. (G4, T51)
func TestCloseIdleConnections(t *testing.T) {
	l := slots(t, 1)
	base := &idler{RoundTripper: roundTrip(hello)}
	(&http.Client{Transport: clientwrap.NewTransport(base, l, clientwrap.Config{})}).CloseIdleConnections()
	assert.Equal(t, 1, base.closed)
	(&http.Client{Transport: clientwrap.NewTransport(roundTrip(hello), l, clientwrap.Config{})}).CloseIdleConnections()
}

// The response is the base's own: trailers that nobody has announced are there. (T51)
func TestTrailers(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "hello")
		_ = http.NewResponseController(w).Flush()
		w.Header().Set(http.TrailerPrefix+"Sum", "42")
	})
	l := slots(t, 1)
	for _, most := range []time.Duration{0, time.Minute} {
		c := clientOf(t, s, l, clientwrap.Config{MaxHold: most})
		resp := mustGet(t, context.Background(), c, s.URL)
		assert.Equal(t, "hello", readAll(t, resp.Body))
		assert.Equal(t, http.Header{"Sum": {"42"}}, resp.Trailer)
		require.NoError(t, resp.Body.Close())
	}
}
