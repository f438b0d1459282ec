package gingate_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	gingate "github.com/headgate-go/headgate/adapters/gin"
	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/gatetest"
)

// T12: a lease is found by Context, whatever the engine's setting; by c itself only
// with ContextWithFallback.
func TestT12ContextWithFallback(t *testing.T) {
	for _, fallback := range []bool{false, true} {
		g := &gatetest.Slots{Limit: 1}
		h := app(func(c *gin.Context) {
			_, held := gate.LeaseOf(gingate.Context(c), g)
			assert.True(t, held)
			_, held = gate.LeaseOf(c, g)
			assert.Equal(t, fallback, held)
			assert.Equal(t, gate.Bulk, gate.Request{}.In(gingate.Context(c)).Class)
			ok(c)
		}, func(c *gin.Context) {
			gingate.SetClass(c, gate.Bulk)
		}, gingate.New(g))
		h.ContextWithFallback = fallback
		assert.Equal(t, http.StatusOK, get(h, "/").Code)
		assert.Equal(t, gate.Bulk, g.Requests()[0].Class)
		assert.Zero(t, g.InUse())
	}
	c := gin.CreateTestContextOnly(nil, gin.New())
	c.Request, _ = http.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
	assert.Panics(t, func() { gingate.SetClass(c, 99) })
}

// T04: HandleContext runs the chain again inside of itself. The request holds one slot
// of the gate that admitted it, keeps its body, and a gate that only the second pass
// meets is asked once for each pass.
func TestT04HandleContext(t *testing.T) {
	whole, other := &gatetest.Slots{Limit: 1}, &gatetest.Slots{Limit: 1}
	r := gin.New()
	r.Use(gingate.New(whole))
	r.POST("/start", func(c *gin.Context) {
		c.Set("key", "is lost by HandleContext")
		for range 2 {
			c.Request.URL.Path = "/end"
			r.HandleContext(c)
			assert.Equal(t, 1, whole.InUse())
			assert.Zero(t, other.InUse())
		}
		c.Abort() // Gin before 1.11 goes on with the handlers of the inner pass
	})
	passes := 0
	r.POST("/end", gingate.New(other), func(c *gin.Context) {
		passes++
		assert.Equal(t, 1, other.InUse())
		body, err := io.ReadAll(c.Request.Body)
		assert.NoError(t, err)
		c.String(http.StatusOK, "%d %d;", passes, len(body))
	})
	for range 3 {
		passes = 0
		rec := send(r, http.MethodPost, "/start", strings.NewReader("body"))
		assert.Equal(t, "1 4;2 0;", rec.Body.String())
	}
	assert.Zero(t, whole.InUse())
	assert.Len(t, whole.Requests(), 3)
	assert.Len(t, other.Requests(), 6)
}

// The passes of HandleContext may read the body in turns, though the gate that each
// meets is a new one for the request.
func TestHandleContextReadsOn(t *testing.T) {
	g := &gatetest.Slots{Limit: 1}
	r := gin.New()
	r.POST("/start", func(c *gin.Context) {
		for range 4 {
			c.Request.URL.Path = "/end"
			r.HandleContext(c)
		}
		c.Abort()
	})
	r.POST("/end", gingate.New(g), func(c *gin.Context) {
		p := make([]byte, 3)
		n, _ := io.ReadFull(c.Request.Body, p)
		c.String(http.StatusOK, "%s;", p[:n])
	})
	srv := serve(t, r)
	resp, err := srv.Client().Post(srv.URL+"/start", "text/plain", strings.NewReader("abcdefgh"))
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	assert.Equal(t, "abc;def;gh;;", string(text))
	assert.Zero(t, g.InUse())
}

// H3: a goroutine that goes on with c.Copy() inherits leases, class and flow, may ask a
// gate, and is told that the request is over.
func TestH3CopyInGoroutine(t *testing.T) {
	g, second := &gatetest.Slots{Limit: 100}, &gatetest.Slots{Limit: 100}
	var background sync.WaitGroup
	h := app(func(c *gin.Context) {
		copied := c.Copy()
		background.Add(1)
		answered := make(chan struct{})
		defer close(answered)
		go func() {
			defer background.Done()
			ctx := gingate.Context(copied)
			assert.Equal(t, "tenant", gate.Request{}.In(ctx).Flow)
			assert.NoError(t, gingate.Acquire(copied, second, gate.Request{}))
			defer gingate.Release(copied, second)
			<-answered
			<-ctx.Done()
			gingate.Release(copied, g)
			_, _ = io.Copy(io.Discard, copied.Request.Body)
		}()
		ok(c)
	}, gingate.New(g), func(c *gin.Context) {
		c.Request = c.Request.WithContext(gate.WithFlow(gingate.Context(c), "tenant", 1))
	})
	srv := serve(t, h)
	var clients sync.WaitGroup
	for i := range 4 {
		clients.Add(1)
		go func() {
			defer clients.Done()
			for range 25 {
				resp, err := srv.Client().Post(srv.URL, "text/plain", strings.NewReader(strings.Repeat("x", 100*i)))
				if !assert.NoError(t, err) {
					return
				}
				assert.Equal(t, http.StatusOK, resp.StatusCode)
				resp.Body.Close()
			}
		}()
	}
	clients.Wait()
	background.Wait()
	eventually(t, func() bool { return g.InUse()+second.InUse() == 0 }, "slots leaked")
}

