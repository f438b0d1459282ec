package fibergate_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/fasthttp/websocket"
	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/adaptor"
	"github.com/gofiber/fiber/v2/middleware/proxy"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	fibergate "github.com/headgate-go/headgate/adapters/fiber"
	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/gatetest"
)

// T05: a websocket holds its slot until the session ends, or the app gives it back.
func TestT05Websocket(t *testing.T) {
	g := &gatetest.Slots{Limit: 1}
	upgrader := websocket.FastHTTPUpgrader{}
	addr := serve(t, app(func(c *fiber.Ctx) error {
		if c.Query("early") != "" {
			fibergate.Release(c, g)
		}
		return upgrader.Upgrade(c.Context(), func(conn *websocket.Conn) {
			for {
				kind, p, err := conn.ReadMessage()
				if err != nil || conn.WriteMessage(kind, p) != nil {
					return
				}
			}
		})
	}, fibergate.New(fibergate.Config{Gate: g})))
	for query, held := range map[string]int{"": 1, "?early=1": 0} {
		conn, resp, err := websocket.DefaultDialer.DialContext(t.Context(), "ws://"+addr+"/"+query, nil) //nolint:bodyclose // a connection
		require.NoError(t, err)
		require.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
		for _, text := range []string{"ping", "pong"} {
			require.NoError(t, conn.WriteMessage(websocket.TextMessage, []byte(text)))
			_, p, err := conn.ReadMessage()
			require.NoError(t, err)
			require.Equal(t, text, string(p))
		}
		assert.Equal(t, held, g.InUse())
		if held == 1 {
			_, resp, err := websocket.DefaultDialer.DialContext(t.Context(), "ws://"+addr, nil) //nolint:bodyclose // in memory
			require.ErrorIs(t, err, websocket.ErrBadHandshake)
			assert.Equal(t, "queue_full", resp.Header.Get(gate.MarkerHeader))
		}
		conn.Close()
		eventually(t, func() bool { return g.InUse() == 0 }, "the end of the session did not free the slot")
	}
}

// T06, H2, F3: an event stream that begins when its handler is done sends each event as
// it comes and holds its slot; that is free when the stream ends by itself, and when the
// client has left at the next event.
func TestT06EventStream(t *testing.T) {
	g := &gatetest.Slots{Limit: 1}
	events := make(chan string)
	returned := make(chan struct{}, 1)
	a := fiber.New(streaming())
	a.Use(func(c *fiber.Ctx) error { defer func() { returned <- struct{}{} }(); return c.Next() })
	a.Use(fibergate.New(fibergate.Config{Gate: g}))
	a.Get("/", func(c *fiber.Ctx) error {
		c.Set(fiber.HeaderContentType, "text/event-stream")
		c.Context().SetBodyStreamWriter(func(w *bufio.Writer) {
			for e := range events {
				if e == "" {
					return
				}
				_, _ = fmt.Fprintf(w, "event:message\ndata:%s\n\n", e)
				if w.Flush() != nil {
					return
				}
			}
		})
		return nil
	})
	addr := serve(t, a)
	for _, leaves := range []bool{false, true} {
		ctx, leave := context.WithCancel(t.Context())
		defer leave() //nolint:gocritic // of two
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr, http.NoBody)
		require.NoError(t, err)
		go func() { events <- "one" }()
		resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
		require.NoError(t, err)
		defer resp.Body.Close() //nolint:gocritic // of two
		<-returned
		r := bufio.NewReader(resp.Body)
		for _, next := range []string{"two", "three", "end"} {
			event, err := r.ReadString('\n')
			require.NoError(t, err)
			data, err := r.ReadString('\n')
			require.NoError(t, err)
			assert.Equal(t, "event:message\ndata:", event+data[:5])
			_, _ = r.ReadString('\n')
			assert.Equal(t, 1, g.InUse())
			if next != "end" {
				events <- next
			}
		}
		if leaves {
			leave()
		} else {
			events <- ""
		}
		eventually(t, func() bool {
			if leaves {
				select { // a write must fail
				case events <- "anybody there?":
				default:
				}
			}
			return g.InUse() == 0
		}, "the stream's slot stayed")
	}
}

