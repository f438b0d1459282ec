package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/inflight"
)

// byModel is a back end whose answer is told by the model: "ok..." succeeds, a number is
// a status, "slow..." waits until next is closed.
func byModel(t *testing.T, next <-chan struct{}) *spy {
	t.Helper()
	return listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var call struct{ Model string }
		text, _ := io.ReadAll(r.Body)
		if json.Unmarshal(text, &call) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		status := http.StatusOK
		switch call.Model[:2] {
		case "sl":
			select {
			case <-next:
			case <-r.Context().Done():
			}
		case "ok":
		default:
			_, _ = fmt.Sscan(call.Model, &status)
		}
		if status != http.StatusOK {
			writeJSON(w, status, map[string]any{"error": map[string]any{"message": call.Model}})
			return
		}
		writeJSON(w, status, map[string]any{"model": call.Model})
	}))
}

func fan(strategy string, targets ...string) string {
	text, err := json.Marshal(map[string]any{"targets": targets, "strategy": strategy, "prompt": "p"})
	if err != nil {
		panic(err)
	}
	return string(text)
}

// A combo answers with the first target that succeeds, and says how many it has passed over.
func TestCombo(t *testing.T) {
	for _, flag := range everyMode() {
		t.Run(flag, func(t *testing.T) {
			a := start(t, "", "-upstream", byModel(t, nil).URL, flag)
			for _, c := range []struct {
				targets []string
				status  int
				passed  string
				model   string
			}{
				{[]string{"ok1", "ok2"}, 200, "0", "ok1"},
				{[]string{"503", "429", "ok3"}, 200, "2", "ok3"},
				{[]string{"500", "400", "ok3"}, 400, "1", ""}, // another target would say the same
				{[]string{"500", "503"}, 503, "", ""},
			} {
				resp, text := a.ask(comboAPI.path, fan(byPriority, c.targets...))
				require.Equal(t, c.status, resp.StatusCode, text)
				assert.Equal(t, c.passed, resp.Header.Get(fallbackHeader), c.targets)
				assert.Empty(t, resp.Header.Get(gate.MarkerHeader))
				if c.model != "" {
					assert.JSONEq(t, `{"model": "`+c.model+`"}`, text)
				}
			}
			turns := map[int][]string{}
			for range 4 { // two lists by turns: each has its own
				for n, list := range map[int][]string{3: {"ok1", "ok2", "ok3"}, 2: {"ok1", "ok2"}} {
					_, text := a.ask(comboAPI.path, fan(inTurn, list...))
					var says struct{ Model string }
					require.NoError(t, json.Unmarshal([]byte(text), &says))
					turns[n] = append(turns[n], says.Model)
				}
			}
			assert.Equal(t, map[int][]string{3: {"ok1", "ok2", "ok3", "ok1"}, 2: {"ok1", "ok2", "ok1", "ok2"}}, turns)
		})
	}
}

