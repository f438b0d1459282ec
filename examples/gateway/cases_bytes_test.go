//nolint:thelper // the functions are tests, each a line of the table in TestCases
package main

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// noWait is a budget in which nobody waits, and nobody is slow.
func noWait(size string, more ...string) string {
	return "admission: {max_inflight_bytes: " + size + ", queue_timeout: 0s, body_idle: 1m, min_body_rate: 0" + strings.Join(append([]string{""}, more...), ", ") + "}"
}

func contentLength(n int) string { return "Content-Length: " + strconv.Itoa(n) }

// Many bodies at once never see the same free room: of 20 bodies of 3 MiB exactly
// three fit into 10 MiB.
func caseA1(t *testing.T) {
	a := start(t, noWait("10MiB"))
	for round := range 5 {
		conns, answers := a.flood(20, "/echo", contentLength(3*mib))
		a.until("20 decisions", func(s status) bool {
			assert.LessOrEqual(t, s["inflight_bytes"], int64(10*mib))
			return s["admitted_total"] == int64(3*(round+1)) && s["shed_total"] == int64(17*(round+1))
		})
		assert.EqualValues(t, 9*mib, a.status()["inflight_bytes"])
		refused := a.refused(17, answers, 503, "queue_timeout")
		for i, c := range conns {
			if !refused[i] {
				c.say(strings.Repeat("x", 3*mib))
			}
		}
		for range 3 {
			assert.Equal(t, 200, (<-answers).head.StatusCode)
		}
		for _, c := range conns {
			c.Close()
		}
		a.untilZero()
	}
}

// No framing gets around the cap for one body.
func caseA2(t *testing.T) {
	back := models(t, 0)
	a := start(t, "admission: {max_inflight_bytes: 8MiB, hard_max_body_bytes: 1MiB}", "-upstream", back.URL)
	for _, path := range []string{"/echo", "/v1/messages"} {
		c := a.dial() // (a) chunks, the last of them missing still
		c.post(path, "Transfer-Encoding: chunked")
		for range 2 {
			_, _ = io.WriteString(c, "100000\r\n"+strings.Repeat("x", mib)+"\r\n") // it may be cut
		}
		resp, answer := c.answer()
		assert.Equal(t, 413, resp.StatusCode)
		assert.Contains(t, answer, "payload_too_large")
		c.closed()

		for _, length := range []string{"-5", "abc"} { // (c), (d)
			c = a.dial()
			c.post(path, "Content-Length: "+length)
			resp, _ = c.answer()
			assert.Equal(t, 400, resp.StatusCode)
			c.closed()
		}
	}
	assert.Zero(t, back.model.Stats().Started)

	c := a.dial() // (b) ten bytes are declared, more follow
	c.post("/echo", "Content-Length: 10")
	go func() { _, _ = io.WriteString(c, strings.Repeat("x", 2*mib)) }() // it is cut
	resp, answer := c.answer()
	requireEcho(t, []byte("xxxxxxxxxx"), resp, answer)
	if resp, _, err := c.tryAnswer(); err == nil { // unless it was cut too
		assert.GreaterOrEqual(t, resp.StatusCode, 400)
	}
	c.closed()
	assert.LessOrEqual(t, a.status()["admitted_total"], int64(3), "nothing was reserved for (c) and (d)")
	a.untilZero()
}

// A body larger than the whole budget is refused at once: it could wait for ever.
func caseA3(t *testing.T) {
	a := start(t, "admission: {max_inflight_bytes: 8MiB, queue_timeout: 1h}")
	c := a.dial()
	c.post("/echo", contentLength(20*mib))
	resp, answer := c.answer()
	requireRefused(t, resp, answer, 413, "body_exceeds_budget") // without Retry-After
	assert.Zero(t, a.status()["queued_total"])
	a.untilZero()
}

// A budget under the cap for one body is visible, and never makes all bodies impossible.
func caseA5(t *testing.T) {
	a := start(t, "admission: {max_inflight_bytes: 1MiB, hard_max_body_bytes: 5MiB}")
	s := a.status()
	assert.EqualValues(t, 8*mib, s["max_inflight_bytes"], "raised to the least budget")
	assert.EqualValues(t, 5*mib, s["max_body_bytes"])
	body := random(5 * mib)
	resp, answer := a.do(http.MethodPost, "/echo", strings.NewReader(string(body)))
	requireEcho(t, body, resp, answer)

	a = start(t, "admission: {max_inflight_bytes: 8MiB, hard_max_body_bytes: 50MiB}")
	assert.EqualValues(t, 8*mib, a.status()["max_body_bytes"], "the smaller of the two")
	for _, yaml := range []string{"admission: {max_inflight_bytes: 0}", "admission: {hard_max_body_bytes: 0}"} {
		_, err := parseConfig([]byte(yaml), base(t))
		assert.ErrorContains(t, err, "is 0: want at least 1")
	}
}

