package fibergate_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/recover"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	fibergate "github.com/headgate-go/headgate/adapters/fiber"
	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/gatetest"
)

// problem is the body of a refusal as Fiber's own error handler leaves it to the gate.
func problem(rej *gate.Rejection) string {
	body, _ := rej.Render(gate.Problem)
	return string(body)
}

// T31, T33: Fiber's own ErrorHandler answers a refusal as every adapter does, and whoever
// stands in front sees its status and no error.
func TestT31Refused(t *testing.T) {
	a := app(unreached(t), func(c *fiber.Ctx) error {
		err := c.Next()
		require.NoError(t, err)
		assert.Equal(t, http.StatusServiceUnavailable, c.Response().StatusCode())
		return err
	}, fibergate.New(fibergate.Config{Gate: &gatetest.Slots{}}))
	for range 2 {
		r := get(t, a, "/")
		assert.Equal(t, http.StatusServiceUnavailable, r.StatusCode)
		assert.Equal(t, problem(gatetest.Refusal(gate.QueueFull)), r.text)
		assert.Equal(t, []string{"application/problem+json"}, r.Header.Values("Content-Type"))
		assert.Equal(t, []string{"queue_full"}, r.Header.Values(gate.MarkerHeader))
		assert.Equal(t, []string{"3"}, r.Header.Values("Retry-After"))
	}
	r := send(t, a, httptest.NewRequest(http.MethodHead, "/", http.NoBody))
	assert.Equal(t, http.StatusServiceUnavailable, r.StatusCode)
	assert.Empty(t, r.text)
	assert.Equal(t, "queue_full", r.Header.Get(gate.MarkerHeader))
}

// T31, T32: the app's ErrorHandler decides, once, and what it writes stays as it is; the
// headers stay too.
func TestAppsErrorHandler(t *testing.T) {
	for name, test := range map[string]struct {
		handle func(c *fiber.Ctx, e *fiber.Error, err error) error
		status int
		body   string
		kind   string
	}{
		"page": {func(c *fiber.Ctx, e *fiber.Error, _ error) error {
			return c.Status(e.Code).Type("html").SendString("<p>" + e.Message + "</p>")
		}, 503, "<p>refused locally by slots: queue full</p>", "text/html"},
		"own JSON": {func(c *fiber.Ctx, e *fiber.Error, _ error) error {
			return c.Status(e.Code).JSON(fiber.Map{"mine": e.Code})
		}, 503, `{"mine":503}`, "application/json"},
		"the text alone": {func(c *fiber.Ctx, e *fiber.Error, _ error) error {
			return c.Status(e.Code).SendString(e.Message)
		}, 503, problem(gatetest.Refusal(gate.QueueFull)), "application/problem+json"},
		"Fiber's": {func(c *fiber.Ctx, _ *fiber.Error, err error) error {
			return fiber.DefaultErrorHandler(c, err)
		}, 503, problem(gatetest.Refusal(gate.QueueFull)), "application/problem+json"},
		"Refuse": {func(c *fiber.Ctx, _ *fiber.Error, err error) error {
			assert.True(t, fibergate.Refuse(c, err))
			return nil
		}, 503, problem(gatetest.Refusal(gate.QueueFull)), "application/problem+json"},
		"another status": {func(c *fiber.Ctx, _ *fiber.Error, _ error) error {
			return c.SendStatus(http.StatusTeapot)
		}, 418, "I'm a teapot", "text/plain"},
		"a stream": {func(c *fiber.Ctx, e *fiber.Error, _ error) error {
			return c.Status(e.Code).SendStream(strings.NewReader("streamed"))
		}, 503, "streamed", "text/plain"},
		"an error": {func(*fiber.Ctx, *fiber.Error, error) error {
			return errors.New("mine")
		}, 500, "Internal Server Error", "text/plain"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, mw := range []fiber.Handler{fibergate.New(fibergate.Config{Gate: &gatetest.Slots{}}), recover.New()} {
				calls := 0
				config := streaming()
				config.ErrorHandler = func(c *fiber.Ctx, err error) error {
					calls++
					require.ErrorIs(t, err, gate.QueueFull)
					var e *fiber.Error
					require.ErrorAs(t, err, &e)
					return test.handle(c, e, err)
				}
				a := fiber.New(config)
				a.Use(fibergate.New(fibergate.Config{Gate: &gatetest.Slots{Limit: 1}}), mw)
				a.Get("/", func(*fiber.Ctx) error { return fmt.Errorf("deep: %w", gatetest.Refusal(gate.QueueFull)) })
				r := get(t, a, "/")
				assert.Equal(t, test.status, r.StatusCode)
				assert.Equal(t, test.body, r.text)
				assert.True(t, strings.HasPrefix(r.Header.Get("Content-Type"), test.kind), r.Header)
				assert.Equal(t, "queue_full", r.Header.Get(gate.MarkerHeader))
				assert.Equal(t, "3", r.Header.Get("Retry-After"))
				assert.Equal(t, 1, calls)
			}
		})
	}
}

