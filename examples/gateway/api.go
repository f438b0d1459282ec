package main

import (
	"net/http"

	"github.com/headgate-go/headgate/core/gate"
)

// api is one of the APIs whose calls are passed on.
type api struct {
	path string
	// format is the shape of what the gateway itself answers, so that the clients of
	// the API can read it.
	format gate.Format
}

// apis are all of them, under the paths that their clients call.
var apis = []api{
	{"/v1/chat/completions", gate.OpenAI},
	{"/v1/messages", gate.Anthropic},
	{"/v1/responses", gate.OpenAI},
}

// formatOf returns the shape in which the clients of a path read refusals.
func formatOf(path string) gate.Format {
	a, _ := apiAt(path)
	return a.format // gate.Problem where there is none
}

// problem is an answer of the gateway that is no refusal of a gate.
type problem struct {
	status int
	code   string // for clients to compare, where the format has one
	text   string
}

// fail answers p in the API's own shape.
func (a api) fail(w http.ResponseWriter, r *http.Request, p problem) {
	closeUnread(w, r)
	writeJSON(w, p.status, a.shape(p))
}

func (a api) shape(p problem) any {
	if a.format == gate.Anthropic {
		kind := "invalid_request_error"
		switch {
		case p.status == http.StatusUnauthorized:
			kind = "authentication_error"
		case p.status >= 500:
			kind = "api_error"
		}
		return map[string]any{"type": "error", "error": map[string]any{"type": kind, "message": p.text}}
	}
	kind := "invalid_request_error"
	if p.status >= 500 {
		kind = "server_error"
	}
	return map[string]any{"error": map[string]any{"message": p.text, "type": kind, "param": nil, "code": p.code}}
}

// takesPost is the answer to other methods.
func (a api) takesPost() problem {
	return problem{http.StatusMethodNotAllowed, "method_not_supported", a.path + " takes POST only"}
}

// authorize presents key as the API wants it.
func (a api) authorize(h http.Header, key string) {
	h.Del("Authorization")
	h.Del(anthropicKey)
	if a.format == gate.Anthropic {
		h.Set(anthropicKey, key)
	} else {
		h.Set("Authorization", "Bearer "+key)
	}
}
