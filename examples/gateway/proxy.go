package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/clientwrap"
	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/inflight"
)

// proxy passes the calls of an API on to the back end, and its answers back as they
// arrive. refuse answers with the refusal that an error holds, if it does: the
// framework's adapter knows how.
func (g *gateway) proxy(a api, refuse func(http.ResponseWriter, *http.Request, error) bool) http.Handler {
	p := &httputil.ReverseProxy{
		Rewrite:        func(p *httputil.ProxyRequest) { g.backend.rewrite(a, p) },
		Transport:      outgoing{g},
		FlushInterval:  -1, // tokens must not wait for each other
		ErrorLog:       slog.NewLogLogger(g.log.Handler(), slog.LevelWarn),
		ModifyResponse: passable,
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			g.failed(a, w, r, err, refuse)
		},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			var u *upload
			u, r = newUpload(w, r)
			defer u.leave()
		}
		p.ServeHTTP(w, r)
	})
}

// rewrite makes the call that goes to the back end. Hop-by-hop headers, and what
// strangers say about where a call comes from, are gone from p.Out already.
func (b *backend) rewrite(a api, p *httputil.ProxyRequest) {
	if u := uploadOf(p.In); u != nil {
		p.Out.Body = u // the proxy's own wrapper does not tell it that it is closed
	}
	p.SetURL(b.url)
	p.Out.URL.RawQuery = p.In.URL.RawQuery // as it came, unparsable parts too
	p.Out.Trailer = nil                    // announced, but never copied; and no header that is dropped here may come in one
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
	in, gone := r, r.Context().Err() != nil
	if u := uploadOf(r); u != nil {
		in = u.in // its body tells the adapter whether it was read
		if gone {
			u.finish() // then it is known why net/http takes the client for gone
			err, gone = u.blame(err), !u.cut.Load()
		}
	}
	switch broken := (*brokenUpload)(nil); {
	case refuse(w, in, err):
	case errors.As(err, &broken):
		a.fail(w, r, problem{http.StatusBadRequest, "invalid_body", "the body ends early or is not well-formed"})
	case gone:
		panic(http.ErrAbortHandler) // the client has left: nobody reads an answer
	default:
		a.fail(w, r, g.unanswered(a.path, err))
	}
}

// unanswered logs why the back end did not answer a call, and returns what its client is
// told.
func (g *gateway) unanswered(route string, err error) problem {
	g.unreachable.do(func(more int64) {
		g.log.Warn("the upstream did not answer", "route", route, "error", withoutQuotes(err), "not_logged", more)
	})
	if late := (*timeoutError)(nil); errors.As(err, &late) {
		return problem{http.StatusGatewayTimeout, "upstream_timeout", "the upstream did not answer in time"}
	}
	return problem{http.StatusBadGateway, "upstream_unreachable", "the upstream did not answer"}
}

// outgoing is the way to the back end: within the limits of outbound calls, or without
// in a bare gateway. What they refuse is a *gate.Rejection as an error. An attempt that
// took too long is a *timeoutError.
type outgoing struct{ *gateway }

// RoundTrip sends r. Where it fails because the body could not be read, the error is a
// *brokenUpload.
func (o outgoing) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := (*o.client.Load()).RoundTrip(r)
	return resp, uploadOf(r).blame(err)
}

// limitCalls lets calls to the back end go by c from now on. Calls that are out or
// wait keep the lane that they have.
func (g *gateway) limitCalls(c config) {
	lane := clientwrap.LaneByModel(g.backend.url.String(), c.Inflight.Models...)
	var t http.RoundTripper = g.backend.transport
	var limiter *inflight.Limiter
	if g.hg != nil {
		limiter = g.hg.Outbound
	}
	switch {
	case c.Upstream != untimed():
		t = newTimedClient(c.Upstream, t, limiter, lane, g.log)
	case limiter != nil:
		t = clientwrap.NewTransport(t, limiter, clientwrap.Config{Lane: lane, AsError: true})
	}
	g.client.Store(&t)
}

