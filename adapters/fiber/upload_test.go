package fibergate_test

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/recover"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	fibergate "github.com/headgate-go/headgate/adapters/fiber"
	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/gatetest"
)

// T23: what follows in a body that nobody has read is never taken for a request, however
// it is framed, whoever has answered, and whatever has been read of it. fasthttp before
// 1.75 would.
func TestT23RestOfABodyIsNoRequest(t *testing.T) {
	next := head("GET /next")
	filler := strings.Repeat("x", 8192)
	chunks := fmt.Sprintf("2000\r\n%s\r\n%x\r\n%s\r\n0\r\n\r\n", filler, len(next), next)
	bodies := map[string]string{
		"POST, length":                 head("POST /", "Content-Length: "+strconv.Itoa(8192+len(next))) + filler + next,
		"POST, length, more":           head("POST /", "Content-Length: "+strconv.Itoa(8192+1000*len(next))) + filler + strings.Repeat(next, 1000),
		"POST, chunks":                 head("POST /", "Transfer-Encoding: chunked") + chunks,
		"POST, small chunks":           head("POST /", "Transfer-Encoding: chunked") + "1\r\nx\r\n0\r\n\r\n" + next,
		"POST, short, behind the body": head("POST /", "Content-Length: 10") + filler[:10] + next,
		"GET, length":                  head("GET /", "Content-Length: "+strconv.Itoa(8192+len(next))) + filler + next,
		"GET, chunks":                  head("GET /", "Transfer-Encoding: chunked") + chunks,
	}
	read := func(n int64) fiber.Handler {
		return func(c *fiber.Ctx) error {
			_, _ = io.CopyN(io.Discard, fibergate.Body(c), n)
			return ok(c)
		}
	}
	for name, test := range map[string]struct {
		limit   int
		handler fiber.Handler
	}{
		"refused":              {0, unreached(t)},
		"answered unread":      {9, ok},
		"answered half-read":   {9, read(100)},
		"answered nearly read": {9, read(8191)},
		"read by c.Body":       {9, func(c *fiber.Ctx) error { return c.SendString(fmt.Sprint(len(c.Body()))) }},
		"closed":               {9, func(c *fiber.Ctx) error { _ = c.Request().CloseBodyStream(); return ok(c) }},
		"failed":               {9, func(*fiber.Ctx) error { return fiber.ErrTeapot }},
		"panicked":             {9, func(*fiber.Ctx) error { panic("boom") }},
		"refused by Refuse":    {9, func(c *fiber.Ctx) error { fibergate.Refuse(c, gatetest.Refusal(gate.NoTarget)); return nil }},
		"refused by error":     {9, func(*fiber.Ctx) error { return gatetest.Refusal(gate.NoTarget) }},
		"streamed":             {9, func(c *fiber.Ctx) error { return c.SendStream(strings.NewReader("ok")) }},
	} {
		t.Run(name, func(t *testing.T) {
			var smuggled atomic.Int64
			a := fiber.New(streaming())
			a.Use(recover.New())
			a.Get("/next", func(c *fiber.Ctx) error { smuggled.Add(1); return ok(c) }) // not behind the gate
			a.Use(fibergate.New(fibergate.Config{Gate: &gatetest.Slots{Limit: test.limit}}))
			a.All("/", test.handler)
			addr := serve(t, a)
			for kind, message := range bodies {
				// One request may follow: that behind the end of a body which was read.
				follows := kind == "POST, short, behind the body" || kind == "POST, small chunks"
				before := smuggled.Load()
				c := dial(t, addr)
				c.pour(message)
				if closes := c.answer().Close; follows {
					if !closes {
						c.answer()
					}
					continue
				}
				_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond)) // where it stays open, in sync
				rest, _ := io.ReadAll(c.r)
				assert.Empty(t, string(rest), kind)
				assert.Equal(t, before, smuggled.Load(), "%s: a body was taken for a request", kind)
			}
		})
	}
}

// Without a middleware around the handler Refuse sees to that itself.
func TestT23RefuseAlone(t *testing.T) {
	var smuggled atomic.Int64
	a := fiber.New(streaming())
	a.Get("/next", func(c *fiber.Ctx) error { smuggled.Add(1); return ok(c) })
	a.Post("/", func(c *fiber.Ctx) error {
		assert.True(t, fibergate.Refuse(c, gatetest.Refusal(gate.NoTarget)))
		return nil
	})
	addr := serve(t, a)
	for _, size := range []int{8300, 1_000_000} {
		c := dial(t, addr)
		c.pour(head("POST /", "Content-Length: "+strconv.Itoa(size)) + strings.Repeat("x", 8192) + strings.Repeat(head("GET /next"), 100))
		assert.Equal(t, http.StatusServiceUnavailable, c.answer().StatusCode)
		_ = c.rest()
		assert.Zero(t, smuggled.Load())
	}
}

