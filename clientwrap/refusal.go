package clientwrap

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"

	"github.com/headgate-go/headgate/core/gate"
)

// Refused returns the refusal that a client's result is, or nil where it is none. A
// response is a refusal if it was made by a Transport of this process: what a back
// end says, in a header or a body, is never taken for one, nor is the refusal of
// another process that uses this package. An error is a refusal if it is or wraps a
// *[gate.Rejection], of whatever gate; that of [inflight.Limiter.Do] for a caller who
// has left has the reason canceled.
//
// A refused response has a body like any other, and is closed like any other. An SDK
// that makes an error of a response usually keeps the response in it: hand that in.
//
// Compare the result with nil before it goes into a variable of type error: there a nil
// *[gate.Rejection] is not nil any more.
func Refused(resp *http.Response, err error) *gate.Rejection {
	if err != nil { // for whose sake something is allocated
		var rej *gate.Rejection
		if errors.As(err, &rej) {
			return rej
		}
	}
	if resp == nil || resp.Request == nil {
		return nil
	}
	if by, _ := resp.Request.Context().Value(refusedKey{}).(*refused); by != nil && by.resp == resp {
		return by.rej
	}
	return nil
}

// CheckRetry is a CheckRetry for the Client of github.com/hashicorp/go-retryablehttp:
// it never retries a local refusal and leaves the rest to next, which may be
// retryablehttp.DefaultRetryPolicy. A nil next retries nothing.
func CheckRetry(next func(context.Context, *http.Response, error) (bool, error)) func(context.Context, *http.Response, error) (bool, error) {
	return func(ctx context.Context, resp *http.Response, err error) (bool, error) {
		if next == nil || Refused(resp, err) != nil {
			return false, nil //nolint:nilerr // false hands on what there is, error or response
		}
		return next(ctx, resp, err)
	}
}

// refused is what tells a response of ours. It travels in the context of the
// response's request: clients wrap bodies and change headers, but leave that alone,
// and no back end can reach it. The response in it is compared, so that one who sends
// that request again is not told of the earlier refusal.
type refused struct {
	resp *http.Response
	rej  *gate.Rejection
}

type refusedKey struct{}

// refuse returns what a request gets that was not sent, or was cut.
func (t *Transport) refuse(req *http.Request, err error) (*http.Response, error) {
	var rej *gate.Rejection
	if !errors.As(err, &rej) {
		return nil, err
	}
	cause := context.Cause(req.Context())
	switch {
	case rej.Reason == gate.Canceled && cause != nil:
		return nil, cause
	case rej.Reason == gate.Canceled: // by the deprecated channel
		return nil, context.Canceled
	case cause != nil && !errors.Is(rej, cause):
		return nil, &expired{rej, cause}
	case rej.Cause == nil && !t.config.AsError:
		return t.response(req, rej), nil
	}
	return nil, rej
}

// expired is a refusal of a request whose context has ended, with the cause that the
// context gives for that.
type expired struct {
	*gate.Rejection
	cause error
}

// Unwrap lets errors.Is find both.
func (e *expired) Unwrap() []error { return []error{e.Rejection, e.cause} }

// response returns a refusal as a response.
func (t *Transport) response(req *http.Request, rej *gate.Rejection) *http.Response {
	text, contentType := rej.Render(t.config.Format)
	resp := &http.Response{
		Status:     strconv.Itoa(rej.Status()) + " " + http.StatusText(rej.Status()),
		StatusCode: rej.Status(),
		Proto:      "HTTP/1.1",
		ProtoMajor: 1,
		ProtoMinor: 1,
		Header: http.Header{
			"Content-Type":    {contentType},
			"Content-Length":  {strconv.Itoa(len(text))},
			"X-Should-Retry":  {"false"},
			gate.MarkerHeader: {string(rej.Reason)},
		},
		Body:          io.NopCloser(bytes.NewReader(text)),
		ContentLength: int64(len(text)),
	}
	if s := rej.RetryAfterSeconds(); s != "" {
		resp.Header["Retry-After"] = []string{s}
	}
	if req.Method == http.MethodHead {
		resp.Body = http.NoBody
	}
	resp.Request = req.WithContext(context.WithValue(req.Context(), refusedKey{}, &refused{resp, rej}))
	return resp
}
