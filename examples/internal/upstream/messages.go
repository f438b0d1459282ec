package upstream

// messages is Anthropic's Messages API.
type messages struct{}

type message struct {
	ID           string        `json:"id"`
	Type         string        `json:"type"`
	Role         string        `json:"role"`
	Model        string        `json:"model"`
	Content      []textBlock   `json:"content"`
	StopReason   *string       `json:"stop_reason"`
	StopSequence *string       `json:"stop_sequence"`
	Usage        messagesUsage `json:"usage"`
}

type textBlock struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

// messagesUsage is a tokens count; the last event of a stream leaves the service tier out.
type messagesUsage struct {
	InputTokens         int64  `json:"input_tokens"`
	CacheCreationTokens int64  `json:"cache_creation_input_tokens"`
	CacheReadTokens     int64  `json:"cache_read_input_tokens"`
	OutputTokens        int64  `json:"output_tokens"`
	ServiceTier         string `json:"service_tier,omitempty"`
}

// messagesEvent is any event of a stream; each has the fields that its type needs.
type messagesEvent struct {
	Type         string         `json:"type"`
	Message      *message       `json:"message,omitempty"`
	Index        *int           `json:"index,omitempty"`
	ContentBlock *textBlock     `json:"content_block,omitempty"`
	Delta        any            `json:"delta,omitempty"`
	Usage        *messagesUsage `json:"usage,omitempty"`
}

func (messages) requestIDHeader() string { return "request-id" }

func (messages) failure(f failure, requestID string) any {
	type inner struct {
		Type    string `json:"type"`
		Message string `json:"message"`
	}
	type outer struct {
		Type      string `json:"type"`
		Error     inner  `json:"error"`
		RequestID string `json:"request_id"`
	}
	kind := "invalid_request_error"
	switch {
	case f.status == 404:
		kind = "not_found_error"
	case f.status == 413:
		kind = "request_too_large"
	case f.status == 429:
		kind = "rate_limit_error"
	case f.status >= 500:
		kind = "api_error"
	}
	return outer{Type: "error", Error: inner{kind, f.message}, RequestID: requestID}
}

func (m messages) whole(a *answer) any {
	out := m.message(a, a.outputTokens())
	out.Content = append(out.Content, textBlock{"text", a.text()})
	out.StopReason = m.stopReason(a)
	return out
}

func (m messages) open(a *answer) []event {
	start := m.message(a, 1) // the API counts the first token here
	return m.events(
		messagesEvent{Type: "message_start", Message: &start},
		messagesEvent{Type: "content_block_start", Index: new(int), ContentBlock: &textBlock{Type: "text"}},
		messagesEvent{Type: "ping"},
	)
}

func (m messages) token(a *answer, i int) []event {
	return m.events(messagesEvent{Type: "content_block_delta", Index: new(int), Delta: textBlock{"text_delta", a.words[i]}})
}

func (m messages) close(a *answer) []event {
	type delta struct {
		StopReason   *string `json:"stop_reason"`
		StopSequence *string `json:"stop_sequence"`
	}
	usage := m.usage(a, a.outputTokens())
	usage.ServiceTier = ""
	return m.events(
		messagesEvent{Type: "content_block_stop", Index: new(int)},
		messagesEvent{Type: "message_delta", Delta: delta{StopReason: m.stopReason(a)}, Usage: &usage},
		messagesEvent{Type: "message_stop"},
	)
}

// events names each event after its type.
func (messages) events(data ...messagesEvent) []event {
	events := make([]event, len(data))
	for i, d := range data {
		events[i] = event{name: d.Type, data: d}
	}
	return events
}

func (m messages) message(a *answer, outputTokens int64) message {
	return message{
		ID:      "msg_" + a.id,
		Type:    "message",
		Role:    "assistant",
		Model:   a.request.Model,
		Content: []textBlock{},
		Usage:   m.usage(a, outputTokens),
	}
}

func (messages) usage(a *answer, outputTokens int64) messagesUsage {
	return messagesUsage{InputTokens: a.request.inputTokens, OutputTokens: outputTokens, ServiceTier: "standard"}
}

func (messages) stopReason(a *answer) *string {
	reason := "end_turn"
	if a.cut {
		reason = "max_tokens"
	}
	return &reason
}