// A connection whose body was read, by whatever way that can be seen, is kept.
func TestConnectionIsKept(t *testing.T) {
	all := func(c *fiber.Ctx) error {
		n, err := io.Copy(io.Discard, fibergate.Body(c))
		if err != nil {
			return err
		}
		return c.SendString(fmt.Sprint(n))
	}
	body := func(c *fiber.Ctx) error { return c.SendString(fmt.Sprint(len(c.Body()))) }
	form := func(c *fiber.Ctx) error {
		f, err := c.MultipartForm()
		if err != nil {
			return err
		}
		return c.SendString(fmt.Sprint(f.File["files"][0].Size))
	}
	upload, formType := multipartForm(t, 20_000)
	for name, test := range map[string]struct {
		limit   int
		handler fiber.Handler
		head    []string
		body    string
		want    string
	}{
		"read":              {9, all, []string{"Content-Length: 20000"}, strings.Repeat("x", 20000), "20000"},
		"read, chunks":      {9, all, []string{"Transfer-Encoding: chunked"}, "3\r\nabc\r\n0\r\n\r\n", "3"},
		"c.Body":            {9, body, []string{"Content-Length: 20000"}, strings.Repeat("x", 20000), "20000"},
		"form":              {9, form, []string{"Content-Length: " + strconv.Itoa(len(upload)), "Content-Type: " + formType}, upload, "20000"},
		"unread, but short": {9, ok, []string{"Content-Length: 8000"}, strings.Repeat("x", 8000), "ok"},
		"refused, short":    {0, unreached(t), []string{"Content-Length: 8000"}, strings.Repeat("x", 8000), ""},
		"no body":           {9, ok, nil, "", "ok"},
	} {
		t.Run(name, func(t *testing.T) {
			g := &gatetest.Slots{Limit: test.limit}
			c := dial(t, serve(t, app(test.handler, fibergate.New(fibergate.Config{Gate: g}))))
			for range 3 {
				c.say(head("POST /", test.head...) + test.body)
				a := c.answer()
				assert.False(t, a.Close)
				if test.limit > 0 {
					assert.Equal(t, test.want, a.text)
				}
			}
			eventually(t, func() bool { return g.InUse() == 0 }, "a slot leaked")
		})
	}
}

// T24: who is refused in the middle of an upload reads the answer, which the app's own
// ErrorHandler has written, over TLS as well.
func TestT24RefusalReachesTheUploader(t *testing.T) {
	tries := 300
	if testing.Short() || raceEnabled {
		tries = 30
	}
	for _, secure := range []bool{false, true} {
		t.Run(fmt.Sprint("TLS ", secure), func(t *testing.T) {
			config := streaming()
			config.ErrorHandler = func(c *fiber.Ctx, err error) error {
				var e *fiber.Error
				require.ErrorAs(t, err, &e)
				return c.Status(e.Code).JSON(fiber.Map{"mine": e.Message})
			}
			a := fiber.New(config)
			a.Use(func(c *fiber.Ctx) error { c.Set("Access-Control-Allow-Origin", "*"); return c.Next() })
			a.Use(fibergate.New(fibergate.Config{Gate: &gatetest.Slots{}}))
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			transport, scheme := &http.Transport{DisableKeepAlives: true}, "http://"
			if secure {
				mine := httptest.NewUnstartedServer(nil)
				mine.StartTLS() // for its certificate
				defer mine.Close()
				l = tls.NewListener(l, &tls.Config{Certificates: mine.TLS.Certificates})
				scheme, transport.TLSClientConfig = "https://", &tls.Config{InsecureSkipVerify: true}
			}
			addr := serveOn(t, a, l)
			client := &http.Client{Transport: transport, Timeout: hang}
			body, reached := make([]byte, 8<<20), 0
			for i := range tries {
				var r io.Reader = bytes.NewReader(body)
				if i%3 == 2 {
					r = io.MultiReader(r) // chunked
				}
				resp, err := client.Post(scheme+addr, "text/plain", r)
				if err != nil {
					continue
				}
				text, err := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				if err == nil && resp.StatusCode == http.StatusServiceUnavailable && resp.Header.Get("Retry-After") == "3" &&
					resp.Header.Get("Access-Control-Allow-Origin") == "*" && string(text) == `{"mine":"refused locally by slots: queue full"}` {
					reached++
				}
			}
			t.Logf("%d of %d uploads of 8 MiB have read their refusal", reached, tries)
			assert.GreaterOrEqual(t, reached, tries*99/100)
		})
	}
}

