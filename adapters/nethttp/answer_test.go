package httpgate_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/headgate-go/headgate/adapters/nethttp"
	"github.com/headgate-go/headgate/core/gate"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func record(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, r)
	return rec
}

func request() *http.Request { return httptest.NewRequest(http.MethodGet, "/", http.NoBody) }

// Every reason is answered with its status, marker and Retry-After, in each format.
func TestAnswers(t *testing.T) {
	for reason, want := range map[gate.Reason]struct {
		status int
		retry  bool
	}{
		gate.PayloadTooLarge: {413, false}, gate.BodyExceedsBudget: {413, false}, gate.CostExceedsLimit: {413, false},
		gate.AdmissionBusy: {503, true}, gate.QueueFull: {503, true}, gate.QueueTimeout: {503, true},
		gate.Deadline: {503, true}, gate.Displaced: {503, true}, gate.NoTarget: {503, true},
		gate.ResourcePressure: {503, true}, gate.ShuttingDown: {503, true}, gate.TenantQueueFull: {429, true},
		gate.SlowBody: {408, false}, gate.MaxHold: {503, true}, gate.SlotLost: {503, true},
	} {
		for format, contentType := range map[gate.Format]string{
			gate.Problem: "application/problem+json", gate.OpenAI: "application/json", gate.Anthropic: "application/json",
		} {
			t.Run(string(reason)+" "+format.String(), func(t *testing.T) {
				rej := refusal(reason, nil)
				mw := httpgate.WithConfig(httpgate.Config{Gate: refusing(fmt.Errorf("wrapped: %w", rej)), Format: format})
				rec := record(mw(unreached(t)), request())
				assert.Equal(t, want.status, rec.Code)
				assert.Equal(t, string(reason), rec.Header().Get(gate.MarkerHeader))
				assert.Equal(t, want.retry, rec.Header().Get("Retry-After") != "")
				assert.Equal(t, contentType, rec.Header().Get("Content-Type"))
				assert.Empty(t, rec.Header().Get("Connection"))
				body, _ := rej.Render(format)
				assert.Equal(t, string(body), rec.Body.String())

				inHandler := record(httpgate.WithConfig(httpgate.Config{Gate: &slots{limit: 1}, Format: format})(
					http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						assert.True(t, httpgate.Refuse(w, r, fmt.Errorf("wrapped: %w", rej)))
					})), request())
				assert.Equal(t, rec.Body.String(), inHandler.Body.String())
				assert.Equal(t, rec.Header(), inHandler.Header())
			})
		}
	}
}

// T39: Retry-After is a whole number of seconds, at least 1, whatever the gate says.
func TestT39RetryAfter(t *testing.T) {
	for i := range 1000 {
		d := time.Duration(rand.Int64N(math.MaxInt64) >> rand.IntN(63))
		if i%5 == 0 {
			d = -d
		}
		rej := &gate.Rejection{Reason: gate.QueueFull, Gate: "slots", RetryAfter: d}
		rec := record(httpgate.New(refusing(rej))(unreached(t)), request())
		if s := rec.Header().Get("Retry-After"); d > 0 {
			n, err := strconv.Atoi(s)
			require.NoError(t, err)
			require.GreaterOrEqual(t, n, 1)
		} else {
			require.Empty(t, s)
		}
	}
}

// The error of a gate that is no *gate.Rejection is answered, and kept to ourselves.
func TestForeignErrors(t *testing.T) {
	secret := errors.New("dial redis://user:secret@10.0.0.7: refused")
	var seen error
	for _, format := range []gate.Format{gate.Problem, gate.OpenAI, gate.Anthropic} {
		rec := record(httpgate.WithConfig(httpgate.Config{
			Gate: refusing(secret), Format: format, OnDecision: func(d httpgate.Decision) { seen = d.Err },
		})(unreached(t)), request())
		assert.Equal(t, http.StatusServiceUnavailable, rec.Code)
		assert.NotEmpty(t, rec.Header().Get(gate.MarkerHeader))
		assert.True(t, json.Valid(rec.Body.Bytes()))
		assert.NotContains(t, rec.Body.String(), "secret")
		assert.NotContains(t, fmt.Sprint(rec.Header()), "secret")
		assert.Equal(t, secret, seen, "the hook sees the error itself")
	}
}

