package httpgate_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/adapters/nethttp"
	"github.com/headgate-go/headgate/core/gate"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// T20, A2: a body that breaks its limit on the way is refused by the handler, read by
// the client, and on HTTP/1 ends the connection.
func TestT20RefusedWhileReading(t *testing.T) {
	eachProtocol(t, func(t *testing.T, http2 bool) {
		g := &slots{limit: 1, read: capped(1 << 20)}
		srv, errorLog := serve(t, http2, httpgate.New(g)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n, err := io.Copy(io.Discard, r.Body)
			assert.EqualValues(t, 1<<20, n)
			_, again := r.Body.Read(make([]byte, 1))
			assert.ErrorIs(t, again, gate.PayloadTooLarge, "a broken body must stay broken")
			assert.True(t, httpgate.Refuse(w, r, fmt.Errorf("reading: %w", err)))
		})))
		for range 20 {
			resp, body := send(t, srv, http.MethodPost, "/", &repeat{n: 2 << 20})
			require.Equal(t, http.StatusRequestEntityTooLarge, resp.StatusCode)
			require.Equal(t, !http2, resp.Close)
			require.Empty(t, resp.Header.Get("Retry-After"))
			require.Contains(t, body, `"payload_too_large"`)
		}
		assert.Zero(t, g.inUse())
		assert.Empty(t, errorLog.String())
	})
}

// A refusal that comes after the body was read, such as an outbound one, keeps the
// connection.
func TestRefusedAfterReadingKeepsConnection(t *testing.T) {
	var conns atomic.Int64
	inner := &slots{limit: 1, read: capped(1 << 20)}
	srv, _ := serve(t, false, httpgate.New(&slots{limit: 1})(httpgate.New(inner)(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, err := io.Copy(io.Discard, r.Body)
			assert.NoError(t, err)
			assert.True(t, httpgate.Refuse(w, r, refusal(gate.QueueTimeout, nil)))
		}))))
	client := countConns(srv, &conns)
	for _, length := range []int64{5000, -1, 5000} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL, &repeat{n: 5000})
		require.NoError(t, err)
		req.ContentLength = length
		resp, err := client.Do(req)
		require.NoError(t, err)
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		require.False(t, resp.Close)
	}
	assert.EqualValues(t, 1, conns.Load())
}

// T30: a client that promises more than it sends costs nothing once it is gone.
func TestT30LyingLength(t *testing.T) {
	g := &slots{limit: 1, read: capped(1 << 30)}
	failed := make(chan error, 1)
	srv, _ := serve(t, false, httpgate.New(g)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, err := io.Copy(io.Discard, r.Body)
		failed <- err
	})))
	c := dial(t, srv)
	c.say("POST / HTTP/1.1", "Host: x", "Content-Length: 10000000")
	_, err := io.WriteString(c, strings.Repeat("x", 1000))
	require.NoError(t, err)
	c.Close()
	require.Error(t, <-failed)
	eventually(t, func() bool { return g.inUse() == 0 }, "slot leaked")
	require.EqualValues(t, 10_000_000, g.requests()[0].Bytes)
}

// T38: trailers of request and response pass.
func TestT38Trailers(t *testing.T) {
	eachProtocol(t, func(t *testing.T, http2 bool) {
		g := &slots{limit: 1, read: capped(1 << 20)}
		srv, _ := serve(t, http2, httpgate.New(g)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Trailer", "Announced")
			_, err := io.Copy(io.Discard, r.Body)
			assert.NoError(t, err)
			assert.Equal(t, "sum", r.Trailer.Get("Check"))
			_, _ = io.WriteString(w, "body")
			w.Header().Set("Announced", "yes")
			w.Header().Set(http.TrailerPrefix+"Late", "yes")
		})))
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL, &repeat{n: 100})
		require.NoError(t, err)
		req.Trailer = http.Header{"Check": {"sum"}}
		resp, err := srv.Client().Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		_, err = io.ReadAll(resp.Body)
		require.NoError(t, err)
		assert.Equal(t, "yes", resp.Trailer.Get("Announced"))
		assert.Equal(t, "yes", resp.Trailer.Get("Late"))
	})
}