// A count alone bounds no memory, and what one limit refuses leaves the other alone.
func caseA12(t *testing.T) {
	for _, c := range []struct {
		cap      string
		admitted int
	}{
		{"max_heavy_in_flight: 100, healthy_headroom: 0", 32}, // the bytes decide
		{"max_heavy_in_flight: 10, healthy_headroom: 0", 10},  // the count decides
	} {
		a := start(t, noWait("64MiB", c.cap))
		conns, answers := a.flood(100, "/echo", contentLength(2*mib))
		a.until("100 decisions", func(s status) bool {
			return s["admitted_total"] == int64(c.admitted) && s["shed_total"] == int64(100-c.admitted)
		})
		s := a.status()
		assert.EqualValues(t, c.admitted, s["inflight"])
		assert.EqualValues(t, c.admitted, s["heavy_inflight"])
		assert.EqualValues(t, c.admitted*2*mib, s["inflight_bytes"])
		a.refused(100-c.admitted, answers, 503, "queue_timeout")
		for _, conn := range conns {
			conn.reset()
		}
		a.untilZero()
	}
}

// A body that could not grow holds what it held, and all of it comes back.
func caseA14(t *testing.T) {
	a := start(t, smallBudget)
	full := a.dial()
	full.post("/echo", contentLength(7*mib))
	growing := a.dial()
	growing.post("/echo", "Transfer-Encoding: chunked")
	growing.say("80000\r\n" + strings.Repeat("x", 512<<10) + "\r\n")
	a.until("it has grown", func(s status) bool { return s["inflight_bytes"] >= 7*mib+512<<10 })
	growing.say("100000\r\n")
	_, _ = io.WriteString(growing, strings.Repeat("x", mib)) // it is cut
	resp, answer := growing.answer()
	requireRefused(t, resp, answer, 503, "admission_busy")
	a.until("only the other's bytes are left", func(s status) bool { return s["inflight_bytes"] == 7*mib && s["inflight"] == 1 })
	full.say(strings.Repeat("x", 7*mib))
	resp, _ = full.answer()
	assert.Equal(t, 200, resp.StatusCode)
	a.untilZero()
}

// Whoever waits is not in flight, and whoever has left without being admitted never was.
func caseA15(t *testing.T) {
	a := start(t, smallBudget)
	release := a.fill()
	conns := []*rawConn{a.dial(), a.dial()}
	for i, c := range conns {
		c.post("/echo", contentLength(mib))
		a.until("it waits", func(s status) bool {
			assert.LessOrEqual(t, s["inflight_bytes"], int64(8*mib))
			return s["waiting_bytes"] == int64(i+1)*mib
		})
	}
	for _, c := range conns {
		c.reset()
	}
	a.write(strings.Replace(smallBudget, "queue_timeout: 1m", "queue_timeout: 1ms", 1)) // an unread body hides that its client has left
	a.until("they are gone", func(s status) bool {
		assert.LessOrEqual(t, s["inflight_bytes"], int64(8*mib))
		return s["waiting"] == 0 && s["waiting_bytes"] == 0
	})
	assert.EqualValues(t, 1, a.status()["admitted_total"])
	release()
	a.untilZero()
}

