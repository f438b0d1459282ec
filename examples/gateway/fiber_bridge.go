package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	fibergate "github.com/headgate-go/headgate/adapters/fiber"
)

// bridge serves a request of Fiber's with a handler of net/http's. Fiber's own adaptor
// keeps answers in memory until they are whole; here they go out as they are written.
//
// The handler runs on a goroutine of its own, which ends before the answer does and uses
// nothing of the request that fasthttp uses again. Where it panics the answer is cut. Its
// context ends when the client leaves, once the body is read, when a write to the client
// fails, or when the server is closed.
func bridge(log *slog.Logger, h http.Handler) fiber.Handler {
	return func(c *fiber.Ctx) error {
		r, err := requestOf(c)
		if err != nil {
			fiberUnread(c)
			return fiberText(c, http.StatusBadRequest, "the request's target is not well-formed")
		}
		ctx, cancel := context.WithCancel(context.WithValue(fibergate.Context(c), http.ServerContextKey, underFiber))
		var refused error
		a := newAnswer(c.Context(), cancel)
		if r.Body = a.watches(r.Body); r.Body == http.NoBody {
			a.watch()
		}
		go a.run(log, h, withNative(r.WithContext(ctx), &refused))
		<-a.decided
		if a.streams {
			a.begin() // its Close calls cancel
			return nil
		}
		_ = a.Close() // never fails
		switch {
		case a.cut:
			panic(http.ErrAbortHandler) // on fasthttp's goroutine, whose server hangs up
		case refused != nil:
			return refused
		default:
			a.head()
			if a.bodiless {
				c.Response().Header.SetContentLength(int(a.length))
			} else {
				c.Response().SetBodyRaw(a.first)
			}
		}
		return nil
	}
}

// underFiber tells a reverse proxy that its panics are recovered, so that it panics where
// the back end has broken off.
var underFiber = new(http.Server) //nolint:gochecknoglobals // never written

// requestOf returns the request of c as net/http has it. Nothing in it but the body is
// fasthttp's, and reading that fails once the request is over.
func requestOf(c *fiber.Ctx) (*http.Request, error) {
	rc := c.Context()
	in := &rc.Request.Header
	target := string(in.RequestURI())
	u, err := url.ParseRequestURI(target)
	if err != nil {
		return nil, err
	}
	r := &http.Request{
		Method: string(in.Method()), URL: u, RequestURI: target, Host: string(in.Host()),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{}, Body: fibergate.Body(c), ContentLength: max(int64(in.ContentLength()), -1),
		RemoteAddr: rc.RemoteAddr().String(), Close: in.ConnectionClose(),
	}
	if u.Host != "" { // the target is a whole URL, whose host counts
		r.Host = u.Host
	}
	if !in.IsHTTP11() {
		r.Proto, r.ProtoMinor = "HTTP/1.0", 0
	}
	switch {
	case r.Body == http.NoBody:
		r.ContentLength = 0
	case r.ContentLength < 0:
		r.TransferEncoding = []string{"chunked"}
	}
	in.VisitAllInOrder(func(key, value []byte) {
		switch name := http.CanonicalHeaderKey(string(key)); name {
		case "Host", "Transfer-Encoding", "Trailer":
		default:
			r.Header[name] = append(r.Header[name], string(value))
		}
	})
	return r, nil
}

// answer is what a handler of net/http's writes to, and the body stream that fasthttp
// reads. The handler's goroutine has all of it until decided is closed, and what is under
// "the handler's" afterwards; fasthttp's goroutine has the rest then.
type answer struct {
	rc       *fasthttp.RequestCtx // the handler uses its connection's deadline only
	cancel   context.CancelFunc   // of the handler's context
	bodiless bool                 // to HEAD: what the handler writes is only counted
	decided  chan struct{}        // closed when the head is, or when the handler is done
	done     chan struct{}        // closed when the handler is done
	in       *io.PipeReader

	// What is decided.
	status  int         // 0 = not yet
	said    http.Header // the header as it was at WriteHeader
	first   []byte      // the beginning of the body
	streams bool        // more may come
	flushed bool        // the head must go out before that
	cut     bool        // by a panic before anything was sent
	length  int64       // what Content-Length announces; -1 = unknown

	mu     sync.Mutex
	stop   func() // nil = nothing watches the client
	closed bool

	// The handler's.
	header http.Header
	out    *io.PipeWriter
	wrote  int64
}

