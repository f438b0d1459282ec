package echogate_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"mime/multipart"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"github.com/gorilla/websocket"
	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	echogate "github.com/headgate-go/headgate/adapters/echo"
	"github.com/headgate-go/headgate/core/admission"
	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/gatetest"
)

// T05: a websocket holds its slot until the session ends, or the app gives it back.
func TestT05Websocket(t *testing.T) {
	g := &gatetest.Slots{Limit: 1}
	upgrader := websocket.Upgrader{}
	srv := serve(t, app(func(c echo.Context) error {
		conn, err := upgrader.Upgrade(c.Response(), c.Request(), nil)
		if !assert.NoError(t, err) {
			return nil
		}
		defer conn.Close()
		if c.QueryParam("early") != "" {
			echogate.Release(c, g)
		}
		for {
			kind, p, err := conn.ReadMessage()
			if err != nil || conn.WriteMessage(kind, p) != nil {
				return nil
			}
		}
	}, echogate.Middleware(g)))
	for query, held := range map[string]int{"": 1, "?early=1": 0} {
		conn, resp, err := websocket.DefaultDialer.DialContext(t.Context(), "ws"+strings.TrimPrefix(srv.URL, "http")+"/"+query, nil)
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
			_, resp, err := websocket.DefaultDialer.DialContext(t.Context(), "ws"+strings.TrimPrefix(srv.URL, "http"), nil)
			require.ErrorIs(t, err, websocket.ErrBadHandshake)
			assert.Equal(t, "queue_full", resp.Header.Get(gate.MarkerHeader))
		}
		conn.Close()
		eventually(t, func() bool { return g.InUse() == 0 }, "the end of the session did not free the slot")
	}
}

// T36, F3: an event stream sends each event as it comes, and its slot is free when the
// client leaves.
func TestT36EventStream(t *testing.T) {
	g := &gatetest.Slots{Limit: 1}
	events := make(chan string)
	srv := serve(t, app(func(c echo.Context) error {
		w := c.Response()
		w.Header().Set(echo.HeaderContentType, "text/event-stream")
		for {
			select {
			case e := <-events:
				fmt.Fprintf(w, "event:message\ndata:%s\n\n", e)
				w.Flush()
			case <-echogate.Context(c).Done():
				return nil
			}
		}
	}, echogate.Middleware(g)))
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, srv.URL, http.NoBody)
	require.NoError(t, err)
	go func() { events <- "one" }()
	resp, err := srv.Client().Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	assert.True(t, strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream"))
	r := bufio.NewReader(resp.Body)
	for _, next := range []string{"two", "three", ""} {
		event, err := r.ReadString('\n')
		require.NoError(t, err)
		data, err := r.ReadString('\n')
		require.NoError(t, err)
		assert.Equal(t, "event:message\ndata:", event+data[:5])
		_, _ = r.ReadString('\n')
		assert.Equal(t, 1, g.InUse())
		if next != "" {
			events <- next
		}
	}
	leave()
	eventually(t, func() bool { return g.InUse() == 0 }, "the stream's slot stayed")
}

func budget(t *testing.T, hardMax gate.Size) *admission.Budget {
	t.Helper()
	c := admission.DefaultConfig()
	c.HardMaxBodyBytes = hardMax
	b, err := admission.New(c)
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.Zero(t, b.Snapshot().InflightBytes)
		b.Close()
	})
	return b
}

