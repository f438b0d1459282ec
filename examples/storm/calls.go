package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

// kind is what a call asks for.
type kind uint8

const (
	echoed kind = iota // its own body's digest
	chat               // a chat completion, by somebody who waits for it
	panel              // chat completions of many prompts at once
	flood              // a chat completion, one of many that a tenant sends at once
	drawn              // service time, at an arrival that was drawn from a trace
)

// The keys that people and panels present, where a call has none of its own.
const (
	chatKey  = "storm-people"
	panelKey = "storm-panels"
)

// parts is how many outcomes a call has.
func (k call) parts() int { return max(k.prompts, 1) }

// requests counts the outcomes of calls.
func requests(calls []call) int {
	n := 0
	for _, k := range calls {
		n += k.parts()
	}
	return n
}

// ask sends a call to an API of the app, and says what became of each of its parts.
func (c *client) ask(ctx context.Context, k call) []outcome {
	path, key := "/v1/chat/completions", cmp.Or(k.key, chatKey)
	question := map[string]any{"model": "m", "messages": []map[string]string{{"role": "user", "content": "hello"}}}
	if k.kind == panel {
		prompts := make([]string, k.prompts)
		for i := range prompts {
			prompts[i] = fmt.Sprint("hello ", i)
		}
		path, key = "/v1/batch", panelKey
		question = map[string]any{"model": "m", "prompts": prompts}
	}
	status, reason, text, err := c.post(ctx, path, key, question)
	if err != nil {
		return alike(k, lost, cause(err))
	}
	v, why := judgeCompletion(status, reason, text)
	if k.kind != panel {
		return alike(k, v, why)
	}
	return judgePanel(k, text, v, why)
}

// post sends JSON and reads the answer whole. Its reason is headgate's, "" where that has
// not refused the call.
func (c *client) post(ctx context.Context, path, key string, body any) (status int, reason gate.Reason, text []byte, err error) {
	if text, err = json.Marshal(body); err != nil {
		return 0, "", nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+path, bytes.NewReader(text))
	if err != nil {
		return 0, "", nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+key)
	resp, err := c.http.Do(r)
	if err != nil {
		return 0, "", nil, err
	}
	defer func() { _ = resp.Body.Close() }() // it was read
	text, err = io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	return resp.StatusCode, gate.Reason(resp.Header.Get(gate.MarkerHeader)), text, err
}

// alike says the same of all parts of a call.
func alike(k call, v verdict, why string) []outcome {
	all := make([]outcome, k.parts())
	for i := range all {
		all[i] = outcome{verdict: v, why: why}
	}
	return all
}

// judgePanel says what became of each prompt of a panel, from an answer that as a whole
// is v for the reason why.
func judgePanel(k call, text []byte, v verdict, why string) []outcome {
	var got struct {
		Results []struct {
			Status   int             `json:"status"`
			Response json.RawMessage `json:"response"`
			Error    json.RawMessage `json:"error"`
			Reason   gate.Reason     `json:"headgate_reason"`
		} `json:"results"`
	}
	if json.Unmarshal(text, &got) != nil || len(got.Results) != k.prompts {
		if v == answered { // which it cannot be
			v, why = wrong, "not a panel"
		}
		return alike(k, v, why)
	}
	all := make([]outcome, k.prompts)
	for i, r := range got.Results {
		body := r.Response
		if len(r.Error) > 0 {
			body = fmt.Appendf(nil, `{"error": %s}`, r.Error)
		}
		all[i].verdict, all[i].why = judgeCompletion(r.Status, r.Reason, body)
	}
	return all
}

// judgeCompletion says what an answer is that should be a chat completion.
func judgeCompletion(status int, reason gate.Reason, text []byte) (verdict, string) {
	if reason != "" {
		return refused, string(reason)
	}
	var got struct {
		Object string `json:"object"`
		Error  struct {
			Code string `json:"code"`
		} `json:"error"`
	}
	err := json.Unmarshal(text, &got)
	switch {
	case status != http.StatusOK && err == nil && got.Error.Code != "":
		return wrong, got.Error.Code
	case status != http.StatusOK:
		return wrong, fmt.Sprintf("status %d", status)
	case err != nil || got.Object != "chat.completion":
		return wrong, "not a chat completion"
	}
	return answered, ""
}

// chats are the seconds that each chat took, answered or not, by when it was due.
func chats(outcomes []outcome) []point {
	var took []point
	for _, o := range outcomes {
		if o.kind == chat {
			took = append(took, point{o.at.Seconds(), o.took.Seconds()})
		}
	}
	return took
}

// chatWaits are how long the chats waited, sorted: what they took, answered or not, less
// the time that the back end takes for one.
func chatWaits(outcomes []outcome, service time.Duration) []time.Duration {
	var waits []time.Duration
	for _, o := range outcomes {
		if o.kind == chat {
			waits = append(waits, max(0, o.took-service))
		}
	}
	slices.Sort(waits)
	return waits
}
