package httpgate_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/adapters/nethttp"
	"github.com/headgate-go/headgate/core/gate"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// recovering is a recovery middleware that keeps what it caught.
func recovering(caught *atomic.Value, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if v := recover(); v != nil {
				caught.Store(v)
				w.WriteHeader(http.StatusInternalServerError)
			}
		}()
		next.ServeHTTP(w, r)
	})
}

// T01: panics leave no slot behind, wherever they are recovered.
func TestT01PanicReleases(t *testing.T) {
	const times = 1000
	boom := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("boom") })
	var caught atomic.Value
	for name, build := range map[string]func(func(http.Handler) http.Handler) http.Handler{
		"outside": func(g func(http.Handler) http.Handler) http.Handler { return recovering(&caught, g(boom)) },
		"inside":  func(g func(http.Handler) http.Handler) http.Handler { return g(recovering(&caught, boom)) },
	} {
		t.Run(name, func(t *testing.T) {
			g := &slots{limit: 1}
			h := build(httpgate.New(g))
			for range times {
				rec := httptest.NewRecorder()
				h.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
				require.Equal(t, http.StatusInternalServerError, rec.Code)
			}
			assert.Zero(t, g.inUse())
			assert.Equal(t, "boom", caught.Load())
		})
	}
	t.Run("absent", func(t *testing.T) {
		g := &slots{limit: 1}
		srv, _ := serve(t, false, httpgate.New(g)(boom))
		for range 100 {
			_, err := srv.Client().Get(srv.URL)
			require.Error(t, err)
		}
		eventually(t, func() bool { return g.inUse() == 0 }, "a panic that the server recovers leaked a slot")
	})
}

// T02, F15: the abort of a handler passes unchanged, and the client sees it.
func TestT02AbortPasses(t *testing.T) {
	eachProtocol(t, func(t *testing.T, http2 bool) {
		g := &slots{limit: 1}
		seen := make(chan any, 1)
		abort := httpgate.New(g)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}))
		srv, errorLog := serve(t, http2, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer func() {
				v := recover()
				seen <- v
				panic(v)
			}()
			abort.ServeHTTP(w, r)
		}))
		resp, err := srv.Client().Get(srv.URL)
		require.NoError(t, err)
		defer resp.Body.Close()
		_, err = io.ReadAll(resp.Body)
		require.Error(t, err, "the client took a cut answer for a whole one")
		assert.Equal(t, http.ErrAbortHandler, <-seen)
		eventually(t, func() bool { return g.inUse() == 0 }, "slot leaked")
		assert.Empty(t, errorLog.String())
	})
}

// T10, F2: whatever ends the handler releases once.
func TestT10EveryEndReleases(t *testing.T) {
	var nilMap map[string]int
	for name, end := range map[string]func(){
		"return": func() {}, "panic": func() { panic("boom") }, "abort": func() { panic(http.ErrAbortHandler) },
		"nil map": func() { nilMap["x"] = 1 }, "goexit": runtime.Goexit,
	} {
		for _, body := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				g := &slots{limit: 1}
				h := httpgate.New(g)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { end() }))
				req := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
				if body {
					req = httptest.NewRequest(http.MethodPost, "/", &repeat{n: 10})
				}
				var wg sync.WaitGroup
				wg.Add(1)
				go func() {
					defer wg.Done()
					defer func() { _ = recover() }()
					h.ServeHTTP(httptest.NewRecorder(), req)
				}()
				wg.Wait()
				assert.Zero(t, g.inUse())
				assert.Equal(t, 1, g.peak())
			})
		}
	}
}

// T03, F14: behind a timeout wrapper the limit holds; in front of one it cannot.
// The second half is why the package comment says where the wrapper belongs.
func TestT03TimeoutHandler(t *testing.T) {
	run := func(build func(mw func(http.Handler) http.Handler, h http.Handler) http.Handler) (most int64) {
		synctest.Test(t, func(t *testing.T) {
			var running, peak atomic.Int64
			g := &slots{limit: 2}
			h := build(httpgate.New(g), http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				if n := running.Add(1); n > peak.Load() {
					peak.Store(n)
				}
				defer running.Add(-1)
				time.Sleep(time.Second)
			}))
			for range 8 { // one after the other: each has been answered before the next comes
				h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", http.NoBody))
			}
			time.Sleep(time.Minute)
			assert.Zero(t, g.inUse())
			most = peak.Load()
		})
		return most
	}
	timeout := func(h http.Handler) http.Handler { return http.TimeoutHandler(h, 50*time.Millisecond, "late") }
	inside := run(func(mw func(http.Handler) http.Handler, h http.Handler) http.Handler { return timeout(mw(h)) })
	assert.EqualValues(t, 2, inside)
	outside := run(func(mw func(http.Handler) http.Handler, h http.Handler) http.Handler { return mw(timeout(h)) })
	assert.Greater(t, outside, int64(2), "if this holds now, the package comment can say so")
}

