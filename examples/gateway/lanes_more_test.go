package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/headgate-go/headgate/core/inflight"
)

// each runs f for 0 to n-1, some at a time.
func each(n, atOnce int, f func(i int)) {
	var all sync.WaitGroup
	next := make(chan int)
	for range atOnce {
		all.Go(func() {
			for i := range next {
				f(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	all.Wait()
}

// K5: ten thousand keys that nobody has make no lane, and none of them reaches the back end.
func TestK5BogusKeysMakeNoLane(t *testing.T) {
	back := byModel(t, nil)
	a := start(t, threeTenants+"\nlanes: {mode: enforce, virtual_lanes: true}\n", "-upstream", back.URL)
	a.client.Transport.(*http.Transport).MaxIdleConnsPerHost = 16
	paths := []string{"/v1/chat/completions", "/v1/messages", batchAPI.path, comboAPI.path, fusionAPI.path}
	each(10_000, 16, func(i int) {
		resp, _ := a.ask(paths[i%len(paths)], `{"model": "ok"}`, "Authorization", fmt.Sprint("Bearer bogus-", i))
		assert.Equal(t, 401, resp.StatusCode)
	})
	s := a.snapshot().Lanes
	assert.Equal(t, []int64{0, 0, 0, 0}, []int64{int64(s.LaneCount), s.KeyMissing, s.Overflowed, s.Admitted})
	back.done(0)
	resp, answer := a.ask(paths[0], `{"model": "ok"}`, "Authorization", "Bearer secret-alice")
	require.Equal(t, 200, resp.StatusCode, answer)
	assert.Equal(t, 1, a.snapshot().Lanes.LaneCount)
	a.untilZero()
}

// Ten thousand invented models share one lane to the back end, whichever way they come: they
// never have more calls there at once than one model may.
func TestInventedModelsShareALane(t *testing.T) {
	back := models(t, 0)
	a := start(t, "inflight: {max_inflight: 2, interactive_reserve: 0, models: [large]}", "-upstream", back.URL)
	a.client.Transport.(*http.Transport).MaxIdleConnsPerHost = 16
	each(10_000/16, 16, func(i int) {
		var names []string
		for j := range 8 {
			names = append(names, fmt.Sprintf("invented-%d-%d", i, j))
		}
		resp, answer := a.ask(fusionAPI.path, fan("", names...))
		assert.Equal(t, 200, resp.StatusCode, answer)
		for j := range 8 {
			resp, answer := a.ask(apis[0].path, fmt.Sprintf(`{"messages": [], "model": "made-up-%d-%d"}`, i, j))
			assert.Equal(t, 200, resp.StatusCode, answer)
		}
	})
	_, lanes := a.lanes()
	assert.Len(t, lanes, 1)
	assert.EqualValues(t, 10_000/16*16, lanes["other"].Granted)
	assert.LessOrEqual(t, back.model.Stats().MaxConcurrent, 2)
	a.untilZero()
}

// A fusion and a combo of which no target has room are 503 no_target, and nothing is called:
// here the parent is cheap, its length being unknown, the room is taken and somebody waits.
func TestNoTarget(t *testing.T) {
	const text = threeTenants + `
lanes: {mode: enforce, virtual_lanes: true, algorithm: fixed, min_limit: 6, initial_limit: 12, max_limit: 100, max_wait: 30s}
`
	next := make(chan struct{})
	back := byModel(t, next)
	a := start(t, text, "-upstream", back.URL)
	key := []string{"Authorization", "Bearer secret-alice"}
	var calls sync.WaitGroup
	a.chat(&calls, "slow", a.answered, key...)
	a.until("half the room is taken", func(status) bool { return a.snapshot().Lanes.InflightCost == 6 })
	body := `{"targets": ["ok1", "ok2"], "prompt": "` + strings.Repeat("x", 32<<10) + `"}`
	for _, path := range []string{fusionAPI.path, comboAPI.path} {
		req := a.request(path, "", key...)
		req.Body, req.ContentLength = io.NopCloser(strings.NewReader(body)), -1
		resp, err := a.client.Do(req)
		require.NoError(t, err)
		head, answer, err := read(resp)
		require.NoError(t, err)
		assert.Equal(t, 503, head.StatusCode, answer)
		assert.Equal(t, "no_target", head.Header.Get("Headgate-Reason"))
		assert.NotEmpty(t, head.Header.Get("Retry-After"))
		assert.Empty(t, head.Header.Get(fallbackHeader))
	}
	close(next)
	calls.Wait()
	back.done(1)
	a.untilZero()
}

// What the back end says to the calls of a fan-out or a batch reaches the tenant's lane.
func TestFanoutIsObserved(t *testing.T) {
	a := start(t, "lanes: {mode: enforce, window: 50ms}", "-upstream", byModel(t, nil).URL)
	targets := make([]string, maxTargets)
	for i := range targets {
		targets[i] = "ok"
	}
	for range 10 {
		resp, answer := a.ask(fusionAPI.path, fan("", targets...))
		require.Equal(t, 200, resp.StatusCode, answer)
	}
	a.until("the lanes know first bytes", func(status) bool { return a.snapshot().Lanes.LatencySource == "first_byte" })
}

// A fusion of which every call is refused here says so as a batch does.
func TestFusionAllRefused(t *testing.T) {
	next := make(chan struct{})
	a := start(t, "inflight: {max_inflight: 1, interactive_reserve: 0, max_queue: 0}", "-upstream", byModel(t, next).URL)
	var calls sync.WaitGroup
	a.chat(&calls, "slow", a.answered)
	a.untilLane("other", "the slot is taken", func(l inflight.LaneSnapshot) bool { return l.Inflight == 1 })
	resp, answer := a.ask(fusionAPI.path, fan("", "ok1", "ok2"))
	assert.Equal(t, 503, resp.StatusCode, answer)
	assert.Equal(t, "queue_full", resp.Header.Get("Headgate-Reason"))
	assert.NotEmpty(t, resp.Header.Get("Retry-After"))
	close(next)
	calls.Wait()
	a.untilZero()
}
