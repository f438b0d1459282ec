package upstream

// responses is OpenAI's Responses API. It shares its errors with [chat].
type responses struct{ chat }

type response struct {
	ID                 string             `json:"id"`
	Object             string             `json:"object"`
	CreatedAt          int64              `json:"created_at"`
	Status             string             `json:"status"`
	Background         bool               `json:"background"`
	Error              *struct{}          `json:"error"`
	IncompleteDetails  *incompleteDetails `json:"incomplete_details"`
	Instructions       *string            `json:"instructions"`
	MaxOutputTokens    *int64             `json:"max_output_tokens"`
	Model              string             `json:"model"`
	Output             []outputItem       `json:"output"`
	ParallelToolCalls  bool               `json:"parallel_tool_calls"`
	PreviousResponseID *string            `json:"previous_response_id"`
	Store              bool               `json:"store"`
	Temperature        float64            `json:"temperature"`
	Text               textConfig         `json:"text"`
	ToolChoice         string             `json:"tool_choice"`
	Tools              []struct{}         `json:"tools"`
	TopP               float64            `json:"top_p"`
	Truncation         string             `json:"truncation"`
	Usage              *responseUsage     `json:"usage"` // null until the end
	Metadata           struct{}           `json:"metadata"`
}

// textConfig is the format of an answer's text.
type textConfig struct {
	Format struct {
		Type string `json:"type"`
	} `json:"format"`
}

type incompleteDetails struct {
	Reason string `json:"reason"`
}

type outputItem struct {
	ID      string       `json:"id"`
	Type    string       `json:"type"`
	Status  string       `json:"status"`
	Role    string       `json:"role"`
	Content []outputText `json:"content"`
}

type outputText struct {
	Type        string     `json:"type"`
	Text        string     `json:"text"`
	Annotations []struct{} `json:"annotations"`
	Logprobs    []struct{} `json:"logprobs"`
}

type responseUsage struct {
	InputTokens  int64 `json:"input_tokens"`
	InputDetails struct {
		CachedTokens     int64 `json:"cached_tokens"`
		CacheWriteTokens int64 `json:"cache_write_tokens"`
	} `json:"input_tokens_details"`
	OutputTokens  int64 `json:"output_tokens"`
	OutputDetails struct {
		ReasoningTokens int64 `json:"reasoning_tokens"`
	} `json:"output_tokens_details"`
	TotalTokens int64 `json:"total_tokens"`
}

// responseEvent is any event of a stream; each has the fields that its type needs.
type responseEvent struct {
	Type           string      `json:"type"`
	SequenceNumber int         `json:"sequence_number"`
	Response       *response   `json:"response,omitempty"`
	ItemID         string      `json:"item_id,omitempty"`
	OutputIndex    *int        `json:"output_index,omitempty"`
	ContentIndex   *int        `json:"content_index,omitempty"`
	Item           *outputItem `json:"item,omitempty"`
	Part           *outputText `json:"part,omitempty"`
	Delta          string      `json:"delta,omitempty"`
	Text           string      `json:"text,omitempty"`
	Logprobs       any         `json:"logprobs,omitempty"`
}

func (d responses) whole(a *answer) any { return d.finished(a) }

func (d responses) open(a *answer) []event {
	begun := d.response(a, "in_progress")
	item := d.item(a, "in_progress")
	part := d.part("")
	return d.events(0,
		responseEvent{Type: "response.created", Response: &begun},
		responseEvent{Type: "response.in_progress", Response: &begun},
		responseEvent{Type: "response.output_item.added", OutputIndex: new(int), Item: &item},
		responseEvent{Type: "response.content_part.added", ItemID: item.ID, OutputIndex: new(int), ContentIndex: new(int), Part: &part},
	)
}

// opened is how many events come before the first token.
const opened = 4

func (d responses) token(a *answer, i int) []event {
	return d.events(opened+i, responseEvent{
		Type: "response.output_text.delta", ItemID: d.itemID(a), OutputIndex: new(int), ContentIndex: new(int),
		Delta: a.words[i], Logprobs: []struct{}{},
	})
}

func (d responses) close(a *answer) []event {
	end := d.finished(a)
	item := end.Output[0]
	part := item.Content[0]
	return d.events(opened+len(a.words),
		responseEvent{
			Type: "response.output_text.done", ItemID: item.ID, OutputIndex: new(int), ContentIndex: new(int),
			Text: part.Text, Logprobs: []struct{}{},
		},
		responseEvent{Type: "response.content_part.done", ItemID: item.ID, OutputIndex: new(int), ContentIndex: new(int), Part: &part},
		responseEvent{Type: "response.output_item.done", OutputIndex: new(int), Item: &item},
		responseEvent{Type: "response." + end.Status, Response: &end},
	)
}

// events names each event after its type and numbers them from first.
func (responses) events(first int, data ...responseEvent) []event {
	events := make([]event, len(data))
	for i, e := range data {
		e.SequenceNumber = first + i
		events[i] = event{name: e.Type, data: e}
	}
	return events
}

func (responses) response(a *answer, status string) response {
	text := textConfig{}
	text.Format.Type = "text"
	return response{
		ID:                "resp_" + a.id,
		Object:            "response",
		CreatedAt:         a.created,
		Status:            status,
		MaxOutputTokens:   a.request.maxTokens(),
		Model:             a.request.Model,
		Output:            []outputItem{},
		ParallelToolCalls: true,
		Store:             true,
		Temperature:       1,
		Text:              text,
		ToolChoice:        "auto",
		Tools:             []struct{}{},
		TopP:              1,
		Truncation:        "disabled",
	}
}

// finished is the response with all of its output.
func (d responses) finished(a *answer) response {
	status := "completed"
	if a.cut {
		status = "incomplete"
	}
	out := d.response(a, status)
	if a.cut {
		out.IncompleteDetails = &incompleteDetails{Reason: "max_output_tokens"}
	}
	item := d.item(a, status)
	item.Content = append(item.Content, d.part(a.text()))
	out.Output = append(out.Output, item)
	out.Usage = &responseUsage{
		InputTokens:  a.request.inputTokens,
		OutputTokens: a.outputTokens(),
		TotalTokens:  a.request.inputTokens + a.outputTokens(),
	}
	return out
}

func (responses) itemID(a *answer) string { return "msg_" + a.id }

func (d responses) item(a *answer, status string) outputItem {
	return outputItem{ID: d.itemID(a), Type: "message", Status: status, Role: "assistant", Content: []outputText{}}
}

func (responses) part(text string) outputText {
	return outputText{Type: "output_text", Text: text, Annotations: []struct{}{}, Logprobs: []struct{}{}}
}
