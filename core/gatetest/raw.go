package gatetest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// rawConn is an HTTP/1 client that says exactly what it is told.
type rawConn struct {
	*net.TCPConn
	e *env
	r *bufio.Reader
}

// dial connects. The connection is closed with the case, and nothing on it blocks for
// longer than the case may hang.
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
	context.AfterFunc(s.e.alive, func() { _ = tcp.SetDeadline(time.Now()) })
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

// isCut reports whether err is that of a client whose connection was cut.
func isCut(err error) bool {
	return isReset(err) || err != nil && (strings.Contains(err.Error(), "broken pipe") || strings.Contains(err.Error(), "aborted by"))
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
