package echogate_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	echogate "github.com/headgate-go/headgate/adapters/echo"
	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/gatetest"
)

// problem is the body of a refusal as Echo's own error handler writes it.
func problem(rej *gate.Rejection) string {
	body, _ := rej.Render(gate.Problem)
	return string(body) + "\n"
}

// T31: the error that the middleware returns is Echo's, and holds the gate's. Echo's
// default handler answers it as every adapter does, in debug mode too.
func TestT31Refused(t *testing.T) {
	for _, debug := range []bool{false, true} {
		e := app(unreached(t), around(func(_ echo.Context, err error) error {
			he, isHTTPError := err.(*echo.HTTPError) //nolint:errorlint // as Echo looks at it
			require.True(t, isHTTPError)
			assert.Equal(t, http.StatusServiceUnavailable, he.Code)
			assert.ErrorIs(t, err, gate.QueueFull)
			var rej *gate.Rejection
			require.ErrorAs(t, he.Internal, &rej)
			assert.Equal(t, rej.Error(), fmt.Sprint(he.Message))
			assert.NotErrorAs(t, he.Internal, new(*echo.HTTPError))
			return err
		}), echogate.Middleware(&gatetest.Slots{}))
		e.Debug = debug
		for range 2 { // a fresh error each time
			rec := get(e, "/?pretty")
			assert.Equal(t, http.StatusServiceUnavailable, rec.Code)
			assert.JSONEq(t, problem(gatetest.Refusal(gate.QueueFull)), rec.Body.String())
			assert.Equal(t, []string{"application/problem+json"}, rec.Header().Values("Content-Type"))
			assert.Equal(t, []string{"queue_full"}, rec.Header().Values(gate.MarkerHeader))
			assert.Equal(t, []string{"3"}, rec.Header().Values("Retry-After"))
		}
		head := send(func() *echo.Echo { e.HEAD("/", unreached(t)); return e }(), http.MethodHead, "/", http.NoBody)
		assert.Equal(t, http.StatusServiceUnavailable, head.Code)
		assert.Empty(t, head.Body.String())
		assert.Equal(t, "queue_full", head.Header().Get(gate.MarkerHeader))
	}
}

// T31, T32: the app's error handler decides, once, and what it writes has the type that
// it wants; the headers stay.
func TestAppsErrorHandler(t *testing.T) {
	for name, test := range map[string]struct {
		handle func(he *echo.HTTPError, c echo.Context) error
		body   string
		kind   string
	}{
		"page": {func(he *echo.HTTPError, c echo.Context) error {
			return c.HTML(he.Code, fmt.Sprintf("<p>%v</p>", he.Message))
		}, "<p>refused locally by slots: queue full</p>", "text/html"},
		"text": {func(he *echo.HTTPError, c echo.Context) error {
			return c.String(he.Code, http.StatusText(he.Code))
		}, "Service Unavailable", "text/plain"},
		"own JSON": {func(he *echo.HTTPError, c echo.Context) error {
			return c.JSON(he.Code, echo.Map{"mine": he.Code})
		}, `{"mine":503}` + "\n", "application/json"},
		"Echo's": {func(he *echo.HTTPError, c echo.Context) error {
			c.Echo().DefaultHTTPErrorHandler(he, c)
			return nil
		}, problem(gatetest.Refusal(gate.QueueFull)), "application/problem+json"},
		"Refuse": {func(he *echo.HTTPError, c echo.Context) error {
			assert.True(t, echogate.Refuse(c, he))
			return nil
		}, strings.TrimSpace(problem(gatetest.Refusal(gate.QueueFull))), "application/problem+json"},
		"another status": {func(_ *echo.HTTPError, c echo.Context) error {
			return c.NoContent(http.StatusTeapot)
		}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			calls := 0
			for _, mw := range []echo.MiddlewareFunc{echogate.Middleware(&gatetest.Slots{}), middleware.Recover()} {
				calls = 0
				e := app(func(echo.Context) error { return fmt.Errorf("deep: %w", gatetest.Refusal(gate.QueueFull)) },
					echogate.Middleware(&gatetest.Slots{Limit: 1}), mw)
				e.HTTPErrorHandler = func(err error, c echo.Context) {
					calls++
					var he *echo.HTTPError
					require.ErrorAs(t, err, &he)
					assert.NoError(t, test.handle(he, c))
				}
				rec := get(e, "/")
				assert.Equal(t, test.body, rec.Body.String())
				assert.True(t, strings.HasPrefix(rec.Header().Get("Content-Type"), test.kind), rec.Header())
				assert.Equal(t, "queue_full", rec.Header().Get(gate.MarkerHeader))
				assert.Equal(t, "3", rec.Header().Get("Retry-After"))
				assert.Equal(t, 1, calls)
			}
		})
	}
}