// T06: requests whose user values nobody closes do not leak: those whose answer was
// replaced by a timeout's, and those that come through adaptor.FiberApp.
func TestT06WhereNobodyCloses(t *testing.T) {
	g := &gatetest.Slots{Limit: 1}
	write := func(w *bufio.Writer) { _, _ = w.WriteString("streamed") }
	a := app(func(c *fiber.Ctx) error {
		if c.Query("late") != "" {
			c.Context().TimeoutError("late")
		}
		c.Context().SetBodyStreamWriter(write)
		return nil
	}, fibergate.New(fibergate.Config{Gate: g}))
	addr := serve(t, a)
	for range 2 {
		c := dial(t, addr)
		c.say(head("GET /?late=1"))
		assert.Equal(t, "late", c.answer().text)
		eventually(t, func() bool { return g.InUse() == 0 }, "a slot leaked")
	}
	for _, body := range []string{"", "body"} {
		rec := httptest.NewRecorder()
		adaptor.FiberApp(a)(rec, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body)))
		assert.Equal(t, "streamed", rec.Body.String())
		assert.Zero(t, g.InUse())
	}
}

// A response stream may read the request's body while it is written: an echo.
func TestStreamReadsTheBody(t *testing.T) {
	b := budget(t, 1<<20)
	addr := serve(t, app(func(c *fiber.Ctx) error {
		body := fibergate.Body(c)
		c.Context().SetBodyStreamWriter(func(w *bufio.Writer) {
			_, err := io.Copy(w, body)
			if err != nil {
				_, _ = fmt.Fprintf(w, "%v", err)
			}
		})
		return nil
	}, fibergate.New(fibergate.Config{Gate: b})))
	for _, r := range []io.Reader{
		strings.NewReader(strings.Repeat("x", 100_000)), io.MultiReader(strings.NewReader(strings.Repeat("x", 100_000))),
	} {
		assert.Equal(t, strings.Repeat("x", 100_000), postBody(t, addr, "text/plain", r).text)
	}
	eventually(t, func() bool { return b.Snapshot().Inflight == 0 }, "leases leaked")
}

// multipartForm is a form with one file of n bytes.
func multipartForm(t *testing.T, n int) (body, contentType string) {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	part, err := w.CreateFormFile("files", "0.bin")
	require.NoError(t, err)
	_, err = part.Write(bytes.Repeat([]byte("x"), n))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.String(), w.FormDataContentType()
}

// A multipart upload is charged as it is read, and one that is too large is refused out
// of the form parser, whose error the handler returns.
func TestMultipartUpload(t *testing.T) {
	b := budget(t, 1<<20)
	addr := serve(t, app(func(c *fiber.Ctx) error {
		parts := multipart.NewReader(fibergate.Body(c), string(c.Request().Header.MultipartFormBoundary()))
		form, err := parts.ReadForm(1 << 20)
		if err != nil {
			return err
		}
		defer func() { _ = form.RemoveAll() }()
		total := form.File["files"][0].Size
		assert.Greater(t, b.Snapshot().InflightBytes, total)
		return c.SendString(fmt.Sprint(total))
	}, fibergate.New(fibergate.Config{Gate: b})))
	for _, chunked := range []bool{false, true} {
		for size, status := range map[int]int{100_000: http.StatusOK, 1_500_000: http.StatusRequestEntityTooLarge} {
			body, contentType := multipartForm(t, size)
			var r io.Reader = strings.NewReader(body)
			if chunked {
				r = io.MultiReader(r) // of a length that the client cannot know
			}
			a := postBody(t, addr, contentType, r)
			assert.Equal(t, status, a.StatusCode)
			if status == http.StatusOK {
				assert.Equal(t, fmt.Sprint(size), a.text)
			} else {
				assert.Equal(t, "payload_too_large", a.Header.Get(gate.MarkerHeader))
			}
		}
	}
	eventually(t, func() bool { return b.Snapshot().Inflight == 0 }, "leases leaked")
}

// backend answers how much it was sent, and how that was framed.
func backend(t *testing.T) *httptest.Server {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		_, _ = fmt.Fprint(w, n, " ", r.ContentLength, " ", r.TransferEncoding)
	}))
	t.Cleanup(srv.Close)
	return srv
}

