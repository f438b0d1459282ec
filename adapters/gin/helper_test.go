package gingate_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/stretchr/testify/require"
)

// app returns an engine with the middlewares and a handler at GET and POST /.
func app(h gin.HandlerFunc, middlewares ...gin.HandlerFunc) *gin.Engine {
	r := gin.New()
	r.Use(middlewares...)
	r.GET("/", h)
	r.POST("/", h)
	return r
}

func ok(c *gin.Context) { c.String(http.StatusOK, "ok") }

func unreached(t *testing.T) gin.HandlerFunc {
	t.Helper()
	return func(*gin.Context) { t.Error("the handler ran") }
}

// send sends a request past the network and returns its answer.
func send(h http.Handler, method, path string, body io.Reader) *httptest.ResponseRecorder {
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, httptest.NewRequest(method, path, body))
	return rec
}

func get(h http.Handler, path string) *httptest.ResponseRecorder {
	return send(h, http.MethodGet, path, http.NoBody)
}

// serve starts a server on loopback.
func serve(t *testing.T, h http.Handler) *httptest.Server {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	srv.Client().Timeout = hang
	return srv
}

// hang is how long a test waits for something that must happen.
const hang = 20 * time.Second

// post sends n bytes over the network and returns the answer and its body.
func post(t *testing.T, srv *httptest.Server, n int) (*http.Response, string) {
	t.Helper()
	resp, err := srv.Client().Post(srv.URL, "text/plain", strings.NewReader(strings.Repeat("x", n)))
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp, string(text)
}

// eventually waits until what is true.
func eventually(t *testing.T, what func() bool, msg string) {
	t.Helper()
	require.Eventually(t, what, hang, time.Millisecond, msg)
}
