package httpgate_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// hang is how long a test waits for something that must happen.
const hang = 20 * time.Second

// serve starts a server on loopback. Its error log can be read from the result. Over
// HTTP/2 it has the windows that the package comment asks for.
func serve(t *testing.T, http2 bool, h http.Handler) (*httptest.Server, *safeBuffer) {
	t.Helper()
	errorLog := new(safeBuffer)
	srv := httptest.NewUnstartedServer(h)
	srv.Config.ErrorLog = log.New(errorLog, "", 0)
	if srv.EnableHTTP2 = http2; http2 {
		srv.Config.HTTP2 = &http.HTTP2Config{
			MaxConcurrentStreams: 60, MaxReceiveBufferPerStream: 64 << 10, MaxReceiveBufferPerConnection: 60 * 64 << 10,
		}
		srv.StartTLS()
	} else {
		srv.Start()
	}
	t.Cleanup(srv.Close)
	srv.Client().Timeout = hang
	return srv, errorLog
}

// eachProtocol runs test over HTTP/1.1 and HTTP/2.
func eachProtocol(t *testing.T, test func(t *testing.T, http2 bool)) {
	t.Helper()
	for _, http2 := range []bool{false, true} {
		name := "HTTP1"
		if http2 {
			name = "HTTP2"
		}
		t.Run(name, func(t *testing.T) { test(t, http2) })
	}
}

// get sends a request without a body and returns status and body.
func get(t *testing.T, srv *httptest.Server, path string) (*http.Response, string) {
	t.Helper()
	return send(t, srv, http.MethodGet, path, nil)
}

func send(t *testing.T, srv *httptest.Server, method, path string, body io.Reader) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, srv.URL+path, body)
	require.NoError(t, err)
	resp, err := srv.Client().Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp, string(text)
}

// rawConn is a client that says exactly what it is told.
type rawConn struct {
	net.Conn
	t *testing.T
	r *bufio.Reader
}

func dial(t *testing.T, srv *httptest.Server) *rawConn {
	t.Helper()
	conn, err := net.Dial("tcp", srv.Listener.Addr().String())
	require.NoError(t, err)
	return raw(t, conn)
}

func raw(t *testing.T, conn net.Conn) *rawConn {
	t.Helper()
	t.Cleanup(func() { conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(hang)))
	return &rawConn{conn, t, bufio.NewReader(conn)}
}

// say sends lines of a head, and the empty line.
func (c *rawConn) say(lines ...string) {
	c.t.Helper()
	_, err := io.WriteString(c, strings.Join(lines, "\r\n")+"\r\n\r\n")
	require.NoError(c.t, err)
}

// answer reads the final response, head and body, and fails on a 1xx in front.
func (c *rawConn) answer() (*http.Response, string) {
	c.t.Helper()
	resp, err := http.ReadResponse(c.r, nil)
	require.NoError(c.t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(c.t, err)
	return resp, string(body)
}

// requireClosed waits for the server's end of the connection.
func (c *rawConn) requireClosed() {
	c.t.Helper()
	rest, err := io.ReadAll(c.r)
	if err != nil {
		require.ErrorContains(c.t, err, "reset by peer")
	}
	require.Empty(c.t, rest)
}

// pipeServer serves h over in-memory connections, for tests in a synctest bubble.
// stop must be called before the bubble ends.
func pipeServer(t *testing.T, srv *http.Server) (connect func() *rawConn, stop func()) {
	t.Helper()
	l := &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
	srv.ErrorLog = log.New(io.Discard, "", 0)
	served := make(chan struct{})
	go func() { defer close(served); _ = srv.Serve(l) }()
	var open []net.Conn
	connect = func() *rawConn {
		client, server := net.Pipe()
		open = append(open, client)
		l.conns <- server
		return raw(t, client)
	}
	return connect, func() {
		for _, c := range open {
			c.Close()
		}
		srv.Close()
		<-served
	}
}

type pipeListener struct {
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}
func (l *pipeListener) Close() error   { l.once.Do(func() { close(l.done) }); return nil }
func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

// safeBuffer is a log that may be read while it is written.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}
func (b *safeBuffer) String() string { b.mu.Lock(); defer b.mu.Unlock(); return b.b.String() }

// eventually waits until what is true.
func eventually(t *testing.T, what func() bool, msg string) {
	t.Helper()
	require.Eventually(t, what, hang, time.Millisecond, msg)
}

// trickle is a body of size bytes of which the rest comes only when go is closed.
type trickle struct {
	ctx  context.Context
	now  io.Reader
	rest <-chan struct{}
}

func (b *trickle) Read(p []byte) (int, error) {
	if n, err := b.now.Read(p); err == nil {
		return n, nil
	}
	select {
	case <-b.rest:
		return 0, io.EOF
	case <-b.ctx.Done():
		return 0, b.ctx.Err()
	}
}

func ok(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") }

// repeat is a body of n bytes.
type repeat struct{ n int }

func (b *repeat) Read(p []byte) (int, error) {
	if b.n == 0 {
		return 0, io.EOF
	}
	n := min(len(p), b.n)
	for i := range p[:n] {
		p[i] = 'x'
	}
	b.n -= n
	return n, nil
}
