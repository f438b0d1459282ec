//nolint:thelper // the functions are tests, each a line of the table in TestCases
package main

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate/core/gate"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Slow senders cannot pin the budget: while somebody waits they are ended after 2 s, otherwise
// when the time for a body is over.
func caseA6(t *testing.T) {
	t.Parallel()
	a := start(t, "admission: {max_inflight_bytes: 10MiB, queue_timeout: 1m, body_idle: 5s, body_timeout: 3s}")
	slow := make(chan answered, 2)
	for range 2 {
		c := a.dial()
		c.post("/echo", contentLength(5*mib))
		go func() { slow <- trickle(c, 200*time.Millisecond) }()
	}
	a.until("the slow ones hold all", func(s status) bool { return s["inflight_bytes"] == 10*mib })
	body := random(1024)
	resp, answer := a.do(http.MethodPost, "/echo", strings.NewReader(string(body)))
	requireEcho(t, body, resp, answer)
	for range 2 {
		got := <-slow
		requireRefused(t, got.head, got.answer, 408, "slow_body")
	}
	a.untilZero()
}

// Bytes that keep coming do not move the end of the time for the whole body.
func caseA8(t *testing.T) {
	a := start(t, "admission: {body_idle: 1h, body_timeout: 1s, min_body_rate: 0, min_body_rate_waiting: 0}")
	c := a.dial()
	c.post("/echo", contentLength(100_000))
	got := trickle(c, 50*time.Millisecond)
	requireRefused(t, got.head, got.answer, 408, "slow_body")
	a.untilZero()
}

// The refusal of a body comes before any of it is read or parsed.
func caseA11(t *testing.T) {
	back := models(t, 0)
	a := start(t, noWait("8MiB"), "-upstream", back.URL)
	release := a.fill()
	for _, path := range []string{"/echo", "/v1/messages", "/v1/responses"} {
		c := a.dial()
		c.post(path, contentLength(1_500_000)) // nothing of it is sent
		resp, answer := c.answer()
		assert.Equal(t, 503, resp.StatusCode, answer)
		assert.NotEmpty(t, resp.Header.Get("Retry-After"))
		assert.True(t, resp.Close)
		c.closed()
	}
	release()
	a.untilZero()
}

// A client that is still uploading reads why it was refused.
func caseA25(t *testing.T) {
	a := start(t, "admission: {hard_max_body_bytes: 64KiB}")
	const clients = 200
	body := strings.Repeat("x", mib)
	var read atomic.Int64
	var workers sync.WaitGroup
	for range 4 {
		workers.Go(func() {
			for range clients / 4 {
				conn, err := net.Dial("tcp", a.addr)
				if err != nil {
					t.Error(err)
					return
				}
				_ = conn.SetDeadline(time.Now().Add(hang))
				c := newRawConn(t, conn)
				go func() {
					_ = c.postQuietly("/echo", contentLength(50*mib))
					for range 50 {
						if _, err := io.WriteString(conn, body); err != nil {
							return
						}
					}
				}()
				if head, answer, err := c.tryAnswer(); err == nil && head.StatusCode == http.StatusRequestEntityTooLarge && strings.Contains(answer, "payload_too_large") {
					read.Add(1)
				}
				conn.Close()
			}
		})
	}
	workers.Wait()
	assert.GreaterOrEqual(t, read.Load(), int64(clients*99/100))
	a.untilZero()
}

