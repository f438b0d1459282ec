package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/inflight"
	"github.com/headgate-go/headgate/examples/internal/upstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// batchOf is the body of a batch.
func batchOf(model string, prompts ...string) string {
	text, err := json.Marshal(map[string]any{"model": model, "prompts": prompts})
	if err != nil {
		panic(err) // it is strings only
	}
	return string(text)
}

// readBatch reads an answer to a batch.
func readBatch(t *testing.T, resp reply, text string) batchAnswer {
	t.Helper()
	assert.Equal(t, "application/json", resp.Header.Get("Content-Type"))
	var b batchAnswer
	require.NoError(t, json.Unmarshal([]byte(text), &b), text)
	for i, r := range b.Results {
		assert.Equal(t, i, r.Index)
		assert.NotEqual(t, r.Error == nil, r.Response == nil, "one of the two: %s", text)
	}
	assert.Len(t, b.Results, b.Succeeded+b.Failed)
	return b
}

// promptOf returns the prompt that a call of a batch asks.
func promptOf(r *http.Request) string {
	var q struct {
		Model    string
		Messages []struct{ Role, Content string }
	}
	if json.NewDecoder(r.Body).Decode(&q) != nil || len(q.Messages) != 1 || q.Messages[0].Role != "user" {
		return "not a prompt"
	}
	_, _ = io.Copy(io.Discard, r.Body)
	return q.Messages[0].Content
}

// Each prompt is a chat completion of its own at the back end; the answers stand in the
// order of the prompts, in a bare gateway too.
func TestBatch(t *testing.T) {
	for _, mode := range everyMode() {
		t.Run(mode, func(t *testing.T) {
			back := models(t, 20*time.Millisecond)
			a := start(t, "", mode, "-upstream", back.URL)
			prompts := []string{"one", "", "zwei \u00e4 \"\n", strings.Repeat("x", 100<<10)}
			resp, text := a.ask(batchAPI.path, batchOf("m", prompts...), "Authorization", "Bearer mine", "X-Forwarded-For", "1.2.3.4")
			require.Equal(t, 200, resp.StatusCode, text)
			b := readBatch(t, resp, text)
			assert.Equal(t, "m", b.Model)
			assert.Equal(t, 4, b.Succeeded)
			for _, r := range b.Results {
				assert.Equal(t, 200, r.Status)
				var c struct {
					Object, Model string
					Usage         struct {
						Prompt int `json:"prompt_tokens"`
					}
				}
				require.NoError(t, json.Unmarshal(r.Response, &c))
				assert.Equal(t, "chat.completion", c.Object)
				assert.Equal(t, "m", c.Model)
				if r.Index == 3 {
					assert.Greater(t, c.Usage.Prompt, 100<<10/4)
				}
			}
			for _, c := range back.done(4) {
				assert.Equal(t, "POST", c.method)
				assert.Equal(t, "/v1/chat/completions", c.uri)
				assert.Equal(t, "application/json", c.header.Get("Content-Type"))
				assert.Equal(t, "Bearer mine", c.header.Get("Authorization"), "without tenants the client's key goes on")
				assert.Equal(t, "127.0.0.1", c.header.Get("X-Forwarded-For"))
			}
			if mode != "-bare" {
				a.untilZero()
			}
		})
	}
}

// What a prompt's call has failed of stands in its place; the others are answered.
func TestBatchOfAllKinds(t *testing.T) {
	back := listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch promptOf(r) {
		case "ok":
			_, _ = io.WriteString(w, `{"object": "chat.completion"}`)
		case "own error":
			w.WriteHeader(http.StatusTooManyRequests)
			_, _ = io.WriteString(w, `{"error": {"message": "slow down", "code": "rate_limit_exceeded"}}`)
		case "no JSON":
			_, _ = io.WriteString(w, "<html>")
		case "strange error":
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = io.WriteString(w, "oops")
		case "huge":
			_, _ = io.WriteString(w, `"`+strings.Repeat("x", maxAnswer)+`"`)
		case "breaks off":
			_, _ = io.WriteString(w, "half")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
	}))
	a := start(t, "", "-upstream", back.URL)
	resp, text := a.ask(batchAPI.path, batchOf("m", "ok", "own error", "no JSON", "strange error", "huge", "breaks off", "ok"))
	require.Equal(t, 200, resp.StatusCode, "two have succeeded")
	assert.Empty(t, resp.Header.Get(gate.MarkerHeader))
	b := readBatch(t, resp, text)
	assert.Equal(t, 2, b.Succeeded)
	for i, want := range []struct {
		status        int
		code, message string
	}{
		{200, "", ""},
		{429, "rate_limit_exceeded", "slow down"},
		{502, "upstream_answer", "the upstream's answer is no chat completion, its status is 200"},
		{502, "upstream_answer", "the upstream's answer is no chat completion, its status is 500"},
		{502, "answer_too_large", "the upstream's answer has more than 1048576 bytes"},
		{502, "upstream_unreachable", "the upstream did not answer"},
		{200, "", ""},
	} {
		r := b.Results[i]
		assert.Equal(t, want.status, r.Status, i)
		if want.status == 200 {
			assert.JSONEq(t, `{"object": "chat.completion"}`, string(r.Response))
			continue
		}
		var e struct{ Code, Message string }
		require.NoError(t, json.Unmarshal(r.Error, &e))
		assert.Equal(t, want.code, e.Code, i)
		assert.Equal(t, want.message, e.Message, i)
		assert.Empty(t, r.Reason, "headgate has not refused it")
	}
	resp, text = a.ask(batchAPI.path, batchOf("m", "own error", "own error"))
	assert.Equal(t, 429, resp.StatusCode, "all the same")
	assert.Equal(t, 2, readBatch(t, resp, text).Failed)
	resp, text = a.ask(batchAPI.path, batchOf("m", "own error", "huge"))
	assert.Equal(t, 502, resp.StatusCode)
	assert.Equal(t, 2, readBatch(t, resp, text).Failed)
	a.untilZero()
}

