package echogate_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
	"github.com/stretchr/testify/assert"

	echogate "github.com/headgate-go/headgate/adapters/echo"
	"github.com/headgate-go/headgate/core/gatetest"
)

func TestHeartbeat(t *testing.T) {
	for name, answer := range map[string]func(echo.Context, error) error{
		"answered": func(c echo.Context, err error) error { assert.True(t, echogate.Refuse(c, err)); return nil },
		"returned": func(_ echo.Context, err error) error { return err },
	} {
		t.Run(name, func(t *testing.T) {
			gatetest.Heartbeat(t, func(every time.Duration, wait func() error) http.Handler {
				e := echo.New()
				e.Use(echogate.Middleware(new(gatetest.Free)))
				e.POST("/", func(c echo.Context) error {
					_, _ = io.Copy(io.Discard, c.Request().Body)
					return echogate.Heartbeat(c, every, func() error { return answer(c, wait()) })
				})
				return e
			})
		})
	}
}

// The error of a handler that answers in time is Echo's to answer, and its writer is back.
func TestHeartbeatInTime(t *testing.T) {
	e, boom := echo.New(), errors.New("boom")
	w := httptest.NewRecorder()
	c := e.NewContext(httptest.NewRequest(http.MethodGet, "/", nil), w)
	err := echogate.Heartbeat(c, time.Hour, func() error {
		c.Response().Header().Set("X-A", "a")
		return boom
	})
	assert.Equal(t, boom, err)
	assert.False(t, c.Response().Committed)
	assert.Same(t, w, c.Response().Writer)
	assert.Equal(t, "a", w.Header().Get("X-A"))
}

// An error that the app's handler leaves unanswered is told all the same.
func TestHeartbeatUnanswered(t *testing.T) {
	w := httptest.NewRecorder()
	synctest.Test(t, func(t *testing.T) {
		e := echo.New()
		e.HTTPErrorHandler = func(error, echo.Context) {}
		e.GET("/", func(c echo.Context) error {
			err := echogate.Heartbeat(c, time.Second, func() error {
				time.Sleep(1500 * time.Millisecond)
				return errors.New("boom")
			})
			assert.True(t, c.Response().Committed)
			return err
		})
		e.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	})
	assert.Equal(t, ": queued\nevent: error\ndata: \n\n", w.Body.String())
}

// A panic after a comment adds no answer of Echo's to the stream, whose client is told that
// nothing comes.
func TestHeartbeatPanics(t *testing.T) {
	w := httptest.NewRecorder()
	synctest.Test(t, func(t *testing.T) {
		e := echo.New()
		e.Use(middleware.RecoverWithConfig(middleware.RecoverConfig{LogErrorFunc: func(_ echo.Context, err error, _ []byte) error { return err }}))
		e.GET("/", func(c echo.Context) error {
			defer func() { assert.Same(t, w, c.Response().Writer) }()
			return echogate.Heartbeat(c, time.Second, func() error {
				time.Sleep(1500 * time.Millisecond)
				panic("boom")
			})
		})
		e.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	})
	assert.Equal(t, http.StatusOK, w.Code)
	assert.Equal(t, ": queued\nevent: error\ndata: \n\n", w.Body.String())
}
