package gingate_test

import (
	"io"
	stdlog "log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/stretchr/testify/assert"

	gingate "github.com/headgate-go/headgate/adapters/gin"
	"github.com/headgate-go/headgate/core/gatetest"
)

func TestHeartbeat(t *testing.T) {
	gatetest.Heartbeat(t, func(every time.Duration, wait func() error) http.Handler {
		engine := gin.New()
		engine.POST("/", func(c *gin.Context) {
			_, _ = io.Copy(io.Discard, c.Request.Body)
			gingate.Heartbeat(c, every, func() { assert.True(t, gingate.Refuse(c, wait())) })
		})
		return engine
	})
}

// What a handler does with Gin's writer comes out as without Heartbeat, and middlewares
// around it see the same.
func TestHeartbeatInTime(t *testing.T) {
	for name, handler := range map[string]gin.HandlerFunc{
		"nothing":     func(*gin.Context) {},
		"status":      func(c *gin.Context) { c.Status(http.StatusNoContent) },
		"status, now": func(c *gin.Context) { c.Status(http.StatusTeapot); c.Writer.WriteHeaderNow() },
		"abort":       func(c *gin.Context) { c.AbortWithStatus(http.StatusForbidden) },
		"JSON":        func(c *gin.Context) { c.Header("X-A", "a"); c.JSON(http.StatusCreated, gin.H{"a": 1}) },
		"event":       func(c *gin.Context) { c.SSEvent("message", "a"); c.Writer.Flush(); c.SSEvent("message", "b") },
		"string": func(c *gin.Context) {
			_, err := c.Writer.WriteString("text")
			assert.NoError(t, err)
			c.Status(http.StatusBadGateway) // too late
		},
	} {
		type seen struct {
			status, size int
			written      bool
			code         int
			body         string
			header       http.Header
		}
		var got [2]seen
		for i := range got {
			engine := gin.New()
			engine.GET("/", func(c *gin.Context) {
				c.Next()
				got[i] = seen{status: c.Writer.Status(), size: c.Writer.Size(), written: c.Writer.Written()}
			}, func(c *gin.Context) {
				if i == 0 {
					handler(c)
					return
				}
				gingate.Heartbeat(c, time.Hour, func() {
					handler(c)
					assert.Equal(t, got[0].written, c.Writer.Written(), name)
					assert.Equal(t, got[0].status, c.Writer.Status(), name)
					assert.Equal(t, got[0].size, c.Writer.Size(), name)
				})
			})
			w := httptest.NewRecorder()
			engine.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
			got[i].code, got[i].body, got[i].header = w.Code, w.Body.String(), w.Result().Header
		}
		assert.Equal(t, got[0], got[1], name)
	}
}

// After a comment a status alone is told too, as Gin sends it in the end, and so is a panic.
func TestHeartbeatLate(t *testing.T) {
	for name, c := range map[string]struct {
		handler gin.HandlerFunc
		want    string
	}{
		"nothing":       {func(*gin.Context) {}, ""},
		"a status":      {func(c *gin.Context) { c.Status(http.StatusBadGateway) }, "event: error\ndata: \n\n"},
		"a good status": {func(c *gin.Context) { c.Status(http.StatusNoContent) }, ""},
		"a panic":       {func(*gin.Context) { panic("boom") }, "event: error\ndata: \n\n"},
	} {
		w := httptest.NewRecorder()
		synctest.Test(t, func(*testing.T) {
			engine := gin.New()
			engine.Use(gin.RecoveryWithWriter(io.Discard))
			engine.GET("/", func(g *gin.Context) {
				gingate.Heartbeat(g, time.Second, func() {
					time.Sleep(1500 * time.Millisecond)
					c.handler(g)
				})
			})
			engine.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		})
		assert.Equal(t, http.StatusOK, w.Code, name)
		assert.Equal(t, ": queued\n"+c.want, w.Body.String(), name)
	}
}

// Who takes the connection over gets no comments into it.
func TestHeartbeatIsHijacked(t *testing.T) {
	engine, taken := gin.New(), make(chan struct{})
	engine.GET("/", func(c *gin.Context) {
		gingate.Heartbeat(c, time.Millisecond, func() {
			conn, _, err := c.Writer.Hijack()
			if assert.NoError(t, err) {
				assert.True(t, c.Writer.Written())
				time.Sleep(20 * time.Millisecond) // on the socket's clock: a comment would be logged
				_, _ = io.WriteString(conn, "HTTP/1.0 204 No Content\r\n\r\n")
				_ = conn.Close()
			}
		})
		close(taken)
	})
	var log strings.Builder
	srv := httptest.NewUnstartedServer(engine)
	srv.Config.ErrorLog = stdlog.New(&log, "", 0)
	srv.Start()
	resp, err := srv.Client().Get(srv.URL)
	if assert.NoError(t, err) {
		assert.Equal(t, http.StatusNoContent, resp.StatusCode)
		assert.NoError(t, resp.Body.Close())
	}
	<-taken
	srv.Close()
	assert.Empty(t, log.String())
}
