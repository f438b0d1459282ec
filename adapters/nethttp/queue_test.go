package httpgate_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/adapters/nethttp"
	"github.com/headgate-go/headgate/core/gate"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// busy returns a gate whose only slot is taken, and gives the slot back after hold.
func busy(t *testing.T, wait, hold time.Duration) *slots {
	t.Helper()
	g := &slots{limit: 1, wait: wait}
	held, err := g.Acquire(t.Context(), gate.Request{})
	require.NoError(t, err)
	time.AfterFunc(hold, held.Release)
	return g
}

// speakHTTP2 makes srv speak HTTP/2 over its pipes, and returns a client for it.
func speakHTTP2(srv *http.Server, connect func() *rawConn) *http.Client {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	srv.Protocols = protocols
	return &http.Client{Transport: &http.Transport{
		Protocols: protocols,
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			c := connect()
			return c.Conn, c.SetDeadline(time.Time{})
		},
	}}
}

// T11: who leaves the queue when, once its client is gone.
func TestT11ClientGone(t *testing.T) {
	for name, test := range map[string]struct {
		head   []string
		waited time.Duration
		reason gate.Reason
	}{
		"GET leaves at once":                {[]string{"GET / HTTP/1.1", "Host: x"}, 0, gate.Canceled},
		"unread POST leaves at the timeout": {[]string{"POST / HTTP/1.1", "Host: x", "Content-Length: 9"}, 30 * time.Second, gate.QueueTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := busy(t, 30*time.Second, time.Hour)
				decided := make(chan httpgate.Decision, 1)
				connect, stop := pipeServer(t, &http.Server{Handler: httpgate.WithConfig(httpgate.Config{
					Gate: g, OnDecision: func(d httpgate.Decision) { decided <- d },
				})(unreached(t))})
				defer stop()
				start := time.Now()
				c := connect()
				c.say(test.head...)
				synctest.Wait()
				require.Equal(t, 1, g.queued())
				c.Close()
				d := <-decided
				require.ErrorIs(t, d.Err, test.reason)
				assert.Equal(t, test.waited, time.Since(start))
				assert.Zero(t, g.queued())
			})
		})
	}
	t.Run("HTTP2 POST leaves at once", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g := busy(t, 30*time.Second, time.Hour)
			decided := make(chan httpgate.Decision, 1)
			srv := &http.Server{Handler: httpgate.WithConfig(httpgate.Config{
				Gate: g, OnDecision: func(d httpgate.Decision) { decided <- d },
			})(unreached(t))}
			var connect func() *rawConn
			client := speakHTTP2(srv, func() *rawConn { return connect() })
			connect, stop := pipeServer(t, srv)
			defer stop()
			defer client.CloseIdleConnections()
			ctx, leave := context.WithCancel(t.Context())
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://x/", &trickle{ctx: ctx, now: &repeat{n: 9}})
			require.NoError(t, err)
			go func() {
				synctest.Wait()
				leave()
			}()
			start := time.Now()
			_, err = client.Do(req)
			require.ErrorIs(t, err, context.Canceled)
			require.ErrorIs(t, (<-decided).Err, gate.Canceled)
			assert.Zero(t, time.Since(start))
		})
	})
}

// A client that closes its sending side and waits for the answer counts as gone. It
// must not read a success into that.
func TestNothingWrittenToWhoLeft(t *testing.T) {
	g := &slots{limit: 0, wait: time.Hour}
	srv, errorLog := serve(t, false, httpgate.New(g)(unreached(t)))
	c := dial(t, srv)
	c.say("GET / HTTP/1.1", "Host: x")
	eventually(t, func() bool { return g.queued() == 1 }, "the request never came")
	require.NoError(t, c.Conn.(*net.TCPConn).CloseWrite())
	answer, err := io.ReadAll(c.r)
	require.NoError(t, err)
	assert.Empty(t, string(answer))
	assert.Empty(t, errorLog.String())
}

// T14: a wait longer than the server's timeouts leaves the handler all of them.
func TestT14QueueTimeIsNotTheServers(t *testing.T) {
	const timeout, wait = 400 * time.Millisecond, 700 * time.Millisecond
	h := func(t *testing.T, g *slots) http.Handler {
		return httpgate.New(g)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			assert.NoError(t, err)
			time.Sleep(timeout / 4)
			_, _ = w.Write(body)
		}))
	}
	slow := func() io.Reader {
		return io.MultiReader(&repeat{n: 500}, until(time.Now().Add(wait+timeout/2)), &repeat{n: 500})
	}
	for name, outer := range map[string]func(http.Handler) http.Handler{
		"HTTP1":                      func(next http.Handler) http.Handler { return next },
		"HTTP1, behind another gate": httpgate.New(&slots{limit: 1}),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				connect, stop := pipeServer(t, &http.Server{
					ReadTimeout: timeout, WriteTimeout: timeout, Handler: outer(h(t, busy(t, time.Hour, wait))),
				})
				defer stop()
				c := connect()
				c.say("POST / HTTP/1.1", "Host: x", "Content-Length: 1000")
				go func() { _, _ = io.Copy(c, slow()) }()
				resp, body := c.answer()
				assert.Equal(t, http.StatusOK, resp.StatusCode)
				assert.Len(t, body, 1000)
			})
		})
	}
	t.Run("HTTP2", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			srv := &http.Server{ReadTimeout: timeout, WriteTimeout: timeout, Handler: h(t, busy(t, time.Hour, wait))}
			var connect func() *rawConn
			client := speakHTTP2(srv, func() *rawConn { return connect() })
			connect, stop := pipeServer(t, srv)
			defer stop()
			defer client.CloseIdleConnections()
			resp, err := client.Post("http://x/", "", slow())
			require.NoError(t, err)
			body, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			assert.Len(t, body, 1000)
		})
	})
}

