package gingate_test

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

	"github.com/gin-gonic/gin"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	gingate "github.com/headgate-go/headgate/adapters/gin"
	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/gatetest"
)

// T34: a refusal ends the chain, whatever a middleware in front does afterwards, and
// nothing is added to it.
func TestT34RefusalAborts(t *testing.T) {
	var aborted bool
	outer := func(c *gin.Context) {
		c.Header("Content-Type", "text/csv") // of the answer that was planned
		c.Next()
		aborted = c.IsAborted()
		c.Next() // harmless
	}
	rec := get(app(unreached(t), outer, gingate.New(&gatetest.Slots{}), unreached(t)), "/")
	body, contentType := gatetest.Refusal(gate.QueueFull).Render(gate.Problem)
	assert.Equal(t, http.StatusServiceUnavailable, rec.Code)
	assert.Equal(t, string(body), rec.Body.String())
	assert.Equal(t, []string{contentType}, rec.Header().Values("Content-Type"))
	assert.Equal(t, "queue_full", rec.Header().Get(gate.MarkerHeader))
	assert.Equal(t, "3", rec.Header().Get("Retry-After"))
	assert.True(t, aborted)

	head := send(func() http.Handler {
		r := gin.New()
		r.Use(gingate.New(&gatetest.Slots{}))
		r.HEAD("/", unreached(t))
		return r
	}(), http.MethodHead, "/", http.NoBody)
	assert.Equal(t, http.StatusServiceUnavailable, head.Code)
	assert.Equal(t, "queue_full", head.Header().Get(gate.MarkerHeader))
}

// Refuse ends the chain as well, replaces what was planned, and leaves alone what is
// no gate's refusal and what has begun.
func TestRefuse(t *testing.T) {
	rej := fmt.Errorf("reading: %w", gatetest.Refusal(gate.PayloadTooLarge))
	rec := get(app(unreached(t), func(c *gin.Context) {
		for _, err := range []error{nil, errors.New("mine"), http.ErrBodyReadAfterClose, context.Canceled} {
			assert.False(t, gingate.Refuse(c, err))
			assert.False(t, c.IsAborted())
		}
		c.Header("Content-Length", "1000000")
		c.Header("ETag", `"x"`)
		assert.True(t, gingate.Refuse(c, rej))
	}), "/")
	assert.Equal(t, http.StatusRequestEntityTooLarge, rec.Code)
	assert.Equal(t, "payload_too_large", rec.Header().Get(gate.MarkerHeader))
	assert.Empty(t, rec.Header().Get("ETag"))
	assert.Empty(t, rec.Header().Get("Retry-After"))

	rec = get(app(unreached(t), func(c *gin.Context) {
		c.String(http.StatusOK, "begun")
		assert.True(t, gingate.Refuse(c, rej))
	}), "/")
	assert.Equal(t, "begun", rec.Body.String())
	assert.Empty(t, rec.Header().Get(gate.MarkerHeader))
}

// An app whose own middleware answers errors gets the refusal there.
func TestOnRefuse(t *testing.T) {
	answers := 0
	central := func(c *gin.Context) {
		c.Next()
		if last := c.Errors.Last(); last != nil {
			answers++
			var rej *gate.Rejection
			require.ErrorAs(t, last, &rej)
			c.String(rej.Status(), "central: %s", rej.Reason)
		}
	}
	mw := gingate.WithConfig(gingate.Config{Gate: &gatetest.Slots{}, OnRefuse: func(c *gin.Context, rej *gate.Rejection) bool {
		if c.Query("mine") == "" {
			return false
		}
		_ = c.Error(rej)
		return true
	}})
	h := app(unreached(t), central, mw)
	rec := get(h, "/?mine=1")
	assert.Equal(t, http.StatusServiceUnavailable, rec.Code)
	assert.Equal(t, "central: queue_full", rec.Body.String())
	assert.Equal(t, "3", rec.Header().Get("Retry-After"))
	assert.Equal(t, 1, answers)
	assert.Contains(t, get(h, "/").Body.String(), `"code":"queue_full"`)
	assert.Equal(t, 1, answers)
	rec = get(app(unreached(t), mw), "/?mine=1") // the central middleware is missing
	assert.Equal(t, http.StatusServiceUnavailable, rec.Code)
	assert.Empty(t, rec.Body.String())
}

// A central error middleware in front of the gate may call Refuse when the handlers
// are done: it answers in their format and knows that the body was read.
func TestRefuseAfterTheHandlers(t *testing.T) {
	central := func(c *gin.Context) {
		c.Next()
		if last := c.Errors.Last(); last != nil {
			assert.True(t, gingate.Refuse(c, last))
		}
	}
	mw := gingate.WithConfig(gingate.Config{Gate: &gatetest.Slots{Limit: 1}, Format: gate.OpenAI})
	srv := serve(t, app(func(c *gin.Context) {
		_, err := io.Copy(io.Discard, c.Request.Body)
		assert.NoError(t, err)
		_ = c.Error(gatetest.Refusal(gate.NoTarget))
	}, central, mw))
	for range 3 {
		resp, body := post(t, srv, 1000)
		assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
		assert.Contains(t, body, `"error"`)
		assert.False(t, resp.Close)
	}
}

