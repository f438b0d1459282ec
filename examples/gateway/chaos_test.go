package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate/examples/internal/upstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// moods are configurations that follow each other while calls run.
var moods = []string{
	threeTenants + smallBudget,
	threeTenants + "admission: {max_inflight_bytes: 8MiB, queue_timeout: 20ms, body_idle: 50ms}",
	threeTenants + "admission: {max_inflight_bytes: 64MiB, release_at: return, max_waiters: 2}",
	threeTenants + "admission: {max_inflight_bytes: 8MiB, mode: shadow}",
	"tenants: [{name: tenant-new, key: secret-new}]\nadmission: {max_inflight_bytes: 8MiB, hard_max_body_bytes: 100KiB}",
}

// ill is a client that behaves as badly as its dice say.
type ill struct {
	a    *app
	dice *rand.Rand
}

func (c *ill) one(of ...string) string { return of[c.dice.IntN(len(of))] }

// act makes one call and leaves at some moment.
func (c *ill) act() error {
	conn, err := net.Dial("tcp", c.a.addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(hang))
	raw := newRawConn(c.a.t, conn)
	body := question(c.dice.IntN(2) == 0, c.dice.IntN(2)*c.dice.IntN(600_000))
	path := c.one(apis[0].path, apis[1].path, apis[2].path, "/echo", "/echo?hold=5ms", "/v1/%6dessages", "/healthz", statusPath, "/nowhere")
	head := c.one("POST", "POST", "POST", "POST", "GET", "BREW") + " " + path + " HTTP/1.1\r\nHost: localhost\r\n" +
		c.one("Authorization: Bearer secret-alice", "Authorization: bearer secret-batch", "X-Api-Key: secret-new", "Authorization: Bearer secret-eve", "X: y") + "\r\n" +
		c.one("", "", "Headgate-Class: bulk\r\n", "Headgate-Class: urgent\r\n", "Expect: 100-continue\r\n", "Connection: close\r\n", "Content-Encoding: gzip\r\n")
	message := fmt.Sprintf("%sContent-Length: %d\r\n\r\n%s", head, len(body), body)
	if c.dice.IntN(3) == 0 {
		message = fmt.Sprintf("%sTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n%s\r\n\r\n", head, len(body), body, c.one("0", "0", "0", "-1", "zz", "ffffffffffffffff"))
	}
	switch c.dice.IntN(6) {
	case 0: // leaves in the middle
		message = message[:c.dice.IntN(len(message))]
	case 1: // asks twice without looking
		message += message
	}
	_, _ = io.WriteString(conn, message)                             // it may be cut
	_ = conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond)) // how patient it is
	switch c.dice.IntN(6) {
	case 0:
		_ = raw.CloseWrite()
	case 1: // reads a little
		_, _ = io.CopyN(io.Discard, conn, c.dice.Int64N(500))
	case 2:
		return nil // reads nothing
	case 3:
		return raw.SetLinger(0)
	}
	_, _ = io.Copy(io.Discard, conn)
	return nil
}

// Whatever clients and the back end do, at every moment and while the configuration
// changes, nothing is held afterwards, nothing runs on, and nothing is told.
func TestChaos(t *testing.T) {
	before := runtime.NumGoroutine()
	t.Run("calls", func(t *testing.T) {
		model, err := upstream.New(func() upstream.Config {
			c := upstream.DefaultConfig()
			c.Capacity, c.Service = 3, 20*time.Millisecond
			return c
		}())
		require.NoError(t, err)
		t.Cleanup(model.Close)
		var n atomic.Int64
		back := listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch n.Add(1) % 7 {
			case 0: // cuts the call off
				panic(http.ErrAbortHandler)
			case 1: // does not read
				w.WriteHeader(http.StatusTooManyRequests)
			default:
				model.ServeHTTP(w, r)
			}
		}))
		a := start(t, "log_level: debug\n"+moods[0], "-upstream", back.URL)
		var clients sync.WaitGroup
		for seed := range uint64(8) {
			c := &ill{a, rand.New(rand.NewPCG(seed, 0))}
			clients.Go(func() {
				for range 60 {
					if err := c.act(); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		over := make(chan struct{})
		go func() { clients.Wait(); close(over) }()
		for i, running := 1, true; running; i++ {
			a.write("log_level: debug\n" + moods[i%len(moods)])
			select {
			case <-over:
				running = false
			case <-time.After(2*pollEvery + pollEvery/2): // so that each comes into force
			}
		}
		a.untilZero()
		require.Eventually(t, func() bool { return model.Stats().Concurrent == 0 }, hang, 5*time.Millisecond)
		log := a.log.String()
		assert.NotContains(t, log, "goroutine ", "no panic")
		assert.NotContains(t, log, "superfluous")
		requireNoSecrets(t, strings.ReplaceAll(strings.ReplaceAll(log, "tenants", ""), t.Name(), ""))
	})
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+2 }, hang, 10*time.Millisecond)
}

// Behind a proxy calls, streams and refusals look as they do without one.
func TestBehindAProxy(t *testing.T) {
	back := models(t, 5*time.Millisecond)
	a := start(t, threeTenants+"admission: {max_inflight_bytes: 8MiB, queue_timeout: 0s}", "-upstream", back.URL)
	to, err := url.Parse(a.url)
	require.NoError(t, err)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	front := httptest.NewServer(&httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1,
		Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(to); p.SetXForwarded() },
	})
	t.Cleanup(front.Close)
	b := a.in(t)
	b.url = front.URL
	const key = "Bearer secret-alice"
	for _, api := range apis {
		for _, stream := range []bool{false, true} {
			resp, answer := b.ask(api.path, question(stream, 300<<10), "Authorization", key)
			require.Equal(t, 200, resp.StatusCode, answer)
		}
		resp, answer := b.ask(api.path, question(false, 0), "Authorization", "Bearer secret-eve")
		requireShape(t, api.path, resp, answer, 401)
	}
	release := a.fill()
	for _, api := range apis { // refused without a look at the body
		resp, answer := b.ask(api.path, question(false, 1000), "Authorization", key)
		assert.Equal(t, "queue_timeout", requireShape(t, api.path, resp, answer, 503).Error.Code)
		assert.Equal(t, "queue_timeout", resp.Header.Get("Headgate-Reason"))
		assert.NotEmpty(t, resp.Header.Get("Retry-After"))
	}
	release()
	ctx, leave := context.WithCancel(t.Context())
	resp, err := b.client.Do(b.request("/v1/messages", question(true, mib), "Authorization", key).WithContext(ctx))
	require.NoError(t, err)
	leave()
	resp.Body.Close()
	a.untilZero()
	back.until("all is over", func(s upstream.Stats) bool { return s.Concurrent == 0 })
}
