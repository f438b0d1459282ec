package prebody_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/recover"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	fibergate "github.com/headgate-go/headgate/adapters/fiber"
	"github.com/headgate-go/headgate/adapters/fiber/prebody"
	"github.com/headgate-go/headgate/core/admission"
	"github.com/headgate-go/headgate/core/gate"
)

// hang is how long a test waits for something that must happen.
const hang = 20 * time.Second

const mib = 1 << 20

// budget opens the byte gate: 8 MiB, and whoever finds no room waits.
func budget(t *testing.T, change func(*admission.Config)) *admission.Budget {
	t.Helper()
	c := admission.DefaultConfig()
	c.MaxInflightBytes, c.QueueTimeout = 8*mib, time.Hour
	if change != nil {
		change(&c)
	}
	b, err := admission.New(c)
	require.NoError(t, err)
	t.Cleanup(func() {
		s := b.Snapshot()
		assert.Zero(t, s.Inflight)
		assert.Zero(t, s.Waiting)
		assert.Zero(t, s.InflightBytes)
		b.Close()
	})
	return b
}

// app returns an app with the gate in front of the bodies and in front of h.
func app(t *testing.T, b gate.Gate, h fiber.Handler, config ...fiber.Config) *fiber.App {
	t.Helper()
	c := fiber.Config{}
	if len(config) > 0 {
		c = config[0]
	}
	c.DisableStartupMessage = true
	a := fiber.New(c)
	require.NoError(t, prebody.Attach(a, fibergate.Config{Gate: b}))
	a.Use(fibergate.New(fibergate.Config{Gate: b}))
	a.All("/", h)
	return a
}

func ok(c *fiber.Ctx) error { return c.SendString(fmt.Sprint(len(c.Body()))) }

// serve starts a on loopback and returns its address.
func serve(t *testing.T, a *fiber.App) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = a.Listener(l)
	}()
	t.Cleanup(func() {
		assert.NoError(t, a.ShutdownWithTimeout(hang))
		<-ended
	})
	return l.Addr().String()
}

// conn is a client that says exactly what it is told.
type conn struct {
	*net.TCPConn
	t *testing.T
	r *bufio.Reader
}

func dial(t *testing.T, addr string) *conn {
	t.Helper()
	c, err := net.DialTimeout("tcp", addr, hang)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(hang)))
	return &conn{c.(*net.TCPConn), t, bufio.NewReader(c)}
}

func (c *conn) say(text string) {
	c.t.Helper()
	_, err := io.WriteString(c, text)
	require.NoError(c.t, err)
}

// answer is a whole response.
type answer struct {
	*http.Response
	text string
}

