package gatetest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync"
	"time"
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
			if err == nil {
				s.dials.Add(1)
				s.mu.Lock()
				s.clientConns = append(s.clientConns, c)
				s.mu.Unlock()
			}
			return c, err
		},
	}}
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
	ctx, cancel := context.WithTimeout(c.ctx, s.e.suite.patience)
	defer cancel()
	c.ctx = ctx
	resp, err := s.open(c)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return answer{resp, string(text)}, err
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
	o := <-done // send has its own deadline
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

// rawConn is an HTTP/1 client that says exactly what it is told.
type rawConn struct {
	*net.TCPConn
	e *env
	r *bufio.Reader
}

// dial connects. The connection is closed with the case, and nothing on it takes
// longer than the suite's patience.
func (s *server) dial() *rawConn {
	s.e.Helper()
	conn, err := new(net.Dialer).DialContext(s.e.ctx, "tcp", s.addr)
	if err != nil {
		s.e.Fatalf("dial: %v", err)
	}
	s.e.conns = append(s.e.conns, conn)
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		s.e.Fatalf("dial: got a %T", conn)
	}
	_ = tcp.SetDeadline(time.Now().Add(s.e.suite.patience))
	return &rawConn{tcp, s.e, bufio.NewReader(tcp)}
}

// say sends a head: its lines, Host and the empty line.
func (c *rawConn) say(request string, headers ...string) {
	c.e.Helper()
	c.write(head(request, headers...))
}

func head(request string, headers ...string) string {
	lines := append([]string{request + " HTTP/1.1", "Host: suite"}, headers...)
	return strings.Join(lines, "\r\n") + "\r\n\r\n"
}

func (c *rawConn) write(s string) {
	c.e.Helper()
	if _, err := io.WriteString(c, s); err != nil {
		c.e.Fatalf("the connection broke while sending: %v", err)
	}
}

// pour sends s in the background, for as long as the server takes it.
func (c *rawConn) pour(s string) { go func() { _, _ = io.WriteString(c, s) }() }

// answer reads one response, interim ones too.
func (c *rawConn) answer() answer {
	c.e.Helper()
	resp, err := http.ReadResponse(c.r, nil)
	if err != nil {
		c.e.Fatalf("no answer: %v", err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		c.e.Fatalf("a broken answer: %v", err)
	}
	return answer{resp, string(text)}
}

// rest reads to the server's end of the connection and returns what still came.
func (c *rawConn) rest() string {
	c.e.Helper()
	rest, err := io.ReadAll(c.r)
	if err != nil && !isReset(err) {
		c.e.Errorf("the server does not close the connection: %v", err)
	}
	return string(rest)
}

func isReset(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "reset by peer") || strings.Contains(err.Error(), "forcibly closed"))
}

// chunked returns body in chunks, with the end.
func chunked(body string, size int) string {
	var b strings.Builder
	for body != "" {
		n := min(size, len(body))
		fmt.Fprintf(&b, "%x\r\n%s\r\n", n, body[:n])
		body = body[n:]
	}
	b.WriteString("0\r\n\r\n")
	return b.String()
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