// "100 Continue" is a promise: whoever is refused does not get it.
func caseA27(t *testing.T) {
	back := models(t, 0)
	a := start(t, "admission: {max_inflight_bytes: 16MiB, hard_max_body_bytes: 12MiB, queue_timeout: 0s, body_idle: 1m}", "-upstream", back.URL)
	for _, path := range []string{"/echo", "/v1/messages"} {
		hold := a.dial()
		hold.post("/echo", contentLength(12*mib))
		a.until("there is no room", func(s status) bool { return s["inflight_bytes"] == 12*mib })
		for length, status := range map[int]int{10485760: 503, 13 * mib: 413} {
			c := a.dial()
			c.post(path, contentLength(length), "Expect: 100-continue")
			if a.fiberCannot(noContinue) {
				c.continues()
			}
			line, err := c.r.Peek(len("HTTP/1.1 413"))
			require.NoError(t, err)
			assert.Equal(t, "HTTP/1.1 "+strconv.Itoa(status), string(line), "the first line is the final status")
			resp, _ := c.answer()
			assert.True(t, resp.Close)
			c.closed()
		}
		hold.reset()
		a.untilZero()

		body := question(false, 10485760)
		c := a.dial()
		c.body = body
		c.post(path, contentLength(len(body)), "Expect: 100-continue")
		line, err := c.r.ReadString('\n')
		require.NoError(t, err)
		assert.Equal(t, "HTTP/1.1 100 Continue\r\n", line)
		if a.fiberCannot(noContinue) {
			a.until("it is reserved", func(s status) bool { return s["inflight_bytes"] == 10*mib })
		}
		assert.EqualValues(t, 10*mib, a.status()["inflight_bytes"], "reserved before it was promised")
		_, err = c.r.ReadString('\n')
		require.NoError(t, err)
		c.say(body)
		resp, answer := c.answer()
		for resp.StatusCode == http.StatusContinue { // the back end's own, when it takes longer than a second to say so
			resp, answer = c.answer()
		}
		assert.Equal(t, 200, resp.StatusCode, answer)
		a.untilZero()
	}
}

// A body over the cap is refused alike, declared or not.
func caseA28(t *testing.T) {
	back := models(t, 0)
	a := start(t, "admission: {max_inflight_bytes: 16MiB, hard_max_body_bytes: 8MiB}", "-upstream", back.URL)
	for _, api := range apis {
		c := a.dial()
		c.post(api.path, contentLength(9*mib)) // refused before it is read
		resp, answer := c.answer()
		assert.Equal(t, "payload_too_large", requireShape(t, api.path, resp, answer, 413).Error.Code)

		c = a.dial()
		c.post(api.path, "Transfer-Encoding: chunked")
		go func() {
			for range 9 {
				_, _ = io.WriteString(c, "100000\r\n"+strings.Repeat("x", mib)+"\r\n") // it is cut
			}
		}()
		resp, answer = c.answer()
		assert.Equal(t, "payload_too_large", requireShape(t, api.path, resp, answer, 413).Error.Code)
	}
	assert.Zero(t, back.model.Stats().Started)
	a.untilZero()
}

// Body, header, and counter of a refusal name the same reason, in every shape.
func caseA32(t *testing.T) {
	a := start(t, noWait("8MiB", "hard_max_body_bytes: 6MiB"))
	release := func() {}
	for i, c := range []struct {
		length int
		reason string
	}{{7 * mib, "payload_too_large"}, {mib, "queue_timeout"}} {
		if i == 1 {
			hold := a.dial()
			hold.post("/echo", contentLength(6*mib))
			second := a.dial()
			second.post("/echo", contentLength(3*mib/2))
			a.until("almost full", func(s status) bool { return s["inflight_bytes"] == 15*mib/2 })
			release = func() { hold.reset(); second.reset() }
		}
		for _, path := range []string{"/echo", apis[0].path, apis[1].path, apis[2].path} {
			conn := a.dial()
			conn.post(path, contentLength(c.length))
			resp, answer := conn.answer()
			assert.Equal(t, c.reason, resp.Header.Get(gate.MarkerHeader))
			var body struct {
				Code  string
				Error struct{ Code string }
			}
			require.NoError(t, json.Unmarshal([]byte(answer), &body))
			assert.Equal(t, c.reason, body.Code+body.Error.Code)
		}
	}
	_, text := a.do(http.MethodGet, "/headgate/status", nil)
	var s struct {
		Admission struct {
			Sheds map[string]int64 `json:"sheds_by_reason"`
		}
	}
	require.NoError(t, json.Unmarshal([]byte(text), &s))
	assert.Equal(t, map[string]int64{"payload_too_large": 4, "queue_timeout": 4}, s.Admission.Sheds)
	release()
	a.untilZero()
}