// The prompts of a batch are bulk in the tenant's flow, whatever the tenant is and says,
// and all of them are sent at once.
func TestBatchIsBulk(t *testing.T) {
	next := make(chan struct{})
	back := listen(t, answerAt(next))
	a := start(t, threeTenants+"inflight: {max_inflight: 4}", "-upstream", back.URL)
	var calls sync.WaitGroup
	for _, headers := range [][]string{
		{"Authorization", "Bearer secret-alice"},
		{"Authorization", "Bearer secret-batch", "Headgate-Class", "interactive"},
	} {
		req := a.request(batchAPI.path, batchOf("m", "1", "2", "3"), headers...)
		calls.Go(func() {
			resp, err := a.client.Do(req)
			if assert.NoError(t, err) {
				head, text, err := read(resp)
				assert.NoError(t, err)
				assert.Equal(t, 502, head.StatusCode, text) // the back end answers nothing
			}
		})
	}
	a.untilLane("other", "six are there, one slot is kept for people", func(l inflight.LaneSnapshot) bool {
		return l.InflightByPriority == inflight.ByClass{Bulk: 3} && l.QueuedByPriority == inflight.ByClass{Bulk: 3}
	})
	close(next)
	calls.Wait()
	for _, c := range back.done(6) {
		assert.Empty(t, c.header.Get("Authorization"), "a tenant's key is not passed on")
		assert.Empty(t, c.header.Get("Headgate-Class"))
	}
	a.untilZero()
}

// A refusal stands in the results of those that it hit, and marks the whole answer where
// all were.
func TestBatchRefusals(t *testing.T) {
	next := make(chan struct{})
	back := listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answerAt(next)(w, r)
		_, _ = io.WriteString(w, "{}")
	}))
	a := start(t, "inflight: {max_inflight: 2, queue_timeout: 50ms, interactive_reserve: 0}", "-upstream", back.URL)
	type end struct {
		head reply
		text string
	}
	ends := make(chan end, 1)
	req := a.request(batchAPI.path, batchOf("m", "1", "2", "3", "4", "5"))
	go func() {
		resp, err := a.client.Do(req)
		if !assert.NoError(t, err) {
			close(ends)
			return
		}
		head, text, err := read(resp)
		assert.NoError(t, err)
		ends <- end{head, text}
	}()
	a.untilLane("other", "two run, three are refused", func(l inflight.LaneSnapshot) bool { return l.Inflight == 2 && l.Sheds == 3 })
	resp, text := a.ask(batchAPI.path, batchOf("m", "6", "7"))
	assert.Equal(t, 503, resp.StatusCode)
	assert.Equal(t, string(gate.QueueTimeout), resp.Header.Get(gate.MarkerHeader))
	assert.NotEmpty(t, resp.Header.Get("Retry-After"))
	b := readBatch(t, resp, text)
	assert.Equal(t, 2, b.Failed)

	close(next)
	some, ok := <-ends
	require.True(t, ok)
	assert.Equal(t, 200, some.head.StatusCode)
	assert.Empty(t, some.head.Header.Get(gate.MarkerHeader))
	refused := readBatch(t, some.head, some.text)
	assert.Equal(t, 2, refused.Succeeded)
	for _, r := range append(b.Results, refused.Results...) {
		if r.Error == nil {
			assert.Equal(t, 200, r.Status)
			continue
		}
		assert.Equal(t, 503, r.Status)
		assert.Equal(t, gate.QueueTimeout, r.Reason)
		assert.Positive(t, r.RetryAfterS)
		var e struct{ Code, Message string }
		require.NoError(t, json.Unmarshal(r.Error, &e))
		assert.Equal(t, string(gate.QueueTimeout), e.Code)
		assert.Contains(t, e.Message, "(class bulk, limit 2): raise MaxInflight or QueueTimeout")
	}
	assert.NotContains(t, a.log.String(), "did not answer", "it was not asked")
	a.untilZero()
}