// Only so many connections linger; those beyond are answered and closed all the same.
func TestLingeringIsBounded(t *testing.T) {
	const conns = 300
	addr := serve(t, app(unreached(t), fibergate.New(fibergate.Config{Gate: &gatetest.Slots{}})))
	var all []*conn
	for range conns {
		c := dial(t, addr)
		c.say(head("POST /", "Content-Length: 20000") + strings.Repeat("x", 9000)) // and no more
		all = append(all, c)
	}
	for _, c := range all {
		a := c.answer()
		assert.Equal(t, http.StatusServiceUnavailable, a.StatusCode)
		assert.True(t, a.Close)
		assert.Empty(t, c.rest())
	}
}

// T27, T30: a body ends at the cap, which BodyLimit is not any more, and one that
// breaks off is not taken for a whole one.
func TestT27CapAndT30BrokenOff(t *testing.T) {
	b := budget(t, 1<<20)
	ends := make(chan error, 1)
	addr := serve(t, app(func(c *fiber.Ctx) error {
		_, err := io.Copy(io.Discard, fibergate.Body(c))
		ends <- err
		return err
	}, fibergate.New(fibergate.Config{Gate: b})))
	a := postBody(t, addr, "text/plain", io.MultiReader(strings.NewReader(strings.Repeat("x", 5<<20))))
	assert.Equal(t, http.StatusRequestEntityTooLarge, a.StatusCode)
	require.ErrorIs(t, <-ends, gate.PayloadTooLarge)
	for _, framing := range []string{"Content-Length: 100000", "Transfer-Encoding: chunked"} {
		c := dial(t, addr)
		c.say(head("POST /", framing) + "8000\r\n" + strings.Repeat("x", 20_000))
		_ = c.Close()
		require.Error(t, <-ends, framing)
		eventually(t, func() bool { return b.Snapshot().Inflight == 0 }, "a lease leaked")
	}
}

// T26: of a form that is refused no more is read than fasthttp has read already.
func TestT26RefusedForm(t *testing.T) {
	upload, formType := multipartForm(t, 8<<20)
	g := &gatetest.Slots{}
	c := dial(t, serve(t, app(unreached(t), fibergate.New(fibergate.Config{Gate: g}))))
	c.say(head("POST /", "Content-Length: "+strconv.Itoa(len(upload)), "Content-Type: "+formType) + upload[:16<<10])
	assert.Equal(t, http.StatusServiceUnavailable, c.answer().StatusCode)
	assert.EqualValues(t, 8<<10, g.Requests()[0].Buffered)
}

// H8: a goroutine that goes on reading when its handler is done, as a transport may, gets
// an error, touches nothing, and does not hold up anything, blocked or not.
func TestH8ReaderLeftBehind(t *testing.T) {
	left := make(chan io.Reader, 1)
	ends := make(chan error, 1)
	addr := serve(t, app(func(c *fiber.Ctx) error {
		body := fibergate.Body(c)
		if c.Query("blocked") == "" {
			left <- body
			return ok(c)
		}
		reads := make(chan struct{})
		go func() {
			close(reads)
			_, err := io.Copy(io.Discard, body)
			ends <- err
		}()
		<-reads
		return ok(c)
	}, fibergate.New(fibergate.Config{Gate: &gatetest.Slots{Limit: 1}})))
	c := dial(t, addr)
	c.say(head("POST /", "Content-Length: 10") + "0123456789")
	assert.Equal(t, "ok", c.answer().text)
	n, err := (<-left).Read(make([]byte, 1))
	assert.Zero(t, n)
	require.ErrorContains(t, err, "the request is over")
	for range 20 {
		c := dial(t, addr)
		c.say(head("POST /?blocked=1", "Content-Length: 100000") + strings.Repeat("x", 20_000))
		assert.Equal(t, "ok", c.answer().text)
		err := <-ends
		require.Error(t, err)
		require.NotErrorIs(t, err, io.EOF)
	}
}
