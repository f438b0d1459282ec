package upstream

import (
	"encoding/json"
	"strings"
)

// chat is OpenAI's Chat Completions API.
type chat struct{}

type chatCompletion struct {
	ID          string       `json:"id"`
	Object      string       `json:"object"`
	Created     int64        `json:"created"`
	Model       string       `json:"model"`
	Choices     []chatChoice `json:"choices"`
	Usage       any          `json:"usage,omitempty"`
	ServiceTier string       `json:"service_tier"`
	Fingerprint string       `json:"system_fingerprint"`
}

// chatChoice has a message in a whole answer and a delta in a chunk.
type chatChoice struct {
	Index        int          `json:"index"`
	Message      *chatMessage `json:"message,omitempty"`
	Delta        *chatDelta   `json:"delta,omitempty"`
	Logprobs     *struct{}    `json:"logprobs"`
	FinishReason *string      `json:"finish_reason"`
}

type chatMessage struct {
	Role        string     `json:"role"`
	Content     string     `json:"content"`
	Refusal     *string    `json:"refusal"`
	Annotations []struct{} `json:"annotations"`
}

type chatDelta struct {
	Role    string  `json:"role,omitempty"`
	Content *string `json:"content,omitempty"`
	Refusal any     `json:"refusal,omitempty"`
}

type chatUsage struct {
	PromptTokens     int64 `json:"prompt_tokens"`
	CompletionTokens int64 `json:"completion_tokens"`
	TotalTokens      int64 `json:"total_tokens"`
	PromptDetails    struct {
		CachedTokens int64 `json:"cached_tokens"`
		AudioTokens  int64 `json:"audio_tokens"`
	} `json:"prompt_tokens_details"`
	CompletionDetails struct {
		ReasoningTokens          int64 `json:"reasoning_tokens"`
		AudioTokens              int64 `json:"audio_tokens"`
		AcceptedPredictionTokens int64 `json:"accepted_prediction_tokens"`
		RejectedPredictionTokens int64 `json:"rejected_prediction_tokens"`
	} `json:"completion_tokens_details"`
}

// null is a field that is there and null, where an absent one means something else.
var null = json.RawMessage("null") //nolint:gochecknoglobals // never written

func (chat) requestIDHeader() string { return "x-request-id" }

// failure is the shape of all of OpenAI's APIs.
func (chat) failure(f failure, _ string) any {
	type inner struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    *string `json:"code"`
	}
	in := inner{Message: f.message, Type: "invalid_request_error", Param: orNull(f.param), Code: orNull(f.code)}
	switch {
	case f.status == 429:
		in.Type = "requests"
	case f.status >= 500:
		in.Type = "server_error"
	}
	return map[string]inner{"error": in}
}

func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func (c chat) whole(a *answer) any {
	out := c.completion(a, "chat.completion")
	for i := range a.request.choices() {
		out.Choices = append(out.Choices, chatChoice{
			Index:        i,
			Message:      &chatMessage{Role: "assistant", Content: a.text(), Annotations: []struct{}{}},
			FinishReason: c.finishReason(a),
		})
	}
	out.Usage = c.usage(a)
	return out
}

func (c chat) open(a *answer) []event {
	return c.chunks(a, chatDelta{Role: "assistant", Content: new(string), Refusal: null}, nil)
}

func (c chat) token(a *answer, i int) []event {
	return c.chunks(a, chatDelta{Content: &a.words[i]}, nil)
}

func (c chat) close(a *answer) []event {
	events := c.chunks(a, chatDelta{}, c.finishReason(a))
	if a.request.StreamOptions.IncludeUsage {
		last := c.completion(a, "chat.completion.chunk")
		last.Usage = c.usage(a)
		events = append(events, event{data: last})
	}
	return append(events, event{})
}

// chunks returns one chunk for each choice.
func (c chat) chunks(a *answer, d chatDelta, finish *string) []event {
	events := make([]event, a.request.choices())
	for i := range events {
		chunk := c.completion(a, "chat.completion.chunk")
		chunk.Choices = append(chunk.Choices, chatChoice{Index: i, Delta: &d, FinishReason: finish})
		if a.request.StreamOptions.IncludeUsage {
			chunk.Usage = null // it comes with the last one
		}
		events[i].data = chunk
	}
	return events
}

func (chat) completion(a *answer, object string) chatCompletion {
	return chatCompletion{
		ID:          "chatcmpl-" + a.id,
		Object:      object,
		Created:     a.created,
		Model:       a.request.Model,
		Choices:     []chatChoice{},
		ServiceTier: "default",
		Fingerprint: "fp_" + strings.Repeat("0", 10),
	}
}

func (chat) finishReason(a *answer) *string {
	reason := "stop"
	if a.cut {
		reason = "length"
	}
	return &reason
}

func (chat) usage(a *answer) chatUsage {
	completion := a.outputTokens() * int64(a.request.choices())
	return chatUsage{
		PromptTokens:     a.request.inputTokens,
		CompletionTokens: completion,
		TotalTokens:      a.request.inputTokens + completion,
	}
}
