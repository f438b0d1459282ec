package fibergate_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/adaptor"
	fiberrecover "github.com/gofiber/fiber/v2/middleware/recover"
	"github.com/gofiber/fiber/v2/middleware/timeout"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	fibergate "github.com/headgate-go/headgate/adapters/fiber"
	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/gatetest"
	"github.com/headgate-go/headgate/core/inflight"
)

// A lease, a class and a flow are in c.UserContext(), and in what is started with it.
func TestContext(t *testing.T) {
	g := &gatetest.Slots{Limit: 1}
	a := app(func(c *fiber.Ctx) error {
		_, held := gate.LeaseOf(fibergate.Context(c), g)
		assert.True(t, held)
		assert.Equal(t, gate.Bulk, gate.Request{}.In(fibergate.Context(c)).Class)
		assert.Panics(t, func() { fibergate.SetClass(c, 99) })
		return ok(c)
	}, before(func(c *fiber.Ctx) { fibergate.SetClass(c, gate.Bulk) }), fibergate.New(fibergate.Config{Gate: g}))
	assert.Equal(t, http.StatusOK, get(t, a, "/").StatusCode)
	assert.Equal(t, gate.Bulk, g.Requests()[0].Class)
	assert.Zero(t, g.InUse())
}

// T04: a handler that sends its request through the app again holds one slot of the
// gate that admitted it, and one of a gate that only the second pass meets.
func TestT04DispatchedAgain(t *testing.T) {
	whole, other := &gatetest.Slots{Limit: 1}, &gatetest.Slots{Limit: 1}
	a := fiber.New(streaming())
	a.Use(fibergate.New(fibergate.Config{Gate: whole}))
	a.Post("/start", func(c *fiber.Ctx) error {
		c.Path("/end")
		err := c.RestartRouting()
		assert.Equal(t, 1, whole.InUse())
		assert.Zero(t, other.InUse())
		return err
	})
	a.Post("/end", fibergate.New(fibergate.Config{Gate: other}), func(c *fiber.Ctx) error {
		assert.Equal(t, 1, other.InUse())
		body, err := io.ReadAll(fibergate.Body(c))
		if err != nil {
			return err
		}
		return c.Send(body)
	})
	addr := serve(t, a)
	for range 3 {
		c := dial(t, addr)
		c.say(head("POST /start", "Content-Length: 4") + "body")
		assert.Equal(t, "body", c.answer().text)
	}
	eventually(t, func() bool { return whole.InUse() == 0 }, "a slot leaked")
	assert.Len(t, whole.Requests(), 3)
	assert.Len(t, other.Requests(), 3)
}

// A middleware in front that tries again what is behind it asks the gate anew, and the
// handler goes on reading where the first try has stopped.
func TestTriedAgain(t *testing.T) {
	g := &gatetest.Slots{Limit: 1}
	a := fiber.New(streaming())
	tries := 0
	a.Use(func(c *fiber.Ctx) error {
		if tries++; tries > 1 {
			return c.Next()
		}
		if err := c.Next(); err != nil {
			return err
		}
		for range 2 {
			if err := c.RestartRouting(); err != nil {
				return err
			}
		}
		return nil
	})
	a.Use(fibergate.New(fibergate.Config{Gate: g}))
	var read []string
	a.Post("/", func(c *fiber.Ctx) error {
		p := make([]byte, 3000)
		n, err := io.ReadFull(fibergate.Body(c), p)
		read = append(read, fmt.Sprint(n, " ", err == nil))
		return ok(c)
	})
	assert.Equal(t, "ok", post(t, serve(t, a), 8000).text)
	assert.Equal(t, []string{"3000 true", "3000 true", "2000 false"}, read)
	eventually(t, func() bool { return g.InUse() == 0 }, "a slot leaked")
	assert.Len(t, g.Requests(), len(read))
}