// A fusion calls all targets that have room, asked for as one set: the parent's own lease
// and the room that is free are shared among them, and only where none is left it is
// refused. A combo passes a target without room over.
func TestFusion(t *testing.T) {
	const text = threeTenants + `
lanes: {mode: enforce, virtual_lanes: true, algorithm: fixed, min_limit: 6, initial_limit: 12, max_limit: 100, max_wait: 30s}
`
	next := make(chan struct{})
	back := byModel(t, next)
	a := start(t, text, "-upstream", back.URL)
	key := []string{"Authorization", "Bearer secret-alice"}
	resp, answer := a.ask(fusionAPI.path, fan("", "ok1", "503"), key...)
	require.Equal(t, 200, resp.StatusCode, answer)
	var f fusionAnswer
	require.NoError(t, json.Unmarshal([]byte(answer), &f))
	assert.Equal(t, []int{1, 1, 0}, []int{f.Succeeded, f.Failed, f.Skipped}, answer)

	// A small call costs 6: the fusion's own lease covers one target, the other 6 another.
	resp, answer = a.ask(fusionAPI.path, fan("", "ok1", "ok2", "ok3"), key...)
	require.Equal(t, 200, resp.StatusCode, answer)
	f = fusionAnswer{}
	require.NoError(t, json.Unmarshal([]byte(answer), &f))
	assert.Equal(t, []int{2, 0, 1}, []int{f.Succeeded, f.Failed, f.Skipped}, answer)
	assert.True(t, f.Results[2].Skipped)

	var calls sync.WaitGroup
	a.chat(&calls, "slow", a.answered, key...)
	a.until("half the room is taken", func(status) bool { return a.snapshot().Lanes.InflightCost == 6 })
	resp, answer = a.ask(fusionAPI.path, fan("", "ok1", "ok2"), key...)
	require.Equal(t, 200, resp.StatusCode, answer)
	f = fusionAnswer{}
	require.NoError(t, json.Unmarshal([]byte(answer), &f))
	assert.Equal(t, []int{1, 0, 1}, []int{f.Succeeded, f.Failed, f.Skipped}, answer)
	close(next)
	calls.Wait()
	assert.EqualValues(t, 2, a.snapshot().Lanes.ProbeSkips)
	a.untilZero()
}

func TestFanoutErrors(t *testing.T) {
	a := start(t, "")
	for body, want := range map[string]string{
		"":                                      "the body is empty",
		"[]":                                    "the body is a JSON array",
		`{"targets": "a"}`:                      "targets has a value that is a JSON string",
		`{"targets": [], "prompt": "p"}`:        "targets is empty",
		`{"targets": ["a", ""]}`:                "targets has an empty entry",
		`{"targets": ["a"], "strategy": "any"}`: "strategy",
		`{"targets": ["a"], "stream": true}`:    "unknown field",
		`{"targets": ["a"]} {}`:                 "there is more after the JSON object",
		fan("priority", make([]string, 17)...):  "targets has more than 16 entries",
		fan("", "a", strings.Repeat("m", 257)):  "targets has an entry of more than 256 bytes",
	} {
		for _, api := range []api{comboAPI, fusionAPI} {
			resp, answer := a.ask(api.path, body)
			assert.Contains(t, []int{400, 422}, resp.StatusCode, answer)
			assert.Contains(t, answer, want, api.path)
		}
	}
	resp, answer := a.ask(fusionAPI.path, fan(byPriority, "a"))
	assert.Equal(t, 422, resp.StatusCode, answer)
}

// While the calls of a fan-out or a batch wait for their slots, what they hold is less than 8
// times the bytes of the body, which is what the byte budget is made for: no call has a copy
// of what all of them send.
func TestFanoutMemory(t *testing.T) {
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC() // what pools keep, too
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	const length = 4 << 20
	targets := slices.Repeat([]string{"ok"}, maxTargets)
	for path, c := range map[string]struct {
		body  string
		calls int
	}{
		fusionAPI.path: {strings.Replace(fan("", targets...), `"p"`, `"`+strings.Repeat("x", length)+`"`, 1), maxTargets},
		batchAPI.path:  {batchOf("ok", slices.Repeat([]string{strings.Repeat("x", length/maxPrompts)}, maxPrompts)...), maxPrompts},
	} {
		next := make(chan struct{})
		a := start(t, "inflight: {max_inflight: 1, interactive_reserve: 0, queue_timeout: 1m}", "-upstream", byModel(t, next).URL)
		var calls sync.WaitGroup
		a.chat(&calls, "slow", a.answered)
		a.untilLane("other", "the slot is taken", func(l inflight.LaneSnapshot) bool { return l.Inflight == 1 })
		before := heap()
		a.beside(&calls, a.request(path, c.body), a.answered)
		a.untilLane("other", "all wait", func(l inflight.LaneSnapshot) bool { return l.Queued == c.calls })
		held := heap() - before
		t.Logf("%s: %.1f times its body", path, float64(held)/float64(len(c.body)))
		assert.Less(t, held, int64(8*len(c.body)), path)
		close(next)
		calls.Wait()
		a.untilZero()
	}
}
