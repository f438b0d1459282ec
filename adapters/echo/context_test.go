package echogate_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	echogate "github.com/headgate-go/headgate/adapters/echo"
	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/gatetest"
)

// A lease, a class and a flow are in the context of the request.
func TestContext(t *testing.T) {
	g := &gatetest.Slots{Limit: 1}
	e := app(func(c echo.Context) error {
		_, held := gate.LeaseOf(echogate.Context(c), g)
		assert.True(t, held)
		assert.Equal(t, gate.Bulk, gate.Request{}.In(echogate.Context(c)).Class)
		assert.Panics(t, func() { echogate.SetClass(c, 99) })
		return ok(c)
	}, before(func(c echo.Context) { echogate.SetClass(c, gate.Bulk) }), echogate.Middleware(g))
	assert.Equal(t, http.StatusOK, get(e, "/").Code)
	assert.Equal(t, gate.Bulk, g.Requests()[0].Class)
	assert.Zero(t, g.InUse())
}

// T04: a handler that sends its request through the app again holds one slot of the
// gate that admitted it, and one of a gate that only the second pass meets each time.
func TestT04DispatchedAgain(t *testing.T) {
	whole, other := &gatetest.Slots{Limit: 1}, &gatetest.Slots{Limit: 1}
	e := echo.New()
	e.Use(echogate.Middleware(whole))
	e.POST("/start", func(c echo.Context) error {
		for range 2 {
			again := c.Request().Clone(echogate.Context(c))
			again.URL.Path = "/end"
			e.ServeHTTP(c.Response(), again)
			assert.Equal(t, 1, whole.InUse())
			assert.Zero(t, other.InUse())
		}
		return nil
	})
	passes := 0
	e.POST("/end", func(c echo.Context) error {
		passes++
		assert.Equal(t, 1, other.InUse())
		body, err := io.ReadAll(c.Request().Body)
		assert.NoError(t, err)
		_, err = fmt.Fprintf(c.Response(), "%d %d;", passes, len(body))
		return err
	}, echogate.Middleware(other))
	for range 3 {
		passes = 0
		rec := send(e, http.MethodPost, "/start", strings.NewReader("body"))
		assert.Equal(t, "1 4;2 0;", rec.Body.String())
	}
	assert.Zero(t, whole.InUse())
	assert.Len(t, whole.Requests(), 3)
	assert.Len(t, other.Requests(), 6)
}

// A middleware in front that tries again what is behind it asks the gate anew, and the
// handler goes on reading where the first try has stopped.
func TestTriedAgain(t *testing.T) {
	g := &gatetest.Slots{Limit: 1}
	retry := func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			for range 3 {
				if err := next(c); err != nil {
					return err
				}
			}
			return nil
		}
	}
	srv := serve(t, app(func(c echo.Context) error {
		p := make([]byte, 3)
		n, _ := io.ReadFull(c.Request().Body, p)
		_, err := fmt.Fprintf(c.Response(), "%s;", p[:n])
		return err
	}, retry, echogate.Middleware(g)))
	resp, err := srv.Client().Post(srv.URL, "text/plain", strings.NewReader("abcdefgh"))
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	assert.Equal(t, "abc;def;gh;", string(text))
	assert.Len(t, g.Requests(), 3)
	assert.Zero(t, g.InUse())
}

// What Echo's middlewares put around the body in place hides nothing: a refusal after
// the body was read keeps the connection, one before closes it.
func TestBodyWrappedInPlace(t *testing.T) {
	for _, read := range []bool{true, false} {
		srv := serve(t, app(func(c echo.Context) error {
			if read {
				_, err := io.Copy(io.Discard, c.Request().Body)
				assert.NoError(t, err)
			}
			return gatetest.Refusal(gate.NoTarget)
		}, echogate.Middleware(&gatetest.Slots{Limit: 1}), middleware.BodyLimit("1M")))
		resp, _ := post(t, srv, 1000)
		assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
		assert.Equal(t, !read, resp.Close)
	}
}