// atOnce is how much of an answer may wait for its end, so that its length is known.
const atOnce = 2 << 10

func newAnswer(rc *fasthttp.RequestCtx, cancel context.CancelFunc) *answer {
	a := &answer{
		rc: rc, cancel: cancel, header: http.Header{}, length: -1, bodiless: rc.IsHead(),
		decided: make(chan struct{}), done: make(chan struct{}),
	}
	a.in, a.out = io.Pipe()
	return a
}

// errCut is what fasthttp reads of an answer that is not whole.
var errCut = errors.New("the answer is cut")

// run serves r with h.
func (a *answer) run(log *slog.Logger, h http.Handler, r *http.Request) {
	defer close(a.done)
	whole := false
	defer func() {
		if v := recover(); v != nil {
			logPanic(log, v)
		}
		a.WriteHeader(http.StatusOK)
		switch {
		case a.streams && (!whole || a.short()):
			_ = a.out.CloseWithError(errCut) // never fails
		case a.streams:
			_ = a.out.Close() // never fails
		default:
			a.cut = !whole || a.short()
			if a.bodiless && a.length < 0 && a.wrote <= atOnce {
				a.length = a.wrote
			}
			a.sniff(a.first)
			close(a.decided)
		}
	}()
	h.ServeHTTP(a, r)
	whole = true
}

// short reports whether the handler has announced more than it has written.
func (a *answer) short() bool {
	return a.length >= 0 && a.wrote != a.length && !a.bodiless && a.status != http.StatusNoContent && a.status != http.StatusNotModified
}

// Header is as of any [http.ResponseWriter].
func (a *answer) Header() http.Header { return a.header }

// WriteHeader fixes the head. fasthttp has no informational answers: they are left out.
func (a *answer) WriteHeader(status int) {
	if a.status != 0 || status < 200 {
		return
	}
	a.status, a.said = status, a.header.Clone()
	if n, err := fasthttp.ParseUint([]byte(a.said.Get("Content-Length"))); err == nil {
		a.length = int64(n)
	}
}

// Write keeps the beginning of an answer until it is too much, or Flush. It blocks until
// fasthttp has taken what is beyond.
func (a *answer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	switch {
	case a.status == http.StatusNoContent || a.status == http.StatusNotModified:
		return 0, http.ErrBodyNotAllowed
	case a.length >= 0 && a.wrote+int64(len(p)) > a.length:
		return 0, http.ErrContentLength
	case a.bodiless:
		a.first = append(a.first, p[:min(len(p), atOnce-len(a.first))]...) // to sniff at
		a.wrote += int64(len(p))
		return len(p), nil
	case !a.streams && len(a.first)+len(p) <= atOnce:
		a.first = append(a.first, p...)
		a.wrote += int64(len(p))
		return len(p), nil
	case !a.streams:
		a.stream(p)
	}
	n, err := a.out.Write(p)
	a.wrote += int64(n)
	return n, err
}

// Flush sends what was written on its way.
func (a *answer) Flush() {
	if a.streams {
		return
	}
	a.WriteHeader(http.StatusOK)
	if !a.bodiless {
		a.flushed = true
		a.stream(a.first)
	}
}

// SetReadDeadline is what a [http.ResponseController] bounds the rest of a body with.
func (a *answer) SetReadDeadline(t time.Time) error { return a.rc.Conn().SetReadDeadline(t) }

// SetWriteDeadline bounds how long the client may take to read the answer.
func (a *answer) SetWriteDeadline(t time.Time) error { return a.rc.Conn().SetWriteDeadline(t) }

