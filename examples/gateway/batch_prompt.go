package main

import (
	"bytes"
	"encoding/json"

	"github.com/headgate-go/headgate/core/lanes"
)

// prompt is a prompt as it stands in the bodies of calls, as JSON: encoded once, whatever the
// number of models that it goes to.
type prompt []byte

func newPrompt(text string) prompt { return jsonString(text) }

// What stands around model and prompt in the body of a call.
const beforeModel, beforePrompt, afterPrompt = `{"model":`, `,"messages":[{"role":"user","content":`, `}]}`

// to is the body of the call that asks a model. It asks for no stream.
func (q prompt) to(model string) []byte {
	name := jsonString(model)
	body := make([]byte, 0, q.size(name))
	body = append(append(body, beforeModel...), name...)
	body = append(append(body, beforePrompt...), q...)
	return append(body, afterPrompt...)
}

// size is the length of the body with that model.
func (q prompt) size(name []byte) int {
	return len(beforeModel) + len(name) + len(beforePrompt) + len(q) + len(afterPrompt)
}

// price is what the call that asks a model costs in the tenant's lane, by its body.
func (q prompt) price(model string) int64 {
	return lanes.Price(lanes.Features{Bytes: int64(q.size(jsonString(model))), Messages: 1})
}

// jsonString is s as JSON. What only a browser could misread stays as it is: escapes would make
// the body up to six times as long, and as dear.
func jsonString(s string) []byte {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		panic(err) // it is a string
	}
	return bytes.TrimSuffix(text.Bytes(), []byte("\n"))
}