// A waiter's time runs out by itself, not only when somebody else arrives.
func caseC9(t *testing.T) {
	a := start(t, strings.Replace(smallBudget, "queue_timeout: 1m", "queue_timeout: 200ms", 1))
	release := a.fill()
	c := a.dial()
	c.post("/echo", contentLength(mib))
	resp, answer := c.answer() // nobody else asks for room meanwhile
	requireRefused(t, resp, answer, 503, "queue_timeout")
	assert.EqualValues(t, 2, a.status()["admitted_total"]+a.status()["shed_total"])
	release()
	a.untilZero()
}

// Retry-After follows from how long bodies are held: the first retry succeeds.
func caseC14(t *testing.T) {
	t.Parallel()
	const hold = 2 * time.Second
	a := start(t, smallBudget)
	held := func() chan reply {
		done := make(chan reply, 1)
		go func() {
			resp, _, err := a.try(t.Context(), http.MethodPost, "/echo?hold="+hold.String(), strings.NewReader(string(random(8*mib))))
			assert.NoError(t, err)
			done <- resp
		}()
		return done
	}
	first := held()
	a.until("one is held", func(s status) bool { return s["inflight"] == 1 })
	second := held() // it waits, so how long it is held will be known exactly
	assert.Equal(t, 200, (<-first).StatusCode)
	assert.Equal(t, 200, (<-second).StatusCode)

	a.write(strings.Replace(smallBudget, "queue_timeout: 1m", "queue_timeout: 500ms", 1))
	a.logs("config applied")
	third := held()
	a.until("one is held", func(s status) bool { return s["inflight"] == 1 })
	body := random(mib)
	resp, answer := a.do(http.MethodPost, "/echo", strings.NewReader(string(body)))
	requireRefused(t, resp, answer, 503, "queue_timeout")
	after, err := strconv.Atoi(resp.Header.Get("Retry-After"))
	require.NoError(t, err)
	assert.GreaterOrEqual(t, after, int(hold/time.Second))
	time.Sleep(time.Duration(after) * time.Second) // as the server says
	resp, answer = a.do(http.MethodPost, "/echo", strings.NewReader(string(body)))
	requireEcho(t, body, resp, answer)
	assert.Equal(t, 200, (<-third).StatusCode)
	a.untilZero()
}

// Health checks pass whatever the load; nothing else passes with them.
func caseE1(t *testing.T) {
	a := start(t, strings.Replace(smallBudget, "admission: {", "admission: {max_waiters: 0, ", 1))
	release := a.fill()
	before := a.status()
	for _, path := range []string{"/healthz", "/healthz?x"} {
		resp, answer := a.do(http.MethodGet, path, nil)
		assert.Equal(t, 200, resp.StatusCode, answer)
		resp, _ = a.do(http.MethodPost, path, strings.NewReader("small"))
		assert.Equal(t, 405, resp.StatusCode, "exempt, though it takes no POST")
	}
	for _, path := range []string{"//healthz", "/healthz/", "/healthz/../echo", "/HEALTHZ", "/echo/../healthz", "/healthz;x"} {
		c := a.dial()
		c.post(path, "Content-Length: 5")
		if a.fiberCannot(noSmallBody) {
			c.say("small")
		}
		resp, answer := c.answer()
		requireRefused(t, resp, answer, 503, "admission_busy")
	}
	for _, head := range []string{contentLength(300_000), "Transfer-Encoding: chunked"} { // heavy bodies do not ride along
		c := a.dial()
		c.post("/healthz", head)
		resp, answer := c.answer()
		requireRefused(t, resp, answer, 503, "admission_busy")
	}
	after := a.status()
	assert.Equal(t, before["inflight"], after["inflight"])
	assert.Equal(t, before["inflight_bytes"], after["inflight_bytes"])
	release()
	a.untilZero()
}