// passable makes an answer one that can be passed on, or returns why it cannot be.
func passable(resp *http.Response) error {
	if resp.StatusCode < 200 { // net/http panics at 000, and 101 would lead past the routes
		return fmt.Errorf("it answers with the status %03d", resp.StatusCode)
	}
	if len(resp.Trailer) > 0 {
		resp.Header.Del("Content-Length") // HTTP/1 has trailers behind chunks only
	}
	// An answer that comes while the body is still being sent, such as "too large":
	// announcing the connection's end is the only way to make net/http write it without
	// reading the rest of the body first, which is not its to read.
	if u := uploadOf(resp.Request); u != nil && u.in.ProtoMajor == 1 && !u.over.Load() {
		resp.Header.Set("Connection", "close")
	}
	return nil
}

// fromPeer is what net/http's errors repeat of an answer that is none: it may be
// anybody's.
var fromPeer = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|(header (?:initial )?line: ).*`)

// withoutQuotes returns err's text without what the peer has sent.
func withoutQuotes(err error) string {
	return fromPeer.ReplaceAllString(err.Error(), "$1(not shown)")
}

// brokenUpload is the error of a call whose body could not be read.
type brokenUpload struct{ cause error }

func (e *brokenUpload) Error() string { return "read the request's body: " + e.cause.Error() }
func (e *brokenUpload) Unwrap() error { return e.cause }

// upload is the body of a call on its way to the back end.
type upload struct {
	in   *http.Request // the call as it came in
	w    http.ResponseWriter
	over atomic.Bool // the body was read to its end
	left atomic.Bool // nothing may be read any more
	cut  atomic.Bool // a Read was ended for that: net/http takes the client for gone
	err  atomic.Pointer[error]

	reading sync.Mutex // held by Read, so that finish can wait for it

	mu   sync.Mutex
	gone bool // the handler is done: w must not be touched
}

type uploadKey struct{}

// newUpload returns a copy of r that has an upload for its body.
func newUpload(w http.ResponseWriter, r *http.Request) (*upload, *http.Request) {
	u := &upload{in: r, w: w}
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
	switch {
	case u.over.Load():
		// The transport looks for more behind the last byte. net/http has closed the body by
		// then if the answer has begun, and its error would cut that answer.
		return 0, io.EOF
	case u.left.Load():
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := u.in.Body.Read(p)
	switch {
	case errors.Is(err, io.EOF):
		u.over.Store(true)
	case err == nil:
	case u.left.Load() && isTimeout(err):
		u.cut.Store(true)
	default:
		u.err.CompareAndSwap(nil, &err)
	}
	return n, err
}

// Close ends the reading and leaves the client's body alone. Closing that would wait for
// the rest of it; net/http does so when the handler is done. A transport closes a body that
// the back end does not want any more, and HTTP/2's then waits for the Read to end, which
// would hold the call's slot.
func (u *upload) Close() error {
	u.finish()
	return nil
}

// blame returns err, the error of a call, as a *brokenUpload where its body could not be
// read: what the transport makes of that depends on who notices first.
func (u *upload) blame(err error) error {
	if u == nil || err == nil {
		return err
	}
	if cause := u.err.Load(); cause != nil {
		return &brokenUpload{*cause}
	}
	return err
}

// isTimeout reports whether a Read ran into its deadline.
func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.Is(err, gate.SlowBody) || errors.As(err, &t) && t.Timeout()
}

// leave is for the end of the handler.
func (u *upload) leave() {
	u.finish()
	u.mu.Lock()
	defer u.mu.Unlock()
	u.gone = true
}

// finish ends the reading. A Read that still waits for the client would be ended by
// net/http at the end of the handler, which then forgets the bound on the rest of the body:
// so it ends first. Until it has, the bound is set again and again: a Read that was about
// to begin moves it to where the byte gate wants it.
func (u *upload) finish() {
	u.left.Store(true)
	if u.over.Load() {
		return
	}
	end := time.Now().Add(linger)
	again := time.NewTicker(linger / 20)
	defer again.Stop()
	for u.bound(end); !u.reading.TryLock(); u.bound(end) {
		<-again.C
	}
	defer u.reading.Unlock()
	u.bound(time.Now().Add(linger)) // the byte gate takes the bound off at the end of a Read
}

func (u *upload) bound(t time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.gone {
		boundRest(u.w, t)
	}
}
