package httpgate_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
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

// full is a gate without room.
func full() *slots { return &slots{} }

// unreached is a handler that must not run.
func unreached(t *testing.T) http.Handler {
	t.Helper()
	return http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the handler ran") })
}

// T17, A27, A11: a client that asks first is refused before it has sent anything.
func TestT17ExpectRefused(t *testing.T) {
	for _, size := range []int{1000, 1 << 20} {
		t.Run(strconv.Itoa(size), func(t *testing.T) {
			srv, _ := serve(t, false, httpgate.New(full())(unreached(t)))
			c := dial(t, srv)
			c.say("POST / HTTP/1.1", "Host: x", "Expect: 100-continue", "Content-Length: "+strconv.Itoa(size))
			resp, _ := c.answer()
			assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode, "100 Continue must not come first")
			assert.True(t, resp.Close)
			c.requireClosed()
		})
	}
}

// T17: with its body under a lease, a handler that answers without reading does so
// at once too. (A body replaced in place makes net/http wait here for ever.)
func TestT17ExpectAdmittedUnread(t *testing.T) {
	for _, size := range []int{1000, 1 << 20} {
		t.Run(strconv.Itoa(size), func(t *testing.T) {
			g := &slots{limit: 1, read: capped(1 << 30)}
			srv, _ := serve(t, false, httpgate.New(g)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusUnauthorized)
			})))
			c := dial(t, srv)
			c.say("POST / HTTP/1.1", "Host: x", "Expect: 100-continue", "Content-Length: "+strconv.Itoa(size))
			resp, _ := c.answer()
			assert.Equal(t, http.StatusUnauthorized, resp.StatusCode)
			assert.Zero(t, g.inUse())
		})
	}
}

// A27: 100 Continue goes out after admission, not before.
func TestA27ContinueAfterAdmission(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &slots{limit: 1, wait: time.Minute}
		held, err := g.Acquire(t.Context(), gate.Request{})
		require.NoError(t, err)
		connect, stop := pipeServer(t, &http.Server{Handler: httpgate.New(g)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			assert.NoError(t, err)
			_, _ = w.Write(body)
		}))})
		defer stop()
		c := connect()
		c.say("POST / HTTP/1.1", "Host: x", "Expect: 100-continue", "Content-Length: 4")
		var line atomic.Value
		go func() {
			s, _ := c.r.ReadString('\n')
			line.Store(s)
		}()
		synctest.Wait()
		require.Nil(t, line.Load(), "an answer came while the request stood in the queue")
		held.Release()
		synctest.Wait()
		require.Equal(t, "HTTP/1.1 100 Continue\r\n", line.Load())
		_, _ = c.r.ReadString('\n')
		_, err = io.WriteString(c, "body")
		require.NoError(t, err)
		resp, body := c.answer()
		assert.Equal(t, http.StatusOK, resp.StatusCode)
		assert.Equal(t, "body", body)
	})
}

// T18: a slow upload does not hold its own refusal back.
func TestT18SlowUploadRefused(t *testing.T) {
	eachProtocol(t, func(t *testing.T, http2 bool) {
		var conns atomic.Int64
		srv, _ := serve(t, http2, httpgate.New(full())(unreached(t)))
		counted := countConns(srv, &conns)
		for range 10 {
			rest := make(chan struct{})
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL,
				&trickle{ctx: t.Context(), now: &repeat{n: 100_000}, rest: rest})
			require.NoError(t, err)
			req.ContentLength = 200_000
			resp, err := counted.Do(req)
			require.NoError(t, err)
			close(rest) // only now can the upload go on
			resp.Body.Close()
			assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
			assert.Equal(t, !http2, resp.Close, "Connection: close belongs to HTTP/1 alone")
		}
		if http2 {
			assert.EqualValues(t, 1, conns.Load(), "a refusal cost the whole connection")
		}
	})
}

// countConns returns a client of srv that counts the connections it opens.
func countConns(srv *httptest.Server, n *atomic.Int64) *http.Client {
	tr := srv.Client().Transport.(*http.Transport).Clone()
	tr.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		n.Add(1)
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
	return &http.Client{Transport: tr, Timeout: hang}
}

// A refusal without a body keeps the connection, and a HEAD gets no body.
func TestRefusedWithoutBodyKeepsConnection(t *testing.T) {
	eachProtocol(t, func(t *testing.T, http2 bool) {
		var conns atomic.Int64
		srv, _ := serve(t, http2, httpgate.New(full())(unreached(t)))
		client := countConns(srv, &conns)
		for i := range 50 {
			method := []string{http.MethodGet, http.MethodHead, http.MethodPost}[i%3]
			req, err := http.NewRequestWithContext(t.Context(), method, srv.URL, http.NoBody)
			require.NoError(t, err)
			resp, err := client.Do(req)
			require.NoError(t, err)
			body, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			resp.Body.Close()
			require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
			require.Equal(t, "queue_full", resp.Header.Get(gate.MarkerHeader))
			require.Equal(t, method == http.MethodHead, len(body) == 0)
		}
		assert.EqualValues(t, 1, conns.Load())
	})
}

