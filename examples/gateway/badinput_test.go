package main

import (
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// endless is a body of n bytes whose length nobody knows.
type endless struct{ n int }

func (b *endless) Read(p []byte) (int, error) {
	if b.n == 0 {
		return 0, io.EOF
	}
	n := min(len(p), b.n)
	clear(p[:n])
	b.n -= n
	return n, nil
}

// Whatever a head claims about its body, the answer is a documented one, and
// nothing stays behind.
func TestLengths(t *testing.T) {
	a := start(t, "admission: {max_inflight_bytes: 8MiB, hard_max_body_bytes: 1MiB}")
	// net/http answers a head that it cannot read and closes at once: a body that
	// arrives then is answered with a RST, which may overtake the 400. So none is sent.
	const chunked = "Transfer-Encoding: chunked"
	for _, c := range []struct {
		name   string
		head   []string
		body   string
		status int
		want   string // in the answer
	}{
		{"absent", nil, "", 200, `"bytes":0`},
		{"zero", []string{"Content-Length: 0"}, "", 200, `"bytes":0`},
		{"negative", []string{"Content-Length: -1"}, "", 400, "Bad Request"},
		{"negative zero", []string{"Content-Length: -0"}, "", 400, "Bad Request"},
		{"plus", []string{"Content-Length: +3"}, "", 400, "Bad Request"},
		{"a word", []string{"Content-Length: abc"}, "", 400, "Bad Request"},
		{"empty", []string{"Content-Length: "}, "", 400, "Bad Request"},
		{"a fraction", []string{"Content-Length: 1.5"}, "", 400, "Bad Request"},
		{"two that differ", []string{"Content-Length: 1", "Content-Length: 2"}, "", 400, "Bad Request"},
		{"a list", []string{"Content-Length: 1, 2"}, "", 400, "Bad Request"},
		{"the cap", []string{"Content-Length: 1048576"}, strings.Repeat("x", mib), 200, `"bytes":1048576`},
		{"over the cap", []string{"Content-Length: 1048577"}, "", 413, "payload_too_large"},
		{"the largest that there is", []string{"Content-Length: 9223372036854775807"}, "", 413, "payload_too_large"},
		{"one more", []string{"Content-Length: 9223372036854775808"}, "", 400, "Bad Request"},
		{"huge", []string{"Content-Length: 99999999999999999999999999"}, "", 400, "Bad Request"},
		{"more than is sent", []string{"Content-Length: 1000"}, "x", 400, "ends early"},
		{"more than is sent, heavy", []string{"Content-Length: 1000000"}, strings.Repeat("x", 999_999), 400, "ends early"},
		{"no chunk", []string{chunked}, "0\r\n\r\n", 200, `"bytes":0`},
		{"chunks that end early", []string{chunked}, "5\r\nab", 400, "ends early"},
		{"no last chunk", []string{chunked}, "2\r\nab\r\n", 400, "ends early"},
		{"a bad chunk size", []string{chunked}, "xyz\r\nab", 400, "not well-formed"},
		{"a negative chunk size", []string{chunked}, "-2\r\nab\r\n0\r\n\r\n", 400, "not well-formed"},
		{"a huge chunk size", []string{chunked}, "FFFFFFFFFFFFFFFFF\r\nab", 400, "not well-formed"},
		{"a chunk larger than the cap", []string{chunked}, "7fffffffffffffff\r\n" + strings.Repeat("x", mib+1), 413, "payload_too_large"},
		{"an unknown coding", []string{"Transfer-Encoding: gzip"}, "", 501, ""},
		{"a negative length and chunks", []string{chunked, "Content-Length: -5"}, "", 400, "Bad Request"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := a.in(t)
			conn := a.dial()
			conn.post("/echo", c.head...)
			// What is refused unread may be cut while it is sent.
			_, _ = io.WriteString(conn, c.body[min(conn.ahead, len(c.body)):])
			if c.want == "ends early" {
				_ = conn.CloseWrite() // net/http takes it for leaving: nobody else may
			}
			resp, answer := conn.answer()
			switch {
			case c.name == "no last chunk" && a.fiberCannot("tell a body that breaks off between two chunks from a whole one (fasthttp 1.51)"):
				c.status, c.want = 200, `"bytes":2`
			case c.name == "a chunk larger than the cap" && a.fiberCannot("read the size of so large a chunk"):
				c.status, c.want = 400, "not well-formed"
			}
			assert.Equal(t, c.status, resp.StatusCode, answer)
			assert.Contains(t, answer, c.want)
			_ = conn.CloseWrite()
			conn.closed()
			a.untilZero()
		})
	}
}

