package gatehttp

import (
	"context"
	"errors"
	"net/http"

	"github.com/headgate-go/headgate/core/gate"
)

// gateFailed is the reason of a refusal whose gate did not say one.
const gateFailed gate.Reason = "gate_failed"

// Refusal returns what to answer to the error of a gate. Its own text may hold
// anything, so only a *[gate.Rejection] is told to the client.
func Refusal(r *http.Request, err error) *gate.Rejection {
	var rej *gate.Rejection
	switch {
	case errors.As(err, &rej):
		return rej
	case errors.Is(err, context.Canceled) && r.Context().Err() != nil:
		return &gate.Rejection{Reason: gate.Canceled, Gate: "gate"}
	}
	return &gate.Rejection{Reason: gateFailed, Gate: "gate"}
}

// Prepare makes w ready for the answer of a refusal and reports whether there is to
// be one: the marker header, Retry-After and, where it is due, "Connection: close" are
// set then, and what was set for another answer is removed. The caller sets
// Content-Type and writes. After false the client has left, and nothing may be written.
//
// It must be called before anything is written, with the request whose body the
// handler has read: on HTTP/1 an unread rest closes the connection.
func Prepare(w http.ResponseWriter, r *http.Request, rej *gate.Rejection) bool {
	if rej.Reason == gate.Canceled {
		hangUp(w, r)
		return false
	}
	resumeWrite(w, r)
	closeUnread(w, r)
	h := w.Header()
	// Not Content-Encoding: a middleware that compresses may have set it for
	// whatever is written.
	for _, name := range []string{"Content-Length", "Content-Type", "Etag", "Last-Modified", "Retry-After"} {
		h.Del(name)
	}
	h.Set(gate.MarkerHeader, string(rej.Reason))
	if s := rej.RetryAfterSeconds(); s != "" {
		h.Set("Retry-After", s)
	}
	return true
}