func (c *conn) answer() answer {
	c.t.Helper()
	resp, err := http.ReadResponse(c.r, nil)
	require.NoError(c.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(c.t, err)
	return answer{resp, string(text)}
}

func (c *conn) rest() string {
	text, _ := io.ReadAll(c.r)
	return string(text)
}

func head(headers ...string) string {
	return "POST / HTTP/1.1\r\nHost: test\r\n" + strings.Join(headers, "\r\n") + "\r\n\r\n"
}

func eventually(t *testing.T, what func() bool, msg string) {
	t.Helper()
	require.Eventually(t, what, hang, time.Millisecond, msg)
}

// heap is what lives, in bytes.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// T25: 50 connections announce 4 MB each and send 64 KB. Behind the gate they take what
// the budget has, and those that find no room take nothing; with abrupt ends everything
// comes back, whatever the framing. Without the gate, the test sees the difference.
func TestT25AnnouncedBodiesStayWithinTheBudget(t *testing.T) {
	const conns, size, sent = 50, 4 << 20, 64 << 10
	for _, framing := range []string{"Content-Length: 4194304", "Transfer-Encoding: chunked"} {
		for _, gated := range []bool{true, false} {
			if framing != "Content-Length: 4194304" && !gated {
				continue // fasthttp sets nothing aside for these
			}
			t.Run(fmt.Sprint(framing, " gated ", gated), func(t *testing.T) {
				b := budget(t, nil)
				var ran atomic.Int64
				h := func(c *fiber.Ctx) error { ran.Add(1); return ok(c) }
				var a *fiber.App
				if gated {
					a = app(t, b, h)
				} else {
					a = fiber.New(fiber.Config{DisableStartupMessage: true})
					a.Use(fibergate.New(fibergate.Config{Gate: b}))
					a.All("/", h)
				}
				var read atomic.Int64
				a.Server().ConnState = func(_ net.Conn, s fasthttp.ConnState) {
					if s == fasthttp.StateActive {
						read.Add(1)
					}
				}
				addr := serve(t, a)
				before := heap()
				var all []*conn
				for range conns {
					c := dial(t, addr)
					c.say(head(framing) + fmt.Sprintf("%x\r\n", sent) + strings.Repeat("x", sent) + "\r\n")
					all = append(all, c)
				}
				eventually(t, func() bool { return read.Load() == conns }, "not all have come")
				if gated {
					eventually(t, func() bool { return b.Snapshot().Waiting == conns-2 }, "two fit, the others wait")
					assert.EqualValues(t, 8*mib, b.Snapshot().InflightBytes)
				} else {
					eventually(t, func() bool { return heap()-before > 20*size }, "without the gate the announced bodies take no memory: the test sees nothing")
				}
				grown := heap() - before
				t.Logf("%d connections, %d KB announced each: the heap has grown by %d KB", conns, size>>10, grown>>10)
				if gated {
					assert.Less(t, grown, int64(8*mib+4*mib))
				}
				assert.Zero(t, ran.Load())
				for i, c := range all {
					if i%2 == 0 {
						_ = c.SetLinger(0)
					}
					_ = c.Close()
				}
				eventually(t, func() bool { return b.Snapshot().Inflight == 0 && b.Snapshot().Waiting == 0 }, "reservations leaked")
				assert.Zero(t, ran.Load())
			})
		}
	}
}

// A refusal comes before the body and before 100 Continue, ends the connection, and what
// follows is no request, whatever the body is.
func TestRefused(t *testing.T) {
	b := budget(t, func(c *admission.Config) { c.QueueTimeout = 0 })
	lease, err := b.Acquire(t.Context(), gate.Request{Bytes: 8 * mib})
	require.NoError(t, err)
	defer lease.Release()
	addr := serve(t, app(t, b, func(*fiber.Ctx) error { t.Error("the handler ran"); return nil }))
	next := "GET /next HTTP/1.1\r\nHost: test\r\n\r\n"
	for name, message := range map[string]string{
		"one byte":         head("Content-Length: 1") + "x" + next,
		"not sent":         head("Content-Length: 1000"),
		"expect":           head("Content-Length: 1000", "Expect: 100-continue"),
		"smuggled":         head("Content-Length: 9000") + strings.Repeat("x", 8192) + next + next,
		"smuggled, chunks": head("Transfer-Encoding: chunked") + "2000\r\n" + strings.Repeat("x", 8192) + "\r\n0\r\n\r\n" + next,
		"form":             head("Content-Length: 5000", "Content-Type: multipart/form-data; boundary=b") + "--b\r\n",
		"GET":              strings.Replace(head("Content-Length: 5000"), "POST", "GET", 1) + next,
	} {
		t.Run(name, func(t *testing.T) {
			c := dial(t, addr)
			c.say(message)
			resp := c.answer()
			assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
			assert.Equal(t, "queue_timeout", resp.Header.Get(gate.MarkerHeader))
			assert.Equal(t, "application/problem+json", resp.Header.Get("Content-Type"))
			assert.Contains(t, resp.text, "admission")
			assert.True(t, resp.Close)
			assert.Empty(t, c.rest(), "something followed the refusal")
		})
	}
}

// T24: who is refused in the middle of an upload reads the answer.
func TestT24RefusalReachesTheUploader(t *testing.T) {
	tries := 300
	if testing.Short() || raceEnabled {
		tries = 30
	}
	b := budget(t, func(c *admission.Config) { c.QueueTimeout = 0 })
	lease, err := b.Acquire(t.Context(), gate.Request{Bytes: 8 * mib})
	require.NoError(t, err)
	defer lease.Release()
	addr := serve(t, app(t, b, ok, fiber.Config{BodyLimit: 16 * mib}))
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: hang}
	body, reached := make([]byte, 8*mib), 0
	for range tries {
		resp, err := client.Post("http://"+addr, "text/plain", bytes.NewReader(body))
		if err != nil {
			continue
		}
		_ = resp.Body.Close()
		if resp.StatusCode == http.StatusServiceUnavailable && resp.Header.Get(gate.MarkerHeader) != "" {
			reached++
		}
	}
	t.Logf("%d of %d uploads of 8 MiB have read their refusal", reached, tries)
	assert.GreaterOrEqual(t, reached, tries*99/100)
}