// stream lets the answer begin. p is the beginning of its body, if there is any yet.
func (a *answer) stream(p []byte) {
	a.sniff(p)
	a.streams = true
	close(a.decided)
}

// sniff names the type of a body that begins with p where the handler does not, as
// net/http does.
func (a *answer) sniff(p []byte) {
	if _, has := a.said["Content-Type"]; !has && len(p) > 0 && a.said.Get("Content-Encoding") == "" {
		a.said.Set("Content-Type", http.DetectContentType(p))
	}
}

// begin makes a the body of fasthttp's response.
func (a *answer) begin() {
	a.head()
	a.rc.Response.SetBodyStream(a, int(a.length))
	a.rc.Response.ImmediateHeaderFlush = a.flushed || a.length >= 0
}

// head makes what the handler has said the head of fasthttp's response.
func (a *answer) head() {
	a.rc.SetStatusCode(a.status)
	h := &a.rc.Response.Header
	for name, values := range a.said {
		for _, v := range values {
			switch {
			case strings.HasPrefix(name, http.TrailerPrefix), name == "Content-Length", name == "Transfer-Encoding":
			case name == "Connection":
				if strings.EqualFold(v, "close") {
					h.SetConnectionClose()
				}
			case name == "Trailer":
				_ = h.AddTrailer(v) // fasthttp leaves out what may be no trailer
			default:
				h.Add(name, v)
			}
		}
	}
}

// Read is for answers in chunks: fasthttp sends a chunk for each.
func (a *answer) Read(p []byte) (n int, err error) {
	if len(a.first) > 0 {
		n = copy(p, a.first)
		a.first = a.first[n:]
		return n, nil
	}
	n, err = a.in.Read(p)
	if errors.Is(err, io.EOF) {
		a.trailers()
	}
	return n, err
}

// trailers sets those of an answer that is done.
func (a *answer) trailers() {
	<-a.done
	h := &a.rc.Response.Header
	for _, list := range a.said["Trailer"] {
		for name := range strings.SplitSeq(list, ",") {
			if v := a.header[http.CanonicalHeaderKey(strings.TrimSpace(name))]; len(v) > 0 {
				h.Set(name, strings.Join(v, ", "))
			}
		}
	}
	for name, v := range a.header {
		if name, unannounced := strings.CutPrefix(name, http.TrailerPrefix); unannounced && h.AddTrailer(name) == nil {
			h.Set(name, strings.Join(v, ", "))
		}
	}
}

// WriteTo is for answers of a known length, whose parts would wait for each other in
// fasthttp's buffer: they go to the connection behind its back. begin has the head, which
// would come behind them, flushed before.
func (a *answer) WriteTo(io.Writer) (int64, error) {
	to := a.rc.Conn()
	n, err := to.Write(a.first)
	if err != nil {
		return int64(n), err
	}
	more, err := io.Copy(to, a.in)
	return int64(n) + more, err
}

// Close is called when the answer is sent, when it cannot be, or when it never will be.
func (a *answer) Close() error {
	_ = a.in.CloseWithError(net.ErrClosed) // never fails
	a.cancel()
	<-a.done
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stop != nil && !a.closed {
		a.stop()
	}
	a.closed = true
	return nil
}

// watch ends the handler's context when the client leaves. The body must have been read.
func (a *answer) watch() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if conn, ours := a.rc.Conn().(*fiberConn); ours && a.stop == nil && !a.closed {
		a.stop = conn.watch(a.cancel)
	}
}

// watches returns body, at whose end watch is called.
func (a *answer) watches(body io.ReadCloser) io.ReadCloser {
	if body == http.NoBody {
		return body
	}
	return &watchedBody{body, a}
}

type watchedBody struct {
	io.ReadCloser
	a *answer
}

func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF { //nolint:errorlint // it is never wrapped
		b.a.watch()
	}
	return n, err
}
