package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	httpgate "github.com/headgate-go/headgate/adapters/nethttp"
	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/inflight"
	"github.com/headgate-go/headgate/core/lanes"
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

// K5: ten thousand keys that nobody has make no lane, beside the one that there is, and none
// of them reaches the back end.
func TestK5BogusKeysMakeNoLane(t *testing.T) {
	back := byModel(t, nil)
	a := start(t, threeTenants+"\nlanes: {mode: enforce, virtual_lanes: true}\n", "-upstream", back.URL)
	a.client.Transport.(*http.Transport).MaxIdleConnsPerHost = 16
	paths := []string{"/v1/chat/completions", "/v1/messages", batchAPI.path, comboAPI.path, fusionAPI.path}
	resp, answer := a.ask(paths[0], `{"model": "ok"}`, "Authorization", "Bearer secret-alice")
	require.Equal(t, 200, resp.StatusCode, answer)
	each(10_000, 16, func(i int) {
		resp, _ := a.ask(paths[i%len(paths)], `{"model": "ok"}`, "Authorization", fmt.Sprint("Bearer bogus-", i))
		assert.Equal(t, 401, resp.StatusCode)
	})
	s := a.snapshot().Lanes
	assert.Equal(t, []int64{1, 0, 0, 1}, []int64{int64(s.LaneCount), s.KeyMissing, s.Overflowed, s.Admitted})
	back.done(1)
	a.untilZero()
}

// K5: before keys are looked at there is one bound for all: of five thousand bogus keys no
// more wait than may, the budget is never exceeded, and everybody has an answer.
func TestK5OneBoundBeforeKeys(t *testing.T) {
	back := byModel(t, nil)
	a := start(t, strings.Replace(smallBudget, "queue_timeout: 1m", "queue_timeout: 20ms, max_waiters: 8", 1)+threeTenants+
		"\nlanes: {mode: enforce, virtual_lanes: true}\n", "-upstream", back.URL)
	a.client.Transport.(*http.Transport).MaxIdleConnsPerHost = 32
	release := a.fill()
	var waiting, inflight atomic.Int64
	body := strings.Repeat("x", 32<<10)
	each(5000, 32, func(i int) {
		resp, _ := a.ask(apis[0].path, body, "Authorization", fmt.Sprint("Bearer bogus-", i))
		assert.Equal(t, 503, resp.StatusCode)
		assert.Contains(t, []string{"queue_timeout", "admission_busy"}, resp.Header.Get("Headgate-Reason"))
		if i%50 == 0 {
			s := a.status()
			waiting.Store(max(waiting.Load(), s["waiting"]))
			inflight.Store(max(inflight.Load(), s["inflight_bytes"]))
		}
	})
	assert.LessOrEqual(t, waiting.Load(), int64(8))
	assert.LessOrEqual(t, inflight.Load(), int64(8*mib))
	s := a.snapshot().Lanes
	assert.Equal(t, []int64{0, 0, 0, 0}, []int64{int64(s.LaneCount), s.KeyMissing, s.Overflowed, s.Admitted})
	release()
	a.untilZero()
	back.done(0)
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

// inProcess is a gateway without a server.
func inProcess(t *testing.T, yaml, upstream string) (g *gateway, log *safeBuffer) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "gateway.yaml")
	require.NoError(t, os.WriteFile(file, []byte(yaml), 0o600))
	g, log = new(gateway), new(safeBuffer)
	g.log = slog.New(slog.NewTextHandler(log, nil))
	_, err := g.open(t.Context(), options{config: file, upstream: upstream}, noenv)
	require.NoError(t, err)
	t.Cleanup(func() {
		g.shutdown(context.Background(), &http.Server{})
		g.backend.close()
	})
	return g, log
}

