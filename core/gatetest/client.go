package gatetest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"sync"
	"sync/atomic"
)

// newClient returns a client that speaks the case's protocol and counts its dials.
func (s *server) newClient() *http.Client {
	asIs := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &http.Client{CheckRedirect: asIs, Transport: &http.Transport{
		DisableCompression: true,
		TLSClientConfig:    s.e.suite.identity.client(),
		ForceAttemptHTTP2:  s.e.protocol == http2,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			s.dials.Add(1)
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.over {
				_ = c.Close()
			}
			s.clientConns = append(s.clientConns, c)
			return &watchedConn{Conn: c, ended: &s.ended}, nil
		},
	}}
}

// watchedConn notes whether it is the server that ends the connection.
type watchedConn struct {
	net.Conn
	ended  *atomic.Int64
	closed atomic.Bool
}

// Read implements net.Conn.
func (c *watchedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil && c.closed.CompareAndSwap(false, true) {
		c.ended.Add(1)
	}
	return n, err
}

// Close implements net.Conn.
func (c *watchedConn) Close() error {
	c.closed.Store(true)
	return c.Conn.Close()
}

// hangUp closes what client has opened, and what it is still about to: a server that is
// closed does not know of a connection that it is just accepting.
func (s *server) hangUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	for _, c := range s.clientConns {
		_ = c.Close()
	}
}

// kept is an error unless the server has kept the one connection of all requests so
// far. On HTTP/1 a second one proves nothing: net/http's client drops a connection
// whose request it has not noted as written within 50 ms.
func (s *server) kept() {
	s.e.Helper()
	if s.e.protocol == http2 {
		equal(s.e, "connections for all", s.dials.Load(), 1)
		return
	}
	equal(s.e, "connections that the server has ended", s.ended.Load(), 0)
}

// opened are the connections that the client has opened.
func (s *server) opened() []net.Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]net.Conn(nil), s.clientConns...)
}

// call is a request of the client's.
type call struct {
	method  string // "" = GET, or POST with a body
	route   Route
	path    string // in place of route
	arg     string // for the handler
	header  map[string]string
	body    io.Reader
	length  int64 // of body; 0 = chunked
	trailer http.Header
	ctx     context.Context // nil = the case's
}

// answer is a whole response.
type answer struct {
	*http.Response
	text string
}

// open sends c and returns the response with its body unread; it must be closed.
func (s *server) open(c call) (*http.Response, error) {
	if c.path == "" {
		c.path = string(c.route)
	}
	if c.method == "" {
		c.method = http.MethodGet
		if c.body != nil {
			c.method = http.MethodPost
		}
	}
	if c.ctx == nil {
		c.ctx = s.e.ctx
	}
	req, err := http.NewRequestWithContext(c.ctx, c.method, s.url+c.path, http.NoBody)
	if err != nil {
		return nil, err
	}
	if c.body != nil {
		req.Body, req.ContentLength = io.NopCloser(c.body), c.length
		if p, ok := c.body.(*paused); ok {
			p.ctx, req.Body = c.ctx, p
		}
		if c.length == 0 {
			req.ContentLength = -1
		}
	}
	req.Trailer = c.trailer
	if c.arg != "" {
		req.Header.Set(argHeader, c.arg)
	}
	for k, v := range c.header {
		req.Header.Set(k, v)
	}
	resp, err := s.client.Do(req)
	if err == nil && resp.Close {
		s.ended.Add(1)
	}
	if err == nil && resp.ProtoMajor != 2 && s.e.protocol == http2 && !s.e.NoHTTP2 {
		_ = resp.Body.Close()
		return nil, fmt.Errorf("the server speaks %s, and NoHTTP2 is not declared", resp.Proto)
	}
	return resp, err
}

