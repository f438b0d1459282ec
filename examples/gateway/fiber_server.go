package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"github.com/headgate-go/headgate/core/gate"
)

// fiberHeadBytes bounds the head of a request. fasthttp has a buffer of that size for
// each connection, so it is less than net/http's server may take.
const fiberHeadBytes = 16 << 10

// fiberHeadTimeout is how long the head of a request may take to arrive, and the part of
// its body that fasthttp wants to have before it asks anybody.
const fiberHeadTimeout = 10 * time.Second

// noRoutesMethod stands for all methods that Fiber does not know. No route has it.
const noRoutesMethod = fiber.MethodTrace

// otherMethod is where a request has true that had one of them.
type otherMethod struct{}

// fiberServer serves a Fiber app as an http.Server serves a handler: panics cut their
// connection alone, heads are bounded in time, and it knows what to cut at the end.
type fiberServer struct {
	app *fiber.App
	cut context.CancelFunc // ends the context of all requests

	mu      sync.Mutex
	ln      net.Listener // nil before Serve
	conns   map[*fiberConn]struct{}
	stopped bool
	drained chan struct{} // closed when stopped and conns is empty
}

func newFiberServer(app *fiber.App, log *slog.Logger, cut context.CancelFunc) *fiberServer {
	s := &fiberServer{app: app, cut: cut, conns: map[*fiberConn]struct{}{}, drained: make(chan struct{})}
	srv := app.Server()
	srv.ConnState = func(c net.Conn, state fasthttp.ConnState) {
		if c, ours := c.(*fiberConn); ours {
			c.waitsForHead(state == fasthttp.StateActive)
		}
	}
	srv.MaxIdleWorkerDuration = time.Second // how long what looks after them outlives the server
	srv.ErrorHandler = func(rc *fasthttp.RequestCtx, err error) { rc.Error(fiberFault(err)) }
	srv.HeaderReceived = func(h *fasthttp.RequestHeader) fasthttp.RequestConfig {
		if status := headFault(h); status != 0 {
			h.SetContentLength(0) // nobody waits for it
			h.Set(faultHeader, strconv.Itoa(status))
		}
		return fasthttp.RequestConfig{}
	}
	routes := srv.Handler
	srv.Handler = func(rc *fasthttp.RequestCtx) {
		defer func() {
			if v := recover(); v != nil {
				logPanic(log, v)
				hangUp(rc)
			}
		}()
		if c, ours := rc.Conn().(*fiberConn); ours {
			c.waitsForHead(false)
		}
		if status, err := fasthttp.ParseUint(rc.Request.Header.Peek(faultHeader)); err == nil {
			rc.Error(fmt.Sprintln(status, http.StatusText(status)), status)
			rc.SetConnectionClose()
			return
		}
		if !slices.Contains(fiber.DefaultMethods, string(rc.Method())) {
			// Fiber would answer in front of all middlewares, and take the body for a request.
			rc.Request.Header.SetMethod(noRoutesMethod)
			rc.SetUserValue(otherMethod{}, true)
		}
		routes(rc)
	}
	return s
}

// Serve answers what ln accepts until Shutdown.
func (s *fiberServer) Serve(ln net.Listener) error {
	if !s.listens(ln) {
		_ = ln.Close() // nobody has used it
		return http.ErrServerClosed
	}
	return s.app.Listener(&fiberListener{Listener: ln, s: s})
}

func (s *fiberServer) listens(ln net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ln = ln
	return !s.stopped
}

// Shutdown also waits for connections that fasthttp has handed over: those on which an
// answer has overtaken its request.
func (s *fiberServer) Shutdown(ctx context.Context) error {
	if ln := s.stop(); ln != nil {
		_ = ln.Close() // fasthttp closes it again, if it has it yet
	}
	if err := s.app.ShutdownWithContext(ctx); err != nil {
		return err
	}
	select {
	case <-s.drained:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *fiberServer) stop() net.Listener {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopped {
		s.stopped = true
		s.drainedLocked()
	}
	return s.ln
}

func (s *fiberServer) drainedLocked() {
	if s.stopped && len(s.conns) == 0 {
		close(s.drained)
	}
}

// Close cuts what runs.
func (s *fiberServer) Close() error {
	s.cut()
	for _, c := range s.open() {
		_ = c.Close() // it may be closed already
	}
	return nil
}

func (s *fiberServer) open() []*fiberConn {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*fiberConn, 0, len(s.conns))
	for c := range s.conns {
		all = append(all, c)
	}
	return all
}

// add reports whether c may be served.
func (s *fiberServer) add(c *fiberConn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopped {
		s.conns[c] = struct{}{}
	}
	return !s.stopped
}

func (s *fiberServer) remove(c *fiberConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, open := s.conns[c]; open {
		delete(s.conns, c)
		s.drainedLocked()
	}
}

// fiberListener makes connections fiberConns.
type fiberListener struct {
	net.Listener
	s *fiberServer
}

