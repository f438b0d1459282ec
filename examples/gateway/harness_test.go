package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/stretchr/testify/require"
)

// hang is how long a test waits for something that must happen.
const hang = 30 * time.Second

const mib = 1 << 20

// TestMain lets the test binary be the program, for the tests that need a process.
func TestMain(m *testing.M) {
	if os.Getenv("GATEWAY_IS_A_PROCESS") == "1" {
		main()
		return
	}
	gin.SetMode(gin.ReleaseMode) // once, before gateways start beside each other
	os.Exit(m.Run())
}

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

// app is a running gateway.
type app struct {
	t      *testing.T
	url    string
	addr   string
	file   string // its configuration
	client *http.Client
	log    *safeBuffer
	cancel context.CancelFunc // as the first signal does
	exited chan int
	stdout *bufio.Reader
	fiber  bool // Fiber serves it
}

// start runs a gateway with the given configuration, "" = none, until the test ends.
func start(t *testing.T, yaml string, args ...string) *app {
	t.Helper()
	a := newApp(t)
	if yaml != "" {
		a.write(yaml)
		args = append(args, "-config", a.file)
	}
	args = append([]string{"-addr", "127.0.0.1:0", "-framework=" + *framework}, args...)
	for _, arg := range args {
		if name, chosen := strings.CutPrefix(arg, "-framework="); chosen {
			a.fiber = name == "fiber"
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	a.cancel = cancel
	out, in := io.Pipe()
	go func() {
		code := run(ctx, args, noenv, in, a.log)
		in.Close()
		a.exited <- code
	}()
	t.Cleanup(func() {
		a.client.CloseIdleConnections() // for one that never carried a request net/http waits 5 s
		cancel()
		select {
		case <-a.exited:
		case <-time.After(hang):
			t.Error("the gateway does not end")
		}
	})
	a.listening(out)
	return a
}

// in returns the gateway as seen by a subtest.
func (a *app) in(t *testing.T) *app {
	t.Helper()
	b := *a
	b.t = t
	return &b
}

func noenv(string) string { return "" }

func newApp(t *testing.T) *app {
	t.Helper()
	transport := &http.Transport{ExpectContinueTimeout: hang}
	t.Cleanup(transport.CloseIdleConnections)
	return &app{
		t: t, file: filepath.Join(t.TempDir(), "gateway.yaml"), log: new(safeBuffer), exited: make(chan int, 1),
		fiber:  *framework == "fiber",
		client: &http.Client{Transport: transport, Timeout: hang},
	}
}

// listening takes the one line that the gateway prints.
func (a *app) listening(stdout io.Reader) {
	a.t.Helper()
	a.stdout = bufio.NewReader(stdout)
	line, err := a.stdout.ReadString('\n')
	require.NoError(a.t, err, a.log.String())
	require.Regexp(a.t, `^listening on http://127\.0\.0\.1:\d+\n$`, line)
	a.url = strings.TrimSpace(strings.TrimPrefix(line, "listening on "))
	a.addr = strings.TrimPrefix(a.url, "http://")
}

// exit waits for the end and returns the exit status. Nothing more was printed.
func (a *app) exit() int {
	a.t.Helper()
	select {
	case code := <-a.exited:
		a.exited <- code
		rest, err := io.ReadAll(a.stdout)
		require.NoError(a.t, err)
		require.Empty(a.t, rest, "more than one line on standard output")
		return code
	case <-time.After(hang):
		require.FailNow(a.t, "the gateway does not end", a.log.String())
		return -1
	}
}

// write replaces the configuration, by a rename as editors and tools do.
func (a *app) write(yaml string) {
	a.t.Helper()
	require.NoError(a.t, os.WriteFile(a.file+".new", []byte(yaml), 0o600))
	require.NoError(a.t, os.Rename(a.file+".new", a.file))
}

// logs waits until the log holds text.
func (a *app) logs(text string) {
	a.t.Helper()
	require.Eventually(a.t, func() bool { return strings.Contains(a.log.String(), text) }, hang, 5*time.Millisecond,
		"not logged: %s", text)
}

// reply is the head of an answer.
type reply struct {
	StatusCode int
	Header     http.Header
	Close      bool
}

// read reads an answer whole.
func read(resp *http.Response) (reply, string, error) {
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, resp.Close}, string(text), err
}

// do sends a request and returns its answer.
func (a *app) do(method, path string, body io.Reader) (reply, string) {
	a.t.Helper()
	resp, text, err := a.try(a.t.Context(), method, path, body)
	require.NoError(a.t, err)
	return resp, text
}

func (a *app) try(ctx context.Context, method, path string, body io.Reader) (reply, string, error) {
	req, err := http.NewRequestWithContext(ctx, method, a.url+path, body)
	if err != nil {
		return reply{}, "", err
	}
	resp, err := a.client.Do(req)
	if err != nil {
		return reply{}, "", err
	}
	return read(resp)
}

// status is what tests read of /headgate/status: numbers by name, rounded up.
type status map[string]int64

func (a *app) status() status {
	a.t.Helper()
	resp, text := a.do(http.MethodGet, "/headgate/status", nil)
	require.Equal(a.t, 200, resp.StatusCode, text)
	require.Equal(a.t, "application/json", resp.Header.Get("Content-Type"))
	var s struct {
		Admission map[string]any `json:"admission"`
	}
	require.NoError(a.t, json.Unmarshal([]byte(text), &s))
	out := status{}
	for name, v := range s.Admission {
		if n, ok := v.(float64); ok {
			out[name] = int64(math.Ceil(n))
		}
	}
	require.Contains(a.t, out, "inflight_bytes", text)
	return out
}

// until waits until the status is as is says.
func (a *app) until(what string, is func(status) bool) {
	a.t.Helper()
	var last status
	deadline := time.Now().Add(hang)
	for {
		if last = a.status(); is(last) {
			return
		}
		if time.Now().After(deadline) {
			require.FailNow(a.t, "never: "+what, "the status stays %v", last)
		}
		time.Sleep(5 * time.Millisecond) // a real server on a real socket
	}
}

// counters are what must be zero when nothing runs.
var counters = []string{
	"inflight_bytes", "inflight", "heavy_inflight", "exempt_inflight", "decoded_bytes",
	"waiting", "waiting_heavy", "waiting_bytes", "queued_bytes", "oldest_wait_s", "oldest_heavy_s",
}

// untilZero waits until every counter is back to zero.
func (a *app) untilZero() {
	a.t.Helper()
	a.until("every counter at zero", func(s status) bool {
		for _, name := range counters {
			n, ok := s[name]
			require.True(a.t, ok, "the status has no %s", name)
			if n != 0 {
				return false
			}
		}
		return true
	})
}

// rawConn is a client that says exactly what it is told.
type rawConn struct {
	*net.TCPConn
	t *testing.T
	r *bufio.Reader

	fiber bool
	body  string // what post has to send of it, for Fiber
	ahead int    // how much of it post has sent, which say does not send again
}

func (a *app) dial() *rawConn {
	a.t.Helper()
	conn, err := net.Dial("tcp", a.addr)
	require.NoError(a.t, err)
	a.t.Cleanup(func() { conn.Close() })
	require.NoError(a.t, conn.SetDeadline(time.Now().Add(hang)))
	c := newRawConn(a.t, conn)
	c.fiber = a.fiber
	return c
}

func newRawConn(t *testing.T, conn net.Conn) *rawConn {
	t.Helper()
	return &rawConn{TCPConn: conn.(*net.TCPConn), t: t, r: bufio.NewReader(conn)}
}

// say sends text as it is.
func (c *rawConn) say(text string) {
	c.t.Helper()
	if n := min(c.ahead, len(text)); n > 0 {
		require.Equal(c.t, c.body[:n], text[:n], "another body than the one that has begun")
		c.body, text, c.ahead = c.body[n:], text[n:], c.ahead-n
	}
	_, err := io.WriteString(c, text)
	require.NoError(c.t, err)
}

// fiberPrefetch is how much of a body must be there before fasthttp asks anybody. It
// cannot be told to ask earlier.
const fiberPrefetch = 8 << 10

// fiberCannot reports whether Fiber serves a, and says in the test's log what it cannot do
// then.
func (a *app) fiberCannot(what string) bool {
	a.t.Helper()
	if a.fiber {
		a.t.Log("Fiber cannot: " + what)
	}
	return a.fiber
}

// What Fiber cannot do, in the words of its adapter's documentation.
const (
	noSmallBody = "ask anybody before a body is there, or 8 KiB of it"
	noContinue  = "ask a gate before it says 100: it does so in front of all handlers"
)

// continues takes a "100 Continue".
func (c *rawConn) continues() {
	c.t.Helper()
	const interim = "HTTP/1.1 100 Continue\r\n\r\n"
	line, err := io.ReadAll(io.LimitReader(c.r, int64(len(interim))))
	require.NoError(c.t, err)
	require.Equal(c.t, interim, string(line))
}

// beginning is what of a body with the header lines has to be sent with them, so that
// Fiber asks a gate: nothing in front of the others, nor of a small body, which a test
// sends itself.
func (c *rawConn) beginning(lines []string) string {
	for _, line := range lines {
		n, err := strconv.Atoi(strings.TrimPrefix(line, "Content-Length: "))
		if err != nil || !c.fiber || n <= fiberPrefetch {
			continue
		}
		if c.body == "" {
			c.body = strings.Repeat("x", fiberPrefetch)
		}
		c.ahead = fiberPrefetch
		return c.body[:fiberPrefetch]
	}
	return ""
}

// post sends the head of a POST with the given header lines.
func (c *rawConn) post(path string, lines ...string) {
	c.t.Helper()
	require.NoError(c.t, c.postQuietly(path, lines...))
}

// postQuietly is post for goroutines, which may not end a test.
func (c *rawConn) postQuietly(path string, lines ...string) error {
	_, err := io.WriteString(c, "POST "+path+" HTTP/1.1\r\nHost: test\r\n"+strings.Join(lines, "\r\n")+"\r\n\r\n"+c.beginning(lines))
	return err
}

// answer reads one response.
func (c *rawConn) answer() (reply, string) {
	c.t.Helper()
	head, body, err := c.tryAnswer()
	require.NoError(c.t, err)
	return head, body
}

func (c *rawConn) tryAnswer() (reply, string, error) {
	resp, err := http.ReadResponse(c.r, nil)
	if err != nil {
		return reply{}, "", err
	}
	return read(resp)
}

// closed waits for the server's end of the connection.
func (c *rawConn) closed() {
	c.t.Helper()
	if _, err := io.Copy(io.Discard, c.r); err != nil {
		require.ErrorContains(c.t, err, "reset by peer")
	}
}

// reset leaves with a RST.
func (c *rawConn) reset() {
	c.t.Helper()
	require.NoError(c.t, c.SetLinger(0))
	c.Close()
}