// T14: a wait longer than the server's ReadTimeout leaves the body all of it.
func TestT14WaitingIsNotCharged(t *testing.T) {
	const timeout = 500 * time.Millisecond
	b := budget(t, nil)
	lease, err := b.Acquire(t.Context(), gate.Request{Bytes: 8 * mib})
	require.NoError(t, err)
	addr := serve(t, app(t, b, ok, fiber.Config{ReadTimeout: timeout}))
	c := dial(t, addr)
	c.say(head("Content-Length: 1000"))
	eventually(t, func() bool { return b.Snapshot().Waiting == 1 }, "it does not wait")
	passed := time.NewTimer(timeout * 3 / 2) // only time can show it on a real socket
	defer passed.Stop()
	<-passed.C
	lease.Release()
	eventually(t, func() bool { return b.Snapshot().Inflight == 1 }, "it is not admitted")
	c.say(strings.Repeat("x", 1000))
	resp := c.answer()
	assert.Equal(t, http.StatusOK, resp.StatusCode)
	assert.Equal(t, "1000", resp.text)
}

// The lease that was given in front of the body is the one behind it: the middleware
// asks no second time, and requests without a body are its own.
func TestAskedOnce(t *testing.T) {
	g := &counting{}
	var live []bool
	a := app(t, g, func(c *fiber.Ctx) error {
		_, held := gate.LeaseOf(fibergate.Context(c), g)
		live = append(live, held)
		return ok(c)
	})
	addr := serve(t, a)
	c := dial(t, addr)
	c.say(head("Content-Length: 4", "Content-Type: text/x") + "body")
	assert.Equal(t, "4", c.answer().text)
	c.say(head("Transfer-Encoding: chunked") + "3\r\nabc\r\n0\r\n\r\n")
	assert.Equal(t, "3", c.answer().text)
	c.say(head())
	assert.Equal(t, "0", c.answer().text)
	assert.Equal(t, []bool{true, true, true}, live)
	common := gate.Request{Flow: "127.0.0.1", Weight: 1, Class: gate.Default, Method: "POST", Path: "/"}
	announced, unknown, none := common, common, common
	announced.Bytes, announced.ContentType = 4, "text/x"
	unknown.Bytes = fiber.DefaultBodyLimit
	none.Route = ""
	assert.Equal(t, []gate.Request{announced, unknown, none}, g.asked)
	eventually(t, func() bool { return g.held.Load() == 0 }, "leases leaked")
}

// A body that Fiber does not take is not put to the gate.
func TestLongerThanTheLimit(t *testing.T) {
	g := &counting{}
	addr := serve(t, app(t, g, ok, fiber.Config{BodyLimit: 1000}))
	c := dial(t, addr)
	c.say(head("Content-Length: 1001"))
	resp := c.answer()
	assert.Equal(t, http.StatusRequestEntityTooLarge, resp.StatusCode)
	assert.Empty(t, resp.Header.Get(gate.MarkerHeader))
	c = dial(t, addr)
	c.say(head("Transfer-Encoding: chunked") + "7d0\r\n" + strings.Repeat("x", 2000) + "\r\n0\r\n\r\n")
	resp = c.answer()
	assert.Equal(t, http.StatusRequestEntityTooLarge, resp.StatusCode)
	assert.Len(t, g.asked, 1, "the chunked one, for all of the limit")
	eventually(t, func() bool { return g.held.Load() == 0 }, "leases leaked")
}

