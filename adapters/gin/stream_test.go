package gingate_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	gingate "github.com/headgate-go/headgate/adapters/gin"
	"github.com/headgate-go/headgate/core/admission"
	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/gatetest"
)

// T05: a websocket holds its slot until the session ends, or the app gives it back.
func TestT05Websocket(t *testing.T) {
	g := &gatetest.Slots{Limit: 1}
	upgrader := websocket.Upgrader{}
	srv := serve(t, app(func(c *gin.Context) {
		conn, err := upgrader.Upgrade(c.Writer, c.Request, nil)
		if !assert.NoError(t, err) {
			return
		}
		defer conn.Close()
		if c.Query("early") != "" {
			gingate.Release(c, g)
		}
		for {
			kind, p, err := conn.ReadMessage()
			if err != nil || conn.WriteMessage(kind, p) != nil {
				return
			}
		}
	}, gingate.New(g)))
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

// T36, F3: Gin's event stream sends each event as it comes, and its slot is free when
// the client leaves.
func TestT36EventStream(t *testing.T) {
	g := &gatetest.Slots{Limit: 1}
	events := make(chan string)
	srv := serve(t, app(func(c *gin.Context) {
		c.Stream(func(io.Writer) bool {
			select {
			case e := <-events:
				c.SSEvent("message", e)
				return true
			case <-gingate.Context(c).Done():
				return false
			}
		})
	}, gingate.New(g)))
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
// out of Gin's form parser.
func TestMultipartUpload(t *testing.T) {
	b := budget(t, 1<<20)
	srv := serve(t, app(func(c *gin.Context) {
		files, err := c.MultipartForm()
		if gingate.Refuse(c, err) {
			return
		}
		if !assert.NoError(t, err) {
			return
		}
		total := int64(0)
		for _, f := range files.File["files"] {
			total += f.Size
		}
		assert.Greater(t, b.Snapshot().InflightBytes, total)
		c.String(http.StatusOK, "%d", total)
	}, gingate.New(b)))
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
	srv := serve(t, app(func(c *gin.Context) {
		proxy := httputil.NewSingleHostReverseProxy(target)
		proxy.FlushInterval, proxy.ErrorLog = -1, log.New(io.Discard, "", 0)
		proxy.ErrorHandler = func(_ http.ResponseWriter, _ *http.Request, err error) {
			if !gingate.Refuse(c, err) {
				c.AbortWithStatus(http.StatusBadGateway)
			}
		}
		proxy.ServeHTTP(c.Writer, c.Request)
	}, gingate.New(b)))

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

// T35: the handler gets the writer that it gets without the gate.
func TestT35WriterIsNotWrapped(t *testing.T) {
	var came gin.ResponseWriter
	h := app(func(c *gin.Context) {
		assert.Same(t, came, c.Writer)
	}, func(c *gin.Context) { came = c.Writer }, gingate.New(&gatetest.Slots{Limit: 1}))
	get(h, "/")
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", strings.NewReader("body")))
}
