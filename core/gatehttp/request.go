package gatehttp

import (
	"errors"
	"fmt"
	"net/http"
	"reflect"

	"github.com/headgate-go/headgate/core/gate"
)

// Unmatched is the route of a request whose pattern is not known, in whatever is
// labelled or logged.
const Unmatched = "unmatched"

// Check says what is wrong with an adapter's configuration, naming the field: a Gate
// that is nil or cannot be compared with ==, or a Format that does not exist.
func Check(g gate.Gate, f gate.Format) error {
	v := reflect.ValueOf(g)
	switch {
	case !v.IsValid(), v.Kind() == reflect.Pointer && v.IsNil():
		return errors.New("Config.Gate is nil")
	case !v.Comparable():
		return fmt.Errorf("Config.Gate: %s cannot be compared with ==, so admitted requests could not be marked", v.Type())
	}
	if _, err := f.MarshalText(); err != nil {
		return fmt.Errorf("Config.Format: %w", err)
	}
	return nil
}

// describe fills what q leaves open about the request itself, but for the route.
func describe(q *gate.Request, r *http.Request) {
	if q.Method == "" {
		q.Method = methodLabel(r.Method)
	}
	if q.Path == "" && r.URL != nil {
		q.Path = r.URL.Path
	}
	if !hasBody(r) {
		return
	}
	if q.Bytes == 0 {
		q.Bytes = r.ContentLength
	}
	if q.ContentType == "" {
		q.ContentType = r.Header.Get("Content-Type")
	}
}

// methodLabel bounds what a client can make of the method.
func methodLabel(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch,
		http.MethodDelete, http.MethodConnect, http.MethodOptions, http.MethodTrace:
		return method
	}
	return "other"
}
