package clientwrap_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"testing"
	"time"

	"github.com/headgate-go/headgate/clientwrap"
	"github.com/headgate-go/headgate/core/gate"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The refusal is exact through whatever a client wraps around a response.
func TestRefusedThroughClients(t *testing.T) {
	l := slots(t, 1, nobodyWaits)
	defer hold(t, l)()
	tr := clientwrap.NewTransport(roundTrip(hello), l, clientwrap.Config{})
	again := roundTrip(func(r *http.Request) (*http.Response, error) { // an SDK that reads the body to report it
		resp, err := tr.RoundTrip(r)
		if err == nil {
			b, _ := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			resp.Body = text(string(b))
		}
		return resp, err
	})
	for name, c := range map[string]*http.Client{
		"plain": {Transport: tr}, "timeout": {Transport: tr, Timeout: time.Minute}, "body replaced": {Transport: again},
	} {
		t.Run(name, func(t *testing.T) {
			resp, err := get(t, gate.WithClass(context.Background(), gate.Bulk), c, "http://api.example.com/v1/x")
			require.NoError(t, err)
			rej := clientwrap.Refused(resp, err)
			require.NotNil(t, rej)
			assert.Equal(t, gate.QueueTimeout, rej.Reason)
			assert.Equal(t, gate.Bulk, rej.Class)
			assert.Equal(t, "http://api.example.com", rej.Lane)
			assert.EqualValues(t, 1, rej.Limit)
			body := readAll(t, resp.Body)
			require.NoError(t, resp.Body.Close())
			want, contentType := rej.Render(gate.Problem)
			assert.JSONEq(t, string(want), body)
			assert.Equal(t, contentType, resp.Header.Get("Content-Type"))
			assert.EqualValues(t, len(body), resp.ContentLength)
			assert.Equal(t, strconv.Itoa(len(body)), resp.Header.Get("Content-Length"))
			assert.Equal(t, "503 Service Unavailable", resp.Status)
			assert.Equal(t, "/v1/x", resp.Request.URL.Path)
		})
	}
}

// What a back end says is never taken for a refusal of ours, however much alike.
func TestRefusedIsNotSpoofed(t *testing.T) {
	l := slots(t, 1, nobodyWaits)
	imitate := func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.Header().Set("X-Should-Retry", "false")
		w.Header().Set(gate.MarkerHeader, string(gate.QueueTimeout))
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, `{"code": "queue_timeout", "gate": "inflight"}`)
	}
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) { imitate(w) })
	c := clientOf(t, s, l, clientwrap.Config{})
	resp := mustGet(t, context.Background(), c, s.URL) // and holds the slot
	assert.Equal(t, "queue_timeout", resp.Header.Get(gate.MarkerHeader))

	// Not even an answer to the request of an earlier refusal.
	refused, err := get(t, context.Background(), c, s.URL)
	require.NoError(t, err)
	require.NotNil(t, clientwrap.Refused(refused, nil))
	require.NoError(t, resp.Body.Close())
	for _, send := range []http.RoundTripper{s.Client().Transport, c.Transport} {
		other, err := send.RoundTrip(refused.Request.Clone(refused.Request.Context()))
		require.NoError(t, err)
		require.NoError(t, other.Body.Close())
		assert.Nil(t, clientwrap.Refused(other, nil))
	}
	assert.NotNil(t, clientwrap.Refused(refused, nil), "still")
	require.NoError(t, refused.Body.Close())

	assert.Nil(t, clientwrap.Refused(nil, nil))
	assert.Nil(t, clientwrap.Refused(&http.Response{}, nil))
	assert.Nil(t, clientwrap.Refused(nil, errBase))
	assert.Nil(t, clientwrap.Refused(nil, context.Canceled))
}

// A refusal of a gate elsewhere in the process is one, too: that of an inbound body
// that is sent on, for example.
func TestRefusedOtherGates(t *testing.T) {
	slow := &gate.Rejection{Reason: gate.SlowBody, Gate: "admission"}
	l := slots(t, 1)
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	c := clientOf(t, s, l, clientwrap.Config{})
	resp, err := c.Post(s.URL, "text/plain", io.MultiReader(text("x"), failing{slow}))
	assert.Same(t, slow, clientwrap.Refused(resp, err))
	comesTo(t, 0, func() int { return inFlight(l) })
}