// What follows a body that is longer than declared is another request, or none.
func TestLengthTooShort(t *testing.T) {
	a := start(t, "")
	c := a.dial()
	c.post("/echo", "Content-Length: 3")
	c.say("abcdef and more\r\n\r\n")
	resp, answer := c.answer()
	requireEcho(t, []byte("abc"), resp, answer)
	resp, _ = c.answer()
	assert.Equal(t, 400, resp.StatusCode)
	c.closed()
	a.untilZero()
}

// Chunks without end are cut at the cap, while they are still sent.
func TestEndlessChunks(t *testing.T) {
	a := start(t, "admission: {max_inflight_bytes: 8MiB, hard_max_body_bytes: 3MiB}")
	c := a.dial()
	c.post("/echo", "Transfer-Encoding: chunked")
	sent := make(chan error, 1)
	go func() {
		chunk := "10000\r\n" + strings.Repeat("x", 64<<10) + "\r\n"
		for {
			if _, err := io.WriteString(c, chunk); err != nil {
				sent <- err
				return
			}
		}
	}()
	resp, answer := c.answer()
	requireRefused(t, resp, answer, 413, "payload_too_large")
	c.closed()
	require.Error(t, <-sent)
	a.untilZero()
}

// Clients leave at every stage, by FIN and by RST.
func TestClientsLeave(t *testing.T) {
	stages := []struct {
		name string
		play func(*rawConn)
	}{
		{"before the head", func(*rawConn) {}},
		{"in the head", func(c *rawConn) { c.say("POST /echo HTTP/1.1\r\nHost: te") }},
		{"after the head", func(c *rawConn) { c.post("/echo", "Content-Length: 1000") }},
		{"after the head of a heavy body", func(c *rawConn) { c.post("/echo", "Content-Length: 8000000") }},
		{"after the head, expecting", func(c *rawConn) { c.post("/echo", "Content-Length: 1000", "Expect: 100-continue") }},
		{"in the body", func(c *rawConn) { c.post("/echo", "Content-Length: 8000000"); c.say(strings.Repeat("x", 100_000)) }},
		{"in a chunk", func(c *rawConn) { c.post("/echo", "Transfer-Encoding: chunked"); c.say("fffff\r\nxxx") }},
		{"between chunks", func(c *rawConn) { c.post("/echo", "Transfer-Encoding: chunked"); c.say("3\r\nxxx\r\n") }},
		{"while it is held", func(c *rawConn) { c.post("/echo?hold=1h", "Content-Length: 3"); c.say("xxx") }},
		{"while it is held, without a body", func(c *rawConn) { c.post("/echo?hold=1h", "Content-Length: 0") }},
		{"before the answer is read", func(c *rawConn) { c.post("/echo", "Content-Length: 3"); c.say("xxx") }},
		{"after the answer", func(c *rawConn) { c.post("/echo", "Content-Length: 3"); c.say("xxx"); c.answer() }},
		{"after a refusal", func(c *rawConn) { c.post("/echo", "Content-Length: 99000000"); c.answer() }},
		{"before a refusal is read", func(c *rawConn) { c.post("/echo", "Content-Length: 99000000") }},
		{"in the second request", func(c *rawConn) {
			c.post("/echo", "Content-Length: 3")
			c.say("xxx")
			c.answer()
			c.post("/echo", "Content-Length: 9000")
			c.say("xxx")
		}},
	}
	leave := map[string]func(*rawConn){"FIN": func(c *rawConn) { c.Close() }, "RST": (*rawConn).reset}
	for _, full := range []bool{false, true} { // with room, and while all have to wait
		a := start(t, smallBudget)
		release := func() {}
		if full {
			release = a.fill()
		}
		for _, s := range stages {
			for how, leave := range leave {
				if full && strings.HasPrefix(s.name, "in the second") || full && s.name == "after the answer" {
					continue // without room there is no first answer
				}
				t.Run(s.name+" "+how, func(t *testing.T) {
					c := a.in(t).dial()
					s.play(c)
					leave(c)
				})
			}
		}
		release()
		a.untilZero()
		resp, answer := a.do("POST", "/echo", strings.NewReader("still here"))
		requireEcho(t, []byte("still here"), resp, answer)
	}
}

// A head that is too large is refused before it is kept.
func TestHugeHead(t *testing.T) {
	a := start(t, "")
	c := a.dial()
	c.post("/echo", "X-Huge: "+strings.Repeat("x", 200<<10))
	resp, _ := c.answer()
	assert.Equal(t, 431, resp.StatusCode)
	c.closed()
	a.untilZero()
}