// H3: contexts are used again by the app; no answer holds anything of another's.
func TestH3MixedRequests(t *testing.T) {
	g, small := &gatetest.Slots{Limit: 2}, &gatetest.Slots{Limit: 1}
	e := echo.New()
	e.Logger.SetOutput(io.Discard)
	e.Use(middleware.RecoverWithConfig(middleware.RecoverConfig{DisablePrintStack: true}))
	e.Use(echogate.Middleware(g))
	e.POST("/:id", func(c echo.Context) error {
		if err := echogate.Acquire(c, small, gate.Request{}); err != nil {
			return err
		}
		defer echogate.Release(c, small)
		body, err := io.ReadAll(c.Request().Body)
		if strings.HasSuffix(c.Param("id"), "0") {
			panic(echo.NewHTTPError(http.StatusTeapot, c.Param("id")))
		}
		if err != nil {
			return err
		}
		return c.String(http.StatusOK, fmt.Sprintf("%s %s", c.Param("id"), body))
	})
	var wg sync.WaitGroup
	for client := range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := range 500 {
				id := fmt.Sprintf("%d-%d", client, i)
				rec := send(e, http.MethodPost, "/"+id, strings.NewReader(id))
				switch body := rec.Body.String(); rec.Code {
				case http.StatusOK:
					assert.Equal(t, id+" "+id, body)
				case http.StatusTeapot:
					assert.Contains(t, body, id)
				default:
					assert.Equal(t, http.StatusServiceUnavailable, rec.Code)
					assert.Contains(t, body, `"code":"queue_full"`)
				}
			}
		}()
	}
	wg.Wait()
	assert.Zero(t, g.InUse()+small.InUse())
}

// Acquire fills what the caller left open, holds one lease, and changes nothing when it
// is refused; its error is the gate's.
func TestAcquire(t *testing.T) {
	g := &gatetest.Slots{Limit: 1}
	e := echo.New()
	e.POST("/pot/:id", func(c echo.Context) error {
		came := c.Request()
		assert.NoError(t, echogate.Acquire(c, g, gate.Request{Flow: "tenant"}))
		assert.NotSame(t, came, c.Request())
		held := c.Request()
		assert.NoError(t, echogate.Acquire(c, g, gate.Request{}), "it is admitted already")
		assert.Same(t, held, c.Request())

		full := &gatetest.Slots{}
		err := echogate.Acquire(c, full, gate.Request{})
		assert.Equal(t, gatetest.Refusal(gate.QueueFull), err)
		assert.Same(t, held, c.Request())
		echogate.Release(c, full) // nothing is held: nothing happens
		assert.Equal(t, 1, g.InUse())
		echogate.Release(c, g)
		echogate.Release(c, g)
		assert.Zero(t, g.InUse())
		return nil
	})
	send(e, http.MethodPost, "/pot/1", strings.NewReader("body"))
	require.Len(t, g.Requests(), 1)
	assert.Equal(t, gate.Request{
		Flow: "tenant", Weight: 1, Class: gate.Default, Bytes: 4, Method: "POST", Route: "/pot/:id", Path: "/pot/1",
	}, g.Requests()[0])
}

// T10: whatever ends the handler releases once, and passes through.
func TestEveryEndReleases(t *testing.T) {
	for _, end := range []any{"boom", http.ErrAbortHandler} {
		g := &gatetest.Slots{Limit: 1}
		e := app(func(echo.Context) error { panic(end) }, echogate.Middleware(g))
		assert.PanicsWithValue(t, end, func() { get(e, "/") })
		assert.Zero(t, g.InUse())
	}
	g := &gatetest.Slots{Limit: 1}
	deny := func(echo.HandlerFunc) echo.HandlerFunc { return func(echo.Context) error { return echo.ErrTeapot } }
	e := app(unreached(t), echogate.Middleware(g), deny)
	for range 3 {
		assert.Equal(t, http.StatusTeapot, get(e, "/").Code)
		assert.Zero(t, g.InUse())
	}
}

// The server's own request is not changed, nor what is no body.
func TestRequestIsCopied(t *testing.T) {
	var came, inside *http.Request
	e := app(func(c echo.Context) error { inside = c.Request(); return nil },
		before(func(c echo.Context) { came = c.Request() }), echogate.Middleware(&gatetest.Slots{Limit: 1}))
	get(e, "/")
	assert.NotSame(t, came, inside)
	assert.Equal(t, http.NoBody, inside.Body)
	body := io.NopCloser(strings.NewReader("body"))
	send(e, http.MethodPost, "/", body)
	assert.Equal(t, body, came.Body)
	assert.NotEqual(t, body, inside.Body)
}