// H3: contexts are used again by the engine; no answer holds anything of another's.
func TestH3MixedRequests(t *testing.T) {
	g, small := &gatetest.Slots{Limit: 2}, &gatetest.Slots{Limit: 1}
	r := gin.New()
	r.Use(gin.CustomRecoveryWithWriter(io.Discard, func(c *gin.Context, v any) { c.String(http.StatusInternalServerError, "%v", v) }))
	r.Use(gingate.New(g))
	r.POST("/:id", func(c *gin.Context) {
		if err := gingate.Acquire(c, small, gate.Request{}); gingate.Refuse(c, err) {
			return
		}
		defer gingate.Release(c, small)
		body, _ := io.ReadAll(c.Request.Body)
		if strings.HasSuffix(c.Param("id"), "0") {
			panic(c.Param("id"))
		}
		c.String(http.StatusOK, "%s %s", c.Param("id"), body)
	})
	var wg sync.WaitGroup
	for client := range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := range 500 {
				id := fmt.Sprintf("%d-%d", client, i)
				rec := send(r, http.MethodPost, "/"+id, strings.NewReader(id))
				switch body := rec.Body.String(); rec.Code {
				case http.StatusOK:
					assert.Equal(t, id+" "+id, body)
				case http.StatusInternalServerError:
					assert.Equal(t, id, body)
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
// is refused.
func TestAcquire(t *testing.T) {
	g := &gatetest.Slots{Limit: 1}
	r := gin.New()
	r.POST("/pot/:id", func(c *gin.Context) {
		before := c.Request
		assert.NoError(t, gingate.Acquire(c, g, gate.Request{Flow: "tenant"}))
		assert.NotSame(t, before, c.Request)
		held := c.Request
		assert.NoError(t, gingate.Acquire(c, g, gate.Request{}), "it is admitted already")
		assert.Same(t, held, c.Request)

		full := &gatetest.Slots{}
		assert.ErrorIs(t, gingate.Acquire(c, full, gate.Request{}), gate.QueueFull)
		assert.Same(t, held, c.Request)
		gingate.Release(c, full) // nothing is held: nothing happens
		assert.Equal(t, 1, g.InUse())
		gingate.Release(c, g)
		gingate.Release(c, g)
		assert.Zero(t, g.InUse())
	})
	send(r, http.MethodPost, "/pot/1", strings.NewReader("body"))
	require.Len(t, g.Requests(), 1)
	assert.Equal(t, gate.Request{
		Flow: "tenant", Weight: 1, Class: gate.Default, Bytes: 4, Method: "POST", Route: "/pot/:id", Path: "/pot/1",
	}, g.Requests()[0])
}

// T10: whatever ends the handlers releases once, and passes through.
func TestEveryEndReleases(t *testing.T) {
	for _, end := range []any{"boom", http.ErrAbortHandler} {
		g := &gatetest.Slots{Limit: 1}
		h := app(func(*gin.Context) { panic(end) }, gingate.New(g))
		assert.PanicsWithValue(t, end, func() { get(h, "/") })
		assert.Zero(t, g.InUse())
	}
	g := &gatetest.Slots{Limit: 1}
	h := app(unreached(t), gingate.New(g), func(c *gin.Context) { c.AbortWithStatus(http.StatusTeapot) })
	for range 3 {
		assert.Equal(t, http.StatusTeapot, get(h, "/").Code)
		assert.Zero(t, g.InUse())
	}
}

// The server's own request is not changed, nor what is no body.
func TestRequestIsCopied(t *testing.T) {
	var came *http.Request
	var inside *http.Request
	h := app(func(c *gin.Context) { inside = c.Request }, func(c *gin.Context) { came = c.Request }, gingate.New(&gatetest.Slots{Limit: 1}))
	get(h, "/")
	assert.NotSame(t, came, inside)
	assert.Equal(t, http.NoBody, inside.Body)
	body := io.NopCloser(strings.NewReader("body"))
	send(h, http.MethodPost, "/", body)
	assert.Equal(t, body, came.Body)
	assert.NotEqual(t, body, inside.Body)
	_, held := gate.LeaseOf(came.Context(), &gatetest.Slots{})
	assert.False(t, held)
	assert.NotErrorIs(t, came.Context().Err(), context.Canceled)
}