// Keys that nobody knows get no lane, no queue and no memory.
func caseK5(t *testing.T) {
	back := models(t, 0)
	a := start(t, threeTenants+"\nadmission: {max_inflight_bytes: 8MiB}\nlanes: {mode: enforce, virtual_lanes: true}", "-upstream", back.URL)
	before := heap()
	const keys = 5000
	var workers sync.WaitGroup
	for w := range 4 {
		workers.Go(func() {
			for i := range keys / 4 {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, a.url+apis[i%3].path, http.NoBody)
				if err != nil {
					t.Error(err)
					return
				}
				req.Header.Set("Authorization", "Bearer fake-"+strconv.Itoa(w)+"-"+strconv.Itoa(i))
				resp, err := a.client.Do(req)
				if err != nil {
					t.Error(err)
					return
				}
				head, _, err := read(resp)
				if err != nil || head.StatusCode != http.StatusUnauthorized {
					t.Errorf("status %d, %v", head.StatusCode, err)
					return
				}
			}
		})
	}
	workers.Wait()
	a.untilZero()
	assert.Less(t, heap(), before+before/10+2*mib)
	assert.Zero(t, back.model.Stats().Started)
	lanes := a.snapshot().Lanes
	assert.Zero(t, lanes.LaneCount)
	assert.Zero(t, lanes.Admitted+lanes.Queued+lanes.Sheds, "nobody without a key was put to the lanes")
	resp, answer := a.ask(apis[0].path, question(false, 0), "Authorization", "Bearer secret-alice")
	require.Equal(t, 200, resp.StatusCode, answer)
	assert.EqualValues(t, 1, a.snapshot().Lanes.Admitted, "who has one was")
	a.untilZero()
}

// A body that stops in the middle is ended, and what it held comes back.
func caseK9(t *testing.T) {
	back := models(t, 0)
	a := start(t, "admission: {max_inflight_bytes: 8MiB, body_idle: 200ms}", "-upstream", back.URL)
	for _, path := range []string{"/echo", "/v1/messages", "/v1/responses"} {
		c := a.dial()
		if a.fiberCannot(noSmallBody) {
			c.post(path, "Content-Length: 40960")
		} else {
			c.post(path, "Content-Length: 4096")
			c.say(strings.Repeat("x", 44))
		}
		resp, answer := c.answer()
		assert.Equal(t, 408, resp.StatusCode, answer)
		assert.Equal(t, "slow_body", resp.Header.Get("Headgate-Reason"))
		a.untilZero()
	}
	// Time in which nobody reads is not the client's.
	resp, answer := a.do(http.MethodPost, "/echo?hold=600ms", strings.NewReader("not slow"))
	requireEcho(t, []byte("not slow"), resp, answer)
}

// What an attack has taken is free afterwards.
func caseK10(t *testing.T) {
	const uploads = 2000
	a := start(t, "admission: {max_inflight_bytes: 2GiB, body_idle: 1h, min_body_rate: 0, min_body_rate_waiting: 0}")
	a.do(http.MethodPost, "/echo", strings.NewReader("to begin with"))
	before := heap()
	func() {
		conns := make([]net.Conn, 0, uploads)
		defer func() {
			for _, c := range conns {
				c.Close()
			}
		}()
		for range uploads {
			c, err := net.Dial("tcp", a.addr)
			require.NoError(t, err)
			conns = append(conns, c)
			_, err = io.WriteString(c, "POST /echo HTTP/1.1\r\nHost: test\r\n"+contentLength(mib)+"\r\n\r\n"+strings.Repeat("x", 1000+fiberPrefetch))
			require.NoError(t, err)
		}
		a.until("all of them stall", func(s status) bool { return s["inflight"] == uploads && s["inflight_bytes"] == uploads*mib })
	}()
	a.untilZero()
	if a.fiberCannot("make its pools smaller again than 2000 connections have made them") {
		before += mib
	}
	require.Eventually(t, func() bool { return heap() <= before+before/10+mib }, hang, 100*time.Millisecond,
		"the heap stays far above the %d bytes from before", before)
}

// heap is what lives after two collections, in bytes.
func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