// An error handler that leaves refusals to Refuse answers in the format of the
// middleware that refused, or around the handler that did.
func TestRefuseInErrorHandler(t *testing.T) {
	for _, limit := range []int{0, 1} {
		e := app(func(echo.Context) error { return gatetest.Refusal(gate.QueueFull) },
			echogate.WithConfig(echogate.Config{Gate: &gatetest.Slots{Limit: limit}, Format: gate.OpenAI}))
		e.HTTPErrorHandler = func(err error, c echo.Context) { assert.True(t, echogate.Refuse(c, err)) }
		rec := get(e, "/")
		body, contentType := gatetest.Refusal(gate.QueueFull).Render(gate.OpenAI)
		assert.Equal(t, string(body), rec.Body.String())
		assert.Equal(t, contentType, rec.Header().Get("Content-Type"))
	}
}

// What becomes of the error that a handler returns.
func TestHandlersErrors(t *testing.T) {
	rej := gatetest.Refusal(gate.NoTarget)
	wrapped := fmt.Errorf("back end: %w", rej)
	mine := errors.New("mine")
	teapot := echo.NewHTTPError(http.StatusTeapot, "short").SetInternal(rej)
	for name, test := range map[string]struct {
		err    error
		status int
		same   bool
	}{
		"refusal":                    {rej, http.StatusServiceUnavailable, false},
		"wrapped refusal":            {wrapped, http.StatusServiceUnavailable, false},
		"joined refusal":             {errors.Join(mine, rej), http.StatusServiceUnavailable, false},
		"the handler's own decision": {teapot, http.StatusTeapot, true},
		"nothing of a gate's":        {mine, http.StatusInternalServerError, true},
		"the context's error":        {context.Canceled, http.StatusInternalServerError, true},
		"none":                       {nil, http.StatusOK, true},
	} {
		for _, skip := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				mw := echogate.WithConfig(echogate.Config{Gate: &gatetest.Slots{Limit: 1}, Skipper: func(echo.Context) bool { return skip }})
				rec := get(app(func(echo.Context) error { return test.err }, around(func(_ echo.Context, err error) error {
					assert.Equal(t, test.same, err == test.err) //nolint:errorlint // the very error
					return err
				}), mw), "/")
				assert.Equal(t, test.status, rec.Code)
				assert.Equal(t, !test.same, rec.Header().Get(gate.MarkerHeader) != "")
			})
		}
	}
}

// A middleware in between that wraps errors does not make a 500 of a refusal, though
// Echo looks at the outermost error only.
func TestWrappedInBetween(t *testing.T) {
	wrap := around(func(_ echo.Context, err error) error { return fmt.Errorf("in between: %w", err) })
	rec := get(app(unreached(t), echogate.Middleware(&gatetest.Slots{Limit: 1}), wrap, echogate.Middleware(&gatetest.Slots{})), "/")
	assert.Equal(t, http.StatusServiceUnavailable, rec.Code)
	assert.Equal(t, problem(gatetest.Refusal(gate.QueueFull)), rec.Body.String())
}