// Gin's habit of putting a limit around the body in place hides nothing: a refusal
// after the body was read keeps the connection, one before closes it.
func TestBodyWrappedInPlace(t *testing.T) {
	for _, read := range []bool{true, false} {
		srv := serve(t, app(func(c *gin.Context) {
			c.Request.Body = http.MaxBytesReader(c.Writer, c.Request.Body, 1<<20)
			if read {
				_, err := io.Copy(io.Discard, c.Request.Body)
				assert.NoError(t, err)
			}
			assert.True(t, gingate.Refuse(c, gatetest.Refusal(gate.NoTarget)))
		}, gingate.New(&gatetest.Slots{Limit: 1})))
		resp, _ := post(t, srv, 1000)
		assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
		assert.Equal(t, !read, resp.Close)
	}
}

// compressed is the writer of a middleware that compresses whatever is written.
type compressed struct {
	gin.ResponseWriter
	zip *gzip.Writer
}

func (w *compressed) Write(p []byte) (int, error)       { return w.zip.Write(p) }
func (w *compressed) WriteString(s string) (int, error) { return w.zip.Write([]byte(s)) }

// A refusal inside of a middleware that compresses can be read.
func TestRefusedCompressed(t *testing.T) {
	compress := func(c *gin.Context) {
		c.Header("Content-Encoding", "gzip")
		zip := gzip.NewWriter(c.Writer)
		defer zip.Close()
		c.Writer = &compressed{c.Writer, zip}
		c.Next()
	}
	rec := get(app(unreached(t), compress, gingate.New(&gatetest.Slots{})), "/")
	require.Equal(t, "gzip", rec.Header().Get("Content-Encoding"))
	r, err := gzip.NewReader(bytes.NewReader(rec.Body.Bytes()))
	require.NoError(t, err)
	text, err := io.ReadAll(r)
	require.NoError(t, err)
	body, _ := gatetest.Refusal(gate.QueueFull).Render(gate.Problem)
	assert.Equal(t, string(body), string(text))
}

// To a client that has left nothing is written, with writers that can be hijacked and
// with those of tests that cannot; the log sees 499.
func TestCanceledWritesNothing(t *testing.T) {
	logged := make(chan int, 1)
	logger := func(c *gin.Context) {
		c.Next()
		logged <- c.Writer.Status()
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range []error{gatetest.Refusal(gate.Canceled), fmt.Errorf("acquire: %w", context.Canceled)} {
		decisions := 0
		h := app(unreached(t), logger, gingate.WithConfig(gingate.Config{
			Gate: &gatetest.Refusing{Err: err}, OnDecision: func(gingate.Decision) { decisions++ },
			OnRefuse: func(*gin.Context, *gate.Rejection) bool { t.Error("called"); return false },
		}))
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/", http.NoBody).WithContext(ctx))
		assert.Empty(t, rec.Body.String())
		assert.Empty(t, rec.Header())
		assert.Equal(t, 499, <-logged)
		assert.Equal(t, 1, decisions)
	}
	srv := serve(t, app(unreached(t), logger, gingate.New(&gatetest.Refusing{Err: gatetest.Refusal(gate.Canceled)})))
	_, err := srv.Client().Post(srv.URL, "text/plain", strings.NewReader("x")) //nolint:bodyclose // there is none
	require.Error(t, err, "the connection ends without an answer")
	assert.Equal(t, 499, <-logged)
}

// uncomparable is a gate that cannot be found again.
type uncomparable []int

func (uncomparable) Acquire(context.Context, gate.Request) (gate.Lease, error) {
	return gate.Lease{}, nil
}

func TestBadConfigPanics(t *testing.T) {
	for name, c := range map[string]gingate.Config{
		"gingate: Config.Gate is nil":                     {},
		"gingate: Config.Gate: gingate_test.uncomparable": {Gate: uncomparable{}},
		"gingate: Config.Format: format 77":               {Gate: &gatetest.Slots{}, Format: 77},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() { assert.Contains(t, recover(), name) }()
			gingate.WithConfig(c)
		})
	}
	assert.PanicsWithValue(t, "gingate: Config.Gate is nil", func() { gingate.New((*gatetest.Slots)(nil)) })
}

// The hooks run without a lease in danger: a panic in any of them leaks nothing.
func TestPanickingHooks(t *testing.T) {
	for name, c := range map[string]gingate.Config{
		"Skip":       {Skip: func(*gin.Context) bool { panic("hook") }},
		"Lane":       {Lane: func(*gin.Context) string { panic("hook") }},
		"Flow":       {Flow: func(*gin.Context) string { panic("hook") }},
		"Class":      {Class: func(*gin.Context) gate.Class { panic("hook") }},
		"Cost":       {Cost: func(*gin.Context) int64 { panic("hook") }},
		"Route":      {Route: func(*gin.Context) string { panic("hook") }},
		"OnDecision": {OnDecision: func(gingate.Decision) { panic("hook") }},
	} {
		t.Run(name, func(t *testing.T) {
			g := &gatetest.Slots{Limit: 1}
			c.Gate = g
			h := app(unreached(t), gingate.WithConfig(c))
			assert.PanicsWithValue(t, "hook", func() { get(h, "/") })
			assert.Zero(t, g.InUse())
		})
	}
}