// A fusion and a combo of which no target has room are 503 no_target, and nothing is
// called; the lane counts them and tells of them. It takes a call that was let in by
// something in front, at a lower price than a target's.
func TestNoTarget(t *testing.T) {
	back := byModel(t, nil)
	g, log := inProcess(t, threeTenants+`
lanes: {mode: enforce, virtual_lanes: true, algorithm: fixed, min_limit: 6, initial_limit: 12, max_limit: 100, max_wait: 30s}
`, back.URL)
	ctx := gate.WithFlow(t.Context(), "tenant-alice", 1)
	parent, err := g.hg.Tenants.Acquire(ctx, gate.Request{Cost: 1})
	require.NoError(t, err)
	defer parent.Release()
	other, err := g.hg.Tenants.Acquire(ctx, gate.Request{Cost: 6})
	require.NoError(t, err)
	defer other.Release()
	calls := g.calls(httpgate.Refuse)
	ask := func(path, body string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(parent.In(ctx, g.hg.Tenants), http.MethodPost, path, strings.NewReader(body))
		r.Header.Set("Authorization", "Bearer secret-alice")
		w := httptest.NewRecorder()
		calls[path].ServeHTTP(w, r)
		return w
	}
	for i, path := range []string{fusionAPI.path, comboAPI.path} {
		w := ask(path, `{"targets": ["ok1", "ok2"], "prompt": "`+strings.Repeat("x", 32<<10)+`"}`)
		assert.Equal(t, 503, w.Code, w.Body)
		assert.Equal(t, "no_target", w.Header().Get("Headgate-Reason"))
		assert.NotEmpty(t, w.Header().Get("Retry-After"))
		assert.Empty(t, w.Header().Get(fallbackHeader))
		s := g.hg.Tenants.Snapshot()
		assert.EqualValues(t, i+1, s.ShedReasons[gate.NoTarget])
		assert.EqualValues(t, 2*i+2, s.ProbeSkips)
	}
	assert.Contains(t, log.String(), "reason=no_target")
	requireNoSecrets(t, log.String())
	back.done(0)
	assert.Equal(t, 200, ask(comboAPI.path, fan("", "ok1")).Code, "a small one fits")
}

// slowCall sends a call whose back end waits, and returns what the lane charges for it
// while it runs.
func (a *app) slowCall(path, body string, chunked bool, next chan<- struct{}) (cost int64) {
	a.t.Helper()
	req := a.request(path, body, "Authorization", "Bearer secret-alice")
	if chunked {
		req.Body, req.ContentLength = io.NopCloser(strings.NewReader(body)), -1
	}
	var calls sync.WaitGroup
	a.beside(&calls, req, a.answered)
	a.until("it is in the lane", func(status) bool { return a.snapshot().Lanes.Inflight == 1 })
	cost = a.snapshot().Lanes.InflightCost
	close(next)
	calls.Wait()
	a.until("it has left", func(status) bool { return a.snapshot().Lanes.Inflight == 0 })
	return cost
}

// What a call costs in its tenant's lane does not depend on how it is sent: what is read
// whole is priced by what was read, and a length that is not known counts as 256 KiB where
// the body is passed on as it comes.
func TestPriceOfACall(t *testing.T) {
	prompts := make([]string, 40)
	for i := range prompts {
		prompts[i] = strings.Repeat("x", 2<<10)
	}
	long := fan("", "slow", "slow-too")
	long = strings.Replace(long, `"p"`, `"`+strings.Repeat("x", 40<<10)+`"`, 1)
	for name, c := range map[string]struct {
		path, body        string
		declared, chunked int64
	}{
		// 1 + 81 KiB / 16 KiB + 40 messages / 32 + 40 answers + 2
		"a batch":              {batchAPI.path, batchOf("slow", prompts...), 1 + 6 + 2 + 40 + 2, 1 + 6 + 2 + 40 + 2},
		"a batch of one":       {batchAPI.path, batchOf("slow", "p"), 6, 6},
		"a small fusion":       {fusionAPI.path, fan("", "slow", "slow-too"), 6, 6},
		"a fusion":             {fusionAPI.path, long, 8, 8},
		"a combo":              {comboAPI.path, long, 8, 8},
		"a call":               {apis[0].path, `{"model": "slow"}`, 6, 21},
		"a call of some bytes": {apis[0].path, `{"model": "slow", "messages": "` + strings.Repeat("x", 40<<10) + `"}`, 8, 21},
	} {
		for _, flag := range everyFramework() {
			t.Run(name+" "+flag, func(t *testing.T) {
				for chunked, want := range map[bool]int64{false: c.declared, true: c.chunked} {
					next := make(chan struct{})
					a := start(t, threeTenants+"\nlanes: {mode: enforce, virtual_lanes: true}\n", "-upstream", byModel(t, next).URL, flag)
					assert.Equal(t, want, a.slowCall(c.path, c.body, chunked, next), "chunked: %v", chunked)
					a.untilZero()
				}
			})
		}
	}
}

