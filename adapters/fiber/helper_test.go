package fibergate_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/headgate-go/headgate/core/admission"
	"github.com/headgate-go/headgate/core/gate"
)

// streaming is the setup that protects memory.
func streaming() fiber.Config {
	return fiber.Config{StreamRequestBody: true, DisablePreParseMultipartForm: true, DisableStartupMessage: true}
}

// app returns an app that streams bodies, with the middlewares and a handler at /.
func app(h fiber.Handler, middlewares ...fiber.Handler) *fiber.App {
	a := fiber.New(streaming())
	for _, m := range middlewares {
		a.Use(m)
	}
	a.All("/", h)
	return a
}

func ok(c *fiber.Ctx) error { return c.SendString("ok") }

func unreached(t *testing.T) fiber.Handler {
	t.Helper()
	return func(*fiber.Ctx) error { t.Error("the handler ran"); return nil }
}

// before is a middleware that does something and goes on.
func before(do func(*fiber.Ctx)) fiber.Handler {
	return func(c *fiber.Ctx) error {
		do(c)
		return c.Next()
	}
}

// answer is a whole response.
type answer struct {
	*http.Response
	text string
}

// send sends a request past the network and returns its answer.
func send(t *testing.T, a *fiber.App, r *http.Request) answer {
	t.Helper()
	resp, err := a.Test(r, int(hang/time.Millisecond))
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return answer{resp, string(text)}
}

func get(t *testing.T, a *fiber.App, path string) answer {
	t.Helper()
	return send(t, a, httptest.NewRequest(http.MethodGet, path, http.NoBody))
}

// serve starts a on loopback and returns its address.
func serve(t *testing.T, a *fiber.App) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return serveOn(t, a, l)
}

func serveOn(t *testing.T, a *fiber.App, l net.Listener) string {
	t.Helper()
	s := newServer(a, l)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = a.Listener(l)
	}()
	t.Cleanup(func() {
		assert.NoError(t, s.Close())
		<-ended
	})
	return l.Addr().String()
}

// hang is how long a test waits for something that must happen.
const hang = 20 * time.Second

// post sends n bytes over the network and returns the answer.
func post(t *testing.T, addr string, n int) answer {
	t.Helper()
	return postBody(t, addr, "text/plain", strings.NewReader(strings.Repeat("x", n)))
}

func postBody(t *testing.T, addr, contentType string, body io.Reader) answer {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: hang}
	resp, err := client.Post("http://"+addr, contentType, body)
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return answer{resp, string(text)}
}

// conn is a client that says exactly what it is told.
type conn struct {
	net.Conn
	t *testing.T
	r *bufio.Reader
}

func dial(t *testing.T, addr string) *conn {
	t.Helper()
	c, err := net.DialTimeout("tcp", addr, hang)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(hang)))
	return &conn{c, t, bufio.NewReader(c)}
}

func (c *conn) say(text string) {
	c.t.Helper()
	_, err := io.WriteString(c, text)
	require.NoError(c.t, err)
}

// pour sends text in the background, for as long as the server takes it.
func (c *conn) pour(text string) { go func() { _, _ = io.WriteString(c, text) }() }

func (c *conn) answer() answer {
	c.t.Helper()
	resp, err := http.ReadResponse(c.r, nil)
	require.NoError(c.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(c.t, err)
	return answer{resp, string(text)}
}

// rest is what still comes until the server closes the connection.
func (c *conn) rest() string {
	text, err := io.ReadAll(c.r)
	var timeout net.Error
	if assert.False(c.t, err != nil && assert.ErrorAs(c.t, err, &timeout) && timeout.Timeout(), "the connection stays open") {
		return string(text)
	}
	return ""
}

// head is a request's head.
func head(request string, headers ...string) string {
	return strings.Join(append([]string{request + " HTTP/1.1", "Host: test"}, headers...), "\r\n") + "\r\n\r\n"
}

// eventually waits until what is true.
func eventually(t *testing.T, what func() bool, msg string) {
	t.Helper()
	require.Eventually(t, what, hang, time.Millisecond, msg)
}

// budget opens the byte gate with a cap for one body.
func budget(t *testing.T, hardMax gate.Size) *admission.Budget {
	t.Helper()
	c := admission.DefaultConfig()
	c.HardMaxBodyBytes = hardMax
	b, err := admission.New(c)
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.Zero(t, b.Snapshot().InflightBytes)
		b.Close()
	})
	return b
}