func (l *fiberListener) Accept() (net.Conn, error) {
	for {
		under, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &fiberConn{TCPConn: under.(*net.TCPConn), s: l.s} //nolint:errcheck,forcetypeassert // the gateway listens on TCP
		if l.s.add(c) {
			return c, nil
		}
		_ = c.TCPConn.Close() // nobody has used it
	}
}

// Close may be called more than once.
func (l *fiberListener) Close() error {
	if err := l.Listener.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// fiberConn is a connection on which heads have to come in time. fasthttp's ReadTimeout
// would do that too, but it goes on for the body.
type fiberConn struct {
	*net.TCPConn
	s *fiberServer

	mu   sync.Mutex
	head time.Time // when the head must be there; zero = it is

	// What watch has read, for the next Read. Nobody reads while it watches.
	early    byte
	hasEarly bool
}

// watch calls gone when the client leaves, as net/http's server does and fasthttp's does
// not. Nobody may read until stop has returned, which the caller must call once.
func (c *fiberConn) watch(gone func()) (stop func()) {
	if c.hasEarly {
		return func() {} // it has sent its next request already: it is there
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		var b [1]byte
		n, err := c.TCPConn.Read(b[:])
		c.early, c.hasEarly = b[0], n == 1
		if err != nil && !isTimeout(err) {
			gone()
		}
	}()
	return func() {
		_ = c.TCPConn.SetReadDeadline(time.Unix(1, 0)) // fails where it is closed: then nobody reads
		<-done
		_ = c.TCPConn.SetReadDeadline(time.Time{})
	}
}

func (c *fiberConn) Read(p []byte) (int, error) {
	if c.hasEarly && len(p) > 0 {
		c.hasEarly = false
		p[0] = c.early
		return 1, nil
	}
	return c.TCPConn.Read(p)
}

func (c *fiberConn) waitsForHead(yes bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.head = time.Time{}
	if yes {
		c.head = time.Now().Add(fiberHeadTimeout)
	}
	_ = c.TCPConn.SetReadDeadline(c.head) // fails where it is closed: a Read will tell
}

// SetReadDeadline lets fasthttp not take the bound on a head off.
func (c *fiberConn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.IsZero() {
		t = c.head
	}
	return c.TCPConn.SetReadDeadline(t)
}

func (c *fiberConn) Close() error {
	defer c.s.remove(c)
	return c.TCPConn.Close()
}

// hangUp ends a request without an answer, and its connection.
func hangUp(rc *fasthttp.RequestCtx) {
	rc.SetConnectionClose()
	rc.HijackSetNoResponse(true)
	rc.Hijack(func(c net.Conn) { _ = c.Close() }) // it may be closed already
}

// logPanic logs a panic of a handler, unless it is the one that cuts an answer.
func logPanic(log *slog.Logger, v any) {
	if v != http.ErrAbortHandler { //nolint:errorlint // it is never wrapped
		log.Error("a handler panicked", "panic", v, "stack", string(debug.Stack()))
	}
}

// faultHeader is a name that no client can send.
const faultHeader = ":fault"

// headFault returns the status to answer to a head of which it could be argued where its
// request ends, 0 where there is no doubt. fasthttp takes the last length of several, and
// what it does not know for nothing.
func headFault(h *fasthttp.RequestHeader) (status int) {
	var lengths, codings, hosts []string
	h.VisitAllInOrder(func(key, value []byte) {
		switch http.CanonicalHeaderKey(string(key)) {
		case "Content-Length":
			lengths = append(lengths, string(value))
		case "Transfer-Encoding":
			codings = append(codings, string(value))
		case "Host":
			hosts = append(hosts, string(value))
		}
	})
	for _, n := range lengths {
		if _, err := strconv.ParseUint(n, 10, 63); err != nil || n != lengths[0] {
			return http.StatusBadRequest
		}
	}
	proto := string(h.Protocol())
	switch {
	case len(codings) > 1, len(hosts) > 1, proto == "HTTP/1.1" && len(hosts) == 0:
		return http.StatusBadRequest
	case len(codings) == 1 && !strings.EqualFold(codings[0], "chunked"):
		return http.StatusNotImplemented
	case proto != "HTTP/1.1" && proto != "HTTP/1.0":
		return http.StatusBadRequest
	}
	return 0
}

// fiberFault is the answer to what fasthttp could not read. Its own repeats the head, keys
// and all.
func fiberFault(err error) (text string, status int) {
	status = http.StatusBadRequest
	if late := net.Error(nil); errors.As(err, &late) && late.Timeout() {
		status = http.StatusRequestTimeout
	}
	if errors.As(err, new(*fasthttp.ErrSmallBuffer)) {
		status = http.StatusRequestHeaderFieldsTooLarge
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return "the body ends early or is not well-formed\n", status
	}
	return fmt.Sprintln(status, http.StatusText(status)), status
}

// served is the context of a request, which ends with its server.
type served struct {
	context.Context // of all requests
	own             context.Context
}

func (s served) Value(key any) any {
	if v := s.own.Value(key); v != nil {
		return v
	}
	return s.Context.Value(key)
}

// openGate lets everything in.
type openGate struct{}

func (openGate) Acquire(context.Context, gate.Request) (gate.Lease, error) { return gate.Lease{}, nil }