// A batch costs as much as can run of it at once: beside one of 100 prompts there is room for
// a person's call.
func TestBatchLeavesRoom(t *testing.T) {
	prompts := make([]string, maxPrompts)
	next := make(chan struct{})
	a := start(t, threeTenants+"\nlanes: {mode: enforce, virtual_lanes: true}\ninflight: {max_inflight: 8, interactive_reserve: 1, queue_timeout: 1m}\n",
		"-upstream", byModel(t, next).URL)
	// 1 + 1 + 4 * 32 messages + 7 answers + 2
	assert.EqualValues(t, 1+1+4+7+2, a.slowCall(batchAPI.path, batchOf("slow", prompts...), false, next))
	a.untilZero()
	var o outbound
	for want, c := range map[int64][2]int{maxPrompts: {0, 1}, 7: {8, 1}, 1: {1, 5}} {
		o.Mode, o.MaxInflight, o.InteractiveReserve = gate.Enforce, c[0], c[1]
		assert.Equal(t, want, o.atOnce("http://b", "m"))
	}
	// A model with bounds of its own goes by them.
	o.MaxInflight, o.InteractiveReserve, o.Models = 8, 1, []string{"wide", "narrow", "free"}
	n := func(n int) *int { return &n }
	o.Lanes = map[string]inflight.Override{
		"http://b|wide": {MaxInflight: n(40)}, "http://b|narrow": {MaxInflight: n(4), InteractiveReserve: n(2)}, "http://b|free": {MaxInflight: n(0)},
	}
	for model, want := range map[string]int64{"wide": 39, "narrow": 2, "free": maxPrompts, "unknown": 7} {
		assert.Equal(t, want, o.atOnce("http://b", model), model)
	}
}

// Targets are priced by the bodies that they would get: two of 16 KiB and a frame cost 14
// together, not 12.
func TestTargetsArePricedByTheirBodies(t *testing.T) {
	a := start(t, threeTenants+`
lanes: {mode: enforce, virtual_lanes: true, algorithm: fixed, min_limit: 6, initial_limit: 12, max_limit: 100, max_wait: 30s}
`, "-upstream", byModel(t, nil).URL)
	for size, skipped := range map[int]int{16<<10 - 200: 0, 16<<10 - 20: 1} {
		body := strings.Replace(fan("", "ok1", "ok2"), `"p"`, `"`+strings.Repeat("<", size)+`"`, 1)
		resp, answer := a.ask(fusionAPI.path, body, "Authorization", "Bearer secret-alice")
		require.Equal(t, 200, resp.StatusCode, answer)
		var f fusionAnswer
		require.NoError(t, json.Unmarshal([]byte(answer), &f))
		assert.Equal(t, skipped, f.Skipped, "a prompt of %d bytes", size)
	}
	a.untilZero()
}

// What a target is asked for is what it costs, to the byte, whatever the prompt and the model.
func TestPriceIsThatOfTheBody(t *testing.T) {
	for _, text := range []string{"", "p", "\x00\xff\"\\\u2028<>&\n", strings.Repeat("<", 16<<10)} {
		for _, model := range []string{"m", "\"<\u00e4\xff", strings.Repeat("m", 16<<10)} {
			sent := newPrompt(text).to(model)
			var body []byte
			for range 2 { // it can be sent again
				r, err := sent.open()
				require.NoError(t, err)
				body, err = io.ReadAll(r)
				require.NoError(t, err)
				require.EqualValues(t, len(body), sent.size())
			}
			want := lanes.Price(lanes.Features{Bytes: int64(len(body)), Messages: 1})
			assert.Equal(t, want, newPrompt(text).price(model))
			var call struct {
				Model    string
				Messages []struct{ Role, Content string }
			}
			require.NoError(t, json.Unmarshal(body, &call))
			require.Len(t, call.Messages, 1)
			assert.Equal(t, []string{strings.ToValidUTF8(model, "\ufffd"), "user", strings.ToValidUTF8(text, "\ufffd")},
				[]string{call.Model, call.Messages[0].Role, call.Messages[0].Content})
		}
	}
}

