package upstream

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
)

const (
	// bytesPerToken is the usual rule of thumb for English text.
	bytesPerToken = 4
	// maxModel bounds the model name, which every chunk of a stream repeats.
	maxModel = 256
	// maxChoices is the Chat Completions API's bound for n.
	maxChoices = 128
)

// request is what the back end reads of a request body, of whichever API. Only the model
// is required, so that who makes load need not make up a conversation.
type request struct {
	Model    string          `json:"model"`
	Stream   bool            `json:"stream"`
	Messages json.RawMessage `json:"messages"`
	Input    json.RawMessage `json:"input"`
	// The three names of the same bound; the smallest counts.
	MaxTokens           *int64 `json:"max_tokens"`
	MaxCompletionTokens *int64 `json:"max_completion_tokens"`
	MaxOutputTokens     *int64 `json:"max_output_tokens"`
	N                   *int64 `json:"n"`
	StreamOptions       struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`

	inputTokens int64
}

// failure is a refusal, before a dialect gives it its shape. param and code may be empty.
type failure struct {
	status               int
	message, param, code string
}

func (f failure) Error() string { return f.message }

func invalid(param, format string, args ...any) failure {
	return failure{status: http.StatusBadRequest, message: fmt.Sprintf(format, args...), param: param}
}

// read reads the whole body and checks it. The error is a failure.
func (s *Server) read(w http.ResponseWriter, r *http.Request) (request, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, s.maxBody))
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return request{}, failure{
			status:  http.StatusRequestEntityTooLarge,
			message: fmt.Sprintf("the request body is larger than %d bytes", tooLarge.Limit),
		}
	}
	if err != nil {
		return request{}, invalid("", "the request body could not be read")
	}
	return parse(body)
}

// parse checks a request body. The error is a failure.
func parse(body []byte) (request, error) {
	var q request
	if err := json.Unmarshal(body, &q); err != nil {
		var wrong *json.UnmarshalTypeError
		switch {
		case !errors.As(err, &wrong):
		case wrong.Field != "":
			return request{}, invalid(wrong.Field, "%s: want %v, got %s", wrong.Field, wrong.Type, wrong.Value)
		default:
			return request{}, invalid("", "the request body is not a JSON object: it is a JSON %s", wrong.Value)
		}
		return request{}, invalid("", "the request body is not a JSON object: %v", err)
	}
	switch {
	case q.Model == "":
		return request{}, invalid("model", "model: required")
	case len(q.Model) > maxModel:
		return request{}, invalid("model", "model: %d bytes, at most %d", len(q.Model), maxModel)
	case !startsWith(q.Messages, "["):
		return request{}, invalid("messages", "messages: want an array")
	case !startsWith(q.Input, `["`):
		return request{}, invalid("input", "input: want a string or an array")
	case q.N != nil && (*q.N < 1 || *q.N > maxChoices):
		return request{}, invalid("n", "n: %d, want 1 to %d", *q.N, maxChoices)
	}
	for _, bound := range q.bounds() {
		if bound.tokens != nil && *bound.tokens < 1 {
			return request{}, invalid(bound.name, "%s: %d, want 1 or more", bound.name, *bound.tokens)
		}
	}
	q.inputTokens = int64(len(body)+bytesPerToken-1) / bytesPerToken
	return q, nil
}

// startsWith reports whether value is absent, null, or begins with one of the bytes of
// first. A RawMessage has no white space in front.
func startsWith(value json.RawMessage, first string) bool {
	if len(value) == 0 || string(value) == "null" {
		return true
	}
	for i := range len(first) {
		if value[0] == first[i] {
			return true
		}
	}
	return false
}

type bound struct {
	name   string
	tokens *int64
}

func (q *request) bounds() [3]bound {
	return [...]bound{
		{"max_tokens", q.MaxTokens},
		{"max_completion_tokens", q.MaxCompletionTokens},
		{"max_output_tokens", q.MaxOutputTokens},
	}
}

// maxTokens returns the tightest bound on the answer, or nil.
func (q *request) maxTokens() *int64 {
	var tightest *int64
	for _, b := range q.bounds() {
		if b.tokens != nil && (tightest == nil || *b.tokens < *tightest) {
			tightest = b.tokens
		}
	}
	return tightest
}

func (q *request) choices() int {
	if q.N == nil {
		return 1
	}
	return int(*q.N)
}