// However a request ends, its lease comes back once, and with a stream when that ends.
func TestT06EveryEndReleases(t *testing.T) {
	g := &counting{}
	write := make(chan string)
	a := fiber.New(fiber.Config{DisableStartupMessage: true})
	require.NoError(t, prebody.Attach(a, fibergate.Config{Gate: g}))
	a.Use(recover.New())
	a.Post("/", func(c *fiber.Ctx) error {
		switch string(c.Body()) {
		case "panic":
			panic("boom")
		case "error":
			return fiber.ErrTeapot
		case "stream":
			c.Context().SetBodyStreamWriter(func(w *bufio.Writer) {
				for s := range write {
					_, _ = w.WriteString(s)
					if w.Flush() != nil {
						return
					}
				}
			})
		case "hijack":
			c.Context().Hijack(func(c net.Conn) { _, _ = io.Copy(c, c) })
		case "timeout":
			c.Context().TimeoutError("late")
		}
		return nil
	})
	addr := serve(t, a)
	for body, status := range map[string]int{"": 200, "fine": 200, "panic": 500, "error": 418, "timeout": 408} {
		c := dial(t, addr)
		c.say(head(fmt.Sprint("Content-Length: ", len(body))) + body)
		resp := c.answer()
		assert.Equal(t, status, resp.StatusCode, body)
		eventually(t, func() bool { return g.held.Load() == 0 }, body+": a lease leaked")
	}
	for _, body := range []string{"stream", "hijack"} {
		c := dial(t, addr)
		c.say(head(fmt.Sprint("Content-Length: ", len(body))) + body)
		if body == "stream" {
			write <- "x" // with which the head is sent
		}
		resp, err := http.ReadResponse(c.r, nil)
		require.NoError(t, err)
		defer resp.Body.Close() //nolint:gocritic // of two
		if body == "stream" {
			_, err = resp.Body.Read(make([]byte, 1))
		} else {
			c.say("y")
			_, err = c.r.ReadByte()
		}
		require.NoError(t, err, body)
		assert.EqualValues(t, 1, g.held.Load(), body)
		_ = c.Close()
		eventually(t, func() bool {
			select {
			case write <- "anybody there?":
			default:
			}
			return g.held.Load() == 0
		}, body+": a lease leaked")
	}
}

// Shutting the server down refuses who waits in front of its body.
func TestT13ShutdownEndsTheWait(t *testing.T) {
	b := budget(t, nil)
	lease, err := b.Acquire(t.Context(), gate.Request{Bytes: 8 * mib})
	require.NoError(t, err)
	defer lease.Release()
	a := app(t, b, ok)
	c := dial(t, serve(t, a))
	c.say(head("Content-Length: 1000"))
	eventually(t, func() bool { return b.Snapshot().Waiting == 1 }, "it does not wait")
	down := make(chan error, 1)
	go func() { down <- a.ShutdownWithTimeout(hang) }()
	resp := c.answer()
	assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
	assert.Equal(t, "shutting_down", resp.Header.Get(gate.MarkerHeader))
	_ = c.Close()
	assert.NoError(t, <-down)
}