// C12: clients that close their socket while their batch waits in the lane are out of it
// before there is room, and none of their prompts is asked.
func TestC12AbandonedBatches(t *testing.T) {
	next := make(chan struct{})
	back := byModel(t, next)
	a := start(t, threeTenants+`
lanes: {mode: enforce, virtual_lanes: true, algorithm: fixed, min_limit: 6, initial_limit: 6, max_wait: 30s}
`, "-upstream", back.URL)
	if a.fiberCannot("notice that a client leaves while its request waits") {
		return
	}
	var calls sync.WaitGroup
	a.chat(&calls, "slow", a.answered, "Authorization", "Bearer secret-alice")
	a.until("the lane is full", func(status) bool { return a.snapshot().Lanes.InflightCost == 6 })
	body := batchOf("ok", "one", "two")
	var conns []*rawConn
	for range 10 {
		c := a.dial()
		c.post(batchAPI.path, contentLength(len(body)), "Authorization: Bearer secret-batch", "Content-Type: application/json")
		c.say(body)
		conns = append(conns, c)
	}
	a.until("all wait", func(status) bool { return a.snapshot().Lanes.QueuedCount == 10 })
	for _, c := range conns {
		c.reset()
	}
	a.until("all have left", func(status) bool { // each is counted a moment after it has left the queue
		s := a.snapshot().Lanes
		return s.QueuedCount == 0 && s.Canceled == 10
	})
	s := a.snapshot().Lanes
	assert.Equal(t, []int64{10, 0, 6}, []int64{s.Canceled, s.Sheds, s.InflightCost})
	close(next)
	calls.Wait()
	back.done(1)
	a.untilZero()
}

// A batch waits as bulk: of a batch and a call that both wait the call goes first. One above
// the limit runs alone.
func TestBatchWaitsAsBulk(t *testing.T) {
	next := make(chan struct{})
	back := byModel(t, next)
	a := start(t, threeTenants+`
lanes: {mode: enforce, virtual_lanes: true, algorithm: fixed, min_limit: 6, initial_limit: 12, max_limit: 1000, max_wait: 30s}
`, "-upstream", back.URL)
	var calls sync.WaitGroup
	send := func(path, body, key string) {
		a.beside(&calls, a.request(path, body, "Authorization", "Bearer "+key), a.answered)
	}
	lane := func(what string, inflight, cost int64, queued int) {
		t.Helper()
		a.until(what, func(status) bool {
			s := a.snapshot().Lanes
			return s.Inflight == inflight && s.InflightCost == cost && s.QueuedCount == queued
		})
	}
	send(fusionAPI.path, strings.Replace(fan("", "slow"), `"p"`, `"`+strings.Repeat("x", 90<<10)+`"`, 1), "secret-alice")
	lane("nothing fits beside it", 1, 11, 0)
	send(batchAPI.path, batchOf("slow", make([]string, 50)...), "secret-alice")
	lane("the batch waits", 1, 11, 1)
	send(apis[0].path, `{"model": "slow"}`, "secret-batch")
	lane("the call waits", 1, 11, 2)
	next <- struct{}{}
	lane("the call is next", 1, 6, 1)
	next <- struct{}{}
	lane("the batch runs alone", 1, 12, 0)
	close(next)
	calls.Wait()
	back.done(52)
	a.untilZero()
}

// What the back end says to the calls of a fan-out or a batch reaches the tenant's lane.
func TestFanoutIsObserved(t *testing.T) {
	a := start(t, "lanes: {mode: enforce, window: 50ms}", "-upstream", byModel(t, nil).URL)
	targets := make([]string, maxTargets)
	for i := range targets {
		targets[i] = "ok"
	}
	a.until("the lanes know first bytes", func(status) bool { // how many it takes is up to how much they differ
		resp, answer := a.ask(fusionAPI.path, fan("", targets...))
		require.Equal(t, 200, resp.StatusCode, answer)
		return a.snapshot().Lanes.LatencySource == "first_byte"
	})
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