// T22: a handler that forwards [fibergate.Body] by a net/http client sends no body where
// there is none, streams one under its lease, and gets its refusal.
func TestForward(t *testing.T) {
	back := backend(t)
	b := budget(t, 1<<20)
	addr := serve(t, app(func(c *fiber.Ctx) error {
		req, err := http.NewRequestWithContext(fibergate.Context(c), c.Method(), back.URL, fibergate.Body(c))
		if err != nil {
			return err
		}
		if req.Body != nil && req.Body != http.NoBody {
			req.ContentLength = int64(c.Request().Header.ContentLength())
		}
		resp, err := back.Client().Do(req) //nolint:bodyclose // SendStream does
		if err != nil {
			return err
		}
		return c.Status(resp.StatusCode).SendStream(resp.Body)
	}, fibergate.New(fibergate.Config{Gate: b})))

	c := dial(t, addr)
	c.say(head("GET /"))
	assert.Equal(t, "0 0 []", c.answer().text, "a request without a body got one")
	assert.Equal(t, "100000 100000 []", post(t, addr, 100_000).text)
	chunked := func(n int) io.Reader { return io.MultiReader(strings.NewReader(strings.Repeat("x", n))) }
	assert.Equal(t, "100000 -1 [chunked]", postBody(t, addr, "text/plain", chunked(100_000)).text)
	a := postBody(t, addr, "text/plain", chunked(2<<20))
	assert.Equal(t, http.StatusRequestEntityTooLarge, a.StatusCode)
	assert.Equal(t, "payload_too_large", a.Header.Get(gate.MarkerHeader))
	eventually(t, func() bool { return b.Snapshot().Inflight == 0 }, "leases leaked")
}

// Fiber's own proxy reads streamed bodies past the lease, whose announced length is
// charged; its answer passes, and the lease ends with the request, not with the proxy's
// use of the request's parts.
func TestFibersProxy(t *testing.T) {
	back := backend(t)
	for name, do := range map[string]fiber.Handler{
		"forward": proxy.Forward(back.URL),
		"timeout": func(c *fiber.Ctx) error { return proxy.DoTimeout(c, back.URL, hang) },
	} {
		t.Run(name, func(t *testing.T) {
			b := budget(t, 1<<20)
			var during int64
			addr := serve(t, app(func(c *fiber.Ctx) error {
				err := do(c)
				during = b.Snapshot().InflightBytes
				return err
			}, fibergate.New(fibergate.Config{Gate: b})))
			c := dial(t, addr)
			for range 3 {
				c.say(head("POST /", "Content-Length: 5000") + strings.Repeat("x", 5000))
				assert.Equal(t, "5000 5000 []", c.answer().text)
				assert.EqualValues(t, 5000, during)
			}
			assert.Equal(t, "100000 100000 []", post(t, addr, 100_000).text)
			assert.Equal(t, http.StatusRequestEntityTooLarge, post(t, addr, 2<<20).StatusCode)
			eventually(t, func() bool { return b.Snapshot().Inflight == 0 }, "leases leaked")
		})
	}
}

// A hijacked connection belongs to its handler, and the lease to it.
func TestF16HijackHolds(t *testing.T) {
	g := &gatetest.Slots{Limit: 1}
	let := make(chan struct{})
	addr := serve(t, app(func(c *fiber.Ctx) error {
		c.Context().HijackSetNoResponse(true)
		c.Context().Hijack(func(c net.Conn) {
			_, _ = io.WriteString(c, "mine")
			<-let
		})
		return nil
	}, fibergate.New(fibergate.Config{Gate: g})))
	for _, message := range []string{head("GET /"), head("POST /", "Content-Length: 20000") + strings.Repeat("x", 9000)} {
		c := dial(t, addr)
		c.say(message)
		p := make([]byte, 4)
		_, err := io.ReadFull(c.r, p)
		require.NoError(t, err)
		assert.Equal(t, "mine", string(p))
		assert.Equal(t, 1, g.InUse())
		let <- struct{}{}
		eventually(t, func() bool { return g.InUse() == 0 }, "the slot stayed")
	}
}