// form is a multipart body with files of the given sizes.
func form(t *testing.T, sizes ...int) (body *bytes.Buffer, contentType string) {
	t.Helper()
	body = new(bytes.Buffer)
	w := multipart.NewWriter(body)
	for i, size := range sizes {
		part, err := w.CreateFormFile("files", fmt.Sprintf("%d.bin", i))
		require.NoError(t, err)
		_, err = part.Write(bytes.Repeat([]byte("x"), size))
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return body, w.FormDataContentType()
}

// A multipart upload is charged as it is read, and one that is too large is refused
// out of the form parser, whose error the handler returns.
func TestMultipartUpload(t *testing.T) {
	b := budget(t, 1<<20)
	srv := serve(t, app(func(c echo.Context) error {
		files, err := c.MultipartForm()
		if err != nil {
			return err
		}
		total := int64(0)
		for _, f := range files.File["files"] {
			total += f.Size
		}
		assert.Greater(t, b.Snapshot().InflightBytes, total)
		return c.String(http.StatusOK, fmt.Sprint(total))
	}, echogate.Middleware(b)))
	for _, chunked := range []bool{false, true} {
		for size, status := range map[int]int{100_000: http.StatusOK, 800_000: http.StatusRequestEntityTooLarge} {
			body, contentType := form(t, size, size/2)
			var r io.Reader = body
			if chunked {
				r = io.MultiReader(body) // of a length that the client cannot know
			}
			resp, err := srv.Client().Post(srv.URL, contentType, r)
			require.NoError(t, err)
			text, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			resp.Body.Close()
			assert.Equal(t, status, resp.StatusCode)
			if status == http.StatusOK {
				assert.Equal(t, fmt.Sprint(size+size/2), string(text))
			} else {
				assert.Equal(t, "payload_too_large", resp.Header.Get(gate.MarkerHeader))
			}
		}
	}
	eventually(t, func() bool { return b.Snapshot().Inflight == 0 }, "leases leaked")
}

// T22, F15: a reverse proxy in the handler sends no body where there is none, streams
// one under its lease, gets its refusal, and its abort passes through.
func TestReverseProxy(t *testing.T) {
	type seen struct {
		length   int64
		encoding []string
		n        int64
	}
	calls := make(chan seen, 1)
	backend := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		select {
		case calls <- seen{r.ContentLength, r.TransferEncoding, n}:
		default: // of a request that was cut off
		}
		if r.URL.Query().Get("break") == "" {
			fmt.Fprint(w, "from the back end")
			return
		}
		w.Header().Set("Content-Length", "1000")
		fmt.Fprint(w, "cut")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}))
	target, err := url.Parse(backend.URL)
	require.NoError(t, err)
	b := budget(t, 1<<20)
	srv := serve(t, app(func(c echo.Context) (failed error) {
		proxy := httputil.NewSingleHostReverseProxy(target)
		proxy.FlushInterval, proxy.ErrorLog = -1, log.New(io.Discard, "", 0)
		proxy.ErrorHandler = func(_ http.ResponseWriter, _ *http.Request, err error) { failed = err }
		proxy.ServeHTTP(c.Response(), c.Request())
		return failed
	}, echogate.Middleware(b)))

	resp, err := srv.Client().Get(srv.URL)
	require.NoError(t, err)
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	resp.Body.Close()
	assert.Equal(t, "from the back end", string(text))
	assert.Equal(t, seen{}, <-calls, "a request without a body got one")

	answer, _ := post(t, srv, 100_000)
	assert.Equal(t, http.StatusOK, answer.StatusCode)
	assert.Equal(t, seen{length: 100_000, n: 100_000}, <-calls)

	tooMuch := io.MultiReader(strings.NewReader(strings.Repeat("x", 2<<20)))
	resp, err = srv.Client().Post(srv.URL, "text/plain", tooMuch)
	require.NoError(t, err)
	resp.Body.Close()
	assert.Equal(t, http.StatusRequestEntityTooLarge, resp.StatusCode)
	assert.Equal(t, "payload_too_large", resp.Header.Get(gate.MarkerHeader))

	resp, err = srv.Client().Get(srv.URL + "/?break=1")
	require.NoError(t, err)
	_, err = io.ReadAll(resp.Body)
	require.Error(t, err, "the client took a cut answer for a whole one")
	resp.Body.Close()
	eventually(t, func() bool { return b.Snapshot().Inflight == 0 }, "leases leaked")
}

// Echo's own proxy makes a 502 of the gate's refusal, unless its ErrorHandler takes it
// out again.
func TestEchosProxy(t *testing.T) {
	backend := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, n)
	}))
	target, err := url.Parse(backend.URL)
	require.NoError(t, err)
	b := budget(t, 1<<20)
	unwrap := func(_ echo.Context, err error) error {
		if rej := (*gate.Rejection)(nil); errors.As(err, &rej) {
			return rej
		}
		return err
	}
	for status, onError := range map[int]func(echo.Context, error) error{
		http.StatusBadGateway: nil, http.StatusRequestEntityTooLarge: unwrap,
	} {
		e := echo.New()
		e.Use(echogate.Middleware(b), middleware.ProxyWithConfig(middleware.ProxyConfig{
			Balancer:     middleware.NewRoundRobinBalancer([]*middleware.ProxyTarget{{URL: target}}),
			ErrorHandler: onError,
		}))
		srv := serve(t, e)
		resp, body := post(t, srv, 100_000)
		assert.Equal(t, http.StatusOK, resp.StatusCode)
		assert.Equal(t, "100000", body)
		resp, err = srv.Client().Post(srv.URL, "text/plain", io.MultiReader(strings.NewReader(strings.Repeat("x", 2<<20))))
		require.NoError(t, err)
		resp.Body.Close()
		assert.Equal(t, status, resp.StatusCode)
		assert.Equal(t, onError != nil, resp.Header.Get(gate.MarkerHeader) != "")
	}
	eventually(t, func() bool { return b.Snapshot().Inflight == 0 }, "leases leaked")
}

// T35: the handler gets the response that it gets without the gate.
func TestT35WriterIsNotWrapped(t *testing.T) {
	var came *echo.Response
	var writer http.ResponseWriter
	e := app(func(c echo.Context) error {
		assert.Same(t, came, c.Response())
		assert.Same(t, writer, c.Response().Writer)
		return nil
	}, before(func(c echo.Context) { came, writer = c.Response(), c.Response().Writer }), echogate.Middleware(&gatetest.Slots{Limit: 1}))
	get(e, "/")
	send(e, http.MethodPost, "/", strings.NewReader("body"))
}
