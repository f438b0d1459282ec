package echogate_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/require"
)

// app returns an app with the middlewares and a handler at GET and POST /.
func app(h echo.HandlerFunc, middlewares ...echo.MiddlewareFunc) *echo.Echo {
	e := echo.New()
	e.Logger.SetOutput(io.Discard)
	e.Use(middlewares...)
	e.GET("/", h)
	e.POST("/", h)
	return e
}

func ok(c echo.Context) error { return c.String(http.StatusOK, "ok") }

func unreached(t *testing.T) echo.HandlerFunc {
	t.Helper()
	return func(echo.Context) error { t.Error("the handler ran"); return nil }
}

// before is a middleware that does something and goes on.
func before(do func(echo.Context)) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			do(c)
			return next(c)
		}
	}
}

// around is a middleware that sees, and may replace, the error of what is behind it.
func around(see func(echo.Context, error) error) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error { return see(c, next(c)) }
	}
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