// H3: contexts are used again by the app; no answer holds anything of another's.
func TestH3MixedRequests(t *testing.T) {
	for _, config := range []fiber.Config{streaming(), {DisableStartupMessage: true}} {
		g, small := &gatetest.Slots{Limit: 2}, &gatetest.Slots{Limit: 1}
		a := fiber.New(config)
		a.Use(fiberrecover.New(), fibergate.New(fibergate.Config{Gate: g}))
		a.Post("/:id", func(c *fiber.Ctx) error {
			if err := fibergate.Acquire(c, small, gate.Request{}); err != nil {
				return err
			}
			defer fibergate.Release(c, small)
			body, err := io.ReadAll(fibergate.Body(c))
			if strings.HasSuffix(c.Params("id"), "0") {
				panic(fiber.NewError(http.StatusTeapot, c.Params("id")))
			}
			if err != nil {
				return err
			}
			return c.SendString(fmt.Sprintf("%s %s", c.Params("id"), body))
		})
		addr := serve(t, a)
		var wg sync.WaitGroup
		for client := range 8 {
			c := dial(t, addr)
			wg.Go(func() {
				for i := range 300 {
					id := fmt.Sprintf("%d-%d", client, i)
					c.say(head("POST /"+id, fmt.Sprint("Content-Length: ", len(id))) + id)
					switch r := c.answer(); r.StatusCode {
					case http.StatusOK:
						assert.Equal(t, id+" "+id, r.text)
					case http.StatusTeapot:
						assert.Contains(t, r.text, id)
					default:
						assert.Equal(t, http.StatusServiceUnavailable, r.StatusCode)
						assert.Contains(t, r.text, `"code":"queue_full"`)
					}
				}
			})
		}
		wg.Wait()
		eventually(t, func() bool { return g.InUse()+small.InUse() == 0 }, "slots leaked")
	}
}

// Acquire fills what the caller left open, holds one lease, and changes nothing when it
// is refused; its error is the gate's. What the handler forgets, the end of the request
// releases.
func TestAcquire(t *testing.T) {
	g, forgotten := &gatetest.Slots{Limit: 1}, &gatetest.Slots{Limit: 1}
	a := fiber.New(streaming())
	a.Post("/pot/:id", func(c *fiber.Ctx) error {
		require.NoError(t, fibergate.Acquire(c, g, gate.Request{Flow: "tenant"}))
		held := c.UserContext()
		require.NoError(t, fibergate.Acquire(c, g, gate.Request{}), "it is admitted already")
		assert.Equal(t, held, c.UserContext())

		full := &gatetest.Slots{}
		err := fibergate.Acquire(c, full, gate.Request{})
		assert.Equal(t, gatetest.Refusal(gate.QueueFull), err)
		assert.Equal(t, held, c.UserContext())
		fibergate.Release(c, full) // nothing is held: nothing happens
		assert.Equal(t, 1, g.InUse())
		fibergate.Release(c, g)
		fibergate.Release(c, g)
		assert.Zero(t, g.InUse())
		return fibergate.Acquire(c, forgotten, gate.Request{})
	})
	c := dial(t, serve(t, a))
	c.say(head("POST /pot/1", "Content-Length: 4") + "body")
	assert.Equal(t, http.StatusOK, c.answer().StatusCode)
	require.Len(t, g.Requests(), 1)
	assert.Equal(t, gate.Request{
		Flow: "tenant", Weight: 1, Class: gate.Default, Bytes: 4, Buffered: 4, Method: "POST", Route: "/pot/:id", Path: "/pot/1",
	}, g.Requests()[0])
	eventually(t, func() bool { return forgotten.InUse() == 0 }, "a forgotten lease stayed")
}

// T10: whatever ends the handler releases once, and passes through.
func TestT10EveryEndReleases(t *testing.T) {
	for _, end := range []any{"boom", http.ErrAbortHandler, nil} {
		g := &gatetest.Slots{Limit: 1}
		var caught any
		a := app(func(c *fiber.Ctx) error {
			c.Context().SetBodyStream(strings.NewReader("never sent"), -1)
			if end == nil {
				runtime.Goexit()
			}
			panic(end)
		}, func(c *fiber.Ctx) error {
			defer func() { caught = recover() }()
			return c.Next()
		}, fibergate.New(fibergate.Config{Gate: g}))
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = a.Test(httptest.NewRequest(http.MethodGet, "/", http.NoBody), 200) //nolint:bodyclose // there is none
		}()
		<-done
		assert.Equal(t, end, caught)
		assert.Zero(t, g.InUse())
	}
}

