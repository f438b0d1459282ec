package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/inflight"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// lanes reads /headgate/inflight: the lanes by model.
func (a *app) lanes() (enabled bool, lanes map[string]inflight.LaneSnapshot) {
	a.t.Helper()
	resp, text := a.do(http.MethodGet, inflightPath, nil)
	require.Equal(a.t, 200, resp.StatusCode, text)
	require.Equal(a.t, "no-store", resp.Header.Get("Cache-Control"))
	var s inflight.Snapshot
	require.NoError(a.t, json.Unmarshal([]byte(text), &s), text)
	lanes = make(map[string]inflight.LaneSnapshot)
	for _, l := range s.Lanes {
		_, model, found := strings.Cut(l.Lane, "|")
		require.True(a.t, found, l.Lane)
		lanes[model] = l
	}
	return s.Enabled, lanes
}

// untilLane waits until the lane of a model is as is says.
func (a *app) untilLane(model, what string, is func(inflight.LaneSnapshot) bool) {
	a.t.Helper()
	require.Eventually(a.t, func() bool { _, lanes := a.lanes(); return is(lanes[model]) }, hang, 5*time.Millisecond, what)
}

// chat asks for a chat completion of a model beside the test and hands its end on.
func (a *app) chat(into *sync.WaitGroup, model string, then func(reply, string), headers ...string) {
	a.t.Helper()
	a.beside(into, a.request(apis[0].path, `{"messages": [{"model": "not-this"}], "model": "`+model+`"}`, headers...), then)
}

// beside makes a call beside the test and hands its end on.
func (a *app) beside(into *sync.WaitGroup, req *http.Request, then func(reply, string)) {
	into.Go(func() {
		resp, err := a.client.Do(req)
		if err != nil {
			a.t.Error(err)
			return
		}
		head, text, err := read(resp)
		if err != nil {
			a.t.Error(err)
			return
		}
		then(head, text)
	})
}

// answerAt answers a call for each value of next.
func answerAt(next <-chan struct{}) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // net/http tells of a client that leaves only then
		select {
		case <-next:
		case <-r.Context().Done():
		}
	}
}

func (a *app) answered(resp reply, text string) { assert.Equal(a.t, 200, resp.StatusCode, text) }

// Without a limit the report says so and no more; with one, calls wait, in their lane,
// and a changed limit lets them on.
func TestInflightIsHot(t *testing.T) {
	next := make(chan struct{})
	back := listen(t, answerAt(next))
	a := start(t, "inflight: {}", "-upstream", back.URL)
	_, text := a.do(http.MethodGet, inflightPath, nil)
	assert.JSONEq(t, `{"enabled": false}`, text)

	var calls sync.WaitGroup
	for range 3 {
		a.chat(&calls, "m", a.answered)
	}
	a.until("three calls", func(s status) bool { return s["inflight"] == 3 })
	a.write("inflight: {max_inflight: 2, interactive_reserve: 0}")
	a.logs("config applied")
	a.untilLane("other", "the three are counted", func(l inflight.LaneSnapshot) bool { return l.Inflight == 3 && l.Limit == 2 })
	for range 2 {
		a.chat(&calls, "m", a.answered)
	}
	a.untilLane("other", "two wait", func(l inflight.LaneSnapshot) bool { return l.Queued == 2 })
	next <- struct{}{}
	next <- struct{}{}
	a.untilLane("other", "one of them runs", func(l inflight.LaneSnapshot) bool { return l.Inflight == 2 && l.Queued == 1 })
	a.write("inflight: {max_inflight: 3, interactive_reserve: 0}")
	a.untilLane("other", "both run", func(l inflight.LaneSnapshot) bool { return l.Inflight == 3 && l.Queued == 0 && l.Limit == 3 })
	close(next)
	calls.Wait()
	a.untilLane("other", "nothing is left", func(l inflight.LaneSnapshot) bool { return l.Inflight == 0 && l.Verdict == inflight.Idle })
	a.untilZero()
}

// A call that waited too long is refused in the shape of its API, with everything that
// somebody needs to know.
func TestInflightTimeout(t *testing.T) {
	next := make(chan struct{})
	back := listen(t, answerAt(next))
	a := start(t, "inflight: {max_inflight: 1, queue_timeout: 50ms}", "-upstream", back.URL)
	var first sync.WaitGroup
	a.chat(&first, "m", a.answered)
	a.untilLane("other", "one runs", func(l inflight.LaneSnapshot) bool { return l.Inflight == 1 })
	for _, api := range apis {
		resp, text := a.ask(api.path, question(false, 0))
		s := requireShape(t, api.path, resp, text, 503)
		assert.Equal(t, string(gate.QueueTimeout), s.Error.Code)
		assert.Contains(t, s.Error.Message, "at position 1 (class default, limit 1): raise MaxInflight or QueueTimeout, or reduce")
		assert.Equal(t, string(gate.QueueTimeout), resp.Header.Get(gate.MarkerHeader))
		assert.NotEmpty(t, resp.Header.Get("Retry-After"))
	}
	close(next)
	first.Wait()
	back.done(1)
	a.untilZero()
}