// A big body at the head of the queue is passed over by two at most, and no stream of
// small ones starves it.
func caseA16(t *testing.T) {
	a := start(t, strings.Replace(smallBudget, "8MiB", "10MiB", 1))
	holder := a.dial()
	holder.post("/echo", contentLength(6*mib))
	a.until("6 MiB are in use", func(s status) bool { return s["inflight_bytes"] == 6*mib })
	big := a.dial()
	big.post("/echo", contentLength(8*mib))
	a.until("the big one waits", func(s status) bool { return s["waiting"] == 1 })
	var small []*rawConn
	for i := range int64(4) {
		c := a.dial()
		c.post("/echo", contentLength(mib))
		small = append(small, c)
		a.until("two pass it, the others wait behind it", func(s status) bool {
			return s["inflight_bytes"] == (6+min(i+1, 2))*mib && s["waiting"] == 1+max(i-1, 0)
		})
	}

	var light sync.WaitGroup // an endless stream of bodies of one byte
	enough := make(chan struct{})
	for range 4 {
		light.Go(func() {
			for {
				select {
				case <-enough:
					return
				default:
					resp, _, err := a.try(t.Context(), http.MethodPost, "/echo", strings.NewReader("x"))
					if err != nil || resp.StatusCode != http.StatusOK {
						t.Errorf("a body of one byte: status %d, %v", resp.StatusCode, err)
						return
					}
				}
			}
		})
	}
	holder.reset()
	for _, c := range small[:2] {
		c.say(strings.Repeat("x", mib))
		resp, _ := c.answer()
		assert.Equal(t, 200, resp.StatusCode)
	}
	big.say(strings.Repeat("x", 8*mib))
	resp, _ := big.answer()
	assert.Equal(t, 200, resp.StatusCode)
	for _, c := range small[2:] {
		c.say(strings.Repeat("x", mib))
		resp, _ := c.answer()
		assert.Equal(t, 200, resp.StatusCode)
	}
	close(enough)
	light.Wait()
	a.untilZero()
}

// What a body of unknown length is charged first may be more than the cap for one body.
func caseA22(t *testing.T) {
	a := start(t, "admission: {max_inflight_bytes: 8MiB, hard_max_body_bytes: 100}")
	body := random(40)
	resp, answer := a.do(http.MethodPost, "/echo", struct{ io.Reader }{strings.NewReader(string(body))})
	requireEcho(t, body, resp, answer)
	for _, n := range []int{101, 64 << 10, 64<<10 + 1} { // the cap holds all the same
		c := a.dial()
		c.post("/echo", "Transfer-Encoding: chunked")
		c.say(strconv.FormatInt(int64(n), 16) + "\r\n" + strings.Repeat("x", n) + "\r\n0\r\n\r\n")
		resp, answer = c.answer()
		requireRefused(t, resp, answer, 413, "payload_too_large")
	}
	a.untilZero()
}

// A body may be charged what it becomes: at a factor of 8, two of 1 MiB fill 16 MiB.
func caseA29(t *testing.T) {
	back := models(t, 0)
	const config = "admission: {max_inflight_bytes: 16MiB, queue_timeout: 1m, body_idle: 1m, min_body_rate: 0, min_body_rate_waiting: 0, factors: ["
	for name, factor := range map[string]string{
		"by content type": "{content_type: application/json, times: 8}",
		"by route":        "{route: POST /v1/chat/completions, times: 8}",
	} {
		a := start(t, config+factor+"]}", "-upstream", back.URL)
		body := question(false, mib)
		var conns []*rawConn
		for i := range 3 {
			c := a.dial()
			c.body = body
			c.post("/v1/chat/completions", contentLength(len(body)), "Content-Type: application/json; charset=utf-8")
			conns = append(conns, c)
			a.until(name+": two run, the third waits", func(s status) bool {
				return s["inflight_bytes"] == int64(min(i+1, 2)*8*mib) && s["waiting"] == int64(max(i-1, 0))
			})
		}
		for _, c := range conns {
			c.say(body)
			resp, answer := c.answer()
			assert.Equal(t, 200, resp.StatusCode, answer)
		}
		a.untilZero()
	}
}

// A queue of heads holds no bodies: what it may hold is bounded by itself.
func caseA31(t *testing.T) {
	queued := 0
	if *framework == "fiber" { // where a waiter has the beginning of its body in memory
		queued = 16 * fiberPrefetch
	}
	a := start(t, strings.Replace(smallBudget, "admission: {", "admission: {max_waiters: 16, max_queued_bytes: "+strconv.Itoa(queued)+", ", 1))
	release := a.fill()
	conns, answers := a.flood(100, "/echo", contentLength(mib))
	a.until("16 wait, 84 do not", func(s status) bool {
		assert.LessOrEqual(t, s["queued_bytes"], int64(queued))
		return s["waiting"] == 16 && s["shed_total"] == 84
	})
	a.refused(84, answers, 503, "admission_busy")
	for _, c := range conns {
		c.reset()
	}
	release()
	a.untilZero()
	require.Empty(t, a.status()["queued_bytes"])
}