// The ErrorHandler of a mounted app is the one that is asked below its prefix.
func TestMountedErrorHandler(t *testing.T) {
	config := streaming()
	config.ErrorHandler = func(c *fiber.Ctx, err error) error {
		return c.Status(http.StatusTeapot).SendString("mounted")
	}
	sub := fiber.New(config)
	sub.Get("/x", ok)
	a := fiber.New(streaming())
	a.Use(fibergate.New(fibergate.Config{Gate: &gatetest.Slots{}}))
	a.Mount("/sub", sub)
	r := get(t, a, "/sub/x")
	assert.Equal(t, "418 mounted", fmt.Sprint(r.StatusCode, " ", r.text))
	assert.Equal(t, http.StatusServiceUnavailable, get(t, a, "/").StatusCode)
}

// An ErrorHandler that leaves refusals to Refuse answers in the format of the middleware
// that refused, or around the handler that did.
func TestFormat(t *testing.T) {
	body, contentType := gatetest.Refusal(gate.QueueFull).Render(gate.OpenAI)
	for _, limit := range []int{0, 1} {
		for _, onError := range []fiber.ErrorHandler{nil, ownErrors} {
			config := streaming()
			config.ErrorHandler = onError
			a := fiber.New(config)
			a.Use(fibergate.New(fibergate.Config{Gate: &gatetest.Slots{Limit: limit}, Format: gate.OpenAI}))
			a.Use(fibergate.New(fibergate.Config{Gate: &gatetest.Slots{Limit: 1}}))
			a.Get("/", func(c *fiber.Ctx) error {
				if c.Query("refuse") != "" {
					assert.True(t, fibergate.Refuse(c, gatetest.Refusal(gate.QueueFull)))
					return nil
				}
				return gatetest.Refusal(gate.QueueFull)
			})
			for _, path := range []string{"/", "/?refuse=1"} {
				r := get(t, a, path)
				assert.Equal(t, string(body), r.text)
				assert.Equal(t, contentType, r.Header.Get("Content-Type"))
			}
		}
	}
}

// decided is an error that holds a refusal and says how it is answered.
type decided struct{ error }

func (d decided) Unwrap() []error {
	return []error{d.error, fiber.NewError(http.StatusTeapot, "short")}
}

// What becomes of the error that a handler returns.
func TestHandlersErrors(t *testing.T) {
	rej := gatetest.Refusal(gate.NoTarget)
	mine := errors.New("mine")
	for name, test := range map[string]struct {
		err    error
		status int
		same   bool
	}{
		"refusal":                    {rej, http.StatusServiceUnavailable, false},
		"wrapped refusal":            {fmt.Errorf("back end: %w", rej), http.StatusServiceUnavailable, false},
		"joined refusal":             {errors.Join(mine, rej), http.StatusServiceUnavailable, false},
		"the handler's own decision": {decided{rej}, http.StatusTeapot, true},
		"nothing of a gate's":        {mine, http.StatusInternalServerError, true},
		"the context's error":        {context.Canceled, http.StatusInternalServerError, true},
		"none":                       {nil, http.StatusOK, true},
	} {
		for _, skip := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				mw := fibergate.New(fibergate.Config{Gate: &gatetest.Slots{Limit: 1}, Next: func(*fiber.Ctx) bool { return skip }})
				r := get(t, app(func(*fiber.Ctx) error { return test.err }, func(c *fiber.Ctx) error {
					err := c.Next()
					if test.same {
						assert.Equal(t, test.err, err)
					} else {
						assert.NoError(t, err)
					}
					return err
				}, mw), "/")
				assert.Equal(t, test.status, r.StatusCode)
				assert.Equal(t, !test.same, r.Header.Get(gate.MarkerHeader) != "")
			})
		}
	}
}