// Each format has the shape that its clients read.
func TestFormats(t *testing.T) {
	for _, f := range []gate.Format{gate.Problem, gate.OpenAI, gate.Anthropic} {
		l := slots(t, 1, nobodyWaits)
		give := hold(t, l)
		tr := clientwrap.NewTransport(roundTrip(hello), l, clientwrap.Config{Format: f})
		resp, err := tr.RoundTrip(request(t, context.Background(), nil))
		require.NoError(t, err)
		want, contentType := clientwrap.Refused(resp, err).Render(f)
		assert.JSONEq(t, string(want), readAll(t, resp.Body))
		assert.Equal(t, contentType, resp.Header.Get("Content-Type"))
		require.NoError(t, resp.Body.Close())

		head, err := http.NewRequest(http.MethodHead, "http://api.example.com/", http.NoBody)
		require.NoError(t, err)
		resp, err = tr.RoundTrip(head)
		require.NoError(t, err)
		assert.Equal(t, http.NoBody, resp.Body)
		assert.NotNil(t, clientwrap.Refused(resp, err))
		give()
	}
}

// A reverse proxy passes the refusal on, marked, and a slow or leaving client ends the
// exchange behind it.
func TestReverseProxy(t *testing.T) {
	l := slots(t, 1, nobodyWaits)
	backend := serve(t, stream(t))
	target, err := url.Parse(backend.URL)
	require.NoError(t, err)
	var told []*gate.Rejection
	proxy := serve(t, (&httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport: clientwrap.NewTransport(backend.Client().Transport, l, clientwrap.Config{Format: gate.OpenAI}),
		ModifyResponse: func(r *http.Response) error {
			told = append(told, clientwrap.Refused(r, nil))
			return nil
		},
	}).ServeHTTP)

	ctx, leave := context.WithCancel(context.Background())
	first := mustGet(t, ctx, proxy.Client(), proxy.URL)
	second := mustGet(t, context.Background(), proxy.Client(), proxy.URL)
	assert.Equal(t, http.StatusServiceUnavailable, second.StatusCode)
	assert.Equal(t, "queue_timeout", second.Header.Get(gate.MarkerHeader))
	assert.NotEmpty(t, second.Header.Get("Retry-After"))
	var body struct{ Error struct{ Code string } }
	require.NoError(t, json.NewDecoder(second.Body).Decode(&body))
	assert.Equal(t, "queue_timeout", body.Error.Code)
	require.NoError(t, second.Body.Close())
	require.Len(t, told, 2)
	assert.Nil(t, told[0])
	assert.NotNil(t, told[1])
	leave()
	comesTo(t, 0, func() int { return inFlight(l) })
	_ = first.Body.Close()
}

// CheckRetry asks next about everything but refusals, and hands on what it says.
func TestCheckRetry(t *testing.T) {
	why := errors.New("stop")
	asked := 0
	check := clientwrap.CheckRetry(func(_ context.Context, resp *http.Response, err error) (bool, error) {
		asked++
		return resp == nil, why
	})
	again, err := check(context.Background(), nil, fmt.Errorf("wrapped: %w", &gate.Rejection{Reason: gate.QueueFull}))
	assert.False(t, again)
	require.NoError(t, err)
	assert.Zero(t, asked)
	again, err = check(context.Background(), nil, errBase)
	assert.True(t, again)
	assert.Equal(t, why, err)
	again, err = check(context.Background(), httptest.NewRecorder().Result(), nil)
	assert.False(t, again)
	assert.Equal(t, why, err)
	assert.Equal(t, 2, asked)
	again, err = clientwrap.CheckRetry(nil)(context.Background(), nil, errBase)
	assert.False(t, again)
	assert.NoError(t, err)
}

// A configuration that cannot work says so at once, and names the field.
func TestConfigPanics(t *testing.T) {
	l := slots(t, 1)
	assert.PanicsWithValue(t, "clientwrap: NewTransport: the limiter is nil: nothing would be limited", func() {
		clientwrap.NewTransport(nil, nil, clientwrap.Config{})
	})
	once := clientwrap.NewTransport(nil, l, clientwrap.Config{AsError: true})
	assert.PanicsWithValue(t, "clientwrap: NewTransport: the base takes slots of the same lanes already: wrap it once", func() {
		clientwrap.NewTransport(once, l, clientwrap.Config{})
	})
	assert.NotPanics(t, func() { // other lanes, another limiter
		clientwrap.NewTransport(once, l, clientwrap.Config{Lane: clientwrap.LaneByModel("", "m")})
		clientwrap.NewTransport(once, slots(t, 1), clientwrap.Config{})
	})
	assert.PanicsWithValue(t, "clientwrap: Config.MaxHold is -1s: want at least 0s (0s = no bound)", func() {
		clientwrap.NewTransport(nil, l, clientwrap.Config{MaxHold: -time.Second})
	})
	assert.PanicsWithValue(t, "clientwrap: Config.Format: format 9 does not exist", func() {
		clientwrap.NewTransport(nil, l, clientwrap.Config{Format: 9})
	})
}
