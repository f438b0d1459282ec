package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

// proxy passes the calls of an API on to the back end, and its answers back as they
// arrive. refuse answers with the refusal that an error holds, if it does: the
// framework's adapter knows how.
func (g *gateway) proxy(a api, refuse func(http.ResponseWriter, *http.Request, error) bool) http.Handler {
	p := &httputil.ReverseProxy{
		Rewrite:        func(p *httputil.ProxyRequest) { g.backend.rewrite(a, p) },
		Transport:      observed{g.backend.transport},
		FlushInterval:  -1, // tokens must not wait for each other
		ErrorLog:       slog.NewLogLogger(g.log.Handler(), slog.LevelWarn),
		ModifyResponse: keepUploading,
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			g.failed(a, w, r, err, refuse)
		},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			var u *upload
			u, r = newUpload(r)
			defer u.finish(w)
		}
		p.ServeHTTP(w, r)
	})
}

// rewrite makes the call that goes to the back end. Hop-by-hop headers, and what
// strangers say about where a call comes from, are gone from p.Out already.
func (b *backend) rewrite(a api, p *httputil.ProxyRequest) {
	p.SetURL(b.url)
	p.Out.URL.RawQuery = p.In.URL.RawQuery // as it came, unparsable parts too
	h := p.Out.Header
	h.Del("Connection") // no upgrades: they would lead past the routes
	h.Del("Upgrade")
	for name := range h {
		if strings.HasPrefix(name, "X-Forwarded-") || name == "X-Real-Ip" {
			h.Del(name)
		}
	}
	p.SetXForwarded()
	if b.key != "" {
		a.authorize(h, b.key)
	}
}

// failed answers a call that the back end did not answer.
func (g *gateway) failed(a api, w http.ResponseWriter, r *http.Request, err error, refuse func(http.ResponseWriter, *http.Request, error) bool) {
	in := r
	if u := uploadOf(r); u != nil {
		in = u.in // its body tells the adapter whether it was read
	}
	switch broken := (*brokenUpload)(nil); {
	case refuse(w, in, err):
	case errors.As(err, &broken):
		a.fail(w, r, problem{http.StatusBadRequest, "invalid_body", "the body ends early or is not well-formed"})
	case r.Context().Err() != nil:
		panic(http.ErrAbortHandler) // the client has left: nobody reads an answer
	default:
		g.unreachable.do(func(more int64) {
			g.log.Warn("the upstream did not answer", "route", a.path, "error", err, "not_logged", more)
		})
		a.fail(w, r, problem{http.StatusBadGateway, "upstream_unreachable", "the upstream did not answer"})
	}
}

// observed is a transport that tells the gates how the back end answered. At the head
// of a response the byte gate gets the body's bytes back.
type observed struct{ http.RoundTripper }

// RoundTrip sends r. Where it fails because the body could not be read, the error is a
// *brokenUpload.
func (t observed) RoundTrip(r *http.Request) (*http.Response, error) {
	var sent atomic.Int64 // after start. Until then it is the client that is slow
	start := time.Now()
	trace := &httptrace.ClientTrace{
		WroteRequest: func(httptrace.WroteRequestInfo) { sent.Store(int64(time.Since(start))) },
	}
	resp, err := t.RoundTripper.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
	if err != nil {
		if cause := uploadOf(r).failure(); cause != nil {
			err = &brokenUpload{cause} // what the transport makes of it depends on who notices first
		}
		gate.Observe(r.Context(), gate.Sample{Err: err})
		return nil, err
	}
	head := time.Since(start) - time.Duration(sent.Load())
	gate.Observe(r.Context(), gate.Sample{FirstByte: max(head, 1), Status: resp.StatusCode})
	return resp, nil
}

// keepUploading is for an answer that comes while the body is still being sent, such as
// "too large": announcing the connection's end is the only way to make net/http write it
// without reading the rest of the body first, which is not its to read.
func keepUploading(resp *http.Response) error {
	if u := uploadOf(resp.Request); u != nil && u.in.ProtoMajor == 1 && !u.over.Load() {
		resp.Header.Set("Connection", "close")
	}
	return nil
}

// brokenUpload is the error of a call whose body could not be read.
type brokenUpload struct{ cause error }

func (e *brokenUpload) Error() string { return "read the request's body: " + e.cause.Error() }
func (e *brokenUpload) Unwrap() error { return e.cause }

// upload is the body of a call on its way to the back end.
type upload struct {
	in   *http.Request // the call as it came in
	over atomic.Bool   // the body was read to its end
	left atomic.Bool   // the handler is done: nothing may be read any more
	err  atomic.Pointer[error]

	reading sync.Mutex // held by Read, so that finish can wait for it
}

type uploadKey struct{}

// newUpload returns a copy of r that has an upload for its body.
func newUpload(r *http.Request) (*upload, *http.Request) {
	u := &upload{in: r}
	r = r.WithContext(context.WithValue(r.Context(), uploadKey{}, u))
	r.Body = u
	return u, r
}

// uploadOf returns the upload of a call, nil where it has none.
func uploadOf(r *http.Request) *upload {
	u, _ := r.Context().Value(uploadKey{}).(*upload)
	return u
}

// Read reads from the client. The transport may call it until finish has returned.
func (u *upload) Read(p []byte) (int, error) {
	u.reading.Lock()
	defer u.reading.Unlock()
	if u.left.Load() {
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := u.in.Body.Read(p)
	switch {
	case errors.Is(err, io.EOF):
		u.over.Store(true)
	case err != nil:
		u.err.CompareAndSwap(nil, &err)
	}
	return n, err
}

// Close leaves the client's body alone. Closing it would wait for the rest of it; net/http
// does that when the handler is done.
func (u *upload) Close() error { return nil }

// failure returns the error that reading has ended in, nil if there was none.
func (u *upload) failure() error {
	if u == nil {
		return nil
	}
	if err := u.err.Load(); err != nil {
		return *err
	}
	return nil
}

// finish is for the end of the handler. A Read that still waits for the client would be
// ended by net/http, which then forgets the bound on the rest of the body: so it ends
// first.
func (u *upload) finish(w http.ResponseWriter) {
	u.left.Store(true)
	if u.over.Load() {
		return
	}
	boundRest(w)
	u.reading.Lock()
	defer u.reading.Unlock()
	boundRest(w) // the byte gate takes the bound off at the end of a Read
}