// T04, H14: a request that is dispatched again, or meets its gate twice, holds one slot.
func TestT04AdmittedOnce(t *testing.T) {
	g, other := &slots{limit: 1}, &slots{limit: 1}
	mw := httpgate.New(g)
	var root http.Handler
	mux := http.NewServeMux()
	mux.Handle("/start", mw(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		again := r.Clone(r.Context())
		again.URL.Path = "/end"
		root.ServeHTTP(w, again)
	})))
	mux.Handle("/end", mw(httpgate.New(other)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		assert.Equal(t, 1, g.inUse())
		assert.Equal(t, 1, other.inUse(), "the mark is per gate")
		ok(w, nil)
	}))))
	root = mw(mux)
	srv, _ := serve(t, false, root)
	for range 3 {
		resp, body := get(t, srv, "/start")
		require.Equal(t, http.StatusOK, resp.StatusCode)
		require.Equal(t, "ok", body)
	}
	assert.Zero(t, g.inUse())
	assert.Zero(t, other.inUse())
	assert.Len(t, g.requests(), 3)
}

// The mark lives as long as its lease: after an early release the gate is asked again.
func TestMarkEndsWithLease(t *testing.T) {
	g := &slots{limit: 1}
	inner := httpgate.New(g)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { assert.Equal(t, 1, g.inUse()) }))
	h := httpgate.New(g)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		httpgate.Release(r, g)
		assert.Zero(t, g.inUse())
		inner.ServeHTTP(w, r)
		assert.Zero(t, g.inUse())
	}))
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", http.NoBody))
	assert.Len(t, g.requests(), 2)
}

// T09, F10: the app may release early, from anywhere, as often as it likes.
func TestT09ReleasedOnce(t *testing.T) {
	g := &slots{limit: 2}
	held, err := g.Acquire(t.Context(), gate.Request{}) // someone else's slot
	require.NoError(t, err)
	h := httpgate.New(g)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var wg sync.WaitGroup
		for range 8 {
			wg.Add(1)
			go func() { defer wg.Done(); httpgate.Release(r, g) }()
		}
		wg.Wait()
		assert.Equal(t, 1, g.inUse())
	}))
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", http.NoBody))
	assert.Equal(t, 1, g.inUse(), "a double release freed another request's slot")
	held.Release()
	assert.Zero(t, g.inUse())
}

// F4: a later middleware that answers by itself gives the slot back.
func TestF4AnswerInBetween(t *testing.T) {
	g := &slots{limit: 1}
	deny := func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadRequest) })
	}
	srv, _ := serve(t, false, httpgate.New(g)(deny(http.HandlerFunc(ok))))
	for range 3 {
		resp, _ := get(t, srv, "/")
		require.Equal(t, http.StatusBadRequest, resp.StatusCode)
	}
	assert.Zero(t, g.inUse())
}

// F3: a client that leaves in the middle of a stream frees the slot.
func TestF3StreamCancelled(t *testing.T) {
	eachProtocol(t, func(t *testing.T, http2 bool) {
		g := &slots{limit: 1}
		srv, _ := serve(t, http2, httpgate.New(g)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/stream" {
				ok(w, r)
				return
			}
			_, _ = io.WriteString(w, "data: 1\n\n")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		})))
		resp, err := srv.Client().Get(srv.URL + "/stream")
		require.NoError(t, err)
		_, err = bufio.NewReader(resp.Body).ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, 1, g.inUse())
		resp.Body.Close()
		eventually(t, func() bool { return g.inUse() == 0 }, "the stream's slot stayed")
		after, _ := get(t, srv, "/")
		assert.Equal(t, http.StatusOK, after.StatusCode)
	})
}

// T05, F16: a hijacked connection holds its slot until the handler returns, or
// until the handler gives it back.
func TestT05Hijack(t *testing.T) {
	g := &slots{limit: 1}
	early := make(chan bool, 1)
	srv, _ := serve(t, false, httpgate.New(g)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, rw, err := w.(http.Hijacker).Hijack()
		if !assert.NoError(t, err) {
			return
		}
		defer conn.Close()
		if <-early {
			httpgate.Release(r, g)
		}
		_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_ = rw.Flush()
		_, _ = io.Copy(conn, rw)
	})))
	for _, releases := range []bool{true, false} {
		early <- releases
		c := dial(t, srv)
		c.say("GET / HTTP/1.1", "Host: x", "Connection: Upgrade", "Upgrade: echo")
		resp, err := http.ReadResponse(c.r, nil)
		require.NoError(t, err)
		require.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
		_, err = io.WriteString(c, "ping\n")
		require.NoError(t, err)
		echo, err := c.r.ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, "ping\n", echo)
		if releases {
			assert.Zero(t, g.inUse())
		} else {
			assert.Equal(t, 1, g.inUse())
		}
		c.Close()
		eventually(t, func() bool { return g.inUse() == 0 }, "the end of the connection did not free the slot")
	}
}

// A19: the zero lease of a refusal, and of a gate that gives none, is harmless.
func TestA19ZeroLease(t *testing.T) {
	free := &scripted{func(context.Context, gate.Request) (gate.Lease, error) { return gate.Lease{}, nil }}
	srv, _ := serve(t, false, httpgate.New(free)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		httpgate.Release(r, free)
		body, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		_, _ = w.Write(body)
	})))
	_, body := send(t, srv, http.MethodPost, "/", &repeat{n: 1000})
	assert.Len(t, body, 1000)
}