// T41: a net/http limiter behind Fiber's adaptor has let go when the handler runs.
func TestT41HTTPMiddlewareHoldsNothing(t *testing.T) {
	held, during := 0, -1
	limiter := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			held++
			defer func() { held-- }()
			next.ServeHTTP(w, r)
		})
	}
	get(t, app(func(c *fiber.Ctx) error { during = held; return ok(c) }, adaptor.HTTPMiddleware(limiter)), "/")
	assert.Zero(t, during)
}

// F4: what stands behind the gate may turn the request away.
func TestF4TurnedAway(t *testing.T) {
	g := &gatetest.Slots{Limit: 1}
	a := app(unreached(t), fibergate.New(fibergate.Config{Gate: g}), func(*fiber.Ctx) error { return fiber.ErrTeapot })
	for range 3 {
		assert.Equal(t, http.StatusTeapot, get(t, a, "/").StatusCode)
		assert.Zero(t, g.InUse())
	}
}

// In buffered mode a gate is told what lies in memory, and Body reads that, under the
// lease, as often as it is asked for.
func TestBuffered(t *testing.T) {
	g := &gatetest.Slots{Limit: 1}
	a := fiber.New(fiber.Config{DisableStartupMessage: true})
	a.Use(fibergate.New(fibergate.Config{Gate: g}))
	a.Post("/", func(c *fiber.Ctx) error {
		first, err := io.ReadAll(io.LimitReader(fibergate.Body(c), 4))
		if err != nil {
			return err
		}
		rest, err := io.ReadAll(fibergate.Body(c))
		if err != nil {
			return err
		}
		return c.SendString(fmt.Sprint(string(first), len(rest), len(c.Body())))
	})
	addr := serve(t, a)
	for _, r := range []io.Reader{strings.NewReader("body and more"), io.MultiReader(strings.NewReader("body and more"))} {
		assert.Equal(t, "body9 13", postBody(t, addr, "text/plain", r).text)
	}
	for _, q := range g.Requests() {
		assert.EqualValues(t, 13, q.Bytes)
		assert.EqualValues(t, 13, q.Buffered)
	}
	assert.Equal(t, 2, g.Bodies())
}

// A wait does not end with a context of the app's that ends later.
func TestKeptContext(t *testing.T) {
	var kept context.Context
	g := &gatetest.Slots{Limit: 1}
	a := app(func(c *fiber.Ctx) error { kept = fibergate.Context(c); return ok(c) }, fibergate.New(fibergate.Config{Gate: g}))
	get(t, a, "/")
	require.NoError(t, kept.Err())
	_, held := gate.LeaseOf(kept, g)
	assert.False(t, held)
}

// T03: with timeout.NewWithContext no more handlers run than the gate lets in, on
// whichever side of it the middleware stands, and a waiter leaves when its time is up.
func TestT03TimeoutWithContext(t *testing.T) {
	const limit, requests = 2, 12
	for _, outside := range []bool{true, false} {
		t.Run(fmt.Sprint("outside ", outside), func(t *testing.T) {
			c := inflight.DefaultConfig()
			c.MaxInflight, c.QueueTimeout, c.InteractiveReserve = limit, time.Hour, 0
			l, err := inflight.New(c)
			require.NoError(t, err)
			defer l.Close()
			var running, most atomic.Int64
			h := func(c *fiber.Ctx) error {
				if n := running.Add(1); n > most.Load() {
					most.Store(n)
				}
				defer running.Add(-1)
				<-c.UserContext().Done()
				return c.UserContext().Err()
			}
			m := fibergate.New(fibergate.Config{Gate: l})
			a := fiber.New(streaming())
			if outside {
				a.Get("/", m, timeout.NewWithContext(h, 20*time.Millisecond))
			} else {
				a.Get("/", timeout.NewWithContext(func(c *fiber.Ctx) error { return c.Next() }, 20*time.Millisecond), m, h)
			}
			addr := serve(t, a)
			statuses := make(chan int, requests)
			for range requests {
				c := dial(t, addr)
				c.say(head("GET /"))
				go func() { statuses <- c.answer().StatusCode }()
			}
			for range requests {
				assert.Contains(t, []int{http.StatusRequestTimeout, http.StatusServiceUnavailable}, <-statuses)
			}
			assert.LessOrEqual(t, most.Load(), int64(limit))
			for _, lane := range l.Snapshot().Lanes {
				assert.Zero(t, lane.Inflight)
				assert.Zero(t, lane.Queued)
			}
		})
	}
}