// The class is the tenant's, or what a tenant says that may say so. A stranger's header
// changes nothing.
func TestInflightClasses(t *testing.T) {
	next := make(chan struct{})
	back := listen(t, answerAt(next))
	a := start(t, threeTenants+"inflight: {max_inflight: 9}", "-upstream", back.URL)
	var calls sync.WaitGroup
	for _, headers := range [][]string{
		{"Authorization", "Bearer secret-alice"},
		{"Authorization", "Bearer secret-alice", "Headgate-Class", "bulk"}, // she may not
		{"Authorization", "Bearer secret-batch"},
		{"Authorization", "Bearer secret-batch", "Headgate-Class", "bulk"},
		{"Authorization", "Bearer secret-batch", "Headgate-Class", "interactive"},
		{"Authorization", "Bearer secret~plain/+.==", "Headgate-Class", "interactive"}, // nor may this one
	} {
		a.chat(&calls, "m", a.answered, headers...)
	}
	a.untilLane("other", "all run", func(l inflight.LaneSnapshot) bool {
		return l.InflightByPriority == inflight.ByClass{Interactive: 3, Default: 2, Bulk: 1}
	})
	close(next)
	calls.Wait()
	_, text := a.do(http.MethodGet, inflightPath, nil)
	requireNoSecrets(t, text, strings.ReplaceAll(a.log.String(), "tenants", ""))
	a.untilZero()
}

// Waiting bulk calls let an interactive one go first.
func TestInteractiveGoesFirst(t *testing.T) {
	next := make(chan struct{})
	back := listen(t, answerAt(next))
	a := start(t, threeTenants+"inflight: {max_inflight: 1}", "-upstream", back.URL)
	var mu sync.Mutex
	var order []string
	done := func(who string) func(reply, string) {
		return func(resp reply, text string) {
			a.answered(resp, text)
			mu.Lock()
			defer mu.Unlock()
			order = append(order, who)
		}
	}
	bulk := []string{"Authorization", "Bearer secret-batch", "Headgate-Class", "bulk"}
	var calls sync.WaitGroup
	a.chat(&calls, "m", done("bulk"), bulk...)
	a.untilLane("other", "one runs", func(l inflight.LaneSnapshot) bool { return l.Inflight == 1 })
	for range 5 {
		a.chat(&calls, "m", done("bulk"), bulk...)
	}
	a.untilLane("other", "five wait", func(l inflight.LaneSnapshot) bool { return l.Queued == 5 })
	a.chat(&calls, "m", done("interactive"), "Authorization", "Bearer secret-alice")
	a.untilLane("other", "six wait", func(l inflight.LaneSnapshot) bool { return l.QueuedByPriority.Interactive == 1 })
	for n := 1; n <= 7; n++ {
		next <- struct{}{}
		require.Eventually(t, func() bool { mu.Lock(); defer mu.Unlock(); return len(order) == n }, hang, time.Millisecond)
	}
	calls.Wait()
	assert.Equal(t, []string{"bulk", "interactive", "bulk", "bulk", "bulk", "bulk", "bulk"}, order)
	a.untilZero()
}

// A model on the list has a lane of its own; 100 invented ones share one, so that they
// never have more calls at the back end than it allows.
func TestModelsHaveLanes(t *testing.T) {
	back := models(t, 20*time.Millisecond)
	a := start(t, "inflight: {max_inflight: 2, interactive_reserve: 0, models: [large, small]}", "-upstream", back.URL)
	var calls sync.WaitGroup
	for i := range 100 {
		a.chat(&calls, fmt.Sprint("invented-", i), a.answered)
	}
	for _, m := range []string{"large", "small"} {
		a.chat(&calls, m, a.answered)
	}
	calls.Wait()
	enabled, lanes := a.lanes()
	assert.True(t, enabled)
	assert.Len(t, lanes, 3)
	assert.EqualValues(t, 1, lanes["large"].Granted)
	assert.EqualValues(t, 1, lanes["small"].Granted)
	assert.EqualValues(t, 100, lanes["other"].Granted)
	assert.LessOrEqual(t, back.model.Stats().MaxConcurrent, 2+1+1) // of both models only one call was made

	a.write("inflight: {max_inflight: 2, models: [new], lanes: {'" + back.URL + "|new': {max_inflight: 7}}}")
	a.logs("config applied")
	a.chat(&calls, "new", a.answered)
	calls.Wait()
	_, lanes = a.lanes()
	assert.Equal(t, 7, lanes["new"].Limit)
	a.untilZero()
}

// The report does not count itself and does not wait for room.
func TestInflightReportIsExempt(t *testing.T) {
	a := start(t, "inflight: {max_inflight: 1}")
	enabled, lanes := a.lanes()
	assert.True(t, enabled)
	assert.Empty(t, lanes)
	assert.Zero(t, a.status()["admitted_total"])

	resp, text := start(t, "", "-bare").do(http.MethodGet, inflightPath, nil)
	assert.Equal(t, 200, resp.StatusCode)
	assert.JSONEq(t, `{"enabled": false}`, text)
}