// send sends c and reads the answer.
func (s *server) send(c call) (answer, error) {
	if c.ctx == nil {
		c.ctx = s.e.ctx
	}
	var conn string
	c.ctx = httptrace.WithClientTrace(c.ctx, &httptrace.ClientTrace{
		GotConn: func(i httptrace.GotConnInfo) { conn = i.Conn.LocalAddr().String() },
	})
	resp, err := s.open(c)
	if err != nil {
		return answer{}, s.whose(err, conn)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return answer{resp, string(text)}, s.whose(err, conn)
}

// errTooSlow is the error of a client that was too slow to read its answer.
var errTooSlow = errors.New("the server had waited before it cut the connection")

// whose returns err, as an errTooSlow where the server is not to blame: it has answered
// an upload that nobody reads and waited for the client to see that. net/http's client
// looks at its own error of writing first.
func (s *server) whose(err error, conn string) error {
	if s.e.protocol == http1 && isCut(err) && s.e.poll(func() bool { return !s.listener.isOpen(conn) }) && s.listener.waited(conn) {
		return fmt.Errorf("%w: %w", errTooSlow, err)
	}
	return err
}

// upload is send for a body of which the server may not read all. A client that was too
// slow tries again.
func (s *server) upload(c call, body []byte) (answer, error) {
	for {
		c.body = reader(body)
		if a, err := s.send(c); !errors.Is(err, errTooSlow) {
			return a, err
		}
	}
}

// uploaded is upload, where a transport's error ends the case.
func (s *server) uploaded(c call, body []byte) answer {
	s.e.Helper()
	a, err := s.upload(c, body)
	if err != nil {
		s.e.Fatalf("POST %s%s: %v", c.route, c.path, err)
	}
	return a
}

// get is send, where a transport's error ends the case.
func (s *server) get(c call) answer {
	s.e.Helper()
	a, err := s.send(c)
	if err != nil {
		s.e.Fatalf("%s %s%s: %v", c.method, c.route, c.path, err)
	}
	return a
}

// later sends c and returns where the answer will be.
func (s *server) later(c call) <-chan outcome {
	done := make(chan outcome, 1)
	go func() {
		a, err := s.send(c)
		done <- outcome{a, err}
	}()
	return done
}

type outcome struct {
	answer
	err error
}

// wait returns what later has started. The transport's error ends the case.
func (s *server) wait(done <-chan outcome) answer {
	s.e.Helper()
	o := <-done // it ends with the case, which ends when nothing moves
	if o.err != nil {
		s.e.Fatalf("no answer: %v", o.err)
	}
	return o.answer
}

// traceInterim returns a context in which the client notes 1xx answers.
func traceInterim(ctx context.Context, seen *[]int) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		Got1xxResponse: func(code int, _ textproto.MIMEHeader) error { *seen = append(*seen, code); return nil },
	})
}

// blob is a body of n bytes that no other n shares.
func blob(n int) []byte {
	b, seed := make([]byte, n), [32]byte{}
	binary.LittleEndian.PutUint64(seed[:], uint64(n))
	_, _ = rand.NewChaCha8(seed).Read(b)
	return b
}

// paused is a body that stops until it is let go on, or closed.
type paused struct {
	now, then []byte
	letGo     <-chan struct{}
	ctx       context.Context // of its call: on HTTP/1 nobody closes a body that is being read
	closed    chan struct{}
	once      sync.Once
}

// pause returns a body of b that stops after n bytes; letGo may be nil: it then has
// no more, and no end.
func pause(b []byte, n int, letGo <-chan struct{}) *paused {
	return &paused{now: b[:n:n], then: b[n:], letGo: letGo, closed: make(chan struct{})}
}

// Read implements io.Reader.
func (p *paused) Read(b []byte) (int, error) {
	if len(p.now) == 0 {
		select {
		case <-p.letGo:
		case <-p.closed:
			return 0, io.ErrClosedPipe
		case <-p.ctx.Done():
			return 0, p.ctx.Err()
		}
		if len(p.then) == 0 {
			return 0, io.EOF
		}
		p.now, p.then = p.then, nil
	}
	n := copy(b, p.now)
	p.now = p.now[n:]
	return n, nil
}

// Close implements io.Closer. The transport calls it when it sends no more.
func (p *paused) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func reader(b []byte) io.Reader { return bytes.NewReader(b) }