// A bad batch is told what is wrong with it, and nothing is sent.
func TestBadBatches(t *testing.T) {
	back := models(t, 0)
	a := start(t, threeTenants, "-upstream", back.URL)
	const want = `want {"model": "...", "prompts": ["...", ...]}: `
	for _, c := range []struct {
		body   string
		status int
		text   string
	}{
		{"", 400, want + "the body is empty"},
		{"[]", 400, want + "the body is a JSON array"},
		{"{", 400, want + "unexpected EOF"},
		{`{"model": "m", "prompts": ["a"]} x`, 400, want + "there is more after the JSON object"},
		{`{"model": "m", "prompts": ["a"], "stream": true}`, 400, want + `unknown field "stream"`},
		{`{"model": 5, "prompts": ["a"]}`, 400, want + "model has a value that is a JSON number"},
		{`{"model": "m", "prompts": [5]}`, 400, want + "prompts has a value that is a JSON number"},
		{`{"model": "m", "prompts": "a"}`, 400, want + "prompts has a value that is a JSON string"},
		{`{"prompts": ["a"]}`, 422, "model is empty: want the name of a model"},
		{`{"model": "m"}`, 422, "prompts is empty: want 1 to 100"},
		{`{"model": "m", "prompts": []}`, 422, "prompts is empty: want 1 to 100"},
		{batchOf(strings.Repeat("m", 257), "a"), 422, "model has 257 bytes: want at most 256"},
		{batchOf("m", make([]string, 101)...), 422, "prompts has more than 100 entries: send the others in another batch"},
		{`{"` + strings.Repeat("k", 1<<20) + `": 1}`, 400, want + `unknown field "` + strings.Repeat("k", 185)},
	} {
		resp, text := a.ask(batchAPI.path, c.body, "Authorization", "Bearer secret-alice")
		s := requireShape(t, batchAPI.path, resp, text, c.status)
		assert.Equal(t, c.text, s.Error.Message, c.body)
		assert.False(t, resp.Close, "the body was read")
	}
	resp, text := a.ask(batchAPI.path, batchOf("m", "a"), "Authorization", "Bearer wrong")
	requireShape(t, batchAPI.path, resp, text, 401)
	resp, text = a.do(http.MethodGet, batchAPI.path, nil)
	s := requireShape(t, batchAPI.path, resp, text, 405)
	assert.Equal(t, "/v1/batch takes POST only", s.Error.Message)
	assert.Equal(t, "POST", resp.Header.Get("Allow"))
	assert.Zero(t, back.model.Stats().Started)

	resp, text = a.ask(batchAPI.path, batchOf(strings.Repeat("m", 256), make([]string, 100)...), "Authorization", "Bearer secret-alice")
	assert.Equal(t, 200, resp.StatusCode, text)
	assert.Equal(t, 100, readBatch(t, resp, text).Succeeded)
	a.untilZero()
}

// Of a list that is longer than it may be no more is read, whatever it holds: what parsing
// takes is bounded by the bytes of the body, and far below the 8 times that the budget is for.
func TestLongListsAreNotRead(t *testing.T) {
	for _, entry := range []string{`""`, "null", `"a"`} {
		list := `["a", "a"` + strings.Repeat(", "+entry, 1<<20) + `, "a"]`
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, p := parseBatch([]byte(`{"model": "m", "prompts": ` + list + `}`))
		_, q := parseFanout(comboAPI, []byte(`{"targets": `+list+`}`))
		runtime.ReadMemStats(&after)
		require.NotNil(t, p)
		require.NotNil(t, q)
		assert.Contains(t, p.text, "more than 100 entries")
		assert.Contains(t, q.text, "more than 16 entries")
		assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(2*8*len(list)), entry)
	}
}

// A list is what was in it, null an empty text.
func TestBatchLists(t *testing.T) {
	for text, want := range map[string][]string{
		`["a", null, ""]`:               {"a", "", ""},
		`[null, "a"]`:                   {"", "a"},
		`["a", "b"], "prompts": ["c"]`:  {"c"},
		`["a", "b"], "PROMPTS": [null]`: {""},
		`[]`:                            nil,
	} {
		b, _ := parseBatch([]byte(`{"model": "m", "prompts": ` + text + `}`))
		assert.Equal(t, want, b.Prompts, text)
	}
}