// A slow sender is ended by its lease, and the handler can say so to the client.
func TestSlowBodyEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &slots{limit: 1, read: impatient(2 * time.Second)}
		connect, stop := pipeServer(t, &http.Server{Handler: httpgate.New(g)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, err := io.ReadAll(r.Body)
			assert.True(t, httpgate.Refuse(w, r, err))
		}))})
		defer stop()
		c := connect()
		c.say("POST / HTTP/1.1", "Host: x", "Content-Length: 4096")
		start := time.Now()
		_, err := io.WriteString(c, "some")
		require.NoError(t, err)
		resp, _ := c.answer()
		assert.Equal(t, http.StatusRequestTimeout, resp.StatusCode)
		assert.Equal(t, 2*time.Second, time.Since(start))
		assert.True(t, resp.Close)
		c.requireClosed()
		synctest.Wait()
		assert.Zero(t, g.inUse())
	})
}

// A deadline that a lease has set for the body does not outlive the body: it would
// cancel the request under a handler that works on.
func TestReadDeadlineEndsWithBody(t *testing.T) {
	work := func(t *testing.T, reads int) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for range reads { // once is to the end, twice is behind it
				_, err := io.ReadAll(r.Body)
				assert.NoError(t, err)
			}
			time.Sleep(time.Minute)
			assert.NoError(t, r.Context().Err())
			ok(w, r)
		})
	}
	byHandler := func(g *slots) func(http.Handler) http.Handler {
		return func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, err := io.ReadAll(r.Body) // the whole body before the gate is asked
				assert.NoError(t, err)
				r, err = httpgate.Acquire(w, r, g, gate.Request{})
				assert.NoError(t, err)
				defer httpgate.Release(r, g)
				next.ServeHTTP(w, r)
			})
		}
	}
	queued := func(t *testing.T) *slots { return busy(t, time.Hour, time.Second) }
	for name, build := range map[string]func(t *testing.T) http.Handler{
		"lease": func(t *testing.T) http.Handler {
			return httpgate.New(&slots{limit: 1, read: impatient(2 * time.Second)})(work(t, 2))
		},
		"restarted ReadTimeout":         func(t *testing.T) http.Handler { return httpgate.New(queued(t))(work(t, 2)) },
		"Acquire behind the body's end": func(t *testing.T) http.Handler { return byHandler(queued(t))(work(t, 0)) },
		"the same, and reading again":   func(t *testing.T) http.Handler { return byHandler(queued(t))(work(t, 1)) },
		"the same, under a middleware": func(t *testing.T) http.Handler {
			return httpgate.New(&slots{limit: 1})(byHandler(queued(t))(work(t, 1)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				connect, stop := pipeServer(t, &http.Server{Handler: build(t), ReadTimeout: 5 * time.Second})
				defer stop()
				c := connect()
				require.NoError(t, c.SetDeadline(time.Time{}))
				c.say("POST / HTTP/1.1", "Host: x", "Content-Length: 4")
				_, err := io.WriteString(c, "body")
				require.NoError(t, err)
				resp, body := c.answer()
				assert.Equal(t, http.StatusOK, resp.StatusCode)
				assert.Equal(t, "ok", body)
			})
		})
	}
}