// T14: the timeouts that start anew after a wait still end things.
func TestT14TimeoutsStillHold(t *testing.T) {
	const timeout, wait = 400 * time.Millisecond, 700 * time.Millisecond
	eachProtocol(t, func(t *testing.T, http2 bool) {
		for name, end := range map[string]func(w http.ResponseWriter, r *http.Request){
			"ReadTimeout": func(_ http.ResponseWriter, r *http.Request) { _, _ = io.ReadAll(r.Body) },
			"WriteTimeout": func(w http.ResponseWriter, r *http.Request) {
				for r.Context().Err() == nil { // a failed write cancels the request
					_, _ = w.Write([]byte("x"))
					_ = http.NewResponseController(w).Flush()
					time.Sleep(timeout / 100)
				}
			},
		} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					g, ended := busy(t, time.Hour, wait), make(chan time.Duration, 1)
					start := time.Now()
					srv := &http.Server{Handler: httpgate.New(g)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						end(w, r)
						ended <- time.Since(start)
					}))}
					upload := name == "ReadTimeout"
					if upload {
						srv.ReadTimeout = timeout
					} else {
						srv.WriteTimeout = timeout
					}
					defer visit(t, srv, http2, upload)()
					took := <-ended
					assert.GreaterOrEqual(t, took, wait+timeout)
					assert.LessOrEqual(t, took, wait+timeout+timeout/50)
				})
			})
		}
	})
}

// visit serves srv and sends it a request, with the beginning of a body if upload
// is set; done ends both.
func visit(t *testing.T, srv *http.Server, http2, upload bool) (done func()) {
	t.Helper()
	if !http2 {
		connect, stop := pipeServer(t, srv)
		c := connect()
		if upload {
			c.say("POST / HTTP/1.1", "Host: x", "Content-Length: 1000")
		} else {
			c.say("GET / HTTP/1.1", "Host: x")
		}
		go func() { _, _ = io.Copy(io.Discard, c) }()
		return stop
	}
	var connect func() *rawConn
	client := speakHTTP2(srv, func() *rawConn { return connect() })
	connect, stop := pipeServer(t, srv)
	ctx, leave := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://x/", http.NoBody)
	require.NoError(t, err)
	if upload {
		req.Body, req.ContentLength = io.NopCloser(&trickle{ctx: ctx, now: &repeat{n: 1}}), -1
	}
	go func() {
		if resp, err := client.Do(req); err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
	}()
	return func() {
		leave()
		client.CloseIdleConnections()
		stop()
	}
}

// A refusal after a long wait reaches a client whose write deadline had passed.
func TestRefusedAfterLongWait(t *testing.T) {
	for name, handler := range map[string]func(g gate.Gate) http.Handler{
		"by the middleware": func(g gate.Gate) http.Handler { return httpgate.New(g)(http.NotFoundHandler()) },
		"by the handler": func(g gate.Gate) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, err := httpgate.Acquire(w, r, g, gate.Request{})
				httpgate.Refuse(w, r, err)
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				connect, stop := pipeServer(t, &http.Server{
					WriteTimeout: time.Second, Handler: handler(busy(t, 10*time.Second, time.Hour)),
				})
				defer stop()
				c := connect()
				c.say("GET / HTTP/1.1", "Host: x")
				resp, _ := c.answer()
				assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
				assert.Equal(t, "queue_timeout", resp.Header.Get(gate.MarkerHeader))
			})
		})
	}
}

// Decisions tell how long a request waited, and nothing of those that pass unasked.
func TestDecisionWaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := busy(t, time.Minute, 5*time.Second)
		var seen []httpgate.Decision
		mw := httpgate.WithConfig(httpgate.Config{
			Gate:       g,
			Skip:       func(r *http.Request) bool { return r.URL.Path == "/livez" },
			OnDecision: func(d httpgate.Decision) { seen = append(seen, d) },
		})
		connect, stop := pipeServer(t, &http.Server{Handler: mw(mw(http.HandlerFunc(ok)))})
		defer stop()
		for _, path := range []string{"/livez", "/work"} {
			c := connect()
			c.say("GET "+path+" HTTP/1.1", "Host: x")
			resp, _ := c.answer()
			require.Equal(t, http.StatusOK, resp.StatusCode)
		}
		require.Len(t, seen, 1)
		assert.Equal(t, 5*time.Second, seen[0].Waited)
		require.NoError(t, seen[0].Err)
		assert.Equal(t, "/work", seen[0].Request.URL.Path)
	})
}

// until is a reader that has nothing, and ends at its time.
type until time.Time

func (t until) Read([]byte) (int, error) {
	time.Sleep(time.Until(time.Time(t)))
	return 0, io.EOF
}