// What is configured is asked for, and answers.
func TestConfigured(t *testing.T) {
	g := &counting{err: &gate.Rejection{Reason: gate.QueueFull, Gate: "counting"}}
	var told []fibergate.Decision
	a := fiber.New(fiber.Config{DisableStartupMessage: true})
	require.NoError(t, prebody.Attach(a, fibergate.Config{
		Gate: g, Next: func(c *fiber.Ctx) bool { return c.Query("pass") != "" },
		Lane: func(*fiber.Ctx) string { return "lane" }, Flow: func(c *fiber.Ctx) string { return c.Get("X-Tenant") },
		Class: func(*fiber.Ctx) gate.Class { return gate.Bulk }, Cost: func(*fiber.Ctx) int64 { return 7 },
		Route: func(*fiber.Ctx) string { return "/route" },
		OnRefuse: func(c *fiber.Ctx, rej *gate.Rejection) error {
			if c.Query("mine") != "" {
				return c.SendString("mine: " + string(rej.Reason))
			}
			return fiber.NewError(fiber.StatusTeapot, "short")
		},
		OnDecision: func(d fibergate.Decision) { d.Context = nil; told = append(told, d) },
	}))
	a.Post("/", ok)
	addr := serve(t, a)
	ask := func(path string) (int, string) {
		c := dial(t, addr)
		c.say("POST " + path + " HTTP/1.1\r\nHost: test\r\nX-Tenant: seven\r\nContent-Length: 4\r\n\r\nbody")
		resp := c.answer()
		return resp.StatusCode, resp.text
	}
	status, text := ask("/?mine=1")
	assert.Equal(t, "503 mine: queue_full", fmt.Sprint(status, " ", text))
	status, text = ask("/")
	assert.Equal(t, "418 short", fmt.Sprint(status, " ", text))
	status, text = ask("/?pass=1")
	assert.Equal(t, "200 4", fmt.Sprint(status, " ", text))
	assert.Equal(t, gate.Request{
		Lane: "lane", Flow: "seven", Weight: 1, Class: gate.Bulk, Cost: 7, Bytes: 4, Method: "POST", Route: "/route", Path: "/",
	}, g.asked[0])
	assert.Equal(t, []fibergate.Decision{
		{Method: "POST", Route: "/route", Err: g.err}, {Method: "POST", Route: "/route", Err: g.err},
	}, told)
}

// What cannot work is an error when the app starts, and the app stays as it was.
func TestAttachRefuses(t *testing.T) {
	taken := fiber.New()
	taken.Server().HeaderReceived = func(*fasthttp.RequestHeader) (c fasthttp.RequestConfig) { return }
	g := &counting{}
	for _, test := range []struct {
		app    *fiber.App
		config fibergate.Config
		want   string
	}{
		{fiber.New(), fibergate.Config{}, "prebody: Config.Gate is nil"},
		{fiber.New(), fibergate.Config{Gate: g, Format: 99}, "prebody: Config.Format: format 99 does not exist"},
		{fiber.New(fiber.Config{StreamRequestBody: true}), fibergate.Config{Gate: g}, "StreamRequestBody"},
		{taken, fibergate.Config{Gate: g}, "HeaderReceived already"},
	} {
		require.ErrorContains(t, prebody.Attach(test.app, test.config), test.want)
		assert.Equal(t, test.app == taken, test.app.Server().HeaderReceived != nil)
	}
}

// counting admits everybody, or nobody with err, and counts.
type counting struct {
	err   error
	asked []gate.Request
	held  atomic.Int64
}

func (g *counting) Acquire(_ context.Context, q gate.Request) (gate.Lease, error) {
	g.asked = append(g.asked, q)
	if g.err != nil {
		return gate.Lease{}, g.err
	}
	g.held.Add(1)
	return gate.NewLease(&lease{g: g}, 1), nil
}

// lease is one of counting's.
type lease struct {
	g        *counting
	released atomic.Bool
}

func (l *lease) Release(uint64) {
	if !l.released.Swap(true) {
		l.g.held.Add(-1)
	}
}
func (l *lease) Live(uint64) bool            { return !l.released.Load() }
func (l *lease) Grow(uint64, int64) error    { return nil }
func (l *lease) Shrink(uint64, int64)        {}
func (l *lease) Observe(uint64, gate.Sample) {}
func (l *lease) Waited(uint64) time.Duration { return 0 }
func (l *lease) Body(_ uint64, rc io.ReadCloser, _ func(time.Time) error) io.ReadCloser {
	return rc
}
