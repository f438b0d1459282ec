package gate

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"
)

// Format is the shape of a refusal's body. The zero Format is [Problem].
type Format uint8

// The formats.
const (
	Problem   Format = iota // application/problem+json, RFC 9457
	OpenAI                  // {"error": {"message", "type", "param", "code"}}
	Anthropic               // {"type": "error", "error": {"type", "message", "code"}}
)

var formatNames = [...]string{"problem", "openai", "anthropic"}

// String returns the format's name.
func (f Format) String() string {
	if int(f) < len(formatNames) {
		return formatNames[f]
	}
	return fmt.Sprintf("format(%d)", uint8(f))
}

// MarshalText returns the format's name. It is an error for an unknown format.
func (f Format) MarshalText() ([]byte, error) {
	if int(f) >= len(formatNames) {
		return nil, fmt.Errorf("format %d does not exist", uint8(f))
	}
	return []byte(f.String()), nil
}

// UnmarshalText sets f to the format that b names ("problem", "openai",
// "anthropic"), or leaves it and returns an error.
func (f *Format) UnmarshalText(b []byte) error {
	for i, name := range formatNames {
		if string(b) == name {
			*f = Format(i)
			return nil
		}
	}
	return fmt.Errorf("format %s: want problem, openai or anthropic", quote(string(b)))
}

// Render returns the body of r in the given format and its content type. An
// unknown format reads as [Problem].
func (r *Rejection) Render(f Format) (body []byte, contentType string) {
	const jsonType = "application/json"
	switch f {
	case OpenAI:
		return encode(map[string]any{"error": map[string]any{
			"message": r.Error(), "type": r.kind("invalid_request_error", "rate_limit_error", "timeout", "server_error"),
			"param": nil, "code": r.Reason,
		}}), jsonType
	case Anthropic:
		return encode(map[string]any{"type": "error", "error": map[string]any{
			"type":    r.kind("request_too_large", "rate_limit_error", "timeout_error", "overloaded_error"),
			"message": r.Error(), "code": r.Reason,
		}}), jsonType
	}
	p := map[string]any{
		"type": "about:blank", "title": r.title(), "status": r.Status(),
		"code": r.Reason, "detail": r.Error(), "gate": r.Gate,
	}
	if r.Lane != "" {
		p["lane"] = r.Lane
	}
	if r.Class != 0 {
		p["class"] = r.Class.String()
	}
	if r.Limit > 0 {
		p["limit"] = r.Limit
	}
	if r.Waited > 0 {
		p["waited_s"] = r.Waited.Seconds()
	}
	return encode(p), "application/problem+json"
}

func (r *Rejection) kind(tooLarge, tooMany, tooSlow, busy string) string {
	switch r.Status() {
	case 413:
		return tooLarge
	case 429:
		return tooMany
	case 408:
		return tooSlow
	}
	return busy
}

func (r *Rejection) title() string {
	if r.Reason == Canceled {
		return "Client Closed Request"
	}
	return r.kind("Content Too Large", "Too Many Requests", "Request Timeout", "Service Unavailable")
}

// ServerTiming returns the value of a Server-Timing header (W3C Server Timing) for a request
// that stood in a gate's queue: "queue;dur=" with milliseconds, to the microsecond, 0
// where it did not wait.
func ServerTiming(waited time.Duration) string {
	ms := float64(max(waited, 0).Round(time.Microsecond)) / float64(time.Millisecond)
	return "queue;dur=" + strconv.FormatFloat(ms, 'f', -1, 64)
}

func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil { // strings and numbers only
		panic(err)
	}
	return b
}