// The server's own ReadTimeout, counted from admission, is a bound that no lease moves.
func TestReadTimeoutIsNotExtended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &slots{limit: 1, read: impatient(2 * time.Second)}
		connect, stop := pipeServer(t, &http.Server{
			ReadTimeout: 5 * time.Second,
			Handler: httpgate.New(g)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, err := io.ReadAll(r.Body)
				assert.True(t, httpgate.Refuse(w, r, err))
			})),
		})
		defer stop()
		c := connect()
		c.say("POST / HTTP/1.1", "Host: x", "Content-Length: 4096")
		start := time.Now()
		sent := make(chan struct{})
		go func() { // quick enough for the lease, too slow for the server
			defer close(sent)
			for {
				if _, err := io.WriteString(c, "x"); err != nil {
					return
				}
				time.Sleep(time.Second)
			}
		}()
		defer func() { <-sent }()
		defer c.Close()
		resp, _ := c.answer()
		assert.Equal(t, http.StatusRequestTimeout, resp.StatusCode)
		assert.Equal(t, 5*time.Second, time.Since(start))
	})
}

// A goroutine that reads on after its handler has returned cannot touch the
// connection any more, over HTTP/2 either.
func TestReaderLeftBehind(t *testing.T) {
	eachProtocol(t, func(t *testing.T, http2 bool) {
		over, read := make(chan struct{}), make(chan error, 1)
		g := &slots{limit: 1, read: impatient(time.Minute)}
		mw := httpgate.New(g)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			go func() {
				<-over
				_, err := r.Body.Read(make([]byte, 1))
				read <- err
			}()
		}))
		srv, _ := serve(t, http2, mw)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL, &repeat{n: 10})
		require.NoError(t, err)
		resp, err := srv.Client().Do(req)
		require.NoError(t, err)
		resp.Body.Close()
		eventually(t, func() bool { return g.inUse() == 0 }, "slot leaked")
		close(over)
		require.ErrorIs(t, <-read, http.ErrBodyReadAfterClose)
	})
}

// Bodies under several gates are read through all of them.
func TestBodyUnderTwoLeases(t *testing.T) {
	outer, inner := &slots{limit: 1, read: capped(1 << 20)}, &slots{limit: 1, read: capped(10)}
	plain := &slots{limit: 1}
	srv, _ := serve(t, false, httpgate.New(outer)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		before := r.Body
		r, err := httpgate.Acquire(w, r, plain, gate.Request{})
		assert.NoError(t, err)
		assert.Same(t, before, r.Body, "a gate that does not care for bodies adds no layer")
		defer httpgate.Release(r, plain)
		r, err = httpgate.Acquire(w, r, inner, gate.Request{})
		assert.NoError(t, err)
		defer httpgate.Release(r, inner)
		_, err = io.ReadAll(r.Body)
		assert.True(t, httpgate.Refuse(w, r, err))
	})))
	resp, _ := send(t, srv, http.MethodPost, "/", &repeat{n: 100})
	assert.Equal(t, http.StatusRequestEntityTooLarge, resp.StatusCode)
	assert.True(t, resp.Close)
	// Of a known length, the end comes with the last byte.
	resp, _ = send(t, srv, http.MethodPost, "/", strings.NewReader(strings.Repeat("x", 11)))
	assert.Equal(t, http.StatusRequestEntityTooLarge, resp.StatusCode)
	assert.False(t, resp.Close, "all of it was read")
	assert.Zero(t, inner.inUse()+outer.inUse()+plain.inUse())
}

// Close ends the body for the handler, and errors of the body pass.
func TestBodyClose(t *testing.T) {
	srv, _ := serve(t, false, httpgate.New(&slots{limit: 1, read: impatient(time.Minute)})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assert.NoError(t, r.Body.Close())
		_, err := r.Body.Read(make([]byte, 1))
		assert.ErrorIs(t, err, http.ErrBodyReadAfterClose)
		ok(w, r)
	})))
	_, body := send(t, srv, http.MethodPost, "/", &repeat{n: 100})
	assert.Equal(t, "ok", body)
	rec := httptest.NewRecorder() // no connection, no deadlines
	httpgate.New(&slots{limit: 1})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		assert.NoError(t, err)
		fmt.Fprint(w, n)
	})).ServeHTTP(rec, httptest.NewRequest(http.MethodPost, "/", &repeat{n: 100}))
	assert.Equal(t, "100", rec.Body.String())
}