// T05: a client that is gone when its handshake is answered leaves a request that fasthttp
// forgets without closing anything. Its slot comes back with the garbage.
func TestT05HandshakeLost(t *testing.T) {
	g := &gatetest.Slots{Limit: 1}
	entered, let := make(chan struct{}), make(chan struct{})
	addr := serve(t, app(func(c *fiber.Ctx) error {
		entered <- struct{}{}
		<-let
		c.Context().Hijack(func(net.Conn) { t.Error("the session began") })
		return c.SendStatus(http.StatusSwitchingProtocols)
	}, fibergate.New(fibergate.Config{Gate: g})))
	c := dial(t, addr)
	c.say(head("GET /"))
	<-entered
	require.NoError(t, c.Conn.(*net.TCPConn).SetLinger(0))
	require.NoError(t, c.Close())
	time.Sleep(50 * time.Millisecond) // a reset takes its time, on a real socket
	close(let)
	eventually(t, func() bool { runtime.GC(); return g.InUse() == 0 }, "the slot of a lost handshake stayed")
}

// T13: a server that is shut down refuses who waits at once, whatever the request's own
// context is, and lets go on what runs.
func TestT13Shutdown(t *testing.T) {
	b := budget(t, 1<<40)
	all, err := b.Acquire(t.Context(), gate.Request{Bytes: b.Snapshot().MaxInflightBytes})
	require.NoError(t, err)
	runs, let := make(chan struct{}), make(chan struct{})
	a := fiber.New(streaming())
	a.Get("/runs", func(c *fiber.Ctx) error {
		close(runs)
		<-let
		return c.SendString(fmt.Sprint(fibergate.Context(c).Err()))
	})
	a.Post("/timed", func(c *fiber.Ctx) error {
		ctx, cancel := context.WithTimeout(c.UserContext(), time.Hour)
		defer cancel()
		c.SetUserContext(ctx)
		return c.Next()
	})
	a.Use(fibergate.New(fibergate.Config{Gate: b}))
	addr := serve(t, a)
	running := dial(t, addr)
	running.say(head("GET /runs"))
	<-runs
	var waiting []*conn
	for _, path := range []string{"/", "/timed"} {
		c := dial(t, addr)
		c.say(head("POST "+path, "Content-Length: 10") + "0123456789")
		waiting = append(waiting, c)
	}
	eventually(t, func() bool { return b.Snapshot().Waiting == 2 }, "they do not wait")
	down := make(chan error, 1)
	go func() { down <- a.ShutdownWithTimeout(hang) }()
	for _, c := range waiting {
		answer := c.answer()
		assert.Equal(t, http.StatusServiceUnavailable, answer.StatusCode)
		assert.Equal(t, "shutting_down", answer.Header.Get(gate.MarkerHeader))
	}
	close(let)
	assert.Equal(t, "<nil>", running.answer().text)
	for _, c := range append(waiting, running) {
		_ = c.Close()
	}
	require.NoError(t, <-down)
	all.Release()
}

// T13: a RequestCtx without a server, as unit tests make it, is enough.
func TestT13BareRequestCtx(t *testing.T) {
	g := &gatetest.Slots{Limit: 1}
	a := app(ok)
	for _, err := range []error{nil, gatetest.Refusal(gate.QueueFull)} {
		c := a.AcquireCtx(&fasthttp.RequestCtx{})
		require.NoError(t, fibergate.Acquire(c, g, gate.Request{}))
		assert.Equal(t, 1, g.InUse())
		fibergate.Release(c, g)
		assert.Equal(t, http.NoBody, fibergate.Body(c))
		assert.Equal(t, err != nil, fibergate.Refuse(c, err))
		if err == nil {
			assert.False(t, fibergate.Refuse(c, errors.New("mine")))
		}
		a.ReleaseCtx(c)
		assert.Zero(t, g.InUse())
	}
	assert.Equal(t, []gate.Request{
		{Weight: 1, Class: gate.Default, Method: "GET", Path: "/"}, {Weight: 1, Class: gate.Default, Method: "GET", Path: "/"},
	}, g.Requests())
}