// A25, T19: clients in the middle of an upload read the refusal, and the server has
// nothing to complain about.
func TestA25RefusalDelivered(t *testing.T) {
	const tries = 60
	srv, errorLog := serve(t, false, httpgate.New(full())(unreached(t)))
	var answered atomic.Int64
	var wg sync.WaitGroup
	turns := make(chan struct{}, 4)
	for range tries {
		turns <- struct{}{}
		wg.Add(1)
		go func() {
			defer func() { <-turns; wg.Done() }()
			for _, length := range []int64{8 << 20, -1} { // announced, and chunked
				req, _ := http.NewRequest(http.MethodPost, srv.URL, &repeat{n: 8 << 20})
				req.ContentLength = length
				resp, err := srv.Client().Do(req)
				if err == nil {
					resp.Body.Close()
					if resp.StatusCode == http.StatusServiceUnavailable {
						answered.Add(1)
					}
				}
			}
		}()
	}
	wg.Wait()
	assert.GreaterOrEqual(t, answered.Load(), int64(2*tries*99/100))
	assert.Empty(t, errorLog.String())
}

// A25, K9: the rest of a refused body holds its connection for a bounded time.
func TestA25LingerBounded(t *testing.T) {
	late := refusal(gate.SlowBody, nil)
	for name, h := range map[string]http.Handler{
		"by the middleware": httpgate.New(full())(unreached(t)),
		"by Refuse, through the middleware": httpgate.New(&slots{limit: 1})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			assert.True(t, httpgate.Refuse(w, r, late))
		})),
		"by Refuse alone": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			assert.True(t, httpgate.Refuse(w, r, late))
		}),
		"by the handler, after its body was given up": httpgate.New(&slots{limit: 1, read: impatient(time.Second)})(
			http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, err := io.ReadAll(r.Body)
				assert.ErrorIs(t, err, gate.SlowBody)
				w.WriteHeader(http.StatusBadRequest)
			})),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				connect, stop := pipeServer(t, &http.Server{Handler: h})
				defer stop()
				c := connect()
				c.say("POST / HTTP/1.1", "Host: x", "Content-Length: 4096")
				go io.WriteString(c, strings.Repeat("x", 44))
				start := time.Now()
				resp, _ := c.answer()
				assert.GreaterOrEqual(t, resp.StatusCode, 400)
				c.requireClosed()
				assert.LessOrEqual(t, time.Since(start), 3*time.Second)
			})
		})
	}
}

// T22: what is no body stays none, so that a proxy behind the gate sends none.
func TestT22NoBodyStays(t *testing.T) {
	var length, chunked atomic.Value
	back := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		length.Store(r.ContentLength)
		chunked.Store(len(r.TransferEncoding) > 0)
	}))
	defer back.Close()
	target, err := url.Parse(back.URL)
	require.NoError(t, err)
	proxy := httputil.NewSingleHostReverseProxy(target)
	g := &slots{limit: 1, read: func(rc io.ReadCloser, _ func(time.Time) error) io.ReadCloser {
		t.Error("no body was put under a lease")
		return rc
	}}
	mw := httpgate.New(g)
	eachProtocol(t, func(t *testing.T, http2 bool) {
		srv, _ := serve(t, http2, mw(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !http2 {
				assert.Equal(t, http.NoBody, r.Body)
			}
			proxy.ServeHTTP(w, r)
		})))
		for _, method := range []string{http.MethodGet, http.MethodDelete, http.MethodPost} {
			resp, _ := send(t, srv, method, "/", nil)
			require.Equal(t, http.StatusOK, resp.StatusCode)
			assert.EqualValues(t, 0, length.Load())
			assert.Equal(t, false, chunked.Load())
		}
	})
	t.Run("nil", func(t *testing.T) {
		h := mw(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { assert.Nil(t, r.Body) }))
		req := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
		req.Body = nil
		h.ServeHTTP(httptest.NewRecorder(), req)
	})
	for _, q := range g.requests() {
		assert.Zero(t, q.Bytes)
	}
}

// The caller's request is not changed: not its body, not its context.
func TestRequestIsCopied(t *testing.T) {
	g := &slots{limit: 1, read: capped(100)}
	h := httpgate.New(g)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.ReadAll(r.Body) }))
	req := httptest.NewRequest(http.MethodPost, "/", &repeat{n: 10})
	before := *req
	h.ServeHTTP(httptest.NewRecorder(), req)
	assert.Equal(t, &before, req)
}

// T40: browsers can read a refusal when CORS stands in front of the gate.
func TestT40CORSOutside(t *testing.T) {
	cors := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Access-Control-Allow-Origin", "*")
			next.ServeHTTP(w, r)
		})
	}
	srv, _ := serve(t, false, cors(httpgate.New(full())(unreached(t))))
	resp, _ := get(t, srv, "/")
	assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
	assert.Equal(t, "*", resp.Header.Get("Access-Control-Allow-Origin"))
}
