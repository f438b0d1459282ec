package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// What the routes share whose bodies are read here, not passed on.

// wholeBody returns the body of a call, or answers why there is none.
func wholeBody(a api, w http.ResponseWriter, r *http.Request, refuse func(http.ResponseWriter, *http.Request, error) bool) (text []byte, ok bool) {
	text, err := io.ReadAll(r.Body)
	if refuse(w, r, err) {
		return nil, false
	}
	if err != nil {
		a.fail(w, r, problem{http.StatusBadRequest, "invalid_body", "the body ends early or is not well-formed"})
	}
	return text, err == nil
}

// decodeObject reads text, which must be one JSON object without fields that into has not.
func decodeObject(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, more := d.Token(); !errors.Is(more, io.EOF) {
		return errors.New("there is more after the JSON object")
	}
	return nil
}

// listed returns the texts of a list that was read into entries, nil where there is none. A
// list is read into as many entries as it may have and one more: the JSON package skips the
// rest, where a slice would take many times the bytes of a list of empty texts.
func listed(name string, entries []json.RawMessage) ([]string, error) {
	var texts []string
	for _, e := range entries {
		if e == nil {
			break
		}
		var text string
		err := json.Unmarshal(e, &text)
		if kind := (*json.UnmarshalTypeError)(nil); errors.As(err, &kind) {
			kind.Field = name
		}
		if err != nil {
			return nil, err
		}
		texts = append(texts, text)
	}
	return texts, nil
}

// maxFault is the most characters of a fault, which may repeat what a client has sent.
const maxFault = 200

// jsonFault says what is wrong with the JSON, without Go's names for it.
func jsonFault(err error) string {
	kind := (*json.UnmarshalTypeError)(nil)
	switch {
	case errors.Is(err, io.EOF):
		return "the body is empty"
	case errors.As(err, &kind) && kind.Field != "":
		return fmt.Sprintf("%s has a value that is a JSON %s", kind.Field, kind.Value)
	case errors.As(err, &kind):
		return "the body is a JSON " + kind.Value
	}
	return fmt.Sprintf("%.*s", maxFault, strings.TrimPrefix(err.Error(), "json: "))
}