// H9: there is exactly one answer, whatever was begun before.
func TestH9OneAnswer(t *testing.T) {
	for _, how := range []func(*fiber.Ctx, error) error{
		func(_ *fiber.Ctx, err error) error { return err },
		func(c *fiber.Ctx, err error) error { assert.True(t, fibergate.Refuse(c, err)); return nil },
	} {
		r := get(t, app(func(c *fiber.Ctx) error {
			c.Set(fiber.HeaderETag, `"1"`)
			c.Set(fiber.HeaderRetryAfter, "99")
			_ = c.Status(http.StatusCreated).SendString("begun")
			return how(c, gatetest.Refusal(gate.NoTarget))
		}, fibergate.New(fibergate.Config{Gate: &gatetest.Slots{Limit: 1}})), "/")
		assert.Equal(t, http.StatusServiceUnavailable, r.StatusCode)
		assert.Equal(t, problem(gatetest.Refusal(gate.NoTarget)), r.text)
		assert.Equal(t, []string{"3"}, r.Header.Values("Retry-After"))
		assert.Empty(t, r.Header.Get("Etag"))
	}
}

// The error of a gate that is none of ours is kept to ourselves.
func TestForeignErrors(t *testing.T) {
	r := get(t, app(unreached(t), fibergate.New(fibergate.Config{Gate: &gatetest.Refusing{Err: errors.New("secret")}})), "/")
	assert.Equal(t, http.StatusServiceUnavailable, r.StatusCode)
	assert.Equal(t, "gate_failed", r.Header.Get(gate.MarkerHeader))
	assert.NotContains(t, r.text, "secret")
}

// OnRefuse answers, leaves it to the middleware, or to the ErrorHandler.
func TestOnRefuse(t *testing.T) {
	for name, test := range map[string]struct {
		custom func(*fiber.Ctx, *gate.Rejection) error
		want   string
	}{
		"answers": {func(c *fiber.Ctx, rej *gate.Rejection) error { return c.SendString("mine: " + string(rej.Reason)) }, "503 mine: queue_full"},
		"leaves":  {func(_ *fiber.Ctx, rej *gate.Rejection) error { return rej }, "503 " + problem(gatetest.Refusal(gate.QueueFull))},
		"decides": {func(*fiber.Ctx, *gate.Rejection) error { return fiber.ErrTeapot }, "418 I'm a teapot"},
	} {
		t.Run(name, func(t *testing.T) {
			r := get(t, app(unreached(t), fibergate.New(fibergate.Config{Gate: &gatetest.Slots{}, OnRefuse: test.custom})), "/")
			assert.Equal(t, test.want, fmt.Sprint(r.StatusCode, " ", r.text))
			assert.Equal(t, "queue_full", r.Header.Get(gate.MarkerHeader))
			assert.Equal(t, "3", r.Header.Get("Retry-After"))
		})
	}
}

// To a request whose context was cancelled nothing is written; in a log it is a 499.
func TestCancelled(t *testing.T) {
	status := make(chan int, 1)
	addr := serve(t, app(unreached(t), func(c *fiber.Ctx) error {
		ctx, cancel := context.WithCancel(c.UserContext())
		cancel()
		c.SetUserContext(ctx)
		err := c.Next()
		status <- c.Response().StatusCode()
		return err
	}, fibergate.New(fibergate.Config{
		Gate:     &gatetest.Refusing{Err: gatetest.Refusal(gate.Canceled)},
		OnRefuse: func(*fiber.Ctx, *gate.Rejection) error { t.Error("asked to answer"); return nil },
	})))
	c := dial(t, addr)
	c.say(head("GET /"))
	assert.Empty(t, c.rest())
	assert.Equal(t, 499, <-status)
}

// Configurations that cannot work are found when the middleware is made.
func TestNewPanics(t *testing.T) {
	type uncomparable struct {
		gatetest.Refusing
		_ []int
	}
	for _, test := range []struct {
		config []fibergate.Config
		want   string
	}{
		{nil, "fibergate: Config.Gate is nil"},
		{[]fibergate.Config{{}}, "fibergate: Config.Gate is nil"},
		{[]fibergate.Config{{Gate: (*gatetest.Slots)(nil)}}, "fibergate: Config.Gate is nil"},
		{[]fibergate.Config{{Gate: &gatetest.Slots{}, Format: 99}}, "fibergate: Config.Format: format 99 does not exist"},
	} {
		assert.PanicsWithValue(t, test.want, func() { fibergate.New(test.config...) })
	}
	assert.Panics(t, func() { fibergate.New(fibergate.Config{Gate: valueGate{uncomparable{}}}) })
}

// valueGate is a gate that cannot be compared.
type valueGate struct{ any }

func (valueGate) Acquire(context.Context, gate.Request) (gate.Lease, error) { return gate.Lease{}, nil }