// H9: to an answer that has begun nothing is added.
func TestH9AnswerHasBegun(t *testing.T) {
	for _, how := range []func(echo.Context, error) error{
		func(_ echo.Context, err error) error { return err },
		func(c echo.Context, err error) error { assert.True(t, echogate.Refuse(c, err)); return nil },
		func(c echo.Context, err error) error { c.Error(err); return err },
	} {
		rec := get(app(func(c echo.Context) error {
			assert.NoError(t, c.String(http.StatusOK, "begun"))
			return how(c, gatetest.Refusal(gate.NoTarget))
		}, echogate.Middleware(&gatetest.Slots{Limit: 1})), "/")
		assert.Equal(t, "begun", rec.Body.String())
		assert.Empty(t, rec.Header().Get(gate.MarkerHeader))
	}
}

// Refuse leaves alone what is no gate's refusal, and replaces what was planned.
func TestRefuse(t *testing.T) {
	rec := get(app(func(c echo.Context) error {
		for _, err := range []error{nil, errors.New("mine"), http.ErrBodyReadAfterClose, context.Canceled, echo.ErrNotFound} {
			assert.False(t, echogate.Refuse(c, err))
		}
		for _, name := range []string{"Content-Length", "Content-Type", "ETag", "Last-Modified"} {
			c.Response().Header().Set(name, "1")
		}
		assert.True(t, echogate.Refuse(c, fmt.Errorf("reading: %w", gatetest.Refusal(gate.PayloadTooLarge))))
		return nil
	}), "/")
	assert.Equal(t, http.StatusRequestEntityTooLarge, rec.Code)
	assert.Equal(t, "application/problem+json", rec.Header().Get("Content-Type"))
	for _, name := range []string{"Content-Length", "ETag", "Last-Modified", "Retry-After"} {
		assert.Empty(t, rec.Header().Get(name), name)
	}
}

// OnRefuse answers, gives the error handler an error of its own, or leaves it.
func TestOnRefuse(t *testing.T) {
	e := app(unreached(t), echogate.WithConfig(echogate.Config{
		Gate: &gatetest.Slots{},
		OnRefuse: func(c echo.Context, rej *gate.Rejection) error {
			switch c.QueryParam("how") {
			case "answer":
				return c.String(http.StatusTeapot, string(rej.Reason))
			case "error":
				return echo.ErrTooManyRequests
			case "wrap":
				return fmt.Errorf("mine: %w", rej)
			}
			return rej
		},
	}))
	for how, status := range map[string]int{"answer": 418, "error": 429, "wrap": 503, "": 503} {
		rec := get(e, "/?how="+how)
		assert.Equal(t, status, rec.Code)
		assert.Equal(t, "3", rec.Header().Get("Retry-After"))
		assert.Equal(t, "queue_full", rec.Header().Get(gate.MarkerHeader))
		if status == 503 {
			assert.Equal(t, problem(gatetest.Refusal(gate.QueueFull)), rec.Body.String())
		}
	}
}

// A refusal inside of Echo's middleware that compresses can be read.
func TestRefusedCompressed(t *testing.T) {
	e := app(unreached(t), middleware.Gzip(), echogate.Middleware(&gatetest.Slots{}))
	r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
	r.Header.Set("Accept-Encoding", "gzip")
	rec := httptest.NewRecorder()
	e.ServeHTTP(rec, r)
	text := rec.Body.Bytes()
	if rec.Header().Get("Content-Encoding") == "gzip" {
		zip, err := gzip.NewReader(bytes.NewReader(text))
		require.NoError(t, err)
		text, err = io.ReadAll(zip)
		require.NoError(t, err)
	}
	assert.Equal(t, problem(gatetest.Refusal(gate.QueueFull)), string(text))
}

