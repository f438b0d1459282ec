package main

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"

	"github.com/headgate-go/headgate/core/lanes"
)

// maxModel is the most bytes of a model's name where a call is for many: the name stands in
// the body of each.
const maxModel = 256

// prompt is a prompt as it stands in the bodies of calls, as JSON: encoded once, whatever the
// number of models that it goes to.
type prompt []byte

func newPrompt(text string) prompt { return jsonString(text) }

// What stands around model and prompt in the body of a call.
const beforeModel, beforePrompt, afterPrompt = `{"model":`, `,"messages":[{"role":"user","content":`, `}]}`

// callBody is the body of a call that asks a model. It asks for no stream. The calls of a
// fan-out share the prompt: a copy for each would be many times what the byte gate has charged.
type callBody struct {
	head   []byte // what stands before the prompt
	prompt prompt
}

// to is the body of the call that asks a model.
func (q prompt) to(model string) callBody {
	head := append([]byte(beforeModel), jsonString(model)...)
	return callBody{append(head, beforePrompt...), q}
}

// size is its length.
func (b callBody) size() int64 { return int64(len(b.head) + len(b.prompt) + len(afterPrompt)) }

// open returns it from its beginning, as often as it is asked to. There is no error.
func (b callBody) open() (io.ReadCloser, error) {
	return io.NopCloser(io.MultiReader(bytes.NewReader(b.head), bytes.NewReader(b.prompt), strings.NewReader(afterPrompt))), nil
}

// price is what the call that asks a model costs in the tenant's lane, by its body.
func (q prompt) price(model string) int64 {
	return lanes.Price(lanes.Features{Bytes: q.to(model).size(), Messages: 1})
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