// The byte gate stands before it: a batch that is too large is refused in its shape, and
// the bytes of one that runs are charged until its end.
func TestBatchIsAdmitted(t *testing.T) {
	next := make(chan struct{})
	var calls atomic.Int64
	back := listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		first := promptOf(r) == "first"
		calls.Add(1)
		if first {
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
		answerAt(next)(w, r)
	}))
	a := start(t, smallBudget, "-upstream", back.URL)
	resp, text := a.ask(batchAPI.path, batchOf("m", strings.Repeat("x", 9*mib)))
	requireShape(t, batchAPI.path, resp, text, 413)
	assert.NotEmpty(t, resp.Header.Get(gate.MarkerHeader))

	body := batchOf("m", "first", strings.Repeat("x", mib))
	var running sync.WaitGroup
	req := a.request(batchAPI.path, body)
	running.Go(func() {
		resp, err := a.client.Do(req)
		if assert.NoError(t, err) {
			_, _, err = read(resp)
			assert.NoError(t, err)
		}
	})
	require.Eventually(t, func() bool { return calls.Load() == 2 }, hang, time.Millisecond)
	a.logs("did not answer") // the first has had a head, and has ended
	assert.EqualValues(t, len(body), a.status()["inflight_bytes"])
	close(next)
	running.Wait()
	a.untilZero()
}

// A client that leaves ends all calls of its batch.
func TestClientLeavesBatch(t *testing.T) {
	back := models(t, time.Hour)
	a := start(t, "inflight: {max_inflight: 3, interactive_reserve: 0}", "-upstream", back.URL)
	ctx, leave := context.WithCancel(t.Context())
	req := a.request(batchAPI.path, batchOf("m", "1", "2", "3", "4", "5")).WithContext(ctx)
	gone := make(chan error, 1)
	go func() {
		_, err := a.client.Do(req) //nolint:bodyclose // there is none
		gone <- err
	}()
	a.untilLane("other", "three run, two wait", func(l inflight.LaneSnapshot) bool { return l.Inflight == 3 && l.Queued == 2 })
	back.until("three calls", func(s upstream.Stats) bool { return s.Concurrent == 3 })
	leave()
	require.ErrorIs(t, <-gone, context.Canceled)
	back.until("three left, and no more came", func(s upstream.Stats) bool { return s.Abandoned == 3 && s.Concurrent == 0 && s.Started == 3 })
	a.untilLane("other", "nothing is left", func(l inflight.LaneSnapshot) bool { return l.Inflight == 0 && l.Queued == 0 })
	assert.NotContains(t, a.log.String(), "did not answer")
	a.untilZero()
}

// Prompts have the attempts that calls have.
func TestBatchIsTriedAgain(t *testing.T) {
	back := listen(t, failsFirst(3, 503))
	a := start(t, "upstream: {attempts: 2}", "-upstream", back.URL)
	resp, text := a.ask(batchAPI.path, batchOf("m", "1", "2", "3"))
	b := readBatch(t, resp, text)
	assert.Equal(t, 3, b.Failed, "an answer at last, that is no JSON")
	for _, r := range b.Results {
		assert.Contains(t, string(r.Error), "its status is 200")
	}
	back.done(6)
	a.untilZero()
}

// The answers that a batch keeps are paid for out of the byte budget, so that many large ones
// cannot fill the memory: what finds no room is refused in its place, and all of it comes back.
func TestKeptAnswersAreCharged(t *testing.T) {
	const prompts = 20
	for _, flag := range everyFramework() {
		t.Run(flag, func(t *testing.T) {
			var most atomic.Int64
			var a *app
			back := listen(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if n := a.status()["inflight_bytes"]; n > most.Load() {
					most.Store(n)
				}
				_, _ = io.WriteString(w, `"`+strings.Repeat("x", 900<<10)+`"`)
			}))
			a = start(t, smallBudget+"\ninflight: {max_inflight: 2, interactive_reserve: 0, queue_timeout: 1m}", "-upstream", back.URL, flag)
			resp, text := a.ask(batchAPI.path, batchOf("m", make([]string, prompts)...))
			require.Equal(t, http.StatusOK, resp.StatusCode, text)
			var answer batchAnswer
			require.NoError(t, json.Unmarshal([]byte(text), &answer))
			assert.Equal(t, 9, answer.Succeeded, "as many as 8 MiB hold")
			for _, r := range answer.Results {
				if r.Status != http.StatusOK {
					assert.Equal(t, http.StatusServiceUnavailable, r.Status)
					assert.Equal(t, gate.AdmissionBusy, r.Reason)
				}
			}
			assert.LessOrEqual(t, most.Load(), int64(8*mib))
			assert.Greater(t, most.Load(), int64(7*mib))
			a.untilZero()
		})
	}
}