// To a client that has left nothing is written, whichever way a gate puts it.
func TestCanceledWritesNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := request().WithContext(ctx)
	for name, g := range map[string]gate.Gate{
		"rejection":       refusing(refusal(gate.Canceled, context.Canceled)),
		"context's error": refusing(fmt.Errorf("acquire: %w", context.Canceled)),
	} {
		t.Run(name, func(t *testing.T) {
			decisions := 0
			rec := record(httpgate.WithConfig(httpgate.Config{
				Gate:       g,
				OnRefuse:   func(http.ResponseWriter, *http.Request, *gate.Rejection) bool { t.Error("called"); return false },
				OnDecision: func(httpgate.Decision) { decisions++ },
			})(unreached(t)), r)
			assert.Empty(t, rec.Body.String())
			assert.Empty(t, rec.Header())
			assert.Equal(t, 1, decisions)
		})
	}
	rec := record(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assert.True(t, httpgate.Refuse(w, r, refusal(gate.Canceled, nil)))
	}), r)
	assert.Empty(t, rec.Body.String())
}

// OnRefuse answers, or leaves it.
func TestOnRefuse(t *testing.T) {
	mw := httpgate.WithConfig(httpgate.Config{
		Gate: full(),
		OnRefuse: func(w http.ResponseWriter, r *http.Request, rej *gate.Rejection) bool {
			if r.URL.Path != "/mine" {
				return false
			}
			w.WriteHeader(http.StatusTeapot)
			fmt.Fprint(w, rej.Reason)
			return true
		},
	})
	srv, _ := serve(t, false, mw(unreached(t)))
	mine, body := send(t, srv, http.MethodPost, "/mine", &repeat{n: 10})
	assert.Equal(t, http.StatusTeapot, mine.StatusCode)
	assert.Equal(t, "queue_full", body)
	assert.Equal(t, "3", mine.Header.Get("Retry-After"))
	assert.Equal(t, "queue_full", mine.Header.Get(gate.MarkerHeader))
	assert.True(t, mine.Close, "the unread body is seen to, whoever answers")
	theirs, body := get(t, srv, "/")
	assert.Equal(t, http.StatusServiceUnavailable, theirs.StatusCode)
	assert.Contains(t, body, "queue_full")
}

// Refuse leaves alone what is no gate's refusal, and cleans up after the handler's plans.
func TestRefuse(t *testing.T) {
	for _, err := range []error{nil, errors.New("mine"), http.ErrBodyReadAfterClose, context.Canceled} {
		rec := record(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			assert.False(t, httpgate.Refuse(w, r, err))
		}), request())
		assert.Empty(t, rec.Header())
		assert.Empty(t, rec.Body.String())
	}
	rec := record(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, name := range []string{"Content-Encoding", "Content-Length", "Content-Type", "ETag", "Last-Modified"} {
			w.Header().Set(name, "1")
		}
		assert.True(t, httpgate.Refuse(w, r, refusal(gate.NoTarget, nil)))
	}), request())
	assert.Equal(t, http.StatusServiceUnavailable, rec.Code)
	for _, name := range []string{"Content-Length", "ETag", "Last-Modified"} {
		assert.Empty(t, rec.Header().Get(name), name)
	}
	assert.Equal(t, "application/problem+json", rec.Header().Get("Content-Type"))
	assert.Equal(t, "1", rec.Header().Get("Content-Encoding"), "whoever compresses what is written needs it")
}

// The hooks run without a lease in danger: a panic in any of them leaks nothing.
func TestPanickingHooks(t *testing.T) {
	for name, c := range map[string]httpgate.Config{
		"Skip":       {Skip: func(*http.Request) bool { panic("hook") }},
		"Lane":       {Lane: func(*http.Request) string { panic("hook") }},
		"Flow":       {Flow: func(*http.Request) string { panic("hook") }},
		"Class":      {Class: func(*http.Request) gate.Class { panic("hook") }},
		"Cost":       {Cost: func(*http.Request) int64 { panic("hook") }},
		"Route":      {Route: func(*http.Request) string { panic("hook") }},
		"OnDecision": {OnDecision: func(httpgate.Decision) { panic("hook") }},
	} {
		t.Run(name, func(t *testing.T) {
			g := &slots{limit: 1}
			c.Gate = g
			assert.PanicsWithValue(t, "hook", func() { record(httpgate.WithConfig(c)(unreached(t)), request()) })
			assert.Zero(t, g.inUse())
		})
	}
}

// uncomparable is a gate that cannot be found again.
type uncomparable []int

func (uncomparable) Acquire(context.Context, gate.Request) (gate.Lease, error) {
	return gate.Lease{}, nil
}

func TestBadConfigPanics(t *testing.T) {
	for name, c := range map[string]httpgate.Config{
		"Config.Gate is nil":                      {},
		"Config.Gate: httpgate_test.uncomparable": {Gate: uncomparable{}},
		"Config.Format":                           {Gate: &slots{}, Format: 77},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() { assert.Contains(t, recover(), name) }()
			httpgate.WithConfig(c)
		})
	}
	assert.PanicsWithValue(t, "httpgate: Config.Gate is nil", func() { httpgate.New((*slots)(nil)) })
}