// To a client that has left nothing is written, with writers that can be hijacked and
// with those of tests that cannot, whatever the error handler does; the log sees 499.
func TestCanceledWritesNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	logged := make(chan int, 1)
	log := around(func(c echo.Context, err error) error {
		var he *echo.HTTPError
		assert.ErrorAs(t, err, &he)
		assert.Equal(t, 499, he.Code)
		logged <- c.Response().Status
		return err
	})
	for _, err := range []error{gatetest.Refusal(gate.Canceled), fmt.Errorf("acquire: %w", context.Canceled)} {
		decisions := 0
		e := app(unreached(t), log, echogate.WithConfig(echogate.Config{
			Gate: &gatetest.Refusing{Err: err}, OnDecision: func(echogate.Decision) { decisions++ },
			OnRefuse: func(echo.Context, *gate.Rejection) error { t.Error("called"); return nil },
		}))
		rec := httptest.NewRecorder()
		e.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/", http.NoBody).WithContext(ctx))
		assert.Empty(t, rec.Body.String())
		assert.Empty(t, rec.Header())
		assert.Equal(t, 499, <-logged)
		assert.Equal(t, 1, decisions)
	}
	srv := serve(t, app(unreached(t), log, echogate.Middleware(&gatetest.Refusing{Err: gatetest.Refusal(gate.Canceled)})))
	_, err := srv.Client().Post(srv.URL, "text/plain", strings.NewReader("x")) //nolint:bodyclose // there is none
	require.Error(t, err, "the connection ends without an answer")
	assert.Equal(t, 499, <-logged)
}

// uncomparable is a gate that cannot be found again.
type uncomparable []int

func (uncomparable) Acquire(context.Context, gate.Request) (gate.Lease, error) {
	return gate.Lease{}, nil
}

func TestBadConfig(t *testing.T) {
	for name, c := range map[string]echogate.Config{
		"echogate: Config.Gate is nil":                      {},
		"echogate: Config.Gate: echogate_test.uncomparable": {Gate: uncomparable{}},
		"echogate: Config.Format: format 77":                {Gate: &gatetest.Slots{}, Format: 77},
	} {
		t.Run(name, func(t *testing.T) {
			mw, err := c.ToMiddleware()
			require.ErrorContains(t, err, name)
			assert.Nil(t, mw)
			assert.PanicsWithValue(t, err.Error(), func() { echogate.WithConfig(c) })
		})
	}
	assert.PanicsWithValue(t, "echogate: Config.Gate is nil", func() { echogate.Middleware((*gatetest.Slots)(nil)) })
	c := echogate.DefaultConfig
	c.Gate = &gatetest.Slots{Limit: 1}
	assert.Equal(t, http.StatusOK, get(app(ok, echogate.WithConfig(c)), "/").Code)
	assert.Nil(t, echogate.DefaultConfig.Gate)
}

// The hooks run without a lease in danger: a panic in any of them leaks nothing.
func TestPanickingHooks(t *testing.T) {
	for name, c := range map[string]echogate.Config{
		"Skipper":    {Skipper: func(echo.Context) bool { panic("hook") }},
		"Lane":       {Lane: func(echo.Context) string { panic("hook") }},
		"Flow":       {Flow: func(echo.Context) string { panic("hook") }},
		"Class":      {Class: func(echo.Context) gate.Class { panic("hook") }},
		"Cost":       {Cost: func(echo.Context) int64 { panic("hook") }},
		"Route":      {Route: func(echo.Context) string { panic("hook") }},
		"OnDecision": {OnDecision: func(echogate.Decision) { panic("hook") }},
	} {
		t.Run(name, func(t *testing.T) {
			g := &gatetest.Slots{Limit: 1}
			c.Gate = g
			e := app(unreached(t), echogate.WithConfig(c))
			assert.PanicsWithValue(t, "hook", func() { get(e, "/") })
			assert.Zero(t, g.InUse())
		})
	}
}
