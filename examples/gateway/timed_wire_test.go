package main

import (
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate/core/inflight"
	"github.com/headgate-go/headgate/examples/internal/upstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// failsFirst answers the first n calls with status, and the others whole.
func failsFirst(n int64, status int) http.HandlerFunc {
	var calls atomic.Int64
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Trailer", "X-Sum")
		if calls.Add(1) <= n {
			w.WriteHeader(status)
		}
		_, _ = io.WriteString(w, "an answer")
		w.Header().Set("X-Sum", "9")
	}
}

// The file switches attempts on and off while the gateway runs; what counts passes as
// it is, trailers too.
func TestAttemptsAreHot(t *testing.T) {
	for _, mode := range everyMode() {
		t.Run(mode, func(t *testing.T) {
			back := listen(t, failsFirst(2, 503))
			a := start(t, "upstream: {attempts: 1}", mode, "-upstream", back.URL)
			body := question(false, 100<<10)
			resp, text := a.ask("/v1/responses", body)
			assert.Equal(t, 503, resp.StatusCode, text)
			back.done(1)

			a.write("upstream: {attempts: 2, timeout: 1m}")
			a.logs("config applied")
			for range 2 { // the first fails once, the second does not
				out, err := a.client.Do(a.request("/v1/responses", body))
				require.NoError(t, err)
				resp, text, err = read(out)
				require.NoError(t, err)
				assert.Equal(t, 200, resp.StatusCode, text)
				assert.Equal(t, "an answer", text)
				assert.Equal(t, http.Header{"X-Sum": {"9"}}, out.Trailer)
			}
			for i, c := range back.done(4) {
				assert.Equal(t, digest([]byte(body)).SHA256, c.sha256, "attempt %d", i)
				assert.EqualValues(t, len(body), c.length)
			}
			if mode != "-bare" {
				a.untilZero()
			}
		})
	}
}

// A back end that is too slow is 504 in the shape of the API, and left by the time that
// it could not keep.
func TestUpstreamTimeout(t *testing.T) {
	for _, mode := range everyMode() {
		t.Run(mode, func(t *testing.T) {
			back := models(t, time.Hour)
			a := start(t, "upstream: {timeout: 50ms, attempts: 2}", mode, "-upstream", back.URL)
			for i, api := range apis {
				resp, text := a.ask(api.path, question(false, 0))
				s := requireShape(t, api.path, resp, text, http.StatusGatewayTimeout)
				assert.Equal(t, "the upstream did not answer in time", s.Error.Message)
				back.until("been left twice", func(s upstream.Stats) bool { return s.Abandoned == int64(2*i+2) && s.Concurrent == 0 })
			}
			a.logs("no answer within 50ms")
			resp, err := a.client.Do(a.request("/v1/messages", question(true, 0)))
			require.NoError(t, err)
			assert.Equal(t, 200, resp.StatusCode, "a stream has a head in time, and goes on")
			first := make([]byte, 10)
			_, err = io.ReadFull(resp.Body, first)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			if mode != "-bare" {
				a.untilZero()
			}
		})
	}
}

// While attempts go on the body stays in memory, and its bytes stay charged; with the
// answer that counts they come back, though it goes on.
func TestBytesStayChargedBetweenAttempts(t *testing.T) {
	next := make(chan struct{})
	var calls atomic.Int64
	back := listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if calls.Add(1) == 1 {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		answerAt(next)(w, r)
		w.Header().Set("Content-Type", "text/event-stream")
		_ = http.NewResponseController(w).Flush()
		answerAt(next)(w, r)
	}))
	a := start(t, "upstream: {attempts: 2}\ninflight: {max_inflight: 1}", "-upstream", back.URL)
	var call sync.WaitGroup
	call.Go(func() {
		resp, err := a.client.Do(a.request("/v1/messages", question(true, mib)))
		if assert.NoError(t, err) {
			_, _, err = read(resp)
			assert.NoError(t, err)
		}
	})
	require.Eventually(t, func() bool { return calls.Load() == 2 }, hang, time.Millisecond)
	assert.EqualValues(t, mib, a.status()["inflight_bytes"])
	next <- struct{}{}
	a.until("the bytes come back", func(s status) bool { return s["inflight_bytes"] == 0 })
	a.untilLane("other", "it goes on", func(l inflight.LaneSnapshot) bool { return l.Inflight == 1 && l.Retries == 1 })
	next <- struct{}{}
	call.Wait()
	a.untilLane("other", "nothing is left", func(l inflight.LaneSnapshot) bool { return l.Inflight == 0 })
	a.untilZero()
}

// What is wrong with the keys is said by name; nothing is applied.
func TestTimedConfig(t *testing.T) {
	c, err := parseConfig([]byte("upstream: {timeout: 3s, attempts: 4}"), base(t))
	require.NoError(t, err)
	assert.Equal(t, timed{3 * time.Second, 4}, c.Upstream)
	c, err = parseConfig([]byte("upstream: {timeout: 3s}"), base(t))
	require.NoError(t, err)
	assert.Equal(t, timed{3 * time.Second, 1}, c.Upstream)
	for text, want := range map[string]string{
		"upstream: {timeout: -1s}":     "upstream.timeout is -1s: want 0s (no bound) to 1h",
		"upstream: {timeout: 61m}":     "upstream.timeout is 1h1m0s: want 0s (no bound) to 1h",
		"upstream: {timeout: 3}":       `line 1: upstream.timeout is "3": want a duration such as 1m30s`,
		"upstream: {attempts: 0}":      "upstream.attempts is 0: want 1 to 10",
		"upstream: {attempts: 11}":     "upstream.attempts is 11: want 1 to 10",
		"upstream: {retries: 2}":       `line 1: unknown key "upstream.retries"`,
		"upstream: http://127.0.0.1:1": `line 1: upstream is "http://127.0.0.1:1": want a mapping`,
	} {
		_, err := parseConfig([]byte(text), base(t))
		assert.EqualError(t, err, want, text)
	}
}

// More clients than the back end serves at once: without headgate they time out there,
// with it they wait above their timeouts, and all are answered.
func TestTimeoutsDoNotCountTheWait(t *testing.T) {
	c := upstream.DefaultConfig()
	c.Capacity, c.Service, c.Jitter, c.Collapse = 2, 300*time.Millisecond, 0, true
	for _, mode := range []string{"-bare", "-framework=nethttp"} {
		t.Run(mode, func(t *testing.T) {
			model, err := upstream.New(c)
			require.NoError(t, err)
			defer model.Close()
			back := listen(t, model)
			const config = "upstream: {timeout: 1500ms}\ninflight: {max_inflight: 2, interactive_reserve: 0, queue_timeout: 5m}"
			a := start(t, config, mode, "-upstream", back.URL)
			var calls sync.WaitGroup
			var mu sync.Mutex
			got := map[int]int{}
			for range 24 { // 24/2 x 300 ms = 3.6 s
				a.chat(&calls, "m", func(resp reply, _ string) {
					mu.Lock()
					defer mu.Unlock()
					got[resp.StatusCode]++
				})
			}
			calls.Wait()
			if mode == "-bare" {
				assert.Positive(t, got[504], got)
				return
			}
			assert.Equal(t, map[int]int{200: 24}, got)
			assert.LessOrEqual(t, model.Stats().MaxConcurrent, 2)
			a.untilZero()
		})
	}
}
